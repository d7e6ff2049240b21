// Package semel is the vocabulary of a toolkit that turns at-least-once
// delivery into effects that happen once.
//
// A source hands over a [Message] one or more times; each hand-over is a
// [Delivery]. A handler does its work inside a transaction of the user's own
// database and returns an error that steers what happens next ([Permanent],
// [Invalid], [RetryAfter], [ErrSuperseded], …). The pipeline in package
// consumer writes the record that the message was handled into the same
// transaction and settles the delivery only after the commit.
//
// The promise: every message the broker confirmed ends in exactly one of five
// places. Its effect is committed once; it is a dead letter with its full
// context; it was superseded by a newer version of the same entity; a stated
// rule of the pipeline filtered it; a named person discarded it with a reason.
// We call that "effectively once". Delivery itself happens at least once; no
// one can promise otherwise.
//
// This package imports nothing of the toolkit, so adapters, handlers and tests
// can share its types without pulling in anything else.
package semel
