package brokertest

import (
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// release: the message comes again as if it had not been handed over, and the
// old lease is worth nothing.
func release(e *env) {
	c := e.open()
	ds := c.receive(e.publish(4))
	if !c.caps.Release {
		c.undeclared(broker.Release, "Release", ds)
		return
	}
	c.expect(broker.Done, c.settle(broker.Release, ds...))
	again := c.receive(messagesOf(ds))
	c.expect(broker.Stale, c.settle(broker.Ack, ds...))
	if c.caps.Count == semel.TrustExact {
		for i, d := range again {
			if d.Count.N != 1 {
				e.Errorf("delivery %d has count %d after a release, want 1", i, d.Count.N)
			}
		}
	}
	c.ack(again...)
	c.silent("but everything is acked")
}

// retryVerb: the message comes again, counted.
func retryVerb(e *env) {
	c := e.open()
	ds := c.receive(e.publish(4))
	if !c.caps.Retry {
		c.undeclared(broker.Retry, "Retry", ds)
		return
	}
	c.expect(broker.Done, c.settle(broker.Retry, ds...))
	again := c.receive(messagesOf(ds))
	for i, d := range again {
		if c.caps.Count == semel.TrustExact && d.Count.N != 2 {
			e.Errorf("delivery %d has count %d after a retry, want 2", i, d.Count.N)
		}
	}
	c.ack(again...)
	c.silent("but everything is acked")
}

// undeclared tries a verb that the source does not claim to have: it must say
// so and change nothing, or do it.
func (c *client) undeclared(v broker.Verb, name string, ds []semel.Delivery) {
	c.Helper()
	for i, got := range c.settle(v, ds...) {
		switch got {
		case broker.Unsupported:
			c.expect(broker.Done, c.settle(broker.Ack, ds[i]))
		case broker.Done:
			c.Logf("%s is not declared, but works", name)
			c.expect(broker.Done, c.settle(broker.Ack, c.receive(messagesOf(ds[i:i+1]))...))
		default:
			c.Errorf("%s is not declared and was answered %s, want unsupported", name, settledName(got))
		}
	}
	c.silent("but everything is acked")
}

// delay: a Retry with a delay comes when that has passed, not before.
func delay(e *env) {
	c := e.open()
	if !c.caps.Retry {
		e.Log("the source has no Retry")
		return
	}
	ds := c.receive(e.publish(1))
	wait := 3 * e.Quiet
	began := time.Now()
	c.expect(broker.Done, c.settleAs([]broker.Settlement{{Lease: ds[0].Lease, Verb: broker.Retry, Delay: wait}}))
	again := c.receive(messagesOf(ds))
	took := time.Since(began)
	switch {
	case !c.caps.Delay:
		e.Logf("Delay is not declared; a delay of %v took %v", wait, took)
	case took < wait:
		e.Errorf("a message that was to wait %v came after %v", wait, took)
	}
	c.ack(again...)
}

// reject: decided as well, so it never comes again.
func reject(e *env) {
	a := e.open()
	ds := a.receive(e.publish(4))
	a.fences.decide(ds...)
	a.expect(broker.Done, a.settle(broker.Reject, ds...))
	if !a.caps.Reject {
		e.Log("Reject is not declared: it is an Ack")
	}
	a.silent("but it was rejected")
	a.close()
	e.open().silent("but it was rejected")
}

// count: the number of hand-overs is what the source says it is.
func count(e *env) {
	a := e.open()
	ms := e.publish(4)
	a.counted(a.receive(ms), 1)
	a.kill()
	b := e.open()
	again := b.receive(ms)
	b.counted(again, 2)
	b.ack(again...)
}

func (c *client) counted(ds []semel.Delivery, want int) {
	c.Helper()
	for _, d := range ds {
		n, trust := d.Count.N, d.Count.Trust
		if trust != c.caps.Count {
			c.Errorf("%v has a count of trust %d, the source declares %d", d.Position, trust, c.caps.Count)
		}
		switch {
		case c.caps.Count == semel.TrustExact && n != want:
			c.Errorf("%v has count %d, want %d", d.Position, n, want)
		case c.caps.Count == semel.TrustNone && n != 0:
			c.Errorf("%v has count %d, but the source says it does not count", d.Position, n)
		case c.caps.Count != semel.TrustNone && n < 1:
			c.Errorf("%v has count %d: counting begins at 1", d.Position, n)
		}
	}
}

// cumulative: settling one settles those before it in its scope.
func cumulative(e *env) {
	a := e.open()
	if !a.caps.Cumulative {
		e.Log("Cumulative is not declared; acking the last alone must not ack the others: CloseGivesBack and Release show that")
		return
	}
	ds := a.receive(e.publish(10))
	last := map[semel.Scope]semel.Delivery{}
	for _, d := range ds {
		if l, ok := last[d.Position.Scope]; !ok || l.Position.Compare(d.Position.Offset) < 0 {
			last[d.Position.Scope] = d
		}
	}
	a.fences.decide(ds...)
	for _, d := range last {
		a.expect(broker.Done, a.settle(broker.Ack, d))
	}
	a.kill()
	e.open().silent("but a later one of its scope is acked")
}

// confirmed: after the answer Done not even a crash brings it back.
func confirmed(e *env) {
	a := e.open()
	ms := e.publish(6)
	ds := a.receive(ms)
	a.expect(broker.Done, a.settle(broker.Ack, ds...))
	a.fences.decide(ds...) // where there is an owner, it says where to start
	a.kill()
	b := e.open()
	if a.caps.Confirmed {
		b.silent("but its ack was confirmed")
		return
	}
	again := b.one(e.Quiet, wide)
	e.Logf("Confirmed is not declared; %d of %d acked messages came again", len(again), len(ms))
	b.settle(broker.Ack, again...)
}

// fencesStale: who has lost a message cannot settle it for its next holder.
func fencesStale(e *env) {
	a := e.open()
	ms := e.publish(5)
	old := a.receive(ms)
	a.kill()
	b := e.open()
	now := b.receive(ms)
	if a.src.Kill == nil {
		e.Log("a receiver that was closed cannot try to settle")
		b.ack(now...)
		return
	}
	if a.caps.FencesStale {
		for i, got := range a.settleDead(old) {
			if got == broker.Done {
				e.Errorf("settlement %d by a receiver that lost the message was answered done", i+1)
			}
		}
	} else {
		e.Logf("FencesStale is not declared; a former owner is answered %d", a.settleDead(old))
	}
	b.ack(now...)
}

// settleDead settles with a dead receiver, which may answer with an error.
func (c *client) settleDead(ds []semel.Delivery) []broker.Settled {
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i].Lease = ds[i].Lease
	}
	out := slices.Repeat([]broker.Settled{broker.Unknown}, len(s))
	if err := c.r.Settle(c.Context(), s, out); err != nil {
		return nil
	}
	return out
}

