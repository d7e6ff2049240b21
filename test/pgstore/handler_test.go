package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/sqltest"
)

const consumer = "orders"

// enlisted is a store with a worker's mark at batch 0.
func enlisted(t testing.TB, c pgstore.Config) (s *pgstore.Store, url string) {
	t.Helper()
	s, url = fresh(t, c)
	if err := s.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "w", Slots: 2}); err != nil {
		t.Fatal(err)
	}
	return s, url
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

// TestForeignEnds has handlers end the transaction in every way that PostgreSQL
// knows, with and without a mark, and write afterwards. Nothing may stay.
func TestForeignEnds(t *testing.T) {
	raw := func(statement string) func(context.Context, sqlstore.Tx) {
		return func(ctx context.Context, tx sqlstore.Tx) { _, _ = pgstore.Conn(tx).Exec(ctx, statement) }
	}
	stated := func(statement string) func(context.Context, sqlstore.Tx) {
		return func(ctx context.Context, tx sqlstore.Tx) { _, _ = tx.ExecContext(ctx, statement) }
	}
	prepared := func(ctx context.Context, tx sqlstore.Tx) {
		after, err := tx.PrepareContext(ctx, "INSERT INTO effect VALUES ('late', 'v')")
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = tx.ExecContext(ctx, "ROLLBACK")
		_, _ = after.ExecContext(ctx)
	}
	const late = "; INSERT INTO effect VALUES ('late', 'v')"
	for name, end := range map[string]func(context.Context, sqlstore.Tx){
		"commit": stated("COMMIT"), "end": stated("END"), "rollback": stated("ROLLBACK"), "abort": stated("ABORT"),
		"commit and more": stated("COMMIT" + late), "rollback and more": stated("ROLLBACK" + late),
		"commit and chain": stated("COMMIT AND CHAIN"), "rollback and chain": stated("ROLLBACK AND CHAIN"),
		"rollback and begin": stated("ROLLBACK; BEGIN READ WRITE" + late),
		"native commit":      raw("COMMIT"), "native rollback": raw("ROLLBACK" + late), "native begin": raw("ROLLBACK; BEGIN READ WRITE" + late),
		"prepared":            prepared,
		"prepare transaction": stated("PREPARE TRANSACTION 'semel'"),
	} {
		t.Run(name, func(t *testing.T) {
			s, url := enlisted(t, pgstore.Config{})
			for _, m := range []store.Mark{mark(1), {}} {
				out, err := s.InTx(t.Context(), m, func(ctx context.Context, tx sqlstore.Tx) error {
					if err := put(ctx, tx, "early", "v"); err != nil {
						return err
					}
					end(ctx, tx)
					_ = put(ctx, tx, "late", "v")
					return nil
				})
				if out != store.RolledBack || err == nil {
					t.Errorf("mark %+v: outcome %d, error %v", m, out, err)
				}
				if name != "prepare transaction" && (!errors.Is(err, store.ErrEnded) || s.Classify(err) != semel.ClassFault) {
					t.Errorf("mark %+v: the error does not say who ended it: %v (%v)", m, err, s.Classify(err))
				}
				value(t, url, "early", "")
				value(t, url, "late", "")
			}
			execute(t, s, "INSERT INTO effect VALUES ('next', 'v')")
			value(t, url, "next", "v")
		})
	}
}

// in runs a handler in a transaction.
func in(t testing.TB, s *pgstore.Store, fn func(context.Context, sqlstore.Tx) error) (store.Outcome, error) {
	t.Helper()
	return s.InTx(t.Context(), store.Mark{}, fn)
}

