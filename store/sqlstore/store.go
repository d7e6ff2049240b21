package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Config says how a Store uses its database.
type Config struct {
	// DB is the pool. The Store takes one connection for each committer and
	// keeps it; reads use others.
	DB *sql.DB
	// Dialect and Driver belong together; both are required.
	Dialect *Dialect
	Driver  Driver
	// LockWait bounds the wait for a lock that someone else holds. Zero
	// means 30 s.
	LockWait time.Duration
	// CloseDB: Close closes the pool as well.
	CloseDB bool
}

// Store implements store.Backend[Tx] and store.Schema. Its methods are safe
// for concurrent use.
type Store struct {
	db       *sql.DB
	dialect  *Dialect
	driver   Driver
	lockWait time.Duration
	closeDB  bool
	sessions sessions
	names    names
	janitor  janitor
	ready    atomic.Bool // the tables have been seen
}

var (
	_ store.Backend[Tx] = (*Store)(nil)
	_ store.Schema      = (*Store)(nil)
)

// New makes a Store. It does not touch the database.
func New(c Config) (*Store, error) {
	if c.DB == nil || c.Dialect == nil || c.Driver == nil {
		return nil, errors.New("sqlstore: DB, Dialect and Driver are required")
	}
	if c.LockWait < 0 {
		return nil, errors.New("sqlstore: LockWait is negative; zero means 30s")
	}
	s := &Store{db: c.DB, dialect: c.Dialect, driver: c.Driver, lockWait: c.LockWait, closeDB: c.CloseDB}
	if s.lockWait == 0 {
		s.lockWait = 30 * time.Second
	}
	s.sessions.init(c.Dialect.Capabilities.Committers)
	return s, nil
}

// Capabilities returns the dialect's.
func (s *Store) Capabilities() store.Capabilities { return s.dialect.Capabilities }

// Close gives the connections back; transactions that run meanwhile end first
// or fail. The pool is closed only if the Store opened it.
func (s *Store) Close(context.Context) error {
	s.sessions.close()
	if s.closeDB {
		return s.db.Close()
	}
	return nil
}

// InTx runs fn in one transaction; see store.Store.
func (s *Store) InTx(ctx context.Context, m store.Mark, fn func(context.Context, Tx) error) (store.Outcome, error) {
	return s.inTx(ctx, m, true, func(ctx context.Context, t *tx) error { return fn(ctx, t) })
}

func (s *Store) inTx(ctx context.Context, m store.Mark, guest bool, fn func(context.Context, *tx) error) (store.Outcome, error) {
	t, err := s.begin(ctx)
	if err != nil {
		return store.RolledBack, err
	}
	t.guest = guest
	returned := false
	defer func() {
		if !returned { // a panic or Goexit passes through fn
			t.finish()
			t.session.guard.Disarm()
			s.rollback(t.session)
		}
	}()
	if err = t.openMark(m); err == nil {
		err = t.save()
	}
	if err == nil {
		t.session.guard.Arm()
		if err = fn(t.ctx, t); err == nil {
			err = t.sendRest()
		}
	}
	returned = true
	t.finish()
	if err = s.verdict(ctx, t, err); err == nil {
		err = t.closeMark(m)
	}
	if err != nil {
		s.rollback(t.session)
		if s.dialect.Savepoint && errors.Is(err, store.ErrEnded) {
			return store.Unknown, err // what the handler committed is there
		}
		return store.RolledBack, err
	}
	return s.commit(t)
}

// update runs one of the store's own transactions.
func (s *Store) update(ctx context.Context, fn func(*tx) error) error {
	out, err := s.inTx(ctx, store.Mark{}, false, func(_ context.Context, t *tx) error { return fn(t) })
	if err == nil && out != store.Committed {
		err = errors.New("sqlstore: commit not confirmed")
	}
	return err
}

// begin opens a transaction on a session. Waiting for the lock is not a
// failure; it is bounded by LockWait.
func (s *Store) begin(ctx context.Context) (*tx, error) {
	until := time.Now().Add(s.lockWait)
	ss, err := s.session(ctx, until)
	if err != nil {
		return nil, err
	}
	begin := func() error { return ss.control(s, s.dialect.Begin) }
	err = s.insist(ctx, until, begin)
	for err != nil && ss.used && s.Classify(err) == semel.ClassInfrastructure { // died of age while idle, as others may have
		s.sessions.discard(ss)
		if ss, err = s.session(ctx, until); err != nil {
			return nil, err
		}
		err = s.insist(ctx, until, begin)
	}
	if err != nil {
		if s.driver.Again(err) || ctx.Err() != nil {
			s.sessions.put(ss)
		} else {
			s.sessions.discard(ss)
		}
		return nil, err
	}
	ss.used = true
	return newTx(ctx, s, ss), nil
}

