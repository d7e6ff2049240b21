package consumer_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// noStore keeps nothing of a batch, so that what is left is the pipeline's own.
type noStore struct{ *memstore.Store }

func (noStore) InTx(ctx context.Context, _ store.Mark, fn func(context.Context, tx) error) (store.Outcome, error) {
	if err := fn(ctx, nil); err != nil {
		return store.RolledBack, err
	}
	return store.Committed, nil
}

func (noStore) Advance(_ context.Context, _ tx, _ string, _ []store.Advance, lost []int) ([]int, error) {
	return lost, nil
}

func (noStore) Claim(_ context.Context, _ tx, _ string, _ []store.Record, p []store.Prior) ([]store.Prior, error) {
	return p, nil
}

func (noStore) Count(context.Context, tx, string, []store.Tally) error   { return nil }
func (noStore) Any(context.Context, tx, string) (bool, error)            { return false, nil }
func (noStore) Purge(context.Context, store.Purge) (store.Purged, error) { return store.Purged{}, nil }

// TestAllocations: beside source, decoder, handler and store, a message costs
// at most one allocation and 64 bytes.
func TestAllocations(t *testing.T) {
	for _, s := range []inbox.Strategy{inbox.Position, inbox.Table} {
		t.Run(s.String(), func(t *testing.T) {
			const few, many = 20_000, 220_000
			objects, bytes := heapOf(t, s, few)
			o, b := heapOf(t, s, many)
			perObject, perByte := (o-objects)/(many-few), (b-bytes)/(many-few)
			t.Logf("%.4f allocations and %.2f bytes a message", perObject, perByte)
			if perObject > 1 || perByte > mostBytes {
				t.Errorf("%.3f allocations and %.1f bytes a message, at most 1 and %d are allowed", perObject, perByte, mostBytes)
			}
		})
	}
}

// heapOf is what a run of n messages allocates.
func heapOf(t *testing.T, s inbox.Strategy, n int) (objects, bytes float64) {
	t.Helper()
	ids := make([]string, 4096)
	for i := range ids {
		ids[i] = "message-" + strconv.Itoa(i)
	}
	body := []byte(`{"some":"body"}`)
	src := membroker.NewGenerator(n, func(i int, m *semel.Message) { m.ID, m.Key, m.Body = ids[i%len(ids)], ids[i%100], body })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	handled := 0
	cfg := noDrain()
	cfg.Inbox = s
	cfg.Decoder = broker.DecoderFunc(func(*semel.Delivery) error { return nil })
	c, err := consumer.New(cfg, src, store.Backend[tx](noStore{memstore.New()}), consumer.Each(func(context.Context, tx, semel.Message) error {
		if handled++; handled == n {
			cancel()
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = c.Run(ctx)
	runtime.ReadMemStats(&after)
	if err != nil || handled != n && s == inbox.Position {
		t.Fatalf("%d handled: %v", handled, err)
	}
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}
