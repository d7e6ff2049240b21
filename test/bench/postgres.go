package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
)

const (
	pgEffectTable = "CREATE TABLE effect (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL, body BYTEA NOT NULL)"
	pgInsert      = "INSERT INTO effect (id, body) VALUES ($1, $2)"
	pgInsertSet   = "INSERT INTO effect (id, body) SELECT * FROM unnest($1::text[], $2::bytea[])"
	pgInboxTable  = "CREATE TABLE inbox (id TEXT PRIMARY KEY)"
	pgInboxSet    = "INSERT INTO inbox (id) SELECT unnest($1::text[]) ON CONFLICT (id) DO NOTHING RETURNING id"
	pgInboxOne    = "INSERT INTO inbox (id) VALUES ($1) ON CONFLICT (id) DO NOTHING"
)

// pgRung is one way to bring messages into PostgreSQL. Its effects go to a
// schema of its own.
type pgRung struct {
	name   string
	singly bool
	open   func(ctx context.Context, dsn string, batch int) (slice, func() error, error)
}

// pgRungs are the rows of the table; the first is what the others are compared
// with.
func pgRungs() []pgRung {
	return []pgRung{
		{name: "hand-written pgx batch, no dedup", open: pgByHand(pipelinedLoop)},
		{name: "semel, `position`, queued statements", open: pgBySemel(inbox.Position, consumer.Each(pgQueued))},
		{name: "semel, `position`, a statement at a time", open: pgBySemel(inbox.Position, consumer.Each(pgDirect))},
		{name: "semel, `table`, queued statements", open: pgBySemel(inbox.Table, consumer.Each(pgQueued))},
		{name: "hand-written, set-based, no dedup", open: pgByHand(setLoop)},
		{name: "semel, `position`, set-based", open: pgBySemel(inbox.Position, consumer.Batch(pgSet))},
		{name: "semel, `table`, set-based", open: pgBySemel(inbox.Table, consumer.Batch(pgSet))},
		{name: "hand-written, set-based, plain dedup table", open: pgByHand(dedupLoop)},
		{name: "hand-written inbox, a transaction per message", singly: true, open: pgByHand(inboxLoop)},
	}
}

func pgQueued(_ context.Context, tx sqlstore.Tx, m semel.Message) error {
	return pgstore.Queue(tx, pgInsert, m.ID, m.Body)
}

func pgDirect(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
	_, err := tx.ExecContext(ctx, pgInsert, m.ID, m.Body)
	return err
}

func pgSet(ctx context.Context, tx sqlstore.Tx, ms []semel.Message) error {
	ids, bodies := make([]string, len(ms)), make([][]byte, len(ms))
	for i := range ms {
		ids[i], bodies[i] = ms[i].ID, ms[i].Body
	}
	_, err := pgstore.Conn(tx).Exec(ctx, pgInsertSet, ids, bodies)
	return err
}

func pgBySemel(dedup inbox.Strategy, w consumer.Work[sqlstore.Tx]) func(context.Context, string, int) (slice, func() error, error) {
	return func(ctx context.Context, dsn string, batch int) (slice, func() error, error) {
		st, err := pgstore.Open(ctx, dsn, pgstore.Config{})
		if err != nil {
			return nil, nil, err
		}
		if err := st.Migrate(ctx); err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, from, n int) error {
			_, err := consume(ctx, config(dedup, batch), newStream(from, from+n, fill), st, w, n)
			return err
		}, func() error { return st.Close(context.WithoutCancel(ctx)) }, nil
	}
}

// commits is the transaction of a hand-written loop.
type commits func(ctx context.Context, conn *pgx.Conn, ds []semel.Delivery) error

func pgByHand(commit commits) func(context.Context, string, int) (slice, func() error, error) {
	return func(ctx context.Context, dsn string, batch int) (slice, func() error, error) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		var l loop // for its settling
		return func(ctx context.Context, from, n int) error {
			src := newStream(from, from+n, fill)
			for n > 0 {
				ds, err := src.Receive(ctx, broker.Budget{Messages: min(n, batch), Bytes: 16 << 20})
				if err != nil {
					return err
				}
				for i := range ds {
					if err := decode(&ds[i]); err != nil {
						return err
					}
				}
				if err := errors.Join(commit(ctx, conn, ds), l.settle(ctx, src, ds)); err != nil {
					return err
				}
				n -= len(ds)
			}
			return nil
		}, func() error { return conn.Close(context.WithoutCancel(ctx)) }, nil
	}
}

// pipelinedLoop sends BEGIN, a statement for each message and COMMIT at once.
func pipelinedLoop(ctx context.Context, conn *pgx.Conn, ds []semel.Delivery) error {
	var b pgx.Batch
	b.Queue("BEGIN")
	for i := range ds {
		b.Queue(pgInsert, ds[i].ID, ds[i].Body)
	}
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, &b).Close()
}

