package storetest_test

import (
	"context"
	"strings"

	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// tokenless lets a move overwrite whatever is there.
type tokenless struct{ *memstore.Store }

func (b tokenless) MoveEffect(ctx context.Context, c string, from int64, e store.Effect) (store.Effect, bool, error) {
	now, moved, err := b.Store.MoveEffect(ctx, c, from, e)
	if err == nil && !moved && now.Token > 0 {
		return b.Store.MoveEffect(ctx, c, now.Token, e)
	}
	return now, moved, err
}

// greedy tells everybody that the move was made.
type greedy struct{ *memstore.Store }

func (b greedy) MoveEffect(ctx context.Context, c string, from int64, e store.Effect) (store.Effect, bool, error) {
	now, _, err := b.Store.MoveEffect(ctx, c, from, e)
	return now, true, err
}

// unleased forgets how long an intent keeps others away.
type unleased struct{ *memstore.Store }

func (b unleased) MoveEffect(ctx context.Context, c string, from int64, e store.Effect) (store.Effect, bool, error) {
	e.Lease = 0
	return b.Store.MoveEffect(ctx, c, from, e)
}

// blunt takes keys that differ in case for one.
type blunt struct{ *memstore.Store }

func (b blunt) MoveEffect(ctx context.Context, c string, from int64, e store.Effect) (store.Effect, bool, error) {
	e.Key = strings.ToLower(e.Key)
	return b.Store.MoveEffect(ctx, c, from, e)
}

// cutting keeps less of a result than it was given.
type cutting struct{ *memstore.Store }

func (b cutting) MoveEffect(ctx context.Context, c string, from int64, e store.Effect) (store.Effect, bool, error) {
	e.Result = e.Result[:min(len(e.Result), 65_535)]
	return b.Store.MoveEffect(ctx, c, from, e)
}

// settled forgets intents with the rest.
type settled struct{ *memstore.Store }

func (b settled) Purge(ctx context.Context, p store.Purge) (store.Purged, error) {
	open, err := b.Store.Effects(ctx, p.Consumer, store.EffectQuery{Limit: 1000})
	for _, e := range open {
		e.State = store.EffectFailed
		if _, _, err := b.Store.MoveEffect(ctx, p.Consumer, e.Token, e); err != nil {
			return store.Purged{}, err
		}
	}
	if err != nil {
		return store.Purged{}, err
	}
	return b.Store.Purge(ctx, p)
}

// all lists effects whose result is known, too.
type all struct{ *memstore.Store }

func (b all) Effects(ctx context.Context, c string, q store.EffectQuery) ([]store.Effect, error) {
	out, err := b.Store.Effects(ctx, c, q)
	if q.Key != "" || err != nil {
		return out, err
	}
	for _, key := range []string{"c", "d"} {
		if key > q.After {
			more, err := b.Store.Effects(ctx, c, store.EffectQuery{Key: key})
			if out = append(out, more...); err != nil {
				return nil, err
			}
		}
	}
	return out[:min(len(out), q.Limit)], nil
}
