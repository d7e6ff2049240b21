package consumer

import (
	"context"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// sabotage are the mistakes that are not in the store.
type sabotage struct {
	ackFirst  bool
	onReceive func(*worker)
	onSettled func()
}

// settled is what a broken pipeline does when the source has been told.
func (s *sabotage) settled() {
	if s.onSettled != nil {
		s.onSettled()
	}
}

// received is what a broken pipeline does before it works.
func (s *sabotage) received(w *worker, ds []semel.Delivery) {
	if s.onReceive != nil {
		s.onReceive(w)
	}
	if s.ackFirst {
		list := make([]broker.Settlement, len(ds))
		for i := range ds {
			list[i].Lease = ds[i].Lease
		}
		_ = w.conn.Settle(context.Background(), list, make([]broker.Settled, len(ds)))
	}
}

// broken are pipelines with one mistake each, and the violation that tells.
var broken = map[string]struct {
	finds string
	make  func(*world)
}{
	"ack before commit": {"acked before it was safe", func(m *world) { m.hooks.ackFirst = true }},
	"no inbox":          {"applied twice", func(m *world) { m.wrap(&noInbox{m.plain()}) }},
	"check then insert": {"applied twice", func(m *world) {
		s := &checkThenInsert{plain: m.plain(), world: m}
		m.hooks.onReceive = s.check
		m.wrap(s)
	}},
	"record after commit": {"applied twice", func(m *world) { m.wrap(&recordAfter{plain: m.plain()}) }},
	"letter after ack": {"acked before it was safe", func(m *world) {
		s := &letterAfter{plain: m.plain()}
		m.hooks.onSettled = s.write
		m.wrap(s)
	}},
	"parked without inbox row":       {"applied twice", func(m *world) { m.wrap(&parkedUnrecorded{m.plain()}) }},
	"hold released without its size": {"order of key", func(m *world) { m.wrap(&releaseAll{m.plain()}) }},
	"no fence": {"applied twice", func(m *world) {
		m.src, m.cfg.Inbox = newSource(m, 1), inbox.Position // where nothing else would notice
		m.cfg.Order, m.cfg.Arbitrate = OrderNone, arbitrate.Policy{}
		m.wrap(&noFence{m.plain()})
	}},
	"version not compared": {"version went backwards", func(m *world) { m.wrap(&noVersions{m.plain()}) }},
}

// plain is a store without queued statements.
type plain struct{ store.Backend[mtx] }

func (m *world) plain() plain { return plain{&mem{Store: m.mem, m: m}} }

func (m *world) wrap(st store.Backend[mtx]) { m.st, m.deferred = st, false }

// noInbox never remembers.
type noInbox struct{ plain }

func (noInbox) Claim(_ context.Context, _ mtx, _ string, _ []store.Record, p []store.Prior) ([]store.Prior, error) {
	return p, nil
}

// checkThenInsert looks when messages arrive, and inserts when they are
// handled, whatever is there by then.
type checkThenInsert struct {
	plain
	*world
	known map[string]map[string]store.Record // by worker
}

func (s *checkThenInsert) check(w *worker) {
	if s.known == nil {
		s.known = map[string]map[string]store.Record{}
	}
	s.known[w.c.cfg.Worker] = map[string]store.Record{}
	s.peek(func() {
		for k := range s.contents {
			if tr, err := s.mem.Trace(context.Background(), "model", k.id, ""); err == nil && tr.Record != nil {
				s.known[w.c.cfg.Worker][k.id] = *tr.Record
			}
		}
	})
}

func (s *checkThenInsert) Claim(ctx context.Context, tx mtx, consumer string, rs []store.Record, prior []store.Prior) ([]store.Prior, error) {
	if len(s.stack) == 0 { // a person at the desk, who does not check
		return s.plain.Claim(ctx, tx, consumer, rs, prior)
	}
	known := s.known[s.stack[len(s.stack)-1].c.cfg.Worker]
	for i, r := range rs {
		if old, ok := known[r.ID]; ok {
			prior = append(prior, store.Prior{I: i, Record: old})
		}
	}
	_, err := s.plain.Claim(ctx, tx, consumer, rs, nil)
	return prior, err
}

// recordAfter records in a transaction that follows that of the effects.
type recordAfter struct {
	plain
	later []store.Record
}

func (s *recordAfter) Claim(ctx context.Context, tx mtx, consumer string, rs []store.Record, prior []store.Prior) ([]store.Prior, error) {
	for i, r := range rs {
		if tr, err := s.Trace(ctx, consumer, r.ID, ""); err == nil && tr.Record != nil {
			prior = append(prior, store.Prior{I: i, Record: *tr.Record})
		} else {
			s.later = append(s.later, r)
		}
	}
	return prior, nil
}

func (s *recordAfter) Record(ctx context.Context, tx mtx, consumer string, rs []store.Record) error {
	for _, r := range rs {
		for i := range s.later {
			if s.later[i].ID == r.ID {
				s.later[i].Verdict = r.Verdict
			}
		}
	}
	return s.plain.Record(ctx, tx, consumer, rs)
}

func (s *recordAfter) InTx(ctx context.Context, m store.Mark, fn func(context.Context, mtx) error) (store.Outcome, error) {
	s.later = nil
	o, err := s.plain.InTx(ctx, m, fn)
	if rs := s.later; o == store.Committed && len(rs) > 0 {
		s.later = nil
		_, _ = s.plain.InTx(ctx, store.Mark{}, func(ctx context.Context, tx mtx) error {
			_, err := s.plain.Claim(ctx, tx, "model", rs, nil)
			return err
		})
	}
	return o, err
}

// letterAfter writes letters when their deliveries are settled.
type letterAfter struct {
	plain
	later []store.Parking
}

func (s *letterAfter) Park(_ context.Context, _ mtx, p []store.Parking, exists []int) ([]int, error) {
	s.later = append(s.later, p...)
	return exists, nil
}

func (s *letterAfter) write() {
	ps := s.later
	if s.later = nil; len(ps) == 0 {
		return
	}
	_, _ = s.plain.InTx(context.Background(), store.Mark{}, func(ctx context.Context, tx mtx) error {
		_, err := s.plain.Park(ctx, tx, ps, nil)
		return err
	})
}

// parkedUnrecorded keeps no row of what is parked.
type parkedUnrecorded struct{ plain }

func (s *parkedUnrecorded) Claim(ctx context.Context, tx mtx, consumer string, rs []store.Record, prior []store.Prior) ([]store.Prior, error) {
	var kept []store.Record
	var at []int
	for i, r := range rs {
		if r.Verdict != semel.Parked {
			kept, at = append(kept, r), append(at, i)
		}
	}
	n := len(prior)
	prior, err := s.plain.Claim(ctx, tx, consumer, kept, prior)
	for i := range prior[n:] {
		prior[n+i].I = at[prior[n+i].I]
	}
	return prior, err
}

// releaseAll deletes a hold whatever stands behind it.
type releaseAll struct{ plain }

func (s *releaseAll) Release(ctx context.Context, tx mtx, consumer, key string, _ int64) error {
	rows, err := s.Lock(ctx, tx, consumer, []string{key}, nil)
	if err != nil || len(rows) == 0 {
		return err
	}
	return s.plain.Release(ctx, tx, consumer, key, rows[0].Size)
}

// noFence advances whoever comes.
type noFence struct{ plain }

func (s *noFence) Advance(ctx context.Context, tx mtx, consumer string, a []store.Advance, lost []int) ([]int, error) {
	st, err := s.Status(ctx, consumer, false)
	if err != nil {
		return lost, err
	}
	var mine []store.Advance
	for _, adv := range a {
		for _, f := range st.Fences {
			if f.Scope == adv.Scope && f.Next.Compare(adv.To) < 0 {
				adv.Epoch, adv.From = f.Epoch, f.Next
				mine = append(mine, adv)
			}
		}
	}
	_, err = s.plain.Advance(ctx, tx, consumer, mine, nil)
	return lost, err
}

// noVersions never finds an older version.
type noVersions struct{ plain }

func (noVersions) Versions(_ context.Context, _ mtx, _ string, _ []string, out []store.Versioned) ([]store.Versioned, error) {
	return out, nil
}

var _ store.Backend[*memstore.Tx] = plain{}
