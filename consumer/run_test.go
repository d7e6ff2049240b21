package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// unique is a handler with a unique key of its own.
func unique(ctx context.Context, t tx, m semel.Message) error {
	if _, ok := t.Get("effect/" + m.ID); ok {
		return semel.ErrDuplicate
	}
	return count(ctx, t, m)
}

// slow takes a second for each message, as long as it may.
func slow(ctx context.Context, t tx, m semel.Message) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	return count(ctx, t, m)
}

// TestDrain: cancelled in the middle of a batch, a consumer receives nothing
// more, finishes what it has, tells the source, and leaves in good order.
func TestDrain(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(100)...)
		cfg := noDrain()
		cfg.MaxBatch = 5
		c := start(t, cfg, b.Receiver(), st, consumer.Each(slow))
		time.Sleep(7500 * time.Millisecond)
		begin := time.Now()
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		a := c.Account()
		if a.Of[semel.Applied] != 15 || a.Received != 15 || a.Of[semel.Released] != 0 {
			t.Errorf("account: %+v, want what was in memory applied", a)
		}
		if n := len(b.Unsettled()); n != 85 {
			t.Errorf("%d unsettled", n)
		}
		tidy(t, st)
		cfg.Drain = &consumer.Drain{}
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(100))...)
	})
}

// tidy checks that nobody is left in the store.
func tidy(t *testing.T, st *memstore.Store) {
	t.Helper()
	s, err := st.Status(t.Context(), "test", true)
	if err != nil || len(s.Workers) > 0 || len(s.Suspects) > 0 || slices.ContainsFunc(s.Fences, func(f store.Fence) bool { return !f.Clean }) {
		t.Errorf("left: %+v %v", s, err)
	}
}

// TestDrainTimeout: handlers that are still running are cancelled then; the
// batch is rolled back and given back, nobody is charged.
func TestDrainTimeout(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(10)...)
		cfg := noDrain()
		cfg.DrainTimeout, cfg.HandlerTimeout, cfg.MaxBatch = 5*time.Second, time.Hour, 4
		c := start(t, cfg, b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if err := count(ctx, t, m); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		time.Sleep(time.Minute)
		begin := time.Now()
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if a := c.Account(); a.Of[semel.Released]+a.Of[semel.Dropped] != a.Received || a.Of[semel.Released] == 0 {
			t.Errorf("account: %+v", a)
		}
		wantEffects(t, st)
		tidy(t, st)
		if len(letters(t, st)) > 0 {
			t.Error("somebody was charged")
		}
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(10))...)
	})
}

// TestLettersAreGivenBack: stopped while letters are running, they are given back
// uncharged.
func TestLettersAreGivenBack(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{"m0001": {errNotNow}, "m0002": {errNotNow}})
		b.Publish(-1, messages(3)...)
		cfg := impatient()
		cfg.Retry = hourly()
		run(t, cfg, b, st, p.work())
		cfg.Drain, cfg.DrainTimeout = nil, time.Second
		c := start(t, cfg, b.Receiver(), st, consumer.Each(func(ctx context.Context, _ tx, _ semel.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		time.Sleep(time.Hour + 10*time.Second)
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		for _, l := range letters(t, st) {
			if l.State != store.StateRetry || l.Attempts != 1 || l.Note != "given back" || l.Due.After(time.Now()) {
				t.Errorf("letter: %+v", l)
			}
		}
		run(t, impatient(), b, st, p.work())
		wantEffects(t, st, ids(messages(3))...)
	})
}

// TestMemoryIsBounded: what is received and not settled stays below twice a
// batch, in messages and in bytes.
func TestMemoryIsBounded(t *testing.T) {
	for name, set := range map[string]func(*consumer.Config){
		"messages": func(c *consumer.Config) { c.MaxBatch = 10 },
		"bytes":    func(c *consumer.Config) { c.MaxBytes = 10 * 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st, ms := memstore.New(), messages(500)
				for i := range ms {
					ms[i].Body = bytes.Repeat([]byte("x"), 1000)
				}
				b.Publish(-1, ms...)
				cfg := config()
				set(&cfg)
				r := b.Receiver()
				most := int64(0)
				c := start(t, cfg, r, st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
					d, err := r.Depth(ctx)
					most = max(most, d.Claimed)
					return errors.Join(err, count(ctx, t, m))
				}))
				if err := c.wait(t); err != nil {
					t.Fatal(err)
				}
				if most > 20 || most < 5 {
					t.Errorf("%d messages were in memory", most)
				}
				wantEffects(t, st, ids(ms)...)
			})
		})
	}
}

