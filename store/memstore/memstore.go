// Package memstore is a store in memory with the semantics of SQLite: one
// write transaction at a time, readers that see what is committed. It keeps
// the whole contract of package store, can be told to fail anywhere, and is
// made for tests: waiting for the transaction lock is a channel operation, so
// it works in testing/synctest, and a transaction costs what it changes.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

var (
	_ store.Backend[*Tx]  = (*Store)(nil)
	_ store.Backend[*Tx]  = (*Deferred)(nil)
	_ store.Deferred[*Tx] = (*Deferred)(nil)
)

// Store is one process's connection to a database in memory. It is safe for
// concurrent use. Its clock is time.Now. Faults concern this connection only.
type Store struct {
	*database

	faults  sync.Mutex
	script  func(Step) error
	planned map[Op]plan
	broken  bool
	closed  bool
	mine    map[[2]string]bool // workers enlisted here: consumer and name
}

// database is what all connections share.
type database struct {
	turn chan struct{} // holds one token: the right to write

	mu       sync.RWMutex // tables, for as long as one operation takes
	user     table[string, string]
	workers  table[slotKey, markRow]
	identity table[key, string] // by consumer and fact
	fences   table[fenceKey, fenceRow]
	inbox    table[key, recordRow]
	ledger   table[tallyKey, tally]
	versions table[key, store.Versioned]
	letters  table[key, *letterRow]
	byID     table[key, []string]    // refs of letters, by message id
	lettered table[string, int64]    // number of letters, by consumer
	waiting  table[key, struct{}]    // refs of letters that Due looks at
	causes   table[key, store.Group] // what a cause means, by its id
	holds    table[key, store.Hold]
	suspects table[key, store.Suspect]
	effects  table[key, effectRow]
	serial   int64 // numbers letters and assignments
}

// key is a row's key within a consumer.
type key struct{ consumer, id string }

// New returns a connection to a new, empty database.
func New() *Store {
	db := &database{turn: make(chan struct{}, 1)}
	db.turn <- struct{}{}
	return &Store{database: db}
}

// Connect returns another connection to the same database, as another process
// would have. s may be closed.
func (s *Store) Connect() *Store { return &Store{database: s.database} }

type undoable interface {
	commit()
	rollback()
}

// tables lists all of them.
func (s *database) tables() [15]undoable {
	return [...]undoable{
		&s.user, &s.workers, &s.identity, &s.fences, &s.inbox, &s.ledger,
		&s.versions, &s.letters, &s.byID, &s.lettered, &s.waiting, &s.causes, &s.holds, &s.suspects, &s.effects,
	}
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{Name: "memory", Committers: 1, FailsForeignCommit: true}
}

// Close implements store.Store. The database stays; what is asked of this
// connection fails from now on, class Fault.
func (s *Store) Close(context.Context) error {
	s.faults.Lock()
	defer s.faults.Unlock()
	s.closed = true
	return nil
}

// Get returns the committed user row of key.
func (s *Store) Get(key string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.user.was(key)
}

// Rows returns a copy of the committed user rows.
func (s *Store) Rows() map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Collect(s.user.committed())
}

// InTx implements store.Store. If fn panics, or ends its goroutine, the
// transaction is rolled back as by the death of its process.
func (s *Store) InTx(ctx context.Context, m store.Mark, fn func(context.Context, *Tx) error) (store.Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return store.RolledBack, err
	}
	tx := &Tx{s: s, mark: m}
	defer s.unlock()
	defer tx.close()
	if err := s.begin(ctx, tx); err != nil {
		return store.RolledBack, err
	}
	if err := fn(ctx, tx); err != nil || tx.ended {
		return store.RolledBack, tx.failure(err)
	}
	return s.finish(context.WithoutCancel(ctx), tx)
}

// lock waits for the right to write.
func (s *database) lock(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	default:
	}
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unlock ends whatever was not committed.
func (s *database) unlock() {
	s.mu.Lock()
	for _, t := range s.tables() {
		t.rollback()
	}
	s.mu.Unlock()
	s.turn <- struct{}{}
}

func (s *database) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables() {
		t.commit()
	}
}

func (s *Store) begin(ctx context.Context, tx *Tx) error {
	if err := s.ask(ctx, OpBegin, tx.mark); err != nil {
		return err
	}
	if tx.mark == (store.Mark{}) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := slotOf(tx.mark)
	row, ok := s.workers.get(k)
	if !ok || row.batch != tx.mark.Batch-1 {
		return Errorf(semel.ClassFault, "mark of %s/%s slot %d: %s, not at %d: someone else uses the slot or the worker is not enlisted",
			k.consumer, k.worker, k.slot, row.describe(ok), tx.mark.Batch-1)
	}
	s.workers.set(k, markRow{tx.mark.Batch, time.Now()})
	return nil
}

// finish commits, or says why not.
func (s *Store) finish(ctx context.Context, tx *Tx) (store.Outcome, error) {
	if err := tx.unfinished(); err != nil {
		return store.RolledBack, err
	}
	if err := s.ask(ctx, OpCommit, tx.mark); err != nil {
		if errors.Is(err, ErrLost) {
			return store.Unknown, err
		}
		return store.RolledBack, err
	}
	s.commit()
	if err := s.ask(ctx, OpCommitted, tx.mark); err != nil {
		return store.Unknown, err
	}
	return store.Committed, nil
}

// Resolve implements store.Store.
func (s *Store) Resolve(ctx context.Context, m store.Mark) (store.Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return store.Unknown, err
	}
	defer s.unlock()
	if err := s.ask(ctx, OpResolve, m); err != nil {
		return store.Unknown, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	row, ok := s.workers.get(slotOf(m))
	switch {
	case ok && m.Batch > 0 && row.batch >= m.Batch:
		return store.Committed, nil
	case ok && row.batch == m.Batch-1:
		return store.RolledBack, nil
	}
	return store.Unknown, Errorf(semel.ClassFault, "mark of %s/%s slot %d: %s, which tells nothing of batch %d",
		m.Consumer, m.Worker, m.Slot, row.describe(ok), m.Batch)
}

// alone runs fn as a transaction of its own, without mark.
func (s *Store) alone(ctx context.Context, op Op, fn func() error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if err := s.ask(ctx, op, store.Mark{}); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	err := fn()
	s.mu.Unlock()
	if err == nil {
		s.commit()
	}
	return err
}
