// Package storetest proves that a store keeps the contract of package store.
//
// A store's own tests call [Run] with a [Harness] that opens fresh stores.
// Every method of the interfaces has tests here; every capability that a store
// declares has one that fails if the claim is false, and what it does not
// declare is tried and logged. The suite assumes nothing about how a store
// keeps its rows.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Harness opens stores for the suite and plays the handler.
type Harness[Tx any] struct {
	// New returns a store on data of its own, with its tables, and closes it
	// when the test ends. Required.
	New func(t *testing.T) store.Backend[Tx]
	// Reopen returns another handle on the data of b, as another process
	// would have; it is closed when the test ends. b may be closed already.
	// A store that has no second handle returns b. Required.
	Reopen func(t *testing.T, b store.Backend[Tx]) store.Backend[Tx]
	// Put writes a value of the user's own, as a handler does. Required.
	Put func(ctx context.Context, tx Tx, key, value string) error
	// Get reads a committed value outside of any transaction; ok is false if
	// there is none. Required.
	Get func(ctx context.Context, b store.Backend[Tx], key string) (value string, ok bool, err error)
	// Commit and Rollback end the transaction as a handler must not. nil: a
	// Tx has no way to do it.
	Commit, Rollback func(ctx context.Context, tx Tx) error
}

// Run runs the suite.
func Run[Tx any](t *testing.T, h Harness[Tx]) {
	if h.New == nil || h.Reopen == nil || h.Put == nil || h.Get == nil {
		t.Fatal("storetest: the harness lacks New, Reopen, Put or Get")
	}
	run := func(name string, tests map[string]func(*suite[Tx])) {
		t.Run(name, func(t *testing.T) {
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					test(&suite[Tx]{T: t, h: h, b: h.New(t), ctx: t.Context()})
				})
			}
		})
	}
	run("Transaction", transactionTests[Tx]())
	run("Mark", markTests[Tx]())
	run("Capabilities", capabilityTests[Tx]())
	run("Workers", workerTests[Tx]())
	run("Fences", fenceTests[Tx]())
	run("Records", recordTests[Tx]())
	run("Versions", versionTests[Tx]())
	run("Holds", holdTests[Tx]())
	run("Suspects", suspectTests[Tx]())
	run("Letters", letterTests[Tx]())
	run("Moves", moveTests[Tx]())
	run("Due", dueTests[Tx]())
	run("List", listTests[Tx]())
	run("Status", statusTests[Tx]())
	run("Purge", purgeTests[Tx]())
	if _, ok := h.New(t).(store.Effects); ok {
		run("Effects", effectTests[Tx]())
	} else {
		t.Log("the store does not keep effects outside of the database")
	}
}

// suite is one test with its store.
type suite[Tx any] struct {
	*testing.T
	h   Harness[Tx]
	b   store.Backend[Tx]
	ctx context.Context
}

// Names that all tests use.
const (
	consumer = "orders"
	stranger = "Orders" // differs by one bit; nothing of it may be seen
	worker   = "w1"
)

// other is a second handle on the same data.
func (s *suite[Tx]) other() store.Backend[Tx] {
	s.Helper()
	return s.h.Reopen(s.T, s.b)
}

// in runs fn in a transaction that must commit.
func (s *suite[Tx]) in(fn func(tx Tx) error) {
	s.Helper()
	s.inOn(s.b, fn)
}

func (s *suite[Tx]) inOn(b store.Backend[Tx], fn func(tx Tx) error) {
	s.Helper()
	out, err := b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error { return fn(tx) })
	if err != nil || out != store.Committed {
		s.Fatalf("the transaction ended with outcome %d, error %v; want it committed", out, err)
	}
}

var errAbort = errors.New("the handler failed")

// abort runs fn in a transaction that is rolled back.
func (s *suite[Tx]) abort(fn func(tx Tx) error) {
	s.Helper()
	out, err := s.b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
		if err := fn(tx); err != nil {
			return fmt.Errorf("before the abort: %w", err)
		}
		return errAbort
	})
	if err != errAbort || out != store.RolledBack { //nolint:errorlint // as it is, not wrapped
		s.Fatalf("the failing transaction ended with outcome %d, error %v; want it rolled back with the function's own error", out, err)
	}
}

// meeting runs two transactions on two handles: the second is begun while the
// first is inside, and the first ends with end. It returns when both are over.
// The order in which they take effect must be first, second.
func (s *suite[Tx]) meeting(first func(tx Tx) error, end error, second func(b store.Backend[Tx]) error) {
	s.Helper()
	other := s.other()
	inside, begun, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		<-inside
		close(begun)
		done <- second(other)
	}()
	out, err := s.b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
		if err := first(tx); err != nil {
			return err
		}
		close(inside)
		<-begun
		return end
	})
	if (end == nil) != (out == store.Committed) || err != end { //nolint:errorlint // as it is, not wrapped
		s.Errorf("the first transaction ended with outcome %d, error %v; want error %v", out, err, end)
		select {
		case <-inside:
		default:
			close(inside)
		}
	}
	if err := <-done; err != nil {
		s.Errorf("the second: %v", err)
	}
}

// patiently repeats fn while the store reports contention: that is what a
// pipeline does.
func patiently[Tx any](b store.Backend[Tx], fn func() error) error {
	for {
		err := fn()
		if err == nil || b.Classify(err) != semel.ClassContention {
			return err
		}
	}
}

// must stops the test on an error.
func must[Tx any](s *suite[Tx], err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func equal[Tx any](s *suite[Tx], what string, have, want any) {
	s.Helper()
	if !reflect.DeepEqual(have, want) {
		s.Errorf("%s:\nhave %+v\nwant %+v", what, have, want)
	}
}

// value expects a committed value of the user's own; "" means none.
func (s *suite[Tx]) value(key, want string) {
	s.Helper()
	have, ok, err := s.h.Get(s.ctx, s.b, key)
	if err != nil || ok != (want != "") || have != want {
		s.Errorf("value %q is %q (there: %v, error %v), want %q", key, have, ok, err, want)
	}
}

func (s *suite[Tx]) put(tx Tx, key, value string) error { return s.h.Put(s.ctx, tx, key, value) }

// awkward are ids, keys and names that stores have confused or refused.
func awkward() []string {
	long := make([]byte, semel.MaxIDBytes)
	for i := range long {
		long[i] = byte(i + 1)
	}
	return []string{
		"a", "A", "a ", "a\x00", "a\x00b", "'", `"`, "`", "?", "{now}", "$1", "%", "_", "\\", "--", "/*", ";",
		"ä", "a\u0308", "\U0001F600", "\xff\xfe", "\x00", " ", "0", "00", "1e0", "NULL", string(long), string(long[:254]),
	}
}

// near reports whether a time is within a minute of now: clocks of databases
// differ a little.
func near(at time.Time) bool { return time.Since(at).Abs() < time.Minute }
