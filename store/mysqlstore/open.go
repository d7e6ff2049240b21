package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Config says how a store uses its database. The zero value has the defaults.
type Config struct {
	// LockWait bounds the wait of a statement for a lock that another
	// transaction holds; the error is then of class Contention. It also
	// bounds the wait for the answer to a COMMIT. Whole seconds; zero means 30 s.
	LockWait time.Duration
	// Idle bounds the time that a transaction (MariaDB) or a connection (MySQL)
	// may go without a statement; the server then ends it, so that a process
	// that was stopped does not keep its locks. It has to be longer than a
	// handler may take between two statements. Whole seconds; zero means 60 s.
	Idle time.Duration
}

// Open connects to the database and checks it. It does not create tables: call
// Migrate.
//
// address is a URL, mysql://user:password@host:3306/database?tls=true, with the
// parameters of go-sql-driver/mysql, or that driver's own form,
// user:password@tcp(host:3306)/database. Errors name host, user and database,
// never the password. Close closes the connections.
func Open(ctx context.Context, address string, c Config) (*Store, error) {
	cfg, err := Parse(address)
	if err != nil {
		return nil, err
	}
	return OpenConfig(ctx, cfg, c)
}

// OpenConfig is Open for a configuration of the driver; what semel depends on
// is set in a copy of it.
func OpenConfig(ctx context.Context, cfg *mysql.Config, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := connect(ctx, cfg, c)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: %s@%s/%s: %w", cfg.User, cfg.Addr, cfg.DBName, err)
	}
	return s, nil
}

func (c Config) withDefaults() (Config, error) {
	c.LockWait, c.Idle = cmp.Or(c.LockWait, 30*time.Second), cmp.Or(c.Idle, time.Minute)
	if c.LockWait < time.Second || c.Idle < time.Second {
		return c, errors.New("mysqlstore: LockWait and Idle are at least 1s; zero means the default")
	}
	return c, nil
}

func connect(ctx context.Context, cfg *mysql.Config, c Config) (*Store, error) {
	cfg, err := owned(cfg)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, sqlstore.Failf(semel.ClassFault, "%w", err)
	}
	db := sql.OpenDB(connector)
	s, err := open(ctx, db, c)
	if err != nil {
		db.Close()
	}
	return s, err
}

// owned is a copy of cfg with what semel depends on.
func owned(cfg *mysql.Config) (*mysql.Config, error) {
	if cfg.DBName == "" {
		return nil, sqlstore.Failf(semel.ClassFault, "the address names no database: add /NAME")
	}
	if cfg.ClientFoundRows {
		return nil, sqlstore.Failf(semel.ClassFault, "clientFoundRows=true makes a repeated message look like a new one: leave it out")
	}
	cfg = cfg.Clone()
	cfg.InterpolateParams, cfg.MultiStatements, cfg.ParseTime = false, false, false
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Logger = &mysql.NopLogger{} // it would write to stderr what is returned as an error as well
	return cfg, nil
}

func open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	_, err = check(ctx, conn)
	conn.Close()
	if err != nil {
		return nil, err
	}
	d := sqlstore.MySQL()
	d.Duplicate = func(err error) bool { return number(err) == errDuplicate }
	inner, err := sqlstore.New(sqlstore.Config{
		DB: db, Dialect: d, Driver: mysqlDriver{c.LockWait, c.Idle}, LockWait: c.LockWait, CloseDB: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{inner}, nil
}

// Statements returns the statements from an empty database to this version.
func Statements() []string { return sqlstore.MySQL().Statements() }

// Classify sorts an error of Open, before there is a store.
func Classify(err error) semel.Class {
	if c, ok := sqlstore.ClassOf(err); ok {
		return c
	}
	c, _ := mysqlDriver{}.Classify(err)
	return c
}

// server is what a connection tells of its server.
type server struct {
	maria        bool
	major, minor int
}

// check refuses a server that cannot keep the promise.
func check(ctx context.Context, c *sql.Conn) (s server, err error) {
	var version, mode string
	var readOnly, flush int64
	err = c.QueryRowContext(ctx, `SELECT @@version, @@sql_mode, @@global.read_only, @@global.innodb_flush_log_at_trx_commit`).
		Scan(&version, &mode, &readOnly, &flush)
	if err != nil {
		return s, err
	}
	s = parse(version)
	refuse := func(format string, args ...any) error { return sqlstore.Failf(semel.ClassFault, format, args...) }
	switch {
	case s.maria && (s.major < 10 || s.major == 10 && s.minor < 6):
		err = refuse("MariaDB %s is too old: use 10.6 or newer", version)
	case !s.maria && s.major < 8:
		err = refuse("MySQL %s is too old: use 8.0 or newer", version)
	case readOnly != 0:
		err = sqlstore.Failf(semel.ClassInfrastructure, "the server is read only, a replica perhaps: connect to the primary")
	case flush != 1:
		err = refuse("innodb_flush_log_at_trx_commit is %d, which loses answered commits when the server crashes: SET GLOBAL innodb_flush_log_at_trx_commit = 1", flush)
	case !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES"):
		err = refuse("sql_mode is not strict, so values that do not fit are cut without an error: add STRICT_TRANS_TABLES to sql_mode")
	}
	return s, err
}

func parse(version string) (s server) {
	s.maria = strings.Contains(version, "MariaDB")
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "5.5.5-"), ".") // MariaDB says that to old clients
	minor, _, _ := strings.Cut(rest, ".")
	s.major, _ = strconv.Atoi(major)
	s.minor, _ = strconv.Atoi(minor)
	return s
}
