package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// reader runs queries in one snapshot.
type reader struct {
	ctx     context.Context
	tx      *sql.Tx
	dialect *Dialect
}

// read runs fn in a transaction that only reads, beside the committers.
func (s *Store) read(ctx context.Context, fn func(reader) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	return fn(reader{ctx: ctx, tx: tx, dialect: s.dialect})
}

func (q reader) each(portable string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := q.tx.QueryContext(q.ctx, q.dialect.text(portable), args...)
	if err != nil {
		return err
	}
	return drain(rows, scan)
}

func (q reader) one(portable string, dest []any, args ...any) error {
	return q.tx.QueryRowContext(q.ctx, q.dialect.text(portable), args...).Scan(dest...)
}

// number returns the consumer's number, 0 if it has none: then nothing of it
// is stored.
func (q reader) number(consumer string) (n int64, err error) {
	err = q.one("SELECT number FROM semel_consumer WHERE name = ?", []any{&n}, blob(consumer))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// Due returns the letters that may run now.
func (s *Store) Due(ctx context.Context, consumer string, limit int, maxBytes int64) (due []store.Letter, next time.Duration, err error) {
	next = -1
	err = s.read(ctx, func(q reader) error {
		n, err := q.number(consumer)
		if err != nil || n == 0 {
			return err
		}
		var now int64
		if err := q.one("SELECT {now}", []any{&now}); err != nil {
			return err
		}
		rows, err := q.dueRows(n, now, limit+1)
		if err != nil {
			return err
		}
		due, err = q.bodies(rows[:min(limit, len(rows))], maxBytes)
		if err != nil || len(due) < len(rows) {
			next = 0 // some that are due did not fit
			return err
		}
		var at sql.NullInt64
		err = q.one("SELECT MIN(due) FROM semel_letter WHERE consumer = ? AND state = 'retry' AND due > ?", []any{&at}, n, now)
		if at.Valid {
			next = time.Duration(at.Int64-now) * time.Millisecond
		}
		return err
	})
	return due, next, err
}

// head is the lowest number among the open letters of l's key.
const head = "(SELECT MIN(o.number) FROM semel_letter o WHERE o.consumer = l.consumer AND o.key = l.key AND o.number > 0 AND o.open = 1)"

// dueRows chooses the letters: held ones whose turn has come, which have no
// time, before retries by time.
func (q reader) dueRows(n, now int64, limit int) (rows []int64, err error) {
	add := func(r *sql.Rows) error {
		var row int64
		err := r.Scan(&row)
		rows = append(rows, row)
		return err
	}
	var held bool
	if err := q.one("SELECT EXISTS (SELECT 1 FROM semel_letter WHERE consumer = ? AND state = 'held')", []any{&held}, n); err != nil {
		return nil, err
	}
	if held {
		err = q.each(`SELECT l.row FROM (SELECT key AS k, MIN(number) AS first FROM semel_letter
			WHERE consumer = ? AND number > 0 AND open = 1 GROUP BY key) h
			JOIN semel_letter l ON l.consumer = ? AND l.key = h.k AND l.number = h.first AND l.number > 0 AND l.open = 1
			WHERE l.state = 'held' ORDER BY l.row LIMIT ?`, add, n, n, limit)
	}
	if err == nil && len(rows) < limit {
		err = q.each(`SELECT l.row FROM semel_letter l WHERE l.consumer = ? AND l.state = 'retry' AND l.due <= ?
			AND (l.number = 0 OR l.number = `+head+`) ORDER BY l.due, l.row LIMIT ?`, add, n, now, limit-len(rows))
	}
	return rows, err
}

// bodies reads letters until their bodies exceed maxBytes; the first one in
// any case, or a large letter would never run.
func (q reader) bodies(rows []int64, maxBytes int64) (out []store.Letter, err error) {
	var sum int64
	for _, row := range rows {
		err := q.each("SELECT "+fullCols+letterFrom+"WHERE l.row = ?", func(r *sql.Rows) error {
			_, l, err := scanLetter(r, true)
			out = append(out, l)
			return err
		}, row)
		if err != nil {
			return nil, err
		}
		if sum += size(&out[len(out)-1].Message); maxBytes > 0 && sum > maxBytes && len(out) > 1 {
			return out[:len(out)-1], nil
		}
	}
	return out, nil
}

func size(m *semel.Message) int64 {
	n := len(m.Body)
	for _, f := range m.Header {
		n += len(f.Name) + len(f.Value)
	}
	return int64(n)
}

// List returns letters by query.
func (s *Store) List(ctx context.Context, qu store.Query) (out []store.Letter, err error) {
	err = s.read(ctx, func(q reader) error {
		w, err := q.where(qu)
		if err != nil {
			return err
		}
		limit := qu.Limit
		if limit <= 0 {
			limit = 100
		}
		text := "SELECT " + letterCols(qu.Bodies) + letterFrom + w.String() + " ORDER BY l.created, l.ref LIMIT ?"
		return q.each(text, func(r *sql.Rows) error {
			_, l, err := scanLetter(r, qu.Bodies)
			out = append(out, l)
			return err
		}, append(w.args, limit)...)
	})
	return out, err
}

// where collects conditions.
type where struct {
	terms []string
	args  []any
}

func (w *where) and(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(w.terms, " AND ")
}

func (q reader) where(qu store.Query) (w where, err error) {
	if qu.Consumer != "" {
		n, err := q.number(qu.Consumer)
		if err != nil {
			return w, err
		}
		w.and("l.consumer = ?", n)
	}
	if len(qu.States) > 0 {
		args := make([]any, len(qu.States))
		for i, st := range qu.States {
			args[i] = string(st)
		}
		w.and("l.state IN ("+strings.Repeat("?, ", len(args)-1)+"?)", args...)
	}
	if qu.Class != "" {
		w.and("l.class = ?", string(qu.Class))
	}
	if qu.ID != "" {
		w.and("l.id = ?", blob(qu.ID))
	}
	if qu.Key != "" {
		w.and("l.key = ?", blob(qu.Key))
	}
	if qu.Ref != "" {
		w.and("l.ref >= ?", blob(qu.Ref))
		if end := after(qu.Ref); end != nil {
			w.and("l.ref < ?", end)
		}
	}
	return w, q.continueAfter(&w, qu)
}

// continueAfter starts behind the letter qu.After. If it is gone, going on
// would silently skip or repeat.
func (q reader) continueAfter(w *where, qu store.Query) error {
	if qu.After == "" {
		return nil
	}
	from := where{}
	from.and("l.ref = ?", blob(qu.After))
	if qu.Consumer != "" {
		from.and("c.name = ?", blob(qu.Consumer))
	}
	var created int64
	err := q.one("SELECT l.created"+letterFrom+from.String()+" ORDER BY l.created LIMIT 1", []any{&created}, from.args...)
	if errors.Is(err, sql.ErrNoRows) {
		return failf(semel.ClassPermanent, "sqlstore: the letter %q to continue after is gone; list from the start", qu.After)
	}
	w.and("(l.created > ? OR (l.created = ? AND l.ref > ?))", created, created, blob(qu.After))
	return err
}

// after is the first byte string beyond all that begin with prefix; nil if
// there is none.
func after(prefix string) []byte {
	b := blob(prefix)
	for len(b) > 0 {
		if b[len(b)-1]++; b[len(b)-1] != 0 {
			return b
		}
		b = b[:len(b)-1]
	}
	return nil
}

// Revisions returns the proposals for a letter, newest last.
func (s *Store) Revisions(ctx context.Context, consumer, ref string) (out []store.Revision, err error) {
	err = s.read(ctx, func(q reader) error {
		return q.each(`SELECT r.n, r.at, r.actor, r.note, r.id, r.key, r.type, r.source, r.time_s, r.time_ns, r.version_n, r.version_tie,
			r.version_set, r.header, r.body, r.fingerprint FROM semel_letter_revision r
			JOIN semel_letter l ON l.row = r.letter JOIN semel_consumer c ON c.number = l.consumer
			WHERE c.name = ? AND l.ref = ? ORDER BY r.n`, func(r *sql.Rows) error {
			v, m := store.Revision{Ref: ref}, messageRow{}
			err := r.Scan(append([]any{&v.N, (*millis)(&v.At), &v.By, &v.Note}, m.dest(&v.Message, &v.Fingerprint, true)...)...)
			v.Message.Time = m.time()
			out = append(out, v)
			return err
		}, blob(consumer), blob(ref))
	})
	return out, err
}

// Trace follows one id.
func (s *Store) Trace(ctx context.Context, consumer, id, key string) (tr store.Trace, err error) {
	err = s.read(ctx, func(q reader) error {
		n, err := q.number(consumer)
		if err != nil || n == 0 {
			return err
		}
		if err := q.traceRecord(n, id, &tr); err != nil {
			return err
		}
		if err := q.traceLetters(n, id, &tr); err != nil {
			return err
		}
		if key == "" && len(tr.Letters) > 0 {
			key = tr.Letters[0].Message.Key
		}
		err = q.each("SELECT "+versionCols+" FROM semel_version WHERE consumer = ? AND key = ?", func(r *sql.Rows) error {
			v, err := scanVersion(r)
			tr.Version = &v
			return err
		}, n, blob(key))
		if err == nil {
			tr.Fences, err = q.fences(n)
		}
		return err
	})
	return tr, err
}

func (q reader) traceRecord(n int64, id string, tr *store.Trace) error {
	return q.each("SELECT fingerprint, verdict, bucket, hash, at FROM semel_inbox WHERE consumer = ? AND id = ?", func(r *sql.Rows) error {
		tr.Record = &store.Record{ID: id}
		return r.Scan((*fingerprint)(&tr.Record.Fingerprint), &tr.Record.Verdict, &tr.Record.Bucket, (*hash)(&tr.Record.Hash), (*millis)(&tr.At))
	}, n, blob(id))
}

func (q reader) traceLetters(n int64, id string, tr *store.Trace) error {
	rows := make(map[int64]string)
	err := q.each("SELECT "+fullCols+letterFrom+"WHERE l.consumer = ? AND l.id = ? ORDER BY l.created, l.ref", func(r *sql.Rows) error {
		row, l, err := scanLetter(r, true)
		rows[row] = l.Ref
		tr.Letters = append(tr.Letters, l)
		return err
	}, n, blob(id))
	if err != nil {
		return err
	}
	tr.Attempts = make(map[string][]store.Attempt)
	for row, ref := range rows {
		err := q.each("SELECT n, at, class, error, stack, worker FROM semel_letter_attempt WHERE letter = ? ORDER BY n", func(r *sql.Rows) error {
			var a store.Attempt
			err := r.Scan(&a.N, (*millis)(&a.At), &a.Class, &a.Error, &a.Stack, &a.Worker)
			tr.Attempts[ref] = append(tr.Attempts[ref], a)
			return err
		}, row)
		if err != nil {
			return err
		}
	}
	return nil
}

func (q reader) fences(n int64) (out []store.Fence, err error) {
	err = q.each(`SELECT scope, incarnation, epoch, next_hi, next_lo, clean, worker FROM semel_fence WHERE consumer = ?
		ORDER BY clean, scope, incarnation LIMIT 1000`, func(r *sql.Rows) error {
		var f store.Fence
		err := r.Scan(&f.Scope.Name, &f.Scope.Incarnation, &f.Epoch, &f.Next.Hi, &f.Next.Lo, &f.Clean, &f.Worker)
		out = append(out, f)
		return err
	}, n)
	return out, err
}
