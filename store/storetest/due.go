package storetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel/store"
)

func dueTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Order":      dueOrder[Tx],
		"Next":       dueNext[Tx],
		"States":     dueStates[Tx],
		"Heads":      dueHeads[Tx],
		"HeadMoves":  dueHeadMoves[Tx],
		"Limits":     dueLimits[Tx],
		"LargeFirst": dueLargeFirst[Tx],
	}
}

const plenty = 1 << 30

// due returns the references in order, and next.
func (s *suite[Tx]) due(limit int, maxBytes int64) ([]string, time.Duration) {
	s.Helper()
	ls, next, err := s.b.Due(s.ctx, consumer, limit, maxBytes)
	must(s, err)
	var out []string
	for _, l := range ls {
		out = append(out, l.Ref)
	}
	return out, next
}

func (s *suite[Tx]) wantDue(want ...string) {
	s.Helper()
	have, _ := s.due(100, plenty)
	equal(s, "due", have, want)
}

func waiting(ref string, delay time.Duration) store.Parking {
	p := parking(ref, store.StateRetry)
	p.Delay = delay
	return p
}

// numberedLetter is one of a key in order.
func numberedLetter(key string, number int64, state store.State) store.Parking {
	p := parking(key+strconv.FormatInt(number, 10), state)
	p.Message.Key, p.Number = key, number
	return p
}

func dueOrder[Tx any](s *suite[Tx]) {
	s.wantDue()
	s.park(waiting("b", -time.Minute), waiting("a", -time.Hour), waiting("c", -time.Second), waiting("later", time.Hour))
	s.wantDue("a", "b", "c")
	ls, _, err := s.b.Due(s.ctx, consumer, 1, plenty)
	must(s, err)
	if len(ls) != 1 || string(ls[0].Message.Body) != "a" || ls[0].Version < 1 || ls[0].Consumer != consumer {
		s.Errorf("due letters come without what is needed to run them: %+v", ls)
	}
	if ls, next, err := s.b.Due(s.ctx, stranger, 100, plenty); err != nil || len(ls) > 0 || next != -1 {
		s.Errorf("due for another consumer: %+v, %v, %v", ls, next, err)
	}
}

func dueNext[Tx any](s *suite[Tx]) {
	if _, next := s.due(100, plenty); next != -1 {
		s.Errorf("next without letters is %v, want -1", next)
	}
	s.park(waiting("now", 0))
	if have, next := s.due(100, plenty); len(have) != 1 || next != -1 {
		s.Errorf("a retry without delay: due %v, next %v", have, next)
	}
	s.park(waiting("day", 24*time.Hour), waiting("hour", time.Hour))
	if have, next := s.due(100, plenty); len(have) != 1 || next > time.Hour || next < 59*time.Minute {
		s.Errorf("the next retry is due in an hour; Due says %v, next %v", have, next)
	}
	if _, next := s.due(0, plenty); next != 0 {
		s.Errorf("a due letter was left out by the limit; next is %v, want 0", next)
	}
}

func dueStates[Tx any](s *suite[Tx]) {
	for _, st := range []store.State{
		store.StateDead, store.StateEdited, store.StateApproved, store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded,
	} {
		s.park(waitingIn(st))
	}
	s.wantDue()
}

func waitingIn(st store.State) store.Parking {
	p := parking(string(st), st)
	p.Delay = -time.Hour
	return p
}

// dueHeads has several keys in order; only the first open letter of each may
// run, and only if it waits for nothing else.
func dueHeads[Tx any](s *suite[Tx]) {
	ps := []store.Parking{
		numberedLetter("a", 1, store.StateApplied), // closed: out of the way
		numberedLetter("a", 2, store.StateHeld),    // the head
		numberedLetter("a", 3, store.StateHeld),
		numberedLetter("b", 1, store.StateDead), // a dead head holds the rest
		numberedLetter("b", 2, store.StateHeld),
		numberedLetter("c", 1, store.StateRetry), // a head that waits an hour
		numberedLetter("c", 2, store.StateHeld),
		numberedLetter("c", 3, store.StateRetry),
		numberedLetter("d", 1, store.StateRetry), // a head that is due
		numberedLetter("d", 2, store.StateRetry),
		numberedLetter("e", 0, store.StateRetry), // not in order
		numberedLetter("f", 1, store.StateDiscarded),
		numberedLetter("f", 2, store.StateRetry), // the head, since the first is closed
		numberedLetter("b", 0, store.StateRetry), // not in order, whatever its key holds
	}
	for i := range ps {
		ps[i].Delay = -time.Minute
	}
	ps[5].Delay = time.Hour
	for _, p := range ps {
		s.behind(p.Message.Key, 1)
		s.park(p)
	}
	have, next := s.due(100, plenty)
	slices.Sort(have)
	equal(s, "due", have, []string{"a2", "b0", "d1", "e0", "f2"})
	if next <= 59*time.Minute || next > time.Hour {
		s.Errorf("next is %v, want an hour", next)
	}
}

func dueHeadMoves[Tx any](s *suite[Tx]) {
	for n := range int64(3) {
		s.behind("k", 1)
		s.park(numberedLetter("k", n+1, store.StateHeld))
	}
	s.wantDue("k1")
	s.move(store.Move{Ref: "k1", Version: s.letters()["k1"].Version, To: store.StateApplied, Number: 1})
	s.wantDue("k2")
	s.move(store.Move{Ref: "k2", Version: s.letters()["k2"].Version, To: store.StateDead, Number: 2})
	s.wantDue()
	s.move(store.Move{Ref: "k2", Version: s.letters()["k2"].Version, To: store.StateDead}) // out of order: lets go
	s.wantDue("k3")
}

func dueLimits[Tx any](s *suite[Tx]) {
	var ps []store.Parking
	for i := range 9 {
		p := waiting(strconv.Itoa(i), time.Duration(i-20)*time.Minute)
		p.Message.Body = make([]byte, 10)
		ps = append(ps, p)
	}
	s.park(ps...)
	for _, c := range []struct {
		limit int
		bytes int64
		want  int
	}{{4, plenty, 4}, {100, 35, 3}, {2, 35, 2}, {100, 90, 9}} {
		have, next := s.due(c.limit, c.bytes)
		if len(have) != c.want || c.want > 0 && have[c.want-1] != strconv.Itoa(c.want-1) {
			s.Errorf("limits of %d letters and %d bytes gave %v", c.limit, c.bytes, have)
		}
		if left := c.want < 9; left != (next == 0) {
			s.Errorf("limits of %d letters and %d bytes: next is %v", c.limit, c.bytes, next)
		}
	}
}

// dueLargeFirst has a letter larger than the limit: it must run all the same.
func dueLargeFirst[Tx any](s *suite[Tx]) {
	p := waiting("large", -time.Hour)
	p.Message.Body = make([]byte, 1000)
	s.park(p, waiting("small", -time.Minute))
	have, next := s.due(100, 10)
	equal(s, "due", have, []string{"large"})
	equal(s, "next", next, time.Duration(0))
}
