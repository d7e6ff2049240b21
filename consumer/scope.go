package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

// scope is one assignment of a scope to this process. A new assignment is a
// new value, so items of an earlier one can be told by their pointer.
type scope struct {
	semel.Scope
	epoch int64
	// next is the first offset not decided; only the committer moves it.
	next semel.Offset
	// suspect is what is held against the scope; only the committer uses it.
	suspect *store.Suspect

	// Guarded by scopes.mu:
	inflight int  // handed over and not decided
	gone     bool // nothing of it may be committed any more
	leaving  bool // what is not in a transaction is given up
	doubted  bool // it has a suspect: what is received is not decoded at once
}

// scopes is the pipeline's side of ownership; it implements broker.Owner.
type scopes[Tx any] struct {
	c       *Consumer[Tx]
	mu      sync.Mutex
	owned   map[semel.Scope]*scope
	stopped map[semel.Scope]bool // refused by bounds, and not taken from us since
	settled chan struct{}        // closed and replaced when some scope has nothing in flight
}

func newScopes[Tx any](c *Consumer[Tx]) *scopes[Tx] {
	return &scopes[Tx]{c: c, owned: map[semel.Scope]*scope{}, stopped: map[semel.Scope]bool{}, settled: make(chan struct{})}
}

// Assigned bumps the epochs and says where to read from.
func (s *scopes[Tx]) Assigned(ctx context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	starts, err := s.starts(as)
	if err != nil {
		return nil, err
	}
	fences, err := s.c.store.Assign(ctx, s.c.cfg.Name, s.c.cfg.Worker, starts)
	if err != nil {
		return nil, s.failed("", err)
	}
	from := make([]semel.Offset, len(as))
	ours := make([]*scope, 0, len(as))
	for i, f := range fences {
		if err := s.bounds(as[i], f); err != nil {
			from[i] = broker.Stopped()
			s.halt(as[i].Scope, err)
			continue
		}
		sc := &scope{Scope: as[i].Scope, epoch: f.Epoch, next: f.Next}
		if err := s.suspect(ctx, sc, as[i], f); err != nil {
			return nil, err
		}
		from[i] = f.Next
		sc.doubted = sc.suspect != nil
		ours = append(ours, sc)
	}
	s.own(ours)
	return from, nil
}

// own begins assignments, all or none of those that were asked for at once.
func (s *scopes[Tx]) own(scs []*scope) {
	s.mu.Lock()
	for _, sc := range scs {
		s.owned[sc.Scope] = sc
		delete(s.stopped, sc.Scope)
	}
	s.mu.Unlock()
	for _, sc := range scs {
		s.report(sc.Scope, "assigned", nil)
	}
	s.c.running.Do(func() { s.c.phase(semel.Running) })
}

// halt tells that a scope is ours and nothing of it is read.
func (s *scopes[Tx]) halt(name semel.Scope, why error) {
	s.mu.Lock()
	s.stopped[name] = true
	s.mu.Unlock()
	s.report(name, "stopped", why)
}

// free reports whether the scope was a stopped one, which is over now.
func (s *scopes[Tx]) free(name semel.Scope) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.stopped[name]
	delete(s.stopped, name)
	return was
}

// starts says where a scope without a row would begin.
func (s *scopes[Tx]) starts(as []broker.Assignment) ([]store.Start, error) {
	starts := make([]store.Start, len(as))
	ephemeral := s.c.src.Capabilities().Ephemeral
	for i, a := range as {
		starts[i] = store.Start{Scope: a.Scope, At: a.First}
		if !ephemeral {
			starts[i].Create = store.CreateFirst
		}
		switch {
		case s.c.cfg.Start == StartRefuse && !ephemeral:
			starts[i].Create = store.CreateNever
		case s.c.cfg.Start == StartEnd && a.Bounded:
			starts[i].At = a.End
		case s.c.cfg.Start == StartEnd && !ephemeral:
			return nil, semel.Fault(&semel.Error{Stage: "assign", Message: a.Scope.String(), Err: errors.New("the source does not say where the scope ends"), Hint: "start at the first message instead"})
		}
	}
	return starts, nil
}

// bounds refuses a position that cannot be true. Going on would skip messages
// silently, or handle a different stream under an old position.
func (s *scopes[Tx]) bounds(a broker.Assignment, f store.Fence) error {
	switch {
	case s.c.src.Capabilities().Ephemeral:
		return nil
	case f.Epoch == 0 && f.Other != "":
		return fmt.Errorf("it is incarnation %s now, and %s was consumed before: it was deleted and created again", a.Scope.Incarnation, f.Other)
	case f.Epoch == 0:
		return errors.New("no position is recorded and none is configured: say whether to start at the first message or at the end")
	case a.Bounded && f.Next.Compare(a.End) > 0:
		return fmt.Errorf("the recorded position %v is beyond the end %v: messages were lost at the source", f.Next, a.End)
	case a.Bounded && f.Next.Compare(a.First) < 0:
		return fmt.Errorf("the source begins at %v, and everything from %v on is not consumed: its retention has passed them", a.First, f.Next)
	}
	return nil
}

