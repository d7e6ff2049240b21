package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// outside is work outside of the transaction that notes what it was asked.
type outside struct {
	mu   sync.Mutex
	ids  []string
	errs map[string][]error
	took time.Duration
	st   *memstore.Store
	t    *testing.T
}

func (o *outside) prepare(ctx context.Context, m semel.Message) (func(context.Context, tx) error, error) {
	// A transaction that is open would keep this one waiting for ever.
	if out, err := o.st.InTx(ctx, store.Mark{}, func(context.Context, tx) error { return nil }); err != nil || out != store.Committed {
		o.t.Errorf("a transaction while %s is prepared: outcome %d, %v", m.ID, out, err)
	}
	time.Sleep(o.took)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = append(o.ids, m.ID)
	if errs := o.errs[m.ID]; len(errs) > 0 {
		o.errs[m.ID] = errs[1:]
		if errs[0] != nil {
			return nil, errs[0]
		}
	}
	return func(ctx context.Context, t tx) error { return count(ctx, t, m) }, nil
}

// TestPrepare: the slow part runs once for each message that is to be handled,
// in order, without a transaction, and the rest of it in one.
func TestPrepare(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		o := &outside{st: memstore.New(), t: t}
		msgs := messages(20)
		b.Publish(-1, append(slices.Clone(msgs), msgs[:5]...)...)
		a := run(t, config(), b, o.st, consumer.Prepare(o.prepare))
		wantEffects(t, o.st, ids(msgs)...)
		slices.Sort(o.ids)
		if want := slices.Sorted(slices.Values(ids(msgs))); !slices.Equal(o.ids, want) {
			t.Errorf("prepared %v, want %v", o.ids, want)
		}
		if a.Of[semel.Applied] != 20 || a.Of[semel.Duplicate] != 5 {
			t.Errorf("account %+v", a)
		}
		balanced(t, o.st)
	})
}

// TestPrepareAdmitted: what admission decides is not prepared.
func TestPrepareAdmitted(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		o := &outside{st: memstore.New(), t: t}
		cfg := config()
		cfg.Arbitrate = arbitrate.Policy{On: true}
		var msgs []semel.Message
		for _, n := range []int64{2, 1, 3} {
			msgs = append(msgs, semel.Message{ID: fmt.Sprint("v", n), Key: "k", Version: semel.Version{N: n, Set: true}, Body: []byte("{}")})
		}
		b.Publish(0, msgs...)
		run(t, cfg, b, o.st, consumer.Prepare(o.prepare))
		if !slices.Equal(o.ids, []string{"v2", "v3"}) {
			t.Errorf("prepared %v", o.ids)
		}
	})
}

// TestPrepareFails: failures are those of a handler; the others are prepared
// once all the same, and a failed one again for each of its attempts.
func TestPrepareFails(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		doubt := semel.Permanent(&effect.DoubtError{Key: "m0003"})
		o := &outside{st: memstore.New(), t: t, errs: map[string][]error{
			"m0003": always(doubt), "m0005": {errNotNow}, "m0007": {errNotNow, errNotNow, errNotNow}, "m0009": {semel.ErrDuplicate},
		}}
		msgs := messages(12)
		b.Publish(-1, msgs...)
		a := run(t, config(), b, o.st, consumer.Prepare(o.prepare))
		if l := letterOf(t, o.st, "m0003"); l.State != store.StateDead || l.Reason != "in doubt" || l.Class != store.System {
			t.Errorf("letter of m3: %s %s %s", l.State, l.Reason, l.Class)
		}
		applied := slices.DeleteFunc(ids(msgs), func(id string) bool { return id == "m0003" || id == "m0009" })
		wantEffects(t, o.st, applied...)
		runs := map[string]int{}
		for _, id := range o.ids {
			runs[id]++
		}
		for _, m := range msgs {
			want := map[string]int{"m0005": 2, "m0007": 4}[m.ID]
			if runs[m.ID] != max(1, want) {
				t.Errorf("%s was prepared %d times", m.ID, runs[m.ID])
			}
		}
		if a.Of[semel.Duplicate] != 1 || a.Of[semel.Dead] != 1 {
			t.Errorf("account %+v", a)
		}
		balanced(t, o.st)
	})
}

// TestPrepareStops: told to stop, a consumer finishes the call it is in, commits
// what is prepared and gives the rest back.
func TestPrepareStops(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		o := &outside{st: memstore.New(), t: t, took: 400 * time.Millisecond}
		b.Publish(-1, messages(100)...)
		c := start(t, noDrain(), b.Receiver(), o.st, consumer.Prepare(o.prepare))
		time.Sleep(5 * time.Second)
		begin := time.Now()
		if applied := c.Account().Of[semel.Applied]; applied < 6 {
			t.Errorf("%d applied after 5 s of 0.4 s each: it does not commit in between", applied)
		}
		if err := c.stop(t); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		o.took = 0
		run(t, config(), b, o.st, consumer.Prepare(o.prepare))
		wantEffects(t, o.st, ids(messages(100))...)
		if n := len(slices.Compact(slices.Sorted(slices.Values(o.ids)))); n != 100 || len(o.ids) > 101 {
			t.Errorf("%d calls for %d messages", len(o.ids), n)
		}
	})
}

// TestPrepareGuarded: calls are guarded, and the store loses answers and
// transactions wherever it can; the receiver ignores keys and is called once.
func TestPrepareGuarded(t *testing.T) {
	for _, op := range []memstore.Op{memstore.OpCommit, memstore.OpCommitted, memstore.OpClaim, memstore.OpMovedEffect, memstore.OpUser} {
		t.Run(string(op), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st := memstore.New()
				g, err := effect.New(st, effect.Config{Name: "test"})
				if err != nil {
					t.Fatal(err)
				}
				calls, n := map[string]int{}, 0
				st.Script(func(s memstore.Step) error {
					if s.Op != op {
						return nil
					}
					if n++; n%3 == 1 {
						return memstore.Errorf(semel.ClassInfrastructure, "%s: %w", op, memstore.ErrLost)
					}
					return nil
				})
				b.Publish(-1, messages(10)...)
				run(t, config(), b, st, consumer.Prepare(func(ctx context.Context, m semel.Message) (func(context.Context, tx) error, error) {
					_, err := g.Do(ctx, m.ID, store.Print(&m), func(context.Context, effect.Call) ([]byte, error) {
						calls[m.ID]++
						return nil, nil
					})
					return func(ctx context.Context, t tx) error { return count(ctx, t, m) }, err
				}))
				wantEffects(t, st, ids(messages(10))...)
				for _, m := range messages(10) {
					if calls[m.ID] != 1 {
						t.Errorf("%s was called %d times", m.ID, calls[m.ID])
					}
				}
			})
		})
	}
}
