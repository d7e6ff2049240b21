package brokertest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// delivers: every published message comes, and after its ack not again.
func delivers(e *env) {
	c := e.open()
	ms := e.publish(25)
	c.ack(c.receive(ms)...)
	ms = e.publish(5)
	c.ack(c.receive(ms)...)
	c.silent("but everything is acked")
}

// budgetKept: neither bound is exceeded, and a message larger than Bytes
// comes alone instead of never.
func budgetKept(e *env) {
	c := e.open()
	var ms []semel.Message
	for i := range 20 {
		size := 0 // the number of messages is the bound
		if i >= 10 {
			size = 150 // their size is
		}
		if i == 14 {
			size = 5000
		}
		ms = append(ms, message(1000+i, size))
	}
	e.src.Publish(e.TB, ms...)
	b := broker.Budget{Messages: 4, Bytes: 400}
	var all []semel.Delivery
	for want := newWanted(ms); want.missing() > 0; {
		ds := c.one(e.Patience, b)
		if ds == nil {
			e.Fatalf("%d messages did not come with a budget of %+v, among them %.40s", want.missing(), b, want.first())
		}
		c.within(b, ds)
		want.add(c, ds)
		all = append(all, ds...)
	}
	c.ack(all...)
}

func (c *client) within(b broker.Budget, ds []semel.Delivery) {
	c.Helper()
	var size int64
	for _, d := range ds {
		size += int64(len(d.Body))
	}
	if len(ds) > b.Messages {
		c.Errorf("%d messages with a budget of %d", len(ds), b.Messages)
	}
	if size > b.Bytes && len(ds) > 1 {
		c.Errorf("%d bytes in %d messages with a budget of %d", size, len(ds), b.Bytes)
	}
}

// cancelReturns: Receive on an empty source ends with its context.
func cancelReturns(e *env) {
	c := e.open()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := c.r.Receive(ctx, wide)
		ended <- err
	}()
	cancel()
	late, stop := context.WithTimeout(context.Background(), e.Patience)
	defer stop()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			e.Errorf("Receive returned %v, want context.Canceled", err)
		}
	case <-late.Done():
		e.Fatalf("Receive did not return within %v of the end of its context", e.Patience)
	}
	if _, err := c.r.Receive(ctx, wide); !errors.Is(err, context.Canceled) {
		e.Errorf("Receive with a context that had ended returned %v, want context.Canceled", err)
	}
	c.ack(c.receive(e.publish(3))...)
}

// receiveWhileSettling: the two run at the same time.
func receiveWhileSettling(e *env) {
	c := e.open()
	var ms []semel.Message
	for range 20 {
		ms = append(ms, e.publish(10)...)
	}
	handed := make(chan []semel.Delivery, 4)
	var settling sync.WaitGroup
	settling.Go(func() {
		for ds := range handed {
			c.ack(ds...)
		}
	})
	want := newWanted(ms)
	for want.missing() > 0 {
		ds := c.one(e.Patience, broker.Budget{Messages: 7, Bytes: 1 << 20})
		if ds == nil {
			e.Errorf("%d messages did not come, among them %s", want.missing(), want.first())
			break
		}
		want.add(c, ds)
		handed <- ds
	}
	close(handed)
	settling.Wait()
	c.silent("but everything is acked")
}

// bodiesLast: a body is what it was until its delivery is settled.
func bodiesLast(e *env) {
	c := e.open()
	ms := e.publish(60)
	want := newWanted(ms)
	var bodies [][]byte
	for want.missing() > 0 {
		ds := c.one(e.Patience, broker.Budget{Messages: 9, Bytes: 1 << 20})
		if ds == nil {
			e.Fatalf("%d messages did not come", want.missing())
		}
		want.add(c, ds)
		for _, d := range ds {
			bodies = append(bodies, bytes.Clone(d.Body))
		}
	}
	for i, d := range want.got {
		if !bytes.Equal(d.Body, bodies[i]) {
			e.Errorf("the body of %v changed before it was settled: %.60q, was %.60q", d.Position, d.Body, bodies[i])
		}
	}
	c.ack(want.got...)
}

// settleTwice: the second settlement is stale, whatever it asks.
func settleTwice(e *env) {
	c := e.open()
	ds := c.receive(e.publish(4))
	c.ack(ds...)
	c.expect(broker.Stale, c.settle(broker.Ack, ds...))
	c.expect(broker.Stale, c.settle(broker.Reject, ds...))
	if c.caps.Release {
		c.expect(broker.Stale, c.settle(broker.Release, ds...))
	}
	c.silent("but it is acked")
}

