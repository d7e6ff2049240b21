package storetest

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func letterTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"RoundTrip":    letterRoundTrip[Tx],
		"Bodies":       letterBodies[Tx],
		"Times":        letterTimes[Tx],
		"AwkwardNames": letterNames[Tx],
		"Any":          anyLetters[Tx],
		"Find":         find[Tx],
		"FindMany":     findMany[Tx],
		"ParkTwice":    parkTwice[Tx],
		"ParkAgain":    parkAgain[Tx],
		"Attempts":     attempts[Tx],
		"Note":         note[Tx],
	}
}

// parking is a letter with an id of its own.
func parking(ref string, state store.State) store.Parking {
	return store.Parking{Letter: store.Letter{
		Ref: ref, Consumer: consumer, State: state, Message: semel.Message{ID: "id of " + ref, Body: []byte(ref)},
	}}
}

func (s *suite[Tx]) park(ps ...store.Parking) (exists []int) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		exists, err = s.b.Park(s.ctx, tx, ps, nil)
		return err
	})
	return exists
}

// letters returns all letters with bodies, by reference.
func (s *suite[Tx]) letters() map[string]store.Letter {
	s.Helper()
	ls, err := s.b.List(s.ctx, store.Query{Consumer: consumer, Bodies: true, Limit: 10_000})
	must(s, err)
	out := make(map[string]store.Letter)
	for _, l := range ls {
		out[l.Ref] = l
	}
	return out
}

// stored is what the letter of a parking is expected to be, given what the
// store chose.
func stored(p store.Parking, have store.Letter) store.Letter {
	want := p.Letter
	want.Version, want.Created, want.Updated, want.Due, want.Failed = have.Version, have.Created, have.Updated, have.Due, have.Failed
	want.Cause.Text = ""
	if want.Message.Time.Equal(have.Message.Time) {
		want.Message.Time = have.Message.Time // locations may differ
	}
	return want
}

func fullParking() store.Parking {
	return store.Parking{Letter: store.Letter{
		Ref: "full", Consumer: consumer,
		Message: semel.Message{
			ID: "id", Key: "key", Type: "type", Source: "source",
			Time:    time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC),
			Version: semel.Version{N: math.MinInt64, Tie: "\x00tie", Set: true},
			Header: semel.Header{
				{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "A", Value: []byte{}},
				{Name: "", Value: []byte{0, 255, '"', '\n'}}, {Name: "\xff\x00", Value: nil},
			},
			Body: []byte{0, 1, 254, 255},
		},
		Fingerprint: store.Fingerprint{15: 1}, Origin: "topic/3@x:7\x00", State: store.StateDead,
		Number: math.MaxInt64, Class: store.Business, Reason: "tie", Conflict: true, Attempts: 5, Seen: 2,
		Error: "outer\ninner \u2028 '\"", Stack: "goroutine 1", Cause: store.Cause{ID: "c", Text: "it"}, By: "ann", Note: "look at this",
	}}
}

func letterRoundTrip[Tx any](s *suite[Tx]) {
	full, bare := fullParking(), store.Parking{Letter: store.Letter{Ref: "bare", Consumer: consumer, State: store.StateHeld}}
	equal(s, "exists", s.park(full, bare), []int(nil))
	have := s.letters()
	for _, p := range []store.Parking{full, bare} {
		l := have[p.Ref]
		equal(s, "letter "+p.Ref, l, stored(p, l))
		if l.Version < 1 || !near(l.Created) || !near(l.Updated) || !l.Due.IsZero() {
			s.Errorf("letter %s: version %d, created %v, updated %v, due %v", p.Ref, l.Version, l.Created, l.Updated, l.Due)
		}
	}
}

