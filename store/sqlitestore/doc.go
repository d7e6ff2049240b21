// Package sqlitestore keeps semel's tables in a SQLite database, next to the
// user's own, through the pure-Go driver modernc.org/sqlite.
//
// The database is in WAL mode with synchronous=FULL: a commit that was
// answered survives power loss. Several processes may use one file on one
// machine; one transaction writes at a time, and the others wait, at most
// LockWait. A process that is stopped inside a transaction stops them all.
//
// Do not put the file on a network file system, do not open it in the same
// process with another SQLite library, and do not copy or replace it while it
// is open: file locks belong to the process, and closing any descriptor of the
// file drops them.
package sqlitestore
