package semel_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

func TestClassOf(t *testing.T) {
	cause := io.ErrUnexpectedEOF
	for name, c := range map[string]struct {
		err    error
		class  semel.Class
		marked bool
	}{
		"nil":                {nil, semel.ClassTransient, false},
		"unmarked":           {cause, semel.ClassTransient, false},
		"permanent":          {semel.Permanent(cause), semel.ClassPermanent, true},
		"invalid":            {semel.Invalid(cause), semel.ClassInvalid, true},
		"invalidf":           {semel.Invalidf("field %s: %w", "x", cause), semel.ClassInvalid, true},
		"retry after":        {semel.RetryAfter(cause, time.Second), semel.ClassTransient, true},
		"fault":              {semel.Fault(cause), semel.ClassFault, true},
		"infrastructure":     {semel.Infrastructure(cause), semel.ClassInfrastructure, true},
		"wrapped":            {fmt.Errorf("a: %w", fmt.Errorf("b: %w", semel.Permanent(cause))), semel.ClassPermanent, true},
		"joined":             {errors.Join(errors.New("a"), semel.Permanent(cause)), semel.ClassPermanent, true},
		"outermost":          {semel.Invalid(semel.Permanent(cause)), semel.ClassInvalid, true},
		"in an Error":        {&semel.Error{Stage: "handle", Err: semel.Permanent(cause)}, semel.ClassPermanent, true},
		"tied to a message":  {semel.At(3, semel.Permanent(cause)), semel.ClassPermanent, true},
		"permanent, delayed": {semel.RetryAfter(semel.Permanent(cause), time.Second), semel.ClassTransient, true},
	} {
		class, marked := semel.ClassOf(c.err)
		if class != c.class || marked != c.marked {
			t.Errorf("%s: %s %v, want %s %v", name, class, marked, c.class, c.marked)
		}
		if c.err != nil && !errors.Is(c.err, cause) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
}

func TestMarksOfNil(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": semel.Permanent(nil), "Invalid": semel.Invalid(nil), "RetryAfter": semel.RetryAfter(nil, time.Second),
		"Fault": semel.Fault(nil), "Infrastructure": semel.Infrastructure(nil), "At": semel.At(1, nil),
	} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
}

func TestMarksKeepTheText(t *testing.T) {
	err := errors.New("unknown code")
	for _, marked := range []error{semel.Permanent(err), semel.Invalid(err), semel.RetryAfter(err, 1), semel.Fault(err), semel.Infrastructure(err), semel.At(1, err)} {
		if marked.Error() != err.Error() {
			t.Errorf("%T says %q", marked, marked)
		}
	}
}

func TestDelayOf(t *testing.T) {
	if d, ok := semel.DelayOf(fmt.Errorf("a: %w", semel.RetryAfter(io.EOF, time.Minute))); !ok || d != time.Minute {
		t.Errorf("%v %v", d, ok)
	}
	for _, err := range []error{nil, io.EOF, semel.Permanent(io.EOF), semel.RetryAfter(io.EOF, 0), semel.RetryAfter(io.EOF, -1)} {
		if d, ok := semel.DelayOf(err); ok {
			t.Errorf("%v asks for %v", err, d)
		}
	}
}

func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for c := semel.ClassTransient; c <= semel.ClassFault; c++ {
		seen[c.String()] = true
	}
	if len(seen) != 6 || seen["unknown"] || semel.Class(99).String() != "unknown" {
		t.Errorf("names: %v", seen)
	}
}

func TestEachAt(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nil":            {nil, ""},
		"none":           {a, ""},
		"one":            {semel.At(3, a), "3a"},
		"joined":         {errors.Join(semel.At(2, b), semel.At(0, a)), "2b 0a"},
		"nested joins":   {errors.Join(errors.Join(semel.At(0, a), errors.Join(semel.At(1, b))), semel.At(2, c)), "0a 1b 2c"},
		"wrapped":        {fmt.Errorf("batch: %w", errors.Join(semel.At(1, a), semel.At(4, b))), "1a 4b"},
		"many wrapped":   {fmt.Errorf("%w and %w", semel.At(1, a), fmt.Errorf("then %w", semel.At(2, b))), "1a 2b"},
		"beside others":  {errors.Join(a, semel.At(1, b), c), "1b"},
		"marked":         {semel.At(1, semel.Permanent(a)), "1a"},
		"marked outside": {semel.Permanent(semel.At(1, a)), "1a"},
		"in an Error":    {&semel.Error{Stage: "handle", Err: semel.At(5, a)}, "5a"},
		"twice":          {errors.Join(semel.At(1, a), semel.At(1, b)), "1a 1b"},
		"negative":       {semel.At(-1, a), "-1a"},
	} {
		var got []string
		found := semel.EachAt(test.err, func(i int, err error) { got = append(got, fmt.Sprint(i, err)) })
		want := strings.Fields(test.want)
		for i := range want { // Sprint puts a space between operands that are no strings
			want[i] = want[i][:len(want[i])-1] + " " + want[i][len(want[i])-1:]
		}
		if !slices.Equal(got, want) || found != (len(want) > 0) {
			t.Errorf("%s: %q %v, want %q", name, got, found, want)
		}
	}
}

func TestVerdictsThroughAt(t *testing.T) {
	if err := errors.Join(semel.At(1, fmt.Errorf("state: %w", semel.ErrSuperseded))); !errors.Is(err, semel.ErrSuperseded) {
		t.Error("a verdict is lost")
	}
}

func TestErrorTells(t *testing.T) {
	cause := errors.New("unknown code")
	for want, e := range map[string]*semel.Error{
		"unknown code":                             {Err: cause},
		"handle: unknown code":                     {Stage: "handle", Err: cause},
		"handle: m1: unknown code":                 {Stage: "handle", Message: "m1", Err: cause},
		"handle: m1: unknown code (call somebody)": {Stage: "handle", Message: "m1", Err: cause, Hint: "call somebody"},
	} {
		if e.Error() != want || !errors.Is(e, cause) {
			t.Errorf("%q, want %q", e, want)
		}
	}
}