// unknownLease: leases of nobody settle nothing.
func unknownLease(e *env) {
	c := e.open()
	ms := e.publish(3)
	ds := c.receive(ms)
	var s []broker.Settlement
	for _, d := range ds {
		older, other := d.Lease, d.Lease
		older.Generation--
		other.Tag += 1 << 40
		s = append(s, broker.Settlement{Lease: older}, broker.Settlement{Lease: other})
	}
	c.expect(broker.Stale, c.settleAs(s))
	c.ack(ds...)
}

// closeTwice: the second Close changes nothing, and nothing is received after.
func closeTwice(e *env) {
	c := e.open()
	ds := c.receive(e.publish(2))
	c.ack(ds...)
	c.close()
	ctx, cancel := context.WithTimeout(context.Background(), e.Patience)
	defer cancel()
	if err := c.r.Close(ctx); err != nil {
		e.Errorf("the second Close: %v", err)
	}
	if _, err := c.r.Receive(ctx, wide); !errors.Is(err, broker.ErrClosed) {
		e.Errorf("Receive after Close: %v, want broker.ErrClosed", err)
	}
}

// closeGivesBack: what was not settled at Close comes again, elsewhere.
func closeGivesBack(e *env) { comesAgain(e, (*client).close) }

// killGivesBack: the same after the death of the process.
func killGivesBack(e *env) { comesAgain(e, (*client).kill) }

func comesAgain(e *env, end func(*client)) {
	a := e.open()
	ms := e.publish(12)
	acked, open := half(a.receive(ms))
	a.ack(acked...)
	if a.caps.Release {
		a.expect(broker.Done, a.settle(broker.Release, open[0]))
	}
	end(a)
	b := e.open()
	got := b.receiveAfter(a, open, acked)
	b.ack(got...)
	b.silent("but everything is acked")
}

// receiveAfter gets what a held when it ended. What it had acked may come as
// well if the source does not promise otherwise.
func (c *client) receiveAfter(a *client, open, acked []semel.Delivery) []semel.Delivery {
	c.Helper()
	if a.confirms() {
		return c.receive(messagesOf(open))
	}
	c.Log("Confirmed is not declared: acked messages may come again")
	return c.receive(messagesOf(open), messagesOf(acked)...)
}

// confirms: what was acked with the answer Done does not come again, because
// the source knows or because the owner says where to start.
func (c *client) confirms() bool { return c.caps.Confirmed || c.owner != nil }

// twoReceivers: two of them together get everything.
func twoReceivers(e *env) {
	a, b := e.open(), e.open()
	ms := e.publish(40)
	got := e.gather(ms, a, b)
	for _, c := range []*client{a, b} {
		c.ack(got[c]...)
	}
	e.Logf("one was handed %d, the other %d", len(got[a]), len(got[b]))
	a.silent("but everything is acked")
}

// heldByOne: what one holds is not handed to another.
func heldByOne(e *env) {
	a := e.open()
	ds := a.receive(e.publish(8))
	b := e.open()
	b.silent("but another receiver holds it")
	a.ack(ds...)
	b.silent("but everything is acked")
}

// depthReachesZero: the source is empty only when it is, and then says so.
func depthReachesZero(e *env) {
	c := e.open()
	m, ok := c.r.(broker.Measurer)
	if !ok {
		e.Log("the receiver is no broker.Measurer: a run cannot end by itself")
		return
	}
	ms := e.publish(10)
	c.holds(m, "after Publish")
	ds := c.receive(ms)
	c.holds(m, "while all is handed over and nothing settled")
	first, rest := half(ds)
	c.ack(first...)
	c.holds(m, "while half is settled")
	c.ack(rest...)
	for range 100 {
		d := c.depth(m)
		if d.Empty() {
			return
		}
		if min(d.Waiting, d.Claimed, d.Settling) < 0 {
			e.Logf("the depth is not known: %+v", d)
			return
		}
		// Some sources finish things while they receive.
		if got := c.one(e.Patience/100, wide); got != nil {
			e.Fatalf("%d messages came, but everything is acked", len(got))
		}
	}
	e.Errorf("the depth is %+v although everything is acked", c.depth(m))
}

func (c *client) depth(m broker.Measurer) broker.Depth {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	d, err := m.Depth(ctx)
	if err != nil {
		c.Fatalf("Depth: %v", err)
	}
	return d
}

func (c *client) holds(m broker.Measurer, when string) {
	c.Helper()
	if d := c.depth(m); d.Empty() {
		c.Errorf("the depth is zero %s", when)
	}
}

// byBody finds deliveries of the same message.
func byBody(ds []semel.Delivery, body []byte) int {
	return slices.IndexFunc(ds, func(d semel.Delivery) bool { return bytes.Equal(d.Body, body) })
}
