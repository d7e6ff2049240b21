package arbitrate_test

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/quick"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/store"
)

func versioned(n int64, tie string, print byte) store.Versioned {
	return store.Versioned{Version: semel.Version{N: n, Tie: tie, Set: true}, Fingerprint: store.Fingerprint{print}}
}

func TestRule(t *testing.T) {
	for name, c := range map[string]struct {
		applied, candidate store.Versioned
		known              bool
		want               arbitrate.Ruling
	}{
		"the first":                  {versioned(9, "", 1), versioned(1, "", 2), false, arbitrate.Newer},
		"newer":                      {versioned(1, "z", 1), versioned(2, "a", 2), true, arbitrate.Newer},
		"older":                      {versioned(2, "a", 1), versioned(1, "z", 2), true, arbitrate.Older},
		"older though alike":         {versioned(2, "", 1), versioned(1, "", 1), true, arbitrate.Older},
		"zero after minus one":       {versioned(-1, "", 1), versioned(0, "", 2), true, arbitrate.Newer},
		"extremes":                   {versioned(math.MaxInt64, "", 1), versioned(math.MinInt64, "", 2), true, arbitrate.Older},
		"same":                       {versioned(1, "", 1), versioned(1, "", 1), true, arbitrate.Same},
		"same with a lower tie":      {versioned(1, "b", 1), versioned(1, "a", 1), true, arbitrate.Same},
		"same with a higher tie":     {versioned(1, "a", 1), versioned(1, "b", 1), true, arbitrate.Raised},
		"tie won":                    {versioned(1, "a", 1), versioned(1, "b", 2), true, arbitrate.TieWon},
		"tie lost":                   {versioned(1, "b", 1), versioned(1, "a", 2), true, arbitrate.TieLost},
		"tie won against none":       {versioned(1, "", 1), versioned(1, "a", 2), true, arbitrate.TieWon},
		"tie lost with none":         {versioned(1, "a", 1), versioned(1, "", 2), true, arbitrate.TieLost},
		"tie open":                   {versioned(1, "", 1), versioned(1, "", 2), true, arbitrate.TieOpen},
		"tie open with equal values": {versioned(1, "a", 1), versioned(1, "a", 2), true, arbitrate.TieOpen},
		"ties are bytes":             {versioned(1, "9", 1), versioned(1, "10", 2), true, arbitrate.TieLost},
	} {
		if got := arbitrate.Rule(c.applied, c.known, c.candidate); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestRuleIsFair: of two different messages one wins against the other and the
// other does not win against it, whatever order they come in.
func TestRuleIsFair(t *testing.T) {
	wins := func(r arbitrate.Ruling) bool {
		return r == arbitrate.Newer || r == arbitrate.TieWon || r == arbitrate.Raised
	}
	check := func(a, b int8, s, u string, p, q bool) bool {
		x, y := versioned(int64(a%3), s, 1), versioned(int64(b%3), u, 1)
		if p != q {
			y.Fingerprint[0] = 2
		}
		r, back := arbitrate.Rule(x, true, y), arbitrate.Rule(y, true, x)
		if r == back {
			return r == arbitrate.Same || r == arbitrate.TieOpen
		}
		return wins(r) != wins(back)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

func TestParseInteger(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "-7": -7, "+7": 7, "007": 7, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "9007199254740993": 9007199254740993} {
		v, err := arbitrate.ParseInteger(s)
		if err != nil || v != (semel.Version{N: want, Set: true}) {
			t.Errorf("%q: %+v %v", s, v, err)
		}
	}
	for _, s := range []string{"", " 1", "1 ", "1.0", "1e3", "0x10", "1_000", "9223372036854775808", "-9223372036854775809", "true", "null", "١"} {
		if v, err := arbitrate.ParseInteger(s); err == nil || v.Set {
			t.Errorf("%q is taken for %+v", s, v)
		}
	}
}

// TestParseTime: the formats in which one service alone writes its times, and
// others, for one and the same moment.
func TestParseTime(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 34, 56, 0, time.UTC)
	for _, s := range []string{
		"2026-07-01T12:34:56Z", "2026-07-01T12:34:56.000Z", "2026-07-01T05:34:56-07:00", "1782909296", // in events of one hook
		"2026-07-01T12:34:56+00:00", "2026-07-01 12:34:56Z", "2026-07-01 14:34:56+02:00", "2026-07-01T14:34:56+0200",
		"2026-07-01 05:34:56 -0700", "Wed, 01 Jul 2026 12:34:56 GMT", "Wed, 01 Jul 2026 05:34:56 -0700",
		"1782909296000", "1782909296000000", "1782909296000000000",
	} {
		v, err := arbitrate.ParseTime(s)
		if err != nil || v != (semel.Version{N: at.UnixNano(), Set: true}) {
			t.Errorf("%q: %+v %v, want %d", s, v, err, at.UnixNano())
		}
	}
}

func TestParseTimeKeepsFractions(t *testing.T) {
	in := []string{
		"2026-07-01T12:34:56Z", "2026-07-01T12:34:56.000000001Z", "2026-07-01T12:34:56.1Z", "1782909296200",
		"2026-07-01T14:34:56.25+0200", "1782909296300000", "1782909296400000001", "2026-07-01 12:34:56.5Z", "1782909297",
	}
	var ns []int64
	for _, s := range in {
		v, err := arbitrate.ParseTime(s)
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, v.N)
	}
	if !slices.IsSorted(ns) || len(slices.Compact(ns)) != len(in) {
		t.Errorf("the order of mixed formats is lost: %v", ns)
	}
}

func TestParseTimeRefuses(t *testing.T) {
	for _, s := range []string{
		"", "now", "2026-07-01", "12:34:56", "2026-07-01T12:34:56", "2026-07-01 12:34:56", // no zone: wrong twice a year
		"2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "1677-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
		"1e9", "1782909296.5", "-9223372036854775808", "9223372037", "99999999999", "9223372036854775808", "Wed, 01 Jul 2026 12:34:56 XYZT1",
		"Mon, 30 Apr 2018 17:38:19 EST", "Mon, 30 Apr 2018 17:38:19 CET", // which zone that is, every machine decides for itself
	} {
		if v, err := arbitrate.ParseTime(s); err == nil || v.Set {
			t.Errorf("%q is taken for %+v", s, v)
		}
	}
}

// TestParseTimeTellsUnitsApart by size, on both sides of 1970; what does not fit
// is refused, not wrapped around.
func TestParseTimeTellsUnitsApart(t *testing.T) {
	for n, want := range map[int64]int64{
		0: 0, 1: 1e9, -1: -1e9, 9_223_372_036: 9_223_372_036e9, -9_223_372_036: -9_223_372_036e9,
		1e11: 1e17, 9_223_372_036_854: 9_223_372_036_854e6, 1e14: 1e17, 9_223_372_036_854_775: 9_223_372_036_854_775e3,
		1e17: 1e17, math.MaxInt64: math.MaxInt64, -math.MaxInt64: -math.MaxInt64,
	} {
		if v, err := arbitrate.ParseTime(strconv.FormatInt(n, 10)); err != nil || v.N != want {
			t.Errorf("%d: %d %v, want %d", n, v.N, err, want)
		}
	}
	for _, n := range []int64{9_223_372_037, 1e11 - 1, 9_223_372_036_855, 1e14 - 1, 9_223_372_036_854_776, 1e17 - 1, math.MinInt64} {
		for _, n := range []int64{n, -n} {
			if v, err := arbitrate.ParseTime(strconv.FormatInt(n, 10)); err == nil {
				t.Errorf("%d is taken for %d", n, v.N)
			}
		}
	}
}

// TestParseTimeIsMonotone: a later count of one unit is never an earlier time.
func TestParseTimeIsMonotone(t *testing.T) {
	for _, unit := range []struct{ from, to int64 }{{0, 1e11}, {1e11, 1e14}, {1e14, 1e17}, {1e17, math.MaxInt64}} {
		check := func(x, y uint64) bool {
			a, b := unit.from+int64(x%uint64(unit.to-unit.from)), unit.from+int64(y%uint64(unit.to-unit.from))
			va, errA := arbitrate.ParseTime(strconv.FormatInt(a, 10))
			vb, errB := arbitrate.ParseTime(strconv.FormatInt(b, 10))
			return errA != nil || errB != nil || (a < b) == (va.N < vb.N)
		}
		if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
			t.Errorf("%d to %d: %v", unit.from, unit.to, err)
		}
	}
}

func TestTieInteger(t *testing.T) {
	order := []int64{math.MinInt64, -10, -9, -1, 0, 1, 9, 10, 99, 100, math.MaxInt64}
	var ties []string
	for _, n := range order {
		ties = append(ties, arbitrate.TieInteger(n))
	}
	if !slices.IsSorted(ties) || len(slices.Compact(slices.Clone(ties))) != len(order) {
		t.Errorf("ties do not compare as numbers: %q", ties)
	}
	if err := quick.Check(func(a, b int64) bool { return (a < b) == (arbitrate.TieInteger(a) < arbitrate.TieInteger(b)) }, nil); err != nil {
		t.Error(err)
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2026-07-01T12:34:56Z", "1782909296", "-1", "9223372036854775807", "Wed, 01 Jul 2026 12:34:56 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := arbitrate.ParseTime(s)
		if (err == nil) != v.Set {
			t.Errorf("%q: %+v %v", s, v, err)
		}
		if again, err2 := arbitrate.ParseTime(s); again != v || (err == nil) != (err2 == nil) {
			t.Errorf("%q: %+v, then %+v", s, v, again)
		}
	})
}
