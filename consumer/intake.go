package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
)

// intake receives, decodes and hands on until ctx ends. Its error is fatal.
func (c *Consumer[Tx]) intake(ctx context.Context, queues []chan []item) error {
	pause := time.Duration(0)
	for {
		budget, ok := c.gate.room(ctx)
		if !ok {
			return nil
		}
		ds, err := c.src.Receive(ctx, budget)
		if ctx.Err() != nil && len(ds) == 0 {
			return nil
		}
		if err != nil {
			if class, marked := semel.ClassOf(err); marked && class == semel.ClassFault || errors.Is(err, broker.ErrClosed) {
				return &semel.Error{Stage: "receive", Err: err}
			}
			c.paused(err)
			pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
			wait(ctx, pause)
			c.paused(nil)
			continue
		}
		pause = 0
		c.accept(ds, queues)
	}
}

// accept decodes deliveries and hands them to the committers. What may have
// killed its last holder is decoded later, by read: decoding may be what kills.
func (c *Consumer[Tx]) accept(ds []semel.Delivery, queues []chan []item) {
	var bytes int64
	for i := range ds {
		bytes += int64(len(ds[i].Body))
	}
	c.gate.take(len(ds), bytes)
	c.mu.Lock()
	c.account.Received += int64(len(ds))
	c.mu.Unlock()
	fault.Hit(fault.Received)
	items := c.slabs.get(len(ds))
	for i := range ds {
		items = append(items, item{d: &ds[i], bytes: int64(len(ds[i].Body)), unread: ds[i].Takeover != semel.Fresh})
	}
	if c.scoped {
		c.scopes.enter(items)
	}
	c.read(items, false)
	fault.Hit(fault.Decoded)
	c.dispatch(items, queues)
}

// read decodes the items that are unread, or those that are not known to be.
// A delivery that is set aside unread has no id: what its source says of it is
// not what the decoder would, and its letter has to show that it was not read.
func (c *Consumer[Tx]) read(items []item, unread bool) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for i := range items {
		switch it := &items[i]; {
		case it.unread != unread:
		case it.fate == run:
			it.unread = false
			c.decode(it)
		case it.unread && it.letter == nil:
			it.d.ID, it.d.Key = "", ""
		}
	}
}

// readLate decodes what is still unread, mostly nothing: then a committer must
// not wait for the decoder, which is busy with what comes next.
func (c *Consumer[Tx]) readLate(items []item) {
	for i := range items {
		if items[i].unread {
			c.read(items, true)
			return
		}
	}
}

// decode finds out what the delivery is. What cannot be decoded goes on, to
// become a letter in its place.
func (c *Consumer[Tx]) decode(it *item) {
	err := it.d.Malformed
	if err == nil {
		err = c.decoded(it.d)
	}
	if err != nil {
		if !errors.Is(err, semel.ErrFiltered) && !c.identified(it.d) {
			it.d.ID, it.d.Key = "", ""
		}
		it.decodeFailed(err)
	}
	if it.letter != nil {
		it.readAgain()
	}
}

func (c *Consumer[Tx]) decoded(d *semel.Delivery) (err error) {
	defer recovered(&err)
	if err := c.cfg.Decoder.Decode(d); err != nil {
		return err
	}
	if !c.identified(d) {
		return semel.Invalidf("the id has %d bytes, the key %d: an id has 1 to %d, a key at most that", len(d.ID), len(d.Key), semel.MaxIDBytes)
	}
	return nil
}

func (c *Consumer[Tx]) identified(d *semel.Delivery) bool {
	return len(d.ID) > 0 && len(d.ID) <= semel.MaxIDBytes && len(d.Key) <= semel.MaxIDBytes
}

// dispatch spreads items over the committers: a scope, or else a key, always
// goes to the same one.
func (c *Consumer[Tx]) dispatch(items []item, queues []chan []item) {
	if len(queues) == 1 {
		queues[0] <- items
		return
	}
	parts := make([][]item, len(queues))
	for i := range items {
		it := &items[i]
		by := it.d.Key
		if it.scope != nil {
			by = it.scope.Name
		} else if by == "" {
			by = it.d.ID
		}
		q := store.Hash("", by) % uint64(len(queues))
		parts[q] = append(parts[q], *it)
	}
	c.slabs.put(items)
	for q, part := range parts {
		if len(part) > 0 {
			queues[q] <- part
		}
	}
}

// gate bounds what is in memory: received and not yet settled.
type gate struct {
	mu       sync.Mutex
	n        int
	bytes    int64
	maxN     int
	maxBytes int64
	freed    chan struct{} // closed and replaced when something is freed
}

func newGate(n int, bytes int64) *gate {
	return &gate{maxN: n, maxBytes: bytes, freed: make(chan struct{})}
}

// room waits until half of the bounds is free and returns that as a budget.
func (g *gate) room(ctx context.Context) (broker.Budget, bool) {
	for {
		g.mu.Lock()
		b := broker.Budget{Messages: min(g.maxN-g.n, (g.maxN+1)/2), Bytes: min(g.maxBytes-g.bytes, g.maxBytes/2)}
		freed := g.freed
		g.mu.Unlock()
		if ctx.Err() != nil {
			return b, false
		}
		if b.Messages > 0 && b.Bytes > 0 {
			return b, true
		}
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
}

func (g *gate) take(n int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
	g.bytes += bytes
}

func (g *gate) free(n int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n -= n
	g.bytes -= bytes
	close(g.freed)
	g.freed = make(chan struct{})
}

func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n == 0
}

// slabs keeps slices for reuse.
type slabs[T any] struct{ pool sync.Pool }

func (s *slabs[T]) get(n int) []T {
	if p, ok := s.pool.Get().(*[]T); ok && cap(*p) >= n {
		return (*p)[:0]
	}
	return make([]T, 0, n)
}

func (s *slabs[T]) put(slab []T) {
	clear(slab)
	s.pool.Put(&slab)
}
