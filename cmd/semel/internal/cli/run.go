package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

const runHelp = `Take messages from a source, apply each once, acknowledge after the commit.
Ctrl-C finishes what is in hand; a second one ends at once and loses nothing.

Example: semel run orders.yaml --once, with orders.yaml:
  name: orders
  source: directory:spool            # files appear in spool/inbox/
  store: sqlite:orders.db
  message: {id: .event_id}           # jq over the body
  handle:
    sql: INSERT INTO paid (id, cents) VALUES (:id, :cents)
    with: {id: .order.id, cents: .cents}
  horizon: 7d                        # how late the source may deliver again

Exit codes; of several the first in the order 2, 4, 3, 5:
  0  drained, or stopped in good order    1  file or place is wrong
  2  stopped by a fault                   3  drained, and there are dead letters
  4  the account is wrong                 5  messages wait (not due, held, left)`

type runOptions struct {
	place
	telling
	once, check, dryRun bool
	wait                string
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use: "run FILE", Short: "Run a pipeline", Long: runHelp, Args: arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.run(args[0], o) },
	}
	f := c.Flags()
	f.BoolVar(&o.once, "once", false, "end when nothing is left")
	f.StringVar(&o.wait, "wait", "", "`TIME` to wait for parked ones (default: longest delay)")
	f.BoolVar(&o.check, "check", false, "check file, source, store, statements; change nothing")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would become of what waits; no change")
	o.telling.flags(c)
	o.place.flags(c)
	return c
}

func (a *app) run(path string, o runOptions) error {
	drain, err := o.drain()
	if err == nil {
		err = o.telling.check()
	}
	if err != nil {
		return err
	}
	f, err := a.load(path, o.place)
	if err != nil {
		return err
	}
	switch {
	case o.check:
		return a.check(f)
	case o.dryRun:
		return a.dryRun(f)
	}
	return a.consume(f, drain, o.telling)
}

// drain is how the run ends by itself; nil: not at all.
func (o runOptions) drain() (*consumer.Drain, error) {
	switch {
	case o.check && o.dryRun:
		return nil, usagef("--check and --dry-run are two things: choose one")
	case (o.check || o.dryRun) && o.describe() != "":
		return nil, usagef("%s is for runs that take messages", o.describe())
	case !o.once && o.wait != "":
		return nil, usagef("--wait needs --once")
	case !o.once:
		return nil, nil
	case o.wait == "":
		return &consumer.Drain{}, nil
	}
	d, err := config.ParseDuration(o.wait)
	if err != nil {
		return nil, usagef("--wait %s: %v", o.wait, err)
	}
	if d == 0 {
		d = -1 // of Drain: do not wait
	}
	return &consumer.Drain{Wait: d}, nil
}

// consume runs the pipeline for real.
func (a *app) consume(f *config.File, drain *consumer.Drain, t telling) error {
	p := newProgress(f.Name, a.err, t)
	err := a.consumeTold(f, drain, t, p)
	var coded *codedError
	if errors.As(err, &coded) && coded.err != nil && p.broke(coded.err) {
		return exit(coded.code, nil)
	}
	return err
}

func (a *app) consumeTold(f *config.File, drain *consumer.Drain, t telling, p *progress) error {
	ctx, stop := a.signals(p.heard)
	defer stop()
	m, err := t.monitored(f.Name, p)
	if err != nil {
		return err
	}
	defer m.close()
	if _, err := adapters.Look(f).Check(ctx); err != nil {
		return exit(startCode(nil, err), err)
	}
	src, err := adapters.OpenSource(ctx, f, p.reported)
	if err != nil {
		return exit(sourceCode(err), err)
	}
	defer src.Close(context.WithoutCancel(ctx))
	// After the source: where that is not there, no database is made either.
	st, err := a.prepare(context.WithoutCancel(ctx), f, p)
	if err != nil {
		return err
	}
	defer st.Close()
	c, err := st.Pipeline.Consumer(consumerConfig(f, drain, m.observed(p.observer())), src, f)
	if err != nil {
		code := exitUsage
		if class, _ := semel.ClassOf(err); class == semel.ClassInfrastructure {
			code = exitFault // a search server that is away
		}
		return exit(code, fmt.Errorf("%s: %w", f.Path, err))
	}
	began := time.Now()
	measure := measurer(src)
	end, unwatch := p.start(c.Account, measure), m.watch(f.Name, st, c, measure)
	err = c.Run(ctx)
	end()
	unwatch()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // told to stop before it had begun
	}
	r := result{file: f, drained: drain != nil, interrupted: ctx.Err() != nil, account: c.Account(), elapsed: time.Since(began), fault: err}
	ctx = context.WithoutCancel(ctx)
	if d, err := measure.Depth(ctx); err == nil {
		r.left = d.Waiting + d.Claimed + d.Settling
	}
	r.notes, _ = adapters.Look(f).Check(ctx) // it was fine before the run
	r.fault = errors.Join(r.fault, src.Close(ctx))
	return a.conclude(ctx, st, &r)
}

