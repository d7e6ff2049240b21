package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
)

// Work is a handler; it is made by Each, Batch, Prepare or
// PrepareBatch.
//
// A handler may run several times for one delivery, because a batch in which
// one message fails is rolled back and redone: only what goes through the
// transaction happens once. It must not commit, roll back, or touch messages
// after it returned, and what has to follow a real commit goes through
// OnCommit.
type Work[Tx any] struct {
	each    func(context.Context, Tx, semel.Message) error
	batch   func(context.Context, Tx, []semel.Message) error
	prepare func(context.Context, semel.Message) (func(context.Context, Tx) error, error)
	bulk    func(context.Context, []semel.Message) error
	finish  func(context.Context, Tx, semel.Message) error // nil: nothing is to be done
}

func (w *Work[Tx]) prepares() bool { return w.prepare != nil || w.bulk != nil }

// Each makes Work of a function that handles one message at a time, in the
// order of the batch. Its error concerns that message alone.
func Each[Tx any](fn func(ctx context.Context, tx Tx, m semel.Message) error) Work[Tx] {
	return Work[Tx]{each: fn}
}

// Batch makes Work of a function that handles all messages of a batch at
// once, with set-based statements. It names the messages that failed, or that
// have a verdict, with errors.Join(semel.At(i, err), …). An error that names
// no message concerns one of them: the batch is halved until it is found.
func Batch[Tx any](fn func(ctx context.Context, tx Tx, m []semel.Message) error) Work[Tx] {
	return Work[Tx]{batch: fn}
}

// Prepare makes Work whose slow part runs outside of the transaction: a call
// to another system, under the guard of package effect. It is asked for what
// admission left to be handled, one message after the other, in order, while no
// transaction is open; with Config.Lanes for several at once, from several
// goroutines, where the order is that of each key. What it returns runs in the transaction that records the
// message; nil: nothing has to. An error is that of a handler.
//
// The slow part happens before the commit. The process may die in between, and
// another worker may hold the same message, so that it may run again for a
// message that is handled already: it has to be guarded, or harmless.
// HandlerTimeout bounds it for each message.
func Prepare[Tx any](fn func(ctx context.Context, m semel.Message) (func(ctx context.Context, tx Tx) error, error)) Work[Tx] {
	return Work[Tx]{prepare: fn}
}

// PrepareBatch is Prepare for all messages of a batch at once, where one call
// for each would be too slow. fn names the messages that failed, or that have a
// verdict, with errors.Join(semel.At(i, err), …); the others go on without them,
// and fn is not asked for them again. finish, if it is not nil, runs for each
// in the transaction that records it.
//
// An error that names no message concerns one of them: the batch is halved until
// it is found. One that is marked semel.Infrastructure is nobody's: the consumer
// takes nothing new, tries again with growing delays, and charges no message.
//
// fn is asked again after a crash, after an error that named nobody, and by any
// other worker that holds the same message: it has to be harmless to repeat, and
// in any order. HandlerTimeout bounds it for the batch.
func PrepareBatch[Tx any](fn func(ctx context.Context, m []semel.Message) error, finish func(ctx context.Context, tx Tx, m semel.Message) error) Work[Tx] {
	return Work[Tx]{bulk: fn, finish: finish}
}

// prepared is what Prepare said of one message, until it is committed or has
// failed.
type prepared struct {
	finish any // func(context.Context, Tx) error, or nil
	err    error
}

// errUnprepared ends a transaction that found work to be prepared.
var errUnprepared = errors.New("not prepared")

// prepareTime is when a batch stops preparing and commits what it has.
const prepareTime = time.Second

// prepare does the slow part of what the last transaction would have handled.
// It stops where the next one has to end: at a failure, or when others have
// waited long enough.
func (w *committer[Tx]) prepare(items []item) {
	l := lanes{of: make(map[uint64]int), until: time.Now().Add(prepareTime), soft: w.c.soft}
	for i := range items {
		if it := &items[i]; it.verdict == semel.Undecided && it.prepared == nil {
			l.add(it, w.laneOf(it, i))
		}
	}
	var others sync.WaitGroup
	for _, lane := range l.items[1:] {
		others.Go(func() { w.prepareLane(&l, lane) })
	}
	w.prepareLane(&l, l.items[0])
	others.Wait()
	w.size = w.ready(items)
}

// lanes are what is to be prepared, divided by key.
type lanes struct {
	items  [][]*item
	of     map[uint64]int // a lane's place in items
	until  time.Time
	soft   context.Context // ends: begin no more
	failed atomic.Bool
}

// laneOf is the lane of item i: that of its key.
func (w *committer[Tx]) laneOf(it *item, i int) uint64 {
	h := uint64(i)
	if key := it.d.Message.Key; key != "" {
		h = maphash.String(w.c.seed, key)
	}
	return h % uint64(w.c.cfg.Lanes)
}

// add puts the first item into the first lane.
func (l *lanes) add(it *item, lane uint64) {
	n, there := l.of[lane]
	if !there {
		n = len(l.items)
		l.of[lane] = n
		l.items = append(l.items, nil)
	}
	l.items[n] = append(l.items[n], it)
}

