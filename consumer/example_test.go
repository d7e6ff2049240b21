package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// A payment is published twice, and its handler fails once: it is booked once.
func ExampleConsumer() {
	source, db := membroker.New(membroker.Config{}), memstore.New()
	payment := semel.Message{ID: "payment-1", Key: "ann", Body: []byte("100")}
	source.Publish(-1, payment, payment, semel.Message{ID: "payment-2", Key: "ann", Body: []byte("20")})

	failed := false
	book := func(_ context.Context, tx *memstore.Tx, m semel.Message) error {
		var cents int64
		if _, err := fmt.Sscan(string(m.Body), &cents); err != nil {
			return semel.Invalid(err) // it never will be a payment: a dead letter
		}
		if err := tx.Add("balance of "+m.Key, cents); err != nil {
			return err
		}
		if !failed {
			failed = true
			return fmt.Errorf("the network is down") // rolled back, and tried again
		}
		return nil
	}
	c, err := consumer.New(consumer.Config{
		Name:    "payments",
		Decoder: broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
		Horizon: time.Hour,         // how late the source may deliver again
		Drain:   &consumer.Drain{}, // end when nothing is left
	}, source.Receiver(), store.Backend[*memstore.Tx](db), consumer.Each(book))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	a := c.Account()
	fmt.Println(db.Rows()["balance of ann"], a.Of[semel.Applied], a.Of[semel.Duplicate])
	// Output: 120 2 1
}

// A set-based handler names the messages that failed.
func ExampleBatch() {
	work := consumer.Batch(func(_ context.Context, tx *memstore.Tx, ms []semel.Message) error {
		for i, m := range ms {
			if len(m.Body) == 0 {
				return semel.At(i, semel.Invalidf("it is empty"))
			}
		}
		return tx.Add("seen", int64(len(ms))) // one statement for all of them
	})
	source, db := membroker.New(membroker.Config{}), memstore.New()
	source.Publish(-1, semel.Message{ID: "a", Body: []byte("x")}, semel.Message{ID: "b"}, semel.Message{ID: "c", Body: []byte("x")})
	c, err := consumer.New(consumer.Config{
		Name: "counter", Horizon: time.Hour, Drain: &consumer.Drain{},
		Decoder: broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
	}, source.Receiver(), store.Backend[*memstore.Tx](db), work)
	if err == nil {
		err = c.Run(context.Background())
	}
	a := c.Account()
	fmt.Println(db.Rows()["seen"], a.Of[semel.Dead], err)
	// Output: 2 1 <nil>
}
