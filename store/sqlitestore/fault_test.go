package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
	"modernc.org/sqlite"
)

// failing is a driver whose COMMIT does what a test wants.
type failing struct {
	driver.Connector
	// commit is called instead of COMMIT; really sends it.
	commit atomic.Pointer[func(really func() error) error]
}

func (f *failing) on(commit func(really func() error) error) { f.commit.Store(&commit) }

func (f *failing) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &failingConn{c.(sqliteConn), f}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

type failingConn struct {
	sqliteConn
	f *failing
}

func (c *failingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.sqliteConn.PrepareContext(ctx, query)
	if err != nil || query != "COMMIT" {
		return st, err
	}
	return &failingStmt{Stmt: st, f: c.f}, nil
}

type failingStmt struct {
	driver.Stmt
	f *failing
}

func (s *failingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	really := func() error {
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	}
	if commit := s.f.commit.Load(); commit != nil {
		err := (*commit)(really)
		return r, err
	}
	return r, really()
}

// unreliable is a fresh store on a failing driver, with a worker enlisted.
func unreliable(t *testing.T, c Config) (s *Store, f *failing, path string) {
	t.Helper()
	_, path = fresh(t)
	dsn, err := dataSource(path)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	f = &failing{Connector: connector}
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	if s, err = New(t.Context(), db, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	if err := s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	return s, f, path
}

func markOf(batch int64) store.Mark { return store.Mark{Consumer: "c", Worker: "w", Batch: batch} }

func putting(key string) func(context.Context, sqlstore.Tx) error {
	return func(ctx context.Context, tx sqlstore.Tx) error { return put(ctx, tx, key, "v") }
}

var errCut = errors.New("connection cut")

// TestCommitUnanswered cuts the connection at COMMIT, before and after it took
// effect. InTx cannot know which; Resolve can.
func TestCommitUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		commit func(really func() error) error
		want   store.Outcome
	}{
		"before": {func(func() error) error { return errCut }, store.RolledBack},
		"after":  {func(really func() error) error { return errors.Join(really(), errCut) }, store.Committed},
		"bad connection": {func(really func() error) error {
			_ = really()
			return driver.ErrBadConn
		}, store.Committed},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, path := unreliable(t, Config{})
			f.on(c.commit)
			out, err := s.InTx(t.Context(), markOf(1), putting("k"))
			if out != store.Unknown || err == nil || s.Classify(err) != semel.ClassInfrastructure {
				t.Fatalf("outcome %d, %v (%v); want unknown, infrastructure", out, err, s.Classify(err))
			}
			f.on(func(really func() error) error { return really() })
			out, err = s.Resolve(t.Context(), markOf(1))
			if out != c.want || err != nil {
				t.Fatalf("resolved to %d, %v; want %d", out, err, c.want)
			}
			if _, there, err := get(t.Context(), path, "k"); there != (c.want == store.Committed) || err != nil {
				t.Errorf("the effect is there: %v, %v", there, err)
			}
			next := int64(1)
			if c.want == store.Committed {
				next = 2
			}
			if out, err := s.InTx(t.Context(), markOf(next), putting("next")); out != store.Committed || err != nil {
				t.Errorf("the next batch: outcome %d, %v", out, err)
			}
		})
	}
}

// TestResolveUnanswered has Resolve itself fail: it may only say unknown.
func TestResolveUnanswered(t *testing.T) {
	s, f, _ := unreliable(t, Config{})
	f.on(func(func() error) error { return errCut })
	if out, err := s.Resolve(t.Context(), markOf(1)); out != store.Unknown || !errors.Is(err, errCut) {
		t.Errorf("resolved to %d, %v; want unknown and why", out, err)
	}
}

// busy returns a real SQLITE_BUSY.
func busy(t *testing.T, path string) error {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var conns [2]*sql.Conn
	for i := range conns {
		if conns[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	if _, err := conns[0].ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err = conns[1].ExecContext(t.Context(), "BEGIN IMMEDIATE")
	if !(sqliteDriver{}).Again(err) {
		t.Fatalf("the second of two writers: %v", err)
	}
	if _, err := conns[0].ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	return err
}

// TestBusyAtCommit repeats COMMIT, because it changed nothing.
func TestBusyAtCommit(t *testing.T) {
	s, f, path := unreliable(t, Config{})
	refusal, left := busy(t, path), 3
	f.on(func(really func() error) error {
		if left--; left >= 0 {
			return refusal
		}
		return really()
	})
	if out, err := s.InTx(t.Context(), markOf(1), putting("k")); out != store.Committed || err != nil {
		t.Errorf("outcome %d, %v", out, err)
	}
	if _, there, err := get(t.Context(), path, "k"); !there || err != nil {
		t.Errorf("the effect is there: %v, %v", there, err)
	}
}

// TestBusyAtCommitForever gives up after LockWait, with a rollback: that is an
// answer, not a doubt.
func TestBusyAtCommitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, path := unreliable(t, Config{LockWait: 3 * time.Second})
		refusal := busy(t, path)
		f.on(func(func() error) error { return refusal })
		out, err := s.InTx(t.Context(), markOf(1), putting("k"))
		if out != store.RolledBack || s.Classify(err) != semel.ClassContention {
			t.Errorf("outcome %d, %v", out, err)
		}
		f.on(func(really func() error) error { return really() })
		if out, err := s.InTx(t.Context(), markOf(1), putting("next")); out != store.Committed || err != nil {
			t.Errorf("the same batch again: outcome %d, %v", out, err)
		}
		if _, there, err := get(t.Context(), path, "k"); there || err != nil {
			t.Errorf("the effect is there: %v, %v", there, err)
		}
	})
}

