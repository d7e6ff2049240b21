package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
)

// failure is an error that concerns one message of a batch.
type failure struct {
	i   int
	err error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// lostError says that fences did not advance: the scopes have another owner.
type lostError struct{ scopes []*scope }

func (*lostError) Error() string { return "the fence of a scope did not advance" }

// opaqueError is the error of a set-based handler that names no message.
type opaqueError struct{ error }

func (e opaqueError) Unwrap() error { return e.error }

// fullError says that a key has as many held letters as it may; i is the
// message that would be one more.
type fullError struct {
	i   int
	key string
	n   int64
}

// errFull is all that may be told of it where keys are not.
var errFull = errors.New("a key has as many held messages as it may")

func (e *fullError) Unwrap() error { return errFull }

func (e *fullError) Error() string {
	return fmt.Sprintf("%d messages are held behind key %q", e.n, e.key)
}

// batch is one transaction over items, and its scratch space. The admission
// steps are in admit.go, in lock order; each either decides an item or leaves
// it to the next.
type batch[Tx any] struct {
	c     *Consumer[Tx]
	dedup inbox.Dedup[Tx]
	items []item
	tx    Tx

	order    []int // items by (id, index)
	advances []store.Advance
	moved    []*scope // of advances, same order
	records  []store.Record
	owner    []int // of records: the item that claimed
	prior    []store.Prior
	again    []again // further items with the id of a record
	amends   []store.Record
	letters  []store.Letter
	parks    []store.Parking
	parked   []int // of parks: the item
	moves    []store.Move
	seen     []string
	proposed []store.Revision
	keys     []string
	holds    map[string]*store.Hold
	blocked  map[string]bool // keys that a letter of this batch holds
	current  []store.Versioned
	versions map[string]*versioned
	newest   []store.Versioned
	suspects []store.Suspect
	ledger   ledger
	ties     int64
	hooks    hooks
	began    time.Time // when the transaction had been opened
	handled  time.Duration
	expired  bool            // the handlers ran out of time
	messages []semel.Message // for set-based handlers
	targets  []int           // of messages: the item
}

// run does everything between BEGIN and COMMIT. It may be called again for the
// same items after a rollback.
func (b *batch[Tx]) run(ctx context.Context, tx Tx) error {
	b.tx, b.began = tx, time.Now()
	b.reset()
	steps := [...]func(context.Context) error{
		b.fence, b.hold, b.take, b.comeBack, b.claim, b.find, b.settlePrior, b.decide, b.write, b.handle, b.correct,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch[Tx]) reset() {
	for i := range b.items {
		b.items[i].reset()
	}
	b.advances, b.moved, b.records, b.owner, b.prior, b.again = b.advances[:0], b.moved[:0], b.records[:0], b.owner[:0], b.prior[:0], b.again[:0]
	b.amends, b.letters, b.parks, b.parked, b.moves = b.amends[:0], b.letters[:0], b.parks[:0], b.parked[:0], b.moves[:0]
	b.seen, b.proposed, b.keys, b.current, b.newest = b.seen[:0], b.proposed[:0], b.keys[:0], b.current[:0], b.newest[:0]
	clear(b.holds)
	clear(b.blocked)
	clear(b.versions)
	b.ledger.reset()
	b.suspects, b.ties, b.handled, b.expired, b.hooks.fns = b.suspects[:0], 0, 0, false, b.hooks.fns[:0]
}

// fence advances every scope of the batch, which checks and locks it as well:
// the transaction that cannot advance has no right to write anything.
func (b *batch[Tx]) fence(ctx context.Context) error {
	for i := range b.items {
		it := &b.items[i]
		if it.scope == nil {
			continue
		}
		if it.d.Position.Compare(it.scope.next) < 0 || !b.advance(it) {
			it.verdict, it.known = semel.Duplicate, true // decided before
		}
	}
	if len(b.advances) > 0 {
		if err := b.cross(ctx); err != nil {
			return err
		}
	}
	fault.Hit(fault.Opened)
	return nil
}

func (b *batch[Tx]) cross(ctx context.Context) error {
	b.sortAdvances()
	lost, err := b.c.store.Advance(ctx, b.tx, b.c.cfg.Name, b.advances, nil)
	if err != nil || len(lost) == 0 {
		return err
	}
	e := &lostError{}
	for _, i := range lost {
		e.scopes = append(e.scopes, b.moved[i])
	}
	return e
}

// advance moves the item's scope on; false if the batch has passed it already.
func (b *batch[Tx]) advance(it *item) bool {
	for i := len(b.moved) - 1; i >= 0; i-- {
		if a := &b.advances[i]; b.moved[i] == it.scope {
			if it.d.Position.Compare(a.To) < 0 {
				return false
			}
			a.To = it.d.Next
			return true
		}
	}
	b.moved = append(b.moved, it.scope)
	b.advances = append(b.advances, store.Advance{Scope: it.scope.Scope, Epoch: it.scope.epoch, From: it.scope.next, To: it.d.Next})
	return true
}

func (b *batch[Tx]) sortAdvances() {
	slices.SortFunc(b.advances, func(x, y store.Advance) int { return x.Scope.Compare(y.Scope) })
	slices.SortFunc(b.moved, func(x, y *scope) int { return x.Scope.Compare(y.Scope) })
}

// handle runs the handlers of what is still undecided.
func (b *batch[Tx]) handle(ctx context.Context) error {
	fault.Hit(fault.Admitted)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, hooksKey{}, &b.hooks), b.c.cfg.HandlerTimeout)
	defer cancel()
	var err error
	if b.c.work.batch != nil {
		err = b.handleBatch(ctx)
	} else {
		err = b.handleEach(ctx)
	}
	b.handled, b.expired = time.Since(begin), ctx.Err() != nil
	if err == nil {
		fault.Hit(fault.Handled)
	}
	return err
}

