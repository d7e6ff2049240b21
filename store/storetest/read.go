package storetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func listTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Filters": listFilters[Tx],
		"Pages":   listPages[Tx],
		"Bodies":  listBodies[Tx],
		"Order":   listOrder[Tx],
		"Large":   listLarge[Tx],
		"Groups":  groups[Tx],
		"Causes":  causes[Tx],
	}
}

func listFilters[Tx any](s *suite[Tx]) {
	mk := func(ref, id, key string, st store.State, c store.Class) store.Parking {
		return store.Parking{Letter: store.Letter{Ref: ref, Consumer: consumer, State: st, Class: c, Message: semel.Message{ID: id, Key: key}}}
	}
	ps := []store.Parking{
		mk("aa1", "x", "k", store.StateDead, store.Format),
		mk("aa2", "y", "k", store.StateRetry, store.System),
		mk("ab1", "z", "K", store.StateDead, store.Business),
		mk("b\xff\xff", "x", "", store.StateApplied, ""),
		mk("b\xff", "", "", store.StateHeld, ""),
	}
	ps[0].Cause.ID, ps[1].Cause.ID, ps[2].Cause.ID = "c1", "c1", "c2"
	ps[1].Reason, ps[2].Message.Type = "why", "t"
	s.park(ps...)
	of := mk("aa1", "x", "k", store.StateDead, store.Format)
	of.Consumer = stranger
	s.park(of)
	for _, c := range []struct {
		q    store.Query
		want []string
	}{
		{store.Query{Consumer: consumer}, []string{"aa1", "aa2", "ab1", "b\xff", "b\xff\xff"}},
		{store.Query{}, []string{}},
		{store.Query{Consumer: "nobody"}, []string{}},
		{store.Query{Consumer: consumer, States: []store.State{store.StateDead, store.StateHeld}}, []string{"aa1", "ab1", "b\xff"}},
		{store.Query{Consumer: consumer, Class: store.Format}, []string{"aa1"}},
		{store.Query{Consumer: consumer, ID: "x"}, []string{"aa1", "b\xff\xff"}},
		{store.Query{Consumer: consumer, Key: "k"}, []string{"aa1", "aa2"}},
		{store.Query{Consumer: consumer, Ref: "aa"}, []string{"aa1", "aa2"}},
		{store.Query{Consumer: consumer, Ref: "b\xff"}, []string{"b\xff", "b\xff\xff"}},
		{store.Query{Consumer: consumer, Ref: "%"}, []string{}},
		{store.Query{Consumer: consumer, Reason: "why"}, []string{"aa2"}},
		{store.Query{Consumer: consumer, Reason: "Why"}, []string{}},
		{store.Query{Consumer: consumer, Type: "t"}, []string{"ab1"}},
		{store.Query{Consumer: consumer, Cause: "c1"}, []string{"aa1", "aa2"}},
		{store.Query{Consumer: consumer, Cause: "c"}, []string{"aa1", "aa2", "ab1"}},
		{store.Query{Consumer: consumer, Cause: "c1", Ref: "aa2"}, []string{"aa2"}},
		{store.Query{Consumer: consumer, Cause: "c1", States: []store.State{store.StateDead}}, []string{"aa1"}},
		{store.Query{Consumer: consumer, Cause: "c3"}, []string{}},
		{store.Query{Consumer: consumer, Ref: "aa", States: []store.State{store.StateRetry}, Key: "k", ID: "y", Class: store.System}, []string{"aa2"}},
	} {
		ls, err := s.b.List(s.ctx, c.q)
		must(s, err)
		equal(s, fmt.Sprintf("letters by %+v", c.q), refs(ls), c.want)
	}
}

