package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// batch runs a handler for each of n messages and flushes, as a consumer does;
// it stops at the first error that is no verdict.
func batch(t *testing.T, s *pgstore.Store, n int, handler func(ctx context.Context, tx sqlstore.Tx, i int) error) (told []string, out store.Outcome, err error) {
	t.Helper()
	out, err = in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		for i := range n {
			s.Begin(tx, i)
			if err := handler(ctx, tx, i); err != nil {
				told = append(told, fmt.Sprintf("handler %d", i))
				return errors.Join(err, s.Flush(ctx, tx, tell(&told)))
			}
		}
		return s.Flush(ctx, tx, tell(&told))
	})
	return told, out, err
}

func tell(told *[]string) func(int, error) bool {
	return func(i int, err error) bool {
		switch {
		case err == nil:
			*told = append(*told, fmt.Sprintf("%d done", i))
		case errors.Is(err, semel.ErrDuplicate), errors.Is(err, semel.ErrSuperseded):
			*told = append(*told, fmt.Sprintf("%d %v", i, err))
		default:
			*told = append(*told, fmt.Sprintf("%d failed", i))
			return false
		}
		return true
	}
}

func queued(tx sqlstore.Tx, key string) error {
	return pgstore.Queue(tx, putEffect, []byte(key), []byte("v"))
}

func TestQueue(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	execute(t, s, "INSERT INTO effect VALUES ('taken', 'v')", "CREATE TABLE typed (n INT)")
	const collide = "INSERT INTO effect VALUES ('taken', 'other')"
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		handler func(ctx context.Context, tx sqlstore.Tx, i int) error
		told    []string
		fails   semel.Class // zero value with commits: it does not
		commits bool
	}{
		"all go": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error { return queued(tx, fmt.Sprint("a", i)) },
			told: []string{"0 done", "1 done", "2 done"}, commits: true},
		"one fails": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			if i == 1 {
				return pgstore.Queue(tx, collide)
			}
			return queued(tx, fmt.Sprint("b", i))
		}, told: []string{"0 done", "1 failed"}, fails: semel.ClassPermanent},
		"a value does not fit": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			var v any = i
			if i == 1 {
				v = struct{ X int }{1}
			}
			return pgstore.Queue(tx, "INSERT INTO typed VALUES ($1)", v)
		}, told: []string{"0 done", "1 failed"}, fails: semel.ClassPermanent},
		"a text is wrong": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			if i == 2 {
				return pgstore.Queue(tx, "INSERT INTO missing VALUES ($1)", i)
			}
			return queued(tx, "c")
		}, told: []string{"0 done", "1 done", "2 failed"}, fails: semel.ClassFault},
		"verdicts": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			return pgstore.QueueThen(tx, func(rows int64) error {
				if rows == 0 {
					return semel.ErrDuplicate
				}
				return nil
			}, "INSERT INTO effect VALUES ($1, 'v') ON CONFLICT DO NOTHING", []byte([]string{"d", "taken", "e"}[i]))
		}, told: []string{"0 done", "1 duplicate", "2 done"}, commits: true},
		"a function fails": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			return pgstore.QueueThen(tx, func(int64) error {
				if i == 1 {
					return boom
				}
				return nil
			}, putEffect, []byte("f"), []byte("v"))
		}, told: []string{"0 done", "1 failed"}, fails: semel.ClassTransient},
		"seen by a later direct statement": {handler: func(ctx context.Context, tx sqlstore.Tx, i int) error {
			if i == 0 {
				return pgstore.Queue(tx, collide)
			}
			return put(ctx, tx, "g", "v")
		}, told: []string{"handler 1", "0 failed"}, fails: semel.ClassPermanent},
		"swallowed by a handler without a queue": {handler: func(ctx context.Context, tx sqlstore.Tx, i int) error {
			if i == 0 {
				_, _ = tx.ExecContext(ctx, collide)
				return nil
			}
			return put(ctx, tx, "h", "v")
		}, told: []string{"handler 1", "0 failed"}, fails: semel.ClassPermanent},
		"swallowed by the last": {handler: func(ctx context.Context, tx sqlstore.Tx, i int) error {
			if i == 2 {
				_, _ = tx.ExecContext(ctx, collide)
			}
			return nil
		}, told: []string{"0 done", "1 done", "2 failed"}, fails: semel.ClassPermanent},
		"ends": {handler: func(_ context.Context, tx sqlstore.Tx, i int) error {
			return pgstore.Queue(tx, " rollback;")
		}, told: []string{"handler 0", "0 done"}, fails: semel.ClassFault},
		"rows left open": {handler: func(ctx context.Context, tx sqlstore.Tx, i int) error {
			rows, err := tx.QueryContext(ctx, "SELECT generate_series(1, 10000)") //nolint:rowserrcheck,sqlclosecheck // that is the point
			if err == nil {
				rows.Next()
			}
			return err
		}, told: []string{"0 done", "1 done", "2 done"}, commits: true},
	} {
		t.Run(name, func(t *testing.T) {
			told, out, err := batch(t, s, 3, c.handler)
			if !slices.Equal(told, c.told) {
				t.Errorf("told %q, want %q (%v)", told, c.told, err)
			}
			if c.commits != (out == store.Committed) || c.commits != (err == nil) {
				t.Errorf("outcome %d, %v", out, err)
			}
			if !c.commits && s.Classify(err) != c.fails {
				t.Errorf("class %v, want %v: %v", s.Classify(err), c.fails, err)
			}
		})
	}
	for _, key := range []string{"a0", "a2", "d", "e"} {
		value(t, url, key, "v")
	}
	for _, key := range []string{"b0", "b2", "c", "f", "g", "h"} {
		value(t, url, key, "")
	}
	value(t, url, "taken", "v")
}

// TestQueueOrder: a direct statement comes after what was queued before it.
func TestQueueOrder(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if err := queued(tx, "a"); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM effect").Scan(&n); err != nil || n != 1 {
			t.Errorf("a query sees %d rows, %v", n, err)
		}
		return queued(tx, "b") // nobody flushes
	})
	if out != store.Committed || err != nil {
		t.Fatalf("outcome %d, %v", out, err)
	}
	value(t, url, "a", "v")
	value(t, url, "b", "v")
}

// TestQueueForgetsNothing: without a consumer that flushes, errors end the
// transaction.
func TestQueueForgetsNothing(t *testing.T) {
	s, url := fresh(t, pgstore.Config{})
	for name, then := range map[string]func(int64) error{
		"failure": func(int64) error { return errors.New("boom") },
		"verdict": func(int64) error { return semel.ErrDuplicate },
	} {
		out, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			if err := pgstore.QueueThen(tx, then, putEffect, []byte("a"), []byte("v")); err != nil {
				return err
			}
			_ = put(ctx, tx, "b", "v") // hears of it, and says nothing
			return nil
		})
		if out != store.RolledBack || err == nil {
			t.Errorf("%s: outcome %d, %v", name, out, err)
		}
		value(t, url, "a", "")
		value(t, url, "b", "")
	}
	if err := pgstore.Queue(nil, "SELECT 1"); err == nil || !strings.Contains(err.Error(), "not a transaction") {
		t.Errorf("a queue without a transaction: %v", err)
	}
	var kept sqlstore.Tx
	execute(t, s, "SELECT 1")
	_, _ = in(t, s, func(_ context.Context, tx sqlstore.Tx) error { kept = tx; return nil })
	if err := queued(kept, "late"); err == nil {
		t.Error("a statement was queued after the end")
	}
}
