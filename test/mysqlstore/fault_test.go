package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/mysqlstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/cutproxy"
	"github.com/semel-dev/semel/test/servers/servertest"
	"github.com/semel-dev/semel/test/sqltest"
)

const consumer = "orders"

func enlist(t testing.TB, s *mysqlstore.Store, worker string) {
	t.Helper()
	if err := s.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: worker, Slots: 2}); err != nil {
		t.Fatal(err)
	}
}

func mark(batch int64) store.Mark { return sqltest.Mark(batch) }

// value expects a committed value of the user's own; "" means none.
func value(t testing.TB, url, key, want string) {
	t.Helper()
	have, ok, err := get(context.Background(), url, key)
	if err != nil || ok != (want != "") || have != want {
		t.Errorf("value %q is %q (there: %v, error %v), want %q", key, have, ok, err, want)
	}
}

func in(t testing.TB, s *mysqlstore.Store, fn func(context.Context, sqlstore.Tx) error) (store.Outcome, error) {
	t.Helper()
	return s.InTx(t.Context(), store.Mark{}, fn)
}

func claim(ctx context.Context, s *mysqlstore.Store, tx sqlstore.Tx, ids ...string) (prior []store.Prior, err error) {
	var r []store.Record
	for _, id := range ids {
		r = append(r, store.Record{ID: id, Verdict: semel.Applied})
	}
	return s.Claim(ctx, tx, consumer, r, nil)
}

// TestForeignEnds has handlers end the transaction in every way that there is,
// and write afterwards. The end is noticed, what came after it does not stay;
// and if it was a commit, the consumer does not go on, here or elsewhere, until
// a person has looked.
func TestForeignEnds(t *testing.T) {
	for name, c := range map[string]struct {
		statement string
		commits   bool
	}{
		"commit":             {"COMMIT", true},
		"commit and chain":   {"COMMIT AND CHAIN", true},
		"begin":              {"BEGIN", true},
		"start":              {"START TRANSACTION READ WRITE", true},
		"change of a table":  {"CREATE TABLE more (n INT)", true},
		"lock":               {"LOCK TABLES effect WRITE", true},
		"autocommit":         {"SET autocommit = 1", false}, // it was 1: no end
		"rollback":           {"ROLLBACK", false},
		"rollback and chain": {"ROLLBACK AND CHAIN", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := fresh(t, mysqlstore.Config{})
			enlist(t, s, "w")
			out, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx sqlstore.Tx) error {
				if _, err := claim(ctx, s, tx, "id"); err != nil {
					return err
				}
				if err := put(ctx, tx, "early", "v"); err != nil {
					return err
				}
				_, _ = sqlstore.Unwrap(tx).ExecContext(ctx, c.statement) // MySQL takes some of them unprepared only
				_ = put(ctx, tx, "late", "v")
				return nil
			})
			if name == "autocommit" {
				if out != store.Committed || err != nil {
					t.Errorf("outcome %d, %v", out, err)
				}
				return
			}
			if out == store.Committed || !errors.Is(err, store.ErrEnded) || s.Classify(err) != semel.ClassFault {
				t.Fatalf("outcome %d, class %v: %v", out, s.Classify(err), err)
			}
			if !strings.Contains(name, "chain") && name != "start" { // those can write on; their writes are as lost as the rest
				value(t, url, "late", "")
			}
			other := openAt(t, url, mysqlstore.Config{})
			refused := other.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "next", Slots: 1})
			_, assign := other.Assign(t.Context(), consumer, "next", []store.Start{{Scope: semel.Scope{Name: "s", Incarnation: "1"}}})
			for _, err := range []error{refused, assign} {
				if c.commits != errors.Is(err, store.ErrEnded) {
					t.Errorf("afterwards: %v", err)
				}
			}
			if !c.commits {
				value(t, url, "early", "")
				return
			}
			if !strings.Contains(refused.Error(), "UPDATE semel_batch SET open = 0") {
				t.Errorf("no remedy in: %v", refused)
			}
			execute(t, url, "UPDATE semel_batch SET open = 0 WHERE open = 1")
			if err := other.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "next", Slots: 1}); err != nil {
				t.Errorf("after the remedy: %v", err)
			}
		})
	}
}

// TestForeignCommitElsewhere: a worker that runs meanwhile does not take the
// records of a batch that was committed by half for proof.
func TestForeignCommitElsewhere(t *testing.T) {
	s, _ := fresh(t, mysqlstore.Config{})
	enlist(t, s, "w")
	enlist(t, s, "other")
	_, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx sqlstore.Tx) error {
		if _, err := claim(ctx, s, tx, "id"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "COMMIT")
		return err
	})
	if !errors.Is(err, store.ErrEnded) {
		t.Fatal(err)
	}
	for _, m := range []store.Mark{{Consumer: consumer, Worker: "other", Batch: 1}, {Consumer: consumer, Worker: "w", Slot: 1, Batch: 1}} {
		for id, want := range map[string]bool{"id": true, "fresh": false} {
			_, err = s.InTx(t.Context(), m, func(ctx context.Context, tx sqlstore.Tx) error {
				if _, err := claim(ctx, s, tx, id); err != nil {
					return err
				}
				return errors.New("enough")
			})
			if errors.Is(err, store.ErrEnded) != want {
				t.Errorf("%+v: claim of %s: %v", m, id, err)
			}
		}
	}
}

