package retry_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/retry"
)

// TestSpan: retention is checked against these sums, so they cover the longest
// jitter, and are exact where there is none.
func TestSpan(t *testing.T) {
	two := []time.Duration{time.Minute, time.Second} // the longest need not be the last
	for name, c := range map[string]struct {
		p             retry.Policy
		attempts      int
		longest, span time.Duration
	}{
		"no jitter":         {retry.Policy{Jitter: -1}, 5, time.Minute, 71 * time.Second},
		"full jitter":       {retry.Policy{Jitter: 1}, 5, 2 * time.Minute, 142 * time.Second},
		"the longest first": {retry.Policy{Delays: two, Jitter: 0.5}, 4, 90 * time.Second, 91500 * time.Millisecond},
		"none at once":      {retry.Policy{Immediate: -7, Delays: two, Jitter: -1}, 3, time.Minute, 61 * time.Second},
		"no delays":         {retry.Policy{Delays: []time.Duration{}}, 2, 0, 0},
		"nothing":           {retry.Policy{Immediate: -1, Delays: []time.Duration{}, Jitter: -1}, 1, 0, 0},
	} {
		if c.p.Attempts() != c.attempts || c.p.Longest() != c.longest || c.p.Span() != c.span {
			t.Errorf("%s: %d attempts, longest %v, span %v, want %d, %v, %v",
				name, c.p.Attempts(), c.p.Longest(), c.p.Span(), c.attempts, c.longest, c.span)
		}
		if err := c.p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
