// Package effect guards effects outside of the database: a payment call, a
// mail, a message to another system. None of them can be part of a
// transaction, so none can be made to happen exactly once from here. What can
// be done is to never repeat one without knowing, and to know as much as can be
// known:
//
//  1. commit an intent: what is about to happen, by whom, until when;
//  2. do it, with a key by which the other side can tell a repetition;
//  3. commit the result.
//
// No transaction is open during the call. Whoever finds an intent without a
// result after its time is in doubt, and a stated policy says what follows.
// DESIGN.md has the crash table.
package effect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Policy says what to do about an effect of which nobody knows whether it
// happened.
type Policy uint8

const (
	// Park: a person finds out. The error is of class permanent, so that a
	// message becomes a dead letter. It is never repeated silently.
	Park Policy = iota
	// Retry: do it again, because the other side honours the key.
	Retry
	// Ask: ask the other side, and do it only if it did not happen.
	Ask
)

// Config says how to guard. The zero value of every field but Name is a
// documented default.
type Config struct {
	// Name is the consumer under which effects are kept; keys are unique
	// within it. 1 to 255 bytes.
	Name string
	// InDoubt is the policy. Default Park.
	InDoubt Policy
	// Query finds out whether an effect happened; InDoubt Ask needs it. It
	// answers as an Effect does: nil with the result if it happened, NotDone
	// if it did not, any other error if that could not be found out.
	Query Func
	// Timeout bounds one call, and one query. Default 10 s.
	Timeout time.Duration
	// Lease is how long an intent keeps other workers away. It must be twice
	// Timeout at least, so that a call is over before it is in doubt. Default
	// three times Timeout.
	Lease time.Duration
	// Wait is how long Do waits while another worker is at it. Default: as
	// long as its lease. Negative: not at all, Do returns a *BusyError.
	Wait time.Duration
	// MaxResult bounds what is stored of a result, in bytes; the rest is cut
	// off. Default 64 KiB.
	MaxResult int
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Lease = cmp.Or(c.Lease, 3*c.Timeout)
	c.Wait = cmp.Or(c.Wait, c.Lease+c.Timeout)
	c.MaxResult = cmp.Or(c.MaxResult, 64<<10)
	return c
}

// Validate returns all problems of the configuration at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("effect: "+format, args...)) }
	if n := len(c.Name); n < 1 || n > semel.MaxIDBytes {
		bad("Name has %d bytes: must be 1 to %d", n, semel.MaxIDBytes)
	}
	if c.InDoubt > Ask {
		bad("unknown policy %d", c.InDoubt)
	}
	if (c.InDoubt == Ask) != (c.Query != nil) {
		bad("the policy Ask and a Query belong together")
	}
	if c.Timeout < 0 || c.Lease < 0 || c.MaxResult < 0 {
		bad("Timeout, Lease and MaxResult must not be negative")
	}
	if d := c.withDefaults(); d.Lease < 2*d.Timeout {
		bad("Lease is %v and Timeout %v: an intent must outlive its call, make Lease twice Timeout at least", d.Lease, d.Timeout)
	}
	return errors.Join(errs...)
}

// Call is what an effect is done with.
type Call struct {
	// Key is the idempotency key: the same for every attempt.
	Key string
	// Token grows from holder to holder of the same key. A receiver that
	// remembers the highest one can refuse a worker that woke up late.
	Token int64
	// Attempt counts from 1.
	Attempt int
}

// Func does an effect and returns what it gave back. nil means that it
// happened. An error made by NotDone means that it is known not to have
// happened. Every other error, and a panic, means that nobody knows.
type Func func(ctx context.Context, c Call) (result []byte, err error)

type notDone struct{ error }

func (e notDone) Unwrap() error { return e.error }

// NotDone marks err as proof that the effect did not happen: the connection was
// refused, the request was rejected. The effect may be tried again by itself.
// Marks of semel say when, and whether at all: NotDone(semel.Permanent(err)).
// NotDone(nil) is nil.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return notDone{err}
}

// Known reports whether err says for certain that the effect did not happen.
func Known(err error) bool {
	var n notDone
	return errors.As(err, &n)
}

// Result is what an effect gave back.
type Result struct {
	// Body is the result, or as much of it as is stored.
	Body []byte
	// Size is its length before it was cut.
	Size int64
	// Stored: it happened earlier, and this is what was kept of it.
	Stored bool
}

// Cut reports whether Body is not all of the result.
func (r Result) Cut() bool { return r.Size > int64(len(r.Body)) }

// ErrInDoubt is wrapped by errors that say that nobody knows whether the effect
// happened, and that the policy leaves it to a person.
var ErrInDoubt = errors.New("in doubt: it is not known whether the effect happened")

// ErrMismatch is wrapped by errors that say that the key is in use for another
// request. They are of class permanent.
var ErrMismatch = errors.New("the key belongs to another request")

// DoubtError tells what is in doubt, and why. It wraps ErrInDoubt.
type DoubtError struct {
	Key string
	// Why is what the last holder knew; it may be empty.
	Why string
}

// Error says what is known.
func (e *DoubtError) Error() string {
	if e.Why == "" {
		return ErrInDoubt.Error() + "; whoever was at it vanished"
	}
	return ErrInDoubt.Error() + "; " + e.Why
}

// Unwrap returns ErrInDoubt.
func (e *DoubtError) Unwrap() error { return ErrInDoubt }

// LetterReason is the reason of the dead letter.
func (e *DoubtError) LetterReason() string { return "in doubt" }

// BusyError says that another worker is at it.
type BusyError struct {
	Key string
	// Left is how long its lease lasts.
	Left time.Duration
}

// Error says how long it may take.
func (e *BusyError) Error() string {
	return fmt.Sprintf("another worker is at it, for %v at most", e.Left.Round(time.Millisecond))
}

// Print is the fingerprint of a request that consists of parts.
func Print(parts ...[]byte) store.Fingerprint {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return store.Fingerprint(h.Sum(nil)[:16])
}