func (b *batch[Tx]) handleEach(ctx context.Context) error {
	for i := range b.items {
		it := &b.items[i]
		if it.verdict != semel.Undecided {
			continue
		}
		if b.c.work.prepares() && it.prepared == nil {
			return errUnprepared
		}
		if b.c.deferred != nil {
			b.c.deferred.Begin(b.tx, i)
		}
		if err := b.verdict(i, b.call(ctx, it)); err != nil {
			return b.blame(ctx, i, err)
		}
	}
	return b.flushEach(ctx)
}

// blame finds whose failure it is that showed in the handler of message i: a
// statement that an earlier handler queued may have failed when this one asked
// for something. If that cannot be found out, nobody is blamed.
func (b *batch[Tx]) blame(ctx context.Context, i int, err error) error {
	if i == 0 {
		return err
	}
	flushed := b.flushEach(ctx)
	var f *failure
	if flushed == nil || errors.As(flushed, &f) && f.i >= i {
		return err
	}
	return flushed
}

// flushEach sends what handlers queued; errors arrive here, in message order.
func (b *batch[Tx]) flushEach(ctx context.Context) error {
	var failed error
	err := b.flush(ctx, func(i int, err error) bool {
		if err == nil {
			return true
		}
		failed = b.verdict(i, err)
		return failed == nil
	})
	var p *panicError
	switch {
	case failed != nil:
		return failed
	case errors.As(err, &p) && len(b.items) == 1:
		return &failure{0, err}
	case errors.As(err, &p): // a callback of one of them, it is not known which
		return opaqueError{err}
	}
	return err
}

func (b *batch[Tx]) flush(ctx context.Context, late func(int, error) bool) (err error) {
	if b.c.deferred == nil {
		return nil
	}
	defer recovered(&err)
	return b.c.deferred.Flush(ctx, b.tx, late)
}

func (b *batch[Tx]) call(ctx context.Context, it *item) error {
	if it.prepared != nil {
		return b.finish(ctx, it.prepared)
	}
	return b.observed(ctx, it, func(ctx context.Context) error { return b.c.work.each(ctx, b.tx, it.d.Message) })
}