// TestSpoiled: after a failed statement PostgreSQL takes no other. What is
// reported is the failure, not what follows from it.
func TestSpoiled(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	execute(t, s, "INSERT INTO effect VALUES ('taken', 'v')")
	const collide = "INSERT INTO effect VALUES ('taken', 'other')"
	for name, handler := range map[string]func(context.Context, sqlstore.Tx) error{
		"swallowed": func(ctx context.Context, tx sqlstore.Tx) error {
			_, _ = tx.ExecContext(ctx, collide)
			return nil
		},
		"followed by another statement": func(ctx context.Context, tx sqlstore.Tx) error {
			_, _ = tx.ExecContext(ctx, collide)
			return put(ctx, tx, "next", "v")
		},
		"followed by a query": func(ctx context.Context, tx sqlstore.Tx) error {
			_, _ = tx.ExecContext(ctx, collide)
			_, err := tx.QueryContext(ctx, "SELECT 1") //nolint:rowserrcheck,sqlclosecheck // there are none
			return err
		},
		"in a query for one row": func(ctx context.Context, tx sqlstore.Tx) error {
			_ = tx.QueryRowContext(ctx, collide+" RETURNING key")
			return nil
		},
		"followed by a store's method": func(ctx context.Context, tx sqlstore.Tx) error {
			_, _ = tx.ExecContext(ctx, collide)
			_, err := s.Claim(ctx, tx, consumer, []store.Record{{ID: "a"}}, nil)
			return err
		},
	} {
		out, err := in(t, s, handler)
		if out != store.RolledBack || s.Classify(err) != semel.ClassPermanent || !strings.Contains(err.Error(), "23505") {
			t.Errorf("%s: outcome %d, class %v: %v", name, out, s.Classify(err), err)
		}
	}
	value(t, url, "next", "")
	boom := errors.New("the handler's own")
	_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		_, _ = tx.ExecContext(ctx, collide)
		return boom
	})
	if err != boom { //nolint:errorlint // as it is
		t.Errorf("the handler's own error became %v", err)
	}
}

// TestSavepoint: a handler that knows what may fail can go on.
func TestSavepoint(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	execute(t, s, "INSERT INTO effect VALUES ('taken', 'v')")
	out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		for _, st := range []string{"SAVEPOINT a", "INSERT INTO effect VALUES ('taken', 'other')", "ROLLBACK TO a"} {
			if _, err := tx.ExecContext(ctx, st); err != nil && !strings.HasPrefix(st, "INSERT") {
				return err
			}
		}
		return put(ctx, tx, "next", "v")
	})
	if out != store.Committed || err != nil {
		t.Errorf("outcome %d, %v", out, err)
	}
	value(t, url, "next", "v")
}

// TestLeftOpen: rows that a handler left open, and a transaction that it used
// after it had returned, cost neither the connection nor the next batch.
func TestLeftOpen(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	var pids []int
	var kept sqlstore.Tx
	for range 3 {
		out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			var pid int
			if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			pids, kept = append(pids, pid), tx
			rows, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)") //nolint:rowserrcheck,sqlclosecheck // that is the point
			if err == nil && !rows.Next() {
				err = errors.New("no rows")
			}
			return err
		})
		if out != store.Committed || err != nil {
			t.Fatalf("outcome %d, %v", out, err)
		}
	}
	if pids[0] != pids[2] {
		t.Errorf("connections were thrown away: server processes %v", pids)
	}
	if err := put(t.Context(), kept, "late", "v"); err == nil {
		t.Error("a transaction could be used after its end")
	}
	var one int
	if err := kept.QueryRowContext(t.Context(), "SELECT 1").Scan(&one); err == nil {
		t.Error("a transaction could be read after its end")
	}
	value(t, url, "late", "")
}

// TestConn gives the native connection, in the running transaction.
func TestConn(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	boom := errors.New("boom")
	for _, end := range []error{boom, nil} {
		_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			_, err := pgstore.Conn(tx).CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"key", "value"},
				pgx.CopyFromRows([][]any{{[]byte("a"), []byte("1")}, {[]byte("b"), []byte("2")}}))
			return errors.Join(err, end)
		})
		if !errors.Is(err, end) {
			t.Error(err)
		}
		if end != nil {
			value(t, url, "a", "")
		}
	}
	value(t, url, "a", "1")
	if pgstore.Conn(nil) != nil {
		t.Error("a connection of no transaction")
	}
}