// stablePosition: a message that comes again has the position it had.
func stablePosition(e *env) {
	a := e.open()
	ms := e.publish(15)
	first := a.receive(ms)
	a.kill()
	b := e.open()
	again := b.receive(ms)
	moved := 0
	for _, d := range first {
		i := byBody(again, d.Body)
		if i < 0 {
			continue
		}
		if p := again[i]; p.Position != d.Position || p.Next != d.Next {
			moved++
			if a.caps.Traits.Has(semel.StablePosition) {
				e.Errorf("the message at %v (then %v) came again at %v (then %v)", d.Position, d.Next, p.Position, p.Next)
			}
		}
	}
	if !a.caps.Traits.Has(semel.StablePosition) {
		e.Logf("StablePosition is not declared; %d of %d messages moved", moved, len(ms))
	}
	a.distinct(first)
	b.ack(again...)
}

// distinct: two messages never have one place.
func (c *client) distinct(ds []semel.Delivery) {
	if !c.caps.Traits.Has(semel.StablePosition) {
		return
	}
	at := map[semel.Position]bool{}
	for _, d := range ds {
		if at[d.Position] {
			c.Errorf("two messages are at %v", d.Position)
		}
		at[d.Position] = true
	}
}

// exclusiveScope: of two receivers only one has a scope at a time, and says
// so before it hands anything over; see fences for what is watched.
func exclusiveScope(e *env) {
	a := e.open()
	if !a.caps.Traits.Has(semel.ExclusiveScope) {
		e.Log("ExclusiveScope is not declared: nothing watches who has what")
		return
	}
	if a.owner == nil {
		e.Fatal("ExclusiveScope is declared, but the receiver is no broker.Owned")
	}
	b := e.open()
	for range 3 {
		ms := e.publish(20)
		got := e.gather(ms, a, b)
		a.ack(got[a]...)
		b.ack(got[b]...)
	}
	open := e.publish(20)
	got := e.gather(open, a, b)
	b.ack(got[b]...)
	a.close()
	b.ack(b.receive(messagesOf(got[a]))...)
}

