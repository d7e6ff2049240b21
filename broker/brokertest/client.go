package brokertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// wide is a budget that never limits the suite.
var wide = broker.Budget{Messages: 1000, Bytes: 64 << 20}

// env is what one check works with.
type env struct {
	testing.TB
	Harness
	src    Source
	fences *fences
	opened int
	made   int
}

func newEnv(tb testing.TB, h Harness) *env {
	h.Patience = cmp.Or(h.Patience, 10*time.Second)
	h.Quiet = cmp.Or(h.Quiet, 200*time.Millisecond)
	return &env{TB: tb, Harness: h, src: h.New(tb), fences: newFences()}
}

// client is a receiver with what the suite knows of it.
type client struct {
	*env
	name  string
	r     broker.Receiver
	caps  broker.Capabilities
	owner broker.Owned
	gone  bool
}

func (e *env) open() *client {
	e.Helper()
	e.opened++
	r := e.src.Open(e.TB)
	c := &client{env: e, name: fmt.Sprintf("receiver %d", e.opened), r: r, caps: r.Capabilities()}
	if o, ok := r.(broker.Owned); ok && c.caps.Traits.Has(semel.ExclusiveScope) {
		c.owner = o
		o.Bind(owner{c})
	}
	e.Cleanup(func() { c.close() })
	return c
}

// close closes a receiver; its owner has nothing any more then.
func (c *client) close() {
	if c.gone {
		return
	}
	c.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	if err := c.r.Close(ctx); err != nil {
		c.Errorf("%s: close: %v", c.name, err)
	}
	c.fences.vanished(c)
}

// kill ends a receiver as badly as the source lets us.
func (c *client) kill() {
	c.Helper()
	if c.src.Kill == nil {
		c.Log("the harness cannot kill a receiver: it is closed instead")
		c.close()
		return
	}
	c.gone = true
	c.src.Kill(c.TB, c.r)
	c.fences.vanished(c)
}

// publish makes n messages with different bodies and keys.
func (e *env) publish(n int) []semel.Message {
	e.Helper()
	ms := make([]semel.Message, n)
	for i := range ms {
		e.made++
		ms[i] = message(e.made, 0)
	}
	e.src.Publish(e.TB, ms...)
	return ms
}

// message is number i with a body of at least size bytes.
func message(i, size int) semel.Message {
	id := fmt.Sprintf("m%04d", i)
	pad := ""
	if size > 0 {
		pad = string(slices.Repeat([]byte{'x'}, size))
	}
	return semel.Message{ID: id, Key: fmt.Sprintf("k%d", i%7), Body: fmt.Appendf(nil, `{"id":%q,"é":"%s"}`, id, pad)}
}

// one receives once; nil means that nothing came within d.
func (c *client) one(d time.Duration, b broker.Budget) []semel.Delivery {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	ds, err := c.r.Receive(ctx, b)
	switch {
	case err != nil && len(ds) > 0:
		c.Errorf("%s: Receive returned deliveries together with the error %v", c.name, err)
	case err == nil && len(ds) == 0:
		c.Errorf("%s: Receive returned neither deliveries nor an error", c.name)
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		c.Fatalf("%s: Receive: %v", c.name, err)
	}
	c.fences.handed(c, ds)
	return ds
}

// receive gets all of ms and nothing else, apart from those that may come too;
// repeats are dropped.
func (c *client) receive(ms []semel.Message, may ...semel.Message) []semel.Delivery {
	c.Helper()
	want := newWanted(ms)
	for _, m := range may {
		want.open[string(m.Body)] = false
	}
	for deadline := time.Now().Add(c.Patience); want.missing() > 0; {
		ds := c.one(time.Until(deadline), wide)
		if ds == nil {
			c.Fatalf("%s: %d of %d messages did not come within %v, among them %s", c.name, want.missing(), len(ms), c.Patience, want.first())
		}
		want.add(c, ds)
	}
	return want.got
}

