package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
)

// pgDriver implements sqlstore.Driver.
type pgDriver struct{}

// Guard readies a connection for writing. What a handler writes after it ended
// the transaction would commit by itself; the session refuses that, unless it
// belongs to a pooler, where settings would stay behind for others.
func (pgDriver) Guard(ctx context.Context, c *sql.Conn) (sqlstore.Guard, error) {
	conn, err := native(c)
	if err != nil {
		return nil, err
	}
	server, err := check(ctx, conn)
	if err != nil {
		return nil, err
	}
	if server.pooled {
		if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			return nil, sqlstore.Failf(semel.ClassFault, "a connection pooler is between, and statements prepared on one connection would be missing on the next: "+
				"add default_query_exec_mode=cache_describe to the connection string")
		}
		return &guard{conn: conn}, nil
	}
	_, err = conn.Exec(ctx, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
	return &guard{conn: conn}, err
}

// native returns the pgx connection behind c.
func native(c *sql.Conn) (conn *pgx.Conn, err error) {
	err = c.Raw(func(dc any) error {
		s, ok := dc.(*stdlib.Conn)
		if !ok {
			return sqlstore.Failf(semel.ClassFault, "the pool's driver is %T: use github.com/jackc/pgx/v5/stdlib", dc)
		}
		conn = s.Conn()
		return nil
	})
	return conn, err
}

// guard reads the state that the server reports with the end of every
// statement.
type guard struct {
	conn  *pgx.Conn
	armed bool
}

func (g *guard) Arm() { g.armed = true }

func (g *guard) Disarm() sqlstore.Fate {
	fate := g.Fate()
	g.armed = false
	return fate
}

// Fate tells the state of the transaction. One that has ended was ended by the
// handler: the server ends none by itself without closing the connection. What
// it had done is undone, by its ROLLBACK or because its COMMIT was refused.
func (g *guard) Fate() sqlstore.Fate {
	switch {
	case !g.armed:
		return sqlstore.Open
	case g.conn.IsClosed():
		return sqlstore.Lost
	case g.conn.PgConn().TxStatus() == 'E':
		return sqlstore.Failed
	case g.conn.PgConn().TxStatus() == 'I':
		return sqlstore.Refused
	}
	return sqlstore.Open
}

// Again: a statement that was refused has spoiled its transaction.
func (pgDriver) Again(error) bool { return false }

// Denied: the server has answered, and lives on.
func (pgDriver) Denied(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR" && !interrupted(e.Code)
}

// interrupted are the codes of a server, or of a pooler before it, that stops
// serving the connection.
func interrupted(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}

// Classify sorts the driver's errors.
func (pgDriver) Classify(err error) (semel.Class, bool) {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return class(e), true
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || errors.Is(err, errGone) {
		return semel.ClassInfrastructure, true
	}
	if err != nil {
		return ofDriver(err.Error())
	}
	return semel.ClassTransient, false
}

// errGone is what pgx says of a connection that has ended before.
var errGone = pgconn.ErrConnClosed

// ofDriver sorts what pgx and database/sql say in words only. The first words
// that are found count: an error about a value quotes it, whatever it says.
func ofDriver(text string) (semel.Class, bool) {
	for _, said := range []struct {
		words string
		class semel.Class
	}{
		{"unable to encode", semel.ClassPermanent},
		{"cannot find encode", semel.ClassFault},
		{"mismatched param and ", semel.ClassFault},
		{"conn busy", semel.ClassFault}, // rows left open while another statement runs
		{"conn closed", semel.ClassInfrastructure},
		{"unexpected EOF", semel.ClassInfrastructure},
		{"connection reset", semel.ClassInfrastructure},
		{"broken pipe", semel.ClassInfrastructure},
		{"expected ", semel.ClassTransient},
	} {
		if strings.Contains(text, said.words) {
			return said.class, true
		}
	}
	return semel.ClassTransient, false
}

