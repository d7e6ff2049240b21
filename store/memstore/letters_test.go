package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

func parking(ref string, st store.State, number int64, delay time.Duration) store.Parking {
	return store.Parking{Delay: delay, Letter: store.Letter{
		Ref: ref, Consumer: "c", State: st, Number: number,
		Message: semel.Message{ID: "id-" + ref, Key: "k", Body: []byte(ref), Header: semel.Header{{Name: "h", Value: []byte("v")}}},
	}}
}

func park(t *testing.T, s *memstore.Store, p ...store.Parking) (exists []int) {
	t.Helper()
	do(t, s, func(tx *memstore.Tx) (err error) {
		exists, err = s.Park(t.Context(), tx, p, nil)
		return err
	})
	return exists
}

func move(t *testing.T, s *memstore.Store, m ...store.Move) (missed []int) {
	t.Helper()
	do(t, s, func(tx *memstore.Tx) (err error) {
		missed, err = s.Move(t.Context(), tx, "c", m, nil)
		return err
	})
	return missed
}

func refs(ls []store.Letter) (out []string) {
	for _, l := range ls {
		out = append(out, l.Ref)
	}
	return out
}

func due(t *testing.T, s *memstore.Store, limit int, bytes int64) ([]string, time.Duration) {
	t.Helper()
	ls, next, err := s.Due(t.Context(), "c", limit, bytes)
	must(t, err)
	return refs(ls), next
}

func TestLettersOutliveTheirDelivery(t *testing.T) {
	s := memstore.New()
	p := parking("a", store.StateRetry, 0, 0)
	park(t, s, p)
	copy(p.Message.Body, "x")
	copy(p.Message.Header[0].Value, "x")
	for range 2 { // what a reader does to its copy is its own affair
		ls, err := s.List(t.Context(), store.Query{Consumer: "c", Bodies: true})
		must(t, err)
		want(t, "letter", fmt.Sprintf("%s %s", ls[0].Message.Body, ls[0].Message.Header[0].Value), "a v")
		copy(ls[0].Message.Body, "y")
		copy(ls[0].Message.Header[0].Value, "y")
	}
}

func TestParkTwice(t *testing.T) {
	s := memstore.New()
	want(t, "first", park(t, s, parking("a", store.StateDead, 0, 0)), []int(nil))
	want(t, "second", park(t, s, parking("b", store.StateDead, 0, 0), parking("a", store.StateRetry, 0, 0), parking("b", store.StateDead, 0, 0)), []int{1, 2})
	want(t, "closed", move(t, s, store.Move{Ref: "a", Version: 1, To: store.StateApplied}, store.Move{Ref: "b", Version: 1, To: store.StateDiscarded}), []int(nil))
	want(t, "third", park(t, s, parking("a", store.StateRetry, 0, 0), parking("b", store.StateRetry, 0, 0)), []int{1})
	ls, err := s.List(t.Context(), store.Query{Consumer: "c", ID: "id-a"})
	must(t, err)
	want(t, "version counted on", ls[0].Version, 3)
}

func TestMoveComparesVersions(t *testing.T) {
	s := memstore.New()
	park(t, s, parking("a", store.StateRetry, 0, time.Minute))
	m := store.Move{
		Ref: "a", Version: 1, To: store.StateDead, Class: store.System, Reason: "exhausted", Attempts: 2,
		Attempt: store.Attempt{N: 2, Error: "boom", Stack: "here", Worker: "w"},
	}
	want(t, "moved", move(t, s, m), []int(nil))
	want(t, "again", move(t, s, m, store.Move{Ref: "none", Version: 1, To: store.StateDead}), []int{0, 1})
	rev := &store.Revised{Message: semel.Message{ID: "new", Body: []byte("b")}, Fingerprint: store.Fingerprint{7}}
	move(t, s, store.Move{Ref: "a", Version: 2, To: store.StateRetry, By: "ann", Note: "fixed", Revised: rev})
	tr, err := s.Trace(t.Context(), "c", "new", "")
	must(t, err)
	l := tr.Letters[0]
	want(t, "letter", fmt.Sprint(l.State, l.Version, l.Class, l.Reason, l.Error, l.Stack, l.Attempts, l.By, l.Note, l.Fingerprint[0]),
		fmt.Sprint("retry", 3, "system", "exhausted", "boom", "here", 2, "ann", "fixed", 7))
	want(t, "attempts", len(tr.Attempts["a"]), 1)
	do(t, s, func(tx *memstore.Tx) error {
		old, err := s.Find(t.Context(), tx, "c", []string{"id-a"}, nil, nil)
		want(t, "under the old id", len(old), 0)
		return err
	})
}

