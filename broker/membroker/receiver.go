package membroker

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

var (
	_ broker.Receiver = (*Receiver)(nil)
	_ broker.Owned    = (*Receiver)(nil)
	_ broker.Measurer = (*Receiver)(nil)
)

// Receiver is one worker's connection. See broker.Receiver.
type Receiver struct {
	b     *Broker
	owner broker.Owner
	calls chan struct{} // holds one token: the right to call the owner

	// Below: under the broker's lock.
	generation uint64 // of the connection to a queue
	claims     map[uint64]claim
	faults     []error       // of the next Receives
	refusals   []error       // of the next Settles
	owed       []semel.Scope // lost, to be told by the next Receive
	stolen     []semel.Scope // lost, to be told by Lose
	closed     bool
	from       int // the partition where the next Receive starts
}

// claim is a delivery that is not settled.
type claim struct {
	e    *entry
	p    *partition // nil: queue
	gen  uint64
	body []byte // to be scribbled over
}

// Receiver returns a new worker's connection.
func (b *Broker) Receiver() *Receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generation++
	r := &Receiver{b: b, generation: b.generation, claims: make(map[uint64]claim), calls: make(chan struct{}, 1)}
	r.calls <- struct{}{}
	b.receivers = append(b.receivers, r)
	return r
}

// Bind implements broker.Owned. On a queue it has no effect. Partitions of a
// receiver that is not bound start where the acks ended.
func (r *Receiver) Bind(o broker.Owner) { r.owner = o }

// Capabilities implements broker.Receiver. Partitions have only acks: what is
// not acked comes again to the next owner.
func (r *Receiver) Capabilities() broker.Capabilities {
	queue := !r.b.partitioned()
	return broker.Capabilities{
		Name: "memory", Traits: r.b.traits, Ephemeral: r.b.cfg.Ephemeral, Count: r.b.cfg.Count,
		Retry: queue, Release: queue, Delay: queue, Confirmed: true, FencesStale: true,
		Horizon: r.b.cfg.Horizon,
	}
}

// Depth implements broker.Measurer for the whole broker.
func (r *Receiver) Depth(ctx context.Context) (broker.Depth, error) {
	if err := ctx.Err(); err != nil {
		return broker.Depth{}, err
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	d := broker.Depth{Waiting: int64(len(r.b.queue.ready))}
	for _, p := range r.b.parts {
		d.Waiting += int64(p.waiting(r.b.ordered()))
	}
	for _, other := range r.b.receivers {
		d.Claimed += int64(len(other.claims))
	}
	return d, nil
}

// Receive implements broker.Receiver.
func (r *Receiver) Receive(ctx context.Context, budget broker.Budget) ([]semel.Delivery, error) {
	for {
		if err := r.ready(ctx); err != nil {
			return nil, err
		}
		ds, wait, changed := r.take(budget)
		if len(ds) > 0 {
			return ds, nil
		}
		if err := sleep(ctx, wait, changed); err != nil {
			return nil, err
		}
	}
}

// ready does what comes before any delivery: errors that are due, losses to be
// told, assignments to be asked for.
func (r *Receiver) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.b.mu.Lock()
	owed, pending, closed := len(r.owed) > 0, len(r.pending()) > 0, r.closed
	r.b.mu.Unlock()
	if closed {
		return broker.ErrClosed
	}
	if owed {
		if err := r.tellLost(ctx); err != nil {
			return err
		}
	}
	switch fault := r.fault(); {
	case fault != nil:
		return fault
	case pending:
		return r.accept(ctx)
	}
	return nil
}

func (r *Receiver) fault() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if len(r.faults) == 0 {
		return nil
	}
	err := r.faults[0]
	r.faults = r.faults[1:]
	return err
}

// sleep waits for a change, for at most wait if that is not negative.
func sleep(ctx context.Context, wait time.Duration, changed <-chan struct{}) error {
	var timer <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timer:
	}
	return nil
}

// take hands over what there is within the budget.
func (r *Receiver) take(budget broker.Budget) (ds []semel.Delivery, wait time.Duration, changed <-chan struct{}) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	hand := basket{r: r, budget: budget, now: time.Now(), wait: -1}
	if b.partitioned() {
		hand.partitions()
	} else {
		hand.queue()
	}
	if len(hand.ds) == 0 {
		changed = b.changed()
	}
	return hand.ds, hand.wait, changed
}

// basket collects the deliveries of one Receive.
type basket struct {
	r      *Receiver
	budget broker.Budget
	now    time.Time
	ds     []semel.Delivery
	bytes  int64
	wait   time.Duration // until something is ready; -1: unknown
}

func (k *basket) full() bool { return len(k.ds) >= max(1, k.budget.Messages) }

// fits reports whether e may still be handed over. A first one always may.
func (k *basket) fits(e *entry) bool {
	return len(k.ds) == 0 || k.bytes+int64(len(e.Body)) <= k.budget.Bytes
}

func (k *basket) queue() {
	b := k.r.b
	for !k.full() {
		e, i, wait := b.pick(b.queue.ready, k.now)
		if e == nil {
			k.later(wait)
			return
		}
		if !k.fits(e) {
			return
		}
		b.queue.ready = b.without(b.queue.ready, i)
		k.add(e, nil, k.r.generation)
	}
}

