package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func recordTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Claim":           claims[Tx],
		"AwkwardIDs":      awkwardIDs[Tx],
		"ManyIDs":         manyIDs[Tx],
		"Strangers":       recordsOfStrangers[Tx],
		"RollbackForgets": rollbackForgets[Tx],
		"Record":          record[Tx],
		"ClaimWaits":      claimWaits[Tx],
		"ClaimWins":       claimWins[Tx],
		"Race":            race[Tx],
		"Ledger":          ledger[Tx],
	}
}

func (s *suite[Tx]) claim(r []store.Record) (prior []store.Prior) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		prior, err = s.b.Claim(s.ctx, tx, consumer, r, nil)
		return err
	})
	return prior
}

func claims[Tx any](s *suite[Tx]) {
	a := store.Record{ID: "a", Fingerprint: store.Fingerprint{1, 0, 255}, Verdict: semel.Applied, Bucket: 20000, Hash: math.MaxUint64}
	c := store.Record{ID: "c", Verdict: semel.Parked, Bucket: -3, Hash: 1 << 63}
	equal(s, "prior of new ids", s.claim([]store.Record{a, c}), []store.Prior(nil))
	again := []store.Record{{ID: "a", Verdict: semel.Filtered}, {ID: "b"}, {ID: "c", Fingerprint: store.Fingerprint{9}}}
	kept := store.Prior{I: 77}
	s.in(func(tx Tx) error {
		prior, err := s.b.Claim(s.ctx, tx, consumer, again, []store.Prior{kept})
		equal(s, "prior, appended, as the rows were", prior, []store.Prior{kept, {I: 0, Record: a}, {I: 2, Record: c}})
		return err
	})
	equal(s, "prior of no ids", s.claim(nil), []store.Prior(nil))
	s.in(func(tx Tx) error { // a row of the same transaction is there as well
		_, err := s.b.Claim(s.ctx, tx, consumer, []store.Record{{ID: "d"}}, nil)
		must(s, err)
		prior, err := s.b.Claim(s.ctx, tx, consumer, []store.Record{{ID: "d"}}, nil)
		equal(s, "prior in the same transaction", prior, []store.Prior{{Record: store.Record{ID: "d"}}})
		return err
	})
}

func byID(a, b store.Record) int { return cmp.Compare(a.ID, b.ID) }

func awkwardIDs[Tx any](s *suite[Tx]) {
	var rs []store.Record
	for i, id := range awkward() {
		rs = append(rs, store.Record{ID: id, Verdict: semel.Applied, Bucket: int64(i)})
	}
	slices.SortFunc(rs, byID)
	equal(s, "prior of ids that all differ", s.claim(rs), []store.Prior(nil))
	prior := s.claim(rs)
	if len(prior) != len(rs) {
		s.Fatalf("of %d ids %d were there", len(rs), len(prior))
	}
	for i, p := range prior {
		if p.I != i || p.Record != rs[i] {
			s.Errorf("id %q came back as %+v", rs[i].ID, p)
		}
	}
}

func numbered(n int) []store.Record {
	rs := make([]store.Record, n)
	for i := range rs {
		id := fmt.Sprintf("id-%06d", i)
		rs[i] = store.Record{ID: id, Verdict: semel.Applied, Hash: store.Hash(consumer, id)}
	}
	return rs
}

func manyIDs[Tx any](s *suite[Tx]) {
	rs := numbered(2000)
	var odd []store.Record
	for i := 1; i < len(rs); i += 2 {
		odd = append(odd, rs[i])
	}
	equal(s, "prior", len(s.claim(odd)), 0)
	prior := s.claim(rs)
	equal(s, "prior", len(prior), len(odd))
	for i, p := range prior {
		if p.I != 2*i+1 || p.Record != odd[i] {
			s.Fatalf("prior %d is %+v", i, p)
		}
	}
}

func recordsOfStrangers[Tx any](s *suite[Tx]) {
	s.claim([]store.Record{{ID: "a"}})
	s.in(func(tx Tx) error {
		prior, err := s.b.Claim(s.ctx, tx, stranger, []store.Record{{ID: "a"}}, nil)
		equal(s, "prior of another consumer", prior, []store.Prior(nil))
		return err
	})
}

func rollbackForgets[Tx any](s *suite[Tx]) {
	s.abort(func(tx Tx) error {
		_, err := s.b.Claim(s.ctx, tx, consumer, []store.Record{{ID: "a"}}, nil)
		return err
	})
	equal(s, "prior after a rollback", s.claim([]store.Record{{ID: "a"}}), []store.Prior(nil))
}

