package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// threeScopes has n messages in each of three partitions, with the partition
// as key.
func threeScopes(n int) (*membroker.Broker, []semel.Message) {
	b := membroker.New(membroker.Config{Partitions: 3})
	var all []semel.Message
	for i := range n {
		for p := range 3 {
			m := semel.Message{ID: fmt.Sprintf("p%d-%03d", p, i), Key: fmt.Sprintf("p%d", p), Body: []byte("x")}
			b.Publish(p, m)
			all = append(all, m)
		}
	}
	return b, all
}

// by is a handler that also writes down which worker did it.
func by(worker string) consumer.Work[tx] {
	return consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
		if err := t.Put("by/"+m.ID, worker); err != nil {
			return err
		}
		return count(ctx, t, m)
	})
}

// at calls fn the first time a point is met.
func at(t *testing.T, point fault.Point, fn func()) {
	var met atomic.Bool
	t.Cleanup(fault.Arm(func(p fault.Point) {
		if p == point && met.CompareAndSwap(false, true) {
			fn()
		}
	}))
}

// TestMiddleScopeTakenAway: of three scopes in one batch the middle one is
// revoked or lost; the others lose nothing, are not delivered again, and the
// new owner goes on where the old one stopped.
func TestMiddleScopeTakenAway(t *testing.T) {
	for _, strategy := range []inbox.Strategy{inbox.Table, inbox.Position} {
		for _, point := range []fault.Point{fault.Opened, fault.Handled, fault.Committed} {
			for _, how := range []string{"revoked", "lost"} {
				t.Run(fmt.Sprintf("%s/%s/%s", strategy, point, how), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { takeMiddleAway(t, strategy, point, how) })
				})
			}
		}
	}
}

func takeMiddleAway(t *testing.T, strategy inbox.Strategy, point fault.Point, how string) {
	b, all := threeScopes(20)
	st, first, second := memstore.New(), b.Receiver(), b.Receiver()
	taken := make(chan struct{})
	at(t, point, func() {
		go func() {
			defer close(taken)
			if how == "lost" {
				b.Lose(first, 1)
			} else if err := b.Revoke(context.Background(), first, 1); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
	})
	cfg := config()
	cfg.Inbox = strategy
	a := start(t, cfg, first, st, by("first"))
	<-taken
	b.Assign(second, 1)
	c := start(t, cfg, second, st, by("second"))
	if err := a.wait(t); err != nil {
		t.Error(err)
	}
	if err := c.wait(t); err != nil {
		t.Error(err)
	}
	wantEffects(t, st, ids(all)...)
	for id, worker := range st.Rows() {
		if strings.HasPrefix(id, "by/p0") || strings.HasPrefix(id, "by/p2") {
			if worker != "first" {
				t.Errorf("%s was done by the %s worker", id, worker)
			}
		}
	}
	if got := a.Account().Received; got != 60 {
		t.Errorf("the first worker received %d messages, want 60: something came again", got)
	}
	if !a.events.scope("memory/1", map[string]string{"lost": "lost", "revoked": "left"}[how]) {
		t.Errorf("the observer was not told: %v", a.events.scopes)
	}
	balanced(t, st)
}

// TestFenceCutsOut: a scope that belongs to somebody else by now is cut out of
// the batch; nothing of it is settled, and the others are done in the next.
func TestFenceCutsOut(t *testing.T) {
	for _, strategy := range []inbox.Strategy{inbox.Table, inbox.Position} {
		t.Run(strategy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, all := threeScopes(20)
				st, first, second := memstore.New(), b.Receiver(), b.Receiver()
				cfg := config()
				cfg.Inbox = strategy
				var thief *running
				stolen := make(chan struct{})
				at(t, fault.Decoded, func() {
					b.Assign(second, 1)
					thief = start(t, cfg, second, st, by("second"))
					synctest.Wait() // it has done all of it
					close(stolen)
				})
				victim := start(t, cfg, first, st, by("first"))
				<-stolen
				if err := thief.wait(t); err != nil {
					t.Error(err)
				}
				if err := victim.wait(t); err != nil {
					t.Error(err)
				}
				wantEffects(t, st, ids(all)...)
				a := victim.Account()
				if a.Of[semel.Dropped] != 20 || a.Of[semel.Applied] != 40 {
					t.Errorf("account: %+v, want 20 dropped and 40 applied", a)
				}
				if !victim.events.scope("memory/1 lost", "fence") {
					t.Errorf("the observer was not told: %v", victim.events.scopes)
				}
				for _, m := range all {
					if n := b.Acked(m.ID); n != 1 {
						t.Errorf("%s was acked %d times", m.ID, n)
					}
				}
				balanced(t, st)
			})
		})
	}
}

