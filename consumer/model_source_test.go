package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// contentKey is what a message is: the same id with another body is another.
type contentKey struct{ id, body string }

// content is a message that was published, and how its handler takes it.
type content struct {
	semel.Message
	plan   string
	times  int // the plan is followed so many times, then the message works; -1: always
	later  bool
	runs   int
	reads  int // decodings that killed
	copies int
	filter bool
	broken bool   // its source says that it makes no sense
	back   string // the letter that it was given back for
}

// entry is one publication.
type entry struct {
	*content
	n      int
	pos    semel.Position
	part   *partition
	left   semel.Takeover // how the holders of its copies went
	widows int            // copies that came back from such
	acked  bool
	handed int // times
}

// source is a plain queue, or partitions with owners.
type source struct {
	*world
	parts  []*partition
	ready  []*entry // of the queue
	all    []*entry
	claims map[uint64]*claim
	tag    uint64
	lose   int // so many settlements are lost
}

type partition struct {
	semel.Scope
	log    []*entry
	cursor int
	owner  *worker
	gen    uint64
	left   semel.Takeover
	paused bool
}

type claim struct {
	e     *entry
	w     *worker
	gen   uint64
	stale bool
}

func newSource(m *world, partitions int) *source {
	s := &source{world: m, claims: map[uint64]*claim{}}
	for i := range partitions {
		s.parts = append(s.parts, &partition{Scope: semel.Scope{Name: "p" + strconv.Itoa(i), Incarnation: "1"}})
	}
	return s
}

func (s *source) publish(c *content) {
	e := &entry{content: c, n: len(s.all)}
	c.copies++
	s.all = append(s.all, e)
	if len(s.parts) == 0 {
		e.pos.Scope.Name = "q" + strconv.Itoa(e.n)
		s.ready = append(s.ready, e)
		return
	}
	p := s.parts[store.Hash("", c.Key)%uint64(len(s.parts))]
	e.pos, e.part = semel.Position{Scope: p.Scope, Offset: semel.Offset{Lo: int64(2 * len(p.log))}}, p // with gaps
	p.log = append(p.log, e)
}

func (p *partition) end() semel.Offset { return semel.Offset{Lo: int64(2 * len(p.log))} }

func (s *source) ownedBy(w *worker) (out []*partition) {
	for _, p := range s.parts {
		if p.owner != nil && p.owner == w && !p.paused {
			out = append(out, p)
		}
	}
	return out
}

// has reports whether there is something to be handed over to a worker.
func (s *source) has(w *worker) bool {
	return len(s.ready) > 0 || slices.ContainsFunc(s.ownedBy(w), func(p *partition) bool { return p.cursor < len(p.log) })
}

// deliver hands over up to n messages.
func (s *source) deliver(w *worker, n int) (ds []semel.Delivery) {
	if len(s.parts) == 0 {
		n = min(n, len(s.ready))
		for _, e := range s.ready[:n] {
			ds = append(ds, s.hand(w, e))
		}
		s.ready = s.ready[n:]
		return ds
	}
	for _, p := range s.ownedBy(w) {
		for p.cursor < len(p.log) && n > 0 && (s.calm || s.chance(70)) {
			ds = append(ds, s.hand(w, p.log[p.cursor]))
			p.cursor++
			n--
		}
	}
	return ds
}

func (s *source) hand(w *worker, e *entry) semel.Delivery {
	s.tag++
	e.handed++
	c := &claim{e: e, w: w}
	d := semel.Delivery{Message: e.Message, Position: e.pos, Lease: semel.Lease{Tag: s.tag}, Returns: e.back}
	if e.broken {
		d.Malformed = errors.New("it makes no sense")
	}
	if e.part != nil {
		c.gen = e.part.gen
		d.Next = semel.Offset{Lo: e.pos.Lo + 2}
	} else if e.widows > 0 {
		d.Takeover, e.widows = e.left, e.widows-1
		s.seen["taken over "+[]string{"", "orphaned", "crashed"}[d.Takeover]]++
	}
	s.claims[s.tag] = c
	return d
}

// gone gives what a worker holds to others.
func (s *source) gone(w *worker, how semel.Takeover) {
	for _, p := range s.parts {
		if p.owner == w {
			s.free(p, how)
		}
	}
	var back []*entry
	for _, tag := range sortedTags(s.claims) {
		if c := s.claims[tag]; c.w == w && !c.stale {
			c.stale = true
			if c.e.part == nil {
				c.e.left, c.e.widows = how, c.e.widows+1
				back = append(back, c.e)
			}
		}
	}
	s.ready = append(back, s.ready...)
}

