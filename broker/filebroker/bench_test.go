package filebroker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/broker"
)

// BenchmarkWhole claims, reads and finishes one file per operation.
func BenchmarkWhole(b *testing.B) {
	d := &dir{T: &testing.T{}, root: b.TempDir()}
	q, err := Open(b.Context(), Config{Root: d.root})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close(b.Context())
	body := string(bytes.Repeat([]byte("x"), 500))
	for i := range b.N {
		d.put(fmt.Sprintf("m%07d.json", i), body)
	}
	b.ReportAllocs()
	b.ResetTimer()
	drain(b, q, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

// BenchmarkLines reads and settles one line per operation.
func BenchmarkLines(b *testing.B) {
	d := &dir{T: &testing.T{}, root: b.TempDir()}
	q, err := Open(b.Context(), Config{Root: d.root, Files: Lines, Poll: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close(b.Context())
	line := append(bytes.Repeat([]byte("x"), 200), '\n')
	for i := 0; i < b.N; i += 5000 {
		d.put(fmt.Sprintf("m%07d.ndjson", i), string(bytes.Repeat(line, min(5000, b.N-i))))
	}
	b.SetBytes(201)
	b.ReportAllocs()
	b.ResetTimer()
	drain(b, q, b.N)
}

func drain(b *testing.B, q Queue, n int) {
	out := make([]broker.Settled, 2000)
	for n > 0 {
		ds, err := q.Receive(b.Context(), broker.Budget{Messages: 2000, Bytes: 16 << 20})
		if err != nil {
			b.Fatal(err)
		}
		if err := q.Settle(b.Context(), acks(ds), out[:len(ds)]); err != nil {
			b.Fatal(err)
		}
		n -= len(ds)
	}
}
