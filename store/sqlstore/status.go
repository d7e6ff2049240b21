package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Status returns everything that waits, in one snapshot.
func (s *Store) Status(ctx context.Context, consumer string, rows bool) (st store.Status, err error) {
	err = s.read(ctx, func(q reader) error {
		st.Letters = make(map[store.State]int64)
		n, err := q.number(consumer)
		if err != nil || n == 0 {
			return err
		}
		for _, part := range []func(int64, *store.Status) error{q.letters, q.holds, q.workers(consumer), q.suspects, q.ledger} {
			if err := part(n, &st); err != nil {
				return err
			}
		}
		if st.Fences, err = q.fences(n); err != nil {
			return err
		}
		st.Imbalances = openImbalance(&st)
		if rows {
			return q.inboxImbalances(n, &st)
		}
		return nil
	})
	return st, err
}

func (q reader) letters(n int64, st *store.Status) error {
	err := q.each("SELECT state, COUNT(*) FROM semel_letter WHERE consumer = ? GROUP BY state", func(r *sql.Rows) error {
		var state store.State
		var count int64
		err := r.Scan(&state, &count)
		st.Letters[state] = count
		return err
	}, n)
	if err != nil {
		return err
	}
	return q.one("SELECT COALESCE(MIN(due), 0) FROM semel_letter WHERE consumer = ? AND state = 'retry'", []any{(*millis)(&st.NextDue)}, n)
}

func (q reader) holds(n int64, st *store.Status) error {
	if err := q.one("SELECT COUNT(*) FROM semel_hold WHERE consumer = ?", []any{&st.HoldKeys}, n); err != nil {
		return err
	}
	return q.each("SELECT key, size, tail FROM semel_hold WHERE consumer = ? ORDER BY size DESC, key LIMIT 100", func(r *sql.Rows) error {
		h, err := scanHold(r)
		st.Holds = append(st.Holds, h)
		return err
	}, n)
}

func (q reader) workers(consumer string) func(int64, *store.Status) error {
	return func(n int64, st *store.Status) error {
		return q.each("SELECT worker, slot, batch FROM semel_batch WHERE consumer = ? ORDER BY worker, slot", func(r *sql.Rows) error {
			m := store.Mark{Consumer: consumer}
			err := r.Scan(&m.Worker, &m.Slot, &m.Batch)
			st.Workers = append(st.Workers, m)
			return err
		}, n)
	}
}

func (q reader) suspects(n int64, st *store.Status) error {
	return q.each("SELECT "+suspectCols+" FROM semel_suspect WHERE consumer = ? ORDER BY unit", func(r *sql.Rows) error {
		u, err := scanSuspect(r)
		st.Suspects = append(st.Suspects, u)
		return err
	}, n)
}

func (q reader) ledger(n int64, st *store.Status) error {
	return q.each("SELECT account, bucket, n, sum_lo, sum_hi FROM semel_ledger WHERE consumer = ? ORDER BY account, bucket", func(r *sql.Rows) error {
		var l store.Tally
		var lo, hi uint64
		err := r.Scan(&l.Account, &l.Bucket, &l.N, &lo, &hi)
		l.Sum = hi<<32 + lo
		st.Ledger = append(st.Ledger, l)
		return err
	}, n)
}

// openImbalance compares the letters opened and not closed with those open.
func openImbalance(st *store.Status) []store.Imbalance {
	var ledger, rows int64
	for _, l := range st.Ledger {
		switch l.Account {
		case store.AccountOpened:
			ledger += l.N
		case store.AccountClosed:
			ledger -= l.N
		}
	}
	for state, n := range st.Letters {
		if state.Open() {
			rows += n
		}
	}
	if ledger == rows {
		return nil
	}
	return []store.Imbalance{{Account: store.AccountOpened, Ledger: ledger, Rows: rows}}
}

// mirrored are the verdicts that stand in inbox rows.
func mirrored() []semel.Verdict {
	return []semel.Verdict{semel.Applied, semel.Superseded, semel.Filtered, semel.Parked, semel.Discarded}
}

// line is one (verdict, bucket) of the comparison: what the ledger says is
// there, and what is.
type line struct {
	account string
	bucket  int64
}

type balance struct{ n, rows, sum, rowSum uint64 }

// inboxImbalances compares, per verdict and bucket, ledger - purged with the
// rows: their number and the sum of their hashes.
func (q reader) inboxImbalances(n int64, st *store.Status) error {
	var kept bool
	err := q.one("SELECT EXISTS (SELECT 1 FROM semel_identity WHERE consumer = ? AND fact = 'inbox' AND value = 'table')", []any{&kept}, n)
	if err != nil || !kept {
		return err
	}
	lines := expected(st.Ledger)
	err = q.each(`SELECT verdict, bucket, COUNT(*), SUM(hash & 4294967295), SUM((hash >> 32) & 4294967295)
		FROM semel_inbox WHERE consumer = ? GROUP BY verdict, bucket`, func(r *sql.Rows) error {
		var v semel.Verdict
		var k line
		var rows, lo, hi uint64
		err := r.Scan(&v, &k.bucket, &rows, &lo, &hi)
		k.account = v.String()
		b := lines[k]
		b.rows, b.rowSum = rows, hi<<32+lo
		lines[k] = b
		return err
	}, n)
	st.Imbalances = append(st.Imbalances, differences(lines)...)
	return err
}

func expected(ledger []store.Tally) map[line]balance {
	lines := make(map[line]balance)
	add := func(account string, l store.Tally, sign uint64) {
		k := line{account, l.Bucket}
		b := lines[k]
		b.n += sign * uint64(l.N)
		b.sum += sign * l.Sum
		lines[k] = b
	}
	for _, l := range ledger {
		for _, v := range mirrored() {
			switch l.Account {
			case v.String():
				add(v.String(), l, 1)
			case store.AccountPurged + v.String():
				add(v.String(), l, ^uint64(0)) // minus one
			}
		}
	}
	return lines
}

func differences(lines map[line]balance) (out []store.Imbalance) {
	for k, b := range lines {
		if b.n != b.rows || b.sum != b.rowSum { // equal numbers: other ids
			out = append(out, store.Imbalance{Account: k.account, Bucket: k.bucket, Ledger: int64(b.n), Rows: int64(b.rows)})
		}
	}
	slices.SortFunc(out, func(a, b store.Imbalance) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Bucket, b.Bucket))
	})
	return out
}
