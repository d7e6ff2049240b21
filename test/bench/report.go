package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// section is one table of the report, with what has to be said about it.
type section struct {
	title, text string
	columns     []string
	rows        [][]string
	goals       []goal
}

func (s *section) row(cells ...string) { s.rows = append(s.rows, cells) }

// relation says on which side of its mark a goal is.
type relation string

const (
	atLeast relation = "≥"
	atMost  relation = "≤"
)

// goal is a figure that was set before it was measured.
type goal struct {
	what string
	got  spread
	is   relation
	mark float64
}

func (s *section) goal(what string, got spread, is relation, mark float64) {
	s.goals = append(s.goals, goal{what, got, is, mark})
}

// verdict: a goal is met if the 95 % interval lies on the good side of the
// mark. An interval that includes the mark decides nothing.
func (g goal) verdict() string {
	good := g.got.low >= g.mark
	if g.is == atMost {
		good = g.got.high <= g.mark
	}
	within := g.got.low <= g.mark && g.mark <= g.got.high
	switch {
	case good:
		return "met"
	case within:
		return "**not decided**"
	}
	return "**not met**"
}

func (g goal) String() string {
	got := g.got.String()
	if g.mark >= 1000 {
		got = ranged(g.got)
	}
	return fmt.Sprintf("Goal: %s %s %s: %s, %s.", g.what, g.is, number(g.mark), got, g.verdict())
}

// markdown writes the section so that it reads well on a terminal too.
func (s section) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", s.title, wrap(s.text, 116))
	b.WriteString(table(s.columns, s.rows))
	if len(s.goals) > 0 {
		b.WriteByte('\n')
	}
	for _, g := range s.goals {
		b.WriteString("* " + strings.ReplaceAll(wrap(g.String(), 114), "\n", "\n  ") + "\n")
	}
	return b.String()
}

// table aligns columns; all but the first to the right.
func table(columns []string, rows [][]string) string {
	width := make([]int, len(columns))
	for _, r := range append([][]string{columns}, rows...) {
		for i, cell := range r {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for i, w := range width {
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(cells[i]))
			if i == 0 {
				b.WriteString("| " + cells[i] + pad + " |")
				continue
			}
			b.WriteString(" " + pad + cells[i] + " |")
		}
		b.WriteByte('\n')
	}
	line(columns)
	for i, w := range width {
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", w+2) + "|")
			continue
		}
		b.WriteString(strings.Repeat("-", w+1) + ":|")
	}
	b.WriteByte('\n')
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// wrap breaks text into lines of at most width runes.
func wrap(text string, width int) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		l := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case n+1+l > width:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += l
	}
	return b.String()
}

// thousands writes a large number with separators, to three figures.
func thousands(f float64) string {
	if math.IsNaN(f) {
		return "?"
	}
	digits := math.Pow(10, max(0, math.Floor(math.Log10(max(f, 1)))-2))
	s := fmt.Sprintf("%.0f", math.Round(f/digits)*digits)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// number writes a mark: 0.95, 64, 1,000,000.
func number(f float64) string {
	if f >= 1000 {
		return thousands(f)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}

// Between these lines of the page the program writes; the rest is a person's.
const (
	pageBegin = "<!-- measured: begin, written by test/bench -->\n"
	pageEnd   = "<!-- measured: end -->\n"
)

// replaceMeasured puts text between the two lines of the page.
func replaceMeasured(page []byte, text string) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(pageBegin))
	_, after, ended := bytes.Cut(rest, []byte(pageEnd))
	if !found || !ended {
		return nil, fmt.Errorf("the page has no place for the measured tables: it needs the lines %q and %q", pageBegin, pageEnd)
	}
	return bytes.Join([][]byte{before, []byte(pageBegin), []byte(text), []byte(pageEnd), after}, nil), nil
}

func ranged(s spread) string {
	return fmt.Sprintf("%s [%s, %s]", thousands(s.mid), thousands(s.low), thousands(s.high))
}
