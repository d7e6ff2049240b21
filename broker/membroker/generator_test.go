package membroker_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
)

func fill(i int, m *semel.Message) {
	m.ID = "id"
	m.Body = strconv.AppendInt(m.Body[:0], int64(i), 10)
}

func TestGenerator(t *testing.T) {
	g := membroker.NewGenerator(10, fill)
	o := &owner{next: map[string]int64{"generator@1": 3}}
	g.Bind(o)
	ds, err := g.Receive(t.Context(), broker.Budget{Messages: 4, Bytes: 3})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "first", bodies(ds), []string{"3", "4", "5"})
	want(t, "position", []semel.Offset{ds[2].Position.Offset, ds[2].Next}, []semel.Offset{{Lo: 5}, {Lo: 6}})
	rest := receive(t, g)
	want(t, "rest", bodies(rest), []string{"6", "7", "8", "9"})
	d, _ := g.Depth(t.Context())
	want(t, "depth", d, broker.Depth{Claimed: 7})
	want(t, "retry", settle(t, g, ds[:1], broker.Retry), []broker.Settled{broker.Unsupported})
	want(t, "ack", settle(t, g, ds[:1], broker.Ack), []broker.Settled{broker.Done})
	want(t, "twice", settle(t, g, ds[:1], broker.Ack), []broker.Settled{broker.Stale})
	settle(t, g, append(ds[1:], rest...), broker.Ack)
	d, _ = g.Depth(t.Context())
	want(t, "depth", d, broker.Depth{})
}

func bodies(ds []semel.Delivery) (out []string) {
	for _, d := range ds {
		out = append(out, string(d.Body))
	}
	return out
}

func TestGeneratorWaitsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := membroker.NewGenerator(1, fill)
		receive(t, g)
		time.AfterFunc(time.Hour, func() { _ = g.Close(t.Context()) })
		if _, err := g.Receive(t.Context(), all); !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("after close: %v", err)
		}
	})
}

func TestGeneratorStoppedOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := membroker.NewGenerator(5, fill)
		o := &owner{next: map[string]int64{"generator@1": -1}, err: errors.New("store is away")}
		g.Bind(o)
		if _, err := g.Receive(t.Context(), all); !errors.Is(err, o.err) {
			t.Fatalf("got %v", err)
		}
		o.err = nil
		time.AfterFunc(time.Hour, func() { _ = g.Close(t.Context()) })
		if _, err := g.Receive(t.Context(), all); !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("a stopped scope was handed over: %v", err)
		}
		d, _ := g.Depth(t.Context())
		want(t, "depth", d, broker.Depth{})
	})
}

// TestGeneratorKeepsRecentSlabs: what was settled a moment ago can still be
// looked at.
func TestGeneratorKeepsRecentSlabs(t *testing.T) {
	g := membroker.NewGenerator(1000, fill)
	two := broker.Budget{Messages: 2, Bytes: 100}
	var last []semel.Delivery
	for i := range 400 {
		ds, err := g.Receive(t.Context(), two)
		if err != nil {
			t.Fatal(err)
		}
		settle(t, g, ds, broker.Ack)
		if i > 0 {
			want(t, "the last ones", bodies(last), []string{strconv.Itoa(2*i - 2), strconv.Itoa(2*i - 1)})
			want(t, "their leases", settle(t, g, last, broker.Ack), []broker.Settled{broker.Stale, broker.Stale})
		}
		last = ds
	}
}

// pass moves one batch through g without allocating.
type pass struct {
	g   *membroker.Generator
	s   []broker.Settlement
	out []broker.Settled
}

func (p *pass) batch(t testing.TB, n int) int {
	ds, err := p.g.Receive(t.Context(), broker.Budget{Messages: n, Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	p.s = p.s[:0]
	for i := range ds {
		p.s = append(p.s, broker.Settlement{Lease: ds[i].Lease})
	}
	if len(p.out) < len(ds) {
		p.out = make([]broker.Settled, len(ds))
	}
	if err := p.g.Settle(t.Context(), p.s, p.out[:len(ds)]); err != nil {
		t.Fatal(err)
	}
	return len(ds)
}

func TestGeneratorAllocatesNothing(t *testing.T) {
	p := pass{g: membroker.NewGenerator(1e6, fill)}
	for range 10 {
		p.batch(t, 500)
	}
	if n := testing.AllocsPerRun(100, func() { p.batch(t, 500) }); n != 0 {
		t.Errorf("%v allocations for a batch of 500", n)
	}
}

func BenchmarkGenerator(b *testing.B) {
	p := pass{g: membroker.NewGenerator(b.N, fill)}
	b.ReportAllocs()
	for n := 0; n < b.N; {
		n += p.batch(b, 2000)
	}
}
