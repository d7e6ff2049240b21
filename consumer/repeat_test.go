package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store/memstore"
)

// verbs counts how deliveries were settled.
type verbs struct {
	*membroker.Receiver
	n map[broker.Verb]int
}

func (v verbs) Settle(ctx context.Context, s []broker.Settlement, out []broker.Settled) error {
	for i := range s {
		v.n[s[i].Verb]++
	}
	return v.Receiver.Settle(ctx, s, out)
}

// A repeat of a dead message is rejected like the message, be it in the same
// batch, where no row tells of it yet, or in a later one.
func TestRepeatsOfADeadMessageFollowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{}), memstore.New()
		cfg := config()
		cfg.Decoder = broker.DecoderFunc(func(*semel.Delivery) error { return semel.Invalidf("a field is missing") })
		deliver := func(n int) int {
			for range n {
				b.Publish(-1, semel.Message{ID: "same", Body: []byte("same")})
			}
			v := verbs{b.Receiver(), map[broker.Verb]int{}}
			c, err := consumer.New(cfg, v, st, consumer.Each(count))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := v.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			return v.n[broker.Reject]
		}
		for _, n := range []int{3, 2} {
			if rejected := deliver(n); rejected != n {
				t.Errorf("%d of %d deliveries were rejected", rejected, n)
			}
		}
	})
}
