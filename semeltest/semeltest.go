// Package semeltest lets users test that their handler's effects happen once.
//
// [Once] runs the same messages twice: in good order against one fresh
// database, and against another through a source that repeats messages and
// loses acknowledgements, with transactions that are rolled back and redone.
// The effects must be the same. What differs is what the handler does outside
// the transaction it is given.
package semeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store"
)

// Check says what to test. All fields but Config, Reorder and Seed are
// required.
type Check[Tx any] struct {
	// Open returns a fresh database with the user's tables and semel's, each
	// time another. It closes it through tb.Cleanup.
	Open func(tb testing.TB) store.Backend[Tx]
	// Work is the handler under test.
	Work consumer.Work[Tx]
	// Messages are delivered in this order.
	Messages []semel.Message
	// Effects reads back what the handler did. The two results are compared
	// with reflect.DeepEqual, so sort what has no order.
	Effects func(tb testing.TB, s store.Backend[Tx]) any
	// Config is the consumer's configuration. Name, Decoder, Horizon and
	// Drain have defaults that fit messages as they are given.
	Config consumer.Config
	// Reorder delivers messages out of order, too. Only for handlers whose
	// effects do not depend on the order, or with arbitration.
	Reorder bool
	// Seed repeats a run. Zero: a new one, printed when the test fails.
	Seed uint64
}

// Result is what the hostile run came to.
type Result struct {
	Account semel.Account
	// Redone counts transactions that were rolled back after the handlers
	// had run.
	Redone int
	Seed   uint64
}

// Once fails the test if the effects of the hostile run differ from those of
// the run in good order, or if a message of either run is not accounted for.
func Once[Tx any](tb testing.TB, c Check[Tx]) Result {
	tb.Helper()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	calm, _ := c.run(tb, membroker.Config{Seed: c.Seed}, 0)
	hostile := membroker.Config{Seed: c.Seed, Duplicate: 0.3, DropAcks: 0.2}
	if c.Reorder {
		hostile.Reorder = 16
	}
	got, r := c.run(tb, hostile, 3)
	if !reflect.DeepEqual(calm, got) {
		tb.Errorf("effects differ when messages come more than once (replay with Seed: %d):\n  once:  %v\n  more:  %v", c.Seed, calm, got)
	}
	return r
}

// run consumes all messages; every redo-th transaction is rolled back at its
// end (0: none).
func (c Check[Tx]) run(tb testing.TB, source membroker.Config, redo int) (any, Result) {
	tb.Helper()
	b := membroker.New(source)
	b.Publish(-1, c.Messages...)
	st := c.Open(tb)
	hostile := &rollingBack[Tx]{Backend: st, every: redo}
	src := b.Receiver()
	defer src.Close(context.WithoutCancel(tb.Context()))
	con, err := consumer.New(c.config(), src, store.Backend[Tx](hostile), c.Work)
	if err != nil {
		tb.Fatal(err)
	}
	if err := con.Run(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	a := con.Account()
	if !a.Balanced() {
		tb.Errorf("the account does not balance: %+v", a)
	}
	return c.Effects(tb, st), Result{Account: a, Redone: hostile.redone, Seed: c.Seed}
}

func (c Check[Tx]) config() consumer.Config {
	cfg := c.Config
	if cfg.Name == "" {
		cfg.Name = "semeltest"
	}
	if cfg.Decoder == nil {
		cfg.Decoder = broker.DecoderFunc(identified)
	}
	if cfg.Horizon == 0 {
		cfg.Horizon = time.Hour
	}
	if cfg.Drain == nil {
		cfg.Drain = &consumer.Drain{}
	}
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = 32 // several batches even for a few messages
	}
	return cfg
}

func identified(d *semel.Delivery) error {
	if d.ID == "" {
		return semel.Invalidf("the message has no ID")
	}
	return nil
}

// errRedo makes a transaction roll back.
var errRedo = errors.New("rolled back by semeltest")

// rollingBack rolls some transactions back after everything in them was done.
type rollingBack[Tx any] struct {
	store.Backend[Tx]
	every int

	mu     sync.Mutex
	n      int
	redone int
}

// InTx implements store.Store.
func (r *rollingBack[Tx]) InTx(ctx context.Context, m store.Mark, fn func(context.Context, Tx) error) (store.Outcome, error) {
	return r.Backend.InTx(ctx, m, func(ctx context.Context, tx Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		if m != (store.Mark{}) && r.turn() {
			return fmt.Errorf("batch %d: %w", m.Batch, errRedo)
		}
		return nil
	})
}

func (r *rollingBack[Tx]) turn() bool {
	if r.every == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n%r.every != 1 {
		return false
	}
	r.redone++
	return true
}

// Classify implements store.Store.
func (r *rollingBack[Tx]) Classify(err error) semel.Class {
	if errors.Is(err, errRedo) {
		return semel.ClassContention
	}
	return r.Backend.Classify(err)
}
