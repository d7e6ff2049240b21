package storetest

import (
	"errors"
	"math"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func fenceTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Assign":        assign[Tx],
		"Incarnations":  incarnations[Tx],
		"Create":        create[Tx],
		"AwkwardScopes": awkwardScopes[Tx],
		"Leave":         leave[Tx],
		"Advance":       advance[Tx],
		"Extremes":      extremes[Tx],
		"Strangers":     fencesOfStrangers[Tx],
		"AssignWaits":   assignWaits[Tx],
		"Zombie":        zombie[Tx],
	}
}

func scope(name string) semel.Scope { return semel.Scope{Name: name, Incarnation: "1"} }

func at(lo int64) semel.Offset { return semel.Offset{Lo: lo} }

// assign makes who the owner of one scope.
func (s *suite[Tx]) assign(b store.Backend[Tx], who string, st store.Start) store.Fence {
	s.Helper()
	fs, err := b.Assign(s.ctx, consumer, who, []store.Start{st})
	must(s, err)
	if len(fs) != 1 {
		s.Fatalf("Assign of one scope returned %+v", fs)
	}
	return fs[0]
}

// advance moves scopes in a transaction of their own and returns what was lost.
func (s *suite[Tx]) advance(a ...store.Advance) (lost []int) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		lost, err = s.b.Advance(s.ctx, tx, consumer, a, nil)
		return err
	})
	return lost
}

func assign[Tx any](s *suite[Tx]) {
	starts := []store.Start{{Scope: scope("b"), At: at(7)}, {Scope: scope("a"), At: semel.Offset{Hi: 2, Lo: 9}}}
	fs, err := s.b.Assign(s.ctx, consumer, worker, starts)
	must(s, err)
	equal(s, "new scopes, in the order asked", fs, []store.Fence{
		{Scope: scope("b"), Epoch: 1, Next: at(7), Fresh: true, Clean: true, Worker: worker},
		{Scope: scope("a"), Epoch: 1, Next: semel.Offset{Hi: 2, Lo: 9}, Fresh: true, Clean: true, Worker: worker},
	})
	f := s.assign(s.b, "w2", store.Start{Scope: scope("b"), At: at(100)})
	equal(s, "a scope whose owner vanished", f, store.Fence{Scope: scope("b"), Epoch: 2, Next: at(7), Worker: "w2"})
	fs, err = s.b.Assign(s.ctx, consumer, worker, nil)
	if err != nil || len(fs) != 0 {
		s.Errorf("Assign of nothing: %+v, %v", fs, err)
	}
}

func incarnations[Tx any](s *suite[Tx]) {
	one, two, three := semel.Scope{Name: "t", Incarnation: "1"}, semel.Scope{Name: "t", Incarnation: "2"}, semel.Scope{Name: "t", Incarnation: "3"}
	for i, c := range []struct {
		scope semel.Scope
		want  string
	}{{one, ""}, {two, "1"}, {one, "2"}, {three, "1"}, {three, "1"}, {two, "3"}} {
		if f := s.assign(s.b, worker, store.Start{Scope: c.scope}); f.Other != c.want {
			s.Errorf("assignment %d of %v: the other incarnation is %q, want %q", i, c.scope, f.Other, c.want)
		}
	}
}

func create[Tx any](s *suite[Tx]) {
	never := store.Start{Scope: scope("t"), At: at(5), Create: store.CreateNever}
	first := store.Start{Scope: scope("t"), At: at(6), Create: store.CreateFirst}
	for range 2 { // no trace: the second try finds the same
		f := s.assign(s.b, worker, never)
		if !f.Fresh || f.Epoch != 0 || f.Scope != never.Scope {
			s.Errorf("CreateNever without a row: %+v", f)
		}
	}
	if f := s.assign(s.b, worker, first); !f.Fresh || f.Epoch != 1 || f.Next != at(6) {
		s.Errorf("CreateFirst of a name without rows: %+v", f)
	}
	if f := s.assign(s.b, worker, never); f.Fresh || f.Epoch != 2 || f.Next != at(6) {
		s.Errorf("CreateNever with a row: %+v", f)
	}
	again := store.Start{Scope: semel.Scope{Name: "t", Incarnation: "2"}, Create: store.CreateFirst}
	if f := s.assign(s.b, worker, again); !f.Fresh || f.Epoch != 0 || f.Other != "1" {
		s.Errorf("CreateFirst where another incarnation has a row: %+v", f)
	}
	again.Create = store.CreateAlways
	if f := s.assign(s.b, worker, again); !f.Fresh || f.Epoch != 1 || f.Other != "1" {
		s.Errorf("CreateAlways where another incarnation has a row: %+v", f)
	}
}

func awkwardScopes[Tx any](s *suite[Tx]) {
	var starts []store.Start
	for i, name := range awkward() {
		starts = append(starts, store.Start{Scope: semel.Scope{Name: name, Incarnation: name}, At: at(int64(i))})
	}
	for round := range int64(2) {
		fs, err := s.b.Assign(s.ctx, consumer, worker, starts)
		must(s, err)
		for i, f := range fs {
			if f.Scope != starts[i].Scope || f.Next != starts[i].At || f.Epoch != round+1 || f.Other != "" {
				s.Errorf("scope %q: %+v", starts[i].Scope.Name, f)
			}
		}
	}
}

