// Package demo shows three incidents of at-least-once delivery: the same
// messages and the same kill -9 for a consumer as it is written by hand and
// for semel.
//
// Nothing is simulated. Both consumers are processes of their own, on
// directory queues and SQLite databases of their own; they are killed by
// SIGKILL at the same fault point, the same number of times, at the same
// visits. What they did is read back from the databases, and from what the
// receiver of notices wrote down.
package demo
