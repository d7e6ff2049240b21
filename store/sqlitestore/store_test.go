package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/store/storetest"
)

// open opens a store that the test closes.
func openAt(t testing.TB, path string, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// fresh opens a new database with our tables and one of the user's.
func fresh(t testing.TB) (s *Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	s = openAt(t, path, Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "CREATE TABLE effect (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
	return s, path
}

// execute runs statements in a transaction that must commit.
func execute(t testing.TB, s *Store, statements ...string) {
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

func put(ctx context.Context, tx sqlstore.Tx, key, value string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", []byte(key), []byte(value))
	return err
}

// get reads through a connection of its own.
func get(ctx context.Context, path, key string) (value string, ok bool, err error) {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return "", false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT value FROM effect WHERE CAST(key AS BLOB) = ?", []byte(key)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

func TestConformance(t *testing.T) {
	var paths sync.Map // by handle
	pathOf := func(b store.Backend[sqlstore.Tx]) string {
		path, _ := paths.Load(b)
		return path.(string)
	}
	ends := func(statement string) func(context.Context, sqlstore.Tx) error {
		return func(ctx context.Context, tx sqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	storetest.Run(t, storetest.Harness[sqlstore.Tx]{
		New: func(t *testing.T) store.Backend[sqlstore.Tx] {
			s, path := fresh(t)
			paths.Store(s, path)
			return s
		},
		Reopen: func(t *testing.T, b store.Backend[sqlstore.Tx]) store.Backend[sqlstore.Tx] {
			s := openAt(t, pathOf(b), Config{})
			paths.Store(s, pathOf(b))
			return s
		},
		Put: put,
		Get: func(ctx context.Context, b store.Backend[sqlstore.Tx], key string) (string, bool, error) {
			return get(ctx, pathOf(b), key)
		},
		Commit:   ends("COMMIT"),
		Rollback: ends("ROLLBACK"),
	})
}
