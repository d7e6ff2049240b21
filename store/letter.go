package store

import (
	"context"
	"time"

	"github.com/semel-dev/semel"
)

// State is where a letter stands. Its transitions are in package letter.
type State string

const (
	// StateRetry: to be tried when it is due.
	StateRetry State = "retry"
	// StateHeld: waits behind an earlier letter of its key.
	StateHeld State = "held"
	// StateDead: waits for a person.
	StateDead State = "dead"
	// StateEdited and StateApproved are dead letters under review.
	StateEdited   State = "edited"
	StateApproved State = "approved"
	// StateApplied, StateSuperseded, StateDuplicate, StateDiscarded: closed.
	StateApplied    State = "applied"
	StateSuperseded State = "superseded"
	StateDuplicate  State = "duplicate"
	StateDiscarded  State = "discarded"
)

// States returns all states, those that are open first.
func States() []State {
	return []State{
		StateDead, StateEdited, StateApproved, StateRetry, StateHeld,
		StateApplied, StateSuperseded, StateDuplicate, StateDiscarded,
	}
}

// Open reports whether the letter still waits for something.
func (s State) Open() bool {
	switch s {
	case StateRetry, StateHeld, StateDead, StateEdited, StateApproved:
		return true
	}
	return false
}

// Class sorts dead letters by who can help.
type Class string

const (
	// Format: the message is malformed; its producer must send it again, or
	// a person repairs it.
	Format Class = "format"
	// Business: well formed, and refused by a rule (permanent error, tie,
	// conflict).
	Business Class = "business"
	// System: failed for reasons outside the message until the attempts
	// were used up, or it killed the process.
	System Class = "system"
)

// Letter is a parked message with all that is known of it.
type Letter struct {
	// Ref identifies the letter within its consumer. It is derived from what
	// the letter is about, so writing it twice is noticed.
	Ref      string
	Consumer string
	// Message is the message as delivered, or as last revised. ID is empty if
	// it could not be decoded.
	Message     semel.Message
	Fingerprint Fingerprint
	// Origin is where it was first delivered.
	Origin string
	State  State
	// Version grows with every transition; a transition names the one it saw.
	Version int64
	// Number is the place behind the key's hold; 0: not in order.
	Number int64
	Class  Class
	// Reason is a short stable word: "invalid", "permanent", "exhausted",
	// "crash", "tie", "no version", "conflict", "held".
	Reason string
	// Conflict: this letter has an id that was known with other content; it
	// can only be discarded or reissued under a new id.
	Conflict bool
	// Attempts counts failed attempts; Seen counts redeliveries meanwhile.
	Attempts, Seen int
	// Error is the chain of the last failure, outermost first, one a line.
	// Stack is the top of the stack where it was caught, if it was a panic.
	Error, Stack string
	// Cause is what the last failure has in common with others. It is zero
	// for a letter that never failed; Text comes back from Groups only.
	Cause Cause
	// Due is when a retry may run, by the database's clock. Created, Updated
	// and Failed, the time of the last failure, likewise. Read only: Park and
	// Move take delays.
	Due, Created, Updated, Failed time.Time
	// By and Note are the last person to act and what they said.
	By, Note string
	// Proposed counts revisions that wait for a decision.
	Proposed int
}

// Cause is what failures have in common, made by package letter: letters with
// one cause make a group.
type Cause struct {
	// ID is a short hash; empty: there was no failure.
	ID string
	// Text says in one line what failed, without what differs from message
	// to message.
	Text string
}

// Attempt is one failed attempt of a letter.
type Attempt struct {
	N      int
	At     time.Time
	Class  semel.Class
	Error  string
	Stack  string
	Worker string
}

// Parking is a letter to be written.
type Parking struct {
	Letter
	// Delay is added to the database's time to give Due; StateRetry only.
	Delay time.Duration
	// Attempt is what failed; N = 0: nothing was attempted.
	Attempt Attempt
}

// Move is a transition of a letter: a compare-and-set on its version.
type Move struct {
	Ref     string
	Version int64
	To      State
	// Delay gives Due; To = StateRetry only.
	Delay time.Duration
	// Number replaces the letter's place behind its key.
	Number int64
	// Class, Reason, Error, Stack and Attempts replace the letter's where
	// Attempt.N is not 0; the attempt is stored as well.
	Class    Class
	Reason   string
	Attempts int
	Attempt  Attempt
	// Cause, if not zero, replaces the letter's with the attempt: it has
	// failed now.
	Cause Cause
	// By and Note replace the letter's where By is not empty.
	By, Note string
	// Revised replaces the message and its fingerprint; nil: unchanged. What
	// the producer sent is kept as revision 0.
	Revised *Revised
}

// Revised is the new content of a letter.
type Revised struct {
	Message     semel.Message
	Fingerprint Fingerprint
}

// Revision is content of a letter beside the one it has: what the producer
// sent, or what is proposed.
type Revision struct {
	Ref string
	// N is 0 for what the producer sent, once other content has taken its
	// place; proposals are numbered from 1 on, the newest highest.
	N           int
	At          time.Time
	By, Note    string
	Message     semel.Message
	Fingerprint Fingerprint
}

