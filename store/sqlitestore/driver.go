package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDriver implements sqlstore.Driver.
type sqliteDriver struct{}

// Guard readies a connection for writing.
func (sqliteDriver) Guard(ctx context.Context, c *sql.Conn) (sqlstore.Guard, error) {
	if err := check(ctx, c); err != nil {
		return nil, err
	}
	// The wait for the lock is ours: SQLite's own would not be jittered, and
	// would go on when the context has ended.
	if _, err := c.ExecContext(ctx, "PRAGMA busy_timeout=0"); err != nil {
		return nil, err
	}
	g := &guard{}
	err := c.Raw(func(dc any) error {
		h, ok := dc.(sqlite.HookRegisterer)
		if !ok {
			return sqlstore.Failf(semel.ClassFault, "the pool's driver is %T: use modernc.org/sqlite, whose hooks make a handler's COMMIT fail", dc)
		}
		h.RegisterCommitHook(g.commit)
		h.RegisterRollbackHook(g.rollback)
		return nil
	})
	return g, err
}

// guard is called by SQLite on the goroutine that runs the statement, which is
// the one that has the connection's lock.
type guard struct{ sqlstore.Watch }

// commit refuses while armed: SQLite turns the COMMIT into a ROLLBACK. What
// follows on the connection commits by itself and is refused as well.
func (g *guard) commit() int32 {
	if !g.Armed() {
		return 0
	}
	g.Meet(sqlstore.Refused)
	return 1
}

func (g *guard) rollback() { g.Meet(sqlstore.Gone) }

// Again reports that another connection is in the way.
func (sqliteDriver) Again(err error) bool {
	code, ok := code(err)
	return ok && (code&0xff == sqlite3.SQLITE_BUSY || code&0xff == sqlite3.SQLITE_LOCKED)
}

// Denied reports that a COMMIT was refused: by someone in the way, or by a
// deferred constraint.
func (d sqliteDriver) Denied(err error) bool {
	code, ok := code(err)
	return ok && (d.Again(err) || class(code, err.Error()) == semel.ClassPermanent)
}

// Classify sorts the driver's errors.
func (sqliteDriver) Classify(err error) (semel.Class, bool) {
	if c, ok := code(err); ok {
		return class(c, err.Error()), true
	}
	if err != nil && strings.Contains(err.Error(), "missing argument with index") {
		return semel.ClassFault, true // the driver's own, for a call with too few arguments
	}
	return semel.ClassTransient, false
}

func code(err error) (int, bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Code(), true
}

func class(code int, text string) semel.Class {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return semel.ClassContention
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS:
		return semel.ClassInfrastructure
	case sqlite3.SQLITE_CONSTRAINT:
		if code == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK {
			return semel.ClassFault
		}
		// A retry meets the same constraint with the same message.
		return semel.ClassPermanent
	case sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return semel.ClassPermanent
	case sqlite3.SQLITE_ERROR:
		if aboutData(text) {
			return semel.ClassPermanent
		}
		return semel.ClassFault
	case sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_INTERNAL:
		return semel.ClassFault
	}
	return semel.ClassTransient
}

// aboutData tells errors that a value caused from those that the statement
// caused: SQLite has one code for both.
func aboutData(text string) bool {
	for _, s := range []string{
		"integer overflow", "malformed JSON", "JSON path error", "bad JSON path", "JSON cannot hold BLOB values",
		"ESCAPE expression must be a single character", "LIKE or GLOB pattern too complex",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}