func letterBodies[Tx any](s *suite[Tx]) {
	bodies := map[string][]byte{"nil": nil, "empty": {}, "zero": {0}, "large": make([]byte, 1<<20)}
	headers := map[string]semel.Header{"nil": nil, "empty": {}, "zero": {{}}, "large": make(semel.Header, 300)}
	var ps []store.Parking
	for ref, b := range bodies {
		p := parking(ref, store.StateDead)
		p.Message.Body, p.Message.Header = b, headers[ref]
		ps = append(ps, p)
	}
	s.park(ps...)
	for ref, l := range s.letters() {
		if !reflect.DeepEqual(l.Message.Body, bodies[ref]) {
			s.Errorf("body %q came back as %d bytes, nil %v", ref, len(l.Message.Body), l.Message.Body == nil)
		}
		if len(l.Message.Header) != len(headers[ref]) {
			s.Errorf("header %q came back with %d fields", ref, len(l.Message.Header))
		}
	}
}

func letterTimes[Tx any](s *suite[Tx]) {
	times := map[string]time.Time{
		"zero": {}, "epoch": time.Unix(0, 0), "ancient": time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), "before": time.Unix(-1, 999_999_999),
		"zone": time.Date(2026, 3, 29, 2, 30, 0, 5, time.FixedZone("x", 5*3600+1800)), "far": time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	}
	var ps []store.Parking
	for ref, at := range times {
		p := parking(ref, store.StateDead)
		p.Message.Time = at
		ps = append(ps, p)
	}
	s.park(ps...)
	for ref, l := range s.letters() {
		if !l.Message.Time.Equal(times[ref]) || l.Message.Time.IsZero() != times[ref].IsZero() {
			s.Errorf("time %q: %v came back as %v", ref, times[ref], l.Message.Time)
		}
	}
}

func letterNames[Tx any](s *suite[Tx]) {
	var ps []store.Parking
	for _, name := range awkward() {
		p := parking(name, store.StateDead)
		p.Message.ID, p.Message.Key, p.Message.Type, p.Message.Source, p.Message.Body = name, name, name, name, []byte(name)
		p.Origin = name
		ps = append(ps, p)
	}
	equal(s, "exists", s.park(ps...), []int(nil))
	have := s.letters()
	for _, p := range ps {
		l := have[p.Ref]
		equal(s, "letter", l, stored(p, l))
	}
	if len(have) != len(ps) {
		s.Errorf("%d names became %d letters", len(ps), len(have))
	}
}

func anyLetters[Tx any](s *suite[Tx]) {
	ask := func(of string) (some bool) {
		s.Helper()
		s.in(func(tx Tx) (err error) {
			some, err = s.b.Any(s.ctx, tx, of)
			return err
		})
		return some
	}
	equal(s, "letters of a new consumer", ask(consumer), false)
	s.abort(func(tx Tx) error {
		_, err := s.b.Park(s.ctx, tx, []store.Parking{parking("a", store.StateDead)}, nil)
		return err
	})
	equal(s, "letters after a rollback", ask(consumer), false)
	s.park(parking("a", store.StateApplied))
	equal(s, "letters, a closed one", ask(consumer), true)
	equal(s, "letters of another consumer", ask(stranger), false)
}

func (s *suite[Tx]) find(ids, refs []string) (out []store.Letter) {
	s.Helper()
	slices.Sort(ids)
	slices.Sort(refs)
	s.in(func(tx Tx) (err error) {
		out, err = s.b.Find(s.ctx, tx, consumer, ids, refs, nil)
		return err
	})
	return out
}

func refs(ls []store.Letter) []string {
	out := make([]string, 0, len(ls))
	for _, l := range ls {
		out = append(out, l.Ref)
	}
	slices.Sort(out)
	return out
}