func record[Tx any](s *suite[Tx]) {
	a := store.Record{ID: "a", Fingerprint: store.Fingerprint{1}, Verdict: semel.Parked, Bucket: 3, Hash: 4}
	s.claim([]store.Record{a, {ID: "b", Verdict: semel.Parked}})
	s.in(func(tx Tx) error {
		return s.b.Record(s.ctx, tx, consumer, []store.Record{{ID: "a", Verdict: semel.Superseded}, {ID: "nobody", Verdict: semel.Applied}})
	})
	a.Verdict = semel.Superseded
	prior := s.claim([]store.Record{{ID: "a"}, {ID: "b"}, {ID: "nobody"}})
	equal(s, "records after a change of verdict", prior, []store.Prior{
		{I: 0, Record: a}, {I: 1, Record: store.Record{ID: "b", Verdict: semel.Parked}},
	})
}

// claimWaits has two processes claim an id; the first commits.
func claimWaits[Tx any](s *suite[Tx]) {
	claimed := store.Record{ID: "a", Verdict: semel.Applied, Hash: 5}
	s.meeting(s.claiming(s.b, claimed, nil), nil, func(b store.Backend[Tx]) error {
		var prior []store.Prior
		err := s.alone(b, s.claiming(b, store.Record{ID: "a"}, &prior))
		equal(s, "prior to the second", prior, []store.Prior{{Record: claimed}})
		return err
	})
}

// claimWins is the same, but the first rolls back: the id is free again.
func claimWins[Tx any](s *suite[Tx]) {
	s.meeting(s.claiming(s.b, store.Record{ID: "a"}, nil), errAbort, func(b store.Backend[Tx]) error {
		var prior []store.Prior
		err := s.alone(b, s.claiming(b, store.Record{ID: "a"}, &prior))
		equal(s, "prior to the second", prior, []store.Prior(nil))
		return err
	})
}

func (s *suite[Tx]) claiming(b store.Backend[Tx], r store.Record, prior *[]store.Prior) func(tx Tx) error {
	return func(tx Tx) error {
		p, err := b.Claim(s.ctx, tx, consumer, []store.Record{r}, nil)
		if prior != nil {
			*prior = p
		}
		return err
	}
}

// alone runs a transaction that may meet others, as often as needed.
func (s *suite[Tx]) alone(b store.Backend[Tx], fn func(tx Tx) error) error {
	return patiently(b, func() error {
		_, err := b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error { return fn(tx) })
		return err
	})
}

// race has four workers claim the same ids through two handles: each id is new
// to exactly one.
func race[Tx any](s *suite[Tx]) {
	const workers, batches, size = 4, 8, 25
	ids := numbered(batches * size)
	handles := []store.Backend[Tx]{s.b, s.other()}
	fresh := make([]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := handles[w%2]
			for i := range batches {
				from := (i + w*batches/workers) % batches * size
				var prior []store.Prior
				err := s.alone(b, func(tx Tx) (err error) {
					prior, err = b.Claim(s.ctx, tx, consumer, ids[from:from+size], nil)
					return err
				})
				if err != nil {
					s.Error(err)
					return
				}
				fresh[w] += size - len(prior)
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range fresh {
		sum += n
	}
	if sum != len(ids) {
		s.Errorf("%d ids were new %d times: %v", len(ids), sum, fresh)
	}
}

func ledger[Tx any](s *suite[Tx]) {
	count := func(ts ...store.Tally) func(tx Tx) error {
		return func(tx Tx) error { return s.b.Count(s.ctx, tx, consumer, ts) }
	}
	s.in(count(
		store.Tally{Account: "applied", Bucket: 1, N: 2, Sum: math.MaxUint64},
		store.Tally{Account: "applied", Bucket: 1, N: 3, Sum: 5},
		store.Tally{Account: "applied", Bucket: 0, N: 1, Sum: 1 << 32},
		store.Tally{Account: "letters_opened", N: 1},
	))
	s.abort(count(store.Tally{Account: "applied", Bucket: 1, N: 100, Sum: 100}))
	s.in(count(store.Tally{Account: "applied", Bucket: 1, N: -1, Sum: 1 << 63}, store.Tally{Account: "letters_closed", N: 1}))
	s.in(func(tx Tx) error { return s.b.Count(s.ctx, tx, stranger, []store.Tally{{Account: "applied", N: 9}}) })
	st, err := s.b.Status(s.ctx, consumer, false)
	must(s, err)
	slices.SortFunc(st.Ledger, func(a, b store.Tally) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Bucket, b.Bucket))
	})
	equal(s, "ledger", st.Ledger, []store.Tally{
		{Account: "applied", Bucket: 0, N: 1, Sum: 1 << 32},
		{Account: "applied", Bucket: 1, N: 4, Sum: 4 + 1<<63},
		{Account: "letters_closed", N: 1},
		{Account: "letters_opened", N: 1},
	})
}
