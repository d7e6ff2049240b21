package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func purgeTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Keeps":   purgeKeeps[Tx],
		"Records": purgeRecords[Tx],
		"Steps":   purgeSteps[Tx],
		"Letters": purgeLetters[Tx],
		"Fences":  purgeFences[Tx],
		"Workers": purgeWorkers[Tx],
		"Nobody":  purgeNobody[Tx],
	}
}

// purge runs steps until one removes nothing. A keep of 0 takes every row that
// is not newer than now.
func (s *suite[Tx]) purge(b store.Backend[Tx], p store.Purge) (sum store.Purged) {
	s.Helper()
	for range 10_000 {
		step, err := b.Purge(s.ctx, p)
		must(s, err)
		if !step.More() {
			return sum
		}
		sum.Records += step.Records
		sum.Letters += step.Letters
		sum.Fences += step.Fences
		sum.Workers += step.Workers
		sum.Effects += step.Effects
	}
	s.Fatal("purging does not end")
	return sum
}

// purgeKeeps has rows of every kind that are not old enough.
func purgeKeeps[Tx any](s *suite[Tx]) {
	s.enlistTable()
	s.in(func(tx Tx) error { return s.counted(tx, mixedRecords()...) })
	s.park(parking("a", store.StateApplied))
	f := s.assign(s.b, worker, store.Start{Scope: scope("a")})
	must(s, s.b.Leave(s.ctx, consumer, []store.Fence{f}))
	equal(s, "removed before the time", s.purge(s.other(), store.Purge{Consumer: consumer, Keep: time.Hour}), store.Purged{})
	equal(s, "removed of another consumer", s.purge(s.b, store.Purge{Consumer: stranger}), store.Purged{})
	equal(s, "workers", len(s.workers()), 1)
}

func purgeRecords[Tx any](s *suite[Tx]) {
	s.enlistTable()
	rs := mixedRecords()
	s.in(func(tx Tx) error { return s.counted(tx, rs...) })
	out := s.purge(s.b, store.Purge{Consumer: consumer})
	equal(s, "records removed: all but those with an open letter", out.Records, int64(12))
	equal(s, "imbalances", s.status(true).Imbalances, []store.Imbalance(nil))
	var purged int64
	for _, l := range s.status(false).Ledger {
		if l.Account == "purged_applied" || l.Account == "purged_superseded" || l.Account == "purged_filtered" || l.Account == "purged_discarded" {
			purged += l.N
		}
	}
	equal(s, "purged in the ledger", purged, int64(12))
	slices.SortFunc(rs, byID)
	for _, p := range s.claim(rs) {
		if p.Verdict != semel.Parked {
			s.Errorf("the record %+v is still there", p.Record)
		}
	}
}

// purgeSteps has more rows than one step may take, and rows that were claimed
// while purging went on.
func purgeSteps[Tx any](s *suite[Tx]) {
	s.claim(numbered(250))
	p := store.Purge{Consumer: consumer, Limit: 40}
	first, err := s.b.Purge(s.ctx, p)
	must(s, err)
	if first.Records < 1 || first.Records > 40 {
		s.Errorf("a step of at most 40 removed %d", first.Records)
	}
	s.claim([]store.Record{{ID: "id-000000x"}, {ID: "zzz"}})
	rest := s.purge(s.b, p)
	again := s.purge(s.b, p) // rows behind the walk
	equal(s, "records removed", first.Records+rest.Records+again.Records, int64(252))
	equal(s, "purged again", s.purge(s.other(), p), store.Purged{})
}

func purgeLetters[Tx any](s *suite[Tx]) {
	for _, st := range []store.State{
		store.StateRetry, store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved,
		store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded,
	} {
		p := waiting(string(st), time.Hour)
		p.State, p.Attempt = st, store.Attempt{N: 1}
		s.park(p)
		s.in(func(tx Tx) error {
			return s.b.Note(s.ctx, tx, consumer, nil, []store.Revision{{Ref: p.Ref, Fingerprint: store.Fingerprint{1}}})
		})
	}
	before := s.status(false).Ledger
	equal(s, "letters removed", s.purge(s.b, store.Purge{Consumer: consumer, Limit: 3}).Letters, int64(4))
	ls, err := s.b.List(s.ctx, store.Query{Consumer: consumer})
	must(s, err)
	equal(s, "letters left", refs(ls), []string{"approved", "dead", "edited", "held", "retry"})
	equal(s, "the ledger of letters", s.status(false).Ledger, before)
	tr, err := s.b.Trace(s.ctx, consumer, "id of applied", "")
	if err != nil || len(tr.Attempts["applied"]) > 0 {
		s.Errorf("attempts of a purged letter: %+v, %v", tr.Attempts, err)
	}
	s.park(parking("applied", store.StateDead)) // may come again
	if rs, err := s.b.Revisions(s.ctx, consumer, "applied"); err != nil || len(rs) > 0 {
		s.Errorf("a new letter has the revisions of a purged one: %+v, %v", rs, err)
	}
}

func purgeFences[Tx any](s *suite[Tx]) {
	var left []store.Fence
	for i := range 5 {
		f := s.assign(s.b, worker, store.Start{Scope: scope(fmt.Sprint("left", i))})
		left = append(left, f)
	}
	s.assign(s.b, worker, store.Start{Scope: scope("owned")})
	must(s, s.b.Leave(s.ctx, consumer, left))
	equal(s, "fences removed though they are to stay", s.purge(s.b, store.Purge{Consumer: consumer, KeepScopes: true}).Fences, int64(0))
	equal(s, "fences removed", s.purge(s.b, store.Purge{Consumer: consumer, Limit: 2}).Fences, int64(5))
	st := s.status(false)
	if len(st.Fences) != 1 || st.Fences[0].Scope != scope("owned") {
		s.Errorf("fences left: %+v", st.Fences)
	}
}

// purgeWorkers purges the marks of a worker from another process: a store may
// know that its own workers live.
func purgeWorkers[Tx any](s *suite[Tx]) {
	s.enlist(worker, 2)
	equal(s, "marks removed", s.purge(s.other(), store.Purge{Consumer: consumer}).Workers, int64(2))
	equal(s, "marks left", len(s.workers()), 0)
	refused(s, mark(1))
}

func purgeNobody[Tx any](s *suite[Tx]) {
	equal(s, "removed", s.purge(s.b, store.Purge{Consumer: "nobody", Keep: time.Hour}), store.Purged{})
}
