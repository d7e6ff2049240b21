package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do commits a plain transaction.
func do(t *testing.T, s *memstore.Store, fn func(tx *memstore.Tx) error) {
	t.Helper()
	out, err := s.InTx(t.Context(), store.Mark{}, func(_ context.Context, tx *memstore.Tx) error { return fn(tx) })
	if err != nil || out != store.Committed {
		t.Fatalf("transaction: outcome %v, error %v", out, err)
	}
}

func put(key, value string) func(context.Context, *memstore.Tx) error {
	return func(_ context.Context, tx *memstore.Tx) error { return tx.Put(key, value) }
}

// enlisted returns a store with one worker, and the mark of its batch n.
func enlisted(t *testing.T) (*memstore.Store, func(n int64) store.Mark) {
	t.Helper()
	s := memstore.New()
	must(t, s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1}))
	return s, func(n int64) store.Mark { return store.Mark{Consumer: "c", Worker: "w", Batch: n} }
}

func TestCommitAndRollback(t *testing.T) {
	s := memstore.New()
	do(t, s, func(tx *memstore.Tx) error { return errors.Join(tx.Put("a", "1"), tx.Add("n", 2)) })
	boom := errors.New("boom")
	out, err := s.InTx(t.Context(), store.Mark{}, func(_ context.Context, tx *memstore.Tx) error {
		must(t, errors.Join(tx.Put("a", "2"), tx.Put("a", "3"), tx.Put("b", "1"), tx.Delete("a"), tx.Add("n", 5)))
		if _, ok := tx.Get("a"); ok {
			t.Error("a deleted row is still seen")
		}
		if v, _ := s.Get("a"); v != "1" {
			t.Errorf("a reader sees %q, which is not committed", v)
		}
		want(t, "rows seen by readers", s.Rows(), map[string]string{"a": "1", "n": "2"})
		return boom
	})
	want(t, "outcome", out, store.RolledBack)
	want(t, "error", err, boom)
	want(t, "rows", s.Rows(), map[string]string{"a": "1", "n": "2"})
	do(t, s, func(tx *memstore.Tx) error { return errors.Join(tx.Delete("a"), tx.Add("n", -3)) })
	want(t, "rows", s.Rows(), map[string]string{"n": "-1"})
	do(t, s, func(tx *memstore.Tx) error {
		must(t, tx.Put("word", "x"))
		want(t, "class of a bad row", s.Classify(tx.Add("word", 1)), semel.ClassPermanent)
		return nil
	})
}

func TestMarks(t *testing.T) {
	s, mark := enlisted(t)
	for n := int64(1); n < 3; n++ {
		out, err := s.InTx(t.Context(), mark(n), put("a", fmt.Sprint(n)))
		want(t, "outcome", out, store.Committed)
		must(t, err)
	}
	for _, m := range []store.Mark{mark(2), mark(4), {Consumer: "c", Worker: "w", Slot: 1, Batch: 1}} {
		out, err := s.InTx(t.Context(), m, put("a", "x"))
		want(t, "outcome", out, store.RolledBack)
		want(t, "class", s.Classify(err), semel.ClassFault)
	}
	out, err := s.Resolve(t.Context(), mark(2))
	must(t, err)
	want(t, "batch 2", out, store.Committed)
	out, err = s.Resolve(t.Context(), mark(3))
	must(t, err)
	want(t, "batch 3", out, store.RolledBack)
	must(t, s.Retire(t.Context(), "c", "w"))
	out, err = s.Resolve(t.Context(), mark(3))
	want(t, "retired", out, store.Unknown)
	want(t, "class", s.Classify(err), semel.ClassFault)
}

func TestIdentity(t *testing.T) {
	s := memstore.New()
	w := store.Worker{Consumer: "c", Name: "w", Slots: 1, Identity: map[string]string{"source": "a", "inbox": "table"}}
	must(t, s.Enlist(t.Context(), w))
	must(t, s.Enlist(t.Context(), w))
	w.Identity = map[string]string{"source": "b"}
	w.Name = "other"
	var taken *store.TakenError
	err := s.Enlist(t.Context(), w)
	if !errors.As(err, &taken) || taken.Fact != "source" || taken.Have != "a" || taken.Want != "b" {
		t.Fatalf("got %v", err)
	}
	want(t, "class", s.Classify(err), semel.ClassFault)
	st, err := s.Status(t.Context(), "c", false)
	must(t, err)
	want(t, "workers", len(st.Workers), 1)
}

func TestOneWriterAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var order []string
		inside := func(name string, hold time.Duration) func(context.Context, *memstore.Tx) error {
			return func(context.Context, *memstore.Tx) error {
				order = append(order, name+" in")
				time.Sleep(hold)
				order = append(order, name+" out")
				return nil
			}
		}
		done := make(chan error)
		go func() {
			_, err := s.InTx(t.Context(), store.Mark{}, inside("a", time.Hour))
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := s.InTx(ctx, store.Mark{}, inside("impatient", 0))
		if out != store.RolledBack || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, %v", out, err)
		}
		start := time.Now()
		if _, err := s.Assign(t.Context(), "c", "w", []store.Start{{Scope: semel.Scope{Name: "s"}}}); err != nil {
			t.Fatal(err)
		}
		want(t, "the assignment waited", time.Since(start), time.Hour-time.Minute)
		must(t, <-done)
		want(t, "order", order, []string{"a in", "a out"})
	})
}

func TestCancelledTransactionStillCommits(t *testing.T) {
	s := memstore.New()
	ctx, cancel := context.WithCancel(t.Context())
	out, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		cancel()
		if _, err := s.Lock(ctx, tx, "c", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a statement under a cancelled context: %v", err)
		}
		return tx.Put("a", "1")
	})
	must(t, err)
	want(t, "outcome", out, store.Committed)
}

func TestDeathInsideATransaction(t *testing.T) {
	for name, die := range map[string]func(s *memstore.Store){
		"handler": nil,
		"script": func(s *memstore.Store) {
			s.Script(func(st memstore.Step) error {
				if st.Op == memstore.OpCommit {
					panic("killed")
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, mark := enlisted(t)
			func() {
				defer func() { want(t, "panic", recover(), any("killed")) }()
				if die != nil {
					die(s)
				}
				_, _ = s.InTx(t.Context(), mark(1), func(_ context.Context, tx *memstore.Tx) error {
					must(t, tx.Put("a", "1"))
					if die == nil {
						panic("killed")
					}
					return nil
				})
			}()
			s.Script(nil)
			want(t, "rows", len(s.Rows()), 0)
			out, err := s.InTx(t.Context(), mark(1), put("a", "2"))
			must(t, err)
			want(t, "the next one", out, store.Committed)
		})
	}
}

func TestDeathAfterCommit(t *testing.T) {
	s, mark := enlisted(t)
	s.Script(func(st memstore.Step) error {
		if st.Op == memstore.OpCommitted {
			panic("killed")
		}
		return nil
	})
	func() {
		defer func() { _ = recover() }()
		_, _ = s.InTx(t.Context(), mark(1), put("a", "1"))
	}()
	s.Script(nil)
	want(t, "rows", s.Rows(), map[string]string{"a": "1"})
	out, _ := s.Resolve(t.Context(), mark(1))
	want(t, "truth", out, store.Committed)
}

func TestHandlerEndsTheTransaction(t *testing.T) {
	for name, end := range map[string]func(*memstore.Tx) error{"commit": (*memstore.Tx).Commit, "rollback": (*memstore.Tx).Rollback} {
		for _, swallowed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " swallowed ", swallowed), func(t *testing.T) {
				s := memstore.New()
				out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
					must(t, tx.Put("a", "1"))
					err := end(tx)
					if after := tx.Put("b", "1"); !errors.Is(after, store.ErrEnded) {
						t.Errorf("a statement afterwards: %v", after)
					}
					if swallowed {
						return nil
					}
					return semel.At(3, err)
				})
				want(t, "outcome", out, store.RolledBack)
				if !errors.Is(err, store.ErrEnded) {
					t.Fatalf("got %v", err)
				}
				want(t, "attributed", semel.EachAt(err, func(int, error) {}), !swallowed)
				want(t, "class", s.Classify(err), semel.ClassFault)
				want(t, "rows", len(s.Rows()), 0)
			})
		}
	}
}

func TestTransactionIsOverAfterwards(t *testing.T) {
	s, other := memstore.New(), memstore.New()
	var kept *memstore.Tx
	do(t, s, func(tx *memstore.Tx) error {
		kept = tx
		_, err := other.Lock(t.Context(), tx, "c", nil, nil)
		want(t, "class in another store", other.Classify(err), semel.ClassFault)
		return nil
	})
	if err := kept.Put("a", "1"); err == nil {
		t.Fatal("a finished transaction took a statement")
	}
	want(t, "rows", len(s.Rows()), 0)
}

func TestLostCommit(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", committed), func(t *testing.T) {
			s, mark := enlisted(t)
			s.LoseCommit(committed, 2)
			out, err := s.InTx(t.Context(), mark(1), put("a", "1"))
			want(t, "outcome", out, store.Unknown)
			want(t, "class", s.Classify(err), semel.ClassInfrastructure)
			for range 2 {
				out, err = s.Resolve(t.Context(), mark(1))
				want(t, "resolved too early", out, store.Unknown)
				want(t, "class", s.Classify(err), semel.ClassInfrastructure)
			}
			out, err = s.Resolve(t.Context(), mark(1))
			must(t, err)
			truth := map[bool]store.Outcome{true: store.Committed, false: store.RolledBack}[committed]
			want(t, "truth", out, truth)
			want(t, "rows", len(s.Rows()) == 1, committed)
		})
	}
}

