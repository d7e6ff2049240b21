package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store/sqlstore"
)

// replay measures how fast a consumer gets past messages that are decided: a
// source that forgot its position delivers everything again.
func replay(ctx context.Context, p plan, dir string) (section, error) {
	s := section{
		title: "After a crash: getting past what is done",
		text: fmt.Sprintf("%d decided messages are all delivered again; median of %d runs, least and most in brackets. "+
			"`position` compares an offset; `table`, on a source without positions, finds a row for each and compares the content.", p.replay, p.runs),
		columns: []string{"", "messages/s", "CPU µs/message"},
	}
	for _, r := range []struct {
		dedup  inbox.Strategy
		source func(stream) broker.Receiver
	}{
		{inbox.Position, func(s stream) broker.Receiver { return s }},
		{inbox.Table, func(s stream) broker.Receiver { return unowned{s} }},
	} {
		costs, err := skipped(ctx, p, filepath.Join(dir, r.dedup.String()+".db"), r.dedup, r.source)
		if err != nil {
			return s, fmt.Errorf("%s: %w", r.dedup, err)
		}
		rates := each(costs, rateOf)
		s.row("semel, `"+r.dedup.String()+"`", ranged(rates), fmt.Sprintf("%.2f", each(costs, cpuOf).mid))
		if r.dedup == inbox.Position {
			s.goal("`position`, messages skipped per second", rates, atLeast, 1_000_000)
		}
	}
	return s, nil
}

func skipped(ctx context.Context, p plan, path string, dedup inbox.Strategy, source func(stream) broker.Receiver) ([]cost, error) {
	d, err := openDatabase(ctx, path, checkpoint)
	if err != nil {
		return nil, err
	}
	defer d.close()
	st, err := d.store(ctx)
	if err != nil {
		return nil, err
	}
	defer st.Close(ctx)
	run := func() (tally, error) {
		return consume(ctx, config(dedup, p.batch), source(newStream(0, p.replay, fill)), st, consumer.Each[sqlstore.Tx](applyEffect), p.replay)
	}
	if _, err := run(); err != nil {
		return nil, err
	}
	var costs []cost
	for range p.runs {
		c, err := measured(p.replay, func() error {
			t, err := run()
			if n := t.of.Of[semel.Duplicate]; err == nil && n != int64(p.replay) {
				err = fmt.Errorf("%d duplicates, want %d", n, p.replay)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		costs = append(costs, c)
	}
	return costs, d.verify(ctx, p.replay)
}
