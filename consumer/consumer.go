// Package consumer is the pipeline: receive, decode, admit, handle in a
// transaction, record, commit, settle.
//
// Reading order: config.go (what can be asked), consumer.go (the goroutines),
// intake.go (from the source to items), committer.go (how large a batch is and
// what follows a failure), batch.go with admit.go and record.go (one
// transaction), letters.go (parked messages), scope.go (ownership), careful.go
// (after a crash). DESIGN.md has the crash table.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

// Consumer runs one pipeline. Its methods are safe for concurrent use; Run is
// called once.
type Consumer[Tx any] struct {
	cfg      Config
	src      broker.Receiver
	store    store.Backend[Tx]
	deferred store.Deferred[Tx] // nil: statements are not queued
	work     Work[Tx]
	recorded bool // the inbox keeps a row per message
	scopes   *scopes[Tx]
	gate     *gate
	out      chan settlement
	slabs    slabs[item]
	lists    slabs[broker.Settlement]
	scoped   bool            // the source has exclusive scopes; all is fenced
	soft     context.Context // ends: receive no more
	stop     func()          // ends soft
	busy     atomic.Bool     // letters are running
	running  sync.Once       // tells that it runs
	reading  sync.Mutex      // the decoder is asked by one goroutine at a time
	turn     chan struct{}   // filled by the committer that works on suspects
	seed     maphash.Seed    // which key goes into which lane

	mu      sync.Mutex
	account semel.Account
	err     error // what stopped it
}

