package sqlstore

import (
	"database/sql"
	"math/bits"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// This file is for servers to which a statement is a journey and that take no
// arrays: rows go many at a time, in statements of few sizes that stay prepared.

// maxRows bounds the rows of one INSERT; they have fewer than ten values each.
const maxRows = 512

// someOf is how many of n rows go into the next INSERT: a power of two.
func someOf(n int) int { return min(maxRows, 1<<(bits.Len(uint(n))-1)) }

// insert runs one INSERT of rows that have width values each; tail is what
// stands behind the values.
func (t *tx) insert(statement, tail string, width int, values []any) error {
	row := "(" + strings.Repeat("?, ", width-1) + "?)"
	_, err := t.exec(statement+" VALUES "+strings.Repeat(row+", ", len(values)/width-1)+row+tail, values...)
	return err
}

// claimMany locks the rows that are there and inserts the others. An insert
// waits for other transactions that have inserted the same ids; if one of them
// commits, the statement is undone and the rows are looked for once more.
func (t *tx) claimMany(n, now int64, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	fresh, err := everyID(r)
	if err == nil {
		fresh, prior, err = t.lockKnown(n, r, fresh, prior)
	}
	for err == nil && len(fresh) > 0 {
		part, rest := fresh[:someOf(len(fresh))], fresh[someOf(len(fresh)):]
		err = t.insertRecords(n, now, r, part)
		if fresh = rest; err != nil && t.store.dialect.Duplicate(err) {
			var left []int
			if left, prior, err = t.lockKnown(n, r, part, prior); err == nil && len(left) == len(part) {
				err = failf(semel.ClassContention, "sqlstore: a record vanished while it was claimed")
			}
			fresh = append(left, rest...)
		}
	}
	return prior, err
}

// everyID returns the indexes of r, unless one of the ids cannot be stored.
func everyID(r []store.Record) ([]int, error) {
	all := make([]int, len(r))
	for i := range r {
		if id := r[i].ID; len(id) == 0 || len(id) > semel.MaxIDBytes {
			return nil, failf(semel.ClassPermanent, "sqlstore: an id has %d bytes; 1 to %d are allowed", len(id), semel.MaxIDBytes)
		}
		all[i] = i
	}
	return all, nil
}

func (t *tx) insertRecords(n, now int64, r []store.Record, part []int) error {
	values := make([]any, 0, 7*len(part))
	for _, i := range part {
		values = append(values, n, blob(r[i].ID), r[i].Fingerprint[:], int64(r[i].Verdict), r[i].Bucket, int64(r[i].Hash), now)
	}
	return t.insert("INSERT INTO semel_inbox (consumer, id, fingerprint, verdict, bucket, hash, at)", "", 7, values)
}

// lockKnown locks those of the records that are there and appends them to
// prior; the others are fresh.
func (t *tx) lockKnown(n int64, r []store.Record, of []int, prior []store.Prior) (fresh []int, _ []store.Prior, err error) {
	ids := make([]string, len(of))
	for k, i := range of {
		ids[k] = r[i].ID
	}
	known := make(map[int]bool)
	err = t.chunks(ids, func(marks string, args []any) error {
		q := "SELECT id, fingerprint, verdict, bucket, hash FROM semel_inbox WHERE id IN (" + marks + ") AND consumer = ? ORDER BY id{lock}"
		return t.each(q, func(rows *sql.Rows) error {
			var p store.Prior
			err := rows.Scan(&p.ID, (*fingerprint)(&p.Fingerprint), &p.Verdict, &p.Bucket, (*hash)(&p.Hash))
			p.I, _ = slices.BinarySearchFunc(r, p.ID, func(r store.Record, id string) int { return strings.Compare(r.ID, id) })
			known[p.I] = true
			prior = append(prior, p)
			return err
		}, append(args, n)...)
	})
	return slices.DeleteFunc(slices.Clone(of), func(i int) bool { return known[i] }), prior, err
}

// setVersionsMany writes the rows that Versions locked, and inserts the others.
func (t *tx) setVersionsMany(n int64, vs []store.Versioned) error {
	var known, fresh []any
	for i := range vs {
		v := &vs[i]
		to := &fresh
		if t.versions[rowKey{n, v.Key}] {
			to = &known
		}
		*to = append(*to, n, blob(v.Key), v.Version.N, blob(v.Version.Tie), flag(v.Version.Set), blob(v.ID), v.Fingerprint[:])
	}
	err := t.putVersions(known, ` ON CONFLICT (consumer, key) DO UPDATE SET n = excluded.n, tie = excluded.tie, known = excluded.known,
		id = excluded.id, fingerprint = excluded.fingerprint`)
	if err == nil {
		err = t.putVersions(fresh, "")
	}
	if err != nil && t.store.dialect.Duplicate(err) {
		err = failf(semel.ClassContention, "sqlstore: another transaction wrote the version of a key first")
	}
	for i := range vs {
		t.hasVersion(n, vs[i].Key)
	}
	return err
}

func (t *tx) putVersions(values []any, tail string) error {
	for len(values) > 0 {
		size := 7 * someOf(len(values)/7)
		if err := t.insert("INSERT INTO semel_version (consumer, key, n, tie, known, id, fingerprint)", tail, 7, values[:size]); err != nil {
			return err
		}
		values = values[size:]
	}
	return nil
}
