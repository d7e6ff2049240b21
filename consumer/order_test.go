package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// byKey is a consumer that keeps the order of keys, with two strategies.
func byKey(t *testing.T, fn func(*testing.T, consumer.Config)) {
	t.Helper()
	for _, s := range []inbox.Strategy{inbox.Table, inbox.Position} {
		t.Run(s.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := config()
				cfg.Order, cfg.Inbox, cfg.Retry = consumer.OrderKey, s, hourly()
				fn(t, cfg)
			})
		})
	}
}

// recorder writes down the order in which messages were applied, by key.
func recorder(p *plan) (consumer.Work[tx], func(st *memstore.Store, key string) []string) {
	work := consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
		if err := p.handle(ctx, t, m); err != nil {
			return err
		}
		have, _ := t.Get("order/" + m.Key)
		return t.Put("order/"+m.Key, have+m.ID+" ")
	})
	return work, func(st *memstore.Store, key string) []string {
		return slices.Collect(func(yield func(string) bool) {
			id := ""
			for _, r := range st.Rows()["order/"+key] {
				if r != ' ' {
					id += string(r)
				} else if yield(id); true {
					id = ""
				}
			}
		})
	}
}

func keyed(key string, n int) (ms []semel.Message) {
	for i := range n {
		ms = append(ms, semel.Message{ID: fmt.Sprintf("%s%d", key, i), Key: key})
	}
	return ms
}

// TestOrderByKey: what follows a parked message of its key waits behind it, in
// order, while other keys go on.
func TestOrderByKey(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		p := plans(map[string][]error{"a1": {errNotNow}, "a3": {errNotNow}})
		work, order := recorder(p)
		b.Publish(0, keyed("a", 3)...)
		b.Publish(0, keyed("b", 3)...)
		c := start(t, cfg, b.Receiver(), st, work)
		time.Sleep(30 * time.Minute)
		b.Publish(0, keyed("a", 6)[3:]...)
		b.Publish(0, keyed("b", 6)[3:]...)
		time.Sleep(10 * time.Minute)
		wantEffects(t, st, append([]string{"a0"}, ids(keyed("b", 6))...)...)
		for id, want := range map[string]store.State{"a1": store.StateRetry, "a2": store.StateHeld, "a5": store.StateHeld} {
			if l := letterOf(t, st, id); l.State != want {
				t.Errorf("%s is %s, want %s", id, l.State, want)
			}
		}
		balanced(t, st)
		if err := c.wait(t); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b"} {
			if got := order(st, key); !slices.Equal(got, ids(keyed(key, 6))) {
				t.Errorf("order of %s: %v", key, got)
			}
		}
		if s, _ := st.Status(t.Context(), "test", true); s.HoldKeys != 0 {
			t.Errorf("holds: %+v", s.Holds)
		}
		balanced(t, st)
	})
}

// TestDeadHead: when the head of a key dies its successors go on, or wait for
// a person, as configured.
func TestDeadHead(t *testing.T) {
	for _, holds := range []bool{false, true} {
		for _, decision := range []string{"replay", "discard"} {
			t.Run(fmt.Sprintf("%v/%s", holds, decision), func(t *testing.T) {
				byKey(t, func(t *testing.T, cfg consumer.Config) {
					cfg.DeadHolds = holds
					b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
					p := plans(map[string][]error{"a1": {errNever}, "b0": {errNotNow, errNever}})
					work, order := recorder(p)
					b.Publish(0, keyed("a", 4)...)
					b.Publish(0, keyed("b", 2)...)
					run(t, cfg, b, st, work)
					if holds {
						wantEffects(t, st, "a0")
					} else {
						wantEffects(t, st, "a0", "a2", "a3", "b1")
					}
					balanced(t, st)
					for _, id := range []string{"a1", "b0"} {
						if decision == "replay" {
							replay(t, st, letterOf(t, st, id).Ref)
						} else {
							discard(t, st, letterOf(t, st, id).Ref)
						}
					}
					run(t, cfg, b, st, work)
					want := map[bool][]string{true: {"a0", "a1", "a2", "a3"}, false: {"a0", "a2", "a3", "a1"}}[holds]
					if decision == "discard" {
						want = []string{"a0", "a2", "a3"}
					}
					if got := order(st, "a"); !slices.Equal(got, want) {
						t.Errorf("order: %v, want %v", got, want)
					}
					if s, _ := st.Status(t.Context(), "test", false); s.HoldKeys != 0 {
						t.Errorf("holds: %+v", s.Holds)
					}
					balanced(t, st)
				})
			})
		}
	}
}

