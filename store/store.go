// Package store is what a user's database looks like to the pipeline, and the
// row types it keeps there.
//
// One concrete type per database implements [Backend] for its transaction
// type Tx, and the ports of operators ([Reader], [Janitor], [Schema]), which
// do not mention Tx. Package storetest proves an implementation.
//
// Everything a batch does happens in one transaction, and rows are locked in
// one order: mark, fences by scope, holds by key, inbox and letters by id,
// versions by key, then the user's rows. Callers pass sets sorted in that
// order; implementations keep it.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel"
)

// Outcome is how a transaction ended. Unknown is a value of its own: it is
// resolved by a read that conflicts with the doubtful writer, never guessed.
type Outcome uint8

const (
	// RolledBack: nothing of it is or will be visible.
	RolledBack Outcome = iota
	// Committed: all of it is durable.
	Committed
	// Unknown: COMMIT was sent and not answered.
	Unknown
)

// ErrEnded is wrapped by InTx's error when the function ended the transaction
// behind the pipeline's back (a COMMIT or ROLLBACK in a handler).
var ErrEnded = errors.New("the handler ended the transaction itself")

// Mark identifies the transaction of one batch. Each committer owns one row
// (Consumer, Worker, Slot); a batch moves it from Batch-1 to Batch as its
// first write and closes it as its last, so that a read of the row tells
// whether the batch is committed. The zero Mark asks for a plain transaction.
type Mark struct {
	Consumer, Worker string
	Slot             int
	Batch            int64
}

// Store runs transactions. All methods are safe for concurrent use.
type Store[Tx any] interface {
	// InTx runs fn in one transaction: mark first, mark closed last, commit.
	// If fn fails it rolls back and returns fn's error as it is. The commit
	// itself is not cancelled by ctx. A mark that is not at Batch-1 is an
	// error of class Fault: someone else uses the slot.
	InTx(ctx context.Context, m Mark, fn func(context.Context, Tx) error) (Outcome, error)
	// Resolve says what became of the batch m, by a read that waits for the
	// transaction in doubt. It returns Unknown and an error if the wait or
	// the connection failed; ask again.
	Resolve(ctx context.Context, m Mark) (Outcome, error)
	// Classify sorts an error of this store or its driver; errors that it
	// does not know are semel.ClassTransient. It does not look at the marks
	// of semel.Permanent and its kin.
	Classify(error) semel.Class
	// Capabilities is constant for the life of the store.
	Capabilities() Capabilities
	Close(ctx context.Context) error
}

// Capabilities are facts about a store, proved by the conformance suite.
type Capabilities struct {
	// Name identifies the adapter: "sqlite", "postgres", "memory".
	Name string
	// Committers is how many transactions can usefully run at once; 0 means
	// any number.
	Committers int
	// MaxHold bounds the time a batch should keep its locks, because others
	// wait for all of them (SQLite's one write lock); 0 means no such bound.
	MaxHold time.Duration
	// FailsForeignCommit: a COMMIT inside a handler fails and commits nothing.
	FailsForeignCommit bool
	// Durable: a commit that was answered survives power loss as configured.
	Durable bool
}

// Backend is all that a pipeline needs of a store.
type Backend[Tx any] interface {
	Store[Tx]
	Workers
	Fences[Tx]
	Records[Tx]
	Versions[Tx]
	Letters[Tx]
	Holds[Tx]
	Suspects[Tx]
	Reader
	Janitor
}

// Worker is one process (or one Consumer value) that runs a pipeline.
type Worker struct {
	Consumer, Name string
	// Slots is the number of committers, each with its mark.
	Slots int
	// Identity are facts that must stay the same for all workers of one
	// consumer name ("source", "inbox"). Two pipelines with one name would
	// take each other's messages for duplicates.
	Identity map[string]string
}

// TakenError says that a consumer name is in use with another identity.
type TakenError struct{ Consumer, Fact, Have, Want string }

// Error names the fact that differs.
func (e *TakenError) Error() string {
	return "the name " + e.Consumer + " is taken by a pipeline whose " + e.Fact + " is " + e.Have + ", not " + e.Want
}

