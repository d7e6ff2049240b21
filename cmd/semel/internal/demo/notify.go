package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store/sqlstore"
)

// runNotify is semel's side of A1: the library with a handler that sends. A
// handler may run more than once for a message, and its request cannot be
// rolled back; the message's id as key makes all of them one notice.
func runNotify(ctx context.Context, inc *incident, s side, url string) error {
	db, err := openDB(ctx, inc, s)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	if err := db.Migrate(ctx); err != nil {
		return err
	}
	queue, err := filebroker.Open(ctx, filebroker.Config{Root: s.queue()})
	if err != nil {
		return err
	}
	defer queue.Close(ctx)
	client := &http.Client{Timeout: patience}
	send := func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		if err := post(ctx, client, url, m.ID, m.Body); err != nil {
			return err
		}
		args, err := inc.args(m.Body)
		if err == nil {
			_, err = tx.ExecContext(ctx, inc.effect, args...)
		}
		return err
	}
	c, err := consumer.New(consumer.Config{
		Name: inc.consumer, Decoder: broker.DecoderFunc(decodeNotice), Horizon: 7 * 24 * time.Hour, Drain: &consumer.Drain{},
		MaxBatch: 1, // so that both sides die at the same message
	}, queue, db, consumer.Each(send))
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func decodeNotice(d *semel.Delivery) error {
	var n notice
	if err := json.Unmarshal(d.Body, &n); err != nil {
		return semel.Invalid(err)
	}
	d.ID = n.ID
	return nil
}

// Consume is what a child process does, in the directory of an incident: it
// consumes as the side says until nothing is left. url is where A1's notices
// are sent.
func Consume(ctx context.Context, sideName, incidentName, url string) error {
	inc, ok := byName(incidentName)
	s := side{name: sideName, dir: "."}
	switch {
	case ok && sideName == sideNaive:
		return runNaive(ctx, &inc, s, url)
	case ok && sideName == sideSemel && inc.pipeline == "":
		return runNotify(ctx, &inc, s, url)
	}
	return fmt.Errorf("%q of %q: there is no such consumer", sideName, incidentName)
}
