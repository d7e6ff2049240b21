package observe_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// A pipeline that writes log records and knows how it is.
func Example() {
	opt := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // for the sake of this example's output
		}
		return a
	}}
	log := observe.NewLog(slog.NewTextHandler(os.Stdout, opt), observe.LogConfig{Pipeline: "orders"})
	defer log.Flush()
	mon := observe.NewMonitor(observe.Config{Pipeline: "orders"})

	b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
	b.Publish(0, semel.Message{ID: "o-1"}, semel.Message{ID: "o-2"})
	src := b.Receiver()
	c, err := consumer.New(consumer.Config{
		Name: "orders", Horizon: time.Hour, Start: consumer.StartFirst, Drain: &consumer.Drain{},
		Decoder:  broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
		Observer: semel.Join(log.Observer(), mon.Observer()),
	}, src, store.Backend[*memstore.Tx](st), consumer.Each(func(_ context.Context, _ *memstore.Tx, m semel.Message) error {
		if m.ID == "o-2" {
			return semel.Permanent(fmt.Errorf("unknown customer"))
		}
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go mon.Watch(ctx, observe.Target{Account: c.Account, Depth: src.Depth, Status: func(ctx context.Context) (store.Status, error) {
		return st.Status(ctx, "orders", false)
	}})
	fmt.Println("ready:", mon.Health().Ready)
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	for _, r := range mon.Health().Reasons {
		fmt.Println(r.Condition)
	}
	// Output:
	// ready: false
	// level=WARN msg="dead letter" pipeline=orders message_id=o-2 origin=memory/0@1:1 class=permanent reason=permanent attempt=1 error="handle: o-2: unknown customer"
	// ended
}
