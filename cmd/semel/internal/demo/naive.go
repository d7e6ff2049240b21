package demo

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// naive is the consumer as it is written by hand: it claims a file, does the
// work in a transaction, and moves the file to done/ after the commit. What
// fails is tried again. It loses nothing, on the same queue and with the same
// settings of the database as semel, and it does not remember anything.
type naive struct {
	inc    *incident
	queue  filebroker.Queue
	db     *sqlstore.Store
	client *http.Client
	url    string
}

// patience is how long a sender waits for the receiver's answer.
const patience = 300 * time.Millisecond

// maxFailures in a row are a fault of the demonstration, not of a message.
const maxFailures = 20

func runNaive(ctx context.Context, inc *incident, s side, url string) error {
	db, err := openDB(ctx, inc, s)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	queue, err := filebroker.Open(ctx, filebroker.Config{Root: s.queue()})
	if err != nil {
		return err
	}
	defer queue.Close(ctx)
	n := naive{inc, queue, db, &http.Client{Timeout: patience}, url}
	return n.run(ctx)
}

// openDB opens a side's database and makes the table of the incident.
func openDB(ctx context.Context, inc *incident, s side) (*sqlstore.Store, error) {
	db, err := sqlitestore.Open(ctx, s.db(), sqlitestore.Config{})
	if err != nil {
		return nil, err
	}
	_, err = db.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, inc.table)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	return db, nil
}

// run consumes until the queue is empty.
func (n *naive) run(ctx context.Context) error {
	failures := 0
	for {
		left, err := n.queue.Depth(ctx)
		if err != nil || left.Empty() {
			return err
		}
		ds, err := n.queue.Receive(ctx, broker.Budget{Messages: 1, Bytes: 1 << 20})
		if err != nil {
			return err
		}
		failed := n.handle(ctx, &ds[0])
		verb := broker.Ack
		if failures++; failed == nil {
			failures = 0
		} else {
			verb = broker.Release
		}
		if failures == maxFailures {
			return fmt.Errorf("%d failures in a row: %w", failures, failed)
		}
		if err := n.queue.Settle(ctx, []broker.Settlement{{Lease: ds[0].Lease, Verb: verb}}, make([]broker.Settled, 1)); err != nil {
			return err
		}
	}
}

// handle does the work of one message in a transaction.
func (n *naive) handle(ctx context.Context, d *semel.Delivery) error {
	outcome, err := n.db.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		err := n.effect(ctx, tx, d.Body)
		if err == nil {
			fault.Hit(fault.Handled)
		}
		return err
	})
	if err == nil && outcome != store.Committed {
		err = errors.New("the commit was not confirmed")
	}
	if err == nil {
		fault.Hit(fault.Committed)
	}
	return err
}

func (n *naive) effect(ctx context.Context, tx sqlstore.Tx, body []byte) error {
	if n.url != "" {
		if err := post(ctx, n.client, n.url, "", body); err != nil {
			return err
		}
	}
	args, err := n.inc.args(body)
	if err == nil {
		_, err = tx.ExecContext(ctx, n.inc.effect, args...)
	}
	return err
}

// args are the parameters of the effect's SQL.
func (inc *incident) args(body []byte) (args []any, err error) {
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	for param, field := range inc.with {
		args = append(args, sql.Named(param, fields[field]))
	}
	return args, nil
}

// post sends a notice; key may be empty.
func post(ctx context.Context, client *http.Client, url, key string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	return nil
}
