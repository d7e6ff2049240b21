package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

func version(id string, n int64, tie string) semel.Message {
	return semel.Message{ID: id, Key: "k", Version: semel.Version{N: n, Tie: tie, Set: true}, Body: []byte(id)}
}

// TestVersions: of different messages about a key the newest wins, whatever
// order they come in, in one batch or in several.
func TestVersions(t *testing.T) {
	none := semel.Message{ID: "none", Key: "k", Body: []byte("none")}
	copied := version("copy", 5, "")
	copied.Body = []byte("five")
	five := version("five", 5, "")
	for name, c := range map[string]struct {
		policy arbitrate.Policy
		ms     []semel.Message
		want   map[string]semel.Verdict
		ties   int64
	}{
		"in order": {ms: []semel.Message{version("a", 1, ""), version("b", 2, "")}, want: map[string]semel.Verdict{"a": semel.Applied, "b": semel.Applied}},
		"older":    {ms: []semel.Message{version("b", 2, ""), version("a", 1, "")}, want: map[string]semel.Verdict{"a": semel.Superseded, "b": semel.Applied}},
		"same":     {ms: []semel.Message{five, copied}, want: map[string]semel.Verdict{"five": semel.Applied, "copy": semel.Superseded}},
		"tie won":  {ms: []semel.Message{version("a", 1, "x"), version("b", 1, "y")}, want: map[string]semel.Verdict{"a": semel.Applied, "b": semel.Applied}, ties: 1},
		"tie lost": {ms: []semel.Message{version("b", 1, "y"), version("a", 1, "x")}, want: map[string]semel.Verdict{"a": semel.Superseded, "b": semel.Applied}, ties: 1},
		"tie open": {ms: []semel.Message{version("a", 1, ""), version("b", 1, "")}, want: map[string]semel.Verdict{"a": semel.Applied, "b": semel.Dead}},
		"zero":     {ms: []semel.Message{version("a", 0, ""), version("b", -1, "")}, want: map[string]semel.Verdict{"a": semel.Applied, "b": semel.Superseded}},
		"missing":  {ms: []semel.Message{version("a", 1, ""), none}, want: map[string]semel.Verdict{"a": semel.Applied, "none": semel.Dead}},
		"missing, superseded": {
			policy: arbitrate.Policy{Missing: arbitrate.MissingSuperseded}, ms: []semel.Message{version("a", 1, ""), none},
			want: map[string]semel.Verdict{"a": semel.Applied, "none": semel.Superseded},
		},
		"missing, applied": {
			policy: arbitrate.Policy{Missing: arbitrate.MissingApply}, ms: []semel.Message{version("b", 2, ""), none, version("a", 1, "")},
			want: map[string]semel.Verdict{"a": semel.Superseded, "b": semel.Applied, "none": semel.Applied},
		},
		"no key": {ms: []semel.Message{{ID: "x"}}, want: map[string]semel.Verdict{"x": semel.Applied}},
	} {
		for _, batch := range []int{1, 100} {
			t.Run(fmt.Sprintf("%s/%d", name, batch), func(t *testing.T) {
				both(t, func(t *testing.T, b *membroker.Broker) {
					st := memstore.New()
					cfg := config()
					cfg.MaxBatch = batch
					cfg.Arbitrate = c.policy
					cfg.Arbitrate.On = true
					b.Publish(0, c.ms...)
					a := run(t, cfg, b, st, consumer.Each(count))
					for id, want := range c.want {
						if got := verdictOf(t, st, id); got != want {
							t.Errorf("%s was %s, want %s", id, got, want)
						}
					}
					if a.Ties != c.ties {
						t.Errorf("%d ties, want %d", a.Ties, c.ties)
					}
					balanced(t, st)
				})
			})
		}
	}
}

// verdictOf tells what became of an id: its row, with dead letters told apart.
func verdictOf(t *testing.T, st *memstore.Store, id string) semel.Verdict {
	t.Helper()
	tr, err := st.Trace(t.Context(), "test", id, "")
	if err != nil || tr.Record == nil {
		t.Fatalf("%s is not recorded: %v", id, err)
	}
	if len(tr.Letters) > 0 && tr.Letters[0].State == store.StateDead {
		return semel.Dead
	}
	return tr.Record.Verdict
}

// TestLatest: only the highest version of a key in a batch reaches the handler;
// if that fails, the one before is not lost.
func TestLatest(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.Arbitrate = arbitrate.Policy{On: true, Latest: true}
		p := plans(nil)
		b.Publish(0, version("a", 1, ""), version("b", 2, ""), version("d", 4, ""), version("c", 3, ""))
		a := run(t, cfg, b, st, p.work())
		if a.Of[semel.Applied] != 1 || a.Of[semel.Superseded] != 3 || p.total() != 1 {
			t.Errorf("account %+v, %d runs", a, p.total())
		}
		wantEffects(t, st, "d")

		p = plans(map[string][]error{"f": always(errNever)})
		b.Publish(0, version("e", 5, ""), version("f", 6, ""))
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, "d", "e")
		balanced(t, st)
	})
}

// TestLateVersion: a parked version that was overtaken meanwhile is superseded
// when its turn comes.
func TestLateVersion(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.Arbitrate.On = true
		p := plans(map[string][]error{"a": {errNotNow, errNotNow}})
		b.Publish(0, version("a", 1, ""), version("b", 2, ""))
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, "b")
		if l := letterOf(t, st, "a"); l.State != store.StateSuperseded {
			t.Errorf("letter: %+v", l)
		}
		balanced(t, st)
	})
}

// TestVersionOfAFailure: a message that dies leaves the recorded version alone.
func TestVersionOfAFailure(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.Arbitrate.On = true
		p := plans(map[string][]error{"b": always(errNever)})
		b.Publish(0, version("b", 2, ""), version("a", 1, ""))
		run(t, cfg, b, st, p.work())
		wantEffects(t, st, "a")
	})
}

// TestVersionsReachTheHandlerInOrder with batches and repeats mixed.
func TestVersionsReachTheHandlerInOrder(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.Arbitrate.On, cfg.MaxBatch = true, 7
		var seen []int64
		for i := range int64(200) {
			n := (i * 37) % 101
			b.Publish(0, version(fmt.Sprintf("m%03d-%d", n, i/101), n, ""))
		}
		run(t, cfg, b, st, consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			seen = append(seen, m.Version.N)
			return count(ctx, t, m)
		}))
		if !slices.IsSorted(seen) || len(seen) < 5 || seen[len(seen)-1] != 100 {
			t.Errorf("versions: %v", seen)
		}
	})
}
