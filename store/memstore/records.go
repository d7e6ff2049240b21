package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

type recordRow struct {
	store.Record
	at time.Time
}

type tallyKey struct {
	consumer, account string
	bucket            int64
}

type tally struct {
	n   int64
	sum uint64
}

// Claim implements store.Records.
func (s *Store) Claim(ctx context.Context, tx *Tx, consumer string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	if err := s.enter(ctx, tx, OpClaim); err != nil {
		return prior, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i, rec := range r {
		if len(rec.ID) == 0 || len(rec.ID) > semel.MaxIDBytes {
			return prior, Errorf(semel.ClassPermanent, "claim: an id has %d bytes; 1 to %d are allowed", len(rec.ID), semel.MaxIDBytes)
		}
		k := key{consumer, rec.ID}
		if have, ok := s.inbox.get(k); ok {
			prior = append(prior, store.Prior{I: i, Record: have.Record})
			continue
		}
		s.inbox.set(k, recordRow{rec, now})
	}
	return prior, nil
}

// Record implements store.Records.
func (s *Store) Record(ctx context.Context, tx *Tx, consumer string, r []store.Record) error {
	if err := s.enter(ctx, tx, OpRecord); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, rec := range r {
		k := key{consumer, rec.ID}
		if row, ok := s.inbox.get(k); ok {
			row.Verdict, row.at = rec.Verdict, now
			s.inbox.set(k, row)
		}
	}
	return nil
}

// Count implements store.Records.
func (s *Store) Count(ctx context.Context, tx *Tx, consumer string, t []store.Tally) error {
	if err := s.enter(ctx, tx, OpCount); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range t {
		s.count(consumer, line)
	}
	return nil
}

func (s *database) count(consumer string, t store.Tally) {
	k := tallyKey{consumer, t.Account, t.Bucket}
	row, _ := s.ledger.get(k)
	s.ledger.set(k, tally{row.n + t.N, row.sum + t.Sum})
}

// Versions implements store.Versions.
func (s *Store) Versions(ctx context.Context, tx *Tx, consumer string, keys []string, out []store.Versioned) ([]store.Versioned, error) {
	if err := s.enter(ctx, tx, OpVersions); err != nil {
		return out, err
	}
	for _, k := range keys {
		if v, ok := s.versions.get(key{consumer, k}); ok {
			out = append(out, v)
		}
	}
	return out, nil
}

// SetVersions implements store.Versions.
func (s *Store) SetVersions(ctx context.Context, tx *Tx, consumer string, v []store.Versioned) error {
	if err := s.enter(ctx, tx, OpSetVersions); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range v {
		s.versions.set(key{consumer, row.Key}, row)
	}
	return nil
}

// Lock implements store.Holds.
func (s *Store) Lock(ctx context.Context, tx *Tx, consumer string, keys []string, out []store.Hold) ([]store.Hold, error) {
	if err := s.enter(ctx, tx, OpLock); err != nil {
		return out, err
	}
	for _, k := range keys {
		if h, ok := s.holds.get(key{consumer, k}); ok {
			out = append(out, h)
		}
	}
	return out, nil
}

// Append implements store.Holds.
func (s *Store) Append(ctx context.Context, tx *Tx, consumer, k string, n int64) (store.Hold, error) {
	if err := s.enter(ctx, tx, OpAppend); err != nil {
		return store.Hold{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, _ := s.holds.get(key{consumer, k})
	h = store.Hold{Key: k, Size: h.Size + n, Tail: h.Tail + n}
	s.holds.set(key{consumer, k}, h)
	return h, nil
}

// Release implements store.Holds. Taking off more than is there is a Fault:
// the hold and its letters disagree.
func (s *Store) Release(ctx context.Context, tx *Tx, consumer, k string, n int64) error {
	if err := s.enter(ctx, tx, OpRelease); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, _ := s.holds.get(key{consumer, k})
	if h.Size -= n; h.Size > 0 {
		s.holds.set(key{consumer, k}, h)
		return nil
	}
	if h.Size < 0 {
		return Errorf(semel.ClassFault, "release %d of key %q: the hold has only %d", n, k, h.Size+n)
	}
	s.holds.del(key{consumer, k})
	return nil
}

// Suspects implements store.Suspects.
func (s *Store) Suspects(ctx context.Context, tx *Tx, consumer string, units []string, out []store.Suspect) ([]store.Suspect, error) {
	if err := s.enter(ctx, tx, OpSuspects); err != nil {
		return out, err
	}
	for _, u := range units {
		if row, ok := s.suspects.get(key{consumer, u}); ok {
			out = append(out, row)
		}
	}
	return out, nil
}

// Suspect implements store.Suspects.
func (s *Store) Suspect(ctx context.Context, tx *Tx, consumer string, rows []store.Suspect) error {
	if err := s.enter(ctx, tx, OpSuspect); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		k := key{consumer, row.Unit}
		if row.Limit == 0 {
			s.suspects.del(k)
		} else {
			s.suspects.set(k, row)
		}
	}
	return nil
}

func (s *database) suspectsOf(consumer string) []store.Suspect {
	var out []store.Suspect
	for k, row := range s.suspects.committed() {
		if k.consumer == consumer {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b store.Suspect) int { return strings.Compare(a.Unit, b.Unit) })
	return out
}