// insist repeats op while another transaction is in the way, until the time
// is over or ctx ends. Sleeps are jittered, so that waiting processes do not
// knock in step.
func (s *Store) insist(ctx context.Context, until time.Time, op func() error) error {
	for pause := time.Millisecond / 2; ; pause = min(2*pause, 20*time.Millisecond) {
		err := op()
		if err == nil || !s.driver.Again(err) {
			return err
		}
		if !time.Now().Before(until) {
			return s.waited(err)
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

func (s *Store) waited(err error) error {
	return failf(semel.ClassContention,
		"sqlstore: the write lock was not free for %v: another process or connection holds it; end that process, or its transaction (in Go, the store's LockWait may be longer): %w", s.lockWait, err)
}

// verdict decides what the end of fn means, by what the guard saw.
func (s *Store) verdict(ctx context.Context, t *tx, err error) error {
	fate := t.session.guard.Disarm()
	if (fate == Open || fate == Failed) && !t.saved() {
		if err != nil && (ctx.Err() != nil || s.rollsBack(err)) {
			return err
		}
		return errors.Join(failf(semel.ClassFault, "sqlstore: %w (COMMIT, ROLLBACK or a statement that changes tables): what it had done by then may be stored without the rest; "+
			"remove it from the handler, the pipeline commits", store.ErrEnded), err)
	}
	switch fate {
	case Refused:
		return errors.Join(ended("COMMIT"), err)
	case Gone:
		if err == nil {
			err = t.cause
		}
		if err != nil && (t.cause != nil || ctx.Err() != nil || s.rollsBack(err)) {
			return err
		}
		return errors.Join(ended("ROLLBACK"), err)
	case Failed:
		if err == nil {
			err = swallowed(t.cause)
		}
	case Lost:
		if err == nil {
			err = errors.Join(failf(semel.ClassInfrastructure, "sqlstore: the connection was lost during the transaction"), t.cause)
		}
	}
	return err
}

func swallowed(cause error) error {
	if cause == nil {
		cause = errors.New("the error was not seen")
	}
	return fmt.Errorf("sqlstore: a statement failed, which spoils the transaction, and the handler did not return its error; "+
		"return it, or write the statement so that it does not fail (ON CONFLICT DO NOTHING), or run it within a savepoint: %w", cause)
}

// rollsBack reports errors after which a database gives up a transaction by
// itself.
func (s *Store) rollsBack(err error) bool {
	c := s.Classify(err)
	return c == semel.ClassInfrastructure || c == semel.ClassContention
}

func ended(by string) error {
	return failf(semel.ClassFault, "sqlstore: %w (%s); nothing of this batch is stored; remove it from the handler, the pipeline commits", store.ErrEnded, by)
}

// commit sends COMMIT. Refused because someone is in the way: again. Refused
// by a constraint: an answer, rolled back. Anything else leaves it open what
// happened: the connection is thrown away, so that nothing can follow on it.
func (s *Store) commit(t *tx) (store.Outcome, error) {
	quiet := context.WithoutCancel(t.ctx)
	err := s.insist(quiet, time.Now().Add(s.lockWait), func() error { return t.session.control(s, "COMMIT") })
	if err == nil {
		s.names.adopt(t.fresh)
		s.sessions.put(t.session)
		return store.Committed, nil
	}
	if s.driver.Denied(err) {
		s.rollback(t.session)
		return store.RolledBack, err
	}
	s.sessions.discard(t.session)
	return store.Unknown, failf(semel.ClassInfrastructure, "sqlstore: COMMIT was not answered: %w", err)
}

// rollback ends the transaction; a connection that cannot do even that is
// thrown away, which rolls back as well.
func (s *Store) rollback(ss *session) {
	if err := ss.control(s, "ROLLBACK"); err != nil {
		s.sessions.discard(ss)
		return
	}
	s.sessions.put(ss)
}

// Resolve reads the mark in a transaction that may write, on another
// connection than the doubtful one: it gets the lock only when the doubtful
// transaction is over.
func (s *Store) Resolve(ctx context.Context, m store.Mark) (store.Outcome, error) {
	var batch, open int64
	err := s.update(ctx, func(t *tx) error {
		n, err := t.lookup(m.Consumer)
		if err != nil {
			return err
		}
		return t.one("SELECT batch, open FROM semel_batch WHERE consumer = ? AND worker = ? AND slot = ?{lock}",
			[]any{&batch, &open}, n, blob(m.Worker), m.Slot)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.Unknown, failf(semel.ClassFault, "sqlstore: worker %q slot %d of %q has no mark: it was not enlisted, or was retired or purged", m.Worker, m.Slot, m.Consumer)
	case err != nil:
		return store.Unknown, err
	case batch > m.Batch, batch == m.Batch && open == 0:
		return store.Committed, nil // the mark moves one by one
	case batch == m.Batch-1:
		return store.RolledBack, nil
	case batch == m.Batch:
		return store.Unknown, failf(semel.ClassFault, "sqlstore: batch %d was committed before it was closed: %w", batch, store.ErrEnded)
	}
	return store.Unknown, failf(semel.ClassFault, "sqlstore: the mark of worker %q slot %d is at batch %d, not %d: someone else uses the slot", m.Worker, m.Slot, batch, m.Batch)
}

// names interns consumer names: what has been committed, so that it stays.
type names struct {
	mu sync.RWMutex
	n  map[string]int64
}

func (n *names) get(name string) (int64, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	id, ok := n.n[name]
	return id, ok
}

func (n *names) adopt(fresh map[string]int64) {
	if len(fresh) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.n == nil {
		n.n = make(map[string]int64)
	}
	for name, id := range fresh {
		n.n[name] = id
	}
}