func TestRolledBackLetters(t *testing.T) {
	s := memstore.New()
	park(t, s, parking("a", store.StateRetry, 0, 0))
	boom := errors.New("boom")
	_, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		_, err1 := s.Park(ctx, tx, []store.Parking{parking("b", store.StateRetry, 0, 0)}, nil)
		_, err2 := s.Move(ctx, tx, "c", []store.Move{{Ref: "a", Version: 1, To: store.StateApplied}}, nil)
		must(t, errors.Join(err1, err2))
		got, _ := due(t, s, 10, 0)
		want(t, "a reader meanwhile", got, []string{"a"})
		return boom
	})
	want(t, "error", err, boom)
	do(t, s, func(tx *memstore.Tx) error {
		ls, err := s.Find(t.Context(), tx, "c", []string{"id-a", "id-b"}, []string{"a", "b"}, nil)
		want(t, "found", refs(ls), []string{"a"})
		want(t, "version", ls[0].Version, 1)
		want(t, "body", ls[0].Message.Body == nil, true)
		return err
	})
}

func TestAny(t *testing.T) {
	s := memstore.New()
	any := func() (some bool) {
		do(t, s, func(tx *memstore.Tx) (err error) {
			some, err = s.Any(t.Context(), tx, "c")
			return err
		})
		return some
	}
	want(t, "none", any(), false)
	park(t, s, parking("a", store.StateDead, 0, 0))
	want(t, "one", any(), true)
	move(t, s, store.Move{Ref: "a", Version: 1, To: store.StateDiscarded})
	purged, err := s.Purge(t.Context(), store.Purge{Consumer: "c"})
	must(t, err)
	want(t, "purged", purged.Letters, 1)
	want(t, "none again", any(), false)
}

func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		_, next := due(t, s, 10, 0)
		want(t, "nothing", next, -1)
		head := parking("head", store.StateRetry, 1, 2*time.Minute)
		held := parking("held", store.StateHeld, 2, 0)
		late := parking("late", store.StateRetry, 0, time.Hour)
		soon := parking("soon", store.StateRetry, 0, time.Minute)
		park(t, s, late, soon, held, head, parking("dead", store.StateDead, 0, 0))
		got, next := due(t, s, 10, 0)
		want(t, "now", got, []string(nil))
		want(t, "next", next, time.Minute)
		time.Sleep(2 * time.Minute)
		got, next = due(t, s, 10, 0)
		want(t, "two are due", got, []string{"soon", "head"})
		want(t, "next", next, 58*time.Minute)
		got, next = due(t, s, 1, 0)
		want(t, "limited", got, []string{"soon"})
		want(t, "more at once", next, 0)
		got, _ = due(t, s, 10, 3) // smaller than the first
		want(t, "limited by size", got, []string{"soon"})
		move(t, s, store.Move{Ref: "head", Version: 1, To: store.StateDead, Number: 1})
		got, _ = due(t, s, 10, 0)
		want(t, "behind a dead head", got, []string{"soon"})
		move(t, s, store.Move{Ref: "head", Version: 2, To: store.StateDead})
		got, _ = due(t, s, 10, 0)
		want(t, "released", got, []string{"held", "soon"})
	})
}

