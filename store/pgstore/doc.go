// Package pgstore keeps semel's tables in a PostgreSQL database, next to the
// user's own, through pgx.
//
// The statements and the order of things are those of package sqlstore, and
// handlers take its Tx: a handler need not know which database it works in.
// [Conn] gives one that does the native connection. [Queue] lets it queue
// statements, which are sent together, in one round trip for a whole batch.
//
// PostgreSQL 13 or later is needed, the primary server, and synchronous_commit
// other than off. PgBouncer in transaction mode may stand in between.
package pgstore