// TestLargeMessage: a message above the bound is handled, alone.
func TestLargeMessage(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st, ms := memstore.New(), messages(9)
		ms[4].Body = bytes.Repeat([]byte("x"), 1<<20)
		b.Publish(-1, ms...)
		cfg := config()
		cfg.MaxBytes = 1000
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st, ids(ms)...)
	})
}

// TestBatchesForm: while a batch commits the next one forms; an idle pipeline
// waits for nothing.
func TestBatchesForm(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		c := start(t, noDrain(), b.Receiver(), st, consumer.Each(slow))
		time.Sleep(10 * time.Second)
		begin := time.Now()
		for i, m := range messages(5) { // the first starts at once, the others meet a commit in flight
			b.Publish(-1, m)
			if i == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(6 * time.Second)
		if took := time.Since(begin); st.Rows()["effect/m0004"] != "1" {
			t.Errorf("after %v: %v", took, st.Rows())
		}
		if err := c.stop(t); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for _, batch := range c.events.batches {
			sizes = append(sizes, batch.Messages)
		}
		if !slices.Equal(sizes, []int{1, 4}) {
			t.Errorf("batches of %v", sizes)
		}
	})
}

// TestTwoWorkersOneQueue: two workers, concurrent duplicates, lost acks.
func TestTwoWorkersOneQueue(t *testing.T) {
	for _, committers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d committers", committers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Seed: 3, Duplicate: 0.3, Reorder: 20, DropAcks: 0.1, DropAnswer: broker.Unknown, Count: semel.TrustExact})
				st, ms := memstore.New(), messages(2000)
				b.Publish(-1, ms...)
				cfg := config()
				cfg.MaxBatch, cfg.MaxCommitters = 50, committers
				p := plans(map[string][]error{"m0007": {errNotNow}, "m0500": {errNotNow, errNotNow, errNotNow}})
				var cs []*running
				for range 2 {
					cs = append(cs, start(t, cfg, b.Receiver(), store.Backend[tx](parallel{st}), p.work()))
				}
				for _, c := range cs {
					if err := c.wait(t); err != nil {
						t.Error(err)
					}
					if c.Account().Received == 0 {
						t.Error("a worker got nothing")
					}
				}
				wantEffects(t, st, ids(ms)...)
				if left := b.Unsettled(); len(left) > 0 {
					t.Errorf("%d unsettled", len(left))
				}
				balanced(t, st)
			})
		})
	}
}

// TestRebalance: workers come and go, and every message is applied once.
func TestRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st, ms := membroker.New(membroker.Config{Partitions: 4}), memstore.New(), messages(400)
		b.Publish(-1, ms...)
		cfg := noDrain()
		cfg.MaxBatch = 20
		first := start(t, cfg, b.Receiver(), st, consumer.Each(slow))
		time.Sleep(90 * time.Second)
		if err := first.stop(t); err != nil {
			t.Error(err)
		}
		second := start(t, cfg, b.Receiver(), st, consumer.Each(slow))
		time.Sleep(90 * time.Second)
		b.Kill(second.r, semel.Orphaned)
		if err := second.wait(t); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("run ends with %v", err)
		}
		cfg.Drain = &consumer.Drain{}
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st, ids(ms)...)
		balanced(t, st)
	})
}

// TestObserver: everything that can be observed is told.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		cfg := config()
		cfg.MaxBatch = 10
		p := plans(map[string][]error{"m0003": {errNotNow, errNotNow}, "m0005": {errNever}})
		unsettled := 0
		b.Publish(0, messages(20)...)
		b.DropAcks(2, broker.Unknown)
		c := &events{}
		cfg.Observer = c.observer()
		cfg.Observer.Unsettled = func(n int, _ error) { unsettled += n }
		run(t, cfg, b, st, p.work())
		var decided, taken int64
		for _, batch := range c.batches {
			for _, n := range batch.Of {
				decided += n
			}
			if batch.Letters {
				taken++
			}
		}
		if decided != 21 || taken != 1 || unsettled != 2 {
			t.Errorf("%d decided, %d batches of letters, %d unsettled", decided, taken, unsettled)
		}
		var failed []string
		for _, f := range c.failed {
			failed = append(failed, fmt.Sprintf("%s %d %s", f.ID, f.Attempts, f.Verdict))
		}
		if want := []string{"m0003 1 undecided", "m0003 2 parked", "m0005 1 dead"}; !slices.Equal(failed, want) {
			t.Errorf("failures: %q, want %q", failed, want)
		}
		if !c.scope("memory/0 assigned") || !c.scope("memory/0 left") {
			t.Errorf("scopes: %v", c.scopes)
		}
	})
}