// inOrderPerScope: see fences for what is watched; here it meets a restart in
// the middle.
func inOrderPerScope(e *env) {
	a := e.open()
	if !a.caps.Traits.Has(semel.InOrderPerScope) {
		e.Log("InOrderPerScope is not declared")
	}
	ms := e.publish(30)
	ds := a.receive(ms)
	a.keysInOrder(ms, ds)
	first, _ := half(ds)
	a.ack(first...)
	a.kill()
	b := e.open()
	again := b.receiveAfter(a, ds[len(first):], first)
	b.keysInOrder(ms, again)
	b.ack(again...)
}

// keysInOrder: where a key stays in its scope and a scope is in order, the
// messages of a key come as they were published.
func (c *client) keysInOrder(ms []semel.Message, ds []semel.Delivery) {
	c.Helper()
	if !c.caps.Traits.Has(semel.InOrderPerScope | semel.StableKeyPartition) {
		return
	}
	last := map[string]int{}
	for _, d := range ds {
		i := slices.IndexFunc(ms, func(m semel.Message) bool { return string(m.Body) == string(d.Body) })
		if i < 0 {
			continue
		}
		key := ms[i].Key
		if before, ok := last[key]; ok && i < before {
			c.Errorf("message %d of key %s came after message %d", i, key, before)
		}
		last[key] = i
	}
}

// stableKeyPartition: a key stays in its scope.
func stableKeyPartition(e *env) {
	c := e.open()
	scopes := map[string]semel.Scope{}
	moved := 0
	for range 4 {
		ms := e.publish(21)
		ds := c.receive(ms)
		for _, m := range ms {
			i := byBody(ds, m.Body)
			if i < 0 {
				continue
			}
			if s, ok := scopes[m.Key]; ok && s != ds[i].Position.Scope {
				moved++
			}
			scopes[m.Key] = ds[i].Position.Scope
		}
		c.ack(ds...)
	}
	switch declared := c.caps.Traits.Has(semel.StableKeyPartition); {
	case declared && moved > 0:
		e.Errorf("%d messages came in another scope than the one before of their key", moved)
	case !declared:
		e.Logf("StableKeyPartition is not declared; %d messages changed the scope of their key", moved)
	}
}

// ephemeral: a scope ends by itself when all of it is decided, and what comes
// later is another scope.
func ephemeral(e *env) {
	c := e.open()
	if c.owner == nil {
		e.Log("the source has no owned scopes")
		return
	}
	first := c.receive(e.publish(6))
	c.ack(first...)
	c.silent("but everything is acked")
	ended := e.fences.revocations()
	if !c.caps.Ephemeral {
		e.Logf("Ephemeral is not declared; %d scopes ended by themselves", ended)
		return
	}
	if ended == 0 {
		e.Error("Ephemeral is declared, but no scope was revoked when all of it was decided")
	}
	second := c.receive(e.publish(6))
	for _, d := range second {
		if slices.ContainsFunc(first, func(f semel.Delivery) bool { return f.Position.Scope == d.Position.Scope }) {
			e.Errorf("Ephemeral is declared, but scope %v came back after it had ended", d.Position.Scope)
		}
	}
	c.ack(second...)
}

// maxBytes: a body of exactly the declared size arrives whole.
func maxBytes(e *env) {
	c := e.open()
	const most = 32 << 20
	switch limit := c.caps.MaxBytes; {
	case limit == 0:
		e.Log("no largest size is declared")
	case limit > most:
		e.Logf("the declared size of %d bytes is too large to try", limit)
	default:
		m := message(9999, 0)
		m = message(9999, int(limit)-len(m.Body))
		e.src.Publish(e.TB, m)
		c.ack(c.receive([]semel.Message{m})...)
	}
}
