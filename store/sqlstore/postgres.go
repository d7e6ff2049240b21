package sqlstore

import (
	"database/sql"
	"slices"

	"github.com/semel-dev/semel/store"
)

// Postgres returns the dialect of PostgreSQL 13 and later. The clock is that
// of the transaction, so that all of it happens at one time.
func Postgres() *Dialect {
	return &Dialect{
		Capabilities: store.Capabilities{
			Name:               "postgres",
			FailsForeignCommit: true,
			Durable:            true,
		},
		Begin:      "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		Server:     true,
		Prepares:   true,
		Snapshot:   sql.LevelRepeatableRead,
		Now:        "CAST(floor(extract(epoch FROM transaction_timestamp()) * 1000) AS BIGINT)",
		Lock:       " FOR UPDATE",
		Numbered:   true,
		Alone:      "SELECT pg_advisory_xact_lock(495622907244)",
		HasTable:   hasTable,
		Migrations: [][]string{slices.Concat(postgresBatches(), postgresLetters(), postgresAccounts()), postgresEffects()},
	}
}

// hasTable reads a table, which to_regclass alone does not: only then does the
// server look whether somebody else has made the table since it last looked.
const hasTable = "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass(?)"

// MarkGuard is the constraint by which PostgreSQL refuses a COMMIT while the
// mark of the transaction is open.
const MarkGuard = "semel_a_handler_must_not_commit"
