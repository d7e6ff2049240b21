package memstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Tx is a transaction. It is used by one goroutine, and only inside the
// function it was given to.
type Tx struct {
	s      *Store
	mark   store.Mark
	closed bool
	ended  bool  // by Commit or Rollback
	failed error // of a queued statement: nothing else works
	queue  []begun
	busy   bool // running queued statements
}

// begun is a message whose handler was started, with what it queued.
type begun struct {
	i   int
	fns []func(*Tx) error
	err error
}

func (tx *Tx) close() { tx.closed = true }

// failure is fn's error, and that it ended the transaction if it did.
func (tx *Tx) failure(err error) error {
	switch {
	case !tx.ended:
		return err
	case err == nil:
		return fmt.Errorf("nothing is committed: %w", store.ErrEnded)
	}
	return fmt.Errorf("nothing is committed: %w: %w", store.ErrEnded, err)
}

// unfinished says what stands against a commit.
func (tx *Tx) unfinished() error {
	if tx.failed != nil {
		return fmt.Errorf("commit: %w", tx.failed)
	}
	for _, b := range tx.queue {
		if len(b.fns) > 0 {
			return Errorf(semel.ClassFault, "commit: statements of message %d are queued and were not flushed", b.i)
		}
	}
	return nil
}

// enter lets an operation of the pipeline pass.
func (s *Store) enter(ctx context.Context, tx *Tx, op Op) error {
	if tx == nil || tx.s != s {
		return Errorf(semel.ClassFault, "%s: the transaction is not one of this store", op)
	}
	return tx.enter(ctx, op)
}

// enter lets an operation pass, after what is queued.
func (tx *Tx) enter(ctx context.Context, op Op) error {
	if err := tx.usable(); err != nil {
		return err
	}
	tx.run()
	if tx.failed != nil {
		return tx.failed
	}
	if err := tx.s.ask(ctx, op, tx.mark); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (tx *Tx) usable() error {
	switch {
	case tx.ended:
		return store.ErrEnded
	case tx.closed:
		return errors.New("the transaction is over")
	}
	return nil
}

// Commit is what a handler must not call. It commits nothing, makes the
// transaction unusable, and InTx fail.
func (tx *Tx) Commit() error { return tx.end() }

// Rollback is what a handler must not call either.
func (tx *Tx) Rollback() error { return tx.end() }

func (tx *Tx) end() error {
	tx.ended = true
	return store.ErrEnded
}

// Put sets a user row.
func (tx *Tx) Put(key, value string) error {
	return tx.write(func(s *Store) { s.user.set(key, value) })
}

// Delete removes a user row, if it is there.
func (tx *Tx) Delete(key string) error {
	return tx.write(func(s *Store) { s.user.del(key) })
}

// Add adds n to a user row that is a number; a missing row counts as 0.
func (tx *Tx) Add(key string, n int64) error {
	if err := tx.enter(context.Background(), OpUser); err != nil {
		return err
	}
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if v, ok := tx.s.user.get(key); ok {
		have, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return Errorf(semel.ClassPermanent, "row %q is not a number", key)
		}
		n += have
	}
	tx.s.user.set(key, strconv.FormatInt(n, 10))
	return nil
}

// Get returns a user row as the transaction sees it; nothing if it cannot be
// used any more.
func (tx *Tx) Get(key string) (string, bool) {
	v, ok, _ := tx.Lookup(key)
	return v, ok
}

// Lookup is Get with the error.
func (tx *Tx) Lookup(key string) (string, bool, error) {
	if err := tx.enter(context.Background(), OpUser); err != nil {
		return "", false, err
	}
	v, ok := tx.s.user.get(key)
	return v, ok, nil
}

func (tx *Tx) write(fn func(*Store)) error {
	if err := tx.enter(context.Background(), OpUser); err != nil {
		return err
	}
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	fn(tx.s)
	return nil
}

// Queue adds a statement to those that are sent together. It runs at the next
// flush, or before the next statement that is not queued; its error, which may
// be a verdict, is told for the message whose handler queued it. Only stores
// made by NewDeferred flush; elsewhere the commit fails.
func (tx *Tx) Queue(fn func(*Tx) error) {
	if len(tx.queue) == 0 {
		tx.queue = append(tx.queue, begun{i: -1})
	}
	b := &tx.queue[len(tx.queue)-1]
	b.fns = append(b.fns, fn)
}

// run executes what is queued and keeps the results for Flush. As in
// PostgreSQL, after an error nothing of the transaction works.
func (tx *Tx) run() {
	if tx.busy {
		return
	}
	tx.busy = true
	defer func() { tx.busy = false }()
	for i := range tx.queue {
		b := &tx.queue[i]
		fns := b.fns
		b.fns = nil
		for _, fn := range fns {
			if b.err == nil {
				b.err = tx.statement(b.i, fn)
			}
		}
	}
}

// statement runs one queued statement of message i.
func (tx *Tx) statement(i int, fn func(*Tx) error) error {
	if tx.failed != nil {
		return tx.failed
	}
	err := fn(tx)
	if err != nil && !verdict(err) {
		tx.failed = fmt.Errorf("the transaction is aborted by message %d: %w", i, err)
	}
	return err
}

func verdict(err error) bool {
	return errors.Is(err, semel.ErrDuplicate) || errors.Is(err, semel.ErrSuperseded)
}

// Deferred is a Store whose transactions can queue statements, like a
// pipelining driver. Statements that are not queued work as well.
type Deferred struct{ *Store }

// NewDeferred returns an empty store that implements store.Deferred.
func NewDeferred() *Deferred { return &Deferred{New()} }

// Connect is Store.Connect.
func (d *Deferred) Connect() *Deferred { return &Deferred{d.Store.Connect()} }

// Begin implements store.Deferred.
func (d *Deferred) Begin(tx *Tx, i int) { tx.queue = append(tx.queue, begun{i: i}) }

// Flush implements store.Deferred. An error of a statement that was queued
// before the first Begin is Flush's own.
func (d *Deferred) Flush(ctx context.Context, tx *Tx, late func(i int, err error) bool) error {
	if err := tx.usable(); err != nil {
		return err
	}
	if err := d.ask(ctx, OpFlush, tx.mark); err != nil {
		return fmt.Errorf("%s: %w", OpFlush, err)
	}
	tx.run()
	results := tx.queue
	tx.queue = nil
	for _, b := range results {
		if b.i < 0 && b.err != nil {
			return b.err
		}
		if b.i >= 0 && !late(b.i, b.err) {
			return nil
		}
	}
	return nil
}