func sortedTags(m map[uint64]*claim) []uint64 {
	tags := make([]uint64, 0, len(m))
	for t := range m {
		tags = append(tags, t)
	}
	slices.Sort(tags)
	return tags
}

func (s *source) free(p *partition, how semel.Takeover) {
	p.owner, p.left, p.paused = nil, how, false
	p.gen++
}

// assign gives free partitions to a worker.
func (s *source) assign(w *worker, ps []*partition) bool {
	var as []broker.Assignment
	for _, p := range ps {
		as = append(as, broker.Assignment{Scope: p.Scope, End: p.end(), Bounded: true, Takeover: p.left})
		if p.left != semel.Fresh {
			s.seen["taken over "+[]string{"", "orphaned", "crashed"}[p.left]]++
		}
	}
	var from []semel.Offset
	var err error
	w.act(nil, func() { from, err = w.c.scopes.Assigned(context.Background(), as) })
	if err != nil || w.dead {
		return true // they stay free, and how the one before left stays known
	}
	for i, p := range ps {
		if from[i] == broker.Stopped() {
			s.violated("scope %s is stopped", p.Scope)
			continue
		}
		p.owner, p.left, p.cursor, p.paused = w, semel.Fresh, int(from[i].Lo+1)/2, false
	}
	return true
}

func (s *source) unowned() (out []*partition) {
	for _, p := range s.parts {
		if p.owner == nil {
			out = append(out, p)
		}
	}
	return out
}

func (s *source) empty() bool {
	for _, p := range s.parts {
		if p.owner == nil || p.cursor < len(p.log) {
			return false
		}
	}
	return len(s.ready) == 0
}

// conn is a worker's connection.
type conn struct {
	s *source
	w *worker
}

func (c *conn) Bind(broker.Owner) {}

// Fenced gives up what the database says is not this worker's any more.
func (c *conn) Fenced(scopes []semel.Scope) {
	for _, p := range c.s.parts {
		if p.owner == c.w && slices.Contains(scopes, p.Scope) {
			c.s.seen["fenced"]++
			c.s.free(p, semel.Orphaned)
		}
	}
}

func (c *conn) Receive(context.Context, broker.Budget) ([]semel.Delivery, error) {
	return nil, broker.ErrClosed
}

func (c *conn) Close(context.Context) error { return nil }

func (c *conn) Capabilities() broker.Capabilities {
	b := broker.Capabilities{Name: "model"}
	if len(c.s.parts) > 0 {
		b.Traits = semel.Positions | semel.StableKeyPartition
	}
	return b
}

func (c *conn) Settle(_ context.Context, ss []broker.Settlement, out []broker.Settled) error {
	c.s.peek(func() {
		t := c.s.truth()
		for i := range ss {
			out[i] = c.s.settle(t, &ss[i])
		}
	})
	return nil
}

func (s *source) settle(t *truth, st *broker.Settlement) broker.Settled {
	c := s.claims[st.Lease.Tag]
	if s.verbose && c != nil {
		s.say("settle %s: verb %d, stale %v", c.e, st.Verb, c.stale)
	}
	if c == nil {
		s.violated("a settlement of what was never handed over: %+v", st)
		return broker.Stale
	}
	decides := st.Verb == broker.Ack || st.Verb == broker.Reject
	if decides {
		if why := t.unsafe(c.e); why != "" {
			s.violated("acked before it was safe: %s: %s", c.e, why)
		}
	}
	if c.stale || c.e.part != nil && c.gen != c.e.part.gen {
		s.seen["settlement stale"]++
		return broker.Stale
	}
	if c.e.part != nil && !decides {
		return broker.Unsupported
	}
	c.stale = true
	if s.lose > 0 {
		s.lose--
		s.seen["settlement lost"]++
		if c.e.part == nil {
			s.ready = append(s.ready, c.e)
		}
		return broker.Done
	}
	if decides {
		c.e.acked = true
	} else {
		s.ready = append([]*entry{c.e}, s.ready...)
	}
	return broker.Done
}

func (e *entry) String() string { return fmt.Sprintf("%d (%s %s)", e.n, e.ID, e.Body) }

func (e *entry) ref(id string) string {
	return letter.Ref("model", id, store.Print(&e.Message), e.pos.String())
}
