package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

type slotKey struct {
	consumer, worker string
	slot             int
}

func slotOf(m store.Mark) slotKey { return slotKey{m.Consumer, m.Worker, m.Slot} }

type markRow struct {
	batch int64
	at    time.Time
}

func (r markRow) describe(ok bool) string {
	if !ok {
		return "no row"
	}
	return fmt.Sprintf("at batch %d", r.batch)
}

// Enlist implements store.Workers.
func (s *Store) Enlist(ctx context.Context, w store.Worker) error {
	if w.Consumer == "" || w.Name == "" || w.Slots < 1 {
		return Errorf(semel.ClassFault, "a worker needs a consumer, a name and at least one slot: %+v", w)
	}
	err := s.alone(ctx, OpEnlist, func() error {
		for _, fact := range slices.Sorted(maps.Keys(w.Identity)) {
			k, want := key{w.Consumer, fact}, w.Identity[fact]
			if have, ok := s.identity.get(k); ok && have != want {
				return &store.TakenError{Consumer: w.Consumer, Fact: fact, Have: have, Want: want}
			}
			s.identity.set(k, want)
		}
		for slot := range w.Slots {
			s.workers.set(slotKey{w.Consumer, w.Name, slot}, markRow{at: time.Now()})
		}
		return nil
	})
	if err == nil {
		s.keep(w.Consumer, w.Name, true)
	}
	return err
}

// keep notes whether a worker is one of this connection.
func (s *Store) keep(consumer, worker string, mine bool) {
	s.faults.Lock()
	defer s.faults.Unlock()
	if s.mine == nil {
		s.mine = make(map[[2]string]bool)
	}
	s.mine[[2]string{consumer, worker}] = mine
}

func (s *Store) enlisted(k slotKey) bool {
	s.faults.Lock()
	defer s.faults.Unlock()
	return s.mine[[2]string{k.consumer, k.worker}]
}

// Retire implements store.Workers.
func (s *Store) Retire(ctx context.Context, consumer, worker string) error {
	s.keep(consumer, worker, false)
	return s.alone(ctx, OpRetire, func() error {
		for k := range maps.Clone(s.workers.rows) {
			if k.consumer == consumer && k.worker == worker {
				s.workers.del(k)
			}
		}
		return nil
	})
}

type fenceKey struct {
	consumer string
	scope    semel.Scope
}

type fenceRow struct {
	epoch    int64
	next     semel.Offset
	clean    bool
	worker   string
	assigned int64 // order of assignments
	at       time.Time
}

func (r fenceRow) fence(scope semel.Scope) store.Fence {
	return store.Fence{Scope: scope, Epoch: r.epoch, Next: r.next, Clean: r.clean, Worker: r.worker}
}

// Assign implements store.Fences. A row that did not exist counts as left in
// good order.
func (s *Store) Assign(ctx context.Context, consumer, worker string, starts []store.Start) ([]store.Fence, error) {
	out := make([]store.Fence, len(starts))
	err := s.alone(ctx, OpAssign, func() error {
		for i, start := range starts {
			out[i] = s.assign(consumer, worker, start)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *database) assign(consumer, worker string, start store.Start) store.Fence {
	k := fenceKey{consumer, start.Scope}
	row, ok := s.fences.get(k)
	other, before := s.other(k)
	if !ok {
		if start.Create == store.CreateNever || start.Create == store.CreateFirst && before {
			return store.Fence{Scope: start.Scope, Next: start.At, Fresh: true, Clean: true, Other: other}
		}
		row = fenceRow{next: start.At, clean: true}
	}
	clean := row.clean
	s.serial++
	row.epoch, row.clean, row.worker, row.assigned, row.at = row.epoch+1, false, worker, s.serial, time.Now()
	f := row.fence(start.Scope)
	f.Fresh, f.Clean, f.Other = !ok, clean, other
	s.fences.set(k, row)
	return f
}

// other is the incarnation of the scope's name that was assigned last, apart
// from its own.
func (s *database) other(k fenceKey) (incarnation string, exists bool) {
	var last int64
	for o, row := range s.fences.rows {
		if o.consumer == k.consumer && o.scope.Name == k.scope.Name && o != k && row.assigned > last {
			incarnation, exists, last = o.scope.Incarnation, true, row.assigned
		}
	}
	return incarnation, exists
}

// Advance implements store.Fences.
func (s *Store) Advance(ctx context.Context, tx *Tx, consumer string, a []store.Advance, lost []int) ([]int, error) {
	if err := s.enter(ctx, tx, OpAdvance); err != nil {
		return lost, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, adv := range a {
		k := fenceKey{consumer, adv.Scope}
		row, ok := s.fences.get(k)
		if !ok || row.epoch != adv.Epoch || row.next != adv.From {
			lost = append(lost, i)
			continue
		}
		row.next, row.at = adv.To, time.Now()
		s.fences.set(k, row)
	}
	return lost, nil
}

// Leave implements store.Fences.
func (s *Store) Leave(ctx context.Context, consumer string, f []store.Fence) error {
	return s.alone(ctx, OpLeave, func() error {
		for _, fence := range f {
			k := fenceKey{consumer, fence.Scope}
			if row, ok := s.fences.get(k); ok && row.epoch == fence.Epoch {
				row.clean, row.at = true, time.Now()
				s.fences.set(k, row)
			}
		}
		return nil
	})
}

// fencesOf returns the committed fences of a consumer, those not clean first.
func (s *database) fencesOf(consumer string, limit int) []store.Fence {
	var out []store.Fence
	for k, row := range s.fences.committed() {
		if k.consumer == consumer {
			out = append(out, row.fence(k.scope))
		}
	}
	slices.SortFunc(out, func(a, b store.Fence) int {
		return cmp.Or(order(a.Clean, b.Clean), a.Scope.Compare(b.Scope))
	})
	return out[:min(limit, len(out))]
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// marksOf returns the committed marks of a consumer.
func (s *database) marksOf(consumer string) []store.Mark {
	var out []store.Mark
	for k, row := range s.workers.committed() {
		if k.consumer == consumer {
			out = append(out, store.Mark{Consumer: consumer, Worker: k.worker, Slot: k.slot, Batch: row.batch})
		}
	}
	slices.SortFunc(out, func(a, b store.Mark) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Slot, b.Slot))
	})
	return out
}