func byID(ds []semel.Delivery) (ids []string, bodies [][]byte) {
	for i := range ds {
		ids, bodies = append(ids, ds[i].ID), append(bodies, ds[i].Body)
	}
	return ids, bodies
}

func setLoop(ctx context.Context, conn *pgx.Conn, ds []semel.Delivery) error {
	ids, bodies := byID(ds)
	_, err := conn.Exec(ctx, pgInsertSet, ids, bodies)
	return err
}

func dedupLoop(ctx context.Context, conn *pgx.Conn, ds []semel.Delivery) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		ids, bodies := byID(ds)
		rows, err := tx.Query(ctx, pgInboxSet, ids)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(fresh) < len(ids) {
			return errors.New("a message came twice; this loop is measured with fresh ones")
		}
		_, err = tx.Exec(ctx, pgInsertSet, ids, bodies)
		return err
	})
}

func inboxLoop(ctx context.Context, conn *pgx.Conn, ds []semel.Delivery) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for i := range ds {
			if tag, err := tx.Exec(ctx, pgInboxOne, ds[i].ID); err != nil || tag.RowsAffected() == 0 {
				return err
			}
			if _, err := tx.Exec(ctx, pgInsert, ds[i].ID, ds[i].Body); err != nil {
				return err
			}
		}
		return nil
	})
}

// postgres measures the rungs against each other on the server at address. It
// makes schemas bench_0, bench_1, … there and removes them.
func postgres(address string) func(ctx context.Context, p plan, dir string) (section, error) {
	return func(ctx context.Context, p plan, _ string) (section, error) {
		all := pgRungs()
		cs := make([]contender, len(all))
		for i, r := range all {
			dsn, drop, err := pgSchema(ctx, address, fmt.Sprintf("bench_%d", i))
			if err != nil {
				return section{}, err
			}
			defer drop()
			batch := p.batch
			cs[i] = contender{name: r.name, n: p.ladder}
			if r.singly {
				batch, cs[i].n = 1, p.single
			}
			run, done, err := r.open(ctx, dsn, batch)
			if err != nil {
				return section{}, err
			}
			defer done() //nolint:errcheck // the schema is thrown away
			cs[i].slice = run
		}
		costs, err := compare(ctx, p.rounds, cs)
		if err != nil {
			return section{}, err
		}
		if err := pgVerify(ctx, address, p, cs); err != nil {
			return section{}, err
		}
		return pgSection(p, all, costs), nil
	}
}

// pgSchema makes an empty schema with the table of effects.
func pgSchema(ctx context.Context, address, name string) (dsn string, drop func(), err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, errors.New("-postgres is not a URL")
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	dropping := "DROP SCHEMA IF EXISTS " + name + " CASCADE"
	for _, st := range []string{dropping, "CREATE SCHEMA " + name, "SET search_path = " + name, pgEffectTable, pgInboxTable} {
		if _, err := conn.Exec(ctx, st); err != nil {
			return "", nil, err
		}
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String(), func() {
		ctx := context.WithoutCancel(ctx)
		if conn, err := pgx.Connect(ctx, address); err == nil {
			_, _ = conn.Exec(ctx, dropping) // the next run does it too
			_ = conn.Close(ctx)
		}
	}, nil
}

// pgVerify counts the effects: one for each message.
func pgVerify(ctx context.Context, address string, p plan, cs []contender) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i, c := range cs {
		var rows, ids int
		if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*), count(DISTINCT id) FROM bench_%d.effect", i)).Scan(&rows, &ids); err != nil {
			return err
		}
		if want := p.rounds * c.n; rows != want || ids != want {
			return fmt.Errorf("%s: %w", c.name, &inexact{rows, ids, want})
		}
	}
	return nil
}

func pgSection(p plan, all []pgRung, costs [][]cost) section {
	s := section{
		title: "PostgreSQL: what dedup costs",
		text: fmt.Sprintf("%d slices of %d messages each after one that is dropped (%d where a transaction is one message), %d messages to a transaction, "+
			"one row of %d bytes per message. CPU is that of the client alone. All effects were counted.",
			p.rounds-1, p.ladder, p.single, p.batch, len(template)),
		columns: []string{"", "messages/s", "against the first row", "CPU µs/message", "CPU against it"},
	}
	for i, r := range all {
		s.row(r.name, thousands(each(costs[i], rateOf).mid), over(costs[0], costs[i], wallOf).String()+"×",
			fmt.Sprintf("%.2f", each(costs[i], cpuOf).mid), over(costs[i], costs[0], cpuOf).String()+"×")
	}
	s.goal("`position` with queued statements, of the hand-written batch", over(costs[0], costs[1], wallOf), atLeast, 0.97)
	s.goal("queued statements, of a statement at a time", over(costs[2], costs[1], wallOf), atLeast, 4)
	s.goal("`position`, set-based, of the set-based loop", over(costs[4], costs[5], wallOf), atLeast, 0.95)
	s.goal("`position`, set-based, of an inbox transaction per message", over(costs[8], costs[5], wallOf), atLeast, 50)
	return s
}
