package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
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
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: s.dialect.Snapshot})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	return fn(reader{ctx: ctx, tx: tx, dialect: s.dialect})
}

func (q reader) each(portable string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := q.tx.QueryContext(q.ctx, q.dialect.text(portable), q.dialect.values(args)...)
	if err != nil {
		return err
	}
	return drain(rows, scan)
}

func (q reader) one(portable string, dest []any, args ...any) error {
	return q.tx.QueryRowContext(q.ctx, q.dialect.text(portable), q.dialect.values(args)...).Scan(dest...)
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
		due, err = q.bodies(consumer, rows[:min(limit, len(rows))], maxBytes)
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
func (q reader) bodies(consumer string, rows []int64, maxBytes int64) (out []store.Letter, err error) {
	var sum int64
	for _, row := range rows {
		err := q.each("SELECT "+fullCols+letterFrom+"WHERE l.row = ?", func(r *sql.Rows) error {
			_, l, err := scanLetter(r, consumer, true)
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
		if err := q.traceLetters(n, consumer, id, &tr); err != nil {
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

func (q reader) traceLetters(n int64, consumer, id string, tr *store.Trace) error {
	rows := make(map[int64]string)
	err := q.each("SELECT "+fullCols+letterFrom+"WHERE l.consumer = ? AND l.id = ?", func(r *sql.Rows) error {
		row, l, err := scanLetter(r, consumer, true)
		rows[row] = l.Ref
		tr.Letters = append(tr.Letters, l)
		return err
	}, n, blob(id))
	if err != nil {
		return err
	}
	slices.SortFunc(tr.Letters, func(a, b store.Letter) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Ref, b.Ref))
	})
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
