package semel_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/semel-dev/semel"
)

type nameKey struct{}

// recorder notes what it is told under its name, and adds the name to contexts.
func recorder(name string, notes *[]string) semel.Observer {
	note := func(what string) { *notes = append(*notes, name+" "+what) }
	within := func(ctx context.Context) context.Context {
		before, _ := ctx.Value(nameKey{}).(string)
		return context.WithValue(ctx, nameKey{}, before+name)
	}
	return semel.Observer{
		Batch:     func(semel.Batch) { note("batch") },
		Failed:    func(semel.Failure) { note("failed") },
		Paused:    func(error) { note("paused") },
		Scope:     func(_ semel.Scope, event string, _ error) { note(event) },
		Unsettled: func(int, error) { note("unsettled") },
		Phase:     func(p semel.Phase) { note(p.String()) },
		Open: func(ctx context.Context, _ semel.Opening) (context.Context, func(semel.Batch, error)) {
			note("open")
			return within(ctx), func(semel.Batch, error) { note("end") }
		},
		Handle: func(ctx context.Context, _ *semel.Message) (context.Context, func(error)) {
			note("handle")
			return within(ctx), func(error) { note("handled") }
		},
	}
}

// TestJoin: all are told in order, contexts nest, and ends come in the reverse
// order.
func TestJoin(t *testing.T) {
	var notes []string
	o := semel.Join(recorder("a", &notes), semel.Observer{}, recorder("b", &notes))
	o.Batch(semel.Batch{})
	o.Failed(semel.Failure{})
	o.Paused(errors.New("x"))
	o.Scope(semel.Scope{}, "left", nil)
	o.Unsettled(1, nil)
	o.Phase(semel.Draining)
	ctx, end := o.Open(t.Context(), semel.Opening{})
	ctx, handled := o.Handle(ctx, &semel.Message{})
	if got := ctx.Value(nameKey{}); got != "abab" {
		t.Errorf("context passed through %v, want abab", got)
	}
	handled(nil)
	end(semel.Batch{}, nil)
	want := []string{"a batch", "b batch", "a failed", "b failed", "a paused", "b paused", "a left", "b left", "a unsettled", "b unsettled",
		"a draining", "b draining", "a open", "b open", "a handle", "b handle", "b handled", "a handled", "b end", "a end"}
	if !slices.Equal(notes, want) {
		t.Errorf("%q\nwant %q", notes, want)
	}
}

// TestJoinOfNothing has no hooks, so it costs nothing. An end may be missing.
func TestJoinOfNothing(t *testing.T) {
	o := semel.Join(semel.Observer{}, semel.Observer{})
	if o.Batch != nil || o.Failed != nil || o.Paused != nil || o.Scope != nil || o.Unsettled != nil || o.Phase != nil || o.Open != nil || o.Handle != nil {
		t.Errorf("%+v, want no hooks", o)
	}
	var notes []string
	endless := semel.Observer{Open: func(ctx context.Context, _ semel.Opening) (context.Context, func(semel.Batch, error)) {
		return ctx, nil
	}}
	_, end := semel.Join(endless, recorder("a", &notes)).Open(t.Context(), semel.Opening{})
	end(semel.Batch{}, nil)
	if _, end = semel.Join(endless, endless).Open(t.Context(), semel.Opening{}); end != nil || !slices.Equal(notes, []string{"a open", "a end"}) {
		t.Errorf("%q, and an end of nothing", notes)
	}
}