// Workers keeps the rows of running workers.
type Workers interface {
	// Enlist creates the worker's marks at batch 0, committed, and checks
	// the identity; a difference is a *TakenError.
	Enlist(ctx context.Context, w Worker) error
	// Retire removes the worker's marks. Removing what is not there is no error.
	Retire(ctx context.Context, consumer, worker string) error
}

// Fence is the row that says how far a scope is decided and who may go on.
type Fence struct {
	Scope semel.Scope
	// Epoch grows with every assignment; a commit under an older one fails.
	Epoch int64
	// Next is the first offset that is not decided.
	Next semel.Offset
	// Fresh: the row did not exist before this assignment. With Epoch 0 it
	// does not exist now either, because it was not to be created.
	Fresh bool
	// Clean: the previous owner left in good order. In a row read by
	// Status: the scope has no owner.
	Clean bool
	// Other is the incarnation of another row of the same scope name, the
	// last one assigned; empty if there is none.
	Other string
	// Worker is the owner by the last assignment.
	Worker string
}

// Start is where to begin a scope that has no row yet.
type Start struct {
	Scope  semel.Scope
	At     semel.Offset
	Create Create
}

// Create says whether an assignment may create a row. One that may not leaves
// no trace: the next try finds the same situation, not a row at offset zero.
type Create uint8

const (
	// CreateAlways: scopes come and go, a new one is ordinary.
	CreateAlways Create = iota
	// CreateFirst: only if no other incarnation of the name has a row.
	CreateFirst
	// CreateNever: the row must be there.
	CreateNever
)

// Advance moves a scope from From to To under Epoch.
type Advance struct {
	Scope    semel.Scope
	Epoch    int64
	From, To semel.Offset
}

// Fences keeps one row per (consumer, scope name, incarnation).
type Fences[Tx any] interface {
	// Assign makes worker the owner in a transaction of its own: epoch + 1,
	// clean = false; it waits for a transaction that has the row locked. It
	// returns the rows in the order of s, Clean and Other as they were before.
	Assign(ctx context.Context, consumer, worker string, s []Start) ([]Fence, error)
	// Advance moves each row from From to To where epoch and next match, and
	// appends to lost the indexes of those that did not. a is sorted by scope.
	Advance(ctx context.Context, tx Tx, consumer string, a []Advance, lost []int) ([]int, error)
	// Leave sets clean where the epoch is still the one given.
	Leave(ctx context.Context, consumer string, f []Fence) error
}

// Fingerprint tells whether two messages with one id are the same message.
type Fingerprint [16]byte

// Record is one row of the inbox: the proof that a message was decided.
type Record struct {
	ID          string
	Fingerprint Fingerprint
	// Verdict is Applied, Superseded, Filtered, Parked (there is an open
	// letter) or Discarded.
	Verdict semel.Verdict
	// Bucket is the UTC day of the message's own time, in days since 1970, 0
	// if it has none; Hash a keyed 64-bit hash of the id. Reconciliation
	// compares their sums.
	Bucket int64
	Hash   uint64
}

// Prior is a record that was there before a Claim.
type Prior struct {
	// I is the index into the claimed records.
	I int
	Record
}

// Tally is one line of the ledger: counters written in the same transaction
// as the rows they count.
type Tally struct {
	Account string
	Bucket  int64
	N       int64
	Sum     uint64 // sum of hashes, wrapping
}

// Ledger accounts. Those named after a verdict mirror the inbox rows with
// that verdict where the strategy keeps rows: ledger = rows + purged.
const (
	// AccountOpened and AccountClosed count letters: opened - closed = open.
	AccountOpened = "letters_opened"
	AccountClosed = "letters_closed"
	// AccountOther is a prefix for outcomes that leave the inbox rows as they
	// are: "other_duplicate", "other_conflict" and so on.
	AccountOther = "other_"
	// AccountPurged is a prefix: "purged_applied" and so on.
	AccountPurged = "purged_"
)

// Records keeps one row per (consumer, id), compared as bytes.
type Records[Tx any] interface {
	// Claim inserts the rows that do not exist and appends those that did to
	// prior. It waits for other transactions that claimed the same ids. r is
	// sorted by id, without repeats.
	Claim(ctx context.Context, tx Tx, consumer string, r []Record, prior []Prior) ([]Prior, error)
	// Record sets the verdict of existing rows.
	Record(ctx context.Context, tx Tx, consumer string, r []Record) error
	// Count adds to the ledger; lines of one (account, bucket) are added up.
	Count(ctx context.Context, tx Tx, consumer string, t []Tally) error
}

