package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/semel-dev/semel/store"
)

// What follows is for drivers' modules, which do some things their own way.

// Insist repeats op while another connection is in the way, for as long as
// LockWait.
func (s *Store) Insist(ctx context.Context, op func() error) error {
	return s.insist(ctx, time.Now().Add(s.lockWait), op)
}

// Pending are statements of a transaction that a driver's module has not sent
// yet.
type Pending interface {
	// Send sends them. It is called before every other statement and before
	// the end of the transaction, by one goroutine at a time.
	Send(ctx context.Context) error
	// End is asked at the end of the transaction for the first error that
	// nobody was told.
	End() error
}

// Attach keeps p with the transaction; with p nil it only looks. It returns
// what was attached before, and an error if x cannot be used any more or is
// no transaction of this package.
func Attach(x Tx, p Pending) (before Pending, err error) {
	t, ok := x.(*tx)
	if !ok {
		return nil, errForeign(x)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	before = t.pending
	if p != nil {
		t.pending = p
	}
	return before, nil
}

// Spoiled returns the error with which a statement has spoiled the
// transaction, nil if it is in order. Rows that were left open are closed: the
// handler that opened them has returned.
func Spoiled(x Tx) error {
	t, ok := x.(*tx)
	if !ok {
		return errForeign(x)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeRows()
	if fate := t.session.guard.Fate(); fate == Failed || fate == Lost {
		return swallowed(t.cause)
	}
	return nil
}

// Within runs fn on the connection of a transaction of this store, while no
// other statement runs. n is the consumer's number in the tables.
func (s *Store) Within(ctx context.Context, x Tx, consumer string, fn func(c *sql.Conn, n int64) error) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	return t.lost(fn(t.session.conn, n))
}

// SendPending sends what is attached to the transaction.
func (s *Store) SendPending(ctx context.Context, x Tx) error {
	t, err := s.own(x)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return errOver
	}
	return t.send(ctx)
}

// send is SendPending with the lock held.
func (t *tx) send(ctx context.Context) error {
	if t.pending == nil {
		return nil
	}
	return t.lost(t.pending.Send(ctx))
}

// HasVersion notes that Versions, in a driver's own way, found a row and locked
// it.
func HasVersion(x Tx, consumer int64, v *store.Versioned) {
	if t, ok := x.(*tx); ok {
		t.hasVersion(consumer, v.Key)
	}
}

// sendRest sends what nobody flushed: it is not forgotten, nor are its errors.
func (t *tx) sendRest() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.send(t.ctx)
	if err == nil && t.pending != nil {
		err = t.pending.End()
	}
	return err
}
