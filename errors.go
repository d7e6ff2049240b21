package semel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Verdicts a handler may return as errors. They do not roll the transaction
// back: what the handler wrote before stays.
var (
	// ErrDuplicate says the business fact is already there (a unique key of
	// the user's own table was met). The delivery is acked and counted.
	ErrDuplicate = errors.New("duplicate")
	// ErrSuperseded says a newer state is already there (a state machine or a
	// conditional update refused). The delivery is acked and counted.
	ErrSuperseded = errors.New("superseded")
	// ErrFiltered is returned by decoders: the pipeline's filter does not
	// want the message.
	ErrFiltered = errors.New("filtered")
)

// ErrStale says an optimistic update missed because the row changed since it
// was read. The transaction is rolled back and the handler runs again with a
// fresh read, uncharged, at most three times.
var ErrStale = errors.New("stale read")

// Class says what an error asks for.
type Class uint8

const (
	// ClassTransient: may pass; retried by the policy.
	ClassTransient Class = iota
	// ClassPermanent: retrying cannot help; straight to the dead letters.
	ClassPermanent
	// ClassInvalid: the message itself is malformed; straight to the dead letters.
	ClassInvalid
	// ClassContention: deadlock, serialization failure, lock timeout, busy. The
	// unit is redone in smaller pieces and no attempt is charged.
	ClassContention
	// ClassInfrastructure: the store cannot be reached or cannot write. Intake
	// pauses and no attempt is charged, if a probe fails as well.
	ClassInfrastructure
	// ClassFault: the set-up is wrong (a table is missing, a permission). The
	// consumer stops and says so; no message is charged.
	ClassFault
)

var classNames = [...]string{"transient", "permanent", "invalid", "contention", "infrastructure", "fault"}

// String returns the class's lower-case name.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

type classed struct {
	error
	class Class
	after time.Duration
}

func (c *classed) Unwrap() error { return c.error }

// Permanent marks err so that the message goes to the dead letters at once:
// an unknown code, a reference that will never exist. Permanent(nil) is nil.
func Permanent(err error) error { return mark(err, ClassPermanent, 0) }

// Invalid marks err as a fault of the message's form: it did not parse, a
// field is missing or has the wrong type. Invalid(nil) is nil.
func Invalid(err error) error { return mark(err, ClassInvalid, 0) }

// Invalidf is Invalid(fmt.Errorf(format, args...)).
func Invalidf(format string, args ...any) error { return Invalid(fmt.Errorf(format, args...)) }

// Fault marks err as a fault of the set-up: whoever meets it stops and says so,
// and no message is charged. For adapters. Fault(nil) is nil.
func Fault(err error) error { return mark(err, ClassFault, 0) }

// Infrastructure marks err as a failure of what the work depends on, not of any
// message: consumer.PrepareBatch waits and charges nobody. For adapters.
// Infrastructure(nil) is nil.
func Infrastructure(err error) error { return mark(err, ClassInfrastructure, 0) }

// RetryAfter marks err as transient and asks for the next attempt not before
// d has passed. It overrides the policy's next delay, not its count.
func RetryAfter(err error, d time.Duration) error { return mark(err, ClassTransient, d) }

func mark(err error, c Class, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &classed{error: err, class: c, after: after}
}

// ClassOf returns the class that err was marked with and whether it was
// marked at all. An unmarked error is transient unless the store knows better.
func ClassOf(err error) (c Class, marked bool) {
	var m *classed
	if errors.As(err, &m) {
		return m.class, true
	}
	return ClassTransient, false
}

// DelayOf returns the delay asked for by RetryAfter.
func DelayOf(err error) (d time.Duration, ok bool) {
	var m *classed
	if errors.As(err, &m) && m.after > 0 {
		return m.after, true
	}
	return 0, false
}

// At ties err to message i of a batch; a batch handler returns
// errors.Join(At(i, err), …). Marks go inside: At(i, Permanent(err)). At(i, nil)
// is nil.
func At(i int, err error) error {
	if err == nil {
		return nil
	}
	return &indexed{i: i, error: err}
}

type indexed struct {
	error
	i int
}

func (e *indexed) Unwrap() error { return e.error }

// EachAt calls fn for every error in err made by At, in the order they were
// joined, and reports whether there was any.
func EachAt(err error, fn func(i int, err error)) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *indexed:
		fn(e.i, e.error)
		return true
	case interface{ Unwrap() []error }:
		found := false
		for _, sub := range e.Unwrap() {
			found = EachAt(sub, fn) || found
		}
		return found
	case interface{ Unwrap() error }:
		return EachAt(e.Unwrap(), fn)
	}
	return false
}

// Error carries what an operator needs: which message, at which stage, and
// what can be done. Its text never contains a body or a secret.
type Error struct {
	// Stage is the step that failed: "decode", "admit", "handle", "commit", …
	Stage string
	// Message is the id, or the origin of a message without one; may be empty.
	Message string
	// Hint says what an operator can do; may be empty.
	Hint string
	Err  error
}

// Error returns "stage: message: cause (hint)" without the parts that are empty.
func (e *Error) Error() string {
	var b strings.Builder
	for _, s := range []string{e.Stage, e.Message} {
		if s != "" {
			b.WriteString(s)
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
