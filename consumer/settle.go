package consumer

import (
	"context"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
)

// settlement is what a batch tells the source, and what it frees in memory.
type settlement struct {
	list    []broker.Settlement
	n       int
	bytes   int64
	decided bool // by a commit; not merely given up
}

// pass ends items: their scopes may be left, and the source is told. It copies
// what it needs; the items may be reused.
func (c *Consumer[Tx]) pass(items []item) {
	s := settlement{list: c.lists.get(len(items)), n: len(items)}
	for i := range items {
		it := &items[i]
		s.bytes += it.bytes
		if it.verdict != semel.Dropped {
			s.list = append(s.list, c.settlementOf(it))
			s.decided = s.decided || it.verdict != semel.Released
		}
	}
	c.scopes.leave(items)
	c.out <- s
}

func (c *Consumer[Tx]) settlementOf(it *item) broker.Settlement {
	s := broker.Settlement{Lease: it.d.Lease}
	switch {
	case it.verdict == semel.Released:
		s.Verb = broker.Release
	case it.reject:
		s.Verb, s.Letter, s.Why = broker.Reject, it.ref, "it has a dead letter"
		if err := it.reason().err; err != nil {
			s.Why, _, _ = strings.Cut(err.Error(), "\n")
		}
	}
	return s
}

// settler tells the source, one batch after the other, while the next is
// being committed.
func (c *Consumer[Tx]) settler() {
	var out []broker.Settled
	for s := range c.out {
		out = c.settle(s, out)
	}
}

// settle tells the source of one batch; out is scratch space.
func (c *Consumer[Tx]) settle(s settlement, out []broker.Settled) []broker.Settled {
	if s.decided {
		fault.Hit(fault.Settling)
	}
	if len(s.list) > 0 {
		out = append(out[:0], make([]broker.Settled, len(s.list))...)
		c.tell(s.list, out)
	}
	c.lists.put(s.list)
	c.gate.free(s.n, s.bytes)
	return out
}

func (c *Consumer[Tx]) tell(list []broker.Settlement, out []broker.Settled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.soft), 30*time.Second)
	defer cancel()
	err := c.src.Settle(ctx, list, out)
	unsettled := 0
	for _, o := range out {
		if o == broker.Unknown {
			unsettled++
		}
	}
	if err != nil {
		unsettled = len(list)
	}
	if f := c.cfg.Observer.Unsettled; f != nil && unsettled > 0 {
		f(unsettled, err)
	}
}
