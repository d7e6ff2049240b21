package semel

import (
	"context"
	"iter"
	"time"
)

// Observer is told what a pipeline does. Every field is optional, and one that
// is nil costs nothing. The functions are called from the pipeline's
// goroutines: they must be safe for concurrent use, return quickly and not
// panic. Nothing but Handle is called once per message that succeeds. Join
// makes one Observer of several.
type Observer struct {
	// Batch is called after every transaction that committed.
	Batch func(Batch)
	// Failed is called when a message fails an attempt or is parked or dead.
	Failed func(Failure)
	// Paused is called when intake pauses because the store or the source
	// cannot be used (err is why) and with nil when it resumes. Committers
	// pause by themselves: calls come in pairs, and pairs may overlap.
	Paused func(err error)
	// Scope is called when a scope is assigned, left, lost or stopped; err
	// says why it was lost or stopped.
	Scope func(s Scope, event string, err error)
	// Unsettled is called when a settlement did not reach the source. The
	// delivery will come again and be found.
	Unsettled func(n int, err error)
	// Phase is called when a run comes to its next phase.
	Phase func(Phase)
	// Open is called before a transaction that decides messages is opened. The
	// context that it returns, which must be made of ctx, is that of the
	// transaction and of its handlers. If end is not nil it is called when it
	// is known how the transaction ended: with what it decided and nil, or with
	// an empty Batch and why it did not commit. The messages of one that did
	// not commit are opened again, in smaller parts.
	Open func(ctx context.Context, o Opening) (_ context.Context, end func(Batch, error))
	// Handle is called around every call of a handler that takes one message
	// at a time, as Open is around transactions.
	Handle func(ctx context.Context, m *Message) (_ context.Context, end func(error))
}

// Opening describes a transaction that is about to be opened.
type Opening struct {
	// N is how many deliveries or letters it is to decide; Letters tells which
	// of the two.
	N       int
	Letters bool
	// Messages are those, in order. They may be read until Open returns.
	Messages iter.Seq[*Message]
}

// Batch describes one committed transaction.
type Batch struct {
	// Messages is how many deliveries or letters it decided; Letters tells
	// which of the two.
	Messages int
	Letters  bool
	// Of counts the outcomes.
	Of [verdicts]int64
	// Took is the time from opening the transaction to the end of commit;
	// Handled the part of it spent in handlers.
	Took, Handled time.Duration
	// Oldest is the earliest time that a message of it has; zero: none has one.
	Oldest time.Time
}

// Failure describes one failed attempt.
type Failure struct {
	ID, Key, Origin string
	Attempts        int
	Class           Class
	// Reason is the short word under which its letter is kept: "permanent",
	// "exhausted", "invalid". Empty if another attempt follows at once.
	Reason string
	// Panic: the handler or the decoder panicked.
	Panic bool
	Err   error
	// Verdict is Parked or Dead when that was the end of it for now,
	// Undecided when another attempt follows at once.
	Verdict Verdict
	// Due is the delay before a parked message is tried again.
	Due time.Duration
}

// Phase is how far a run is.
type Phase uint8

const (
	// Starting: not known to the store yet, or, where the source has
	// partitions, without its first assignment. Observers are not told; a run
	// begins with it.
	Starting Phase = iota
	// Running: it takes messages.
	Running
	// Draining: it takes nothing more and finishes what it has.
	Draining
	// Ended: nothing of it runs any more.
	Ended
)

var phaseNames = [...]string{"starting", "running", "draining", "ended"}

// String returns the phase's lower-case name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}
