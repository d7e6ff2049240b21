// Package retention_test measures what a remembered message takes on disk, for
// docs/operate/retention.md.
package retention_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/servers/servertest"
)

// rows is enough for pages to be as full as random ids leave them.
const rows, batch = 100_000, 1000

type inbox interface {
	store.Backend[sqlstore.Tx]
	Migrate(context.Context) error
}

// fill records random ids as long as a UUID and returns bytes a row.
func fill(t *testing.T, s inbox, db *sql.DB, size string) float64 {
	t.Helper()
	t.Cleanup(func() { s.Close(context.Background()); db.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	measure := func() (n int64) {
		if err := db.QueryRow(size).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := measure()
	for range rows / batch {
		records := make([]store.Record, batch)
		for i := range records {
			m := semel.Message{ID: (rand.Text() + rand.Text())[:36], Body: []byte{byte(i)}}
			records[i] = store.Record{ID: m.ID, Fingerprint: store.Print(&m), Verdict: semel.Applied}
		}
		outcome, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
			prior, err := s.Claim(ctx, tx, "orders", records, nil)
			if err == nil && len(prior) > 0 {
				err = fmt.Errorf("%d ids were there", len(prior))
			}
			return err
		})
		if outcome != store.Committed || err != nil {
			t.Fatal(outcome, err)
		}
	}
	return float64(measure()-before) / rows
}

// TestBytes keeps the page's numbers within a fifth of what is measured.
func TestBytes(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/retention.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, measure := range map[string]func(t *testing.T) float64{
		"SQLite": func(t *testing.T) float64 {
			file := filepath.Join(t.TempDir(), "inbox.db")
			s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", file)
			if err != nil {
				t.Fatal(err)
			}
			return fill(t, s, db, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
		},
		"PostgreSQL": func(t *testing.T) float64 {
			url := servertest.Postgres.Database(t)
			s, err := pgstore.Open(t.Context(), url, pgstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("pgx", url)
			if err != nil {
				t.Fatal(err)
			}
			return fill(t, s, db, "SELECT pg_total_relation_size('semel_inbox')")
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := measure(t)
			t.Logf("%.0f bytes a row", got)
			m := regexp.MustCompile(`(?m)^\| ` + name + ` \| (\d+) \|`).FindSubmatch(page)
			if m == nil {
				t.Fatalf("the page has no row for %s", name)
			}
			if said, _ := strconv.ParseFloat(string(m[1]), 64); got < said*0.8 || got > said*1.2 {
				t.Errorf("%.0f bytes a row, the page says %.0f", got, said)
			}
		})
	}
}
