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
	"github.com/semel-dev/semel/store/memstore"
)

type spanKey struct{}

// TestObservedTransactions: a transaction is told before it opens with its
// messages, its context reaches the handlers, and its end is told once, with
// what it decided or why it did not commit.
func TestObservedTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		ms := messages(4)
		ms[1].Time = time.Now().Add(-time.Hour)
		ms[2].Time = time.Now().Add(-time.Minute)
		b.Publish(0, ms...)
		cfg := config()
		var notes []string
		note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
		cfg.Observer = semel.Observer{
			Open: func(ctx context.Context, o semel.Opening) (context.Context, func(semel.Batch, error)) {
				var ids []string
				for m := range o.Messages {
					ids = append(ids, m.ID)
				}
				note("open %d letters=%t %s", o.N, o.Letters, strings.Join(ids, " "))
				return context.WithValue(ctx, spanKey{}, o.N), func(b semel.Batch, err error) {
					note("end %d applied=%d %v age=%v", b.Messages, b.Of[semel.Applied], err, age(b))
				}
			},
			Handle: func(ctx context.Context, m *semel.Message) (context.Context, func(error)) {
				outer := ctx.Value(spanKey{})
				return context.WithValue(ctx, spanKey{}, m.ID), func(err error) { note("%s in %v: %v", m.ID, outer, err != nil) }
			},
			Failed: func(f semel.Failure) { note("%s %s reason=%q panic=%t", f.ID, f.Verdict, f.Reason, f.Panic) },
			Phase:  func(p semel.Phase) { note("%v", p) },
		}
		failed := false
		run(t, cfg, b, st, consumer.Each(func(ctx context.Context, tx tx, m semel.Message) error {
			if got := ctx.Value(spanKey{}); got != m.ID {
				t.Errorf("the handler of %s has the context of %v", m.ID, got)
			}
			if m.ID == "m0002" && !failed {
				failed = true
				panic("oh")
			}
			return nil
		}))
		want := []string{"running",
			"open 4 letters=false m0000 m0001 m0002 m0003",
			"m0000 in 4: false", "m0001 in 4: false", "m0002 in 4: true",
			"end 0 applied=0 handler panicked: oh age=0s",
			`m0002 undecided reason="" panic=true`,
			"open 2 letters=false m0000 m0001", "m0000 in 2: false", "m0001 in 2: false", "end 2 applied=2 <nil> age=1h0m0s",
			"open 1 letters=false m0002", "m0002 in 1: false", "end 1 applied=1 <nil> age=1m0s",
			"open 1 letters=false m0003", "m0003 in 1: false", "end 1 applied=1 <nil> age=0s",
			"draining", "ended"}
		if !slices.Equal(notes, want) {
			t.Errorf("told:\n%s\nwant:\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
		}
	})
}

func age(b semel.Batch) time.Duration {
	if b.Oldest.IsZero() {
		return 0
	}
	return time.Since(b.Oldest).Round(time.Minute)
}

// TestDeadIsToldOnce: whatever makes a message dead is told once, with the
// reason under which its letter is kept.
func TestDeadIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		cfg := config()
		dead := map[string]int{}
		cfg.Observer.Failed = func(f semel.Failure) {
			if f.Verdict == semel.Dead {
				dead[f.ID+" "+f.Reason]++
			}
		}
		ms := append(messages(3), semel.Message{})
		b.Publish(0, ms...)
		p := plans(map[string][]error{"m0000": always(errNotNow), "m0001": {errNever}})
		a := run(t, cfg, b, st, p.work())
		want := map[string]int{"m0000 exhausted": 1, "m0001 permanent": 1, " invalid": 1}
		if fmt.Sprint(dead) != fmt.Sprint(want) || a.Of[semel.Dead] != 3 {
			t.Errorf("told of %v, want %v; %d dead", dead, want, a.Of[semel.Dead])
		}
	})
}

// TestStoppedScopeIsGivenUp: a scope that was stopped and is taken away again
// is told as left or lost, like any other.
func TestStoppedScopeIsGivenUp(t *testing.T) {
	for want, take := range map[string]func(context.Context, *membroker.Broker, *membroker.Receiver) error{
		"memory/0 left": func(ctx context.Context, b *membroker.Broker, r *membroker.Receiver) error {
			return b.Revoke(ctx, r, 0)
		},
		"memory/0 lost": func(_ context.Context, b *membroker.Broker, r *membroker.Receiver) error { b.Lose(r, 0); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
			cfg := noDrain()
			cfg.Start = consumer.StartRefuse
			r := b.Receiver()
			b.Assign(r, 0)
			c := start(t, cfg, r, st, consumer.Each(count))
			synctest.Wait()
			if !c.events.scope("memory/0 stopped", "no position") {
				t.Errorf("events: %v", c.events.scopes)
			}
			if err := take(t.Context(), b, r); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if !c.events.scope(want) {
				t.Errorf("events: %v, want %s", c.events.scopes, want)
			}
			if err := c.stop(t); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
