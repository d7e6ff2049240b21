package membroker

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// partition is a log with one owner at a time.
type partition struct {
	name        string
	incarnation int
	log         []*entry
	first, end  int64
	committed   int64 // everything below is settled

	owner   *Receiver
	lease   uint64 // generation of the assignment
	left    semel.Takeover
	cursor  int      // index into log of the next to hand over
	back    []*entry // to be handed over again (unordered partitions)
	pending bool     // promised to owner, who has not been asked yet
	paused  bool     // being revoked
	stopped bool     // by the owner's answer
	refused bool     // by a fault of the owner
}

func (p *partition) scope() semel.Scope {
	return semel.Scope{Name: p.name, Incarnation: strconv.Itoa(p.incarnation)}
}

func (p *partition) add(e entry) {
	e.place(semel.Position{Scope: p.scope(), Offset: semel.Offset{Lo: p.end}})
	p.log = append(p.log, &e)
	p.end++
}

// seek makes offset the next to hand over.
func (p *partition) seek(o semel.Offset) {
	p.back = nil
	p.cursor = p.index(o.Lo)
}

// recall makes everything that is not acked be handed over: without order no
// offset tells what is decided.
func (p *partition) recall() {
	p.cursor, p.back = len(p.log), nil
	for _, e := range p.log {
		if !e.acked {
			p.back = append(p.back, e)
		}
	}
}

func (p *partition) index(offset int64) int {
	i, _ := slices.BinarySearchFunc(p.log, offset, func(e *entry, o int64) int { return cmp.Compare(e.pos.Lo, o) })
	return i
}

// open reports whether r may be handed messages of p.
func (p *partition) open(r *Receiver) bool {
	return p.owner == r && !p.pending && !p.paused && !p.stopped
}

// free takes p from its owner.
func (p *partition) free(left semel.Takeover) {
	if !p.pending { // else nobody was told yet how the one before left
		p.left = left
	}
	p.owner, p.pending, p.paused, p.stopped, p.back = nil, false, false, false, nil
}

func (p *partition) assignment() broker.Assignment {
	return broker.Assignment{
		Scope: p.scope(), First: semel.Offset{Lo: p.first}, End: semel.Offset{Lo: p.end},
		Bounded: true, Takeover: p.left,
	}
}

// commit moves the committed offset over what is settled.
func (p *partition) commit() {
	for i := p.index(p.committed); i < len(p.log) && p.log[i].acked; i++ {
		p.committed = p.log[i].pos.Lo + 1
	}
}

// waiting is how many messages an owner would still be handed.
func (p *partition) waiting(ordered bool) int {
	switch {
	case p.stopped || p.refused:
		return 0
	case p.owner != nil && !p.pending:
		return len(p.log) - p.cursor + len(p.back)
	}
	n := 0
	for _, e := range p.log[p.index(p.committed):] {
		if ordered || !e.acked {
			n++
		}
	}
	return n
}

// nextOf returns the entry to hand over and its place among those that may be
// (partitions without order), or how long until there is one; -1: not until
// something changes.
func (b *Broker) nextOf(p *partition, now time.Time) (e *entry, i int, wait time.Duration) {
	if !b.ordered() {
		p.refill(max(1, b.cfg.Reorder))
		return b.pick(p.back, now)
	}
	if p.cursor == len(p.log) {
		return nil, 0, -1
	}
	if e = p.log[p.cursor]; e.at.After(now) {
		return nil, 0, e.at.Sub(now)
	}
	return e, 0, 0
}

// refill moves the next few messages to those that may be handed over in any
// order.
func (p *partition) refill(window int) {
	if len(p.back) == 0 {
		n := min(len(p.log)-p.cursor, window)
		p.back = append(p.back, p.log[p.cursor:p.cursor+n]...)
		p.cursor += n
	}
}

// took goes on after the entry that nextOf returned.
func (b *Broker) took(p *partition, i int) {
	if b.ordered() {
		p.cursor++
	} else {
		p.back = b.without(p.back, i)
	}
}

// forget drops what is to be handed over and is not in the log any more.
func (p *partition) forget() {
	p.back = slices.DeleteFunc(p.back, func(e *entry) bool { return e.pos.Lo < p.first || e.pos.Lo >= p.end })
}

// pick chooses one of the first that are ready, each as likely, and returns
// its index as well.
func (b *Broker) pick(es []*entry, now time.Time) (chosen *entry, at int, wait time.Duration) {
	wait = -1
	ready := 0
	for i, e := range es {
		if d := e.at.Sub(now); d > 0 {
			if wait < 0 || d < wait {
				wait = d
			}
			continue
		}
		if ready++; ready == 1 || b.rnd.IntN(ready) == 0 {
			chosen, at = e, i
		}
		if ready >= b.cfg.Reorder {
			break
		}
	}
	return chosen, at, wait
}

// without removes an entry that was handed over; with the configured chance it
// stays, to come once more.
func (b *Broker) without(es []*entry, i int) []*entry {
	switch {
	case b.chance(b.cfg.Duplicate):
		return es
	case i == 0:
		return es[1:]
	}
	return slices.Delete(es, i, i+1)
}
