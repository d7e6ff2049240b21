// Package pgstore_test tests store/pgstore on a real server. It is in this
// module because that is where servers are.
package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/store/storetest"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
	"github.com/semel-dev/semel/test/sqltest"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// database makes an empty database for the test and returns its address.
func database(t testing.TB) string { return servertest.Postgres.Database(t) }

func openAt(t testing.TB, url string, c pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// fresh opens a new database with our tables and one of the user's.
func fresh(t testing.TB, c pgstore.Config) (s *pgstore.Store, url string) {
	t.Helper()
	return freshOn(t, servertest.Postgres, c)
}

func freshOn(t testing.TB, k servertest.Kind, c pgstore.Config) (s *pgstore.Store, url string) {
	t.Helper()
	url = k.Database(t)
	s = openAt(t, url, c)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "CREATE TABLE effect (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)")
	return s, url
}

// execute runs statements in a transaction that must commit.
func execute(t testing.TB, s *pgstore.Store, statements ...string) {
	t.Helper()
	out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		for _, st := range statements {
			if _, err := tx.ExecContext(ctx, st); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || out != store.Committed {
		t.Fatalf("%q: outcome %d, %v", statements, out, err)
	}
}

const putEffect = "INSERT INTO effect VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

func put(ctx context.Context, tx sqlstore.Tx, key, value string) error {
	_, err := tx.ExecContext(ctx, putEffect, []byte(key), []byte(value))
	return err
}

// get reads through a connection of its own.
func get(ctx context.Context, url, key string) (value string, ok bool, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return "", false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT value FROM effect WHERE key = $1", []byte(key)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

// handle is a store that knows where it is.
type handle struct {
	*pgstore.Store
	url string
}

func harness(k servertest.Kind, c pgstore.Config) storetest.Harness[sqlstore.Tx] {
	return storetest.Harness[sqlstore.Tx]{
		New: func(t *testing.T) store.Backend[sqlstore.Tx] {
			s, url := freshOn(t, k, c)
			return handle{s, url}
		},
		Reopen: func(t *testing.T, b store.Backend[sqlstore.Tx]) store.Backend[sqlstore.Tx] {
			url := b.(handle).url
			return handle{openAt(t, url, c), url}
		},
		Put: put,
		Get: func(ctx context.Context, b store.Backend[sqlstore.Tx], key string) (string, bool, error) {
			return get(ctx, b.(handle).url, key)
		},
		Commit:   sqltest.Ends("COMMIT"),
		Rollback: sqltest.Ends("ROLLBACK"),
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness(servertest.Postgres, pgstore.Config{})) }

func TestConformance18(t *testing.T) {
	storetest.Run(t, harness(servertest.Postgres18, pgstore.Config{}))
}
