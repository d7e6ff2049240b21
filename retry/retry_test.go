package retry_test

import (
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/semel-dev/semel/retry"
)

func TestDefaults(t *testing.T) {
	var p retry.Policy
	if p.Attempts() != 5 || p.Longest() != 72*time.Second || p.Span() != 71*time.Second*6/5 {
		t.Errorf("%d attempts, longest %v, span %v", p.Attempts(), p.Longest(), p.Span())
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestNext(t *testing.T) {
	exact := func(p retry.Policy) retry.Policy { p.Jitter = -1; return p }
	two := []time.Duration{time.Second, time.Minute}
	for name, c := range map[string]struct {
		p    retry.Policy
		want []string // after the first, second, … failure
	}{
		"default":             {exact(retry.Policy{}), []string{"now", "1s", "10s", "1m0s", "dead", "dead"}},
		"two at once":         {exact(retry.Policy{Immediate: 2, Delays: two}), []string{"now", "now", "1s", "1m0s", "dead"}},
		"none at once":        {exact(retry.Policy{Immediate: -1, Delays: two}), []string{"1s", "1m0s", "dead"}},
		"no delays":           {exact(retry.Policy{Delays: []time.Duration{}}), []string{"now", "dead"}},
		"dead at first sight": {exact(retry.Policy{Immediate: -1, Delays: []time.Duration{}}), []string{"dead", "dead"}},
	} {
		for i, want := range c.want {
			now, delay, dead := c.p.Next(i + 1)
			got := delay.String()
			switch {
			case now:
				got = "now"
			case dead:
				got = "dead"
			}
			if got != want {
				t.Errorf("%s: after failure %d: %s, want %s", name, i+1, got, want)
			}
		}
		attempts := 0
		for _, w := range c.want {
			if attempts++; w == "dead" {
				break
			}
		}
		if c.p.Attempts() != attempts {
			t.Errorf("%s: %d attempts, want %d", name, c.p.Attempts(), attempts)
		}
	}
}

// TestJitterStaysInBounds, and Longest and Span with it.
func TestJitterStaysInBounds(t *testing.T) {
	check := func(seconds uint16, percent uint8) bool {
		d, j := time.Duration(seconds)*time.Second+time.Second, float64(percent%101)/100
		p := retry.Policy{Immediate: -1, Delays: []time.Duration{d}, Jitter: j}
		if j == 0 {
			j = 0.2
		}
		_, got, _ := p.Next(1)
		most := d + time.Duration(j*float64(d))
		return got >= d && got <= most && p.Longest() == most && p.Span() == most && p.Validate() == nil
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestJitterSpreads(t *testing.T) {
	p := retry.Policy{Immediate: -1, Delays: []time.Duration{time.Hour}, Jitter: 1}
	seen := map[time.Duration]bool{}
	for range 100 {
		_, d, _ := p.Next(1)
		seen[d/(10*time.Minute)] = true
	}
	if len(seen) < 3 {
		t.Errorf("all retries come at about the same time: %v", seen)
	}
}

func TestValidate(t *testing.T) {
	err := retry.Policy{Delays: []time.Duration{time.Second, 0, -1, retry.MaxDelay, retry.MaxDelay + 1}, Jitter: 1.5}.Validate()
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{"delay 2", "delay 3", "delay 5", "jitter is 1.5"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	for _, not := range []string{"delay 1 ", "delay 4"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%v says %q", err, not)
		}
	}
}
