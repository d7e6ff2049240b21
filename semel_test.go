package semel_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// TestC5VerdictsDiffer: a miss of a state machine, a stale read and a repeat
// are different answers.
func TestC5VerdictsDiffer(t *testing.T) {
	verdicts := []error{semel.ErrDuplicate, semel.ErrSuperseded, semel.ErrFiltered, semel.ErrStale}
	for i, a := range verdicts {
		for j, b := range verdicts {
			if got := errors.Is(fmt.Errorf("order 7: %w", a), b); got != (i == j) {
				t.Errorf("%q is %q: %t", a, b, got)
			}
		}
		if class, marked := semel.ClassOf(a); marked {
			t.Errorf("%q is marked as %v", a, class)
		}
	}
}

// TestC5VerdictsKeepTheirMeaning under every mark and index.
func TestC5VerdictsKeepTheirMeaning(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"Permanent": semel.Permanent, "Invalid": semel.Invalid, "Fault": semel.Fault,
		"RetryAfter": func(err error) error { return semel.RetryAfter(err, time.Second) },
		"At":         func(err error) error { return semel.At(0, err) },
		"Error":      func(err error) error { return &semel.Error{Stage: "handle", Err: err} },
	} {
		if !errors.Is(mark(semel.ErrSuperseded), semel.ErrSuperseded) || errors.Is(mark(semel.ErrSuperseded), semel.ErrStale) {
			t.Errorf("%s hides a verdict, or makes another of it", name)
		}
	}
}

// TestTheOuterMarkDecides: who wraps an error knows more than who made it.
func TestTheOuterMarkDecides(t *testing.T) {
	asked := semel.RetryAfter(errors.New("busy"), time.Minute)
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"longer":   {semel.RetryAfter(asked, time.Hour), time.Hour},
		"shorter":  {fmt.Errorf("a: %w", semel.RetryAfter(fmt.Errorf("b: %w", asked), time.Second)), time.Second},
		"indexed":  {semel.At(1, asked), time.Minute},
		"given up": {semel.Permanent(asked), 0},
		"no delay": {semel.RetryAfter(asked, 0), 0},
	} {
		if d, ok := semel.DelayOf(c.err); d != c.want || ok != (c.want > 0) {
			t.Errorf("%s: %v, %t, want %v", name, d, ok, c.want)
		}
	}
}

// TestEachAtStopsAtAnIndex: what is tied to a message is that message's, marks
// and all; an index within does not name another one.
func TestEachAtStopsAtAnIndex(t *testing.T) {
	inner := errors.Join(semel.At(0, errors.New("a")), semel.At(1, semel.Permanent(errors.New("b"))))
	calls := 0
	semel.EachAt(errors.Join(errors.New("other"), errors.Join(semel.At(7, inner))), func(i int, err error) {
		calls++
		if class, _ := semel.ClassOf(err); i != 7 || err.Error() != "a\nb" || class != semel.ClassPermanent {
			t.Errorf("message %d: %v of class %v", i, err, class)
		}
	})
	if calls != 1 {
		t.Errorf("%d errors are found, want 1", calls)
	}
}

// TestAccountByVerdict: each verdict takes its place in the balance, and what is not
// decided has none.
func TestAccountByVerdict(t *testing.T) {
	for v := semel.Applied; v <= semel.Discarded; v++ {
		var a semel.Account
		a.Received, a.Taken = 2, 1
		a.Count(v, 2)
		if a.Balanced() || a.Decided() != 2 {
			t.Errorf("%s: 3 came, 2 are decided: balanced %t, decided %d", v, a.Balanced(), a.Decided())
		}
		a.Count(v, 1)
		if !a.Balanced() {
			t.Errorf("%s: 3 came, 3 are decided: not balanced", v)
		}
		a.Count(v, 1)
		if a.Balanced() {
			t.Errorf("%s: 3 came, 4 are decided: balanced", v)
		}
	}
	a := semel.Account{Received: 1}
	a.Count(semel.Undecided, 1)
	if a.Balanced() || a.Decided() != 0 {
		t.Error("an undecided message counts as decided")
	}
	if !new(semel.Account).Balanced() {
		t.Error("an empty account is not balanced")
	}
}

// TestScopeOrderIsTotal: the order in which rows are locked must be total, and by
// bytes.
func TestScopeOrderIsTotal(t *testing.T) {
	sorted := []semel.Scope{
		{}, {Incarnation: "9"}, {Name: "B"}, {Name: "a"}, {Name: "a", Incarnation: "1"}, {Name: "a", Incarnation: "10"},
		{Name: "a", Incarnation: "2"}, {Name: "a-1"}, {Name: "a0"}, {Name: "é"}, {Name: "\xff"},
	}
	compareAll(t, sorted, semel.Scope.Compare)
}

func TestOffsetOrderIsTotal(t *testing.T) {
	sorted := []semel.Offset{{Hi: -1, Lo: 9}, {Lo: -1}, {}, {Lo: 1}, {Lo: 2}, {Lo: 10}, {Hi: 1, Lo: -5}, {Hi: 1}, {Hi: 2}}
	compareAll(t, sorted, semel.Offset.Compare)
}

func compareAll[T any](t *testing.T, sorted []T, compare func(T, T) int) {
	t.Helper()
	for i, a := range sorted {
		for j, b := range sorted {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := compare(a, b); got != want {
				t.Errorf("%+v against %+v: %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestTraitSets(t *testing.T) {
	for want, tr := range map[string]semel.Trait{
		"none":                 0,
		"stable position":      semel.StablePosition,
		"exclusive scope":      semel.ExclusiveScope,
		"in order per scope":   semel.InOrderPerScope,
		"stable key partition": semel.StableKeyPartition,
		"stable position, exclusive scope, in order per scope": semel.Positions,
		"exclusive scope, stable key partition":                semel.StableKeyPartition | semel.ExclusiveScope,
	} {
		if got := tr.String(); got != want {
			t.Errorf("trait %b is written %q, want %q", tr, got, want)
		}
	}
	for have := range semel.Trait(16) {
		for want := range semel.Trait(16) {
			if have.Has(want) != (have|want == have) {
				t.Errorf("%v has %v: %t", have, want, have.Has(want))
			}
		}
	}
}