// gather is receive for several receivers at the same time. It returns what
// each was handed.
func (e *env) gather(ms []semel.Message, cs ...*client) map[*client][]semel.Delivery {
	e.Helper()
	type part struct {
		c   *client
		ds  []semel.Delivery
		err error
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.Patience)
	defer cancel()
	parts := make(chan part)
	var all sync.WaitGroup
	for _, c := range cs {
		all.Go(func() {
			for {
				ds, err := c.r.Receive(ctx, broker.Budget{Messages: 5, Bytes: 1 << 20})
				parts <- part{c, ds, err}
				if err != nil {
					return
				}
			}
		})
	}
	go func() { all.Wait(); close(parts) }()
	want, got := newWanted(ms), map[*client][]semel.Delivery{}
	for p := range parts {
		if p.err != nil && ctx.Err() == nil {
			e.Errorf("%s: Receive: %v", p.c.name, p.err)
			cancel()
		}
		e.fences.handed(p.c, p.ds)
		want.add(p.c, p.ds)
		got[p.c] = append(got[p.c], p.ds...)
		if want.missing() == 0 {
			cancel()
		}
	}
	if want.missing() > 0 {
		e.Errorf("%d of %d messages did not come, among them %s", want.missing(), len(ms), want.first())
	}
	return got
}

// wanted is a set of messages that have to come.
type wanted struct {
	open  map[string]bool // by body; false: it came
	order []string
	got   []semel.Delivery
}

func newWanted(ms []semel.Message) *wanted {
	w := &wanted{open: map[string]bool{}}
	for _, m := range ms {
		w.open[string(m.Body)] = true
		w.order = append(w.order, string(m.Body))
	}
	return w
}

func (w *wanted) add(c *client, ds []semel.Delivery) {
	c.Helper()
	for _, d := range ds {
		open, known := w.open[string(d.Body)]
		switch {
		case d.Malformed != nil:
			c.Errorf("%s: %v is malformed: %v", c.name, d.Position, d.Malformed)
		case !known:
			c.Errorf("%s: %v has a body that was not published or is settled: %.80q", c.name, d.Position, d.Body)
		case !open:
			c.Logf("%s: %v came although it may not have had to", c.name, d.Position)
			w.got = append(w.got, d)
		default:
			w.open[string(d.Body)] = false
			w.got = append(w.got, d)
		}
	}
}

func (w *wanted) missing() (n int) {
	for _, open := range w.open {
		if open {
			n++
		}
	}
	return n
}

func (w *wanted) first() string {
	for _, b := range w.order {
		if w.open[b] {
			return b
		}
	}
	return ""
}

// settle asks the same for all of ds.
func (c *client) settle(v broker.Verb, ds ...semel.Delivery) []broker.Settled {
	c.Helper()
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Lease: ds[i].Lease, Verb: v, Letter: "letter-1", Why: "a check of the suite"}
	}
	return c.settleAs(s)
}

func (c *client) settleAs(s []broker.Settlement) []broker.Settled {
	c.Helper()
	out := slices.Repeat([]broker.Settled{255}, len(s))
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	if err := c.r.Settle(ctx, s, out); err != nil {
		c.Errorf("%s: Settle: %v", c.name, err)
		return out
	}
	for i := range out {
		if out[i] > broker.Unsupported {
			c.Errorf("%s: settlement %d got no answer", c.name, i)
		}
	}
	return out
}

// ack decides and acks; every answer must be Done.
func (c *client) ack(ds ...semel.Delivery) {
	c.Helper()
	c.fences.decide(ds...)
	c.expect(broker.Done, c.settle(broker.Ack, ds...))
}

func (c *client) expect(want broker.Settled, got []broker.Settled) {
	c.Helper()
	for i, g := range got {
		if g != want {
			c.Errorf("%s: settlement %d of %d was answered %s, want %s", c.name, i+1, len(got), settledName(g), settledName(want))
		}
	}
}

func settledName(s broker.Settled) string {
	names := []string{"done", "stale", "unknown", "unsupported"}
	if int(s) < len(names) {
		return names[s]
	}
	return "nothing"
}

// silent fails if something comes within Quiet, and says what.
func (c *client) silent(why string) {
	c.Helper()
	for _, d := range c.one(c.Quiet, wide) {
		c.Errorf("%s: %v came, %s: %.80q", c.name, d.Position, why, d.Body)
	}
}

// half is a prefix of what was received, so it is one in every scope too.
func half(ds []semel.Delivery) (first, rest []semel.Delivery) {
	return ds[:len(ds)/2], ds[len(ds)/2:]
}

func messagesOf(ds []semel.Delivery) []semel.Message {
	ms := make([]semel.Message, len(ds))
	for i := range ds {
		ms[i] = ds[i].Message
		ms[i].Body = slices.Clone(ds[i].Body)
	}
	return ms
}
