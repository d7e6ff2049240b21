// Package arbitrate is the version axis: of different messages about one key
// the newest wins, whatever order they arrive in, and ties are named instead
// of being decided by chance.
package arbitrate

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Missing says what to do with a message that has no version.
type Missing uint8

const (
	// MissingDead: it becomes a dead letter. The default: a message that
	// cannot be ordered is never taken for the newest.
	MissingDead Missing = iota
	// MissingSuperseded: it counts as older than everything.
	MissingSuperseded
	// MissingApply: it is handled without arbitration and leaves the
	// recorded version alone.
	MissingApply
)

// Policy turns arbitration on. The zero value is off.
type Policy struct {
	On      bool
	Missing Missing
	// Latest hands only the highest version of each key in a batch to the
	// handler; the others are superseded. Without it every version that
	// arrives in order reaches the handler.
	Latest bool
}

// Ruling is the result of comparing a message with the applied version.
type Ruling uint8

const (
	// Newer: it goes to the handler.
	Newer Ruling = iota
	// Older: superseded.
	Older
	// Same: equal version and equal content under another id; superseded.
	Same
	// Raised: the same, with a higher tie value, which has to be recorded:
	// otherwise the order of arrival would decide what wins later.
	Raised
	// TieWon and TieLost: equal version, other content, decided by the tie
	// value; counted and reported.
	TieWon
	TieLost
	// TieOpen: equal version, other content, nothing decides; a dead letter.
	TieOpen
)

// Rule compares a candidate with the applied version of its key; known is
// false if there is none.
func Rule(applied store.Versioned, known bool, candidate store.Versioned) Ruling {
	if !known {
		return Newer
	}
	switch c := cmp.Compare(candidate.Version.N, applied.Version.N); {
	case c > 0:
		return Newer
	case c < 0:
		return Older
	}
	same := candidate.Fingerprint == applied.Fingerprint
	switch c := strings.Compare(candidate.Version.Tie, applied.Version.Tie); {
	case c > 0 && same:
		return Raised
	case same:
		return Same
	case c > 0:
		return TieWon
	case c < 0:
		return TieLost
	}
	return TieOpen
}

// ParseInteger reads a version that counts. Only plain decimal integers are
// taken: a float would merge 9007199254740993 and …992.
func ParseInteger(s string) (semel.Version, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return semel.Version{}, fmt.Errorf("version %q is not an integer of at most 64 bits", clip(s))
	}
	return semel.Version{N: n, Set: true}, nil
}

// layouts in which a time is taken, besides a count since 1970. Zones are
// required: a local time orders wrongly twice a year.
var layouts = [...]string{
	time.RFC3339Nano,
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02T15:04:05.999999999Z0700",
	"2006-01-02 15:04:05.999999999 -0700",
	time.RFC1123Z,
	"Mon, 02 Jan 2006 15:04:05 GMT", // other abbreviations mean what the machine's own zone makes of them
}

// ParseTime reads a version that is a time and returns it in nanoseconds since
// 1970. It takes RFC 3339 with any fraction and zone, RFC 1123, and integers:
// seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by
// size (below 10^11, 10^14, 10^17). Formats may be mixed.
func ParseTime(s string) (semel.Version, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return fromEpoch(n)
	}
	for _, l := range layouts {
		if t, err := time.Parse(l, s); err == nil {
			return fromTime(t, s)
		}
	}
	return semel.Version{}, fmt.Errorf("version %q is not a time with a zone (RFC 3339) nor a number since 1970", clip(s))
}

func fromTime(t time.Time, s string) (semel.Version, error) {
	if y := t.Year(); y < 1678 || y > 2261 {
		return semel.Version{}, fmt.Errorf("version %q is outside the years 1678 to 2261", clip(s))
	}
	return semel.Version{N: t.UnixNano(), Set: true}, nil
}

func fromEpoch(n int64) (semel.Version, error) {
	size := n
	if size < 0 {
		size = -size
	}
	unit := int64(1)
	switch {
	case size < 0: // the most negative integer has no positive twin
		return semel.Version{}, fmt.Errorf("version %d is not a time", n)
	case size < 1e11:
		unit = 1e9
	case size < 1e14:
		unit = 1e6
	case size < 1e17:
		unit = 1e3
	}
	if size > math.MaxInt64/unit {
		return semel.Version{}, fmt.Errorf("version %d, in units of %v, is outside the years 1678 to 2261", n, time.Duration(unit))
	}
	return semel.Version{N: n * unit, Set: true}, nil
}

// TieInteger makes an integer a tie value that compares as a number.
func TieInteger(n int64) string { return fmt.Sprintf("#%020d", uint64(n)+1<<63) }

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