// suspect looks up what is held against a scope, and adds the present
// takeover to it.
func (s *scopes[Tx]) suspect(ctx context.Context, sc *scope, a broker.Assignment, f store.Fence) error {
	if f.Fresh {
		return nil
	}
	unit := sc.String()
	_, err := s.c.store.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) error {
		known, err := s.c.store.Suspects(ctx, tx, s.c.cfg.Name, []string{unit}, nil)
		if err != nil {
			return err
		}
		sus := store.Suspect{Unit: unit}
		if len(known) > 0 {
			sus = known[0]
			sc.suspect = &sus
		}
		if f.Clean {
			return nil
		}
		sus = takeover(sus, len(known) > 0, a.Takeover == semel.Crashed, s.c.cfg.MaxBatch)
		sc.suspect = &sus
		return s.c.store.Suspect(ctx, tx, s.c.cfg.Name, []store.Suspect{sus})
	})
	if err != nil {
		return s.failed(unit, err)
	}
	return nil
}

// failed marks an error that asking again cannot mend.
func (s *scopes[Tx]) failed(scope string, err error) error {
	e := &semel.Error{Stage: "assign", Message: scope, Err: err}
	if s.c.store.Classify(err) == semel.ClassFault {
		return semel.Fault(e)
	}
	return e
}

// Revoked gives up what is not in a transaction, waits for what is, and
// leaves the fence.
func (s *scopes[Tx]) Revoked(ctx context.Context, scs []semel.Scope) error {
	var left []store.Fence
	for _, name := range scs {
		if s.free(name) {
			s.report(name, "left", nil)
		}
		sc := s.find(name)
		if sc == nil {
			continue
		}
		if err := s.drain(ctx, sc); err != nil {
			return err
		}
		left = append(left, store.Fence{Scope: sc.Scope, Epoch: sc.epoch})
		s.report(name, "left", nil)
	}
	if len(left) == 0 {
		return nil
	}
	return s.c.store.Leave(ctx, s.c.cfg.Name, left)
}

func (s *scopes[Tx]) drain(ctx context.Context, sc *scope) error {
	s.mu.Lock()
	sc.leaving = true
	for sc.inflight > 0 && !sc.gone {
		wait := s.settled
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			s.lose(sc, ctx.Err())
			return ctx.Err()
		}
		s.mu.Lock()
	}
	s.forget(sc)
	s.mu.Unlock()
	return nil
}

// Lost drops everything of the scopes.
func (s *scopes[Tx]) Lost(scs []semel.Scope) {
	for _, name := range scs {
		why := errors.New("the source gave it to someone else")
		if sc := s.find(name); sc != nil {
			s.lose(sc, why)
		} else if s.free(name) {
			s.report(name, "lost", why)
		}
	}
}

func (s *scopes[Tx]) lose(sc *scope, why error) {
	s.mu.Lock()
	was := sc.gone
	s.forget(sc)
	s.wake()
	s.mu.Unlock()
	if !was {
		s.report(sc.Scope, "lost", why)
	}
}

// fenced drops scopes whose fence did not advance, and lets the source find
// out whether they are still ours.
func (s *scopes[Tx]) fenced(lost *lostError) {
	var names []semel.Scope
	for _, sc := range lost.scopes {
		s.lose(sc, lost)
		names = append(names, sc.Scope)
	}
	if f, ok := s.c.src.(broker.Fencer); ok {
		f.Fenced(names)
	}
}

// forget ends the assignment; mu is held.
func (s *scopes[Tx]) forget(sc *scope) {
	sc.gone = true
	if s.owned[sc.Scope] == sc {
		delete(s.owned, sc.Scope)
	}
}

// wake lets drain look again; mu is held.
func (s *scopes[Tx]) wake() {
	close(s.settled)
	s.settled = make(chan struct{})
}

// all returns what is owned.
func (s *scopes[Tx]) all() []semel.Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.owned), semel.Scope.Compare)
}

func (s *scopes[Tx]) find(name semel.Scope) *scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[name]
}

// enter ties received items to the assignments they belong to. An item of a
// scope that is not ours (any more) gets one that is gone.
func (s *scopes[Tx]) enter(items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *scope
	for i := range items {
		name := items[i].d.Position.Scope
		if last == nil || last.Scope != name {
			if last = s.owned[name]; last == nil {
				last = &scope{Scope: name, gone: true}
			}
		}
		last.inflight++
		items[i].scope, items[i].unread = last, last.doubted
	}
}

// leave is called when items are decided or given up, before they are settled.
func (s *scopes[Tx]) leave(items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := false
	for i := range items {
		if sc := items[i].scope; sc != nil {
			sc.inflight--
			done = done || sc.inflight == 0
		}
	}
	if done {
		s.wake()
	}
}

// end sees to it that nothing is decided any more of the scopes of items that
// are given up: what comes after them would leave a gap.
func (s *scopes[Tx]) end(items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		if sc := items[i].scope; sc != nil {
			sc.leaving = true
		}
	}
}

// cleared ends a suspicion.
func (s *scopes[Tx]) cleared(sc *scope) {
	sc.suspect = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.doubted = false
}

// usable reports whether the item may still be committed; leaving scopes may
// finish what is in a transaction, but begin nothing.
func (s *scopes[Tx]) usable(sc *scope) bool {
	if sc == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !sc.gone && !sc.leaving
}

func (s *scopes[Tx]) report(sc semel.Scope, event string, err error) {
	if f := s.c.cfg.Observer.Scope; f != nil {
		f(sc, event, err)
	}
}