func class(e *pgconn.PgError) semel.Class {
	if e.ConstraintName == sqlstore.MarkGuard {
		return semel.ClassFault
	}
	if e.Code == "23505" && e.SchemaName == "pg_catalog" {
		return semel.ClassContention // CREATE … IF NOT EXISTS by two at once
	}
	switch e.Code {
	case "40001", "40P01", "55P03", "55006", "57014":
		return contention(e)
	case "53100", "58030", "25006":
		return semel.ClassInfrastructure // disk full, I/O error, a standby
	case "25P02":
		return semel.ClassTransient // what came before it matters, and is told
	case "0A000":
		if e.Routine == "RevalidateCachedQuery" {
			return semel.ClassContention // a table changed under a prepared statement; pgx prepares it again
		}
		return semel.ClassFault
	case "54000", "54001", "54011", "54023", "21000":
		return semel.ClassPermanent // more than a limit allows, rows where one is expected
	}
	if len(e.Code) != 5 {
		return semel.ClassTransient
	}
	return ofClass(e.Code[:2])
}

// contention: someone is in the way. A cancelled statement may be a time-out
// that the user set, which a retry meets again.
func contention(e *pgconn.PgError) semel.Class {
	if e.Code == "57014" {
		return semel.ClassTransient
	}
	return semel.ClassContention
}

func ofClass(code string) semel.Class {
	switch code {
	case "08", "53", "57", "58", "F0", "XX", "28", "3D":
		return semel.ClassInfrastructure // connection, resources, operator, system; login; database gone
	case "22", "23", "44", "P0":
		return semel.ClassPermanent // data, constraints, CHECK OPTION, RAISE in the user's function
	case "40":
		return semel.ClassContention
	case "42", "0A", "26", "34", "3B", "3F", "25", "2B", "2D", "0B", "38", "39":
		return semel.ClassFault // what the program says, whatever the message
	}
	return semel.ClassTransient
}

// server is what a connection tells of its server.
type server struct {
	version         int
	standby, pooled bool
	sync, encoding  string
}

// oldest is the first version with all that the statements need.
const oldest = 130000

// check refuses a server that cannot keep the promise. A pooler is known by the
// number of the server process, which is not the one that the connection got.
func check(ctx context.Context, conn *pgx.Conn) (s server, err error) {
	var pid uint32
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		current_setting('synchronous_commit'), current_setting('server_encoding'), pg_backend_pid()`,
		pgx.QueryExecModeExec).Scan(&s.version, &s.standby, &s.sync, &s.encoding, &pid)
	s.pooled = pid != conn.PgConn().PID()
	if err == nil {
		err = s.refused(conn.Config().User)
	}
	return s, err
}

// refused says why the server cannot keep the promise to user, and what to do.
func (s server) refused(user string) error {
	refuse := func(format string, args ...any) error { return sqlstore.Failf(semel.ClassFault, format, args...) }
	switch {
	case s.version < oldest:
		return refuse("PostgreSQL %d.%d is too old: use 13 or newer", s.version/10000, s.version%10000)
	case s.standby:
		return sqlstore.Failf(semel.ClassInfrastructure, "the server is a standby, which cannot write: connect to the primary; with several hosts in the connection string add target_session_attrs=read-write")
	case s.sync == "off":
		return refuse("synchronous_commit is off, which loses answered commits when the server crashes: ALTER ROLE %s SET synchronous_commit = on, or add synchronous_commit=on to the connection string", quoted(user))
	case s.encoding != "UTF8" && s.encoding != "SQL_ASCII":
		return refuse("the database is encoded in %s, which cannot hold every message's error text: use a database with ENCODING 'UTF8'", s.encoding)
	}
	return nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// Conn returns the pgx connection of the running transaction, for what
// database/sql does not offer: COPY, batches, PostgreSQL's types.
//
// It must not be kept or closed, must not begin or end transactions, and must
// not be used after the handler returned. Rows are to be closed before the next
// statement. It is nil for a Tx of another store.
func Conn(tx sqlstore.Tx) *pgx.Conn {
	c := sqlstore.Unwrap(tx)
	if c == nil {
		return nil
	}
	conn, err := native(c)
	if err != nil {
		return nil
	}
	return conn
}