// Versioned is the newest applied version of a key.
type Versioned struct {
	Key         string
	Version     semel.Version
	ID          string
	Fingerprint Fingerprint
}

// Versions keeps one row per (consumer, key).
type Versions[Tx any] interface {
	// Versions appends the rows of keys that exist, locked until the
	// transaction ends. keys is sorted, without repeats.
	Versions(ctx context.Context, tx Tx, consumer string, keys []string, out []Versioned) ([]Versioned, error)
	// SetVersions writes rows that Versions was asked for in the same
	// transaction. If another transaction wrote one meanwhile the error is
	// of class Contention.
	SetVersions(ctx context.Context, tx Tx, consumer string, v []Versioned) error
}

// Hold is the row that keeps the messages of a key behind one that failed.
type Hold struct {
	Key string
	// Size is the number of letters behind the row; Tail the number given
	// to the last one.
	Size, Tail int64
}

// Holds keeps one row per (consumer, key) that has parked letters in order.
type Holds[Tx any] interface {
	// Lock appends the rows of keys that exist, locked. keys is sorted.
	Lock(ctx context.Context, tx Tx, consumer string, keys []string, out []Hold) ([]Hold, error)
	// Append adds n letters behind key, creating the row if it is free, and
	// returns the row as it is then: the new letters have the numbers
	// Tail-n+1 to Tail.
	Append(ctx context.Context, tx Tx, consumer, key string, n int64) (Hold, error)
	// Release takes n letters off key and deletes the row where none is left.
	Release(ctx context.Context, tx Tx, consumer, key string, n int64) error
}

// Suspect is a unit of work (a scope, or one delivery of a source without
// scopes) whose holder died while it may have been running.
type Suspect struct {
	// Unit is the scope, or the origin of the delivery.
	Unit string
	// Limit is the largest batch that may run it.
	Limit int
	// Started is the size of a batch that was started and not finished; 0: none.
	Started int
	// Left is how many messages of a scope may still hold the cause.
	Left int64
	// At is the offset at which the lone start was made.
	At semel.Offset
	// Charged counts the lone starts that ended in a proven death.
	Charged int
}

// Suspects keeps what is known of units whose holder died.
type Suspects[Tx any] interface {
	// Suspects appends the rows of units that exist. units is sorted.
	Suspects(ctx context.Context, tx Tx, consumer string, units []string, out []Suspect) ([]Suspect, error)
	// Suspect writes rows; Limit 0 deletes one.
	Suspect(ctx context.Context, tx Tx, consumer string, s []Suspect) error
}

// Purge bounds one step of cleaning up.
type Purge struct {
	Consumer string
	// Keep is how long a row stays after its last change, by database time.
	Keep time.Duration
	// Limit bounds the rows of one step; 0 means 1,000.
	Limit int
	// KeepScopes leaves fences alone. Scopes that come and go (files) are
	// forgotten with their messages; the position of a partition that nobody
	// read for a while must stay.
	KeepScopes bool
}

// Purged is what one step removed.
type Purged struct{ Records, Letters, Fences, Workers, Effects int64 }

// More reports whether the step removed anything.
func (p Purged) More() bool { return p != Purged{} }

// Janitor removes old rows: inbox records (never those of open letters),
// closed letters, fences of scopes without an owner, marks of dead workers,
// effects whose result is known. Versions and holds are never touched. The ledger is written in the same
// transaction. Safe to run from several processes.
type Janitor interface {
	Purge(ctx context.Context, p Purge) (Purged, error)
}

// Schema creates and checks the tables.
type Schema interface {
	// Migrate brings the tables to this version, in order, idempotent and
	// safe from many processes.
	Migrate(ctx context.Context) error
	// Pending returns the statements that Migrate would run; empty: up to date.
	Pending(ctx context.Context) ([]string, error)
	// Statements returns all statements from nothing to this version.
	Statements() []string
}
