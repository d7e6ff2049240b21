//go:build unix

package sqlitestore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// The benchmarks compare one batch through the store with the loop that a
// careful person would write by hand, with the same effect: one row of 200
// bytes a message. "us/msg" is wall time, "cpu-us/msg" what the process used.

const insertEffect = "INSERT INTO effects (body) VALUES (?)"

var sizes = [...]int{1, 100, 1000}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs batches of several sizes, each on a database of its own.
func measure(b *testing.B, setup func(b *testing.B, path string, n int) func(i int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			batch := setup(b, filepath.Join(b.TempDir(), "bench.db"), n)
			batch(0)
			used := cpu()
			b.ResetTimer()
			for i := range b.N {
				batch(i + 1)
			}
			msgs := float64(b.N * n)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/msgs, "us/msg")
			b.ReportMetric(float64((cpu()-used).Microseconds())/msgs, "cpu-us/msg")
		})
	}
}

// byHand opens the database as the store does.
func byHand(b *testing.B, path string) *sql.Conn {
	dsn, err := dataSource(path)
	if err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	must(b, conn, "CREATE TABLE effects (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
	must(b, conn, "CREATE TABLE seen (id BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID")
	return conn
}

func must(b *testing.B, c *sql.Conn, q string) {
	if _, err := c.ExecContext(context.Background(), q); err != nil {
		b.Fatal(err)
	}
}

func prepare(b *testing.B, c *sql.Conn, q string) *sql.Stmt {
	st, err := c.PrepareContext(context.Background(), q)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

// BenchmarkHandNothing has no protection at all.
func BenchmarkHandNothing(b *testing.B) {
	measure(b, func(b *testing.B, path string, n int) func(int) {
		c, ctx, body := byHand(b, path), context.Background(), make([]byte, 200)
		effect := prepare(b, c, insertEffect)
		return func(int) {
			must(b, c, "BEGIN IMMEDIATE")
			for range n {
				if _, err := effect.ExecContext(ctx, body); err != nil {
					b.Fatal(err)
				}
			}
			must(b, c, "COMMIT")
		}
	})
}

// BenchmarkHandTable has the dedup table that everybody writes.
func BenchmarkHandTable(b *testing.B) {
	measure(b, func(b *testing.B, path string, n int) func(int) {
		c, ctx, body := byHand(b, path), context.Background(), make([]byte, 200)
		effect, seen := prepare(b, c, insertEffect), prepare(b, c, "INSERT INTO seen (id, at) VALUES (?, ?) ON CONFLICT DO NOTHING")
		return func(i int) {
			must(b, c, "BEGIN IMMEDIATE")
			for _, r := range randomIDs(i, n) {
				if _, err := seen.ExecContext(ctx, []byte(r.ID), int64(i)); err != nil {
					b.Fatal(err)
				}
				if _, err := effect.ExecContext(ctx, body); err != nil {
					b.Fatal(err)
				}
			}
			must(b, c, "COMMIT")
		}
	})
}

// randomIDs are n ids of 36 bytes that look like UUIDs, sorted.
func randomIDs(batch, n int) []store.Record {
	rs := make([]store.Record, n)
	for i := range rs {
		h := sha256.Sum256(fmt.Appendf(nil, "%d/%d", batch, i))
		id := fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
		rs[i] = store.Record{ID: id, Fingerprint: store.Fingerprint(h[16:]), Verdict: semel.Applied, Bucket: 20000, Hash: store.Hash("bench", id)}
	}
	slices.SortFunc(rs, func(a, b store.Record) int { return strings.Compare(a.ID, b.ID) })
	return rs
}

func opened(b *testing.B, path string) *Store {
	s := openAt(b, path, Config{})
	if err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	execute(b, s, "CREATE TABLE effects (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
	if err := s.Enlist(b.Context(), store.Worker{Consumer: "bench", Name: "w", Slots: 1}); err != nil {
		b.Fatal(err)
	}
	return s
}

func run(b *testing.B, s *Store, batch int, fn func(context.Context, sqlstore.Tx) error) {
	mark := store.Mark{Consumer: "bench", Worker: "w", Batch: int64(batch + 1)}
	if out, err := s.InTx(b.Context(), mark, fn); err != nil || out != store.Committed {
		b.Fatal(out, err)
	}
}

// BenchmarkPosition is a batch as the strategy Position writes it.
func BenchmarkPosition(b *testing.B) {
	measure(b, func(b *testing.B, path string, n int) func(int) {
		s, body := opened(b, path), make([]byte, 200)
		scope := semel.Scope{Name: "t/0"}
		if _, err := s.Assign(b.Context(), "bench", "w", []store.Start{{Scope: scope}}); err != nil {
			b.Fatal(err)
		}
		return func(i int) {
			run(b, s, i, func(ctx context.Context, tx sqlstore.Tx) error {
				from := semel.Offset{Lo: int64(i * n)}
				adv := []store.Advance{{Scope: scope, Epoch: 1, From: from, To: semel.Offset{Lo: from.Lo + int64(n)}}}
				if lost, err := s.Advance(ctx, tx, "bench", adv, nil); err != nil || len(lost) > 0 {
					return fmt.Errorf("lost %v: %w", lost, err)
				}
				return effects(ctx, s, tx, n, body)
			})
		}
	})
}

func effects(ctx context.Context, s *Store, tx sqlstore.Tx, n int, body []byte) error {
	for range n {
		if _, err := tx.ExecContext(ctx, insertEffect, body); err != nil {
			return err
		}
	}
	return s.Count(ctx, tx, "bench", []store.Tally{{Account: "applied", Bucket: 20000, N: int64(n), Sum: 1}})
}

// BenchmarkTable is a batch as the strategy Table writes it.
func BenchmarkTable(b *testing.B) {
	measure(b, func(b *testing.B, path string, n int) func(int) {
		s, body := opened(b, path), make([]byte, 200)
		return func(i int) {
			ids := randomIDs(i, n)
			run(b, s, i, func(ctx context.Context, tx sqlstore.Tx) error {
				if prior, err := s.Claim(ctx, tx, "bench", ids, nil); err != nil || len(prior) > 0 {
					return fmt.Errorf("prior %v: %w", prior, err)
				}
				return effects(ctx, s, tx, n, body)
			})
		}
	})
}

// BenchmarkRedelivery is a batch of which everything was handled before.
func BenchmarkRedelivery(b *testing.B) {
	measure(b, func(b *testing.B, path string, n int) func(int) {
		s, ids := opened(b, path), randomIDs(0, n)
		return func(i int) {
			run(b, s, i, func(ctx context.Context, tx sqlstore.Tx) error {
				prior, err := s.Claim(ctx, tx, "bench", ids, nil)
				if err == nil && i > 0 && len(prior) != n {
					err = fmt.Errorf("%d of %d were there", len(prior), n)
				}
				return err
			})
		}
	})
}