func listPages[Tx any](s *suite[Tx]) {
	const all = 130
	var want []string
	for i := range all { // in several transactions, so that their times differ
		ref := strconv.Itoa((i*37)%all + 1000)
		want = append(want, ref)
		if i%13 == 12 {
			var ps []store.Parking
			for _, r := range want[i-12:] {
				ps = append(ps, parking(r, store.StateDead))
			}
			s.park(ps...)
		}
	}
	ls, err := s.b.List(s.ctx, store.Query{Consumer: consumer})
	must(s, err)
	equal(s, "the default limit", len(ls), 100)
	if !slices.IsSortedFunc(ls, func(a, b store.Letter) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Ref, b.Ref)) }) {
		s.Error("letters are not in the order of creation and reference")
	}
	slices.Sort(want)
	equal(s, "letters by pages", refs(s.pages(store.Query{Consumer: consumer, Limit: 7}, nil)), want)
	equal(s, "letters by pages of one state", refs(s.pages(store.Query{Consumer: consumer, States: []store.State{store.StateDead}, Limit: 50}, nil)), want)
	// What is taken out of the selection meanwhile moves nothing.
	have := s.pages(store.Query{Consumer: consumer, States: []store.State{store.StateDead, store.StateHeld}, Limit: 9}, func(page []store.Letter) {
		for _, l := range page {
			s.move(store.Move{Ref: l.Ref, Version: l.Version, To: store.StateDiscarded})
		}
	})
	equal(s, "letters by pages that are closed meanwhile", refs(have), want)
}

// pages lists all letters of a query.
func (s *suite[Tx]) pages(q store.Query, seen func([]store.Letter)) (all []store.Letter) {
	s.Helper()
	for {
		page, err := s.b.List(s.ctx, q)
		must(s, err)
		if len(page) == 0 {
			return all
		}
		if len(page) > q.Limit || len(all) > 10_000 {
			s.Fatalf("a page of %d letters after %d", len(page), len(all))
		}
		if seen != nil {
			seen(page)
		}
		all = append(all, page...)
		last := page[len(page)-1]
		q.After = store.Cursor{Created: last.Created, Ref: last.Ref}
	}
}

// listOrder merges several states and causes: the order is that of creation.
func listOrder[Tx any](s *suite[Tx]) {
	var want []string
	for i := range 30 {
		p := parking(strconv.Itoa(100-i), store.States()[i%len(store.States())])
		p.Cause.ID = "c" + strconv.Itoa(i%3)
		want = append(want, p.Ref)
		s.park(p)
		for time.Since(s.letters()[p.Ref].Created) < 2*time.Millisecond { //nolint:revive // until the clock has moved on
		}
	}
	for _, limit := range []int{1, 4, 100} {
		for _, q := range []store.Query{{Consumer: consumer, Limit: limit}, {Consumer: consumer, Limit: limit, Cause: "c"}} {
			var have []string
			for _, l := range s.pages(q, nil) {
				have = append(have, l.Ref)
			}
			equal(s, fmt.Sprintf("letters in order, %d a page", limit), have, want)
		}
	}
}

// listLarge has bodies that do not fit a page together.
func listLarge[Tx any](s *suite[Tx]) {
	want := []string{"large1", "large2", "large3", "small1", "small2"}
	for _, ref := range want {
		p := parking(ref, store.StateDead)
		if ref < "m" {
			p.Message.Body = make([]byte, store.MaxPageBytes*3/5)
		}
		s.park(p)
	}
	for _, bodies := range []bool{false, true} {
		longest := 0
		have := s.pages(store.Query{Consumer: consumer, Bodies: bodies, Limit: 10}, func(page []store.Letter) { longest = max(longest, len(page)) })
		equal(s, "letters", refs(have), want)
		if (longest < len(want)) != bodies {
			s.Errorf("bodies asked for: %v; the longest page has %d letters", bodies, longest)
		}
	}
}

