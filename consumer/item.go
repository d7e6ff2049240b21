package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
)

// fate is what the next transaction does with an item.
type fate uint8

const (
	run    fate = iota // admit it and hand it to the handler
	filter             // record that the pipeline does not want it
	park               // write a letter
)

// cause is why an item gets a letter.
type cause struct {
	class store.Class
	why   string // a short stable word
	err   error
}

// reason is what the letter of the item says.
func (it *item) reason() *cause {
	if it.refused != nil {
		return it.refused
	}
	return &it.cause
}

// item is a delivery, or a letter taken up again, on its way through a batch.
// Everything under "this attempt" is reset when a transaction begins.
type item struct {
	d       *semel.Delivery
	letter  *store.Letter     // nil for deliveries
	scope   *scope            // nil for sources without exclusive scopes
	print   store.Fingerprint // see fingerprint
	printed bool
	bytes   int64 // it holds in memory

	fate  fate
	due   time.Duration // of a parked item that will be retried
	dead  bool          // a parked item that will not
	cause               // of what failed last, or of what makes it invalid

	attempts int  // failed attempts, all processes
	stale    int  // optimistic misses in a row
	breaks   int  // times it alone broke a connection that works
	alone    bool // its next attempt is a batch of its own
	told     bool // the observer knows that it is dead
	unread   bool // not decoded yet; see Consumer.read
	prepared *prepared

	suspect *store.Suspect // not nil: run in careful mode
	reread  bool           // a letter that could not be read when it was written, and can now

	// This attempt:
	verdict semel.Verdict // Undecided: the handler decides
	known   bool          // the id, or its letter, was there before
	row     *store.Record // of a letter: its inbox row
	refused *cause        // why admission does not accept it
	state   store.State   // of the letter to be written; empty: none
	ref     string        // of its letter
	number  int64         // behind its key
	reject  bool          // settle with Reject
}

func (it *item) reset() {
	it.refused = nil
	it.verdict, it.known, it.row, it.state, it.ref, it.number, it.reject = semel.Undecided, false, nil, "", "", 0, false
}

// fingerprint is computed when it is first needed: not every strategy does.
func (it *item) fingerprint() store.Fingerprint {
	if !it.printed {
		it.print, it.printed = store.Print(&it.d.Message), true
	}
	return it.print
}

// rekeyed reports whether a letter's message turned out to be about another key.
func (it *item) rekeyed() bool { return it.reread && it.d.Key != it.letter.Message.Key }

// name is what errors call the item.
func (it *item) name() string {
	if it.d.ID != "" {
		return it.d.ID
	}
	return it.d.Origin()
}

// bury marks the item as dead for a reason.
func (it *item) bury(class store.Class, why string, err error) {
	it.fate, it.dead, it.cause = park, true, cause{class, why, err}
}

// decodeFailed sorts the error of a decoder or a malformed delivery.
func (it *item) decodeFailed(err error) {
	if errors.Is(err, semel.ErrFiltered) {
		it.fate = filter
		return
	}
	why := letter.Invalid
	if it.d.Malformed != nil {
		why = letter.Malformed
	}
	it.bury(store.Format, why, &semel.Error{Stage: "decode", Message: it.name(), Err: err})
}

// reasoner is a permanent error of the system's, not of the message's, that
// says why the letter is there.
type reasoner interface{ LetterReason() string }

// charge books a failed attempt and says what follows: another attempt at
// once, alone, or a letter.
func (c *Consumer[Tx]) charge(it *item, err error) {
	it.attempts++
	it.err = &semel.Error{Stage: "handle", Message: it.name(), Err: err}
	switch class, _ := semel.ClassOf(err); class {
	case semel.ClassInvalid:
		it.bury(store.Format, letter.Invalid, it.err)
	case semel.ClassPermanent:
		var own reasoner
		if errors.As(err, &own) {
			it.bury(store.System, own.LetterReason(), it.err)
			return
		}
		it.bury(store.Business, "permanent", it.err)
	default:
		now, delay, dead := c.cfg.Retry.Next(it.attempts)
		if asked, wants := semel.DelayOf(err); wants {
			now, delay = false, min(asked, retry.MaxDelay)
		}
		switch {
		case dead:
			it.bury(store.System, "exhausted", it.err)
		case now:
			it.alone = true
		default:
			it.fate, it.due, it.class, it.why = park, delay, store.System, "failed"
		}
	}
}

// observeFailure tells the observer about a charged attempt.
func (c *Consumer[Tx]) observeFailure(it *item) {
	if c.cfg.Observer.Failed == nil {
		return
	}
	f := semel.Failure{ID: it.d.ID, Key: it.d.Key, Origin: it.d.Origin(), Attempts: it.attempts, Err: it.reason().err, Due: it.due}
	f.Class, _ = semel.ClassOf(f.Err)
	var p *panicError
	f.Panic = errors.As(f.Err, &p)
	switch {
	case it.dead || it.state == store.StateDead || it.verdict == semel.Dead:
		f.Verdict, f.Reason, it.told = semel.Dead, it.reason().why, true
	case it.fate == park:
		f.Verdict, f.Reason = semel.Parked, it.reason().why
	}
	c.cfg.Observer.Failed(f)
}

// attempt is the row that tells how the item failed; N = 0 if nothing was tried.
func (it *item) attempt(worker string) store.Attempt {
	err := it.reason().err
	if err == nil {
		return store.Attempt{}
	}
	a := store.Attempt{N: max(1, it.attempts), Error: letter.Chain(err), Worker: worker}
	a.Class, _ = semel.ClassOf(err)
	var p *panicError
	if errors.As(err, &p) {
		a.Stack = letter.Clip(p.stack)
	}
	return a
}

// common is what the failure of the item has in common with others; a is its
// attempt.
func (it *item) common(a *store.Attempt) store.Cause {
	c := it.reason()
	return letter.CauseOf(c.class, c.why, c.err, a.Stack)
}

// parking is the letter of a delivery that is parked.
func (it *item) parking(c *Config, state store.State) store.Parking {
	a := it.attempt(c.Worker)
	class, why, common := it.reason().class, it.reason().why, it.common(&a)
	if state == store.StateHeld {
		a, class, why, common = store.Attempt{}, "", "held", store.Cause{}
	}
	return store.Parking{
		Letter: store.Letter{
			Ref: it.ref, Consumer: c.Name, Message: it.d.Message, Fingerprint: it.fingerprint(), Origin: it.d.Origin(),
			State: state, Number: it.number, Class: class, Reason: why,
			Conflict: it.verdict == semel.Conflict, Attempts: it.attempts, Error: a.Error, Stack: a.Stack, Cause: common,
		},
		Delay: it.due, Attempt: a,
	}
}

// panicError is a handler's panic as an error.
type panicError struct {
	value any
	stack string
}

// Error tells the panic's value.
func (p *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", p.value) }

// Unwrap returns the value if it is an error.
func (p *panicError) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
