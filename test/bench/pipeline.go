package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// config is the pipeline's configuration: defaults, except for the size of a
// batch, which is that of the loop it is compared with.
func config(dedup inbox.Strategy, batch int) consumer.Config {
	return consumer.Config{
		Name: "bench", Decoder: broker.DecoderFunc(decode), Inbox: dedup,
		MaxBatch: batch, Start: consumer.StartFirst, Horizon: time.Hour,
	}
}

// applyEffect is the handler: the row that the hand-written loop inserts too.
func applyEffect(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
	_, err := tx.ExecContext(ctx, insertEffect, m.ID, m.Body)
	return err
}

// tally is what a pipeline did.
type tally struct {
	of      semel.Account
	batches int
}

// consume runs a pipeline from its start to its end: until n messages are
// decided, and given back or settled. Nothing may fail on the way.
func consume[Tx any](ctx context.Context, cfg consumer.Config, src broker.Receiver, st store.Backend[Tx], w consumer.Work[Tx], n int) (tally, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var decided, batches atomic.Int64
	var failed atomic.Pointer[error]
	also := cfg.Observer.Batch
	cfg.Observer.Batch = func(b semel.Batch) {
		if also != nil {
			also(b)
		}
		batches.Add(1)
		if decided.Add(int64(b.Messages)) >= int64(n) {
			stop()
		}
	}
	fail := func(err error) {
		failed.CompareAndSwap(nil, &err)
		stop()
	}
	cfg.Observer.Failed = func(f semel.Failure) { fail(f.Err) }
	cfg.Observer.Scope = func(_ semel.Scope, _ string, err error) {
		if err != nil {
			fail(err)
		}
	}
	c, err := consumer.New(cfg, src, st, w)
	if err != nil {
		return tally{}, err
	}
	err = c.Run(ctx)
	t := tally{c.Account(), int(batches.Load())}
	if p := failed.Load(); p != nil && err == nil {
		err = *p
	}
	if err == nil && (decided.Load() < int64(n) || !t.of.Balanced()) {
		err = fmt.Errorf("%d of %d messages are decided, account %+v", decided.Load(), n, t.of)
	}
	return t, err
}
