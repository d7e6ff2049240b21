package membroker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/brokertest"
	"github.com/semel-dev/semel/broker/membroker"
)

func TestConformance(t *testing.T) {
	for _, cfg := range []membroker.Config{
		{},
		{Count: semel.TrustExact, Horizon: time.Hour},
		{Partitions: 1},
		{Partitions: 3, Count: semel.TrustVolatile, Scribble: true},
		{Partitions: 3, Unordered: true, Reorder: 4},
	} {
		t.Run(fmt.Sprintf("%d partitions, unordered %v, count %d", cfg.Partitions, cfg.Unordered, cfg.Count), func(t *testing.T) {
			brokertest.Run(t, brokertest.Harness{
				New: func(testing.TB) brokertest.Source { return source(membroker.New(cfg)) },
				Wrap: func(t *testing.T, check func(*testing.T)) {
					synctest.Test(t, check)
				},
			})
		})
	}
}

func source(b *membroker.Broker) brokertest.Source {
	return brokertest.Source{
		Open:    func(testing.TB) broker.Receiver { return b.Receiver() },
		Publish: func(_ testing.TB, ms ...semel.Message) { b.Publish(-1, ms...) },
		Kill:    func(_ testing.TB, r broker.Receiver) { b.Kill(r.(*membroker.Receiver), semel.Crashed) },
	}
}
