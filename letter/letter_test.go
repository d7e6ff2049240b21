package letter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

var (
	states = []store.State{
		store.StateRetry, store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved,
		store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded,
	}
	events = []letter.Event{
		letter.Applied, letter.Superseded, letter.Repeated, letter.Failed, letter.Died,
		letter.Replay, letter.Discard, letter.Edit, letter.Approve,
	}
)

// TestNext is every state with every event; what is not listed is refused.
func TestNext(t *testing.T) {
	pipeline := map[letter.Event]store.State{
		letter.Applied: store.StateApplied, letter.Superseded: store.StateSuperseded, letter.Repeated: store.StateDuplicate,
		letter.Failed: store.StateRetry, letter.Died: store.StateDead,
	}
	person := map[letter.Event]store.State{letter.Replay: store.StateRetry, letter.Discard: store.StateDiscarded, letter.Edit: store.StateEdited}
	allowed := map[store.State]map[letter.Event]store.State{
		store.StateRetry: pipeline, store.StateHeld: pipeline,
		store.StateDead: person, store.StateApproved: person,
		store.StateEdited: {
			letter.Replay: store.StateRetry, letter.Discard: store.StateDiscarded, letter.Edit: store.StateEdited, letter.Approve: store.StateApproved,
		},
	}
	for _, s := range append(states, "nonsense") {
		for _, e := range append(events, "nonsense") {
			got, err := letter.Next(s, e)
			want, ok := allowed[s][e]
			switch {
			case ok && (err != nil || got != want):
				t.Errorf("%s, %s: %s %v, want %s", s, e, got, err, want)
			case !ok:
				var refused *letter.TransitionError
				if !errors.As(err, &refused) || refused.State != s || refused.Event != e || got != s {
					t.Errorf("%s, %s: %s %v, want a refusal", s, e, got, err)
				}
			}
		}
	}
}