func leave[Tx any](s *suite[Tx]) {
	old := s.assign(s.b, worker, store.Start{Scope: scope("a")})
	must(s, s.b.Leave(s.ctx, consumer, []store.Fence{old}))
	now := s.assign(s.b, "w2", store.Start{Scope: scope("a")})
	if !now.Clean || now.Epoch != 2 {
		s.Errorf("a scope that was left: %+v", now)
	}
	must(s, s.b.Leave(s.ctx, consumer, []store.Fence{old, {Scope: scope("nowhere"), Epoch: 1}}))
	if f := s.assign(s.b, worker, store.Start{Scope: scope("a")}); f.Clean {
		s.Errorf("a former owner could declare the scope left: %+v", f)
	}
}

func advance[Tx any](s *suite[Tx]) {
	a := s.assign(s.b, worker, store.Start{Scope: scope("a"), At: at(1)})
	b := s.assign(s.b, worker, store.Start{Scope: scope("b"), At: at(1)})
	step := func(f store.Fence, from, to int64) store.Advance {
		return store.Advance{Scope: f.Scope, Epoch: f.Epoch, From: at(from), To: at(to)}
	}
	equal(s, "lost", s.advance(step(a, 1, 5), step(b, 1, 1)), []int(nil))
	stale := step(a, 5, 6)
	stale.Epoch--
	gone := semel.Scope{Name: "a", Incarnation: "2"}
	lost := s.advance(step(a, 4, 6), stale, step(store.Fence{Scope: gone, Epoch: 1}, 5, 6), step(b, 1, 2), step(b, 1, 3))
	equal(s, "lost: wrong offset, wrong epoch, no row, moved already", lost, []int{0, 1, 2, 4})
	s.abort(func(tx Tx) error {
		lost, err := s.b.Advance(s.ctx, tx, consumer, []store.Advance{step(a, 5, 9)}, []int{42})
		equal(s, "lost is appended to", lost, []int{42})
		return err
	})
	equal(s, "lost after a rollback", s.advance(step(a, 5, 6)), []int(nil))
	if f := s.assign(s.b, worker, store.Start{Scope: scope("a")}); f.Next != at(6) {
		s.Errorf("the fence is at %+v, want 6", f)
	}
}

func extremes[Tx any](s *suite[Tx]) {
	edge := []semel.Offset{
		{Hi: math.MinInt64, Lo: math.MinInt64}, {Hi: -1, Lo: math.MaxInt64}, {}, {Lo: 1 << 53}, {Lo: 1<<53 + 1}, {Hi: math.MaxInt64, Lo: math.MaxInt64},
	}
	f := s.assign(s.b, worker, store.Start{Scope: scope("a"), At: edge[0]})
	for i := 1; i < len(edge); i++ {
		lost := s.advance(store.Advance{Scope: f.Scope, Epoch: f.Epoch, From: edge[i-1], To: edge[i]})
		equal(s, "lost", lost, []int(nil))
	}
	if f = s.assign(s.b, worker, store.Start{Scope: scope("a")}); f.Next != edge[len(edge)-1] {
		s.Errorf("the fence is at %+v", f.Next)
	}
}

func fencesOfStrangers[Tx any](s *suite[Tx]) {
	s.assign(s.b, worker, store.Start{Scope: scope("a"), At: at(1)})
	fs, err := s.b.Assign(s.ctx, stranger, worker, []store.Start{{Scope: scope("a"), At: at(9)}})
	must(s, err)
	if !fs[0].Fresh || fs[0].Next != at(9) {
		s.Errorf("a consumer sees the fence of another: %+v", fs[0])
	}
}

// assignWaits moves a scope while its owner's transaction is in flight. The new
// owner must begin behind it.
func assignWaits[Tx any](s *suite[Tx]) {
	f := s.assign(s.b, worker, store.Start{Scope: scope("a"), At: at(1)})
	move := []store.Advance{{Scope: f.Scope, Epoch: f.Epoch, From: at(1), To: at(10)}}
	s.meeting(func(tx Tx) error {
		lost, err := s.b.Advance(s.ctx, tx, consumer, move, nil)
		if len(lost) > 0 {
			err = errors.New("the owner lost its scope")
		}
		return err
	}, nil, func(b store.Backend[Tx]) error {
		next := s.assign(b, "w2", store.Start{Scope: scope("a")})
		if next.Next != at(10) || next.Epoch != 2 {
			s.Errorf("the new owner begins at %+v; the transaction in flight ended at 10", next)
		}
		return nil
	})
	move[0].From, move[0].To = at(10), at(20)
	equal(s, "lost to the former owner", s.advance(move...), []int{0})
}

// zombie has the former owner go on after the scope moved, and the new owner
// after that.
func zombie[Tx any](s *suite[Tx]) {
	old := s.assign(s.b, worker, store.Start{Scope: scope("a"), At: at(1)})
	now := s.assign(s.other(), "w2", store.Start{Scope: scope("a")})
	equal(s, "lost to the zombie", s.advance(store.Advance{Scope: old.Scope, Epoch: old.Epoch, From: at(1), To: at(5)}), []int{0})
	equal(s, "lost to the owner", s.advance(store.Advance{Scope: now.Scope, Epoch: now.Epoch, From: at(1), To: at(5)}), []int(nil))
}
