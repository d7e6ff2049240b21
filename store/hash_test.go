package store_test

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
	"testing/quick"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// TestHashIsStable: hashes are stored as sums, so they must never change.
func TestHashIsStable(t *testing.T) {
	for _, c := range []struct {
		consumer, id string
		want         uint64
	}{
		{"orders", "a", 0x964ad9fb1b36b1b8}, {"orders", "", 0x3c4af865e4b59bd4}, {"", "a", 0x1b629bd4a2ac7754}, {"orders", "event-1", 0x3408214e5ddcddd9},
	} {
		if got := store.Hash(c.consumer, c.id); got != c.want {
			t.Errorf("Hash(%q, %q) = %#x, want %#x", c.consumer, c.id, got, c.want)
		}
	}
}

func TestHashTellsApart(t *testing.T) {
	seen := map[uint64]string{}
	for consumer := range 10 {
		for i := range 20_000 {
			c, id := fmt.Sprintf("c%d", consumer), fmt.Sprintf("m%d", i)
			h := store.Hash(c, id)
			if other, ok := seen[h]; ok {
				t.Fatalf("%s/%s and %s have one hash", c, id, other)
			}
			seen[h] = c + "/" + id
		}
	}
	if store.Hash("ab", "c") == store.Hash("a", "bc") {
		t.Error("the cut between consumer and id does not matter")
	}
	for n := range 40 { // words are filled up with zeros
		if id := string(make([]byte, n)); store.Hash("c", id) == store.Hash("c", id+"\x00") {
			t.Errorf("%d and %d NULs have one hash", n, n+1)
		}
	}
}

// TestHashSpreads: ids that differ in one character differ in about half of the
// bits, high and low ones alike.
func TestHashSpreads(t *testing.T) {
	var flips [64]int
	const n = 2000
	for i := range n {
		d := store.Hash("c", fmt.Sprintf("m%d", i)) ^ store.Hash("c", fmt.Sprintf("m%d", i+1))
		for b := range 64 {
			flips[b] += int(d >> b & 1)
		}
	}
	for b, k := range flips {
		if math.Abs(float64(k)/n-0.5) > 0.06 {
			t.Errorf("bit %d flips in %d of %d", b, k, n)
		}
	}
	if bits.OnesCount64(store.Hash("c", "a")^store.Hash("c", "b")) < 16 {
		t.Error("short ids have similar hashes")
	}
}

func TestBucket(t *testing.T) {
	for name, c := range map[string]struct {
		t    time.Time
		want int64
	}{
		"unknown":       {time.Time{}, 0},
		"before 1970":   {time.Unix(-1, 0), 0},
		"the first day": {time.Unix(86399, 999), 0},
		"the second":    {time.Unix(86400, 0), 1},
		"by UTC":        {time.Date(2026, 7, 2, 1, 0, 0, 0, time.FixedZone("", 2*3600)), time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400},
	} {
		if got := store.Bucket(c.t); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestPrint(t *testing.T) {
	p := func(body []byte) store.Fingerprint { return store.Print(&semel.Message{Body: body}) }
	if p(nil) == p([]byte{}) || p(nil) == p([]byte{1}) || p([]byte{}) == p([]byte{0}) {
		t.Error("no body, an empty one and others are not told apart")
	}
	a, b := semel.Message{Body: []byte("x"), Key: "a", Header: semel.Header{{Name: "h"}}}, semel.Message{Body: []byte("x"), Key: "b"}
	if store.Print(&a) != store.Print(&b) {
		t.Error("more than the body counts")
	}
	if got, want := fmt.Sprintf("%x", p([]byte("body"))), "230d8358dc8e8890b4c58deeb62912ee"; got != want {
		t.Errorf("the fingerprint of %q is %s, want %s: it is stored and must not change", "body", got, want)
	}
	if err := quick.Check(func(x, y []byte) bool { return (p(x) == p(y)) == (string(x) == string(y) && (x == nil) == (y == nil)) }, nil); err != nil {
		t.Error(err)
	}
}
