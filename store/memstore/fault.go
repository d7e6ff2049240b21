package memstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Op names an operation of the store, for scripts of faults.
type Op string

// Operations. The methods of the store have their own names in lower case; an
// operation that is a transaction of its own (assign, leave, enlist, retire,
// purge) has no begin and commit.
const (
	// OpBegin is asked when the transaction has the lock, before its mark.
	OpBegin Op = "begin"
	// OpCommit is asked before the commit. An error rolls back; the outcome
	// is Unknown if the error is or wraps ErrLost.
	OpCommit Op = "commit"
	// OpCommitted is asked after the commit. An error makes the outcome
	// Unknown although everything is committed.
	OpCommitted Op = "committed"
	OpResolve   Op = "resolve"
	// OpUser is asked by Put, Get, Add and Delete.
	OpUser Op = "user"

	OpEnlist      Op = "enlist"
	OpRetire      Op = "retire"
	OpAssign      Op = "assign"
	OpAdvance     Op = "advance"
	OpLeave       Op = "leave"
	OpClaim       Op = "claim"
	OpRecord      Op = "record"
	OpCount       Op = "count"
	OpVersions    Op = "versions"
	OpSetVersions Op = "setversions"
	OpAny         Op = "any"
	OpFind        Op = "find"
	OpPark        Op = "park"
	OpMove        Op = "move"
	OpNote        Op = "note"
	OpLock        Op = "lock"
	OpAppend      Op = "append"
	OpRelease     Op = "release"
	OpSuspects    Op = "suspects"
	OpSuspect     Op = "suspect"
	OpFlush       Op = "flush"
	OpDue         Op = "due"
	OpList        Op = "list"
	OpStatus      Op = "status"
	OpTrace       Op = "trace"
	OpGroups      Op = "groups"
	OpRevisions   Op = "revisions"
	OpPurge       Op = "purge"
	OpMoveEffect  Op = "moveeffect"
	// OpMovedEffect is asked after the commit of moveeffect.
	OpMovedEffect Op = "movedeffect"
	OpEffects     Op = "effects"
)

// Step is an operation that is about to run. Mark is that of the transaction
// it belongs to, or that is asked for; zero outside of marked transactions.
type Step struct {
	Op   Op
	Mark store.Mark
}

// ErrLost says that the connection broke: what was asked may have happened or
// not. It is of class Infrastructure.
var ErrLost = errors.New("connection lost")

// Error is an error of the store with its class.
type Error struct {
	Class semel.Class
	Err   error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error that Classify puts into class c.
func Errorf(c semel.Class, format string, args ...any) error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// Classify implements store.Store. A handler that ends the transaction, and a
// name that is taken, are faults of the set-up.
func (s *Store) Classify(err error) semel.Class {
	var e *Error
	var taken *store.TakenError
	switch {
	case errors.Is(err, store.ErrEnded) || errors.As(err, &taken):
		return semel.ClassFault
	case errors.As(err, &e):
		return e.Class
	case errors.Is(err, ErrLost):
		return semel.ClassInfrastructure
	}
	return semel.ClassTransient
}

// Script has fn asked before every operation, in the operation's goroutine; an
// error is the operation's. fn may block, and it may panic: the transaction is
// then rolled back as by the death of its process, and the panic goes on. It
// may use the committed view of the store. nil ends the script.
func (s *Store) Script(fn func(Step) error) {
	s.faults.Lock()
	defer s.faults.Unlock()
	s.script = fn
}

// Fail makes the next n operations of that name fail with err, after the
// script let them pass. Calls for one name replace each other.
func (s *Store) Fail(op Op, n int, err error) {
	s.faults.Lock()
	defer s.faults.Unlock()
	if s.planned == nil {
		s.planned = make(map[Op]plan)
	}
	s.planned[op] = plan{n, err}
}

// LoseCommit makes the outcome of the next commit Unknown; committed is the
// truth. Resolve fails refused times before it tells.
func (s *Store) LoseCommit(committed bool, refused int) {
	op := OpCommit
	if committed {
		op = OpCommitted
	}
	s.Fail(op, 1, Errorf(semel.ClassInfrastructure, "commit: %w", ErrLost))
	s.Fail(OpResolve, refused, Errorf(semel.ClassInfrastructure, "resolve: %w", ErrLost))
}

// Break makes the store unreachable: every operation fails, class
// Infrastructure. A transaction in flight is rolled back; if it was about to
// commit, the outcome is Unknown.
func (s *Store) Break() {
	s.faults.Lock()
	defer s.faults.Unlock()
	s.broken = true
}

// Heal ends Break.
func (s *Store) Heal() {
	s.faults.Lock()
	defer s.faults.Unlock()
	s.broken = false
}

type plan struct {
	left int
	err  error
}

// ask lets an operation pass, or says why not.
func (s *Store) ask(ctx context.Context, op Op, m store.Mark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.faults.Lock()
	script, closed := s.script, s.closed
	s.faults.Unlock()
	if closed {
		return Errorf(semel.ClassFault, "the store is closed")
	}
	if script != nil {
		if err := script(Step{op, m}); err != nil {
			return err
		}
	}
	return s.fate(op)
}

func (s *Store) fate(op Op) error {
	s.faults.Lock()
	defer s.faults.Unlock()
	if s.broken && op != OpCommitted { // what is committed is committed
		return Errorf(semel.ClassInfrastructure, "the store cannot be reached: %w", ErrLost)
	}
	p, ok := s.planned[op]
	if !ok || p.left <= 0 {
		return nil
	}
	p.left--
	s.planned[op] = p
	return p.err
}
