package filebroker

import (
	"slices"
	"sort"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// state of an item.
type state uint8

const (
	handed   state = iota // the pipeline has it
	settling              // a settlement is being carried out
	stuck                 // its settlement failed and is tried again
	closed                // settled, or handed over again under another lease
)

// item is one message that was handed over.
type item struct {
	file        *file
	start, next int64
	raw, body   []byte // raw: the record as it stands in its file, if it was kept
	bad         error
	returns     string
	whole       bool // the rest of a file, or all of it: rejecting moves the file

	state state
	asked *broker.Settlement // while stuck
}

// batch is what one Receive returned. Its items have consecutive tags.
type batch struct {
	base  uint64
	items []item
	open  int
}

// ledger finds items by their lease, without an entry per message.
type ledger struct {
	generation, tag uint64
	batches         []*batch
}

// enter gives leases to items and their deliveries.
func (l *ledger) enter(items []item, ds []semel.Delivery) {
	b := &batch{base: l.tag + 1, items: items, open: len(items)}
	for i := range ds {
		l.tag++
		ds[i].Lease = semel.Lease{Generation: l.generation, Tag: l.tag}
	}
	l.batches = append(l.batches, b)
}

func (l *ledger) find(lease semel.Lease) (*batch, *item) {
	if lease.Generation != l.generation {
		return nil, nil
	}
	i := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].base > lease.Tag }) - 1
	if i < 0 || lease.Tag-l.batches[i].base >= uint64(len(l.batches[i].items)) {
		return nil, nil
	}
	b := l.batches[i]
	return b, &b.items[lease.Tag-b.base]
}

// close ends an item and forgets its batch after the last one.
func (l *ledger) close(b *batch, it *item) {
	if it.state == closed {
		return
	}
	it.state = closed
	it.raw, it.body = nil, nil
	if b.open--; b.open == 0 {
		if i := slices.Index(l.batches, b); i >= 0 {
			l.batches = slices.Delete(l.batches, i, i+1)
		}
	}
}

// reset makes all leases stale.
func (l *ledger) reset() {
	l.generation++
	l.batches = nil
}

// each calls fn for every item that is not closed.
func (l *ledger) each(fn func(*batch, *item)) {
	for _, b := range slices.Clone(l.batches) {
		for i := range b.items {
			if b.items[i].state != closed {
				fn(b, &b.items[i])
			}
		}
	}
}

// basket collects what one Receive returns.
type basket struct {
	budget broker.Budget
	bytes  int64
	items  []item
	ds     []semel.Delivery
}

// fits reports whether a message of size may be added.
func (b *basket) fits(size int64) bool {
	switch {
	case len(b.ds) == 0:
		return true
	case len(b.ds) >= b.budget.Messages:
		return false
	}
	return b.budget.Bytes <= 0 || b.bytes+size <= b.budget.Bytes
}

func (b *basket) full() bool { return !b.fits(0) }

func (b *basket) add(it item) {
	it.state = handed
	b.bytes += int64(len(it.body))
	b.items = append(b.items, it)
	d := semel.Delivery{
		Message:   semel.Message{Body: it.body},
		Position:  semel.Position{Scope: it.file.scope, Offset: semel.Offset{Lo: it.start}},
		Next:      semel.Offset{Lo: it.next},
		Returns:   it.returns,
		Malformed: it.bad,
	}
	if it.file.lines == nil {
		d.Takeover = it.file.claim.takeover
	}
	b.ds = append(b.ds, d)
}

// slab cuts small bodies from one allocation.
type slab struct{ free []byte }

const slabSize = 256 << 10

func (s *slab) take(n int) []byte {
	if n > slabSize/4 {
		return make([]byte, n)
	}
	if len(s.free) < n || s.free == nil {
		s.free = make([]byte, slabSize)
	}
	b := s.free[:n:n]
	s.free = s.free[n:]
	return b
}
