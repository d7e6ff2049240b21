package inbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
)

// records notes what reaches the store. All it is asked about it knows.
type records struct {
	store.Records[string]
	calls []string
	err   error
}

func (r *records) Claim(_ context.Context, tx, consumer string, rs []store.Record, prior []store.Prior) ([]store.Prior, error) {
	r.calls = append(r.calls, "claim "+tx+" "+consumer)
	for _, rec := range rs {
		prior = append(prior, store.Prior{Record: rec})
	}
	return prior, r.err
}

func (r *records) Record(_ context.Context, tx, consumer string, rs []store.Record) error {
	for _, rec := range rs {
		r.calls = append(r.calls, "record "+tx+" "+consumer+" "+rec.ID)
	}
	return r.err
}

// TestOpen: a strategy that remembers asks the store for its consumer in the
// batch's transaction; the others leave the store alone and know nothing.
func TestOpen(t *testing.T) {
	before := []store.Prior{{Record: store.Record{ID: "before"}}}
	rs := []store.Record{{ID: "a"}, {ID: "b"}}
	for _, s := range inbox.All() {
		r := &records{}
		d := inbox.Open(s, "orders", r)
		prior, err := d.Claim(t.Context(), "tx", rs, slices.Clone(before))
		if err = errors.Join(err, d.Amend(t.Context(), "tx", nil), d.Amend(t.Context(), "tx", rs)); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		var ids, wantCalls []string
		for _, p := range prior {
			ids = append(ids, p.ID)
		}
		want := []string{"before"}
		if s.Facts().Remembers {
			want = []string{"before", "a", "b"}
			wantCalls = []string{"claim tx orders", "record tx orders a", "record tx orders b"}
		}
		if !slices.Equal(ids, want) || !slices.Equal(r.calls, wantCalls) {
			t.Errorf("%v: known before %q, calls %q, want %q, %q", s, ids, r.calls, want, wantCalls)
		}
	}
}

// TestOpenFails closed: an error of the store is never taken for "not seen".
func TestOpenFails(t *testing.T) {
	down := errors.New("down")
	d := inbox.Open(inbox.Table, "orders", &records{err: down})
	if _, err := d.Claim(t.Context(), "tx", []store.Record{{ID: "a"}}, nil); !errors.Is(err, down) {
		t.Errorf("Claim: %v", err)
	}
	if err := d.Amend(t.Context(), "tx", []store.Record{{ID: "a"}}); !errors.Is(err, down) {
		t.Errorf("Amend: %v", err)
	}
}
