package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// pipeline queues what each of three messages does and flushes.
func pipeline(t *testing.T, d *memstore.Deferred, errs map[int]error, stop int) (told []string, out store.Outcome, err error) {
	t.Helper()
	out, err = d.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		for i := range 3 {
			d.Begin(tx, i)
			tx.Queue(func(tx *memstore.Tx) error { return tx.Add("n", 1) })
			tx.Queue(func(*memstore.Tx) error { return errs[i] })
			tx.Queue(func(tx *memstore.Tx) error { return tx.Add("after", 1) })
		}
		d.Begin(tx, 3) // queues nothing
		return d.Flush(ctx, tx, func(i int, err error) bool {
			told = append(told, fmt.Sprint(i, " ", err))
			return i != stop
		})
	})
	return told, out, err
}

func TestFlushTellsInOrder(t *testing.T) {
	d := memstore.NewDeferred()
	told, out, err := pipeline(t, d, nil, -1)
	must(t, err)
	want(t, "outcome", out, store.Committed)
	want(t, "told", told, []string{"0 <nil>", "1 <nil>", "2 <nil>", "3 <nil>"})
	want(t, "rows", d.Rows(), map[string]string{"n": "3", "after": "3"})
}

func TestVerdictsDoNotAbort(t *testing.T) {
	d := memstore.NewDeferred()
	told, out, err := pipeline(t, d, map[int]error{1: semel.ErrDuplicate}, -1)
	must(t, err)
	want(t, "outcome", out, store.Committed)
	want(t, "told", told, []string{"0 <nil>", "1 duplicate", "2 <nil>", "3 <nil>"})
	want(t, "rows", d.Rows(), map[string]string{"n": "3", "after": "2"})
}

func TestLateErrorAborts(t *testing.T) {
	boom := errors.New("boom")
	d := memstore.NewDeferred()
	told, out, err := pipeline(t, d, map[int]error{1: boom}, 1)
	want(t, "told", told, []string{"0 <nil>", "1 boom"})
	want(t, "outcome", out, store.RolledBack)
	if !errors.Is(err, boom) {
		t.Fatalf("a transaction went on after an error: %v", err)
	}
	want(t, "rows", len(d.Rows()), 0)
}

func TestDirectStatementsComeAfterQueuedOnes(t *testing.T) {
	d := memstore.NewDeferred()
	_, err := d.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		d.Begin(tx, 0)
		tx.Queue(func(tx *memstore.Tx) error { return tx.Put("a", "queued") })
		v, _ := tx.Get("a")
		want(t, "seen", v, "queued")
		tx.Queue(func(*memstore.Tx) error { return semel.ErrSuperseded })
		var verdict error
		err := d.Flush(ctx, tx, func(_ int, err error) bool { verdict = err; return true })
		want(t, "verdict", verdict, semel.ErrSuperseded)
		return err
	})
	must(t, err)
}

func TestNothingQueuedIsForgotten(t *testing.T) {
	s := memstore.New()
	out, err := s.InTx(t.Context(), store.Mark{}, func(_ context.Context, tx *memstore.Tx) error {
		tx.Queue(func(tx *memstore.Tx) error { return tx.Put("a", "1") })
		return nil
	})
	want(t, "outcome", out, store.RolledBack)
	want(t, "class", s.Classify(err), semel.ClassFault)
}
