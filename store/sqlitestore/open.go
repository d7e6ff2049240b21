package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
	"modernc.org/sqlite"
)

// Config says how a store uses its database. The zero value has the defaults.
type Config struct {
	// LockWait bounds the wait for the write lock while another process or
	// connection holds it; the error is then of class Contention. Zero
	// means 30 s.
	LockWait time.Duration
}

// Store is a store in a SQLite database. Transactions are sqlstore.Tx.
type Store = sqlstore.Store

// Open opens the database and checks it; the file is created if it is not
// there, its directory is not. It does not create tables: call Migrate.
//
// pathOrURL is a path, sqlite:///absolute/path, or a file: URI in SQLite's
// form, whose parameters are kept. A database in memory is refused: each
// connection would have its own.
//
// foreign_keys is on: a schema that declares them means them. Close closes the
// database.
func Open(ctx context.Context, pathOrURL string, c Config) (*Store, error) {
	dsn, err := dataSource(pathOrURL)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	db := sql.OpenDB(connector)
	s, err := open(ctx, db, c, true)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("sqlitestore: %s: %w", pathOrURL, err)
	}
	return s, nil
}

// New makes a store on a pool that the user owns and closes. The pool must use
// modernc.org/sqlite; the database must be in WAL mode, and every connection
// must have synchronous at FULL or EXTRA. Anything else is refused, with the
// remedy in the error.
//
// The store keeps one connection of the pool for writing: a pool that is
// limited to one connection leaves none for reading, and is refused.
func New(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqlitestore: db is nil")
	}
	if n := db.Stats().MaxOpenConnections; n == 1 {
		return nil, sqlstore.Failf(semel.ClassFault, "sqlitestore: the pool is limited to 1 connection and needs at least 2: one writes, others read; raise SetMaxOpenConns")
	}
	s, err := open(ctx, db, c, false)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, db *sql.DB, c Config, closeDB bool) (*Store, error) {
	s, err := sqlstore.New(sqlstore.Config{
		DB: db, Dialect: sqlstore.SQLite(), Driver: sqliteDriver{}, LockWait: c.LockWait, CloseDB: closeDB,
	})
	if err != nil {
		return nil, err
	}
	// Of connections that bring a new database into WAL mode at the same time
	// SQLite turns some away at once, whatever busy_timeout is: waiting could be
	// for each other.
	if err := s.Insist(ctx, func() error { return look(ctx, db) }); err != nil {
		return nil, err
	}
	return s, nil
}

func look(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return check(ctx, conn)
}

// Settings of the connections that Open makes. The page cache has room for the
// upper pages of a large inbox; a checkpoint after 32 MB instead of 4 writes
// pages once that several commits changed.
const settings = "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)" +
	"&_pragma=cache_size(-65536)&_pragma=wal_autocheckpoint(8000)&_pragma=foreign_keys(on)"

// dataSource turns what the user wrote into the driver's form.
func dataSource(pathOrURL string) (string, error) {
	path := pathOrURL
	switch {
	case path == "" || path == ":memory:" || strings.Contains(path, "mode=memory"):
		return "", fmt.Errorf("sqlitestore: %q is not a file: name one, or use a store in memory", pathOrURL)
	case strings.HasPrefix(path, "file:"):
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		return path + sep + settings, nil
	case strings.HasPrefix(path, "sqlite:"):
		u, err := url.Parse(path)
		if err != nil {
			return "", fmt.Errorf("sqlitestore: %w", err)
		}
		if u.Host != "" || u.RawQuery != "" || u.Path == "" && u.Opaque == "" {
			return "", fmt.Errorf("sqlitestore: %q: write sqlite:///absolute/path, without host and parameters", pathOrURL)
		}
		if path = u.Path; path == "" {
			path = u.Opaque
		}
	}
	// In a file: URI these three have a meaning of their own.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path))
	return "file:" + escaped + "?" + settings, nil
}

// oldest is the first version of SQLite without the race between two
// connections that reset the WAL, which could corrupt the database.
var oldest = [3]int{3, 51, 3}

// check refuses a connection that can not keep the promise.
func check(ctx context.Context, conn *sql.Conn) error {
	var version, mode string
	var synchronous int
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	var have [3]int
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2])
	if older(have, oldest) {
		return sqlstore.Failf(semel.ClassFault, "SQLite %s can corrupt a database in WAL mode: use 3.51.3 or newer (modernc.org/sqlite v1.46.2 or newer)", version)
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return sqlstore.Failf(semel.ClassFault, "the database is in journal mode %q: run PRAGMA journal_mode=WAL once, on a local file system", mode)
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < 2 {
		return sqlstore.Failf(semel.ClassFault, "a connection has synchronous=%d, which loses commits on power loss: set it for all of the pool, with _pragma=synchronous(full) in the data source name", synchronous)
	}
	return nil
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
