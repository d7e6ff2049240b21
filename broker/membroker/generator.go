package membroker

import (
	"context"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

var (
	_ broker.Receiver = (*Generator)(nil)
	_ broker.Owned    = (*Generator)(nil)
	_ broker.Measurer = (*Generator)(nil)
)

// Generator is a source of one partition whose messages are made when they are
// asked for. In steady state it allocates nothing: it is the null source of
// benchmarks.
type Generator struct {
	total int
	fill  func(i int, m *semel.Message)
	owner broker.Owner
	scope semel.Scope

	mu      sync.Mutex
	asked   bool
	stopped bool
	closed  bool
	done    chan struct{} // closed by Close
	next    int
	open    int // deliveries that are not settled
	slabs   []*slab
	free    []*slab
}

// slab holds the deliveries of one Receive.
type slab struct {
	ds      []semel.Delivery
	settled []bool
	left    int
	index   int
	round   uint64 // grows with every use, so that old leases are stale
}

// spare is how many settled slabs rest before the first is used again: the
// caller may look at deliveries for a little while after it settled them.
const spare = 4

// NewGenerator returns a source of total messages. fill writes message i,
// counted from 0, into m, which holds what an earlier call left there, so that
// buffers can be used again: set every field you use. It is called from
// Receive, and must give the same message for the same i.
func NewGenerator(total int, fill func(i int, m *semel.Message)) *Generator {
	return &Generator{total: total, fill: fill, scope: semel.Scope{Name: "generator", Incarnation: "1"}, done: make(chan struct{})}
}

// Bind implements broker.Owned.
func (g *Generator) Bind(o broker.Owner) { g.owner = o }

// Capabilities implements broker.Receiver.
func (g *Generator) Capabilities() broker.Capabilities {
	return broker.Capabilities{
		Name: "generator", Traits: semel.Positions | semel.StableKeyPartition,
		Confirmed: true, FencesStale: true, Horizon: 1,
	}
}

// Depth implements broker.Measurer.
func (g *Generator) Depth(context.Context) (broker.Depth, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := broker.Depth{Claimed: int64(g.open)}
	if !g.stopped {
		d.Waiting = int64(g.total - g.next)
	}
	return d, nil
}

// Receive implements broker.Receiver. When everything was handed over it waits
// for the end.
func (g *Generator) Receive(ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
	if err := g.assign(ctx); err != nil {
		return nil, err
	}
	if ds := g.take(b); len(ds) > 0 {
		return ds, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.done:
		return nil, broker.ErrClosed
	}
}

func (g *Generator) assign(ctx context.Context) error {
	if err := ctx.Err(); err != nil || g.asked || g.owner == nil {
		return err
	}
	at, err := g.owner.Assigned(ctx, []broker.Assignment{{
		Scope: g.scope, End: semel.Offset{Lo: int64(g.total)}, Bounded: true,
	}})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = true
	if g.stopped = at[0] == broker.Stopped(); !g.stopped {
		g.next = int(at[0].Lo)
	}
	return nil
}

func (g *Generator) take(b broker.Budget) []semel.Delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped || g.closed {
		return nil
	}
	n := min(max(1, b.Messages), g.total-g.next)
	if n <= 0 {
		return nil
	}
	id, s := g.slab(n)
	var size int64
	for i := range n {
		d := &s.ds[i]
		g.fill(g.next, &d.Message)
		if size += int64(len(d.Body)); i > 0 && size > b.Bytes {
			n = i
			break
		}
		d.Position.Scope, d.Position.Lo = g.scope, int64(g.next)
		d.Next.Lo = int64(g.next + 1)
		d.Lease = semel.Lease{Generation: s.round, Tag: uint64(id)<<32 | uint64(i)}
		g.next++
	}
	s.left, s.settled = n, s.settled[:n]
	g.open += n
	return s.ds[:n:n]
}

// slab returns one with room for n deliveries, and its index.
func (g *Generator) slab(n int) (int, *slab) {
	var s *slab
	if len(g.free) > spare {
		s = g.free[0]
		copy(g.free, g.free[1:])
		g.free = g.free[:len(g.free)-1]
	} else {
		s = &slab{index: len(g.slabs)}
		g.slabs = append(g.slabs, s)
	}
	if cap(s.ds) < n {
		s.ds, s.settled = make([]semel.Delivery, n), make([]bool, n)
	}
	s.ds, s.settled = s.ds[:n], s.settled[:n]
	clear(s.settled)
	s.round++
	return s.index, s
}

// Settle implements broker.Receiver. Only acks have an effect.
func (g *Generator) Settle(ctx context.Context, ss []broker.Settlement, out []broker.Settled) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range ss {
		out[i] = g.settle(&ss[i])
	}
	return nil
}

func (g *Generator) settle(s *broker.Settlement) broker.Settled {
	slabAt, i := int(s.Lease.Tag>>32), int(s.Lease.Tag&(1<<32-1))
	if g.closed || slabAt >= len(g.slabs) {
		return broker.Stale
	}
	sl := g.slabs[slabAt]
	switch {
	case s.Lease.Generation != sl.round || i >= len(sl.settled) || sl.settled[i]:
		return broker.Stale
	case !decides(s.Verb):
		return broker.Unsupported
	}
	sl.settled[i] = true
	g.open--
	if sl.left--; sl.left == 0 {
		g.free = append(g.free, sl)
	}
	return broker.Done
}

// Close implements broker.Receiver.
func (g *Generator) Close(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.done)
	}
	return nil
}
