package consumer

import (
	"context"

	"github.com/semel-dev/semel"
)

// Work is a handler; it is made by Each or Batch.
//
// A handler may run several times for one delivery, because a batch in which
// one message fails is rolled back and redone: only what goes through the
// transaction happens once. It must not commit, roll back, or touch messages
// after it returned, and what has to follow a real commit goes through
// OnCommit.
type Work[Tx any] struct {
	each  func(context.Context, Tx, semel.Message) error
	batch func(context.Context, Tx, []semel.Message) error
}

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
