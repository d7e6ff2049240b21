package sqlstore

import (
	"context"
	"database/sql"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Lock reads the holds of keys. Most consumers have none at all, which one
// statement tells.
func (s *Store) Lock(ctx context.Context, x Tx, consumer string, keys []string, out []store.Hold) ([]store.Hold, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return out, err
	}
	defer t.mu.Unlock()
	if some, err := t.some("SELECT EXISTS (SELECT 1 FROM semel_hold WHERE consumer = ?)", n); err != nil || !some {
		return out, err
	}
	err = t.chunks(keys, func(marks string, args []any) error {
		return t.each("SELECT key, size, tail FROM semel_hold WHERE key IN ("+marks+") AND consumer = ? ORDER BY key{lock}", func(r *sql.Rows) error {
			h, err := scanHold(r)
			out = append(out, h)
			return err
		}, append(args, n)...)
	})
	return out, err
}

func (t *tx) some(portable string, args ...any) (some bool, err error) {
	return some, t.one(portable, []any{&some}, args...)
}

func scanHold(r *sql.Rows) (h store.Hold, err error) {
	err = r.Scan(&h.Key, &h.Size, &h.Tail)
	return h, err
}

// Append adds letters behind a key.
func (s *Store) Append(ctx context.Context, x Tx, consumer, key string, add int64) (h store.Hold, err error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return h, err
	}
	defer t.mu.Unlock()
	_, err = t.exec(`INSERT INTO semel_hold (consumer, key, size, tail) VALUES (?, ?, ?, ?)
		ON CONFLICT (consumer, key) DO UPDATE SET size = semel_hold.size + excluded.size, tail = semel_hold.tail + excluded.tail`,
		n, blob(key), add, add)
	if err != nil {
		return h, err
	}
	h.Key = key
	return h, t.one("SELECT size, tail FROM semel_hold WHERE consumer = ? AND key = ?", []any{&h.Size, &h.Tail}, n, blob(key))
}

// Release takes letters off a key; a key with none left is free.
func (s *Store) Release(ctx context.Context, x Tx, consumer, key string, sub int64) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	moved, err := t.exec("UPDATE semel_hold SET size = size - ? WHERE consumer = ? AND key = ? AND size >= ?", sub, n, blob(key), sub)
	if err != nil {
		return err
	}
	if moved == 0 {
		return failf(semel.ClassFault, "sqlstore: release of %d letters: the key's hold has fewer, or there is none; hold and letters disagree", sub)
	}
	_, err = t.exec("DELETE FROM semel_hold WHERE consumer = ? AND key = ? AND size = 0", n, blob(key))
	return err
}

const suspectCols = "unit, bound, started, remains, at_hi, at_lo, charged"

func scanSuspect(r *sql.Rows) (u store.Suspect, err error) {
	err = r.Scan(&u.Unit, &u.Limit, &u.Started, &u.Left, &u.At.Hi, &u.At.Lo, &u.Charged)
	return u, err
}

// Suspects reads what is known of units.
func (s *Store) Suspects(ctx context.Context, x Tx, consumer string, units []string, out []store.Suspect) ([]store.Suspect, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return out, err
	}
	defer t.mu.Unlock()
	err = t.chunks(units, func(marks string, args []any) error {
		return t.each("SELECT "+suspectCols+" FROM semel_suspect WHERE unit IN ("+marks+") AND consumer = ? ORDER BY unit{lock}", func(r *sql.Rows) error {
			u, err := scanSuspect(r)
			out = append(out, u)
			return err
		}, append(args, n)...)
	})
	return out, err
}

// Suspect writes what is known of units; Limit 0 forgets one.
func (s *Store) Suspect(ctx context.Context, x Tx, consumer string, units []store.Suspect) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	for _, u := range units {
		if err := t.suspect(n, u); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) suspect(n int64, u store.Suspect) error {
	if u.Limit == 0 {
		_, err := t.exec("DELETE FROM semel_suspect WHERE consumer = ? AND unit = ?", n, blob(u.Unit))
		return err
	}
	_, err := t.exec(`INSERT INTO semel_suspect (consumer, unit, bound, started, remains, at_hi, at_lo, charged) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (consumer, unit) DO UPDATE SET bound = excluded.bound, started = excluded.started, remains = excluded.remains,
		at_hi = excluded.at_hi, at_lo = excluded.at_lo, charged = excluded.charged`,
		n, blob(u.Unit), u.Limit, u.Started, u.Left, u.At.Hi, u.At.Lo, u.Charged)
	return err
}