// TestStoppedScopes: a position that cannot be true stops its scope, with a
// clear error, and no other.
func TestStoppedScopes(t *testing.T) {
	ten := func(partition, from int) []semel.Message {
		var ms []semel.Message
		for i := range 10 {
			ms = append(ms, semel.Message{ID: fmt.Sprintf("p%d-%d", partition, from+i)})
		}
		return ms
	}
	for name, c := range map[string]struct {
		wreck func(*membroker.Broker, *consumer.Config)
		want  string
	}{
		"recreated":      {func(b *membroker.Broker, _ *consumer.Config) { b.Recreate(0); b.Publish(0, ten(0, 100)...) }, "deleted and created again"},
		"truncated":      {func(b *membroker.Broker, _ *consumer.Config) { b.Publish(0, ten(0, 10)...); b.Truncate(0, 15) }, "retention"},
		"beyond the end": {func(b *membroker.Broker, _ *consumer.Config) { b.Cut(0, 5) }, "beyond the end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st := membroker.New(membroker.Config{Partitions: 2}), memstore.New()
				b.Publish(0, ten(0, 0)...)
				b.Publish(1, ten(1, 0)...)
				run(t, config(), b, st, consumer.Each(count))
				cfg := config()
				c.wreck(b, &cfg)
				b.Publish(1, ten(1, 10)...)
				for range 2 { // the situation stays the same
					r := start(t, cfg, b.Receiver(), st, consumer.Each(count))
					if err := r.wait(t); err != nil {
						t.Error(err)
					}
					if !r.events.scope("memory/0 stopped", c.want) {
						t.Errorf("events %v, want one about %q", r.events.scopes, c.want)
					}
				}
				wantEffects(t, st, append(ids(ten(0, 0)), append(ids(ten(1, 0)), ids(ten(1, 10))...)...)...)
			})
		})
	}
}

// TestStartIsConfigured: a scope without a position does not start anywhere by
// itself, while one with a position goes on.
func TestStartIsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 2}), memstore.New()
		r := b.Receiver()
		b.Assign(r, 1)
		b.Publish(1, semel.Message{ID: "a"})
		first := start(t, noDrain(), r, st, consumer.Each(count))
		synctest.Wait()
		if err := first.stop(t); err != nil {
			t.Fatal(err)
		}
		b.Publish(0, semel.Message{ID: "c"})
		b.Publish(1, semel.Message{ID: "b"})
		cfg := config()
		cfg.Start = consumer.StartRefuse
		r = b.Receiver()
		b.Assign(r, 0, 1)
		second := start(t, cfg, r, st, consumer.Each(count))
		if err := second.wait(t); err != nil {
			t.Fatal(err)
		}
		wantEffects(t, st, "a", "b")
		if !second.events.scope("memory/0 stopped", "no position is recorded") {
			t.Errorf("events: %v", second.events.scopes)
		}
		cfg.Start = consumer.StartEnd
		r = b.Receiver()
		b.Assign(r, 0, 1)
		third := start(t, cfg, r, st, consumer.Each(count))
		synctest.Wait()
		b.Publish(0, semel.Message{ID: "d"})
		if err := third.wait(t); err != nil {
			t.Fatal(err)
		}
		wantEffects(t, st, "a", "b", "d")
	})
}

// TestDisconnected: what was delivered over a broken connection comes again and
// is done once.
func TestDisconnected(t *testing.T) {
	for kind, src := range sources {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st, ms := membroker.New(src), memstore.New(), messages(100)
				b.Publish(-1, ms...)
				r := b.Receiver()
				at(t, fault.Decoded, func() { b.Disconnect(r) })
				c := start(t, config(), r, st, consumer.Each(count))
				if err := c.wait(t); err != nil {
					t.Fatal(err)
				}
				wantEffects(t, st, ids(ms)...)
				balanced(t, st)
			})
		})
	}
}

// TestSuspectsTakeTurns: if the process dies while a message runs alone, that
// one is charged; so no other may have been started alone beside it.
func TestSuspectsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := threeScopes(2)
		st := memstore.New()
		run(t, config(), b, st, consumer.Each(count))
		var suspects []store.Suspect
		for p := range 3 {
			sc := semel.Scope{Name: fmt.Sprintf("memory/%d", p), Incarnation: "1"}
			suspects = append(suspects, store.Suspect{Unit: sc.String(), Limit: 1, Left: 10})
			for i := range 10 {
				b.Publish(p, semel.Message{ID: fmt.Sprintf("late%d-%d", p, i), Key: "k", Body: []byte("x")})
			}
		}
		_, err := st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, x tx) error { return st.Suspect(ctx, x, "test", suspects) })
		if err != nil {
			t.Fatal(err)
		}
		var met, most int
		cfg := config()
		cfg.MaxCommitters = 3
		c := start(t, cfg, b.Receiver(), store.Backend[tx](parallel{st}), consumer.Each(func(ctx context.Context, x tx, m semel.Message) error {
			now, err := st.Suspects(ctx, x, "test", []string{suspects[0].Unit, suspects[1].Unit, suspects[2].Unit}, nil)
			alone := 0
			for _, s := range now {
				if s.Started == 1 {
					alone++
				}
			}
			met, most = met+len(now), max(most, alone)
			return errors.Join(err, count(ctx, x, m))
		}))
		if err := c.wait(t); err != nil {
			t.Error(err)
		}
		if met == 0 || most != 1 {
			t.Errorf("%d suspects were met, %d were started alone at a time", met, most)
		}
	})
}