// measurer is src itself if it can say how much it holds.
func measurer(src broker.Receiver) broker.Measurer {
	if m, ok := src.(broker.Measurer); ok {
		return m
	}
	return unmeasured{}
}

// unmeasured is a source that cannot say how much it holds.
type unmeasured struct{}

func (unmeasured) Depth(context.Context) (broker.Depth, error) {
	return broker.Depth{}, errors.New("this source cannot say how much it holds")
}

// prepare opens the store and makes the tables.
func (a *app) prepare(ctx context.Context, f *config.File, p *progress) (*adapters.Store, error) {
	fresh := !adapters.StoreExists(f.Store)
	st, err := adapters.OpenStore(ctx, f.Store)
	if err != nil {
		return nil, exit(startCode(nil, err), err)
	}
	if fresh {
		p.created(f.Store)
	}
	pending, err := st.Schema.Pending(ctx)
	if err == nil && len(pending) > 0 {
		if all := st.Schema.Statements(); !fresh && len(pending) == len(all) { // a server's database is there before its tables
			p.created(f.Store)
		}
		err = st.Schema.Migrate(ctx)
	}
	if err == nil {
		err = st.Pipeline.Setup(ctx, f.Setup)
	}
	if err != nil {
		code := startCode(st.Classify, err)
		err = remedied(f, st.Hint(err), fmt.Errorf("%v: %w", f.Store, err))
		st.Close()
		return nil, exit(code, err)
	}
	return st, nil
}

// startCode tells a wrong set-up from a fault: what may work the next time
// without anybody changing anything is a fault.
func startCode(classify func(error) semel.Class, err error) int {
	c, marked := semel.ClassOf(err)
	if !marked && classify != nil {
		c = classify(err)
	}
	switch c {
	case semel.ClassFault, semel.ClassPermanent, semel.ClassInvalid:
		return exitUsage
	}
	return exitFault
}

// sourceCode is the same for a source that cannot be opened: a queue refuses
// what it finds, unless the machine is at fault.
func sourceCode(err error) int {
	for _, e := range []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return exitFault
		}
	}
	return exitUsage
}

func consumerConfig(f *config.File, drain *consumer.Drain, o semel.Observer) consumer.Config {
	cfg := consumer.Config{
		Name: f.Name, Decoder: message.NewDecoder(f.Rules), Inbox: f.Inbox, TrustID: f.TrustID,
		Arbitrate: f.Arbitrate, Retry: f.Retry, Order: f.Order, DeadHolds: f.DeadHolds,
		Keep: f.Keep, Horizon: f.Horizon, ReplayRevised: f.ReplayRevised,
		MaxBatch: f.Batch, MaxCrashes: f.MaxCrashes, Start: f.Start, Drain: drain,
		Identity: map[string]string{"source": f.Source.String()}, Observer: o,
	}
	if f.Index != nil {
		cfg.HandlerTimeout = max(30*time.Second, f.Index.Limit())
	}
	if f.Outside != nil { // a call in flight is waited for
		cfg.HandlerTimeout = max(30*time.Second, f.Outside.Limit())
		cfg.DrainTimeout = max(20*time.Second, 2*f.Outside.Timeout)
		cfg.Lanes = f.Outside.Concurrency
	}
	return cfg
}

// remedied adds what to do: about a statement that the database does not take,
// or what the store hints at.
func remedied(f *config.File, hint string, err error) error {
	var at *sqlstep.FailedError
	if hint != "" {
		return fmt.Errorf("%w\n%s", err, hint)
	}
	if !errors.As(err, &at) {
		return err
	}
	return fmt.Errorf("%w\ncorrect statement %d of handle.sql in %s, or make what it names with setup:; semel run %s --check tries it", err, at.Step, f.Path, f.Path)
}

// faultCode is 1 for a name that belongs to another pipeline, else 2.
func faultCode(f *config.File, st *adapters.Store, err error) (int, error) {
	var taken *store.TakenError
	if errors.As(err, &taken) {
		return exitUsage, fmt.Errorf("%w: give this pipeline a name of its own (name: or --name), or it would take the other's messages for duplicates", err)
	}
	return exitFault, fmt.Errorf("%w\nnothing is lost: what was not finished comes again", remedied(f, st.Hint(err), err))
}