// TestNextKeepsItsPromises for any sequence of events: what is closed stays
// closed, and only people get a letter out of the dead ones.
func TestNextKeepsItsPromises(t *testing.T) {
	check := func(start uint8, steps []uint8) bool {
		s := states[int(start)%len(states)]
		for _, step := range steps {
			e := events[int(step)%len(events)]
			next, err := letter.Next(s, e)
			person := e == letter.Replay || e == letter.Discard || e == letter.Edit || e == letter.Approve
			waits := s == store.StateRetry || s == store.StateHeld
			if err == nil && (!s.Open() || waits == person) || err != nil && next != s {
				return false
			}
			s = next
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestTransitionErrorTells(t *testing.T) {
	_, err := letter.Next(store.StateApplied, letter.Replay)
	if err == nil || err.Error() != "a letter in state applied cannot be replayed" {
		t.Error(err)
	}
}

func TestOf(t *testing.T) {
	for v, want := range map[semel.Verdict]letter.Event{
		semel.Applied: letter.Applied, semel.Superseded: letter.Superseded, semel.Duplicate: letter.Repeated,
		semel.Parked: letter.Failed, semel.Dead: letter.Died,
	} {
		if got := letter.Of(v); got != want {
			t.Errorf("%s: %s, want %s", v, got, want)
		}
	}
}

// TestRedelivered is the whole table.
func TestRedelivered(t *testing.T) {
	for _, s := range states {
		dead := s == store.StateDead || s == store.StateEdited || s == store.StateApproved
		for _, same := range []bool{true, false} {
			for _, returned := range []bool{true, false} {
				for _, replay := range []bool{true, false} {
					want := letter.Note
					switch {
					case returned && s == store.StateDead && same:
						want = letter.Again
					case same:
					case returned && dead && replay:
						want = letter.Revise
					case s.Open():
						want = letter.Propose
					default:
						want = letter.Contest
					}
					if got := letter.Redelivered(s, same, returned, replay); got != want {
						t.Errorf("%s, same %v, returned %v, replay %v: %d, want %d", s, same, returned, replay, got, want)
					}
				}
			}
		}
	}
}

// TestRefIsStable: references are stored, so they must never change.
func TestRefIsStable(t *testing.T) {
	f := store.Print(&semel.Message{Body: []byte("body")})
	for name, c := range map[string]struct{ got, want string }{
		"with id":    {letter.Ref("orders", "a", f, "p0:1"), "ggjk25faokyipyxb"},
		"without id": {letter.Ref("orders", "", f, "p0:1"), "vmr6onmo6cxz74kn"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// TestRefTellsApart what is not the same, however it is cut.
func TestRefTellsApart(t *testing.T) {
	type key struct {
		Consumer, ID, Origin string
		Print                store.Fingerprint
	}
	ref := func(k key) string { return letter.Ref(k.Consumer, k.ID, k.Print, k.Origin) }
	same := func(a, b key) bool {
		if a.ID == "" && b.ID == "" {
			return a == b
		}
		return a.Consumer == b.Consumer && a.ID == b.ID && a.Print == b.Print
	}
	if err := quick.Check(func(a, b key) bool {
		again := a
		return (ref(a) == ref(b)) == same(a, b) && ref(a) == ref(again)
	}, nil); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]key{
		{{Consumer: "ab", ID: "c"}, {Consumer: "a", ID: "bc"}},
		{{Consumer: `a" id "b`, ID: "c"}, {Consumer: "a", ID: `b" id "c`}},
		{{Consumer: "a", ID: "b"}, {Consumer: "a", Origin: "b"}},
	} {
		if ref(c[0]) == ref(c[1]) {
			t.Errorf("%+v and %+v have one reference", c[0], c[1])
		}
	}
	if len(ref(key{Consumer: "a", ID: "b"})) != 16 {
		t.Error("a reference has another length")
	}
}

func TestChain(t *testing.T) {
	root := errors.New("connection reset")
	err := fmt.Errorf("charge: %w", semel.Permanent(fmt.Errorf("post: %w", root)))
	if got, want := letter.Chain(err), "charge: post: connection reset\npost: connection reset\nconnection reset"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if letter.Chain(nil) != "" {
		t.Error("nil has a chain")
	}
	if got := letter.Chain(errors.Join(errors.New("a"), errors.New("b"))); got != "a\nb" {
		t.Errorf("joined: %q", got)
	}
}

func TestClip(t *testing.T) {
	for _, unit := range []string{"x", "é", "€", "😀"} {
		for n := letter.MaxErrorBytes/len(unit) - 3; n < letter.MaxErrorBytes/len(unit)+4; n++ {
			s := strings.Repeat(unit, n)
			got := letter.Clip(s)
			if len(got) > letter.MaxErrorBytes || !utf8.ValidString(got) || len(s) <= letter.MaxErrorBytes && got != s {
				t.Errorf("%d times %s is clipped to %d bytes, valid %v", n, unit, len(got), utf8.ValidString(got))
			}
			if got != s && !strings.HasSuffix(got, "…") {
				t.Errorf("%d times %s does not tell that it was clipped", n, unit)
			}
		}
	}
}

func TestRecordedAndUnread(t *testing.T) {
	for name, c := range map[string]struct {
		l                store.Letter
		recorded, unread bool
	}{
		"ordinary":            {store.Letter{Message: semel.Message{ID: "a"}, Reason: "failed", Attempts: 1}, true, false},
		"conflict":            {store.Letter{Message: semel.Message{ID: "a"}, Reason: "conflict", Conflict: true}, false, false},
		"no id":               {store.Letter{Reason: letter.Invalid}, false, true},
		"read, not valid":     {store.Letter{Message: semel.Message{ID: "a"}, Reason: letter.Invalid, Attempts: 1}, true, false},
		"not read, with id":   {store.Letter{Message: semel.Message{ID: "a"}, Reason: letter.Invalid}, true, true},
		"malformed":           {store.Letter{Message: semel.Message{ID: "a"}, Reason: letter.Malformed}, true, true},
		"repaired, then read": {store.Letter{Message: semel.Message{ID: "a"}, Reason: "repaired"}, true, false},
	} {
		if letter.Recorded(&c.l) != c.recorded || letter.Unread(&c.l) != c.unread {
			t.Errorf("%s: recorded %v, unread %v", name, letter.Recorded(&c.l), letter.Unread(&c.l))
		}
	}
}

func TestRepair(t *testing.T) {
	l := &store.Letter{Message: semel.Message{ID: "a", Key: "k"}, Number: 3, Class: store.Format, Reason: letter.Invalid, Error: "not JSON"}
	for key, release := range map[string]bool{"k": false, "other": true} {
		m := store.Move{Number: l.Number}
		if got := letter.Repair(&m, l, store.Revised{Message: semel.Message{ID: "a", Key: key}}, "ann"); got != release || (m.Number == 0) != release {
			t.Errorf("key %s: release %v, number %d", key, got, m.Number)
		}
		if m.Revised.Message.Key != key || m.Attempt.N != 1 || m.Attempts != 0 || m.Attempt.Error != l.Error || letter.Unread(&store.Letter{Message: m.Revised.Message, Reason: m.Reason}) {
			t.Errorf("key %s: %+v", key, m)
		}
	}
	tried := &store.Letter{Message: semel.Message{ID: "a"}, Reason: "exhausted", Attempts: 3}
	var m store.Move
	if letter.Repair(&m, tried, store.Revised{}, "ann"); m.Revised == nil || m.Attempt.N != 0 {
		t.Errorf("the attempts of a letter that was read are written over: %+v", m)
	}
}
