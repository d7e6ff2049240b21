package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/semel-dev/semel/store"
)

func effectTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Round":    effectRound[Tx],
		"Token":    effectToken[Tx],
		"Lease":    effectLease[Tx],
		"Race":     effectRace[Tx],
		"Names":    effectNames[Tx],
		"Refused":  effectRefused[Tx],
		"List":     effectList[Tx],
		"Purge":    effectPurge[Tx],
		"Separate": effectSeparate[Tx],
	}
}

func (s *suite[Tx]) effects() store.Effects { return s.b.(store.Effects) }

// moved expects a move that is made, and returns the row.
func (s *suite[Tx]) moved(from int64, e store.Effect) store.Effect {
	s.Helper()
	now, ok, err := s.effects().MoveEffect(s.ctx, consumer, from, e)
	must(s, err)
	if !ok || now.Token != from+1 {
		s.Fatalf("the move from token %d was made: %v, token %d", from, ok, now.Token)
	}
	return now
}

func (s *suite[Tx]) effectOf(key string) store.Effect {
	s.Helper()
	rows, err := s.effects().Effects(s.ctx, consumer, store.EffectQuery{Key: key})
	must(s, err)
	if len(rows) != 1 || rows[0].Key != key {
		s.Fatalf("effect %q: %+v", key, rows)
	}
	return rows[0]
}

func intent(key string, lease time.Duration) store.Effect {
	return store.Effect{Key: key, Fingerprint: store.Fingerprint{1}, State: store.EffectIntended, Attempts: 1, Holder: "h1", Lease: lease}
}

func effectRound[Tx any](s *suite[Tx]) {
	e := store.Effect{
		Key: "a", Fingerprint: store.Fingerprint{0xff, 2}, State: store.EffectDone, Attempts: 3, Holder: "h\x00\xff",
		Result: bytes.Repeat([]byte{0, 0xff}, 40_000), Size: 1 << 40, Note: "why\xff",
	}
	got := s.moved(0, e)
	if !near(got.Updated) {
		s.Errorf("updated %v", got.Updated)
	}
	stored := s.effectOf("a")
	equal(s, "time of the change", stored.Updated.UnixMilli(), got.Updated.UnixMilli())
	e.Token, got.Updated, stored.Updated = 1, time.Time{}, time.Time{}
	equal(s, "the row that a move returns", got, e)
	equal(s, "the row that is read", stored, e)
	other, err := s.other().(store.Effects).Effects(s.ctx, consumer, store.EffectQuery{Key: "a"})
	if err != nil || len(other) != 1 || !bytes.Equal(other[0].Result, e.Result) {
		s.Errorf("another handle reads %d rows, %v", len(other), err)
	}
}

func effectToken[Tx any](s *suite[Tx]) {
	s.moved(0, intent("a", time.Hour))
	done := store.Effect{Key: "a", State: store.EffectDone, Holder: "h2", Result: []byte("r")}
	for _, from := range []int64{0, 2, 7} {
		now, ok, err := s.effects().MoveEffect(s.ctx, consumer, from, done)
		if err != nil || ok || now.State != store.EffectIntended || now.Token != 1 || now.Holder != "h1" {
			s.Errorf("a move from token %d: made %v, row %+v, %v; want the row as it was, at token 1", from, ok, now, err)
		}
	}
	s.moved(1, done)
	now, ok, err := s.effects().MoveEffect(s.ctx, consumer, 1, store.Effect{Key: "a", State: store.EffectFailed, Holder: "zombie"})
	if err != nil || ok || now.State != store.EffectDone || string(now.Result) != "r" {
		s.Errorf("a late result was taken: %v, row %+v, %v", ok, now, err)
	}
	now, ok, err = s.effects().MoveEffect(s.ctx, consumer, 3, store.Effect{Key: "not there", State: store.EffectDone})
	if err != nil || ok || now.Token != 0 || now.Key != "" {
		s.Errorf("a move of a row that is not there: made %v, row %+v, %v", ok, now, err)
	}
	if rows, err := s.effects().Effects(s.ctx, consumer, store.EffectQuery{Key: "not there"}); err != nil || len(rows) > 0 {
		s.Errorf("a move that was not made left %+v, %v", rows, err)
	}
}

func effectLease[Tx any](s *suite[Tx]) {
	for key, lease := range map[string]time.Duration{"long": time.Hour, "over": 0, "past": -time.Hour} {
		now := s.moved(0, intent(key, lease))
		for _, e := range []store.Effect{now, s.effectOf(key)} {
			if e.InDoubt() != (lease <= 0) || lease > 0 && (e.Lease > lease || e.Lease < lease-time.Minute) || lease <= 0 && e.Lease != 0 {
				s.Errorf("an intent with a lease of %v has %v left", lease, e.Lease)
			}
		}
	}
	s.moved(1, intent("over", time.Hour))
	if e := s.effectOf("over"); e.InDoubt() {
		s.Errorf("the lease of a taken over intent: %v", e.Lease)
	}
}