// TestReceiveFails: a source that fails is asked again, with growing pauses; a
// fault of the set-up ends the run.
func TestReceiveFails(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(3)...)
		r := b.Receiver()
		b.FailReceive(r, 10, errors.New("connection refused"))
		c := start(t, noDrain(), r, st, consumer.Each(count))
		time.Sleep(time.Minute)
		wantEffects(t, st, ids(messages(3))...)
		if len(c.events.pauses()) != 20 {
			t.Errorf("pauses: %v", c.events.pauses())
		}
		b.FailReceive(r, 1, semel.Fault(errors.New("no such topic")))
		b.Publish(-1, messages(4)[3:]...)
		if err := c.wait(t); err == nil || err.Error() != "receive: no such topic" {
			t.Errorf("run ends with %v", err)
		}
	})
}

// TestSettleFails: what the source does not take comes again and is found.
func TestSettleFails(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(30)...)
		r := b.Receiver()
		b.FailSettle(r, 1, errors.New("connection refused"))
		c := start(t, noDrain(), r, st, consumer.Each(count))
		time.Sleep(time.Minute)
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(30))...)
	})
}

// TestPurge: ids are forgotten after Keep, those of open letters are not, and
// the ledger says how many.
func TestPurge(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := noDrain()
		cfg.Keep, cfg.Horizon = 24*time.Hour, time.Hour
		p := plans(map[string][]error{"m0003": {errNever}})
		b.Publish(-1, messages(10)...)
		c := start(t, cfg, b.Receiver(), st, p.work())
		time.Sleep(25 * time.Hour)
		for _, id := range ids(messages(10)) {
			tr, err := st.Trace(t.Context(), "test", id, "")
			if err != nil || (tr.Record != nil) != (id == "m0003") {
				t.Errorf("%s: %+v %v", id, tr.Record, err)
			}
		}
		balanced(t, st)
		b.Publish(-1, messages(20)[10:]...) // an idle worker is still there
		time.Sleep(time.Minute)
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		if n := len(b.Unsettled()); n > 0 {
			t.Errorf("%d unsettled", n)
		}
	})
}

// TestRevokeGivesUp: what is not in a transaction when a scope is revoked is
// given up at once; nobody waits for it.
func TestRevokeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		b.Publish(0, messages(50)...)
		cfg := noDrain()
		cfg.MaxBatch = 5
		r := b.Receiver()
		c := start(t, cfg, r, st, consumer.Each(slow))
		time.Sleep(2500 * time.Millisecond)
		begin := time.Now()
		if err := b.Revoke(t.Context(), r, 0); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		if a := c.Account(); a.Of[semel.Applied] != 5 || a.Of[semel.Dropped] != a.Received-5 || a.Received < 10 {
			t.Errorf("account: %+v", a)
		}
	})
}

// TestNothingIsDecidedAfterAGap: when a committer has to stop, what it gives
// back is not overtaken.
func TestNothingIsDecidedAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 2}), memstore.New()
		b.Publish(-1, messages(40)...)
		cfg := noDrain()
		cfg.MaxBatch = 4
		n := 0
		c := start(t, cfg, b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if n++; n == 10 {
				return semel.Fault(memstore.Errorf(semel.ClassFault, "no such table"))
			}
			return count(ctx, t, m)
		}))
		if err := c.wait(t); err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("run ends with %v", err)
		}
		if len(letters(t, st)) > 0 {
			t.Error("somebody was charged")
		}
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(40))...)
	})
}

// TestPointsAreHit: a plain run passes every point of the crash table.
func TestPointsAreHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[fault.Point]bool{}
		var mu sync.Mutex
		defer fault.Arm(func(p fault.Point) {
			mu.Lock()
			defer mu.Unlock()
			seen[p] = true
		})()
		b, st := membroker.New(membroker.Config{}), memstore.New()
		p := plans(map[string][]error{"m0003": {errNotNow, errNotNow}})
		b.Publish(-1, messages(5)...)
		run(t, config(), b, st, p.work())
		for _, p := range fault.All() {
			if !seen[p] && p != fault.Started {
				t.Errorf("%s was not hit", p)
			}
		}
	})
}
