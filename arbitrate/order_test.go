package arbitrate_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/store"
)

// TestA3Order: whatever order the messages of a key arrive in, repeats
// included, the same one is in force at the end.
func TestA3Order(t *testing.T) {
	for name, ms := range map[string][]store.Versioned{
		"versions":              {versioned(1, "", 'a'), versioned(2, "", 'b'), versioned(3, "", 'c'), versioned(4, "", 'd')},
		"signs":                 {versioned(-2, "", 'a'), versioned(0, "", 'b'), versioned(-1, "", 'c'), versioned(1, "", 'd')},
		"ties":                  {versioned(1, "x", 'a'), versioned(1, "y", 'b'), versioned(1, "", 'c'), versioned(0, "z", 'd')},
		"a copy raises its tie": {versioned(1, "x", 'a'), versioned(1, "z", 'a'), versioned(1, "y", 'b')},
		"two contents, raised":  {versioned(1, "v", 'a'), versioned(1, "w", 'b'), versioned(1, "x", 'a'), versioned(1, "y", 'b'), versioned(1, "z", 'a')},
		"copies and repeats":    {versioned(2, "x", 'a'), versioned(2, "x", 'a'), versioned(2, "w", 'b'), versioned(1, "z", 'c'), versioned(2, "", 'a')},
		"open below the newest": {versioned(1, "", 'a'), versioned(1, "", 'b'), versioned(2, "", 'c')},
	} {
		want := slices.MaxFunc(ms, func(a, b store.Versioned) int {
			return cmp.Or(cmp.Compare(a.Version.N, b.Version.N), strings.Compare(a.Version.Tie, b.Version.Tie))
		})
		permutations(ms, func(order []store.Versioned) {
			if got := fold(order); got != want {
				t.Errorf("%s: %v is in force after %v, want %v", name, got, order, want)
			}
		})
	}
}

// fold keeps what the rulings say is to be kept.
func fold(ms []store.Versioned) (applied store.Versioned) {
	known := false
	for _, m := range ms {
		switch arbitrate.Rule(applied, known, m) {
		case arbitrate.Newer, arbitrate.Raised, arbitrate.TieWon:
			applied, known = m, true
		}
	}
	return applied
}

func permutations(ms []store.Versioned, fn func([]store.Versioned)) {
	ms = slices.Clone(ms)
	var from func(int)
	from = func(k int) {
		if k == len(ms) {
			fn(ms)
			return
		}
		for i := k; i < len(ms); i++ {
			ms[k], ms[i] = ms[i], ms[k]
			from(k + 1)
			ms[k], ms[i] = ms[i], ms[k]
		}
	}
	from(0)
}

// TestA3TimesOfOneProducer: one producer of webhooks writes times in these four
// forms; as versions they are in the order of what happened.
func TestA3TimesOfOneProducer(t *testing.T) {
	last := int64(0)
	for _, c := range []struct {
		s    string
		want time.Time
	}{
		{"1525109899", time.Date(2018, 4, 30, 17, 38, 19, 0, time.UTC)},
		{"2019-05-15T15:20:33Z", time.Date(2019, 5, 15, 15, 20, 33, 0, time.UTC)},
		{"2021-08-19T12:16:32.000-04:00", time.Date(2021, 8, 19, 16, 16, 32, 0, time.UTC)},
		{"2022-01-03T01:27:48.000Z", time.Date(2022, 1, 3, 1, 27, 48, 0, time.UTC)},
	} {
		v, err := arbitrate.ParseTime(c.s)
		if err != nil || v != (semel.Version{N: c.want.UnixNano(), Set: true}) || v.N <= last {
			t.Errorf("%q: %+v, %v, want %d, above %d", c.s, v, err, c.want.UnixNano(), last)
		}
		last = v.N
	}
}

// TestRefusalsNameTheValue, as far as it can be read: whoever repairs the
// message has to find it.
func TestRefusalsNameTheValue(t *testing.T) {
	for name, parse := range map[string]func(string) (semel.Version, error){"integer": arbitrate.ParseInteger, "time": arbitrate.ParseTime} {
		for _, s := range []string{"", "1.5", "2019-05-15T15:20:33", "99999999999999999999"} {
			if _, err := parse(s); err == nil || !strings.Contains(err.Error(), `"`+s+`"`) {
				t.Errorf("%s %q: %v", name, s, err)
			}
		}
		if _, err := parse(strings.Repeat("x", 1<<16)); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s: the error about an endless version is missing, or endless itself", name)
		}
	}
}