func groups[Tx any](s *suite[Tx]) {
	of := func(ref, cause string, st store.State) store.Parking {
		p := parking(ref, st)
		p.Cause, p.Class, p.Reason = store.Cause{ID: cause, Text: "text of " + cause}, store.System, "reason of "+cause
		return p
	}
	held := parking("h", store.StateHeld)
	s.park(of("a", "c1", store.StateDead), of("b", "c1", store.StateDead), of("c", "c1", store.StateApplied), of("d", "c2", store.StateRetry), held)
	stray := of("a", "c1", store.StateDead)
	stray.Consumer = stranger
	s.park(stray)
	group := func(cause string, st store.State, n int64) store.Group {
		return store.Group{Cause: store.Cause{ID: cause, Text: "text of " + cause}, Class: store.System, Reason: "reason of " + cause, State: st, N: n}
	}
	dead, applied, retry := group("c1", store.StateDead, 2), group("c1", store.StateApplied, 1), group("c2", store.StateRetry, 1)
	for _, c := range []struct {
		q    store.Query
		want []store.Group
	}{
		{store.Query{Consumer: consumer}, []store.Group{{State: store.StateHeld, N: 1}, applied, dead, retry}},
		{store.Query{Consumer: "nobody"}, nil},
		{store.Query{Consumer: consumer, Cause: "c1", Limit: 1}, []store.Group{applied, dead}},
		{store.Query{Consumer: consumer, States: []store.State{store.StateDead, store.StateRetry}}, []store.Group{dead, retry}},
		{store.Query{Consumer: consumer, Reason: "reason of c2"}, []store.Group{retry}},
		{store.Query{Consumer: consumer, Class: store.System}, []store.Group{applied, dead, retry}},
		{store.Query{Consumer: consumer, Class: store.Format}, nil},
		{store.Query{Consumer: consumer, ID: "id of c"}, []store.Group{applied}},
		{store.Query{Consumer: consumer, Ref: "c"}, []store.Group{applied}},
	} {
		gs, err := s.b.Groups(s.ctx, c.q)
		must(s, err)
		slices.SortFunc(gs, func(a, b store.Group) int {
			return cmp.Or(cmp.Compare(a.Cause.ID, b.Cause.ID), cmp.Compare(a.State, b.State))
		})
		for i := range gs {
			if failed := gs[i].Cause.ID != ""; !near(gs[i].First) || failed && !near(gs[i].Last) || !failed && !gs[i].Last.IsZero() {
				s.Errorf("group %+v", gs[i])
			}
			gs[i].First, gs[i].Last = time.Time{}, time.Time{}
		}
		equal(s, fmt.Sprintf("groups by %+v", c.q), gs, c.want)
	}
}

// causes: the cause of a letter is that of its last failure; a move without
// one leaves it.
func causes[Tx any](s *suite[Tx]) {
	p := parking("a", store.StateRetry)
	p.Cause = store.Cause{ID: "c1", Text: "first"}
	s.park(p, parking("b", store.StateHeld))
	l := s.letters()["a"]
	equal(s, "the cause, without its text", l.Cause, store.Cause{ID: "c1"})
	if b := s.letters()["b"]; !near(l.Failed) || !b.Failed.IsZero() {
		s.Errorf("failed %v; what never failed: %v", l.Failed, b.Failed)
	}
	step := func(m store.Move, want string) {
		s.Helper()
		m.Ref, m.Version, m.To = "a", l.Version, store.StateDead
		s.move(m)
		l = s.letters()["a"]
		equal(s, "cause", l.Cause.ID, want)
	}
	step(store.Move{Attempt: store.Attempt{N: 2}, Cause: store.Cause{ID: "c2", Text: "second"}, Reason: "r"}, "c2")
	failed := l.Failed
	step(store.Move{By: "ann"}, "c2")
	step(store.Move{Attempt: store.Attempt{N: 3}}, "c2")
	step(store.Move{Cause: store.Cause{ID: "c3"}}, "c2")
	if !l.Failed.Equal(failed) {
		s.Errorf("failed at %v, and at %v after moves that are no failures", failed, l.Failed)
	}
	gs, err := s.b.Groups(s.ctx, store.Query{Consumer: consumer, Cause: "c"})
	must(s, err)
	if len(gs) != 1 || gs[0].Cause != (store.Cause{ID: "c2", Text: "second"}) || gs[0].Reason != "r" {
		s.Errorf("groups %+v", gs)
	}
}

