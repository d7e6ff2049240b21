package main

import (
	"context"
	"database/sql"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// loop is what a person writes without semel: receive, decode, one
// transaction, settle. With inbox it keeps a plain dedup table.
type loop struct {
	conn          *sql.Conn
	effect, inbox *sql.Stmt // inbox is nil for the loop without dedup
	settlements   []broker.Settlement
	settled       []broker.Settled
}

const inboxTable = "CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY) WITHOUT ROWID"

const insertInbox = "INSERT INTO inbox (id) VALUES (?) ON CONFLICT DO NOTHING"

// newLoop prepares the statements on one connection of its own.
func newLoop(ctx context.Context, d *database, dedup bool) (*loop, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	l := &loop{conn: conn}
	if l.effect, err = conn.PrepareContext(ctx, insertEffect); err != nil || !dedup {
		return l, err
	}
	if _, err := conn.ExecContext(ctx, inboxTable); err != nil {
		return nil, err
	}
	l.inbox, err = conn.PrepareContext(ctx, insertInbox)
	return l, err
}

// run handles n messages of src, at most batch in one transaction. Its
// statements cannot be cancelled: this driver takes as long to watch a context
// as to insert a row, and the loop is to be as fast as it can be.
func (l *loop) run(ctx context.Context, src broker.Receiver, n, batch int) error {
	ctx = context.WithoutCancel(ctx)
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
		if err := l.commit(ctx, ds); err != nil {
			return err
		}
		if err := l.settle(ctx, src, ds); err != nil {
			return err
		}
		n -= len(ds)
	}
	return nil
}

func (l *loop) commit(ctx context.Context, ds []semel.Delivery) error {
	if _, err := l.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i := range ds {
		if err := l.handle(ctx, &ds[i].Message); err != nil {
			_, _ = l.conn.ExecContext(ctx, "ROLLBACK") // err is what matters
			return err
		}
	}
	_, err := l.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (l *loop) handle(ctx context.Context, m *semel.Message) error {
	if l.inbox != nil {
		r, err := l.inbox.ExecContext(ctx, m.ID)
		if err != nil {
			return err
		}
		if fresh, err := r.RowsAffected(); err != nil || fresh == 0 {
			return err
		}
	}
	_, err := l.effect.ExecContext(ctx, m.ID, m.Body)
	return err
}

func (l *loop) settle(ctx context.Context, src broker.Receiver, ds []semel.Delivery) error {
	l.settlements, l.settled = l.settlements[:0], l.settled[:0]
	for i := range ds {
		l.settlements = append(l.settlements, broker.Settlement{Lease: ds[i].Lease})
		l.settled = append(l.settled, broker.Unknown)
	}
	return src.Settle(ctx, l.settlements, l.settled)
}

func (l *loop) close() error { return l.conn.Close() }
