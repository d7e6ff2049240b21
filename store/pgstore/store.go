package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Store is a store in a PostgreSQL database. Transactions are sqlstore.Tx. Its
// methods are safe for concurrent use.
//
// What a batch does with many rows is done here, in one statement or one round
// trip; all else is sqlstore's.
type Store struct{ *sqlstore.Store }

var (
	_ store.Backend[sqlstore.Tx]  = (*Store)(nil)
	_ store.Deferred[sqlstore.Tx] = (*Store)(nil)
	_ store.Schema                = (*Store)(nil)
)

// clock is the time of the transaction, as it is stored.
const clock = "CAST(floor(extract(epoch FROM transaction_timestamp()) * 1000) AS BIGINT)"

// within runs fn on the transaction's connection. Statements of the store are
// not cancelled with the handler's context: that would cost the connection.
func (s *Store) within(ctx context.Context, tx sqlstore.Tx, consumer string, fn func(ctx context.Context, c *pgx.Conn, n int64) error) error {
	return s.Within(ctx, tx, consumer, func(sc *sql.Conn, n int64) error {
		c, err := native(sc)
		if err != nil {
			return err
		}
		return fn(context.WithoutCancel(ctx), c, n)
	})
}

// columns are records by column, as unnest takes them.
type columns struct {
	ids, fingerprints        [][]byte
	verdicts, buckets, hashs []int64
}

func byColumn(r []store.Record) (c columns, err error) {
	bytes := make([]byte, 0, 64*len(r))
	cut := func(b string) []byte {
		from := len(bytes)
		bytes = append(bytes, b...)
		return bytes[from:len(bytes):len(bytes)]
	}
	n := len(r)
	c = columns{make([][]byte, n), make([][]byte, n), make([]int64, n), make([]int64, n), make([]int64, n)}
	for i := range r {
		id := r[i].ID
		if len(id) == 0 || len(id) > semel.MaxIDBytes {
			return c, sqlstore.Failf(semel.ClassPermanent, "pgstore: an id has %d bytes; 1 to %d are allowed", len(id), semel.MaxIDBytes)
		}
		c.ids[i], c.fingerprints[i] = cut(id), cut(string(r[i].Fingerprint[:]))
		c.verdicts[i], c.buckets[i], c.hashs[i] = int64(r[i].Verdict), r[i].Bucket, int64(r[i].Hash)
	}
	return c, nil
}

const claim = `INSERT INTO semel_inbox (consumer, id, fingerprint, verdict, bucket, hash, at)
	SELECT $1, r.id, r.fingerprint, r.verdict, r.bucket, r.hash, ` + clock + `
	FROM unnest($2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS r(id, fingerprint, verdict, bucket, hash)
	ON CONFLICT (consumer, id) DO NOTHING RETURNING id`

// Claim inserts the records that are not there, in one statement. It waits for
// others in the order of the ids.
func (s *Store) Claim(ctx context.Context, tx sqlstore.Tx, consumer string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	c, err := byColumn(r)
	if err != nil {
		return prior, err
	}
	err = s.within(ctx, tx, consumer, func(ctx context.Context, conn *pgx.Conn, n int64) error {
		var id pgtype.DriverBytes
		fresh := make(map[string]bool, len(r))
		rows, err := conn.Query(ctx, claim, n, c.ids, c.fingerprints, c.verdicts, c.buckets, c.hashs)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&id}, func() error { fresh[string(id)] = true; return nil })
		}
		if err == nil && len(fresh) < len(r) {
			prior, err = known(ctx, conn, n, r, fresh, prior)
		}
		return err
	})
	return prior, err
}

// known reads the rows that were there. A statement of its own sees what was
// committed while the first one waited.
func known(ctx context.Context, conn *pgx.Conn, n int64, r []store.Record, fresh map[string]bool, prior []store.Prior) ([]store.Prior, error) {
	first := len(prior)
	index := make(map[string]int, len(r)-len(fresh))
	ids := make([][]byte, 0, len(r)-len(fresh))
	for i := range r {
		if !fresh[r[i].ID] {
			index[r[i].ID] = i
			ids = append(ids, []byte(r[i].ID))
		}
	}
	var id, fp []byte
	var verdict, bucket, hash int64
	rows, err := conn.Query(ctx, `SELECT id, fingerprint, verdict, bucket, hash FROM semel_inbox
		WHERE consumer = $1 AND id = ANY($2::bytea[]) ORDER BY id FOR UPDATE`, n, ids)
	if err != nil {
		return prior, err
	}
	_, err = pgx.ForEachRow(rows, []any{&id, &fp, &verdict, &bucket, &hash}, func() error {
		p := store.Prior{I: index[string(id)], Record: store.Record{ID: string(id), Verdict: semel.Verdict(verdict), Bucket: bucket, Hash: uint64(hash)}}
		copy(p.Fingerprint[:], fp)
		prior = append(prior, p)
		return nil
	})
	if err == nil && len(prior)-first != len(ids) {
		err = sqlstore.Failf(semel.ClassContention, "pgstore: a record vanished while it was claimed")
	}
	return prior, err
}

