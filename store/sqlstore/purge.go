package sqlstore

import (
	"context"
	"database/sql"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// janitor remembers what purging needs between steps. There is no index on
// the time of inbox rows, because it would double the cost of every insert; old
// rows are found by walking the table in key order, beside the committers, and
// a finished walk says how old the oldest row left is.
type janitor struct {
	mu    sync.Mutex
	mine  map[[2]string]bool // (consumer, worker) enlisted through this store
	walks map[string]*walk
}

// walk is the state of one consumer's walk. Its mutex admits one step at a
// time.
type walk struct {
	mu     sync.Mutex
	from   []byte // the next step begins behind this id
	oldest int64  // lower bound of the rows seen in this walk and left
	floor  int64  // as the last complete walk found it; 0: not known
}

// keep protects the marks of workers of this process from being purged while
// they idle.
func (j *janitor) keep(consumer, worker string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mine == nil {
		j.mine = make(map[[2]string]bool)
	}
	j.mine[[2]string{consumer, worker}] = true
}

func (j *janitor) drop(consumer, worker string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.mine, [2]string{consumer, worker})
}

func (j *janitor) workers(consumer string) (out []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range j.mine {
		if k[0] == consumer {
			out = append(out, k[1])
		}
	}
	return out
}

func (j *janitor) walk(consumer string) *walk {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.walks == nil {
		j.walks = make(map[string]*walk)
	}
	w := j.walks[consumer]
	if w == nil {
		w = &walk{}
		j.walks[consumer] = w
	}
	return w
}

// Purge removes one step of old rows.
func (s *Store) Purge(ctx context.Context, p store.Purge) (out store.Purged, err error) {
	if p.Limit <= 0 {
		p.Limit = 1000
	}
	if p.Keep < 0 {
		return out, failf(semel.ClassFault, "sqlstore: keep is negative: %v", p.Keep)
	}
	w := s.janitor.walk(p.Consumer)
	w.mu.Lock()
	defer w.mu.Unlock()
	old, err := s.oldRecords(ctx, p, w)
	if err != nil {
		return out, err
	}
	// Two transactions, so that neither locks rows against the order in which
	// batches do.
	err = s.purge(ctx, p, func(t *tx, n, before int64) (err error) {
		if out.Records, err = t.purgeRecords(n, before, old); err == nil {
			out.Letters, err = t.purgeLetters(n, before, p.Limit)
		}
		return err
	})
	if err != nil {
		w.from, w.floor = nil, 0 // what it found is not gone
		return store.Purged{}, err
	}
	err = s.purge(ctx, p, func(t *tx, n, before int64) error { return t.purgeOwners(n, before, p, &out) })
	if err != nil {
		out.Fences, out.Workers, out.Effects = 0, 0, 0
	}
	return out, err
}

// purge runs one step of it.
func (s *Store) purge(ctx context.Context, p store.Purge, step func(t *tx, n, before int64) error) error {
	return s.update(ctx, func(t *tx) error {
		n, err := t.lookup(p.Consumer)
		if err != nil || n == 0 {
			return err
		}
		now, err := t.now()
		if err != nil {
			return err
		}
		return step(t, n, now-p.Keep.Milliseconds())
	})
}

// purgeOwners removes marks and fences that nobody has. Marks of this process
// are kept young. What is found is asked again when it is locked: it may have
// found an owner meanwhile.
func (t *tx) purgeOwners(n, before int64, p store.Purge, out *store.Purged) (err error) {
	for _, worker := range t.store.janitor.workers(p.Consumer) {
		if _, err := t.exec("UPDATE semel_batch SET at = {now} WHERE consumer = ? AND worker = ? AND at <= ?", n, blob(worker), before+p.Keep.Milliseconds()/2); err != nil {
			return err
		}
	}
	// A query within a query, or MySQL refuses it.
	out.Workers, err = t.exec(`DELETE FROM semel_batch WHERE (consumer, worker, slot) IN (SELECT * FROM (SELECT consumer, worker, slot
		FROM semel_batch WHERE consumer = ? AND at <= ? AND open = 0 LIMIT ?) old) AND at <= ? AND open = 0`, n, before, p.Limit, before)
	if err == nil && !p.KeepScopes {
		out.Fences, err = t.exec(`DELETE FROM semel_fence WHERE (consumer, scope, incarnation) IN (SELECT * FROM (SELECT consumer, scope, incarnation
			FROM semel_fence WHERE consumer = ? AND clean = 1 AND at <= ? LIMIT ?) old) AND clean = 1 AND at <= ?`, n, before, p.Limit, before)
	}
	if err == nil {
		out.Effects, err = t.purgeEffects(n, before, p.Limit)
	}
	return err
}

