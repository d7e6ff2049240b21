package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// both runs a test over each kind of source.
func both(t *testing.T, fn func(*testing.T, *membroker.Broker)) {
	t.Helper()
	for kind, src := range sources {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fn(t, membroker.New(src)) })
		})
	}
}

// TestPoisonIsLinear: with one message in ten failing for good, nothing is run
// more than twice before it is decided, or claimed more than four times, on
// average; and nothing that works is lost or repeated.
func TestPoisonIsLinear(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		const n = 2000
		st, ms, p := &counting{Store: memstore.New()}, messages(n), plans(map[string][]error{})
		var good []string
		for i, m := range ms {
			if i%10 == 3 {
				p.errs[m.ID] = always(errNever)
			} else {
				good = append(good, m.ID)
			}
		}
		b.Publish(-1, ms...)
		a := run(t, config(), b, st, p.work())
		if a.Of[semel.Dead] != n/10 || a.Of[semel.Applied] != n-n/10 {
			t.Errorf("account: %+v", a)
		}
		if p.total() > 2*n || st.claimed > 4*n {
			t.Errorf("%d handler runs and %d claimed rows for %d messages, want at most %d and %d", p.total(), st.claimed, n, 2*n, 4*n)
		}
		t.Logf("%.2f handler runs and %.2f claimed rows a message", float64(p.total())/n, float64(st.claimed)/n)
		wantEffects(t, st.Store, good...)
	})
}

// TestTransientIsLinearToo: with every tenth failing three times, so that it is
// run alone and then parked.
func TestTransientIsLinearToo(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		const n = 2000
		st, ms, p := &counting{Store: memstore.New()}, messages(n), plans(map[string][]error{})
		for i, m := range ms {
			if i%10 == 3 {
				p.errs[m.ID] = []error{errNotNow, errNotNow, errNotNow}
			}
		}
		b.Publish(-1, ms...)
		a := run(t, config(), b, st, p.work())
		if a.Of[semel.Applied] != n || a.Of[semel.Dead] != 0 {
			t.Errorf("account: %+v", a)
		}
		if most := 2*n + 4*n/10; p.total() > most {
			t.Errorf("%d handler runs for %d messages, want at most %d", p.total(), n, most)
		}
		wantEffects(t, st.Store, ids(ms)...)
	})
}

// TestStale: an optimistic miss is run again at most three times, uncharged.
func TestStale(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{
			"m0005": slices.Repeat([]error{fmt.Errorf("read: %w", semel.ErrStale)}, 3),
			"m0006": slices.Repeat([]error{semel.ErrStale}, 5),
		})
		b.Publish(-1, messages(20)...)
		run(t, config(), b, st, p.work())
		wantEffects(t, st, ids(messages(20))...)
		ls := letters(t, st)
		if len(ls) != 1 || ls[0].Message.ID != "m0006" || ls[0].Attempts != 2 {
			t.Errorf("letters %+v, want one of m0006, parked after its fourth miss was charged and one more", ls)
		}
		if p.runs["m0005"] < 4 {
			t.Errorf("m0005 ran %d times", p.runs["m0005"])
		}
	})
}

// TestOnCommit: what has to follow a commit follows a real one, and that once.
func TestOnCommit(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st, followed := memstore.New(), map[string]int{}
		p := plans(map[string][]error{"m0007": {errNotNow}, "m0011": always(errNever)})
		b.Publish(-1, messages(50)...)
		st.LoseCommit(false, 2)
		run(t, config(), b, st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if !consumer.OnCommit(ctx, func(context.Context) {
				if v, _ := st.Get("effect/" + m.ID); v == "1" {
					followed[m.ID]++
				}
			}) {
				return errors.New("refused")
			}
			return p.handle(ctx, t, m)
		}))
		for _, m := range messages(50) {
			want := 1
			if m.ID == "m0011" {
				want = 0
			}
			if followed[m.ID] != want {
				t.Errorf("%s was followed by %d, want %d", m.ID, followed[m.ID], want)
			}
		}
		if consumer.OnCommit(t.Context(), func(context.Context) {}) {
			t.Error("outside of a handler it claims to follow")
		}
	})
}

func TestOnCommitPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{}), memstore.New()
		b.Publish(-1, messages(3)...)
		c := start(t, noDrain(), b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			consumer.OnCommit(ctx, func(context.Context) { panic("oops") })
			return count(ctx, t, m)
		}))
		if err := c.wait(t); err == nil || !strings.Contains(err.Error(), "oops") {
			t.Errorf("run ends with %v", err)
		}
		wantEffects(t, st, ids(messages(3))...)
	})
}

// TestHandlerTimeout: in a batch the time is shared, and who fails for want of
// it gets all of it alone; only then it is charged.
func TestHandlerTimeout(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(30)...)
		cfg := config()
		cfg.HandlerTimeout = time.Minute
		cfg.Retry = retry.Policy{Immediate: -1, Delays: []time.Duration{}}
		c := start(t, cfg, b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			d := 10 * time.Second
			if m.ID == "m0013" {
				d = time.Hour // never in time
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
			}
			return count(ctx, t, m)
		}))
		if err := c.wait(t); err != nil {
			t.Fatal(err)
		}
		a := c.Account()
		if a.Of[semel.Dead] != 1 || a.Of[semel.Applied] != 29 {
			t.Errorf("account: %+v", a)
		}
		if l := letterOf(t, st, "m0013"); l.State != store.StateDead || !strings.Contains(l.Error, "deadline") {
			t.Errorf("letter: %+v", l)
		}
	})
}

// TestStoreDown: nothing is taken while the store cannot be reached, nobody is
// charged, and it goes on by itself.
func TestStoreDown(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.MaxBatch = 10
		p := plans(nil)
		b.Publish(-1, messages(200)...)
		broken := false
		c := start(t, cfg, b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if m.ID == "m0050" && !broken {
				broken = true
				st.Break()
			}
			return p.handle(ctx, t, m)
		}))
		time.Sleep(10 * time.Minute)
		before := c.Account()
		time.Sleep(10 * time.Minute)
		if now := c.Account(); now != before || now.Received-now.Decided() > 20 {
			t.Errorf("while the store is down: %+v, then %+v, want no more than twice a batch in memory", before, now)
		}
		st.Heal()
		if err := c.wait(t); err != nil {
			t.Fatal(err)
		}
		wantEffects(t, st, ids(messages(200))...)
		if ls := letters(t, st); len(ls) > 0 {
			t.Errorf("somebody was charged: %+v", ls)
		}
		if len(c.events.pauses()) < 2 || !strings.Contains(c.events.pauses()[0], "connection lost") || c.events.pauses()[len(c.events.pauses())-1] != "<nil>" {
			t.Errorf("pauses: %v", c.events.pauses())
		}
	})
}

// TestStoreDownAtTheEnd: a consumer that is stopped while the store is down
// says so, and nothing is lost.
func TestStoreDownAtTheEnd(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(20)...)
		c := start(t, noDrain(), b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			st.Break()
			return count(ctx, t, m)
		}))
		time.Sleep(time.Minute)
		if err := c.stop(t); err == nil || !strings.Contains(err.Error(), "come again") {
			t.Errorf("run ends with %v", err)
		}
		st.Heal()
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(20))...)
	})
}

// TestMessageBreaksTheStore: a message that alone breaks a connection that
// works is charged the second time; nobody else is.
func TestMessageBreaksTheStore(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{"m0042": always(memstore.Errorf(semel.ClassInfrastructure, "connection reset"))})
		b.Publish(-1, messages(100)...)
		a := run(t, config(), b, st, p.work())
		if a.Of[semel.Dead] != 1 || a.Of[semel.Applied] != 99 {
			t.Errorf("account: %+v", a)
		}
		if ls := letters(t, st); len(ls) != 1 || ls[0].Message.ID != "m0042" || ls[0].Reason != "exhausted" {
			t.Errorf("letters: %+v", ls)
		}
	})
}

// TestCommitUnknown: whichever way it was, each effect is there once, the mark
// is read until it tells, and nobody is charged.
func TestCommitUnknown(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprintf("committed %v", committed), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st, p := memstore.New(), plans(nil)
				b.Publish(-1, messages(50)...)
				st.LoseCommit(committed, 3)
				c := start(t, config(), b.Receiver(), st, p.work())
				if err := c.wait(t); err != nil {
					t.Fatal(err)
				}
				wantEffects(t, st, ids(messages(50))...)
				runs := map[bool]int{true: 50, false: 100}[committed]
				if p.total() != runs {
					t.Errorf("%d handler runs, want %d", p.total(), runs)
				}
				if len(c.events.pauses()) != 6 {
					t.Errorf("pauses: %v", c.events.pauses())
				}
				if ls := letters(t, st); len(ls) > 0 {
					t.Errorf("somebody was charged: %+v", ls)
				}
				balanced(t, st)
			})
		})
	}
}

