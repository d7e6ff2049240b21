package storetest

import (
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func moveTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"States":   moveStates[Tx],
		"Missed":   moveMissed[Tx],
		"Failure":  moveFailure[Tx],
		"Person":   movePerson[Tx],
		"Revised":  moveRevised[Tx],
		"Original": moveOriginal[Tx],
		"Rollback": moveRollback[Tx],
		"TwoMove":  twoMove[Tx],
	}
}

// move makes transitions that must all succeed.
func (s *suite[Tx]) move(ms ...store.Move) {
	s.Helper()
	s.in(func(tx Tx) error {
		missed, err := s.b.Move(s.ctx, tx, consumer, ms, nil)
		if len(missed) > 0 {
			s.Errorf("moves %v of %+v missed", missed, ms)
		}
		return err
	})
}

// moveStates writes every transition as it is: which are legal is not the
// store's business.
func moveStates[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateRetry))
	version, states := s.letters()["a"].Version, []store.State{
		store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved, store.StateRetry,
		store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded, store.StateDead,
	}
	for i, to := range states {
		s.move(store.Move{Ref: "a", Version: version, To: to, Number: int64(i), Delay: time.Hour})
		l := s.letters()["a"]
		if l.State != to || l.Version != version+1 || l.Number != int64(i) {
			s.Errorf("after a move to %s: %+v", to, l)
		}
		if due := to == store.StateRetry; l.Due.IsZero() == due || due && !near(l.Due.Add(-time.Hour)) {
			s.Errorf("after a move to %s with a delay of an hour it is due %v", to, l.Due)
		}
		version = l.Version
	}
}

func moveMissed[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateDead), parking("b", store.StateDead))
	a, b := s.letters()["a"], s.letters()["b"]
	s.in(func(tx Tx) error {
		missed, err := s.b.Move(s.ctx, tx, consumer, []store.Move{
			{Ref: "a", Version: a.Version + 1, To: store.StateRetry},
			{Ref: "b", Version: b.Version, To: store.StateEdited},
			{Ref: "nobody", Version: 1, To: store.StateRetry},
			{Ref: "b", Version: b.Version, To: store.StateDiscarded, By: "bob"},
		}, []int{42})
		equal(s, "missed, appended", missed, []int{42, 0, 2, 3})
		return err
	})
	if l := s.letters()["a"]; l.State != store.StateDead || l.Version != a.Version || !l.Updated.Equal(a.Updated) {
		s.Errorf("a move that missed changed the letter to %+v", l)
	}
	if l := s.letters()["b"]; l.State != store.StateEdited || l.By != "" {
		s.Errorf("the second of two moves from one version changed the letter to %+v", l)
	}
	s.in(func(tx Tx) error {
		missed, err := s.b.Move(s.ctx, tx, stranger, []store.Move{{Ref: "a", Version: a.Version, To: store.StateRetry}}, nil)
		equal(s, "missed by another consumer", missed, []int{0})
		return err
	})
}

// moveFailure replaces what is said of the failure only with an attempt.
func moveFailure[Tx any](s *suite[Tx]) {
	p := parking("a", store.StateRetry)
	p.Class, p.Reason, p.Error, p.Stack, p.Attempts = store.System, "exhausted", "e1", "s1", 1
	s.park(p)
	version := s.letters()["a"].Version
	s.move(store.Move{Ref: "a", Version: version, To: store.StateRetry, Class: store.Business, Reason: "no", Attempts: 9})
	if l := s.letters()["a"]; l.Class != store.System || l.Reason != "exhausted" || l.Error != "e1" || l.Stack != "s1" || l.Attempts != 1 {
		s.Errorf("a move without an attempt changed the failure: %+v", l)
	}
	s.move(store.Move{
		Ref: "a", Version: version + 1, To: store.StateDead, Class: store.Business, Reason: "permanent", Attempts: 2,
		Attempt: store.Attempt{N: 2, Error: "e2", Stack: "s2"},
	})
	if l := s.letters()["a"]; l.Class != store.Business || l.Reason != "permanent" || l.Error != "e2" || l.Stack != "s2" || l.Attempts != 2 {
		s.Errorf("a move with an attempt left the failure at %+v", l)
	}
}

func movePerson[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateDead))
	version := s.letters()["a"].Version
	s.move(store.Move{Ref: "a", Version: version, To: store.StateEdited, By: "ann", Note: "typo"})
	s.move(store.Move{Ref: "a", Version: version + 1, To: store.StateApproved, Note: "of nobody"})
	if l := s.letters()["a"]; l.By != "ann" || l.Note != "typo" {
		s.Errorf("a move without a person changed who acted: %q, %q", l.By, l.Note)
	}
	s.move(store.Move{Ref: "a", Version: version + 2, To: store.StateRetry, By: "bob"})
	if l := s.letters()["a"]; l.By != "bob" || l.Note != "" {
		s.Errorf("a move by a person without a note left %q, %q", l.By, l.Note)
	}
}