// Letters keeps parked messages, one row per (consumer, ref).
type Letters[Tx any] interface {
	// Any reports whether the consumer has letters at all, cheaply: most
	// batches need to know no more.
	Any(ctx context.Context, tx Tx, consumer string) (bool, error)
	// Find appends the letters of the given message ids and refs, open and
	// closed, without bodies, locked. Both lists are sorted.
	Find(ctx context.Context, tx Tx, consumer string, ids, refs []string, out []Letter) ([]Letter, error)
	// Park writes letters. One whose ref is there already is left as it is,
	// and its index appended to exists; but a letter closed as applied,
	// superseded or duplicate gives way to the new one, with its version
	// counted on, since the inbox has forgotten that message.
	Park(ctx context.Context, tx Tx, p []Parking, exists []int) ([]int, error)
	// Move makes transitions and appends to missed the indexes of those whose
	// letter is not at the given version.
	Move(ctx context.Context, tx Tx, consumer string, m []Move, missed []int) ([]int, error)
	// Note counts redeliveries (seen + 1) and stores proposed revisions; it
	// leaves versions alone. A fingerprint is there once from whoever proposed
	// it: one that is proposed again becomes the newest, with a new number. Of
	// one proposer the newest MaxProposals are kept.
	Note(ctx context.Context, tx Tx, consumer string, seen []string, r []Revision) error
}

// Query selects letters of one consumer. Empty fields select all.
type Query struct {
	// Consumer is required: without one nothing is selected.
	Consumer string
	States   []State
	Class    Class
	Reason   string
	ID, Key  string
	Type     string
	// Cause selects by a prefix of the cause's id, Ref by one of the
	// reference.
	Cause, Ref string
	// After continues a listing behind this letter.
	After Cursor
	// Limit is how many letters a page has at most; 0 means 100.
	Limit int
	// Bodies asks for header and body as well. A page then ends early, with
	// one letter at least, where they exceed MaxPageBytes.
	Bodies bool
}

// MaxProposals bounds what is kept of proposals that come from one hand: a
// producer that sends a dead message again and again, each time with another
// time in it, must not fill the database.
const MaxProposals = 20

// MaxPageBytes bounds the headers and bodies of a page; a single larger letter
// is a page of its own.
const MaxPageBytes = 8 << 20

// Cursor is a place in the order of letters: by Created, then Ref. Its zero
// value is the beginning. The letter it was made of need not be there any more.
type Cursor struct {
	Created time.Time
	Ref     string
}

// Group counts letters that are in one state for one cause.
type Group struct {
	Cause Cause // zero: letters that never failed
	State State
	// Class and Reason are those of the failure.
	Class  Class
	Reason string
	N      int64
	// First is when the earliest of them was parked, Last when one of them
	// failed last; zero if none did.
	First, Last time.Time
}

// Status is everything that waits, in one snapshot.
type Status struct {
	Letters  map[State]int64
	NextDue  time.Time // of the earliest retry; zero: none
	Holds    []Hold    // at most 100, largest first
	HoldKeys int64
	Fences   []Fence // at most 1,000, those not clean first
	Workers  []Mark
	Suspects []Suspect
	Ledger   []Tally
	// Imbalances are accounts whose ledger differs from the rows; empty is
	// how it must be.
	Imbalances []Imbalance
}

// Imbalance is an account whose ledger and rows differ.
type Imbalance struct {
	Account      string
	Bucket       int64
	Ledger, Rows int64
}

// Trace is what a store knows about one message id.
type Trace struct {
	Record   *Record
	At       time.Time // last change of the record
	Letters  []Letter
	Attempts map[string][]Attempt // by ref
	Version  *Versioned           // of the key, if a letter or the caller told it
	Fences   []Fence
}

// Lister finds letters for people. It sees one snapshot per call.
type Lister interface {
	// List returns the next page of letters, by Created, then Ref. An empty
	// page is the end.
	List(ctx context.Context, q Query) ([]Letter, error)
	// Groups counts the letters that q selects, by cause and state, in no
	// order. After, Limit and Bodies do not matter.
	Groups(ctx context.Context, q Query) ([]Group, error)
	// Revisions returns what the producer sent, if other content has taken its
	// place, and the proposed content of a letter, newest last.
	Revisions(ctx context.Context, consumer, ref string) ([]Revision, error)
}

// Reader is the operators' read port. It sees one snapshot per call.
type Reader interface {
	Lister
	// Due returns letters that may run now, bodies included, ordered by due
	// time; of each held key only the first. next is the time until the next
	// retry is due, -1 if there is none. It locks nothing: whoever wants to
	// run a letter moves it first.
	Due(ctx context.Context, consumer string, limit int, maxBytes int64) (due []Letter, next time.Duration, err error)
	// Status returns everything that waits. rows: compare the ledger with
	// the inbox rows as well, which reads all of them.
	Status(ctx context.Context, consumer string, rows bool) (Status, error)
	// Trace follows one id; key may be empty.
	Trace(ctx context.Context, consumer, id, key string) (Trace, error)
}

// Deferred is implemented by stores whose transactions queue statements and
// send them together. Errors then arrive late and are attributed to the
// message whose handler queued the statement.
type Deferred[Tx any] interface {
	// Begin is called before the handler of message i.
	Begin(tx Tx, i int)
	// Flush sends what is queued. For every message in order it calls late
	// with its error or verdict (nil: none); it stops when late says no.
	Flush(ctx context.Context, tx Tx, late func(i int, err error) (goOn bool)) error
}
