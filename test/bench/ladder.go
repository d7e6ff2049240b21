package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store/sqlstore"
)

// rung is one way to bring messages into a SQLite database.
type rung struct {
	name string
	// exact: a message that is delivered twice has one effect.
	exact bool
	// singly: one transaction per message.
	singly bool
	// open returns the function that handles a slice, and one that closes.
	open func(ctx context.Context, d *database, batch int) (slice, func() error, error)
}

type slice func(ctx context.Context, from, n int) error

// rungs are the rows of the table; the first is what the others are compared
// with.
func rungs() []rung {
	return []rung{
		{name: "hand-written loop, no dedup", open: byHand(false)},
		{name: "semel, `position`", exact: true, open: bySemel(inbox.Position, fill)},
		{name: "semel, `table`, ids in time order", exact: true, open: bySemel(inbox.Table, fillOrdered)},
		{name: "semel, `table`", exact: true, open: bySemel(inbox.Table, fill)},
		{name: "hand-written loop, plain dedup table", exact: true, open: byHand(true)},
		{name: "the same, a transaction per message", exact: true, singly: true, open: byHand(true)},
	}
}

func byHand(dedup bool) func(context.Context, *database, int) (slice, func() error, error) {
	return func(ctx context.Context, d *database, batch int) (slice, func() error, error) {
		l, err := newLoop(ctx, d, dedup)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, from, n int) error {
			return l.run(ctx, newStream(from, from+n, fill), n, batch)
		}, l.close, nil
	}
}

func bySemel(dedup inbox.Strategy, fill func(int, *semel.Message)) func(context.Context, *database, int) (slice, func() error, error) {
	return func(ctx context.Context, d *database, batch int) (slice, func() error, error) {
		st, err := d.store(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, from, n int) error {
			t, err := consume(ctx, config(dedup, batch), newStream(from, from+n, fill), st, consumer.Each[sqlstore.Tx](applyEffect), n)
			if most := (n+batch-1)/batch + 3; err == nil && t.batches > most {
				err = fmt.Errorf("%d batches for %d messages: the sides do not have the same size of batch", t.batches, n)
			}
			return err
		}, func() error { return st.Close(context.WithoutCancel(ctx)) }, nil
	}
}

// ladder measures the rungs against each other.
func ladder(ctx context.Context, p plan, dir string) (section, error) {
	all := rungs()
	cs := make([]contender, len(all))
	dbs := make([]*database, len(all))
	for i, r := range all {
		d, err := openDatabase(ctx, filepath.Join(dir, fmt.Sprintf("ladder%d.db", i)), checkpoint)
		if err != nil {
			return section{}, err
		}
		defer d.close()
		batch := p.batch
		cs[i] = contender{name: r.name, n: p.ladder}
		if r.singly {
			batch, cs[i].n = 1, p.single
		}
		run, done, err := r.open(ctx, d, batch)
		if err != nil {
			return section{}, err
		}
		defer done() //nolint:errcheck // the database is thrown away
		cs[i].slice, dbs[i] = run, d
	}
	costs, err := compare(ctx, p.rounds, cs)
	if err != nil {
		return section{}, err
	}
	wal := make([]float64, len(all))
	for i, c := range cs {
		if err := dbs[i].verify(ctx, p.rounds*c.n); err != nil {
			return section{}, fmt.Errorf("%s: %w", c.name, err)
		}
		if wal[i], err = walPerMessage(ctx, p, all[i], dbs[i], c); err != nil {
			return section{}, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := again(ctx, p, dir); err != nil {
		return section{}, err
	}
	return ladderSection(p, all, costs, wal), nil
}

// walPerMessage handles one more slice on the database as it is now, with the
// WAL left to grow.
func walPerMessage(ctx context.Context, p plan, r rung, d *database, c contender) (float64, error) {
	if err := d.emptyWAL(ctx); err != nil {
		return 0, err
	}
	grown, err := openDatabase(ctx, d.path, 0)
	if err != nil {
		return 0, err
	}
	defer grown.close()
	batch := p.batch
	if r.singly {
		batch = 1
	}
	run, done, err := r.open(ctx, grown, batch)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(run(ctx, p.rounds*c.n, c.n), grown.verify(ctx, (p.rounds+1)*c.n)); err != nil {
		return 0, errors.Join(err, done())
	}
	n, err := grown.walBytes()
	return float64(n) / float64(c.n), errors.Join(err, done())
}

// again lets every rung meet 5 % of its messages twice. Those that claim to be
// exact must be; the one that does not must be found out, or the check would
// prove nothing.
func again(ctx context.Context, p plan, dir string) error {
	n := max(100, min(p.ladder/10, 20*p.single))
	for i, r := range rungs() {
		err := deliverTwice(ctx, p, r, filepath.Join(dir, fmt.Sprintf("again%d.db", i)), n)
		if r.exact && err != nil {
			return fmt.Errorf("%s, with 5 %% delivered twice: %w", r.name, err)
		}
		if !r.exact && !errors.As(err, new(*inexact)) {
			return fmt.Errorf("%s, with 5 %% delivered twice: got %w, want it to be found out", r.name, err)
		}
	}
	return nil
}

func deliverTwice(ctx context.Context, p plan, r rung, path string, n int) error {
	d, err := openDatabase(ctx, path, checkpoint)
	if err != nil {
		return err
	}
	defer d.close()
	batch := p.batch
	if r.singly {
		batch = 1
	}
	run, done, err := r.open(ctx, d, batch)
	if err != nil {
		return err
	}
	defer done() //nolint:errcheck // the database is thrown away
	if err := run(ctx, 0, n/2); err != nil {
		return err
	}
	twice := n / 20
	if err := run(ctx, n/2-twice, n-n/2+twice); err != nil {
		return err
	}
	return d.verify(ctx, n)
}

func ladderSection(p plan, all []rung, costs [][]cost, wal []float64) section {
	s := section{
		title: "SQLite: what dedup costs",
		text: fmt.Sprintf("%d slices of %d messages each after one that is dropped (%d where a transaction is one message), %d messages to a transaction, "+
			"one row of %d bytes per message; ids are random unless it says otherwise. WAL bytes at the end, with %d messages in the database. "+
			"All effects were counted, and once more with 5 %% of the messages delivered twice.",
			p.rounds-1, p.ladder, p.single, p.batch, len(template), p.rounds*p.ladder),
		columns: []string{"", "messages/s", "against the loop without dedup", "CPU µs/message", "CPU against it", "WAL bytes/message"},
	}
	for i, r := range all {
		s.row(r.name, thousands(each(costs[i], rateOf).mid), over(costs[0], costs[i], wallOf).String()+"×",
			fmt.Sprintf("%.2f", each(costs[i], cpuOf).mid), over(costs[i], costs[0], cpuOf).String()+"×", fmt.Sprintf("%.0f", wal[i]))
	}
	s.goal("`position` against the loop without dedup, wall", over(costs[0], costs[1], wallOf), atLeast, 0.95)
	return s
}
