package semel_test

import (
	"slices"
	"testing"
	"testing/quick"

	"github.com/semel-dev/semel"
)

func TestVerdicts(t *testing.T) {
	seen := map[string]bool{}
	for v := semel.Undecided; v <= semel.Discarded; v++ {
		name := v.String()
		if again, ok := semel.ParseVerdict(name); !ok || again != v || seen[name] {
			t.Errorf("%s: %d %v", name, again, ok)
		}
		seen[name] = true
	}
	if _, ok := semel.ParseVerdict("Applied"); ok || semel.Verdict(99).String() != "unknown" {
		t.Error("names that do not exist are taken")
	}
}

func TestAccount(t *testing.T) {
	check := func(applied, dead, duplicates, taken uint8, missing bool) bool {
		var a semel.Account
		a.Count(semel.Applied, int64(applied)+int64(taken))
		a.Count(semel.Dead, int64(dead))
		a.Count(semel.Duplicate, int64(duplicates))
		a.Count(semel.Undecided, 7) // is not an outcome
		a.Taken = int64(taken)
		a.Received = int64(applied) + int64(dead) + int64(duplicates)
		if missing {
			a.Received++
		}
		var sum semel.Account
		sum.Ties = 3
		sum.Add(a)
		sum.Add(a)
		return a.Balanced() != missing && sum.Decided() == 2*a.Decided() && sum.Balanced() != missing && sum.Ties == 3
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestPositions(t *testing.T) {
	for want, p := range map[string]semel.Position{
		"orders/0@2:17":  {Scope: semel.Scope{Name: "orders/0", Incarnation: "2"}, Offset: semel.Offset{Lo: 17}},
		"orders:0":       {Scope: semel.Scope{Name: "orders"}},
		"ledger@a:3.400": {Scope: semel.Scope{Name: "ledger", Incarnation: "a"}, Offset: semel.Offset{Hi: 3, Lo: 400}},
	} {
		d := semel.Delivery{Position: p}
		if d.Origin() != want {
			t.Errorf("%q, want %q", d.Origin(), want)
		}
	}
}

func TestOrder(t *testing.T) {
	offsets := []semel.Offset{{Hi: -1, Lo: 9}, {Hi: 0, Lo: -1}, {}, {Lo: 1}, {Hi: 1, Lo: -5}, {Hi: 1}}
	if !slices.IsSortedFunc(offsets, semel.Offset.Compare) || (semel.Offset{Lo: 1}).Compare(semel.Offset{Lo: 1}) != 0 {
		t.Error("offsets are not in order")
	}
	scopes := []semel.Scope{{Name: "a"}, {Name: "a", Incarnation: "1"}, {Name: "a", Incarnation: "2"}, {Name: "a-"}, {Name: "b"}}
	if !slices.IsSortedFunc(scopes, semel.Scope.Compare) {
		t.Error("scopes are not in order")
	}
}

func TestHeader(t *testing.T) {
	h := semel.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "b"}}
	if v, ok := h.Get("a"); !ok || string(v) != "1" {
		t.Errorf("%q %v", v, ok)
	}
	if v, ok := h.Get("b"); !ok || v != nil {
		t.Errorf("%q %v", v, ok)
	}
	if _, ok := h.Get("A"); ok {
		t.Error("names are compared as bytes")
	}
}

func TestTraits(t *testing.T) {
	if semel.Positions.Has(semel.StableKeyPartition) || !semel.Positions.Has(semel.ExclusiveScope|semel.StablePosition) || !semel.Trait(0).Has(0) {
		t.Error("sets of traits do not compare")
	}
	seen := map[string]bool{}
	for _, tr := range []semel.Trait{0, semel.StablePosition, semel.ExclusiveScope, semel.InOrderPerScope, semel.StableKeyPartition, semel.Positions} {
		if s := tr.String(); s == "" || seen[s] {
			t.Errorf("%d is called %q", tr, s)
		} else {
			seen[s] = true
		}
	}
}
