package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Claim inserts the records that are not there.
func (s *Store) Claim(ctx context.Context, x Tx, consumer string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return prior, err
	}
	defer t.mu.Unlock()
	now, err := t.now()
	if err != nil {
		return prior, err
	}
	if t.store.dialect.Duplicate != nil {
		before := len(prior)
		if prior, err = t.claimMany(n, now, r, prior); err == nil && len(prior) > before {
			err = t.intact(n, t.mark)
		}
		return prior, err
	}
	c := claim{t: t, consumer: n, now: now}
	var there []int
	for i := range r {
		if i&0xff == 0xff && ctx.Err() != nil {
			return prior, ctx.Err()
		}
		fresh, err := c.insert(&r[i])
		if err != nil {
			return prior, err
		}
		if !fresh {
			there = append(there, i)
		}
	}
	return c.prior(r, there, prior)
}

// claim reuses its buffers from row to row.
type claim struct {
	t             *tx
	consumer, now int64
	id, fp        []byte
	args          [7]any
}

// insert reports whether the row was not there. Rows affected tell, and
// nothing else does: a read in the same statement may be older than the row.
func (c *claim) insert(r *store.Record) (bool, error) {
	if len(r.ID) == 0 || len(r.ID) > semel.MaxIDBytes {
		return false, failf(semel.ClassPermanent, "sqlstore: an id has %d bytes; 1 to %d are allowed", len(r.ID), semel.MaxIDBytes)
	}
	c.id = append(c.id[:0], r.ID...)
	c.fp = append(c.fp[:0], r.Fingerprint[:]...)
	c.args = [7]any{c.consumer, c.id, c.fp, int64(r.Verdict), r.Bucket, int64(r.Hash), c.now}
	moved, err := c.t.exec(`INSERT INTO semel_inbox (consumer, id, fingerprint, verdict, bucket, hash, at) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (consumer, id) DO NOTHING`, c.args[:]...)
	return moved == 1, err
}

// prior reads the rows that were there, in a second statement.
func (c *claim) prior(r []store.Record, there []int, out []store.Prior) ([]store.Prior, error) {
	first := len(out)
	index := make(map[string]int, len(there))
	ids := make([]string, len(there))
	for k, i := range there {
		ids[k] = r[i].ID
		index[r[i].ID] = i
	}
	err := c.t.chunks(ids, func(marks string, args []any) error {
		q := "SELECT id, fingerprint, verdict, bucket, hash FROM semel_inbox WHERE id IN (" + marks + ") AND consumer = ? ORDER BY id{lock}"
		return c.t.each(q, func(rows *sql.Rows) error {
			var p store.Prior
			err := rows.Scan(&p.ID, (*fingerprint)(&p.Fingerprint), &p.Verdict, &p.Bucket, (*hash)(&p.Hash))
			p.I = index[p.ID]
			out = append(out, p)
			return err
		}, append(args, c.consumer)...)
	})
	if err == nil && len(out)-first != len(there) {
		err = failf(semel.ClassContention, "sqlstore: a record vanished while it was claimed")
	}
	return out, err
}

// Record sets verdicts.
func (s *Store) Record(ctx context.Context, x Tx, consumer string, r []store.Record) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	now, err := t.now()
	if err != nil {
		return err
	}
	for i := range r {
		_, err := t.exec("UPDATE semel_inbox SET verdict = ?, at = ? WHERE consumer = ? AND id = ?", int64(r[i].Verdict), now, n, blob(r[i].ID))
		if err != nil {
			return err
		}
	}
	return nil
}

// Count adds to the ledger.
func (s *Store) Count(ctx context.Context, x Tx, consumer string, tallies []store.Tally) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	return t.count(n, tallies)
}

const half = 1<<32 - 1

// AddUp returns one line for each (account, bucket), sorted by them: two
// transactions that write them in this order do not wait for each other.
func AddUp(tallies []store.Tally) (sums []store.Tally) {
	for _, l := range tallies {
		i, there := slices.BinarySearchFunc(sums, l, byLine)
		if !there {
			sums = slices.Insert(sums, i, store.Tally{Account: l.Account, Bucket: l.Bucket})
		}
		sums[i].N += l.N
		sums[i].Sum += l.Sum
	}
	return sums
}

