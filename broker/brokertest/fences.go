package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// fences stands for the pipeline's table of positions. It outlives receivers,
// and notes what no source may do.
type fences struct {
	mu     sync.Mutex
	scopes map[semel.Scope]*fence
	wrong  []string
}

// fence is what is known of one scope.
type fence struct {
	next    semel.Offset
	started bool
	holder  *client
	ended   int // how often it was revoked
	queue   []step
}

// step is a delivery of the present assignment.
type step struct {
	at, next semel.Offset
	decided  bool
}

func newFences() *fences { return &fences{scopes: map[semel.Scope]*fence{}} }

func (f *fences) complain(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); len(f.wrong) < 20 {
		f.wrong = append(f.wrong, s)
	}
}

// report fails the test if something was wrong.
func (f *fences) report(tb testing.TB) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.wrong {
		tb.Error(w)
	}
	f.wrong = nil
}

func (f *fences) of(s semel.Scope) *fence {
	fe := f.scopes[s]
	if fe == nil {
		fe = &fence{}
		f.scopes[s] = fe
	}
	return fe
}

// assigned gives a scope to c and says where to start.
func (f *fences) assigned(c *client, a broker.Assignment) semel.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	fe := f.of(a.Scope)
	if fe.holder != nil && fe.holder != c {
		f.complain("scope %v was assigned to %s while %s has it", a.Scope, c.name, fe.holder.name)
	}
	if !fe.started {
		fe.next, fe.started = a.First, true
	}
	if a.Bounded && fe.next.Compare(a.End) > 0 {
		f.complain("scope %v ends at %v, but %v was handed over before", a.Scope, a.End, fe.next)
	}
	fe.holder, fe.queue = c, nil
	return fe.next
}

// left takes scopes from c.
func (f *fences) left(c *client, ss []semel.Scope, how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range ss {
		fe := f.of(s)
		if fe.holder != c {
			f.complain("scope %v was %s by %s, which does not have it", s, how, c.name)
			continue
		}
		fe.holder = nil
		if how == "revoked" {
			fe.ended++
		}
	}
}

// vanished is called when c is dead: it holds nothing.
func (f *fences) vanished(c *client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fe := range f.scopes {
		if fe.holder == c {
			fe.holder = nil
		}
	}
}

// handed notes deliveries and checks them against what the source claims.
func (f *fences) handed(c *client, ds []semel.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range ds {
		d := &ds[i]
		fe := f.of(d.Position.Scope)
		if c.owner != nil && fe.holder != c {
			f.complain("%s was handed %v without having the scope", c.name, d.Position)
		}
		if c.caps.Traits.Has(semel.InOrderPerScope) {
			f.ordered(fe, d)
		}
		fe.enter(d)
	}
}

func (f *fences) ordered(fe *fence, d *semel.Delivery) {
	if d.Next.Compare(d.Position.Offset) <= 0 {
		f.complain("%v goes on at %v, which is not after it", d.Position, d.Next)
	}
	if i := fe.find(d.Position.Offset); i >= 0 {
		return // released before
	}
	if n := len(fe.queue); n > 0 && d.Position.Compare(fe.queue[n-1].next) < 0 {
		f.complain("%v was handed over after the scope had gone on to %v", d.Position, fe.queue[n-1].next)
	}
	if d.Position.Compare(fe.next) < 0 {
		f.complain("%v was handed over, but the owner had said to start at %v", d.Position, fe.next)
	}
}

func (fe *fence) find(at semel.Offset) int {
	for i := len(fe.queue) - 1; i >= 0; i-- {
		if fe.queue[i].at == at {
			return i
		}
	}
	return -1
}

func (fe *fence) enter(d *semel.Delivery) {
	if fe.find(d.Position.Offset) < 0 {
		fe.queue = append(fe.queue, step{at: d.Position.Offset, next: d.Next})
	}
}

// decide moves the position over the first deliveries of the assignment that
// are all decided.
func (f *fences) decide(ds ...semel.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range ds {
		fe := f.of(ds[i].Position.Scope)
		if at := fe.find(ds[i].Position.Offset); at >= 0 {
			fe.queue[at].decided = true
		}
		for len(fe.queue) > 1 && fe.queue[0].decided {
			fe.next, fe.queue = fe.queue[0].next, fe.queue[1:]
		}
		// The last one stays, to compare the next one with.
		if len(fe.queue) == 1 && fe.queue[0].decided {
			fe.next = fe.queue[0].next
		}
	}
}

// revocations counts scopes that ended in good order.
func (f *fences) revocations() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fe := range f.scopes {
		n += fe.ended
	}
	return n
}

// owner is one receiver's side of it.
type owner struct{ c *client }

func (o owner) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	at := make([]semel.Offset, len(as))
	for i, a := range as {
		at[i] = o.c.fences.assigned(o.c, a)
	}
	return at, nil
}

func (o owner) Revoked(_ context.Context, ss []semel.Scope) error {
	o.c.fences.left(o.c, ss, "revoked")
	return nil
}

func (o owner) Lost(ss []semel.Scope) { o.c.fences.left(o.c, ss, "lost") }