func TestNote(t *testing.T) {
	s := memstore.New()
	park(t, s, parking("a", store.StateDead, 0, 0))
	rev := func(n byte) store.Revision {
		return store.Revision{Ref: "a", By: "source", Message: semel.Message{Body: []byte{n}}, Fingerprint: store.Fingerprint{n}}
	}
	do(t, s, func(tx *memstore.Tx) error {
		return s.Note(t.Context(), tx, "c", []string{"a", "a", "none"}, []store.Revision{rev(1), rev(2), rev(1), {Ref: "none"}})
	})
	ls, err := s.List(t.Context(), store.Query{Consumer: "c"})
	must(t, err)
	want(t, "letter", []int64{int64(ls[0].Seen), int64(ls[0].Proposed), ls[0].Version}, []int64{2, 2, 1})
	rs, err := s.Revisions(t.Context(), "c", "a")
	must(t, err)
	want(t, "revisions", fmt.Sprint(len(rs), rs[0].N, rs[1].N, rs[1].Message.Body[0]), "2 2 3 1")
	move(t, s, store.Move{Ref: "a", Version: 1, To: store.StateDiscarded})
	ls, _ = s.List(t.Context(), store.Query{Consumer: "c"})
	want(t, "proposed when closed", ls[0].Proposed, 0)
}

func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		for i := range 5 {
			park(t, s, parking(fmt.Sprint("b", i), store.StateDead, 0, 0), parking(fmt.Sprint("a", i), store.StateRetry, 0, 0))
			time.Sleep(time.Second)
		}
		var all []string
		q := store.Query{Consumer: "c", States: []store.State{store.StateDead}, Limit: 2}
		for {
			ls, err := s.List(t.Context(), q)
			must(t, err)
			if len(ls) == 0 {
				break
			}
			all = append(all, refs(ls)...)
			last := ls[len(ls)-1]
			q.After = store.Cursor{Created: last.Created, Ref: last.Ref}
			move(t, s, store.Move{Ref: last.Ref, Version: 1, To: store.StateDiscarded}) // no longer selected
		}
		want(t, "all", all, []string{"b0", "b1", "b2", "b3", "b4"})
		ls, err := s.List(t.Context(), store.Query{Consumer: "c", Ref: "a", Key: "k"})
		must(t, err)
		want(t, "by prefix", refs(ls), []string{"a0", "a1", "a2", "a3", "a4"})
	})
}

func TestFences(t *testing.T) {
	s := memstore.New()
	scope := func(inc string) semel.Scope { return semel.Scope{Name: "s", Incarnation: inc} }
	assign := func(st store.Start) store.Fence {
		fs, err := s.Assign(t.Context(), "c", "w", []store.Start{st})
		must(t, err)
		return fs[0]
	}
	f := assign(store.Start{Scope: scope("1"), Create: store.CreateNever})
	want(t, "not created", []any{f.Fresh, f.Epoch}, []any{true, 0})
	f = assign(store.Start{Scope: scope("1"), At: semel.Offset{Lo: 5}, Create: store.CreateFirst})
	want(t, "created", []any{f.Fresh, f.Epoch, f.Next.Lo, f.Clean}, []any{true, 1, 5, true})
	second := assign(store.Start{Scope: scope("1"), Create: store.CreateNever})
	want(t, "unclean", []any{second.Fresh, second.Epoch, second.Next.Lo, second.Clean}, []any{false, 2, 5, false})
	f2 := assign(store.Start{Scope: scope("2"), Create: store.CreateFirst})
	want(t, "another incarnation", []any{f2.Epoch, f2.Other}, []any{0, "1"})
	f2 = assign(store.Start{Scope: scope("2")})
	want(t, "created anyway", []any{f2.Epoch, f2.Other}, []any{1, "1"})
	var lost []int
	step := func(epoch, from, to int64) store.Advance {
		return store.Advance{Scope: scope("1"), Epoch: epoch, From: semel.Offset{Lo: from}, To: semel.Offset{Lo: to}}
	}
	do(t, s, func(tx *memstore.Tx) (err error) {
		lost, err = s.Advance(t.Context(), tx, "c", []store.Advance{step(1, 5, 6), step(2, 4, 6), step(2, 5, 6)}, nil)
		return err
	})
	want(t, "lost", lost, []int{0, 1})
	must(t, s.Leave(t.Context(), "c", []store.Fence{f}))
	st, err := s.Status(t.Context(), "c", false)
	must(t, err)
	want(t, "left under an older epoch", slices.IndexFunc(st.Fences, func(f store.Fence) bool { return f.Clean }), -1)
	must(t, s.Leave(t.Context(), "c", []store.Fence{second}))
	third := assign(store.Start{Scope: scope("1")})
	want(t, "after leaving", []any{third.Clean, third.Next.Lo, third.Other}, []any{true, 6, "2"})
}

