// Package sqlstore implements the store of package store over database/sql.
//
// It holds the statements, the tables and the order of things; it imports no
// driver. A driver's module (package sqlitestore) opens the database and hands
// over a [Driver], which knows that driver's errors and how to watch a
// connection for a handler that ends the transaction itself.
//
// Handlers see a [Tx]: the four methods that sqlc and similar generators take,
// without Commit and Rollback. What stands behind it is not a *sql.Tx, so no
// type assertion brings them back. [Unwrap] is the named way out for tools that
// need the connection.
package sqlstore