func listBodies[Tx any](s *suite[Tx]) {
	p := parking("a", store.StateDead)
	p.Message.Header = semel.Header{{Name: "h", Value: []byte("v")}}
	s.park(p)
	for _, bodies := range []bool{false, true} {
		ls, err := s.b.List(s.ctx, store.Query{Consumer: consumer, Bodies: bodies})
		must(s, err)
		if len(ls) != 1 || (ls[0].Message.Body != nil) != bodies || (ls[0].Message.Header != nil) != bodies {
			s.Errorf("bodies asked for: %v; letters: %+v", bodies, ls)
		}
	}
}

func statusTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Empty":      statusEmpty[Tx],
		"Counts":     statusCounts[Tx],
		"Balanced":   balanced[Tx],
		"Imbalances": imbalances[Tx],
		"Trace":      trace[Tx],
	}
}

func (s *suite[Tx]) status(rows bool) store.Status {
	s.Helper()
	st, err := s.b.Status(s.ctx, consumer, rows)
	must(s, err)
	return st
}

func statusEmpty[Tx any](s *suite[Tx]) {
	st := s.status(true)
	if len(st.Letters)+len(st.Holds)+len(st.Fences)+len(st.Workers)+len(st.Suspects)+len(st.Ledger)+len(st.Imbalances) > 0 || !st.NextDue.IsZero() || st.HoldKeys != 0 {
		s.Errorf("the status of a consumer that never ran is %+v", st)
	}
	tr, err := s.b.Trace(s.ctx, consumer, "id", "key")
	if err != nil || tr.Record != nil || len(tr.Letters) > 0 || tr.Version != nil || !tr.At.IsZero() {
		s.Errorf("the trace of an unknown id is %+v, %v", tr, err)
	}
}

func statusCounts[Tx any](s *suite[Tx]) {
	s.park(waiting("r1", time.Hour), waiting("r2", 2*time.Hour), parking("d", store.StateDead), parking("x", store.StateDiscarded))
	for i := range 120 {
		s.behind("key"+strconv.Itoa(1000+i), int64(1+i%60))
	}
	a := s.assign(s.b, worker, store.Start{Scope: scope("a"), At: at(3)})
	s.assign(s.b, worker, store.Start{Scope: scope("b")})
	must(s, s.b.Leave(s.ctx, consumer, []store.Fence{a}))
	st := s.status(false)
	equal(s, "letters", st.Letters, map[store.State]int64{store.StateRetry: 2, store.StateDead: 1, store.StateDiscarded: 1})
	if !near(st.NextDue.Add(-time.Hour)) {
		s.Errorf("the next retry is due %v", st.NextDue)
	}
	equal(s, "held keys", st.HoldKeys, int64(120))
	equal(s, "holds", len(st.Holds), 100)
	if !slices.IsSortedFunc(st.Holds, func(a, b store.Hold) int { return cmp.Compare(b.Size, a.Size) }) || st.Holds[0].Size != 60 {
		s.Errorf("holds are not largest first: %+v", st.Holds)
	}
	equal(s, "fences, those with an owner first", st.Fences, []store.Fence{
		{Scope: scope("b"), Epoch: 1, Worker: worker}, {Scope: scope("a"), Epoch: 1, Next: at(3), Clean: true, Worker: worker},
	})
}

// enlistTable says that the consumer keeps inbox rows.
func (s *suite[Tx]) enlistTable() {
	s.Helper()
	must(s, s.b.Enlist(s.ctx, store.Worker{Consumer: consumer, Name: worker, Slots: 1, Identity: map[string]string{"inbox": "table"}}))
}

// counted claims records and counts them as a pipeline does.
func (s *suite[Tx]) counted(tx Tx, rs ...store.Record) error {
	if _, err := s.b.Claim(s.ctx, tx, consumer, rs, nil); err != nil {
		return err
	}
	return s.b.Count(s.ctx, tx, consumer, tallies(rs))
}

func tallies(rs []store.Record) (ts []store.Tally) {
	for _, r := range rs {
		ts = append(ts, store.Tally{Account: r.Verdict.String(), Bucket: r.Bucket, N: 1, Sum: r.Hash})
	}
	return ts
}