// Record sets verdicts, in one statement.
func (s *Store) Record(ctx context.Context, tx sqlstore.Tx, consumer string, r []store.Record) error {
	if len(r) == 0 {
		return nil
	}
	c, err := byColumn(r)
	if err != nil {
		return err
	}
	return s.within(ctx, tx, consumer, func(ctx context.Context, conn *pgx.Conn, n int64) error {
		_, err := conn.Exec(ctx, `UPDATE semel_inbox i SET verdict = r.verdict, at = `+clock+`
			FROM unnest($2::bytea[], $3::bigint[]) AS r(id, verdict) WHERE i.consumer = $1 AND i.id = r.id`, n, c.ids, c.verdicts)
		return err
	})
}

const count = `INSERT INTO semel_ledger AS l (consumer, account, bucket, n, sum_lo, sum_hi)
	SELECT $1, r.* FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS r(account, bucket, n, lo, hi)
	ORDER BY r.account COLLATE "C", r.bucket
	ON CONFLICT (consumer, account, bucket) DO UPDATE SET n = l.n + excluded.n,
	sum_hi = (l.sum_hi + excluded.sum_hi + ((l.sum_lo + excluded.sum_lo) >> 32)) & 4294967295,
	sum_lo = (l.sum_lo + excluded.sum_lo) & 4294967295`

// Count adds to the ledger, in one statement.
func (s *Store) Count(ctx context.Context, tx sqlstore.Tx, consumer string, tallies []store.Tally) error {
	if len(tallies) == 0 {
		return nil
	}
	accounts, c := ledgerColumns(sqlstore.AddUp(tallies))
	return s.within(ctx, tx, consumer, func(ctx context.Context, conn *pgx.Conn, n int64) error {
		_, err := conn.Exec(ctx, count, n, accounts, c[0], c[1], c[2], c[3])
		return err
	})
}

// ledgerColumns are lines by column: bucket, n, and the two halves of the sum.
func ledgerColumns(lines []store.Tally) (accounts []string, c [4][]int64) {
	for _, l := range lines {
		accounts = append(accounts, l.Account)
		c[0], c[1] = append(c[0], l.Bucket), append(c[1], l.N)
		c[2], c[3] = append(c[2], int64(l.Sum&(1<<32-1))), append(c[3], int64(l.Sum>>32))
	}
	return accounts, c
}

// Advance moves fences, in order and in one round trip.
func (s *Store) Advance(ctx context.Context, tx sqlstore.Tx, consumer string, a []store.Advance, lost []int) ([]int, error) {
	err := s.within(ctx, tx, consumer, func(ctx context.Context, conn *pgx.Conn, n int64) error {
		var b pgx.Batch
		for i := range a {
			v := &a[i]
			b.Queue(`UPDATE semel_fence SET next_hi = $1, next_lo = $2
				WHERE consumer = $3 AND scope = $4 AND incarnation = $5 AND epoch = $6 AND next_hi = $7 AND next_lo = $8`,
				v.To.Hi, v.To.Lo, n, []byte(v.Scope.Name), []byte(v.Scope.Incarnation), v.Epoch, v.From.Hi, v.From.Lo)
		}
		br := conn.SendBatch(ctx, &b)
		for i := range a {
			tag, err := br.Exec()
			if err != nil {
				_ = br.Close()
				return err
			}
			if tag.RowsAffected() == 0 {
				lost = append(lost, i)
			}
		}
		return br.Close()
	})
	return lost, err
}

// Versions reads the newest versions of keys, in one statement.
func (s *Store) Versions(ctx context.Context, tx sqlstore.Tx, consumer string, keys []string, out []store.Versioned) ([]store.Versioned, error) {
	if len(keys) == 0 {
		return out, nil
	}
	first := len(out)
	var number int64
	err := s.within(ctx, tx, consumer, func(ctx context.Context, conn *pgx.Conn, n int64) error {
		number = n
		rows, err := conn.Query(ctx, `SELECT key, n, tie, known, id, fingerprint FROM semel_version
			WHERE consumer = $1 AND key = ANY($2::bytea[]) ORDER BY key FOR UPDATE`, n, blobs(keys))
		if err != nil {
			return err
		}
		var key, tie, id, fp []byte
		var version, set int64
		_, err = pgx.ForEachRow(rows, []any{&key, &version, &tie, &set, &id, &fp}, func() error {
			v := store.Versioned{Key: string(key), Version: semel.Version{N: version, Tie: string(tie), Set: set != 0}, ID: string(id)}
			copy(v.Fingerprint[:], fp)
			out = append(out, v)
			return nil
		})
		return err
	})
	for i := first; i < len(out); i++ {
		sqlstore.HasVersion(tx, number, &out[i])
	}
	return out, err
}

func blobs(names []string) [][]byte {
	out := make([][]byte, len(names))
	for i, s := range names {
		out[i] = []byte(s)
	}
	return out
}
