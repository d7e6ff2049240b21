package memstore

import "iter"

// table is a map with an undo log. Rows are changed in place by the one
// transaction that runs; the log takes them back, and tells readers what is
// committed meanwhile. Values are never changed after they were set.
type table[K comparable, V any] struct {
	rows map[K]V
	log  []change[K, V]
}

type change[K comparable, V any] struct {
	key K
	old V
	had bool
}

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := t.rows[k]
	return v, ok
}

func (t *table[K, V]) set(k K, v V) {
	if t.rows == nil {
		t.rows = make(map[K]V)
	}
	t.note(k)
	t.rows[k] = v
}

func (t *table[K, V]) del(k K) {
	t.note(k)
	delete(t.rows, k)
}

func (t *table[K, V]) note(k K) {
	old, had := t.rows[k]
	t.log = append(t.log, change[K, V]{k, old, had})
}

func (t *table[K, V]) commit() {
	clear(t.log)
	t.log = t.log[:0]
}

func (t *table[K, V]) rollback() {
	for i := len(t.log) - 1; i >= 0; i-- {
		if c := &t.log[i]; c.had {
			t.rows[c.key] = c.old
		} else {
			delete(t.rows, c.key)
		}
	}
	t.commit()
}

// was returns the committed row of k.
func (t *table[K, V]) was(k K) (V, bool) {
	for i := range t.log {
		if t.log[i].key == k {
			return t.log[i].old, t.log[i].had
		}
	}
	return t.get(k)
}

// committed walks the committed rows, in no order.
func (t *table[K, V]) committed() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		touched := make(map[K]bool, len(t.log))
		for i := range t.log {
			c := &t.log[i]
			if first := !touched[c.key]; first && c.had && !yield(c.key, c.old) {
				return
			}
			touched[c.key] = true
		}
		for k, v := range t.rows {
			if !touched[k] && !yield(k, v) {
				return
			}
		}
	}
}
