// Package filter is the language in which people say which letters they mean.
//
// A filter is terms, separated by blanks, all of which have to be true:
//
//	class=system state=dead,edited error~timeout age>1h .order.total>100
//
// A term is a field, an operator and a value, without blanks between them. A
// value with blanks, commas or quotes stands in double quotes, in which \"
// and \\ have their meaning as in JSON. Values separated by commas behind =
// and != are alternatives. The word "and" between terms is allowed.
//
//	class      = !=         format, business, system
//	state      = !=         dead, edited, …; open and closed stand for several
//	reason, type, key, id, origin
//	           = !=         the whole text
//	           ~ !~         a part of it, upper and lower case alike
//	error      ~ !~         a part of the error's text
//	group, ref = !=         the beginning of the short id
//	attempts, seen
//	           = != < <= > >=   a number
//	age, idle  < <= > >=    how long ago it was parked, or changed: 90s, 1h30m, 7d
//	created, changed, failed
//	           < <= > >=    a time: 2026-11-30, 2026-11-30T22:15:00Z
//	.a.b       = != < <= > >= ~ !~   a field of a JSON body; ."odd name" works, too
//
// Numbers in bodies are compared by their exact decimal value. A field that is
// missing is null; "!=" and "!~" are the opposites of "=" and "~".
package filter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/semel-dev/semel/store"
)

// Filter is a parsed filter. It is not changed after it was made and is safe
// for concurrent use. nil, like the empty text, selects all letters.
type Filter struct {
	text  string
	terms []term
}

// term is one condition.
type term struct {
	field *field // nil: path is a field of the body
	path  []string
	op    string
	items []item // alternatives; one except behind = and !=
	at    int    // where it begins and ends
	end   int
}

// item is one value.
type item struct {
	text   string
	quoted bool
	value
}

// String returns the text of the filter.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Empty reports whether there are no terms.
func (f *Filter) Empty() bool { return f == nil || len(f.terms) == 0 }

// Query returns what a store selects by itself, states being those that are
// meant if the filter says nothing of states. exact: that is the whole of the
// filter; otherwise the letters still have to be asked with Match.
func (f *Filter) Query(consumer string, states []store.State) (q store.Query, exact bool) {
	q, exact = store.Query{Consumer: consumer, States: states}, true
	if f == nil {
		return q, true
	}
	if said, ok := f.states(); ok {
		q.States = said
	}
	for i := range f.terms {
		t := &f.terms[i]
		q.Bodies = q.Bodies || t.field == nil
		exact = t.pushed(&q) && exact
	}
	return q, exact
}

// states are those that the terms about states leave over, if there are any.
func (f *Filter) states() (left []store.State, said bool) {
	left = store.States()
	for i := range f.terms {
		t := &f.terms[i]
		if t.field != nil && t.field.name == fieldState {
			said = true
			left = slices.DeleteFunc(left, func(s store.State) bool { return !t.match(&store.Letter{State: s}, time.Time{}) })
		}
	}
	return left, said
}

// pushed puts the term into a query if the query can say it all.
func (t *term) pushed(q *store.Query) bool {
	if t.field == nil {
		return false
	}
	if t.field.name == fieldState {
		return len(q.States) > 0 // a query without states means all of them
	}
	if t.op != "=" || len(t.items) != 1 || t.field.push == nil {
		return false
	}
	to, value := t.field.push(q), t.items[0].text
	if value == "" {
		return false // to a query that is no condition
	}
	if *to != "" && *to != value {
		return false // the same field twice: the query keeps the first
	}
	*to = value
	return true
}

// At returns the text with ages turned into times, so that it means the same
// letters later. now is what ages are counted from.
func (f *Filter) At(now time.Time) string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	last := 0
	for i := range f.terms {
		t := &f.terms[i]
		if t.field == nil || t.field.fixed == "" {
			continue
		}
		op := strings.NewReplacer("<", ">", ">", "<").Replace(t.op)
		b.WriteString(f.text[last:t.at] + t.field.fixed + op + now.Add(-t.items[0].span).UTC().Format(time.RFC3339Nano))
		last = t.end
	}
	return b.String() + f.text[last:]
}

// Match reports whether the letter is meant. Its body is needed if Query says
// so; now is what ages are counted from.
func (f *Filter) Match(l *store.Letter, now time.Time) bool {
	if f == nil {
		return true
	}
	for i := range f.terms {
		if !f.terms[i].match(l, now) {
			return false
		}
	}
	return true
}

func (t *term) match(l *store.Letter, now time.Time) bool {
	op, negated := t.op, false
	if op[0] == '!' {
		op, negated = op[1:], true
	}
	is := slices.ContainsFunc(t.items, func(i item) bool {
		if t.field == nil {
			return i.ofBody(l.Message.Body, t.path, op)
		}
		return t.field.is(l, now, op, &i)
	})
	return is != negated
}

// Error says what is wrong with a filter, where, and what to do.
type Error struct {
	// Text is the filter, At the byte in it.
	Text string
	At   int
	// Msg says what is wrong, Remedy what would be right.
	Msg, Remedy string
}

// shown is how much of a filter an error shows around the place.
const shown = 60

// Error points at the place in a second and third line, if it is on one.
func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("filter: %s: %s", e.Msg, e.Remedy)
	}
	what := fmt.Sprintf("filter, character %d: %s: %s", utf8.RuneCountInString(e.Text[:e.At])+1, e.Msg, e.Remedy)
	from, to := max(0, e.At-shown/2), min(len(e.Text), e.At+shown/2)
	line := e.Text[from:to]
	if !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return what
	}
	return fmt.Sprintf("%s\n%s\n%s^", what, line, strings.Repeat(" ", utf8.RuneCountInString(line[:e.At-from])))
}

// nearest is the one of words that w may be meant to be; empty: none.
func nearest(w string, words []string) string {
	best, least := "", min(3, 1+len(w)/3)
	for _, o := range words {
		if d := distance(w, o); d < least || d == least && best != "" && cmp.Compare(o, best) < 0 {
			best, least = o, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