// TestIdleConnections: connections that the server closed while nobody used them
// are no failure, however many there are.
func TestIdleConnections(t *testing.T) {
	s, url := fresh(t, mysqlstore.Config{})
	db := pool(t, url)
	const all = 3
	var inside, done sync.WaitGroup
	inside.Add(all)
	ids := make(chan int64, all)
	for range all {
		done.Go(func() {
			_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				var id int64
				err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)
				ids <- id
				inside.Done()
				inside.Wait() // each on a connection of its own
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	for range all {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", <-ids)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error { return put(ctx, tx, "a", "v") }); err != nil {
		t.Error(err)
	}
	value(t, url, "a", "v")
}

// TestPrivileges: once the tables are there, a user who may only read and write
// them is enough; who may not make them is told so.
func TestPrivileges(t *testing.T) {
	_, url := fresh(t, mysqlstore.Config{})
	db := pool(t, url)
	as := func(name, rights string) string {
		t.Helper()
		u, err := neturl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		name += "_" + strings.TrimPrefix(u.Path, "/semel_")
		for _, st := range []string{
			fmt.Sprintf("CREATE USER `%s`@'%%' IDENTIFIED BY 'Pa55-word'", name),
			fmt.Sprintf("GRANT %s ON `%s`.* TO `%s`@'%%'", rights, u.Path[1:], name),
		} {
			if _, err := db.ExecContext(t.Context(), st); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = db.Exec(fmt.Sprintf("DROP USER `%s`@'%%'", name)) })
		u.User = neturl.UserPassword(name, "Pa55-word")
		return u.String()
	}
	s := openAt(t, as("worker", "SELECT, INSERT, UPDATE, DELETE"), mysqlstore.Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	enlist(t, s, "w")
	out, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx sqlstore.Tx) error {
		if _, err := claim(ctx, s, tx, "id"); err != nil {
			return err
		}
		return put(ctx, tx, "a", "v")
	})
	if out != store.Committed || err != nil {
		t.Errorf("outcome %d, %v", out, err)
	}
	execute(t, url, "DROP TABLE semel_effect", "DELETE FROM semel_schema WHERE version > 1")
	if err := s.Migrate(t.Context()); err == nil || s.Classify(err) != semel.ClassFault || !strings.Contains(err.Error(), "semel schema print") {
		t.Errorf("without the right to make tables: class %v: %v", s.Classify(err), err)
	}
}

// waiting waits until n transactions of the server wait for a lock. The server
// looks again only if it has not been asked for a tenth of a second.
func waiting(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(150 * time.Millisecond) {
		var have int
		err := db.QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&have)
		if err != nil {
			t.Error(err)
			return
		}
		if have >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d transactions wait, want %d", have, n)
			return
		}
	}
}

// own is a server that nobody else's locks are on.
func own(t testing.TB) (s *mysqlstore.Store, url string, server *servertest.Server) {
	t.Helper()
	server = kind.Start(t, servertest.Options{})
	url = server.Database(t)
	s = openAt(t, url, mysqlstore.Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "CREATE TABLE effect (`key` VARBINARY(255) PRIMARY KEY, value VARBINARY(255) NOT NULL)")
	return s, url, server
}

// TestConcurrentDuplicates has connections claim one id. Those that wait have a
// duplicate, or one of them has the message, by how the first ended.
func TestConcurrentDuplicates(t *testing.T) {
	s, url, _ := own(t)
	enlist(t, s, "w")
	db := pool(t, url)
	boom := errors.New("boom")
	for _, others := range []int{1, 3} {
		for _, end := range []error{nil, boom} {
			execute(t, url, "DELETE FROM effect", "DELETE FROM semel_inbox")
			effect := func(ctx context.Context, tx sqlstore.Tx, who string) error {
				prior, err := claim(ctx, s, tx, "a", "b")
				if err != nil || len(prior) > 0 {
					return err
				}
				return put(ctx, tx, who, "v")
			}
			inside, done := make(chan struct{}), make(chan error, others)
			for i := range others {
				go func() {
					<-inside
					for {
						_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error { return effect(ctx, tx, fmt.Sprint("other", i)) })
						if err == nil || s.Classify(err) != semel.ClassContention {
							done <- err
							return
						}
						t.Logf("again after: %v", err) // of waiters for a row that vanished one may be a deadlock's victim
					}
				}()
			}
			_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				if err := effect(ctx, tx, "first"); err != nil {
					return err
				}
				close(inside)
				waiting(t, db, others)
				return end
			})
			if !errors.Is(err, end) {
				t.Errorf("the first: %v", err)
			}
			for range others {
				if err := <-done; err != nil {
					t.Errorf("another: %v", err)
				}
			}
			var effects, first int
			if err := db.QueryRow("SELECT COUNT(*), COALESCE(SUM(`key` = 'first'), 0) FROM effect").Scan(&effects, &first); err != nil {
				t.Fatal(err)
			}
			if effects != 1 || (first == 1) != (end == nil) {
				t.Errorf("%d others, the first ended with %v: %d effects, %d of the first", others, end, effects, first)
			}
		}
	}
}

