package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Purge implements store.Janitor. Oldest rows go first.
func (s *Store) Purge(ctx context.Context, p store.Purge) (store.Purged, error) {
	var done store.Purged
	if p.Limit == 0 {
		p.Limit = 1000
	}
	if p.Keep < 0 {
		return done, Errorf(semel.ClassFault, "purge: keep is negative: %v", p.Keep)
	}
	err := s.alone(ctx, OpPurge, func() error {
		c := cut{p.Consumer, time.Now().Add(-p.Keep), p.Limit}
		done.Records = s.purgeRecords(&c)
		done.Letters = s.purgeLetters(&c)
		if !p.KeepScopes {
			done.Fences = s.purgeFences(&c)
		}
		done.Workers = s.purgeMarks(&c)
		done.Effects = s.purgeEffects(&c)
		return nil
	})
	if err != nil {
		return store.Purged{}, err
	}
	return done, nil
}

// cut is what a step may still remove.
type cut struct {
	consumer string
	before   time.Time
	left     int
}

func (c *cut) old(consumer string, at time.Time) bool {
	return consumer == c.consumer && !at.After(c.before)
}

// take bounds victims to what is left, oldest first.
func take[T any](c *cut, victims []T, at func(T) time.Time, name func(T) string) []T {
	slices.SortFunc(victims, func(a, b T) int {
		return cmp.Or(at(a).Compare(at(b)), strings.Compare(name(a), name(b)))
	})
	victims = victims[:min(c.left, len(victims))]
	c.left -= len(victims)
	return victims
}

func (s *database) purgeRecords(c *cut) int64 {
	var rows []recordRow
	for k, r := range s.inbox.rows {
		if c.old(k.consumer, r.at) && r.Verdict != semel.Parked && !s.hasOpenLetter(k) {
			rows = append(rows, r)
		}
	}
	rows = take(c, rows, func(r recordRow) time.Time { return r.at }, func(r recordRow) string { return r.ID })
	for _, r := range rows {
		s.inbox.del(key{c.consumer, r.ID})
		s.count(c.consumer, store.Tally{Account: store.AccountPurged + r.Verdict.String(), Bucket: r.Bucket, N: 1, Sum: r.Hash})
	}
	return int64(len(rows))
}

func (s *database) hasOpenLetter(k key) bool {
	refs, _ := s.byID.get(k)
	return slices.ContainsFunc(refs, func(ref string) bool {
		row, _ := s.letters.get(key{k.consumer, ref})
		return row.State.Open()
	})
}

func (s *database) purgeLetters(c *cut) int64 {
	var rows []*letterRow
	for k, r := range s.letters.rows {
		if c.old(k.consumer, r.Updated) && !r.State.Open() {
			rows = append(rows, r)
		}
	}
	rows = take(c, rows, func(r *letterRow) time.Time { return r.Updated }, func(r *letterRow) string { return r.Ref })
	for _, r := range rows {
		s.letters.del(key{c.consumer, r.Ref})
		s.unindex(r)
		s.lettersOf(c.consumer, -1)
	}
	return int64(len(rows))
}

func (s *database) purgeFences(c *cut) int64 {
	var keys []fenceKey
	for k, r := range s.fences.rows {
		if c.old(k.consumer, r.at) && r.clean {
			keys = append(keys, k)
		}
	}
	keys = take(c, keys, func(k fenceKey) time.Time { return s.fences.rows[k].at }, func(k fenceKey) string { return k.scope.String() })
	for _, k := range keys {
		s.fences.del(k)
	}
	return int64(len(keys))
}

// purgeMarks leaves the marks of workers of this connection: they may be idle.
func (s *Store) purgeMarks(c *cut) int64 {
	var keys []slotKey
	for k, r := range s.workers.rows {
		switch {
		case !c.old(k.consumer, r.at):
		case s.enlisted(k):
			r.at = time.Now()
			s.workers.set(k, r)
		default:
			keys = append(keys, k)
		}
	}
	keys = take(c, keys, func(k slotKey) time.Time { return s.workers.rows[k].at }, func(k slotKey) string { return k.worker })
	for _, k := range keys {
		s.workers.del(k)
	}
	return int64(len(keys))
}
