package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// in runs a handler in a transaction that must commit.
func in(t *testing.T, s *Store, fn func(ctx context.Context, tx sqlstore.Tx) error) {
	t.Helper()
	if out, err := s.InTx(t.Context(), store.Mark{}, fn); out != store.Committed || err != nil {
		t.Fatalf("outcome %d, %v", out, err)
	}
}

// TestTxHidesTheEnd: no type assertion gives a handler Commit or Rollback.
func TestTxHidesTheEnd(t *testing.T) {
	s, _ := fresh(t)
	in(t, s, func(_ context.Context, tx sqlstore.Tx) error {
		if _, ok := tx.(interface{ Commit() error }); ok {
			t.Error("Tx can be asserted to something that commits")
		}
		if _, ok := tx.(interface{ Rollback() error }); ok {
			t.Error("Tx can be asserted to something that rolls back")
		}
		return nil
	})
}

// TestEveryWayToEnd has handlers end the transaction by other statements than
// the plain ones, and go on writing.
func TestEveryWayToEnd(t *testing.T) {
	for _, script := range []string{
		"COMMIT", "END TRANSACTION", "commit; INSERT INTO effect VALUES ('late', 'v')",
		"ROLLBACK", "ROLLBACK; BEGIN; INSERT INTO effect VALUES ('late', 'v')", "ROLLBACK; INSERT INTO effect VALUES ('late', 'v')",
		"COMMIT; BEGIN IMMEDIATE; INSERT INTO effect VALUES ('late', 'v'); COMMIT",
	} {
		for _, way := range []string{"exec", "query", "prepare", "unwrap"} {
			t.Run(way+" "+script, func(t *testing.T) {
				s, path := fresh(t)
				out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
					if err := put(ctx, tx, "early", "v"); err != nil {
						return err
					}
					_ = runBy(ctx, way, tx, script) // a handler that looks at no error
					_ = put(ctx, tx, "after", "v")
					return nil
				})
				if out != store.RolledBack || s.Classify(err) != semel.ClassFault || !strings.Contains(fmt.Sprint(err), store.ErrEnded.Error()) {
					t.Errorf("outcome %d, %v (%v)", out, err, s.Classify(err))
				}
				for _, key := range []string{"early", "late", "after"} {
					if _, there, err := get(t.Context(), path, key); there || err != nil {
						t.Errorf("%s is stored: %v, %v", key, there, err)
					}
				}
				execute(t, s, "INSERT INTO effect VALUES ('next', 'v')")
			})
		}
	}
}

func runBy(ctx context.Context, way string, tx sqlstore.Tx, script string) error {
	switch way {
	case "exec":
		_, err := tx.ExecContext(ctx, script)
		return err
	case "query":
		rows, err := tx.QueryContext(ctx, script)
		if err != nil {
			return err
		}
		return rows.Close()
	case "prepare":
		st, err := tx.PrepareContext(ctx, script)
		if err != nil {
			return err
		}
		_, err = st.ExecContext(ctx)
		return err
	}
	_, err := sqlstore.Unwrap(tx).ExecContext(ctx, script)
	return err
}

// TestSavepoints are a handler's own business.
func TestSavepoints(t *testing.T) {
	s, path := fresh(t)
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		for _, q := range []string{
			"SAVEPOINT a", "INSERT INTO effect VALUES ('a', 'v')", "RELEASE a",
			"SAVEPOINT b", "INSERT INTO effect VALUES ('b', 'v')", "ROLLBACK TO b", "RELEASE b",
		} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
	for key, want := range map[string]bool{"a": true, "b": false} {
		if _, there, err := get(t.Context(), path, key); there != want || err != nil {
			t.Errorf("%s is there: %v, %v", key, there, err)
		}
	}
}

