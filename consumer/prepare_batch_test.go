package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// bulk is work for many messages outside of the transaction.
type bulk struct {
	outside
	calls int
	// whole is asked before each call for an error that names nobody.
	whole func(ids []string) error
}

func (b *bulk) prepare(ctx context.Context, ms []semel.Message) error {
	if out, err := b.st.InTx(ctx, store.Mark{}, func(context.Context, tx) error { return nil }); err != nil || out != store.Committed {
		b.t.Errorf("a transaction while a batch is prepared: outcome %d, %v", out, err)
	}
	b.calls++
	var now []string
	for _, m := range ms {
		now = append(now, m.ID)
	}
	b.ids = append(b.ids, now...)
	if b.whole != nil {
		if err := b.whole(now); err != nil {
			return err
		}
	}
	var all []error
	for i, m := range ms {
		if errs := b.errs[m.ID]; len(errs) > 0 {
			b.errs[m.ID] = errs[1:]
			all = append(all, semel.At(i, errs[0]))
		}
	}
	return errors.Join(all...)
}

func (b *bulk) runs() map[string]int {
	n := map[string]int{}
	for _, id := range b.ids {
		n[id]++
	}
	return n
}

// TestPrepareBatch: failures are their own, verdicts are taken, and nobody is
// prepared again for the sake of another.
func TestPrepareBatch(t *testing.T) {
	both(t, func(t *testing.T, br *membroker.Broker) {
		b := &bulk{outside: outside{st: memstore.New(), t: t, errs: map[string][]error{
			"m0003": always(semel.Permanent(errNotNow)), "m0005": {errNotNow, errNotNow, errNotNow}, "m0009": {semel.ErrSuperseded},
		}}}
		msgs := messages(12)
		br.Publish(-1, append(slices.Clone(msgs), msgs[:4]...)...)
		a := run(t, config(), br, b.st, consumer.PrepareBatch(b.prepare, count))
		wantEffects(t, b.st, slices.DeleteFunc(ids(msgs), func(id string) bool { return id == "m0003" || id == "m0009" })...)
		runs := b.runs()
		for _, m := range msgs {
			if want := max(1, map[string]int{"m0005": 4}[m.ID]); runs[m.ID] != want {
				t.Errorf("%s was prepared %d times, want %d", m.ID, runs[m.ID], want)
			}
		}
		if b.calls > 9 {
			t.Errorf("%d calls", b.calls)
		}
		if a.Of[semel.Superseded] != 1 || a.Of[semel.Dead] != 1 {
			t.Errorf("account %+v", a)
		}
		balanced(t, b.st)
	})
}

// TestPrepareBatchNobody: an error that names no message is found out by
// halving, and charged to one.
func TestPrepareBatchNobody(t *testing.T) {
	for name, bad := range map[string]func() error{
		"error": func() error { return semel.Permanent(errNotNow) },
		"panic": func() error { panic("out of order") },
		"stray": func() error { return semel.At(99, semel.Fault(errNotNow)) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, br *membroker.Broker) {
				b := &bulk{outside: outside{st: memstore.New(), t: t}}
				b.whole = func(ids []string) error {
					if slices.Contains(ids, "m0007") {
						return bad()
					}
					return nil
				}
				br.Publish(-1, messages(20)...)
				run(t, config(), br, b.st, consumer.PrepareBatch(b.prepare, count))
				wantEffects(t, b.st, slices.DeleteFunc(ids(messages(20)), func(id string) bool { return id == "m0007" })...)
				if l := letterOf(t, b.st, "m0007"); l.State != store.StateDead {
					t.Errorf("letter of m7: %s %s", l.State, l.Reason)
				}
				balanced(t, b.st)
			})
		})
	}
}

// TestPrepareBatchOutage: what everybody depends on is away for longer than all
// retries take; nobody is charged, and all of it is told.
func TestPrepareBatchOutage(t *testing.T) {
	both(t, func(t *testing.T, br *membroker.Broker) {
		began := time.Now()
		b := &bulk{outside: outside{st: memstore.New(), t: t}}
		b.whole = func([]string) error {
			if time.Since(began) < 10*time.Minute {
				return semel.Infrastructure(errors.New("nobody answers"))
			}
			return nil
		}
		br.Publish(-1, messages(20)...)
		c := start(t, config(), br.Receiver(), b.st, consumer.PrepareBatch(b.prepare, count))
		time.Sleep(5 * time.Minute)
		if p := c.events.pauses(); len(p) == 0 || !strings.Contains(p[0], "nobody answers") {
			t.Errorf("told: %q", p)
		}
		if err := <-c.done; err != nil {
			t.Error(err)
		}
		wantEffects(t, b.st, ids(messages(20))...)
		if p := c.events.pauses(); len(p)%2 != 0 || len(p) > 8 || p[len(p)-1] != "<nil>" {
			t.Errorf("one pause for each committer, and its end, are told: %q", p)
		}
		if n := len(letters(t, b.st)); n != 0 || len(c.events.failed) != 0 {
			t.Errorf("%d letters, failures %v", n, c.events.failed)
		}
		balanced(t, b.st)
	})
}

// TestPrepareBatchStops: a fault stops it, and so does the wish to stop while
// it waits; the messages come again.
func TestPrepareBatchStops(t *testing.T) {
	both(t, func(t *testing.T, br *membroker.Broker) {
		b := &bulk{outside: outside{st: memstore.New(), t: t}}
		why := semel.Infrastructure(errors.New("nobody answers"))
		b.whole = func([]string) error { return why }
		br.Publish(-1, messages(20)...)
		c := start(t, noDrain(), br.Receiver(), b.st, consumer.PrepareBatch(b.prepare, count))
		time.Sleep(time.Minute)
		if err := c.stop(t); err == nil || !strings.Contains(err.Error(), "nothing was lost") {
			t.Errorf("stopped: %v", err)
		}
		why = semel.Fault(errors.New("there is no index"))
		c = start(t, noDrain(), br.Receiver(), b.st, consumer.PrepareBatch(b.prepare, count))
		time.Sleep(time.Minute)
		if err := c.stop(t); err == nil || !strings.Contains(err.Error(), "there is no index") {
			t.Errorf("a fault: %v", err)
		}
		why = nil
		run(t, config(), br, b.st, consumer.PrepareBatch[tx](b.prepare, nil))
		if n := len(letters(t, b.st)); n != 0 {
			t.Errorf("%d letters", n)
		}
	})
}