// TestDeadAtIntakeHolds: a message that dies without having been run holds its
// key like one that failed, from the same batch on.
func TestDeadAtIntakeHolds(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		cfg.DeadHolds, cfg.Arbitrate.On = true, true
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		ms := keyed("a", 3)
		ms[1].Version, ms[2].Version = semel.Version{N: 1, Set: true}, semel.Version{N: 2, Set: true} // the first has none
		b.Publish(0, ms...)
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st)
		balanced(t, st)
		discard(t, st, letterOf(t, st, "a0").Ref)
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st, "a1", "a2")
		balanced(t, st)
	})
}

// TestAnotherKey: a letter that turns out to be about another key when it is
// read again leaves its place.
func TestAnotherKey(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		cfg.DeadHolds = true
		mended := false
		cfg.Decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
			if d.ID == "a0" && !mended {
				return semel.Invalidf("a field is missing")
			}
			if d.ID == "a0" {
				d.Key = "b"
			}
			return nil
		})
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		p := plans(map[string][]error{"a0": {errNotNow}})
		b.Publish(0, keyed("a", 3)...)
		run(t, cfg, b, st, p.work())
		wantEffects(t, st)
		mended = true
		replay(t, st, letterOf(t, st, "a0").Ref)
		cfg.Drain = &consumer.Drain{Wait: -1}
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, "a1", "a2")
		balanced(t, st)
		cfg.Drain = &consumer.Drain{Wait: 2 * time.Hour}
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, "a0", "a1", "a2")
		if l := letterOf(t, st, "a0"); l.Message.Key != "b" || l.State != store.StateApplied {
			t.Errorf("letter: %+v", l)
		}
		balanced(t, st)
	})
}

// TestRepeatsBehindAKey: a message that comes twice takes one place.
func TestRepeatsBehindAKey(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		p := plans(map[string][]error{"a0": {errNotNow}})
		work, order := recorder(p)
		b.Publish(0, keyed("a", 3)...)
		b.Publish(0, keyed("a", 3)...)
		run(t, cfg, b, st, work)
		if got := order(st, "a"); !slices.Equal(got, ids(keyed("a", 3))) {
			t.Errorf("order: %v", got)
		}
		if s, _ := st.Status(t.Context(), "test", false); s.HoldKeys != 0 {
			t.Errorf("holds: %+v", s.Holds)
		}
	})
}

// TestMaxHeld: a key that is full makes the intake wait, and drops nothing; what
// came before goes on.
func TestMaxHeld(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		cfg.MaxHeld, cfg.DeadHolds = 5, true
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		p := plans(map[string][]error{"a0": {errNever}})
		work, order := recorder(p)
		b.Publish(0, keyed("a", 5)...)
		b.Publish(0, keyed("b", 2)...)
		b.Publish(0, keyed("a", 10)[5:]...)
		b.Publish(0, keyed("b", 4)[2:]...)
		c := start(t, cfg, b.Receiver(), st, work)
		time.Sleep(time.Minute)
		wantEffects(t, st, "b0", "b1")
		s, err := st.Status(t.Context(), "test", true)
		if err != nil || len(s.Holds) != 1 || s.Holds[0].Size != 5 {
			t.Errorf("holds: %+v %v", s.Holds, err)
		}
		if len(c.events.pauses()) == 0 || c.events.pauses()[0] != `5 messages are held behind key "a"` {
			t.Errorf("pauses: %v", c.events.pauses())
		}
		discard(t, st, letterOf(t, st, "a0").Ref)
		if err := c.wait(t); err != nil {
			t.Fatal(err)
		}
		if got := order(st, "a"); !slices.Equal(got, ids(keyed("a", 10))[1:]) {
			t.Errorf("order: %v", got)
		}
		balanced(t, st)
	})
}

// TestMaxHeldAtTheEnd: a consumer that waits for room ends when it is told to.
func TestMaxHeldAtTheEnd(t *testing.T) {
	byKey(t, func(t *testing.T, cfg consumer.Config) {
		cfg.MaxHeld, cfg.DeadHolds, cfg.Drain = 2, true, nil
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		p := plans(map[string][]error{"a0": {errNever}})
		b.Publish(0, keyed("a", 5)...)
		c := start(t, cfg, b.Receiver(), st, p.work())
		time.Sleep(time.Minute)
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		discard(t, st, letterOf(t, st, "a0").Ref)
		cfg.Drain = &consumer.Drain{Wait: -1}
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, ids(keyed("a", 5))[1:]...)
	})
}