// effectRace has two handles take the same intent many times: each time one of
// them gets it, and both see whose it is.
func effectRace[Tx any](s *suite[Tx]) {
	handles := []store.Effects{s.effects(), s.other().(store.Effects)}
	type move struct {
		now store.Effect
		ok  bool
		err error
	}
	for from := range int64(8) {
		results := make(chan move)
		for i, h := range handles {
			go func() {
				var m move
				e := intent("a", time.Hour)
				e.Holder = string(rune('a' + i))
				m.err = patiently(s.b, func() (err error) {
					m.now, m.ok, err = h.MoveEffect(context.WithoutCancel(s.ctx), consumer, from, e)
					return err
				})
				results <- m
			}()
		}
		x, y := <-results, <-results
		if x.err != nil || y.err != nil || x.ok == y.ok || x.now.Holder != y.now.Holder || x.now.Token != from+1 || y.now.Token != from+1 {
			s.Fatalf("two take token %d: %+v and %+v", from, x, y)
		}
	}
}

func effectNames[Tx any](s *suite[Tx]) {
	names := awkward()
	for i, name := range names {
		e := intent(name, time.Hour)
		e.Attempts = i
		s.moved(0, e)
	}
	for i, name := range names {
		if e := s.effectOf(name); e.Attempts != i {
			s.Errorf("effect %q is that of %q", name, names[e.Attempts])
		}
	}
	if rows, err := s.effects().Effects(s.ctx, stranger, store.EffectQuery{}); err != nil || len(rows) > 0 {
		s.Errorf("another consumer sees %d effects, %v", len(rows), err)
	}
}

func effectRefused[Tx any](s *suite[Tx]) {
	for _, key := range []string{"", string(make([]byte, 256))} {
		if _, ok, err := s.effects().MoveEffect(s.ctx, consumer, 0, intent(key, 0)); err == nil || ok {
			s.Errorf("a key of %d bytes was taken", len(key))
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, ok, err := s.effects().MoveEffect(ctx, consumer, 0, intent("a", 0)); err == nil || ok {
		s.Error("a cancelled move was made")
	}
}

func effectList[Tx any](s *suite[Tx]) {
	for _, key := range []string{"d", "b", "\xff", "a", "B", "c"} {
		s.moved(0, intent(key, time.Hour))
	}
	s.moved(1, store.Effect{Key: "c", State: store.EffectDone})
	s.moved(1, store.Effect{Key: "d", State: store.EffectFailed})
	var keys []string
	for after := ""; ; after = keys[len(keys)-1] {
		page, err := s.effects().Effects(s.ctx, consumer, store.EffectQuery{After: after, Limit: 3})
		must(s, err)
		if len(page) > 3 {
			s.Fatalf("a page of 3 has %d", len(page))
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			keys = append(keys, e.Key)
		}
	}
	if want := []string{"B", "a", "b", "\xff"}; !slices.Equal(keys, want) {
		s.Errorf("intended effects: %q, want %q", keys, want)
	}
	equal(s, "a key that is done", s.effectOf("c").State, store.EffectDone)
}

// effectPurge removes what is known, and never what is in doubt.
func effectPurge[Tx any](s *suite[Tx]) {
	for _, key := range []string{"done", "failed", "doubt", "running"} {
		s.moved(0, intent(key, map[string]time.Duration{"running": time.Hour}[key]))
	}
	s.moved(1, store.Effect{Key: "done", State: store.EffectDone})
	s.moved(1, store.Effect{Key: "failed", State: store.EffectFailed})
	equal(s, "effects that are not old", s.purge(s.b, store.Purge{Consumer: consumer, Keep: time.Hour}), store.Purged{})
	equal(s, "another consumer's", s.purge(s.b, store.Purge{Consumer: stranger}).Effects, int64(0))
	equal(s, "effects removed", s.purge(s.b, store.Purge{Consumer: consumer, Limit: 1}).Effects, int64(2))
	for _, key := range []string{"doubt", "running"} {
		s.effectOf(key)
	}
	s.moved(0, intent("done", 0)) // forgotten
}

// effectSeparate: a transaction of the pipeline that fails takes no effect back.
func effectSeparate[Tx any](s *suite[Tx]) {
	s.moved(0, intent("a", time.Hour))
	s.abort(func(tx Tx) error { return s.put(tx, "k", "v") })
	if e := s.effectOf("a"); e.State != store.EffectIntended {
		s.Errorf("state %s", e.State)
	}
	equal(s, "letters and records", s.status(false).Ledger, []store.Tally(nil))
}