func find[Tx any](s *suite[Tx]) {
	equal(s, "letters found where there are none", len(s.find([]string{"x"}, []string{"a"})), 0)
	var ps []store.Parking
	for _, l := range []struct{ ref, id string }{{"a", "x"}, {"b", "x"}, {"c", "X"}, {"d", ""}, {"e", ""}, {"f", "y"}} {
		p := parking(l.ref, store.StateDead)
		p.Message.ID, p.Message.Header = l.id, semel.Header{{Name: "h"}}
		ps = append(ps, p)
	}
	ps[5].State = store.StateDiscarded
	s.park(ps...)
	of := parking("g", store.StateDead)
	of.Consumer, of.Message.ID = stranger, "x"
	s.park(of)
	equal(s, "by id", refs(s.find([]string{"x", "y", "z"}, nil)), []string{"a", "b", "f"})
	equal(s, "by ref", refs(s.find(nil, []string{"d", "g", "q"})), []string{"d"})
	equal(s, "by both", refs(s.find([]string{"x"}, []string{"a", "c"})), []string{"a", "b", "c"})
	s.in(func(tx Tx) error {
		out, err := s.b.Find(s.ctx, tx, consumer, []string{"x"}, nil, []store.Letter{{Ref: "kept"}})
		equal(s, "appended", len(out), 3)
		for _, l := range out {
			if l.Message.Body != nil {
				s.Errorf("letter %q was found with its body", l.Ref)
			}
		}
		if len(out) != 3 || out[0].Ref != "kept" || out[1].Message.ID != "x" || out[1].State != store.StateDead || out[1].Version < 1 {
			s.Errorf("found %+v", out)
		}
		return err
	})
}

func findMany[Tx any](s *suite[Tx]) {
	var ps []store.Parking
	var ids, names []string
	for _, r := range numbered(700) {
		p := parking(r.ID, store.StateDead)
		p.Message.ID, p.Message.Body = "m"+r.ID, nil
		ps = append(ps, p)
		ids, names = append(ids, p.Message.ID, p.Message.ID+"x"), append(names, r.ID)
	}
	s.park(ps...)
	equal(s, "found by id", refs(s.find(ids, nil)), names)
	equal(s, "found by ref", refs(s.find(nil, slices.Clone(names))), names)
}

func parkTwice[Tx any](s *suite[Tx]) {
	first := parking("a", store.StateDead)
	first.Reason = "first"
	s.park(first)
	again, of := first, first
	again.Reason, again.State = "second", store.StateRetry
	of.Consumer = stranger
	equal(s, "exists", s.park(parking("b", store.StateDead), again, of), []int{1})
	s.in(func(tx Tx) error {
		exists, err := s.b.Park(s.ctx, tx, []store.Parking{again}, []int{42})
		equal(s, "exists, appended", exists, []int{42, 0})
		return err
	})
	l := s.letters()["a"]
	equal(s, "the letter that was there", l, stored(first, l))
}

// parkAgain parks a letter whose ref belongs to a closed one. If the message
// was handled, the inbox has forgotten it, and the new letter takes its place.
func parkAgain[Tx any](s *suite[Tx]) {
	for state, gives := range map[store.State]bool{
		store.StateApplied: true, store.StateSuperseded: true, store.StateDuplicate: true,
		store.StateDiscarded: false, store.StateRetry: false, store.StateHeld: false, store.StateEdited: false, store.StateApproved: false,
	} {
		old := parking(string(state), state)
		old.Attempt = store.Attempt{N: 1, Error: "of the old letter"}
		s.park(old)
		version := s.letters()[old.Ref].Version
		next := parking(string(state), store.StateDead)
		next.Reason = "again"
		exists := s.park(next)
		l := s.letters()[old.Ref]
		if gave := len(exists) == 0; gave != gives {
			s.Errorf("a letter in state %s gave way: %v", state, gave)
		} else if gives && (l.Reason != "again" || l.State != store.StateDead || l.Version <= version) {
			s.Errorf("the letter in place of one in state %s is %+v; its version was %d", state, l, version)
		} else if !gives && (l.Reason != "" || l.State != state || l.Version != version) {
			s.Errorf("the letter in state %s was changed to %+v", state, l)
		}
	}
}

func attempts[Tx any](s *suite[Tx]) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	p := parking("a", store.StateRetry)
	p.Attempt = store.Attempt{N: 1, At: when, Class: semel.ClassContention, Error: "e1\n\x01", Stack: "s1", Worker: "w\xff"}
	s.park(p, parking("b", store.StateHeld))
	l := s.letters()["a"]
	s.move(store.Move{Ref: "a", Version: l.Version, To: store.StateDead, Attempts: 2, Attempt: store.Attempt{N: 2, Error: "e2"}})
	tr, err := s.b.Trace(s.ctx, consumer, l.Message.ID, "")
	must(s, err)
	as := tr.Attempts["a"]
	slices.SortFunc(as, func(a, b store.Attempt) int { return cmp.Compare(a.N, b.N) })
	if len(as) != 2 {
		s.Fatalf("attempts: %+v", tr.Attempts)
	}
	if !as[0].At.Equal(when) || !near(as[1].At) {
		s.Errorf("attempts were at %v and %v", as[0].At, as[1].At)
	}
	as[0].At, as[1].At = when, when
	equal(s, "attempts", as, []store.Attempt{p.Attempt, {N: 2, At: when, Error: "e2"}})
}

