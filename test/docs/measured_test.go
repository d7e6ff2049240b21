package docs_test

import (
	"os"
	"strings"
	"testing"
)

const (
	benchmarks = repository + "/docs/benchmarks.md"
	solutions  = repository + "/docs/explanation/five-solutions.md"
)

// TestMeasured keeps the numbers of the comparison those of the benchmarks.
// With -args -write it copies them.
func TestMeasured(t *testing.T) {
	text := read(t, solutions)
	begin, end := "<!-- measured: begin, from docs/benchmarks.md -->\n", "<!-- measured: end -->"
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the table", solutions)
	}
	want := head + begin + measured(t, read(t, benchmarks)) + end + tail
	if want == text {
		return
	}
	if !*write {
		t.Fatalf("%s does not say what the benchmarks say; run: make fmt", solutions)
	}
	if err := os.WriteFile(solutions, []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
}

// measured is the first table of the benchmarks and what it was measured on.
func measured(t *testing.T, page string) string {
	t.Helper()
	_, page, ok := strings.Cut(page, "<!-- measured: begin")
	machine, ladder, ok2 := strings.Cut(page, "\n### SQLite: what dedup costs\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no table of what dedup costs", benchmarks)
	}
	var lines []string
	for l := range strings.Lines(machine) {
		if strings.HasPrefix(l, "* Date:") || strings.HasPrefix(l, "* CPU:") {
			lines = append(lines, l)
		}
	}
	lines = append(lines, "\n")
	rows := 0
	for l := range strings.Lines(ladder) {
		if strings.HasPrefix(l, "|") {
			lines = append(lines, l)
			rows++
		} else if rows > 0 {
			break
		}
	}
	if rows < 4 {
		t.Fatalf("%s has a table of %d lines", benchmarks, rows)
	}
	return strings.Join(lines, "")
}
