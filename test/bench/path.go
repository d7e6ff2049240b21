package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// nullStore is a store that keeps nothing of a batch: what is left is the
// toolkit's own work. Enlisting, fences and the rest are those of memstore.
type nullStore struct{ *memstore.Store }

// InTx runs fn without a transaction.
func (nullStore) InTx(ctx context.Context, _ store.Mark, fn func(context.Context, *memstore.Tx) error) (store.Outcome, error) {
	if err := fn(ctx, nil); err != nil {
		return store.RolledBack, err
	}
	return store.Committed, nil
}

func (nullStore) Advance(_ context.Context, _ *memstore.Tx, _ string, _ []store.Advance, lost []int) ([]int, error) {
	return lost, nil
}

func (nullStore) Claim(_ context.Context, _ *memstore.Tx, _ string, _ []store.Record, p []store.Prior) ([]store.Prior, error) {
	return p, nil
}

func (nullStore) Count(context.Context, *memstore.Tx, string, []store.Tally) error { return nil }

func (nullStore) Any(context.Context, *memstore.Tx, string) (bool, error) { return false, nil }

// ids are made before anything is measured: the messages are decoded already.
func decodedIDs() []string {
	ids := make([]string, 1<<14)
	for i := range ids {
		b := make([]byte, 32)
		idOf(b, i)
		ids[i] = string(b)
	}
	return ids
}

// decoded makes messages that need no decoding.
func decoded(ids []string) func(i int, m *semel.Message) {
	body := []byte(template)
	return func(i int, m *semel.Message) { m.ID, m.Body = ids[i%len(ids)], body }
}

// count is the effect of this comparison.
type count struct{ n, bytes int }

func (c *count) add(m semel.Message) {
	c.n++
	c.bytes += len(m.Body)
}

// bare is the loop without a pipeline: receive, call, settle.
func bare(ctx context.Context, src broker.Receiver, n, batch int, handle func(semel.Message)) error {
	ss := make([]broker.Settlement, 0, batch)
	out := make([]broker.Settled, batch)
	for n > 0 {
		ds, err := src.Receive(ctx, broker.Budget{Messages: min(n, batch), Bytes: 16 << 20})
		if err != nil {
			return err
		}
		ss = ss[:0]
		for i := range ds {
			handle(ds[i].Message)
			ss = append(ss, broker.Settlement{Lease: ds[i].Lease})
		}
		if err := src.Settle(ctx, ss, out[:len(ss)]); err != nil {
			return err
		}
		n -= len(ds)
	}
	return nil
}

// heap is what was allocated so far.
type heap struct{ objects, bytes uint64 }

func heapNow() heap {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap{m.Mallocs, m.TotalAlloc}
}

// toolkit runs n messages through a pipeline on the null store and returns
// what it allocated, once the first tenth had warmed it up.
func toolkit(ctx context.Context, dedup inbox.Strategy, fill func(int, *semel.Message), n, batch int) (objects, bytes float64, err error) {
	cfg := config(dedup, batch)
	cfg.Decoder = broker.DecoderFunc(func(*semel.Delivery) error { return nil })
	done, counted := 0, -1
	var begin, end heap
	cfg.Observer.Batch = func(b semel.Batch) { // one committer: one goroutine
		switch done += b.Messages; {
		case counted < 0 && done >= n/10:
			begin, counted = heapNow(), done
		case done >= n:
			end = heapNow()
		}
	}
	var c count
	w := consumer.Each(func(_ context.Context, _ *memstore.Tx, m semel.Message) error {
		c.add(m)
		return nil
	})
	_, err = consume(ctx, cfg, newStream(0, n, fill), nullStore{memstore.New()}, w, n)
	if err == nil && c.n != n {
		err = fmt.Errorf("%d messages handled, want %d", c.n, n)
	}
	per := float64(done - counted)
	return float64(end.objects-begin.objects) / per, float64(end.bytes-begin.bytes) / per, err
}

// path measures the toolkit's own work per message.
func path(ctx context.Context, p plan, _ string) (section, error) {
	fresh := decoded(decodedIDs())
	dedups := []inbox.Strategy{inbox.Position, inbox.Table}
	objects, bytes := [2][]float64{}, [2][]float64{}
	cs := []contender{{name: "bare loop", n: p.path, slice: func(ctx context.Context, _, n int) error {
		var c count
		return bare(ctx, newStream(0, n, fresh), n, p.batch, c.add)
	}}}
	for i, dedup := range dedups {
		cs = append(cs, contender{name: "semel, `" + dedup.String() + "`", n: p.path, slice: func(ctx context.Context, _, n int) error {
			o, b, err := toolkit(ctx, dedup, fresh, n, p.batch)
			objects[i], bytes[i] = append(objects[i], o), append(bytes[i], b)
			return err
		}})
	}
	costs, err := compare(ctx, p.rounds, cs)
	if err != nil {
		return section{}, err
	}
	s := section{
		title: "The toolkit's own work",
		text: fmt.Sprintf("Decoded messages from memory, a store that keeps nothing, a handler that counts; %d slices of %d messages, %d to a batch. "+
			"The pipeline works on two goroutines, so its wall time per message is less than its CPU time.", p.rounds-1, p.path, p.batch),
		columns: []string{"", "CPU µs/message", "CPU against the bare loop", "wall µs/message", "allocations", "bytes"},
	}
	for i, c := range cs {
		cells := []string{c.name, fmt.Sprintf("%.3f", each(costs[i], cpuOf).mid), over(costs[i], costs[0], cpuOf).String() + "×",
			fmt.Sprintf("%.3f", each(costs[i], wallOf).mid), "", ""}
		if i > 0 {
			cells[4], cells[5] = fmt.Sprintf("%.3f", spreadOf(objects[i-1]).mid), fmt.Sprintf("%.1f", spreadOf(bytes[i-1]).mid)
		}
		s.row(cells...)
	}
	for i, dedup := range dedups {
		name := "`" + dedup.String() + "`, "
		s.goal(name+"allocations per message", spreadOf(objects[i]), atMost, 1)
		s.goal(name+"bytes per message", spreadOf(bytes[i]), atMost, 64)
		s.goal(name+"CPU µs per message beyond the bare loop", beyond(costs[0], costs[i+1]), atMost, 0.5)
	}
	return s, nil
}

// beyond is what c costs more than base in each round, in CPU µs per message.
func beyond(base, c []cost) spread {
	d := make([]float64, len(c))
	for i := range c {
		d[i] = cpuOf(c[i]) - cpuOf(base[i])
	}
	return spreadOf(d)
}