func byLine(a, b store.Tally) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Bucket, b.Bucket))
}

// count keeps sums in two halves: databases do not add 64-bit numbers modulo
// 2^64, they overflow.
func (t *tx) count(n int64, tallies []store.Tally) error {
	tallies = AddUp(tallies)
	for i := range tallies {
		l := &tallies[i]
		_, err := t.exec(`INSERT INTO semel_ledger (consumer, account, bucket, n, sum_lo, sum_hi) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (consumer, account, bucket) DO UPDATE SET n = semel_ledger.n + excluded.n,
			sum_hi = (semel_ledger.sum_hi + excluded.sum_hi + ((semel_ledger.sum_lo + excluded.sum_lo) >> 32)) & 4294967295,
			sum_lo = (semel_ledger.sum_lo + excluded.sum_lo) & 4294967295`, // last: MySQL assigns from left to right
			n, l.Account, l.Bucket, l.N, int64(l.Sum&half), int64(l.Sum>>32))
		if err != nil {
			return err
		}
	}
	return nil
}

// Versions reads the newest versions of keys.
func (s *Store) Versions(ctx context.Context, x Tx, consumer string, keys []string, out []store.Versioned) ([]store.Versioned, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return out, err
	}
	defer t.mu.Unlock()
	err = t.chunks(keys, func(marks string, args []any) error {
		return t.each("SELECT "+versionCols+" FROM semel_version WHERE key IN ("+marks+") AND consumer = ? ORDER BY key{lock}", func(r *sql.Rows) error {
			v, err := scanVersion(r)
			out = append(out, v)
			t.hasVersion(n, v.Key)
			return err
		}, append(args, n)...)
	})
	return out, err
}

// rowKey names a row of this transaction's consumers.
type rowKey struct {
	consumer int64
	key      string
}

// hasVersion notes a row that is there and locked.
func (t *tx) hasVersion(n int64, key string) {
	if t.versions == nil {
		t.versions = make(map[rowKey]bool)
	}
	t.versions[rowKey{n, key}] = true
}

const versionCols = "key, n, tie, known, id, fingerprint"

func scanVersion(r *sql.Rows) (v store.Versioned, err error) {
	err = r.Scan(&v.Key, &v.Version.N, &v.Version.Tie, &v.Version.Set, &v.ID, (*fingerprint)(&v.Fingerprint))
	return v, err
}

// SetVersions writes versions. A row that Versions did not find is not locked:
// if it is there now, someone else has decided about the key meanwhile.
func (s *Store) SetVersions(ctx context.Context, x Tx, consumer string, vs []store.Versioned) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	if t.store.dialect.Duplicate != nil {
		return t.setVersionsMany(n, vs)
	}
	for i := range vs {
		if err := t.setVersion(n, &vs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) setVersion(n int64, v *store.Versioned) error {
	q := `INSERT INTO semel_version (n, tie, known, id, fingerprint, consumer, key) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (consumer, key) DO NOTHING`
	known := t.versions[rowKey{n, v.Key}]
	if known {
		q = "UPDATE semel_version SET n = ?, tie = ?, known = ?, id = ?, fingerprint = ? WHERE consumer = ? AND key = ?"
	}
	moved, err := t.exec(q, v.Version.N, blob(v.Version.Tie), flag(v.Version.Set), blob(v.ID), v.Fingerprint[:], n, blob(v.Key))
	if err == nil && moved == 0 && !known { // a known row is ours; not every database counts one that stays the same
		err = failf(semel.ClassContention, "sqlstore: another transaction wrote the version of a key first")
	}
	t.hasVersion(n, v.Key)
	return err
}

// chunks calls fn with placeholders and arguments for a few names at a time.
// Sizes are fixed, so that there are few statements to keep; a short rest is
// filled up by repeating the last name.
func (t *tx) chunks(names []string, fn func(marks string, args []any) error) error {
	for len(names) > 0 {
		size := 4
		if len(names) > size {
			size = 128
		}
		part := names[:min(size, len(names))]
		names = names[len(part):]
		args := make([]any, 0, size+1)
		for i := range size {
			args = append(args, blob(part[min(i, len(part)-1)]))
		}
		if err := fn(strings.Repeat("?, ", size-1)+"?", args); err != nil {
			return err
		}
	}
	return nil
}