// TestCommitUnknownToTheEnd: if it cannot be known before the end, the messages
// come again and are found.
func TestCommitUnknownToTheEnd(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprintf("committed %v", committed), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st := memstore.New()
				b.Publish(-1, messages(50)...)
				st.LoseCommit(committed, 1e9)
				c := start(t, noDrain(), b.Receiver(), st, consumer.Each(count))
				time.Sleep(time.Minute)
				if err := c.stop(t); err != nil {
					t.Error(err)
				}
				st.Fail(memstore.OpResolve, 0, nil)
				run(t, config(), b, st, consumer.Each(count))
				wantEffects(t, st, ids(messages(50))...)
			})
		})
	}
}

// TestContentionHalves: a deadlock is redone in smaller pieces, uncharged.
func TestContentionHalves(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(64)...)
		var sizes []int
		c := start(t, config(), b.Receiver(), st, consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
			sizes = append(sizes, len(ms))
			for _, m := range ms {
				if err := count(ctx, t, m); err != nil {
					return err
				}
			}
			if len(ms) > 8 && len(sizes) < 10 {
				return errors.Join(semel.At(len(ms)-1, memstore.Errorf(semel.ClassContention, "deadlock")))
			}
			return nil
		}))
		if err := c.wait(t); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sizes[:4], []int{64, 32, 16, 8}) {
			t.Errorf("batches of %v", sizes)
		}
		wantEffects(t, st, ids(messages(64))...)
		if len(letters(t, st)) > 0 || len(c.events.failed) > 0 {
			t.Errorf("somebody was charged: %+v", c.events.failed)
		}
	})
}

// TestFaults: a set-up that is wrong stops the consumer, which says so, and
// charges nobody.
func TestFaults(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(20)...)
		st.Fail(memstore.OpClaim, 1, memstore.Errorf(semel.ClassFault, "no such table: semel_inbox"))
		c := start(t, noDrain(), b.Receiver(), st, consumer.Each(count))
		if err := c.wait(t); err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("run ends with %v", err)
		}
		wantEffects(t, st)
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, ids(messages(20))...)
	})
}

// TestHandlerCommits: a handler that ends the transaction stops the consumer.
func TestHandlerCommits(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(20)...)
		c := start(t, noDrain(), b.Receiver(), st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if err := count(ctx, t, m); err != nil {
				return err
			}
			if m.ID == "m0009" {
				return t.Commit()
			}
			return nil
		}))
		if err := c.wait(t); !errors.Is(err, store.ErrEnded) || !strings.Contains(err.Error(), "take COMMIT") {
			t.Errorf("run ends with %v", err)
		}
		wantEffects(t, st)
	})
}

// TestPanicIsNoVerdict: whatever it was about, a panic is a failure.
func TestPanicIsNoVerdict(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(10)...)
		cfg := config()
		cfg.Retry = retry.Policy{Immediate: -1, Delays: []time.Duration{}}
		a := run(t, cfg, b, st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if m.ID == "m0004" {
				panic(semel.ErrDuplicate)
			}
			return count(ctx, t, m)
		}))
		if a.Of[semel.Dead] != 1 || a.Of[semel.Duplicate] != 0 {
			t.Errorf("account: %+v", a)
		}
		if l := letterOf(t, st, "m0004"); !strings.Contains(l.Stack, "failures_test") {
			t.Errorf("letter: %+v", l)
		}
	})
}

// TestRetryAfter: the handler's own delay overrides the schedule's next one.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{}), memstore.New()
		p := plans(map[string][]error{"m0001": {semel.RetryAfter(errNotNow, 42*time.Minute)}})
		b.Publish(-1, messages(3)...)
		begin := time.Now()
		run(t, config(), b, st, p.work())
		if took := time.Since(begin); took < 42*time.Minute || took > 43*time.Minute {
			t.Errorf("it took %v", took)
		}
		wantEffects(t, st, ids(messages(3))...)
	})
}
