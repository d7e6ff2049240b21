package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semel-dev/semel/store"
)

// Assign makes worker the owner of the scopes.
func (s *Store) Assign(ctx context.Context, consumer, worker string, starts []store.Start) ([]store.Fence, error) {
	var out []store.Fence
	err := s.update(ctx, func(t *tx) error {
		n, err := t.number(consumer)
		if err != nil {
			return err
		}
		if err := t.lockConsumer(n); err != nil {
			return err
		}
		if err := t.intact(n, store.Mark{}); err != nil {
			return err
		}
		out = make([]store.Fence, 0, len(starts))
		for _, st := range starts {
			f, err := t.assign(n, worker, st)
			if err != nil {
				return err
			}
			out = append(out, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// lockConsumer makes assignments of one consumer wait for one another: what is
// not there yet cannot be locked itself, and two must not create it.
func (t *tx) lockConsumer(n int64) error {
	return t.one("SELECT number FROM semel_consumer WHERE number = ?{lock}", []any{&n}, n)
}

func (t *tx) assign(n int64, worker string, st store.Start) (store.Fence, error) {
	f := store.Fence{Scope: st.Scope, Next: st.At, Clean: true, Worker: worker}
	name, inc := blob(st.Scope.Name), blob(st.Scope.Incarnation)
	err := t.one("SELECT epoch, next_hi, next_lo, clean FROM semel_fence WHERE consumer = ? AND scope = ? AND incarnation = ?{lock}",
		[]any{&f.Epoch, &f.Next.Hi, &f.Next.Lo, &f.Clean}, n, name, inc)
	if f.Fresh = errors.Is(err, sql.ErrNoRows); err != nil && !f.Fresh {
		return f, err
	}
	err = t.one("SELECT incarnation FROM semel_fence WHERE consumer = ? AND scope = ? AND incarnation <> ? ORDER BY assigned DESC LIMIT 1",
		[]any{&f.Other}, n, name, inc)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return f, err
	}
	var last int64
	if err := t.one("SELECT COALESCE(MAX(assigned), 0) FROM semel_fence WHERE consumer = ? AND scope = ?", []any{&last}, n, name); err != nil {
		return f, err
	}
	if f.Fresh && (st.Create == store.CreateNever || st.Create == store.CreateFirst && last > 0) {
		f.Worker = ""
		return f, nil
	}
	f.Epoch++
	_, err = t.exec(`INSERT INTO semel_fence (consumer, scope, incarnation, epoch, next_hi, next_lo, clean, worker, assigned, at)
		VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, {now}) ON CONFLICT (consumer, scope, incarnation)
		DO UPDATE SET epoch = excluded.epoch, clean = 0, worker = excluded.worker, assigned = excluded.assigned, at = excluded.at`,
		n, name, inc, f.Epoch, f.Next.Hi, f.Next.Lo, blob(worker), last+1)
	return f, err
}

// Advance moves fences under their epoch.
func (s *Store) Advance(ctx context.Context, x Tx, consumer string, a []store.Advance, lost []int) ([]int, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return lost, err
	}
	defer t.mu.Unlock()
	for i := range a {
		v := &a[i]
		moved, err := t.advance(n, v)
		if err != nil {
			return lost, err
		}
		if !moved {
			lost = append(lost, i)
		}
	}
	return lost, nil
}

func (t *tx) advance(n int64, v *store.Advance) (bool, error) {
	const where = " WHERE consumer = ? AND scope = ? AND incarnation = ? AND epoch = ? AND next_hi = ? AND next_lo = ?"
	name, inc := blob(v.Scope.Name), blob(v.Scope.Incarnation)
	if v.From == v.To { // not every database counts a row that stays the same
		err := t.one("SELECT epoch FROM semel_fence"+where+"{lock}", []any{new(int64)}, n, name, inc, v.Epoch, v.From.Hi, v.From.Lo)
		return err == nil, ignoreNone(err)
	}
	moved, err := t.exec("UPDATE semel_fence SET next_hi = ?, next_lo = ?"+where, v.To.Hi, v.To.Lo, n, name, inc, v.Epoch, v.From.Hi, v.From.Lo)
	return moved == 1, err
}

// Leave says that the owner left in good order.
func (s *Store) Leave(ctx context.Context, consumer string, fs []store.Fence) error {
	return s.update(ctx, func(t *tx) error {
		n, err := t.number(consumer)
		if err != nil {
			return err
		}
		for _, f := range fs {
			_, err := t.exec("UPDATE semel_fence SET clean = 1, at = {now} WHERE consumer = ? AND scope = ? AND incarnation = ? AND epoch = ?",
				n, blob(f.Scope.Name), blob(f.Scope.Incarnation), f.Epoch)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
