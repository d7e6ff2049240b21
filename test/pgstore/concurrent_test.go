package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// blocked waits until n sessions of the database wait for a lock.
func blocked(t testing.TB, url string, n int) {
	observe(t, url, "SELECT count(*) >= $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", n)
}

func claim(ctx context.Context, s *pgstore.Store, tx sqlstore.Tx, ids ...string) (prior []store.Prior, err error) {
	var r []store.Record
	for _, id := range ids {
		r = append(r, store.Record{ID: id, Verdict: semel.Applied})
	}
	return s.Claim(ctx, tx, consumer, r, nil)
}

var levels = map[string]sql.IsolationLevel{
	"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
}

// TestConcurrentDuplicates has two connections claim one id. The second waits
// for the first; then it has a duplicate, or the message, by how the first
// ended, and never both or neither.
func TestConcurrentDuplicates(t *testing.T) {
	boom := errors.New("boom")
	for name, level := range levels {
		for _, end := range []error{nil, boom} {
			s, url := fresh(t, pgstore.Config{Isolation: level})
			inside, second := make(chan struct{}), make(chan error, 1)
			effect := func(ctx context.Context, tx sqlstore.Tx, who string) error {
				prior, err := claim(ctx, s, tx, "a", "b")
				if err != nil || len(prior) > 0 {
					return err
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO effect VALUES ($1, 'v')", []byte(who))
				return err
			}
			go func() {
				<-inside
				for {
					_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error { return effect(ctx, tx, "second") })
					if s.Classify(err) != semel.ClassContention || err == nil {
						second <- err
						return
					}
				}
			}()
			_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				if err := effect(ctx, tx, "first"); err != nil {
					return err
				}
				close(inside)
				blocked(t, url, 1)
				return end
			})
			if !errors.Is(err, end) {
				t.Errorf("%s: the first: %v", name, err)
			}
			if err := <-second; err != nil {
				t.Errorf("%s: the second: %v", name, err)
			}
			first, later := "v", ""
			if end != nil {
				first, later = "", "v"
			}
			value(t, url, "first", first)
			value(t, url, "second", later)
		}
	}
}

// TestDeadlock: of two transactions that wait for each other one ends with
// Contention; nothing of it stays, and it can be repeated.
func TestDeadlock(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	execute(t, s, "INSERT INTO effect VALUES ('a', '0'), ('b', '0')")
	first := make(chan struct{})
	second := make(chan struct{})
	done := make(chan error, 1)
	change := func(ctx context.Context, tx sqlstore.Tx, key string) error {
		_, err := tx.ExecContext(ctx, "UPDATE effect SET value = value || 'x' WHERE key = $1", []byte(key))
		return err
	}
	meet := func(mine, other chan struct{}, one, two string) error {
		_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			if err := change(ctx, tx, one); err != nil {
				return err
			}
			close(mine)
			<-other
			return change(ctx, tx, two)
		})
		return err
	}
	go func() { done <- meet(first, second, "a", "b") }()
	errs := []error{meet(second, first, "b", "a"), <-done}
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
			if s.Classify(err) != semel.ClassContention {
				t.Errorf("class %v: %v", s.Classify(err), err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d of two failed: %v", failed, errs)
	}
	value(t, url, "a", "0x")
	value(t, url, "b", "0x")
}

// TestSortedClaimsDoNotDeadlock: many connections claim overlapping sets.
func TestSortedClaimsDoNotDeadlock(t *testing.T) {
	s, _ := fresh(t, pgstore.Config{})
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	done := make(chan error)
	const workers, rounds = 4, 50
	for w := range workers {
		go func() {
			var failed error
			for r := range rounds {
				_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
					_, err := claim(ctx, s, tx, ids[(w+r)%4:4+(w*r)%5]...)
					if err == nil && r%2 == 0 {
						err = errors.New("aborted")
					}
					return err
				})
				if err != nil && s.Classify(err) != semel.ClassTransient {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestLockTimeout: the wait for a lock is bounded, and is contention.
func TestLockTimeout(t *testing.T) {
	s, _ := fresh(t, pgstore.Config{LockWait: 200 * time.Millisecond})
	execute(t, s, "INSERT INTO effect VALUES ('a', '0')")
	_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		out, err := in(t, s, func(ctx context.Context, other sqlstore.Tx) error { return put(ctx, other, "a", "2") })
		if out != store.RolledBack || s.Classify(err) != semel.ClassContention {
			t.Errorf("outcome %d, class %v: %v", out, s.Classify(err), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestIdle: a transaction that goes without statements for too long loses its
// connection, and its locks; it commits nothing.
func TestIdle(t *testing.T) {
	s, url := fresh(t, pgstore.Config{Idle: 100 * time.Millisecond})
	out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		observe(t, url, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
		return nil
	})
	if out == store.Committed || err == nil {
		t.Errorf("outcome %d, %v", out, err)
	}
	value(t, url, "a", "")
	execute(t, s, "INSERT INTO effect VALUES ('next', 'v')")
}