// TestDeadlock: of two transactions that wait for each other one ends with
// Contention, whatever its handler makes of the error; nothing of it stays.
func TestDeadlock(t *testing.T) {
	for _, swallow := range []bool{false, true} {
		s, url, _ := own(t)
		execute(t, url, "INSERT INTO effect VALUES ('a', '0'), ('b', '0')")
		change := func(ctx context.Context, tx sqlstore.Tx, key string) error {
			_, err := tx.ExecContext(ctx, "UPDATE effect SET value = CONCAT(value, 'x') WHERE `key` = ?", []byte(key))
			return err
		}
		meet := func(mine, other chan struct{}, one, two string) error {
			_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				if err := change(ctx, tx, one); err != nil {
					return err
				}
				close(mine)
				<-other
				if err := change(ctx, tx, two); err != nil && !swallow {
					return err
				}
				_ = put(ctx, tx, "after", "v")
				return nil
			})
			return err
		}
		first, second, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() { done <- meet(second, first, "b", "a") }()
		errs := []error{meet(first, second, "a", "b"), <-done}
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
				if s.Classify(err) != semel.ClassContention {
					t.Errorf("swallowed %v: class %v: %v", swallow, s.Classify(err), err)
				}
			}
		}
		if failed != 1 {
			t.Errorf("%v", errs)
		}
		value(t, url, "a", "0x")
		value(t, url, "b", "0x")
	}
}

// TestLockWait: a lock that is not free in time undoes one statement. The rest
// must not be committed without it.
func TestLockWait(t *testing.T) {
	s, url, _ := own(t)
	execute(t, url, "INSERT INTO effect VALUES ('a', '0')")
	short := openAt(t, url, mysqlstore.Config{LockWait: time.Second})
	_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		out, err := in(t, short, func(ctx context.Context, tx sqlstore.Tx) error {
			if err := put(ctx, tx, "half", "v"); err != nil {
				return err
			}
			_ = put(ctx, tx, "a", "2") // a handler that looks at no error
			return nil
		})
		if out != store.RolledBack || short.Classify(err) != semel.ClassContention {
			t.Errorf("outcome %d, class %v: %v", out, short.Classify(err), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	value(t, url, "a", "1")
	value(t, url, "half", "")
}

func TestCommitUnknown(t *testing.T) {
	direct, address := fresh(t, mysqlstore.Config{})
	enlist(t, direct, "w")
	p, behind := cutproxy.Before(t, address, []byte("\x03COMMIT"))
	kit(t, openAt(t, behind, mysqlstore.Config{}), address).CommitUnknown(t, p)
}

func TestServerKilled(t *testing.T) {
	s, address, server := own(t)
	enlist(t, s, "w")
	kit(t, s, address).ServerKilled(t, server)
}

func kit(t testing.TB, s *mysqlstore.Store, address string) sqltest.Kit {
	return sqltest.Kit{Store: s, Put: put, Value: func(key, want string) { value(t, address, key, want) }}
}

// TestMigrateAtOnce: many processes may start on an empty database.
func TestMigrateAtOnce(t *testing.T) {
	url := kind.Database(t)
	done := make(chan error)
	const all = 6
	for range all {
		go func() {
			s, err := mysqlstore.Open(t.Context(), url, mysqlstore.Config{})
			if err == nil {
				err = errors.Join(s.Migrate(t.Context()), s.Close(t.Context()))
			}
			done <- err
		}()
	}
	for range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestIdle: a transaction whose process stands still is ended by the server, so
// that its locks do not outlive it for hours.
func TestIdle(t *testing.T) {
	_, url := fresh(t, mysqlstore.Config{})
	s := openAt(t, url, mysqlstore.Config{Idle: time.Second})
	db := pool(t, url)
	out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "INSERT INTO effect VALUES ('a', '2')") // waits for the lock
		return err
	})
	if err == nil || out == store.Committed || s.Classify(err) != semel.ClassInfrastructure {
		t.Errorf("outcome %d, class %v: %v", out, s.Classify(err), err)
	}
	value(t, url, "a", "2")
}
