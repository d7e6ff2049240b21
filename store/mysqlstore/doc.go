// Package mysqlstore keeps semel's tables in a MySQL or MariaDB database, next
// to the user's own, through go-sql-driver/mysql.
//
// The statements and the order of things are those of package sqlstore, and
// handlers take its Tx: a handler need not know which database it works in.
//
// MySQL 8.0 or MariaDB 10.6 or later is needed, InnoDB, a strict sql_mode, and
// innodb_flush_log_at_trx_commit = 1. Nothing in these databases can refuse a
// COMMIT inside a handler: it is noticed after the fact, and stops the consumer
// until a person has looked. See DESIGN.md.
package mysqlstore