// TestLockWait has another handle hold the write lock for longer than LockWait.
func TestLockWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, path := fresh(t)
		waiter := openAt(t, path, Config{})
		release, held := make(chan struct{}), make(chan struct{})
		done := make(chan error)
		go func() {
			_, err := holder.InTx(t.Context(), store.Mark{}, func(context.Context, sqlstore.Tx) error {
				close(held)
				<-release
				return nil
			})
			done <- err
		}()
		<-held
		start := time.Now()
		out, err := waiter.InTx(t.Context(), store.Mark{}, putting("k"))
		if out != store.RolledBack || waiter.Classify(err) != semel.ClassContention {
			t.Errorf("outcome %d, %v (%v); want contention", out, err, waiter.Classify(err))
		}
		if want := "for 30s: another process or connection holds it; end that process"; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
		if d := time.Since(start); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("it waited %v, not 30s", d)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if out, err := waiter.InTx(t.Context(), store.Mark{}, putting("k")); out != store.Committed || err != nil {
			t.Errorf("after the lock is free: outcome %d, %v", out, err)
		}
	})
}

// TestWaitEnds has the context end while the lock is waited for.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, path := fresh(t)
		waiter := openAt(t, path, Config{})
		_, err := holder.InTx(t.Context(), store.Mark{}, func(context.Context, sqlstore.Tx) error {
			for _, s := range []*Store{waiter, holder} { // another process; another goroutine
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				out, err := s.InTx(ctx, store.Mark{}, putting("k"))
				if out != store.RolledBack || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("outcome %d, %v", out, err)
				}
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if out, err := waiter.InTx(t.Context(), store.Mark{}, putting("k")); out != store.Committed || err != nil {
			t.Errorf("after the lock is free: outcome %d, %v", out, err)
		}
	})
}

// TestNested has a handler start a transaction of its own, which can never get
// the lock: an error that says so, not a hang.
func TestNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fresh(t)
		_, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, _ sqlstore.Tx) error {
			_, err := s.InTx(ctx, store.Mark{}, putting("k"))
			return err
		})
		if s.Classify(err) != semel.ClassContention {
			t.Errorf("%v (%v)", err, s.Classify(err))
		}
	})
}

// TestDiskFull limits the size of the database.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.db")
	s := openAt(t, "file:"+path+"?_pragma=max_page_count(120)", Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "CREATE TABLE effect (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
	full := func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "small", "v"); err != nil {
			return err
		}
		return put(ctx, tx, "large", string(make([]byte, 1<<20)))
	}
	for range 2 {
		out, err := s.InTx(t.Context(), store.Mark{}, full)
		if out != store.RolledBack || s.Classify(err) != semel.ClassInfrastructure {
			t.Fatalf("outcome %d, %v (%v); want infrastructure", out, err, s.Classify(err))
		}
	}
	_, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		for i := range 5000 {
			r := store.Record{ID: string(make([]byte, 200)) + string(rune(i)), Verdict: semel.Applied}
			if _, err := s.Claim(ctx, tx, "c", []store.Record{r}, nil); err != nil {
				return err
			}
		}
		return errors.New("there was room")
	})
	if s.Classify(err) != semel.ClassInfrastructure {
		t.Errorf("claiming on a full disk: %v (%v)", err, s.Classify(err))
	}
	if _, there, err := get(t.Context(), path, "small"); there || err != nil {
		t.Errorf("half of a batch is stored: %v, %v", there, err)
	}
	execute(t, s, "INSERT INTO effect VALUES ('after', 'v')")
}

// TestInterrupted has the context end within a handler's long statement.
func TestInterrupted(t *testing.T) {
	s, path := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	out, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "k", "v"); err != nil {
			return err
		}
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := tx.ExecContext(ctx, "INSERT INTO effect WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i, i FROM n")
		return err
	})
	if out != store.RolledBack || !errors.Is(err, context.Canceled) {
		t.Errorf("outcome %d, %v", out, err)
	}
	if _, there, err := get(t.Context(), path, "k"); there || err != nil {
		t.Errorf("the effect is there: %v, %v", there, err)
	}
	execute(t, s, "INSERT INTO effect VALUES ('after', 'v')")
}

// TestConstraintAtCommit has a deferred foreign key fail at COMMIT: an answer.
func TestConstraintAtCommit(t *testing.T) {
	s, path := fresh(t)
	execute(t, s, "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
		"CREATE TABLE child (parent INTEGER NOT NULL REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO child VALUES (1)")
		return errors.Join(err, put(ctx, tx, "k", "v"))
	})
	if out != store.RolledBack || s.Classify(err) != semel.ClassPermanent {
		t.Errorf("outcome %d, %v (%v); want rolled back, permanent", out, err, s.Classify(err))
	}
	if _, there, err := get(t.Context(), path, "k"); there || err != nil {
		t.Errorf("the effect is there: %v, %v", there, err)
	}
	execute(t, s, "INSERT INTO effect VALUES ('after', 'v')")
}