func TestBreakAndHeal(t *testing.T) {
	s, mark := enlisted(t)
	out, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx *memstore.Tx) error {
		must(t, tx.Put("a", "1"))
		s.Break()
		return nil
	})
	want(t, "outcome", out, store.Unknown)
	want(t, "class", s.Classify(err), semel.ClassInfrastructure)
	_, err = s.InTx(t.Context(), mark(1), put("a", "2"))
	want(t, "class of BEGIN", s.Classify(err), semel.ClassInfrastructure)
	_, _, err = s.Due(t.Context(), "c", 1, 0)
	want(t, "class of a read", s.Classify(err), semel.ClassInfrastructure)
	s.Heal()
	out, err = s.Resolve(t.Context(), mark(1))
	must(t, err)
	want(t, "truth", out, store.RolledBack)
	want(t, "rows", len(s.Rows()), 0)
}

func TestFailAnyOperation(t *testing.T) {
	deadlock := memstore.Errorf(semel.ClassContention, "deadlock")
	s, mark := enlisted(t)
	s.Fail(memstore.OpBegin, 2, deadlock)
	for range 2 {
		out, err := s.InTx(t.Context(), mark(1), put("a", "1"))
		want(t, "outcome", out, store.RolledBack)
		want(t, "class", s.Classify(err), semel.ClassContention)
	}
	s.Fail(memstore.OpCommit, 1, deadlock)
	out, err := s.InTx(t.Context(), mark(1), put("a", "1"))
	want(t, "outcome", out, store.RolledBack)
	want(t, "class", s.Classify(err), semel.ClassContention)
	s.Fail(memstore.OpClaim, 1, deadlock)
	claim := func(ctx context.Context, tx *memstore.Tx) error {
		_, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "x"}}, nil)
		return err
	}
	_, err = s.InTx(t.Context(), mark(1), claim)
	want(t, "class", s.Classify(err), semel.ClassContention)
	out, err = s.InTx(t.Context(), mark(1), claim)
	must(t, err)
	want(t, "in the end", out, store.Committed)
}

func TestScriptSeesEveryStep(t *testing.T) {
	s, mark := enlisted(t)
	var ops []memstore.Op
	s.Script(func(st memstore.Step) error {
		ops = append(ops, st.Op)
		if st.Mark != mark(1) {
			t.Errorf("%s: mark %+v", st.Op, st.Mark)
		}
		return nil
	})
	_, err := s.InTx(t.Context(), mark(1), func(ctx context.Context, tx *memstore.Tx) error {
		_, err := s.Advance(ctx, tx, "c", nil, nil)
		return errors.Join(err, tx.Put("a", "1"), s.Count(ctx, tx, "c", nil))
	})
	must(t, err)
	want(t, "steps", ops, []memstore.Op{"begin", "advance", "user", "count", "commit", "committed"})
}

func BenchmarkTransaction(b *testing.B) {
	s := memstore.New()
	_ = s.Enlist(b.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1})
	b.ReportAllocs()
	for i := range b.N {
		m := store.Mark{Consumer: "c", Worker: "w", Batch: int64(i + 1)}
		if out, err := s.InTx(b.Context(), m, put("a", "1")); out != store.Committed {
			b.Fatal(err)
		}
	}
}

func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mark := enlisted(t)
		next := s.Connect()
		s.Break()
		_, err := s.InTx(t.Context(), mark(1), put("a", "1"))
		want(t, "class on the broken one", s.Classify(err), semel.ClassInfrastructure)
		out, err := next.InTx(t.Context(), mark(1), put("a", "2"))
		must(t, err)
		want(t, "on the other", out, store.Committed)
		s.Heal()
		v, _ := s.Get("a")
		want(t, "seen by the first", v, "2")

		time.Sleep(time.Hour)
		step := store.Purge{Consumer: "c", Keep: time.Minute}
		p, err := s.Purge(t.Context(), step)
		must(t, err)
		want(t, "its own worker idles", p.Workers, 0)
		must(t, s.Close(t.Context()))
		_, err = s.Purge(t.Context(), step)
		want(t, "class when closed", s.Classify(err), semel.ClassFault)
		time.Sleep(time.Hour)
		p, err = next.Purge(t.Context(), step)
		must(t, err)
		want(t, "another's worker is gone", p.Workers, 1)
	})
}