func note[Tx any](s *suite[Tx]) {
	s.park(parking("a", store.StateDead), parking("b", store.StateDead))
	before := s.letters()["a"]
	full := fullParking()
	one := store.Revision{Ref: "a", By: "source", Note: "resent", Message: full.Message, Fingerprint: store.Fingerprint{1}}
	two := store.Revision{Ref: "a", Message: semel.Message{ID: "id"}, Fingerprint: store.Fingerprint{2}}
	s.in(func(tx Tx) error {
		return s.b.Note(s.ctx, tx, consumer, []string{"a", "a", "nobody"}, []store.Revision{one, one, two})
	})
	s.in(func(tx Tx) error { return s.b.Note(s.ctx, tx, consumer, nil, []store.Revision{two, {Ref: "nobody"}}) })
	l := s.letters()["a"]
	if l.Seen != 2 || l.Proposed != 2 || l.Version != before.Version {
		s.Errorf("after two redeliveries and two proposals: %+v", l)
	}
	if b := s.letters()["b"]; b.Seen != 0 || b.Proposed != 0 {
		s.Errorf("another letter was changed: %+v", b)
	}
	rs, err := s.b.Revisions(s.ctx, consumer, "a")
	must(s, err)
	if len(rs) != 2 {
		s.Fatalf("revisions: %+v", rs)
	}
	for i, r := range rs {
		if !near(r.At) || r.N != i+1 {
			s.Errorf("revision %d has number %d and time %v", i, r.N, r.At)
		}
		rs[i].At, rs[i].N = time.Time{}, 0
		rs[i].Message.Time = rs[i].Message.Time.UTC()
	}
	equal(s, "revisions", rs, []store.Revision{one, two})
	s.in(func(tx Tx) error { return s.b.Note(s.ctx, tx, consumer, nil, []store.Revision{one}) })
	rs, err = s.b.Revisions(s.ctx, consumer, "a")
	must(s, err)
	if len(rs) != 2 || rs[1].Fingerprint != one.Fingerprint || rs[1].N <= rs[0].N || s.letters()["a"].Proposed != 2 {
		s.Errorf("content that is proposed again is not the newest: %+v", rs)
	}
	edit := one
	edit.By = "ann"
	s.in(func(tx Tx) error { return s.b.Note(s.ctx, tx, consumer, nil, []store.Revision{edit, two, one}) })
	rs, err = s.b.Revisions(s.ctx, consumer, "a")
	must(s, err)
	if len(rs) != 3 || rs[0].By != "ann" || rs[2].By != "source" || s.letters()["a"].Proposed != 3 {
		s.Errorf("what two propose alike is not kept for each: %+v", rs)
	}
	s.in(func(tx Tx) error {
		var many []store.Revision
		for i := range byte(2 * store.MaxProposals) {
			many = append(many, store.Revision{Ref: "a", By: "source", Message: full.Message, Fingerprint: store.Fingerprint{100 + i}})
		}
		return s.b.Note(s.ctx, tx, consumer, nil, many)
	})
	rs, err = s.b.Revisions(s.ctx, consumer, "a")
	must(s, err)
	if n := len(rs); n != 2+store.MaxProposals || rs[0].By != "ann" || rs[n-1].Fingerprint[0] != 99+2*store.MaxProposals {
		s.Errorf("after many proposals from one hand: %+v", rs)
	}
	for _, ref := range []string{"b", "nobody"} {
		if rs, err := s.b.Revisions(s.ctx, consumer, ref); err != nil || len(rs) != 0 {
			s.Errorf("revisions of %s: %+v, %v", ref, rs, err)
		}
	}
}
