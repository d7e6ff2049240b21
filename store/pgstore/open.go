package pgstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Config says how a store uses its database. The zero value has the defaults.
type Config struct {
	// LockWait bounds the wait of a statement for a lock that another
	// transaction holds; the error is then of class Contention. It also
	// bounds the wait for the answer to a COMMIT. Zero means 30 s.
	LockWait time.Duration
	// Idle bounds the time that a transaction may go without a statement;
	// the server then ends its connection, so that a process that was
	// stopped does not keep its locks. It has to be longer than a handler
	// may take between two statements. Zero means 60 s.
	Idle time.Duration
	// Isolation is that of the transactions: sql.LevelReadCommitted, which is
	// the default, sql.LevelRepeatableRead or sql.LevelSerializable. The
	// stricter ones fail more often with class Contention; nothing of semel
	// needs them.
	Isolation sql.IsolationLevel
}

// Open connects to the database and checks it. It does not create tables: call
// Migrate.
//
// dsn is a URL, postgres://user@host:5432/database?sslmode=verify-full, or
// libpq's "host=… dbname=…"; PGHOST, PGPASSWORD, ~/.pgpass and the like count
// as usual. Errors name host, user and database, never the password. Close
// closes the connections.
func Open(ctx context.Context, dsn string, c Config) (*Store, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, sqlstore.Failf(semel.ClassFault, "pgstore: %w", err) // pgx leaves passwords out
	}
	s, err := connect(ctx, cfg, c)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %s: %w", place(cfg), err)
	}
	return s, nil
}

// place is where a configuration leads, for messages.
func place(cfg *pgx.ConnConfig) string {
	return fmt.Sprintf("%s@%s/%s", cfg.User, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), cfg.Database)
}

// connect looks at the server through a connection of its own: how the pool
// runs statements depends on what is there.
func connect(ctx context.Context, cfg *pgx.ConnConfig, c Config) (*Store, error) {
	// A network that falls silent is noticed after half a minute.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	cfg.DialFunc = dialer.DialContext
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 10*time.Second)
	probe, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	server, err := check(ctx, probe)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = probe.Close(closing)
	if err != nil {
		return nil, err
	}
	if server.pooled && cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	db := stdlib.OpenDB(*cfg)
	s, err := newStore(db, c, true)
	if err != nil {
		db.Close()
	}
	return s, err
}

// New makes a store on a pool that the user owns and closes; its driver must be
// pgx/v5/stdlib. The database is checked as Open does. The store keeps a
// connection of the pool for every committer and needs another one for reading:
// a pool that is limited to one connection is refused.
func New(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("pgstore: db is nil")
	}
	if db.Stats().MaxOpenConnections == 1 {
		return nil, sqlstore.Failf(semel.ClassFault, "pgstore: the pool is limited to 1 connection and needs at least 2: one writes, others read; raise SetMaxOpenConns")
	}
	s, err := newStore(db, c, false)
	if err != nil {
		return nil, err
	}
	sc, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	defer sc.Close()
	conn, err := native(sc)
	if err == nil {
		_, err = check(ctx, conn)
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	return s, nil
}

func newStore(db *sql.DB, c Config, closeDB bool) (*Store, error) {
	if c.LockWait == 0 {
		c.LockWait = 30 * time.Second
	}
	if c.Idle == 0 {
		c.Idle = time.Minute
	}
	if c.LockWait < time.Millisecond || c.Idle < time.Millisecond {
		return nil, errors.New("pgstore: LockWait and Idle are at least 1ms; zero means the default")
	}
	levels := map[sql.IsolationLevel]string{
		sql.LevelDefault: "READ COMMITTED", sql.LevelReadCommitted: "READ COMMITTED",
		sql.LevelRepeatableRead: "REPEATABLE READ", sql.LevelSerializable: "SERIALIZABLE",
	}
	level, ok := levels[c.Isolation]
	if !ok {
		return nil, fmt.Errorf("pgstore: isolation level %v is not one of read committed, repeatable read, serializable", c.Isolation)
	}
	d := sqlstore.Postgres()
	// Local settings: through a pooler the session belongs to others as well.
	d.Begin = fmt.Sprintf("BEGIN ISOLATION LEVEL %s READ WRITE; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d",
		level, c.LockWait.Milliseconds(), c.Idle.Milliseconds())
	inner, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: d, Driver: pgDriver{}, LockWait: c.LockWait, CloseDB: closeDB})
	if err != nil {
		return nil, err
	}
	return &Store{inner}, nil
}

// Statements returns the statements from an empty database to this version.
func Statements() []string { return sqlstore.Postgres().Statements() }

// Migrate is that of sqlstore. A role that may not create tables is told who can,
// and what the role needs afterwards.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.Store.Migrate(ctx)
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "42501" {
		return fmt.Errorf("pgstore: the role of this connection may not create semel's tables: have a role that may run what `semel schema print FILE` prints, "+
			"or Migrate, and GRANT SELECT, INSERT, UPDATE, DELETE on the tables semel_* to this one: %w", err)
	}
	return err
}

// Classify sorts an error of Open, before there is a store.
func Classify(err error) semel.Class {
	if c, ok := sqlstore.ClassOf(err); ok {
		return c
	}
	c, _ := pgDriver{}.Classify(err)
	return c
}