func mixedRecords() (rs []store.Record) {
	verdicts := []semel.Verdict{semel.Applied, semel.Superseded, semel.Filtered, semel.Parked, semel.Discarded}
	for i, v := range verdicts {
		for bucket := range int64(3) {
			rs = append(rs, store.Record{ID: fmt.Sprintf("%d-%d", i, bucket), Verdict: v, Bucket: bucket, Hash: math.MaxUint64 - uint64(i)<<40})
		}
	}
	return rs
}

func balanced[Tx any](s *suite[Tx]) {
	s.enlistTable()
	rs := mixedRecords()
	s.in(func(tx Tx) error { return s.counted(tx, rs...) })
	s.park(parking("a", store.StateDead), parking("b", store.StateRetry), parking("c", store.StateApplied))
	s.in(func(tx Tx) error {
		return s.b.Count(s.ctx, tx, consumer, []store.Tally{
			{Account: store.AccountOpened, N: 3}, {Account: store.AccountClosed, N: 1}, {Account: "duplicate", N: 7, Sum: 3},
		})
	})
	moved := rs[9] // parked, bucket 0: its retry is applied
	s.in(func(tx Tx) error {
		after := moved
		after.Verdict = semel.Applied
		if err := s.b.Record(s.ctx, tx, consumer, []store.Record{after}); err != nil {
			return err
		}
		gone := store.Tally{Account: "parked", Bucket: moved.Bucket, N: -1, Sum: -moved.Hash}
		return s.b.Count(s.ctx, tx, consumer, append(tallies([]store.Record{after}), gone))
	})
	equal(s, "imbalances", s.status(true).Imbalances, []store.Imbalance(nil))
}

func imbalances[Tx any](s *suite[Tx]) {
	s.enlistTable()
	count := func(ts ...store.Tally) {
		s.Helper()
		s.in(func(tx Tx) error { return s.b.Count(s.ctx, tx, consumer, ts) })
	}
	is := func(what string, rows bool, want ...store.Imbalance) {
		s.Helper()
		equal(s, what, s.status(rows).Imbalances, want)
	}
	s.in(func(tx Tx) error {
		return s.counted(tx, store.Record{ID: "a", Verdict: semel.Applied, Bucket: 5, Hash: 7}, store.Record{ID: "b", Verdict: semel.Applied, Bucket: 5, Hash: 8})
	})
	is("balanced", true)
	count(store.Tally{Account: "applied", Bucket: 5, N: 1, Sum: 1})
	is("one more in the ledger", true, store.Imbalance{Account: "applied", Bucket: 5, Ledger: 3, Rows: 2})
	is("not looked at", false)
	count(store.Tally{Account: "applied", Bucket: 5, N: -1})
	is("equal numbers, other ids", true, store.Imbalance{Account: "applied", Bucket: 5, Ledger: 2, Rows: 2})
	count(store.Tally{Account: "purged_applied", Bucket: 5, Sum: 1})
	is("purged", true)
	s.claim([]store.Record{{ID: "c", Verdict: semel.Filtered, Bucket: 6}})
	is("a row that nobody counted", true, store.Imbalance{Account: "filtered", Bucket: 6, Rows: 1})
	count(store.Tally{Account: "filtered", Bucket: 6, N: 1})
	s.park(parking("r", store.StateDead))
	is("a letter that nobody counted", false, store.Imbalance{Account: store.AccountOpened, Rows: 1})
	count(store.Tally{Account: store.AccountOpened, N: 1})
	is("counted", true)
}

func trace[Tx any](s *suite[Tx]) {
	s.in(s.everything)
	p := parking("r1", store.StateDead)
	p.Message.ID, p.Message.Key = "id", "k"
	q := p
	q.Ref = "r2"
	s.park(p, q)
	tr, err := s.b.Trace(s.ctx, consumer, "id", "")
	must(s, err)
	if tr.Record == nil || tr.Record.ID != "id" || !near(tr.At) {
		s.Errorf("record %+v at %v", tr.Record, tr.At)
	}
	equal(s, "letters of the id", refs(tr.Letters), []string{"r1", "r2"})
	if tr.Version == nil || tr.Version.Key != "k" {
		s.Errorf("the version of the letter's key is %+v", tr.Version)
	}
}