// over reports whether it is not to be begun any more; the first one always is.
func (l *lanes) over(it *item) bool {
	return it != l.items[0][0] && (l.failed.Load() || l.soft.Err() != nil || time.Now().After(l.until))
}

// prepareLane goes on until something fails: what follows of its key waits for
// what becomes of it.
func (w *committer[Tx]) prepareLane(l *lanes, lane []*item) {
	for _, it := range lane {
		if l.over(it) {
			return
		}
		if it.prepared = w.prepareOne(it); it.prepared.err != nil {
			l.failed.Store(true)
			return
		}
	}
}

// ready is how many of the items the next transaction can take: up to one that
// failed, or before one that is not prepared.
func (w *committer[Tx]) ready(items []item) int {
	for i := range items {
		switch it := &items[i]; {
		case it.verdict != semel.Undecided:
		case it.prepared == nil:
			return i
		case it.prepared.err != nil:
			return i + 1
		}
	}
	return w.size
}

// prepareBatch hands all that is still to be prepared to the handler at once.
func (w *committer[Tx]) prepareBatch(items []item) error {
	var msgs []semel.Message
	var targets []*item
	for i := range items {
		if it := &items[i]; it.verdict == semel.Undecided && it.prepared == nil {
			msgs, targets = append(msgs, it.d.Message), append(targets, it)
		}
	}
	errs := make([]error, len(msgs))
	nobodys := w.callBulk(msgs, errs)
	class, _ := semel.ClassOf(nobodys)
	switch {
	case nobodys == nil:
	case w.hard.Err() != nil:
		return nil //nolint:nilerr // cancelled work is charged with nothing
	case class == semel.ClassFault:
		return &semel.Error{Stage: "handle", Err: nobodys}
	case class == semel.ClassInfrastructure:
		return w.waitOutside(nobodys)
	case len(msgs) > 1:
		w.size = max(1, len(items)/2)
		return nil
	default:
		errs[0] = nobodys
	}
	w.works()
	for i, it := range targets {
		it.prepared = &prepared{w.finishOf(&it.d.Message), errs[i]}
	}
	return nil
}

// callBulk fills errs with those that are about one message and returns the one
// that is about nobody.
func (w *committer[Tx]) callBulk(msgs []semel.Message, errs []error) (nobodys error) {
	ctx, cancel := context.WithTimeout(w.hard, w.c.cfg.HandlerTimeout)
	defer cancel()
	err := func() (err error) {
		defer recovered(&err)
		return w.c.work.bulk(ctx, msgs)
	}()
	nobodys = stray(err)
	semel.EachAt(err, func(i int, err error) {
		if i < 0 || i >= len(errs) {
			nobodys = fmt.Errorf("the handler named message %d of %d: %v", i, len(errs), err) //nolint:errorlint // a mark inside must not steer an error that is about nobody
			return
		}
		errs[i] = err
	})
	return nobodys
}

func (w *committer[Tx]) finishOf(m *semel.Message) any {
	if w.c.work.finish == nil {
		return nil
	}
	return func(ctx context.Context, tx Tx) error { return w.c.work.finish(ctx, tx, *m) }
}

// waitOutside lets time pass while what the work depends on is out of order.
// The batch runs again from its beginning: its scopes may be somebody else's by
// then.
func (w *committer[Tx]) waitOutside(cause error) error {
	if w.outside == 0 {
		w.c.paused(cause)
	}
	w.outside = min(max(50*time.Millisecond, 2*w.outside), 5*time.Second)
	if !wait(w.c.soft, w.outside) {
		return &semel.Error{Stage: "handle", Err: cause, Hint: "it could not be reached until the end; nothing was lost, the messages will come again"}
	}
	return nil
}

// works ends a pause of waitOutside, if there is one.
func (w *committer[Tx]) works() {
	if w.outside > 0 {
		w.outside = 0
		w.c.paused(nil)
	}
}

func (w *committer[Tx]) prepareOne(it *item) *prepared {
	ctx, cancel := context.WithTimeout(w.hard, w.c.cfg.HandlerTimeout)
	defer cancel()
	var finish func(context.Context, Tx) error
	err := w.b.observed(ctx, it, func(ctx context.Context) (err error) {
		finish, err = w.c.work.prepare(ctx, it.d.Message)
		return err
	})
	return &prepared{finish, err}
}

// finish is what a prepared message still has to do in its transaction.
func (b *batch[Tx]) finish(ctx context.Context, p *prepared) (err error) {
	fn, _ := p.finish.(func(context.Context, Tx) error)
	if p.err != nil || fn == nil {
		return p.err
	}
	defer recovered(&err)
	return fn(ctx, b.tx)
}

type hooksKey struct{}

// hooks are the functions to run after a commit, in order.
type hooks struct{ fns []func(context.Context) }

// OnCommit arranges for fn to run after the transaction of this attempt has
// committed, and not at all if it does not. It is for things that may be lost
// (a cache to drop, a metric): the process can die between the commit and fn.
// Outside a handler it does nothing and returns false.
func OnCommit(ctx context.Context, fn func(context.Context)) bool {
	h, ok := ctx.Value(hooksKey{}).(*hooks)
	if ok {
		h.fns = append(h.fns, fn)
	}
	return ok
}
