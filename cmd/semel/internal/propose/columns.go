package propose

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

func parserOf(asTime bool) func(string) (semel.Version, error) {
	if asTime {
		return arbitrate.ParseTime
	}
	return arbitrate.ParseInteger
}

// Column is a field that is worth a column of a table.
type Column struct {
	// Path and Expr say where its values are.
	Path []string
	Expr string
	// Type is what its values are to a database.
	Type Type
}

// Type is that of a column.
type Type uint8

const (
	// TypeText, TypeInteger (64 bits, also true and false) and TypeReal are
	// what all values of the sample are; TypeAny is for those that differ.
	TypeText Type = iota
	TypeInteger
	TypeReal
	TypeAny
)

// maxColumns is how many are proposed besides those that have to be there, and
// longText the mean length from which on text is not worth a column.
const (
	maxColumns = 8
	longText   = 120
	leastWorth = 30 // of a column, where there is a better one
)

// Columns are the most telling fields in the order of the messages, without
// those of the given expressions.
func (st *Study) Columns(without ...string) []Column {
	var chosen []*field
	for _, f := range st.fields {
		if !slices.Contains(without, f.expr) && f.mean() <= longText {
			chosen = append(chosen, f)
		}
	}
	ranked := slices.Clone(chosen)
	slices.SortStableFunc(ranked, func(a, b *field) int { return cmp.Compare(st.worth(b), st.worth(a)) })
	ranked = ranked[:min(len(ranked), maxColumns)]
	if best := slices.IndexFunc(ranked, func(f *field) bool { return st.worth(f) < leastWorth }); best > 0 {
		ranked = ranked[:best]
	}
	var columns []Column
	for _, f := range chosen {
		if slices.Contains(ranked, f) {
			columns = append(columns, f.column())
		}
	}
	return columns
}

// worth ranks a field as a column: there in many messages, not deep, not
// always the same, no address of something else, and not about who did it,
// which is often a person.
func (st *Study) worth(f *field) int {
	w := 100*f.present/max(1, len(st.docs)) - 15*len(f.path)
	if len(f.values) == 1 && st.contents >= 50 {
		w -= 60
	}
	if f.kinds == kindText && strings.Contains(f.values[0], "://") {
		w -= 60
	}
	for _, name := range f.path[:max(0, len(f.path)-1)] {
		if oneOf(last(wordsOf(name)), actors) {
			w -= 40
		}
	}
	return w
}

// mean is the mean length of the values in bytes.
func (f *field) mean() int {
	n := 0
	for _, v := range f.values {
		n += len(v)
	}
	return n / max(1, len(f.values))
}

func (f *field) column() Column { return Column{f.path, f.expr, f.columnType()} }

// columnType is what the pipeline's parameters bind the values as.
func (f *field) columnType() Type {
	switch {
	case f.kinds == kindText:
		return TypeText
	case f.kinds == kindBool:
		return TypeInteger
	case f.kinds&(kindText|kindBool) != 0:
		return TypeAny
	}
	t := TypeInteger
	for _, v := range f.values {
		switch message.Param(json.Number(v)).(type) {
		case int64:
		case float64:
			t = TypeReal
		default:
			return TypeAny
		}
	}
	return t
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted is "1 message", "2 messages".
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if s, ok := strings.CutSuffix(one, "y"); ok {
		return thousands(n) + " " + s + "ies"
	}
	return thousands(n) + " " + one + "s"
}