// partitions takes one message from each in turn, so that a batch has as many
// scopes as it can.
func (k *basket) partitions() {
	b := k.r.b
	n := len(b.parts)
	for idle := 0; idle < n && !k.full(); k.r.from++ {
		p := b.parts[k.r.from%n]
		if !p.open(k.r) {
			idle++
			continue
		}
		e, i, wait := b.nextOf(p, k.now)
		if e == nil {
			k.later(wait)
			idle++
			continue
		}
		if !k.fits(e) {
			return
		}
		b.took(p, i)
		k.add(e, p, p.lease)
		idle = 0
	}
}

func (k *basket) later(wait time.Duration) {
	if wait >= 0 && (k.wait < 0 || wait < k.wait) {
		k.wait = wait
	}
}

func (k *basket) add(e *entry, p *partition, gen uint64) {
	b := k.r.b
	b.tag++
	e.count++
	d := semel.Delivery{
		Message: e.Message, Position: e.pos, Lease: semel.Lease{Generation: gen, Tag: b.tag},
		Malformed: e.malformed, Returns: e.returns,
	}
	if p != nil {
		d.Next = semel.Offset{Lo: e.pos.Lo + 1}
	} else {
		d.Takeover, e.left = e.left, semel.Fresh
	}
	if b.cfg.Count != semel.TrustNone {
		d.Count = semel.Count{N: e.count, Trust: b.cfg.Count}
	}
	c := claim{e: e, p: p, gen: gen}
	if b.cfg.Scribble {
		d.Body = bytes.Clone(e.Body)
		c.body = d.Body
	}
	k.r.claims[b.tag] = c
	k.bytes += int64(len(e.Body))
	k.ds = append(k.ds, d)
}

// Settle implements broker.Receiver.
func (r *Receiver) Settle(ctx context.Context, s []broker.Settlement, out []broker.Settled) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.b.cfg.OnSettle != nil {
		for i, id := range r.ids(s) {
			r.b.cfg.OnSettle(id, s[i])
		}
	}
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.notify()
	if len(r.refusals) > 0 {
		err := r.refusals[0]
		r.refusals = r.refusals[1:]
		return err
	}
	var released []*entry
	for i := range s {
		c, ok := r.claims[s[i].Lease.Tag]
		if out[i] = r.answer(c, ok, s[i]); out[i] != broker.Done {
			continue
		}
		if e := r.settle(c, s[i], &out[i]); e != nil {
			released = append(released, e)
		}
	}
	b.queue.putBack(released)
	return nil
}

// ids names what is settled; a stale lease has no name.
func (r *Receiver) ids(s []broker.Settlement) []string {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	ids := make([]string, len(s))
	for i := range s {
		if c, ok := r.claims[s[i].Lease.Tag]; ok && c.gen == s[i].Lease.Generation {
			ids[i] = c.e.id
		}
	}
	return ids
}

// answer is Done where the settlement is acceptable.
func (r *Receiver) answer(c claim, ok bool, s broker.Settlement) broker.Settled {
	switch {
	case !ok || c.gen != s.Lease.Generation:
		return broker.Stale
	case c.p != nil && !decides(s.Verb):
		return broker.Unsupported
	}
	return broker.Done
}

// settle carries a settlement out, or loses it. It returns what goes back to
// the front of the queue.
func (r *Receiver) settle(c claim, s broker.Settlement, out *broker.Settled) *entry {
	b := r.b
	delete(r.claims, s.Lease.Tag)
	for i := range c.body {
		c.body[i] = 0xDB
	}
	answer, lost := b.lost()
	if lost {
		*out = answer
	}
	b.settled(c.e, s, *out, lost)
	switch {
	case c.p != nil:
		c.p.commit()
	case lost:
		b.queue.ready = append(b.queue.ready, c.e)
	case s.Verb == broker.Release:
		c.e.count--
		return c.e
	case s.Verb == broker.Retry:
		c.e.at = time.Now().Add(s.Delay)
		b.queue.ready = append(b.queue.ready, c.e)
	}
	return nil
}

// Close implements broker.Receiver. Nobody is called back; what is held goes
// to others in good order.
func (r *Receiver) Close(context.Context) error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.leave(semel.Fresh)
	return nil
}

// leave ends the connection and gives back what it held.
func (r *Receiver) leave(how semel.Takeover) {
	r.closed = true
	for _, p := range r.b.parts {
		if p.owner == r {
			r.drop(p, how)
		}
	}
	r.requeue(how)
	r.b.notify()
}

// drop takes p from r, with all it was handed of it.
func (r *Receiver) drop(p *partition, how semel.Takeover) {
	p.free(how)
	for tag, c := range r.claims {
		if c.p == p {
			delete(r.claims, tag)
		}
	}
}

// requeue puts what r holds of a queue back to its front, in order.
func (r *Receiver) requeue(how semel.Takeover) {
	var back []*entry
	for _, tag := range slices.Sorted(maps.Keys(r.claims)) {
		e := r.claims[tag].e
		e.left = how
		back = append(back, e)
	}
	clear(r.claims)
	r.b.queue.putBack(back)
}
