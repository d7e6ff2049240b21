package semel

import "context"

// Join returns an Observer that tells all of them, in order. A context passes
// through them in that order; their ends are called in the reverse one.
func Join(os ...Observer) Observer {
	var j Observer
	for _, o := range os {
		j = Observer{
			Batch: then(j.Batch, o.Batch), Failed: then(j.Failed, o.Failed), Paused: then(j.Paused, o.Paused),
			Scope: thenScope(j.Scope, o.Scope), Unsettled: thenUnsettled(j.Unsettled, o.Unsettled), Phase: then(j.Phase, o.Phase),
			Open: within(j.Open, o.Open, thenEnd), Handle: within(j.Handle, o.Handle, then[error]),
		}
	}
	return j
}

func then[T any](a, b func(T)) func(T) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(t T) { a(t); b(t) }
}

func thenScope(a, b func(Scope, string, error)) func(Scope, string, error) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(s Scope, event string, err error) { a(s, event, err); b(s, event, err) }
}

func thenUnsettled(a, b func(int, error)) func(int, error) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(n int, err error) { a(n, err); b(n, err) }
}

func thenEnd(a, b func(Batch, error)) func(Batch, error) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(x Batch, err error) { a(x, err); b(x, err) }
}

// within calls outer, then inner with the context that outer made, and ends
// them the other way round.
func within[T, End any](outer, inner func(context.Context, T) (context.Context, End), ends func(first, second End) End) func(context.Context, T) (context.Context, End) {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(ctx context.Context, t T) (context.Context, End) {
		ctx, last := outer(ctx, t)
		ctx, first := inner(ctx, t)
		return ctx, ends(first, last)
	}
}
