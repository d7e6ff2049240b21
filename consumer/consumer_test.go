package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

type tx = *memstore.Tx

// decoder takes messages as they are published.
var decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
	if d.ID == "" {
		return semel.Invalidf("no id")
	}
	return nil
})

// config is a consumer that ends when everything is done.
func config() consumer.Config {
	return consumer.Config{
		Name: "test", Decoder: decoder, Horizon: time.Hour, Start: consumer.StartFirst,
		Drain: &consumer.Drain{Wait: time.Hour},
		Retry: retry.Policy{Delays: []time.Duration{time.Second, 10 * time.Second}},
	}
}

// count is the effect that must happen once per message.
func count(_ context.Context, t tx, m semel.Message) error {
	return t.Add("effect/"+m.ID, 1)
}

func run(t *testing.T, cfg consumer.Config, b *membroker.Broker, st store.Backend[tx], w consumer.Work[tx]) semel.Account {
	t.Helper()
	r := b.Receiver()
	c, err := consumer.New(cfg, r, st, w)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := c.Account()
	if !a.Balanced() {
		t.Errorf("account does not balance: %+v", a)
	}
	s, err := st.Status(t.Context(), cfg.Name, true)
	if err != nil || len(s.Imbalances) > 0 {
		t.Errorf("tables do not balance: %v %v", s.Imbalances, err)
	}
	return a
}

func messages(n int) []semel.Message {
	ms := make([]semel.Message, n)
	for i := range ms {
		ms[i] = semel.Message{ID: fmt.Sprintf("m%04d", i), Key: fmt.Sprintf("k%d", i%7), Body: []byte(fmt.Sprint(i))}
	}
	return ms
}

func wantEffects(t *testing.T, st *memstore.Store, ids ...string) {
	t.Helper()
	got := st.Rows()
	for _, id := range ids {
		if got["effect/"+id] != "1" {
			t.Errorf("message %s has %q effects, want 1", id, got["effect/"+id])
		}
	}
	if n := countPrefix(got, "effect/"); n != len(ids) {
		t.Errorf("%d messages have effects, want %d", n, len(ids))
	}
}

func countPrefix(rows map[string]string, prefix string) (n int) {
	for k := range rows {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}

func ids(ms []semel.Message) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.ID)
	}
	return out
}

// sources are the two kinds that every strategy has to work with.
var sources = map[string]membroker.Config{
	"queue":      {},
	"partitions": {Partitions: 3},
}

func TestEveryMessageOnce(t *testing.T) {
	for kind, cfg := range sources {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st, ms := membroker.New(cfg), memstore.New(), messages(5000)
				b.Publish(-1, ms...)
				b.Publish(-1, ms[:500]...)
				a := run(t, config(), b, st, consumer.Each(count))
				wantEffects(t, st, ids(ms)...)
				if a.Of[semel.Applied] != 5000 || a.Of[semel.Duplicate] != 500 {
					t.Errorf("account: %+v", a)
				}
				if left := b.Unsettled(); len(left) > 0 {
					t.Errorf("%d messages unsettled: %v", len(left), left[:1])
				}
			})
		})
	}
}

func TestPositionIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st, ms := membroker.New(membroker.Config{Partitions: 3}), memstore.New(), messages(5000)
		b.Publish(-1, ms...)
		cfg := config()
		cfg.Inbox = inbox.Position
		run(t, cfg, b, st, consumer.Each(count))
		wantEffects(t, st, ids(ms)...)
		b.DropAcks(1, broker.Done)
		run(t, cfg, b, st, consumer.Each(count)) // nothing comes again, or it is known
		wantEffects(t, st, ids(ms)...)
	})
}

// TestDelaysAreBounded: what a handler asks for cannot park a message for ever.
func TestDelaysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{}), memstore.New()
		b.Publish(-1, messages(1)...)
		cfg := config()
		cfg.Drain = &consumer.Drain{Wait: -1}
		run(t, cfg, b, st, consumer.Each(func(context.Context, tx, semel.Message) error {
			return semel.RetryAfter(errors.New("later"), 100*365*24*time.Hour)
		}))
		letters, err := st.List(t.Context(), store.Query{Consumer: "test"})
		if err != nil || len(letters) != 1 {
			t.Fatalf("%d letters, want 1: %v", len(letters), err)
		}
		if wait := letters[0].Due.Sub(letters[0].Created); wait != retry.MaxDelay {
			t.Errorf("it is due after %v, want %v", wait, retry.MaxDelay)
		}
	})
}

// TestGraded (C1 to C4): permanent errors die at once, transient ones are
// retried once at once and then with delays, and everything else flows.
func TestGraded(t *testing.T) {
	for kind, src := range sources {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st, ms := membroker.New(src), memstore.New(), messages(300)
				b.Publish(-1, ms...)
				runs := map[string]int{}
				a := run(t, config(), b, st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
					runs[m.ID]++
					if err := count(ctx, t, m); err != nil {
						return err
					}
					switch m.ID {
					case "m0010":
						return semel.Permanent(errors.New("unknown code"))
					case "m0020":
						if runs[m.ID] < 3 { // fails twice: at once and again
							return errors.New("timeout")
						}
					case "m0030":
						return errors.New("never works")
					case "m0040":
						panic("oops")
					}
					return nil
				}))
				letters, _ := st.List(t.Context(), store.Query{Consumer: "test"})
				if len(letters) != 4 {
					t.Fatalf("%d letters, want 4", len(letters))
				}
				for _, l := range letters {
					want := map[string]store.State{"m0010": store.StateDead, "m0020": store.StateApplied, "m0030": store.StateDead, "m0040": store.StateDead}[l.Message.ID]
					attempts := map[string]int{"m0010": 1, "m0020": 2, "m0030": 4, "m0040": 4}[l.Message.ID]
					if l.State != want || l.Attempts != attempts {
						t.Errorf("letter of %s: %s after %d attempts, want %s after %d: %s", l.Message.ID, l.State, l.Attempts, want, attempts, l.Error)
					}
					if l.Message.ID == "m0040" && !strings.Contains(l.Stack, "consumer_test") {
						t.Errorf("no stack of the panic: %q", l.Stack)
					}
				}
				if a.Of[semel.Dead] != 3 || a.Taken == 0 {
					t.Errorf("account: %+v", a)
				}
				var good []string
				for _, id := range ids(ms) {
					if id != "m0010" && id != "m0030" && id != "m0040" {
						good = append(good, id)
					}
				}
				wantEffects(t, st, good...)
			})
		})
	}
}
