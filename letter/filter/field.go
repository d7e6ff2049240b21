package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/store"
)

const fieldState = "state"

// field is what can be asked of a letter.
type field struct {
	name string
	ops  []string
	// parse reads a value for the field; nil: any text.
	parse func(string) (value, error)
	is    func(l *store.Letter, now time.Time, op string, i *item) bool
	// push is where a query has the field; nil: it has not.
	push func(*store.Query) *string
	// fixed is the field that says the same by a time; empty: it has no need.
	fixed string
}

// value is what a text means, by the kind of its field.
type value struct {
	states []store.State
	number int64
	span   time.Duration
	time   time.Time
}

var (
	equality = []string{"=", "!="}
	parts    = []string{"~", "!~"}
	order    = []string{"<", "<=", ">", ">="}
	texts    = slices.Concat(equality, parts)
	numbers  = slices.Concat(equality, order)
	all      = slices.Concat(equality, parts, order)
)

// fields is the language.
func fields() []*field {
	return []*field{
		{"class", equality, parseClass, text(func(l *store.Letter) string { return string(l.Class) }), func(q *store.Query) *string { return (*string)(&q.Class) }, ""},
		{fieldState, equality, parseState, inState, nil, ""},
		{"reason", texts, nil, text(func(l *store.Letter) string { return l.Reason }), func(q *store.Query) *string { return &q.Reason }, ""},
		{"error", parts, nil, text(func(l *store.Letter) string { return l.Error }), nil, ""},
		{"type", texts, nil, text(func(l *store.Letter) string { return l.Message.Type }), func(q *store.Query) *string { return &q.Type }, ""},
		{"key", texts, nil, text(func(l *store.Letter) string { return l.Message.Key }), func(q *store.Query) *string { return &q.Key }, ""},
		{"id", texts, nil, text(func(l *store.Letter) string { return l.Message.ID }), func(q *store.Query) *string { return &q.ID }, ""},
		{"group", equality, parseShort, prefix(func(l *store.Letter) string { return l.Cause.ID }), func(q *store.Query) *string { return &q.Cause }, ""},
		{"ref", equality, parseShort, prefix(func(l *store.Letter) string { return l.Ref }), func(q *store.Query) *string { return &q.Ref }, ""},
		{"origin", texts, nil, text(func(l *store.Letter) string { return l.Origin }), nil, ""},
		{"attempts", numbers, parseNumber, number(func(l *store.Letter) int { return l.Attempts }), nil, ""},
		{"seen", numbers, parseNumber, number(func(l *store.Letter) int { return l.Seen }), nil, ""},
		{"age", order, parseSpan, since(func(l *store.Letter) time.Time { return l.Created }), nil, "created"},
		{"idle", order, parseSpan, since(func(l *store.Letter) time.Time { return l.Updated }), nil, "changed"},
		{"created", order, parseTime, when(func(l *store.Letter) time.Time { return l.Created }), nil, ""},
		{"changed", order, parseTime, when(func(l *store.Letter) time.Time { return l.Updated }), nil, ""},
		{"failed", order, parseTime, when(func(l *store.Letter) time.Time { return l.Failed }), nil, ""},
	}
}

// Fields returns the names of the fields, in the order of the documentation. A
// field of the body begins with a dot.
func Fields() (names []string) {
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

type match = func(l *store.Letter, now time.Time, op string, i *item) bool

func text(of func(*store.Letter) string) match {
	return func(l *store.Letter, _ time.Time, op string, i *item) bool { return compareText(of(l), op, i.text) }
}

// compareText knows = and ~.
func compareText(s, op, want string) bool {
	if op == "~" {
		return strings.Contains(strings.ToLower(s), strings.ToLower(want))
	}
	return s == want
}

// prefix is for short ids. None is never meant.
func prefix(of func(*store.Letter) string) match {
	return func(l *store.Letter, _ time.Time, _ string, i *item) bool {
		return of(l) != "" && strings.HasPrefix(of(l), i.text)
	}
}

func number(of func(*store.Letter) int) match {
	return func(l *store.Letter, _ time.Time, op string, i *item) bool {
		return compared(cmp.Compare(int64(of(l)), i.number), op)
	}
}

func since(of func(*store.Letter) time.Time) match {
	return func(l *store.Letter, now time.Time, op string, i *item) bool {
		return compared(cmp.Compare(now.Sub(of(l)), i.span), op)
	}
}

// when is about a time; a letter that has none is not meant.
func when(of func(*store.Letter) time.Time) match {
	return func(l *store.Letter, _ time.Time, op string, i *item) bool {
		return !of(l).IsZero() && compared(of(l).Compare(i.time), op)
	}
}

func inState(l *store.Letter, _ time.Time, _ string, i *item) bool {
	return slices.Contains(i.states, l.State)
}

// compared says whether a comparison that came out as c is what op wants.
func compared(c int, op string) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return c == 0
}

func parseClass(s string) (value, error) {
	classes := []string{string(store.Format), string(store.Business), string(store.System)}
	return value{}, oneOf(s, "class", classes)
}

func oneOf(s, what string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	if near := nearest(s, words); near != "" {
		return fmt.Errorf("did you mean %s? A %s is one of %s", near, what, strings.Join(words, ", "))
	}
	return fmt.Errorf("a %s is one of %s", what, strings.Join(words, ", "))
}

func parseState(s string) (v value, err error) {
	words := []string{"open", "closed"}
	for _, st := range store.States() {
		words = append(words, string(st))
		if s == string(st) || s == "open" && st.Open() || s == "closed" && !st.Open() {
			v.states = append(v.states, st)
		}
	}
	return v, oneOf(s, "state", words)
}

// parseShort takes the beginning of a reference or a group's id.
func parseShort(s string) (value, error) {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return value{}, errors.New("it is made of the letters a to z and the digits 2 to 7")
	}
	return value{}, nil
}

func parseNumber(s string) (value, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return value{}, errors.New("a whole number is needed, such as 3")
	}
	return value{number: n}, nil
}

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// parseSpan reads "90s", "1h30m", "7d".
func parseSpan(s string) (v value, err error) {
	wrong := errors.New("a time span is needed, such as 90s, 1h30m, 7d or 2w")
	rest := s
	for rest != "" {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if n == 0 || n == len(rest) || n > 9 {
			return value{}, wrong
		}
		count, _ := strconv.ParseInt(rest[:n], 10, 64)
		unit, ok := units[rest[n]]
		if !ok || count > (math.MaxInt64-int64(v.span))/int64(unit) {
			return value{}, wrong
		}
		v.span += time.Duration(count) * unit
		rest = rest[n+1:]
	}
	if s == "" {
		return value{}, wrong
	}
	return v, nil
}

// parseTime reads a date (its beginning, UTC) or a time with its zone.
func parseTime(s string) (value, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04Z07:00", time.RFC3339Nano} {
		if t, err := time.Parse(layout, s); err == nil {
			return value{time: t}, nil
		}
	}
	return value{}, errors.New("a time is needed, such as 2026-11-30 or 2026-11-30T22:15:00Z")
}