// TestLeaks has handlers that close nothing. A cursor left open would keep its
// snapshot, and the next transaction could not write once another process had.
func TestLeaks(t *testing.T) {
	s, path := fresh(t)
	other := openAt(t, path, Config{})
	execute(t, s, "INSERT INTO effect WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 500) SELECT 'k' || i, 'v' FROM n")
	var rows []*sql.Rows // the garbage collector does not close them
	var stmts []*sql.Stmt
	for i := range 5 {
		in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			for _, c := range []context.Context{ctx, context.Background()} {
				r, err := tx.QueryContext(c, "SELECT key FROM effect")
				if err != nil || !r.Next() {
					return fmt.Errorf("query: %w", err)
				}
				st, err := tx.PrepareContext(c, "SELECT value FROM effect")
				if err != nil {
					return err
				}
				rows, stmts = append(rows, r), append(stmts, st)
			}
			return put(ctx, tx, fmt.Sprint("by s ", i), "v")
		})
		in(t, other, func(ctx context.Context, tx sqlstore.Tx) error { return put(ctx, tx, fmt.Sprint("by other ", i), "v") })
	}
	for _, r := range rows {
		for r.Next() {
		}
		if r.Err() == nil {
			t.Error("rows outlived their transaction")
		}
	}
	for _, st := range stmts {
		if _, err := st.Query(); err == nil {
			t.Error("a prepared statement outlived its transaction")
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStatements uses more statements than are kept, and some at once.
func TestStatements(t *testing.T) {
	s, path := fresh(t)
	for range 2 {
		in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			for i := range 300 {
				q := fmt.Sprintf("INSERT INTO effect VALUES ('k%d', ?) ON CONFLICT (key) DO UPDATE SET value = effect.value || excluded.value", i)
				if _, err := tx.ExecContext(ctx, q, []byte("v")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if v, _, err := get(t.Context(), path, "k299"); v != "vv" || err != nil {
		t.Errorf("value %q, %v", v, err)
	}
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT key FROM effect")
		if err != nil {
			return err
		}
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var key, value []byte
			if err := rows.Scan(&key); err != nil {
				return err
			}
			if err := tx.QueryRowContext(ctx, "SELECT value FROM effect WHERE key = ?", string(key)).Scan(&value); err != nil {
				return fmt.Errorf("a query within a query: %w", err)
			}
		}
		if n != 300 {
			return fmt.Errorf("%d rows", n)
		}
		return rows.Err()
	})
}

// TestArguments: statements mean the same whichever way they are run, with
// arguments that the driver takes as they are and others, in turn and while
// rows are open.
func TestArguments(t *testing.T) {
	s, _ := fresh(t)
	type text string
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	n := 7
	for _, c := range []struct {
		arg  any
		want string
	}{
		{1, "1"},
		{int64(-1), "-1"},
		{int32(2), "2"},
		{uint8(3), "3"},
		{1.5, "1.5"},
		{true, "1"},
		{"it's", "'it''s'"},
		{text("named type"), "'named type'"},
		{[]byte("a\x00b"), "X'610062'"},
		{[]byte{}, "X''"},
		{nil, "NULL"},
		{&n, "7"},
		{(*int)(nil), "NULL"},
		{sql.NullString{}, "NULL"},
		{sql.NullInt64{Int64: 5, Valid: true}, "5"},
		{sql.Named("x", "by name"), "'by name'"},
		{at, "'2026-11-30 01:02:03 +0000 UTC'"},
	} {
		t.Run(fmt.Sprintf("%T %v", c.arg, c.want), func(t *testing.T) {
			parameter := "?"
			if _, named := c.arg.(sql.NamedArg); named {
				parameter = "@x"
			}
			in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				rows, err := tx.QueryContext(ctx, "SELECT 1 UNION SELECT 2")
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					r, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES ('k', quote("+parameter+")) ON CONFLICT (key) DO UPDATE SET value = excluded.value", c.arg)
					if err != nil {
						return err
					}
					if n, err := r.RowsAffected(); n != 1 || err != nil {
						t.Errorf("%d rows affected, %v", n, err)
					}
				}
				var got string
				if err := tx.QueryRowContext(ctx, "SELECT value FROM effect").Scan(&got); err != nil {
					return err
				}
				if got != c.want {
					t.Errorf("%v is stored as %s, want %s", c.arg, got, c.want)
				}
				return rows.Err()
			})
		})
	}
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		for _, args := range [][]any{{}, {make(chan int)}, {struct{}{}}} {
			if _, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES ('bad', ?)", args...); err == nil {
				t.Errorf("arguments %v are taken", args)
			}
		}
		return nil
	})
}

// TestSchemaChange alters a table under statements that are kept prepared.
func TestSchemaChange(t *testing.T) {
	s, path := fresh(t)
	insert := func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effect (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", []byte("k"), []byte("v"))
		return err
	}
	in(t, s, insert)
	other := openAt(t, path, Config{})
	execute(t, other, "ALTER TABLE effect ADD COLUMN more INTEGER", "CREATE INDEX effect_more ON effect (more)")
	in(t, s, insert)
	execute(t, other, "DROP TABLE effect")
	if _, err := s.InTx(t.Context(), store.Mark{}, insert); s.Classify(err) != semel.ClassFault {
		t.Errorf("after the table was dropped: %v", err)
	}
}

// TestManyGoroutines has a handler use its transaction from several at once.
func TestManyGoroutines(t *testing.T) {
	s, path := fresh(t)
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 20 {
					if err := put(ctx, tx, fmt.Sprint(g, i), "v"); err != nil {
						t.Error(err)
					}
					var n int
					if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM effect").Scan(&n); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
	if _, there, err := get(t.Context(), path, "3 19"); !there || err != nil {
		t.Errorf("the last value is there: %v, %v", there, err)
	}
}

// TestStrayGoroutine has a handler's goroutine go on after the handler: what it
// writes must not become part of the next batch.
func TestStrayGoroutine(t *testing.T) {
	s, path := fresh(t)
	begun, stop := make(chan struct{}), make(chan struct{})
	var stray sync.WaitGroup
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		stray.Go(func() {
			for i := 0; ; i++ {
				err := put(context.Background(), tx, "stray", fmt.Sprint(i))
				if i == 0 {
					close(begun)
				}
				select {
				case <-stop:
					if err == nil {
						t.Error("the transaction can be used after its end")
					}
					return
				default:
				}
			}
		})
		<-begun
		return nil
	})
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM effect WHERE key = ?", []byte("stray"))
		return err
	})
	close(stop)
	stray.Wait()
	if v, there, err := get(t.Context(), path, "stray"); there || err != nil {
		t.Errorf("the stray goroutine wrote %q into another transaction, %v", v, err)
	}
}

// TestForeignTx hands a store a transaction that is not its own.
func TestForeignTx(t *testing.T) {
	s, _ := fresh(t)
	other, _ := fresh(t)
	in(t, other, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "a"}}, nil)
		if s.Classify(err) != semel.ClassFault {
			t.Errorf("a transaction of another store was taken: %v", err)
		}
		return nil
	})
}

// TestCancelledStatement has the context end between two statements.
func TestCancelledStatement(t *testing.T) {
	s, _ := fresh(t)
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := put(ctx, tx, "a", "v"); err != nil {
			return err
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if err := put(cancelled, tx, "a", "w"); err == nil {
			t.Error("a statement ran although its context had ended")
		}
		if _, err := s.Claim(cancelled, tx, "c", []store.Record{{ID: "a"}}, nil); err == nil {
			t.Error("ids were claimed although the context had ended")
		}
		return put(ctx, tx, "b", "v")
	})
}