// TestCancelled: a statement is interrupted with the handler's context.
func TestCancelled(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	out, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		waiting := make(chan struct{})
		go func() {
			defer cancel()
			observe(t, url, "SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(300)'")
			close(waiting)
		}()
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(300)")
		<-waiting
		return err
	})
	if out != store.RolledBack || !errors.Is(err, context.Canceled) {
		t.Errorf("outcome %d, %v", out, err)
	}
	value(t, url, "a", "")
	execute(t, s, "INSERT INTO effect VALUES ('next', 'v')")
}

// observe asks the server until it says yes.
func observe(t testing.TB, url, question string, args ...any) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	for yes := false; !yes; {
		if err := db.QueryRowContext(t.Context(), question, args...).Scan(&yes); err != nil {
			t.Error(err)
			return
		}
	}
}

// TestClasses has the server itself produce the errors.
func TestClasses(t *testing.T) {
	s, _ := fresh(t, pgstore.Config{})
	execute(t, s, "CREATE TABLE typed (n INT PRIMARY KEY CHECK (n < 100), d DATE, j JSONB)",
		"CREATE FUNCTION refuse() RETURNS INT LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no stock''; END'")
	for statement, want := range map[string]semel.Class{
		"INSERT INTO typed VALUES (100)":             semel.ClassPermanent,
		"INSERT INTO typed VALUES (1), (1)":          semel.ClassPermanent,
		"INSERT INTO typed VALUES (99999999999)":     semel.ClassPermanent,
		"INSERT INTO typed VALUES (1, '2026-02-30')": semel.ClassPermanent,
		"INSERT INTO typed VALUES (1, NULL, '{')":    semel.ClassPermanent,
		"SELECT 1/0":                                               semel.ClassPermanent,
		"SELECT refuse()":                                          semel.ClassPermanent,
		"INSERT INTO missing VALUES (1)":                           semel.ClassFault,
		"INSERT INTO typed (wrong) VALUES (1)":                     semel.ClassFault,
		"SELEC 1":                                                  semel.ClassFault,
		"INSERT INTO typed VALUES ($1)":                            semel.ClassFault,
		"SELECT pg_terminate_backend(pg_backend_pid())":            semel.ClassInfrastructure,
		"DO $$ BEGIN RAISE serialization_failure; END $$":          semel.ClassContention,
		"DO $$ BEGIN RAISE deadlock_detected; END $$":              semel.ClassContention,
		"DO $$ BEGIN RAISE lock_not_available; END $$":             semel.ClassContention,
		"DO $$ BEGIN RAISE disk_full; END $$":                      semel.ClassInfrastructure,
		"DO $$ BEGIN RAISE too_many_connections; END $$":           semel.ClassInfrastructure,
		"SET LOCAL statement_timeout = '1ms'; SELECT pg_sleep(10)": semel.ClassTransient,
	} {
		out, err := in(t, s, sqltest.Ends(statement))
		if out != store.RolledBack || err == nil || s.Classify(err) != want {
			t.Errorf("%s: outcome %d, class %v, want %v: %v", statement, out, s.Classify(err), want, err)
		}
	}
	execute(t, s, "INSERT INTO typed VALUES (1)")
}

// TestDeferredConstraint: a COMMIT that the user's own constraint refuses is an
// answer, and about the message.
func TestDeferredConstraint(t *testing.T) {
	s, url := enlisted(t, pgstore.Config{})
	execute(t, s, "CREATE TABLE child (of BYTEA REFERENCES effect DEFERRABLE INITIALLY DEFERRED)")
	out, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO child VALUES ('orphan')")
		return errors.Join(err, put(ctx, tx, "a", "1"))
	})
	if out != store.RolledBack || s.Classify(err) != semel.ClassPermanent {
		t.Errorf("outcome %d, class %v: %v", out, s.Classify(err), err)
	}
	value(t, url, "a", "")
	if out, err := s.Resolve(t.Context(), mark(1)); out != store.RolledBack || err != nil {
		t.Errorf("the mark says %d, %v", out, err)
	}
}