func moveRevised[Tx any](s *suite[Tx]) {
	p := parking("a", store.StateDead)
	s.park(p, parking("b", store.StateDead))
	version := s.letters()["a"].Version
	rev := store.Revised{Message: fullParking().Message, Fingerprint: store.Fingerprint{9}}
	s.move(store.Move{Ref: "a", Version: version, To: store.StateEdited, Revised: &rev})
	l := s.letters()["a"]
	if l.Message.Time.Equal(rev.Message.Time) {
		l.Message.Time = rev.Message.Time
	}
	equal(s, "the revised message", store.Revised{Message: l.Message, Fingerprint: l.Fingerprint}, rev)
	equal(s, "found by its new id", refs(s.find([]string{rev.Message.ID}, nil)), []string{"a"})
	equal(s, "found by its old id", refs(s.find([]string{p.Message.ID}, nil)), []string{})
	s.move(store.Move{Ref: "a", Version: version + 1, To: store.StateApproved})
	if l := s.letters()["a"]; l.Fingerprint != rev.Fingerprint || string(l.Message.Body) != string(rev.Message.Body) {
		s.Errorf("a move without a revision changed the message: %+v", l)
	}
}

// moveOriginal: what the producer sent stays, whatever it was revised to, and
// however often.
func moveOriginal[Tx any](s *suite[Tx]) {
	p := fullParking()
	s.park(p)
	propose := func(n byte) {
		s.Helper()
		r := store.Revision{Ref: p.Ref, By: "ann", Message: semel.Message{ID: "id", Body: []byte{n}}, Fingerprint: store.Fingerprint{n}}
		s.in(func(tx Tx) error { return s.b.Note(s.ctx, tx, consumer, nil, []store.Revision{r}) })
	}
	revise := func(n byte) {
		s.Helper()
		r := store.Revised{Message: semel.Message{ID: "id", Body: []byte{n}}, Fingerprint: store.Fingerprint{n}}
		s.move(store.Move{Ref: p.Ref, Version: s.letters()[p.Ref].Version, To: store.StateDead, Revised: &r})
	}
	numbers := func() (out []int) {
		s.Helper()
		rs, err := s.b.Revisions(s.ctx, consumer, p.Ref)
		must(s, err)
		for _, r := range rs {
			out = append(out, r.N)
		}
		if len(rs) > 0 && rs[0].N == 0 {
			rs[0].Message.Time = rs[0].Message.Time.UTC()
			equal(s, "what the producer sent", rs[0].Message, p.Message)
			equal(s, "its fingerprint", rs[0].Fingerprint, p.Fingerprint)
		}
		return out
	}
	propose(2)
	equal(s, "revisions before anything takes its place", numbers(), []int{1})
	revise(2)
	revise(3)
	equal(s, "revisions after two", numbers(), []int{0, 1})
	if l := s.letters()[p.Ref]; l.Proposed != 0 || l.Message.Body[0] != 3 {
		s.Errorf("after two revisions: %+v", l)
	}
	propose(2) // again: it waits for a decision again
	propose(4)
	equal(s, "revisions after two and two proposals", numbers(), []int{0, 1, 2})
	equal(s, "proposals that wait", s.letters()[p.Ref].Proposed, 2)
}

func moveRollback[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateDead))
	before := s.letters()["a"]
	s.abort(func(tx Tx) error {
		_, err := s.b.Move(s.ctx, tx, consumer, []store.Move{{
			Ref: "a", Version: before.Version, To: store.StateRetry, By: "ann",
			Attempt: store.Attempt{N: 1, Class: semel.ClassFault}, Revised: &store.Revised{},
		}}, nil)
		return err
	})
	equal(s, "the letter after a rollback", s.letters()["a"], before)
	tr, err := s.b.Trace(s.ctx, consumer, before.Message.ID, "")
	must(s, err)
	equal(s, "attempts after a rollback", len(tr.Attempts["a"]), 0)
}

// twoMove has two processes move one letter from the version both saw: the
// second must miss.
func twoMove[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateDead))
	version := s.letters()["a"].Version
	moving := func(b store.Backend[Tx], by string, missed *[]int) func(tx Tx) error {
		return func(tx Tx) (err error) {
			*missed, err = b.Move(s.ctx, tx, consumer, []store.Move{{Ref: "a", Version: version, To: store.StateRetry, By: by}}, nil)
			return err
		}
	}
	var first, second []int
	s.meeting(moving(s.b, "ann", &first), nil, func(b store.Backend[Tx]) error { return s.alone(b, moving(b, "bob", &second)) })
	equal(s, "missed by the first and the second", [][]int{first, second}, [][]int{nil, {0}})
	if l := s.letters()["a"]; l.By != "ann" {
		s.Errorf("the letter was moved by %q", l.By)
	}
}
