package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

var _ store.Effects = (*Store)(nil)

// effectRow keeps the end of the lease; what is left of it depends on when one
// asks.
type effectRow struct {
	store.Effect
	until time.Time
}

func (r effectRow) at(now time.Time) store.Effect {
	r.Lease = max(0, r.until.Sub(now))
	r.Result = slices.Clone(r.Result)
	return r.Effect
}

// MoveEffect implements store.Effects.
func (s *Store) MoveEffect(ctx context.Context, consumer string, from int64, e store.Effect) (now store.Effect, moved bool, err error) {
	if n := len(e.Key); n < 1 || n > semel.MaxIDBytes {
		return now, false, Errorf(semel.ClassPermanent, "a key has %d bytes; 1 to %d are allowed", n, semel.MaxIDBytes)
	}
	err = s.alone(ctx, OpMoveEffect, func() error {
		at, k := time.Now(), key{consumer, e.Key}
		row, there := s.effects.get(k)
		if moved = there == (from > 0) && row.Token == from; moved {
			row = effectRow{e, at.Add(e.Lease)}
			row.Token, row.Updated, row.Result = from+1, at, slices.Clone(e.Result)
			s.effects.set(k, row)
		}
		now = row.at(at)
		return nil
	})
	if err == nil {
		err = s.ask(context.WithoutCancel(ctx), OpMovedEffect, store.Mark{})
	}
	return now, moved, err
}

// Effects implements store.Effects.
func (s *Store) Effects(ctx context.Context, consumer string, q store.EffectQuery) ([]store.Effect, error) {
	if err := s.ask(ctx, OpEffects, store.Mark{}); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Effect
	for k, r := range s.effects.committed() {
		wanted := r.Key == q.Key || q.Key == "" && r.State == store.EffectIntended
		if k.consumer == consumer && wanted && r.Key > q.After {
			out = append(out, r.at(time.Now()))
		}
	}
	slices.SortFunc(out, func(a, b store.Effect) int { return strings.Compare(a.Key, b.Key) })
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	return out[:min(limit, len(out))], nil
}

// purgeEffects leaves those that are in doubt: without their row they would
// happen again.
func (s *database) purgeEffects(c *cut) int64 {
	var rows []effectRow
	for k, r := range s.effects.rows {
		if c.old(k.consumer, r.Updated) && r.State != store.EffectIntended {
			rows = append(rows, r)
		}
	}
	rows = take(c, rows, func(r effectRow) time.Time { return r.Updated }, func(r effectRow) string { return r.Key })
	for _, r := range rows {
		s.effects.del(key{c.consumer, r.Key})
	}
	return int64(len(rows))
}