// purgeRecords deletes what the walk found, unless it changed since, and books
// it.
func (t *tx) purgeRecords(n, before int64, old [][]byte) (removed int64, err error) {
	sums := make(map[line]*store.Tally)
	for _, id := range old {
		var v semel.Verdict
		var bucket int64
		var h hash
		found := false
		err := t.each("SELECT verdict, bucket, hash FROM semel_inbox WHERE consumer = ? AND id = ? AND at <= ? AND verdict <> ?{lock}", func(r *sql.Rows) error {
			found = true
			return r.Scan(&v, &bucket, &h)
		}, n, id, before, int64(semel.Parked))
		if err != nil {
			return 0, err
		}
		if !found {
			continue
		}
		if _, err := t.exec("DELETE FROM semel_inbox WHERE consumer = ? AND id = ?", n, id); err != nil {
			return 0, err
		}
		k := line{store.AccountPurged + v.String(), bucket}
		if sums[k] == nil {
			sums[k] = &store.Tally{Account: k.account, Bucket: bucket}
		}
		sums[k].N++
		sums[k].Sum += uint64(h)
		removed++
	}
	lines := make([]store.Tally, 0, len(sums))
	for _, l := range sums {
		lines = append(lines, *l)
	}
	return removed, t.count(n, lines)
}

func (t *tx) purgeLetters(n, before int64, limit int) (int64, error) {
	var rows []int64
	err := t.each("SELECT row FROM semel_letter WHERE consumer = ? AND open = 0 AND updated <= ? LIMIT ?{lock}", func(r *sql.Rows) error {
		var row int64
		err := r.Scan(&row)
		rows = append(rows, row)
		return err
	}, n, before, limit)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := t.deleteLetter(row); err != nil {
			return 0, err
		}
	}
	if len(rows) > 0 { // causes that no letter has any more
		_, err = t.exec(`DELETE FROM semel_cause WHERE consumer = ? AND NOT EXISTS
			(SELECT 1 FROM semel_letter l WHERE l.consumer = semel_cause.consumer AND l.cause = semel_cause.cause)`, n)
	}
	return int64(len(rows)), err
}

// stride is how many rows one query of the walk reads.
const stride = 10_000

// oldRecords walks on until it has found a step's worth of old rows or has
// reached the end. It reads beside the committers and locks nothing.
func (s *Store) oldRecords(ctx context.Context, p store.Purge, w *walk) (old [][]byte, err error) {
	var n, now int64
	err = s.read(ctx, func(q reader) error {
		var err error
		if n, err = q.number(p.Consumer); err != nil || n == 0 {
			return err
		}
		return q.one("SELECT {now}", []any{&now})
	})
	if err != nil || n == 0 {
		return nil, err
	}
	before := now - p.Keep.Milliseconds()
	if len(w.from) == 0 {
		// A walk pays only when a fair part of the rows may be old.
		if w.floor != 0 && before < w.floor+(p.Keep/64).Milliseconds() {
			return nil, nil
		}
		w.oldest = now // of what may be written behind it
	}
	for end := false; !end && len(old) < p.Limit; {
		err := s.read(ctx, func(q reader) (err error) {
			end, err = q.stride(n, before, p.Limit, w, &old)
			return err
		})
		if err != nil {
			return nil, err
		}
		if end {
			w.from, w.floor = nil, w.oldest
		}
	}
	return old, nil
}

func (q reader) stride(n, before int64, limit int, w *walk, old *[][]byte) (end bool, err error) {
	from, read := w.from, 0
	if from == nil {
		from = []byte{}
	}
	rows, err := q.tx.QueryContext(q.ctx, q.dialect.text("SELECT id, at, verdict FROM semel_inbox WHERE consumer = ? AND id > ? ORDER BY id LIMIT ?"), n, from, stride)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for len(*old) < limit && rows.Next() {
		var id []byte
		var at int64
		var v semel.Verdict
		if err := rows.Scan(&id, &at, &v); err != nil {
			return false, err
		}
		read++
		w.from = id
		switch {
		case v == semel.Parked:
		case at <= before:
			*old = append(*old, id)
		default:
			w.oldest = min(w.oldest, at)
		}
	}
	return read < stride && len(*old) < limit, rows.Err()
}