func TestHolds(t *testing.T) {
	s := memstore.New()
	do(t, s, func(tx *memstore.Tx) error {
		h, err := s.Append(t.Context(), tx, "c", "k", 2)
		want(t, "first", h, store.Hold{Key: "k", Size: 2, Tail: 2})
		must(t, err)
		must(t, s.Release(t.Context(), tx, "c", "k", 1))
		h, err = s.Append(t.Context(), tx, "c", "k", 1)
		want(t, "third", h, store.Hold{Key: "k", Size: 2, Tail: 3})
		must(t, err)
		hs, err := s.Lock(t.Context(), tx, "c", []string{"free", "k"}, nil)
		want(t, "locked", hs, []store.Hold{h})
		must(t, err)
		return s.Release(t.Context(), tx, "c", "k", 2)
	})
	do(t, s, func(tx *memstore.Tx) error {
		hs, err := s.Lock(t.Context(), tx, "c", []string{"k"}, nil)
		want(t, "free", len(hs), 0)
		want(t, "class", s.Classify(s.Release(t.Context(), tx, "c", "k", 1)), semel.ClassFault)
		return err
	})
}

func record(id string, v semel.Verdict) store.Record {
	return store.Record{ID: id, Verdict: v, Bucket: 1, Hash: store.Hash("c", id)}
}

func tally(account string, n int64, ids ...string) store.Tally {
	l := store.Tally{Account: account, Bucket: 1, N: n}
	for _, id := range ids {
		l.Sum += store.Hash("c", id)
	}
	return l
}

func TestRecordsAndLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		must(t, s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1, Identity: map[string]string{"inbox": "table"}}))
		balance := func() []store.Imbalance {
			st, err := s.Status(t.Context(), "c", true)
			must(t, err)
			return st.Imbalances
		}
		do(t, s, func(tx *memstore.Tx) error {
			prior, err := s.Claim(t.Context(), tx, "c", []store.Record{record("a", semel.Applied), record("b", semel.Parked)}, nil)
			want(t, "prior", len(prior), 0)
			return err
		})
		want(t, "unbooked", len(balance()), 2)
		do(t, s, func(tx *memstore.Tx) error {
			prior, err := s.Claim(t.Context(), tx, "c", []store.Record{record("b", semel.Applied), record("d", semel.Filtered)}, nil)
			want(t, "prior", prior, []store.Prior{{I: 0, Record: record("b", semel.Parked)}})
			return errors.Join(err,
				s.Count(t.Context(), tx, "c", []store.Tally{tally("applied", 1, "a"), tally("parked", 1, "b"), tally("filtered", 1, "d")}))
		})
		want(t, "booked", balance(), []store.Imbalance(nil))
		do(t, s, func(tx *memstore.Tx) error {
			_, err := s.Claim(t.Context(), tx, "c", []store.Record{record("", semel.Applied)}, nil)
			want(t, "class of an empty id", s.Classify(err), semel.ClassPermanent)
			return nil
		})
		time.Sleep(time.Hour)
		p, err := s.Purge(t.Context(), store.Purge{Consumer: "c", Keep: time.Minute, Limit: 1})
		must(t, err)
		want(t, "one step", p.Records, 1)
		p, err = s.Purge(t.Context(), store.Purge{Consumer: "c", Keep: time.Minute})
		must(t, err)
		want(t, "the rest, but not what is parked", p.Records, 1)
		want(t, "purged", balance(), []store.Imbalance(nil))
		do(t, s, func(tx *memstore.Tx) error {
			return errors.Join(s.Record(t.Context(), tx, "c", []store.Record{record("b", semel.Applied), record("gone", semel.Applied)}),
				s.Count(t.Context(), tx, "c", []store.Tally{{Account: "parked", Bucket: 1, N: -1, Sum: -store.Hash("c", "b")}, tally("applied", 1, "x")}))
		})
		want(t, "other ids in equal number", balance(), []store.Imbalance{{Account: "applied", Bucket: 1, Ledger: 1, Rows: 1}})
	})
}

func TestPurgeKeepsWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		fs, err := s.Assign(t.Context(), "c", "w", []store.Start{{Scope: semel.Scope{Name: "left"}}, {Scope: semel.Scope{Name: "owned"}}})
		must(t, err)
		must(t, s.Leave(t.Context(), "c", fs[:1]))
		park(t, s, parking("open", store.StateDead, 0, 0), parking("closed", store.StateRetry, 0, 0))
		do(t, s, func(tx *memstore.Tx) error {
			_, err := s.Claim(t.Context(), tx, "c", []store.Record{record("id-open", semel.Applied)}, nil)
			return errors.Join(err, s.SetVersions(t.Context(), tx, "c", []store.Versioned{{Key: "k", ID: "x"}}))
		})
		time.Sleep(time.Hour)
		move(t, s, store.Move{Ref: "closed", Version: 1, To: store.StateApplied})
		step := func() store.Purged {
			p, err := s.Purge(t.Context(), store.Purge{Consumer: "c", Keep: time.Hour})
			must(t, err)
			return p
		}
		want(t, "first", step(), store.Purged{Fences: 1})
		time.Sleep(time.Hour)
		want(t, "second", step(), store.Purged{Letters: 1})
		want(t, "third", step(), store.Purged{})
		do(t, s, func(tx *memstore.Tx) error {
			vs, err := s.Versions(t.Context(), tx, "c", []string{"k", "none"}, nil)
			want(t, "versions", len(vs), 1)
			return err
		})
	})
}

func TestSuspects(t *testing.T) {
	s := memstore.New()
	u := store.Suspect{Unit: "u", Limit: 8, Left: 3}
	do(t, s, func(tx *memstore.Tx) error {
		return s.Suspect(t.Context(), tx, "c", []store.Suspect{u, {Unit: "v", Limit: 1}})
	})
	do(t, s, func(tx *memstore.Tx) error { return s.Suspect(t.Context(), tx, "c", []store.Suspect{{Unit: "v"}}) })
	do(t, s, func(tx *memstore.Tx) error {
		us, err := s.Suspects(t.Context(), tx, "c", []string{"u", "v"}, nil)
		want(t, "suspects", us, []store.Suspect{u})
		return err
	})
	st, err := s.Status(t.Context(), "c", false)
	must(t, err)
	want(t, "in the status", st.Suspects, []store.Suspect{u})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		park(t, s, parking("a", store.StateRetry, 0, time.Hour), parking("b", store.StateRetry, 0, time.Minute), parking("d", store.StateDead, 0, 0))
		do(t, s, func(tx *memstore.Tx) error {
			_, err := s.Append(t.Context(), tx, "c", "small", 1)
			_, err2 := s.Append(t.Context(), tx, "c", "large", 5)
			return errors.Join(err, err2, s.Count(t.Context(), tx, "c", []store.Tally{{Account: store.AccountOpened, N: 4}}))
		})
		st, err := s.Status(t.Context(), "c", true)
		must(t, err)
		want(t, "letters", st.Letters, map[store.State]int64{store.StateRetry: 2, store.StateDead: 1})
		want(t, "next due", time.Until(st.NextDue), time.Minute)
		want(t, "holds", []any{st.HoldKeys, st.Holds[0].Key}, []any{2, "large"})
		want(t, "imbalances", st.Imbalances, []store.Imbalance{{Account: store.AccountOpened, Ledger: 4, Rows: 3}})
		other, err := s.Status(t.Context(), "other", true)
		must(t, err)
		want(t, "another consumer", len(other.Letters)+len(other.Holds)+len(other.Imbalances), 0)
	})
}
