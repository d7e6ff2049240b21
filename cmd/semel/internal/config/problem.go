package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a file, both counted from 1; the zero Pos means the file
// as a whole.
type Pos struct{ Line, Col int }

// Problem is one thing that is wrong with a pipeline file.
type Problem struct {
	File string
	Pos  Pos
	// What is wrong, and what to do about it; Remedy may be empty.
	What, Remedy string
}

// Error returns "file:line:col: what: remedy" without the parts that are
// empty.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Pos != (Pos{}) {
		fmt.Fprintf(&b, ":%d:%d", p.Pos.Line, p.Pos.Col)
	}
	b.WriteString(": " + p.What)
	if p.Remedy != "" {
		b.WriteString(": " + p.Remedy)
	}
	return b.String()
}

// Problems are all that was found, in the order of the file; what is missing
// comes last, since a misspelt key is often what is missing.
type Problems []Problem

// Error lists them, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) sort() {
	whole := func(p Problem) int {
		if p.Pos == (Pos{}) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(whole(a), whole(b)), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
}

// nearest returns the word of known that s was probably meant to be, or "".
func nearest(s string, known []string) string {
	best, at := "", 1+max(1, len(s)/3)
	for _, k := range known {
		if d := distance(s, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap.
func distance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev2, prev, row = prev, row, prev2
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 0
			if a[i-1] != b[j-1] {
				change = 1
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// suggest is the remedy for a word that is not known.
func suggest(s string, known []string) string {
	if n := nearest(s, known); n != "" {
		return fmt.Sprintf("did you mean %s?", n)
	}
	return "one of " + strings.Join(known, ", ")
}
