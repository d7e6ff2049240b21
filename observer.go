package semel

import "time"

// Observer is told what a pipeline does. Every field is optional. The
// functions are called from the pipeline's goroutines: they must be safe for
// concurrent use and return quickly. Nothing here is called once per message
// on the path of messages that succeed.
type Observer struct {
	// Batch is called after every transaction that committed.
	Batch func(Batch)
	// Failed is called when a message fails an attempt or is parked or dead.
	Failed func(Failure)
	// Paused is called when intake pauses because the store cannot be used
	// (err is why) and with nil when it resumes.
	Paused func(err error)
	// Scope is called when a scope is assigned, left, lost or stopped; err
	// says why it was lost or stopped.
	Scope func(s Scope, event string, err error)
	// Unsettled is called when a settlement did not reach the source. The
	// delivery will come again and be found.
	Unsettled func(n int, err error)
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
}

// Failure describes one failed attempt.
type Failure struct {
	ID, Key, Origin string
	Attempts        int
	Class           Class
	Err             error
	// Verdict is Parked or Dead when that was the end of it for now,
	// Undecided when another attempt follows at once.
	Verdict Verdict
	// Due is the delay before a parked message is tried again.
	Due time.Duration
}