// New checks the configuration against what source and store can do and
// returns all problems at once.
func New[Tx any](cfg Config, src broker.Receiver, st store.Backend[Tx], w Work[Tx]) (*Consumer[Tx], error) {
	errs := []error{cfg.Validate()}
	cfg = cfg.withDefaults()
	if w.each == nil && w.batch == nil && !w.prepares() {
		errs = append(errs, errors.New("work is missing: make it with Each, Batch, Prepare or PrepareBatch"))
	}
	errs = append(errs, cfg.fit(src))
	if _, ok := src.(broker.Measurer); cfg.Drain != nil && !ok {
		errs = append(errs, fmt.Errorf("source %s cannot say when it is empty, so a run cannot end by itself", src.Capabilities().Name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c := &Consumer[Tx]{cfg: cfg, src: src, store: st, work: w, seed: maphash.MakeSeed(), recorded: cfg.Inbox.Facts().Remembers, scoped: src.Capabilities().Traits.Has(semel.Positions)}
	c.deferred, _ = any(st).(store.Deferred[Tx])
	c.scopes = newScopes(c)
	c.gate = newGate(2*cfg.MaxBatch, 2*cfg.MaxBytes)
	c.out, c.turn = make(chan settlement, 4), make(chan struct{}, 1)
	return c, nil
}

// Account returns what was received and what became of it so far.
func (c *Consumer[Tx]) Account() semel.Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.account
}

// Run consumes until ctx ends or, with Config.Drain, until nothing is left;
// it then returns nil. Cancelling stops receiving; what is in memory is
// finished within DrainTimeout, then handlers are cancelled and the rest is
// given back. Run does not close source or store. When it returns, every
// goroutine it started has ended.
func (c *Consumer[Tx]) Run(ctx context.Context) error {
	n := c.committers()
	if err := c.store.Enlist(ctx, c.worker(n)); err != nil {
		return &semel.Error{Stage: "start", Err: err}
	}
	soft, stop := context.WithCancel(ctx)
	defer stop()
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	c.soft, c.stop = soft, stop
	defer c.phase(semel.Ended)
	if !c.scoped || c.src.Capabilities().Ephemeral {
		c.running.Do(func() { c.phase(semel.Running) })
	}
	if o, ok := c.src.(broker.Owned); ok && c.scoped {
		o.Bind(c.scopes)
	}
	queues := make([]chan []item, n)
	for i := range queues {
		queues[i] = make(chan []item, 2)
	}
	var in, work, out sync.WaitGroup
	out.Go(c.settler)
	out.Go(func() {
		<-soft.Done()
		c.phase(semel.Draining)
		wait(hard, c.cfg.DrainTimeout)
		kill()
	})
	for i, q := range queues {
		work.Go(func() {
			w := newCommitter(c, i, hard)
			c.fail(w.loop(q))
			w.drop(q)
		})
	}
	in.Go(func() { c.clean(soft) })
	in.Go(func() { c.drained(soft) })
	in.Go(func() {
		c.fail(c.intake(soft, queues))
		<-soft.Done()
	})
	in.Wait()
	for _, q := range queues {
		close(q)
	}
	work.Wait()
	kill()
	close(c.out)
	out.Wait()
	c.fail(c.retire(context.WithoutCancel(ctx)))
	return c.err
}

// fail keeps the first error and stops the consumer. errStopping and nil
// change nothing.
func (c *Consumer[Tx]) fail(err error) {
	if err == nil || errors.Is(err, errStopping) {
		return
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.stop()
}

// committers is how many transactions run at the same time.
func (c *Consumer[Tx]) committers() int {
	n := c.cfg.MaxCommitters
	if most := c.store.Capabilities().Committers; most > 0 {
		n = min(n, most)
	}
	return n
}

func (c *Consumer[Tx]) worker(slots int) store.Worker {
	id := map[string]string{"inbox": c.cfg.Inbox.String()}
	maps.Copy(id, c.cfg.Identity)
	return store.Worker{Consumer: c.cfg.Name, Name: c.cfg.Worker, Slots: slots, Identity: id}
}

// retire leaves in good order what this worker still owns.
func (c *Consumer[Tx]) retire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := c.scopes.Revoked(ctx, c.scopes.all())
	return errors.Join(err, c.store.Retire(ctx, c.cfg.Name, c.cfg.Worker))
}

// book adds a batch to the account.
func (c *Consumer[Tx]) book(b semel.Batch, ties int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v, n := range b.Of {
		c.account.Of[v] += n
		if b.Letters {
			c.account.Taken += n
		}
	}
	c.account.Ties += ties
}

func (c *Consumer[Tx]) paused(err error) {
	if f := c.cfg.Observer.Paused; f != nil {
		f(err)
	}
}

func (c *Consumer[Tx]) phase(p semel.Phase) {
	if f := c.cfg.Observer.Phase; f != nil {
		f(p)
	}
}

// drained stops the consumer when nothing is left: not at the source, not in
// flight, not parked and due soon.
func (c *Consumer[Tx]) drained(ctx context.Context) {
	if c.cfg.Drain == nil {
		return
	}
	for pause := 20 * time.Millisecond; wait(ctx, pause); pause = min(pause*5/4, 500*time.Millisecond) {
		before := c.Account()
		if !c.idle(ctx) {
			continue
		}
		if after := c.Account(); after == before && c.gate.empty() {
			c.stop()
		}
	}
}

func (c *Consumer[Tx]) idle(ctx context.Context) bool {
	if !c.gate.empty() || c.busy.Load() {
		return false
	}
	depth, err := c.src.(broker.Measurer).Depth(ctx)
	if err != nil || !depth.Empty() {
		return false
	}
	due, next, err := c.store.Due(ctx, c.cfg.Name, 1, 0)
	return err == nil && len(due) == 0 && (next < 0 || next > c.cfg.Drain.Wait)
}

// clean forgets what is old enough, in small steps.
func (c *Consumer[Tx]) clean(ctx context.Context) {
	for {
		p, err := c.store.Purge(ctx, store.Purge{Consumer: c.cfg.Name, Keep: c.cfg.Keep, KeepScopes: !c.src.Capabilities().Ephemeral})
		pause := 10 * time.Minute
		if err == nil && p.More() {
			pause = 100 * time.Millisecond
		}
		if !wait(ctx, pause) {
			return
		}
	}
}