// observed runs a handler, and tells the observer.
func (b *batch[Tx]) observed(ctx context.Context, it *item, fn func(context.Context) error) (err error) {
	if f := b.c.cfg.Observer.Handle; f != nil {
		observed, end := f(ctx, &it.d.Message)
		ctx = observed
		if end != nil {
			defer func() { end(err) }()
		}
	}
	defer recovered(&err)
	return fn(ctx)
}

// recovered turns a panic into an error. A crash that a fault hook stages must
// look like a death, so it goes through.
func recovered(err *error) {
	switch v := recover(); v.(type) {
	case nil:
	case fault.Crash:
		panic(v)
	default:
		*err = &panicError{v, string(debug.Stack())}
	}
}

// verdict books what a handler said about item i. Errors that are verdicts
// decide it; all others end the transaction. A panic is never a verdict,
// whatever it was about: the handler did not get to its end.
func (b *batch[Tx]) verdict(i int, err error) error {
	it := &b.items[i]
	if err == nil {
		it.verdict = semel.Applied
		return nil
	}
	var p *panicError // declared here, since it would be allocated for every message
	switch {
	case errors.As(err, &p):
		return &failure{i, err}
	case errors.Is(err, semel.ErrDuplicate):
		it.verdict = semel.Duplicate
	case errors.Is(err, semel.ErrSuperseded):
		it.verdict = semel.Superseded
	default:
		return &failure{i, err}
	}
	return nil
}

func (b *batch[Tx]) handleBatch(ctx context.Context) error {
	b.messages, b.targets = b.messages[:0], b.targets[:0]
	for i := range b.items {
		if it := &b.items[i]; it.verdict == semel.Undecided {
			b.messages, b.targets = append(b.messages, it.d.Message), append(b.targets, i)
		}
	}
	if len(b.messages) == 0 {
		return nil
	}
	if b.c.deferred != nil {
		b.c.deferred.Begin(b.tx, b.targets[0])
	}
	if err := b.verdicts(b.callBatch(ctx)); err != nil {
		return err
	}
	var late error
	err := b.flush(ctx, func(_ int, err error) bool {
		late = err
		return late == nil
	})
	return b.unnamed(cmp.Or(late, err))
}

func (b *batch[Tx]) callBatch(ctx context.Context) (err error) {
	defer recovered(&err)
	return b.c.work.batch(ctx, b.tx, b.messages)
}

// verdicts spreads the joined error of a set-based handler.
func (b *batch[Tx]) verdicts(err error) error {
	var first *failure
	unnamed := stray(err)
	semel.EachAt(err, func(j int, err error) {
		if j < 0 || j >= len(b.targets) { // whom it means is not known, nor is it a verdict on anybody
			unnamed = cmp.Or(unnamed, fmt.Errorf("the handler named message %d of %d: %v", j, len(b.targets), err)) //nolint:errorlint // a mark inside must not steer an error that is about nobody
			return
		}
		var f *failure
		if errors.As(b.verdict(b.targets[j], err), &f) && (first == nil || f.i < first.i) {
			first = f
		}
	})
	if first != nil {
		return first
	}
	if unnamed != nil {
		return b.unnamed(unnamed)
	}
	for _, i := range b.targets {
		if b.items[i].verdict == semel.Undecided {
			b.items[i].verdict = semel.Applied
		}
	}
	return nil
}

// unnamed deals with an error that concerns one of the messages handed to a
// set-based handler.
func (b *batch[Tx]) unnamed(err error) error {
	switch {
	case err == nil:
		return nil
	case len(b.targets) > 1:
		return opaqueError{err}
	}
	return b.verdict(b.targets[0], err)
}

// stray returns the first error in a joined one that names no message; the
// others do not excuse it.
func stray(err error) error {
	named := func(err error) bool { return semel.EachAt(err, func(int, error) {}) }
	if !named(err) {
		return err
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			if s := stray(sub); s != nil {
				return s
			}
		}
	case interface{ Unwrap() error }:
		if sub := e.Unwrap(); named(sub) { // else it is the one that names
			return stray(sub)
		}
	}
	return nil
}
