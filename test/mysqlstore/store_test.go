// Package mysqlstore_test tests store/mysqlstore on real servers. It is in this
// module because that is where servers are.
package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"os"
	"testing"

	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/mysqlstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/store/storetest"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
	"github.com/semel-dev/semel/test/sqltest"
)

// kind is the server of all tests here: go test ./mysqlstore -kind mysql takes
// the other one.
var kind = servertest.MariaDB

func TestMain(m *testing.M) {
	name := flag.String("kind", string(kind), "mariadb or mysql")
	flag.Parse()
	var err error
	if kind, err = servertest.ParseKind(*name); err != nil {
		log.Fatal(err)
	}
	os.Exit(rig.Main(m))
}

func openAt(t testing.TB, url string, c mysqlstore.Config) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// fresh opens a new database with our tables and one of the user's.
func fresh(t testing.TB, c mysqlstore.Config) (s *mysqlstore.Store, url string) {
	t.Helper()
	url = kind.Database(t)
	s = openAt(t, url, c)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "CREATE TABLE effect (`key` VARBINARY(255) PRIMARY KEY, value VARBINARY(255) NOT NULL)")
	return s, url
}

// pool is a connection pool of the user's own.
func pool(t testing.TB, url string) *sql.DB {
	t.Helper()
	cfg, err := servertest.MySQLConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t testing.TB, url string, statements ...string) {
	t.Helper()
	db := pool(t, url)
	for _, st := range statements {
		if _, err := db.ExecContext(t.Context(), st); err != nil {
			t.Fatalf("%s: %v", st, err)
		}
	}
}

func put(ctx context.Context, tx sqlstore.Tx, key, value string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)", []byte(key), []byte(value))
	return err
}

// get reads through a connection of its own.
func get(ctx context.Context, url, key string) (value string, ok bool, err error) {
	cfg, err := servertest.MySQLConfig(url)
	if err != nil {
		return "", false, err
	}
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return "", false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT value FROM effect WHERE `key` = ?", []byte(key)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

// handle is a store that knows where it is.
type handle struct {
	*mysqlstore.Store
	url string
}

func harness(c mysqlstore.Config) storetest.Harness[sqlstore.Tx] {
	return storetest.Harness[sqlstore.Tx]{
		New: func(t *testing.T) store.Backend[sqlstore.Tx] {
			s, url := fresh(t, c)
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

func TestConformance(t *testing.T) { storetest.Run(t, harness(mysqlstore.Config{})) }
