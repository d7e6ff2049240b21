package docs_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page shows what a terminal shows. Into the pipe of this test semel writes
// records instead, and this turns the ones that a lesson meets back.

var (
	recordLine  = regexp.MustCompile(`^time=\S+ level=[A-Z]+ (msg=.*)$`)
	recordField = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)`)
)

// onTerminal is output as it is on a terminal, with the live line as a line.
func onTerminal(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if m := recordLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			line = saidOnTerminal(m[1], line)
		}
		b.WriteString(line)
	}
	return b.String()
}

func saidOnTerminal(record, line string) string {
	f := map[string]string{}
	for _, m := range recordField.FindAllStringSubmatch(record, -1) {
		f[m[1]] = m[2]
		if s, err := strconv.Unquote(m[2]); err == nil {
			f[m[1]] = s
		}
	}
	switch f["msg"] {
	case "a new database":
		return f["pipeline"] + ": a new database: " + f["store"] + "\n"
	case "dead letter":
		_, cause, _ := strings.Cut(f["error"], f["message_id"]+": ")
		return f["pipeline"] + ": dead letter: " + f["message_id"] + ": " + cause + "\n"
	case "progress":
		return f["pipeline"] + ": " + f["done"] + " done\n"
	}
	return line
}

func TestOnTerminal(t *testing.T) {
	got := onTerminal(`time=2026-01-01T00:00:00.000Z level=INFO msg="a new database" pipeline=orders store=sqlite:/tmp/x.db
plain
time=2026-01-01T00:00:00.000Z level=WARN msg="dead letter" pipeline=orders message_id=3.json@9:0 reason=invalid error="decode: 3.json@9:0: not \"JSON\""
time=2026-01-01T00:00:00.000Z level=INFO msg=progress pipeline=orders done=7
time=2026-01-01T00:00:00.000Z level=WARN msg=other pipeline=orders
`)
	want := "orders: a new database: sqlite:/tmp/x.db\nplain\norders: dead letter: 3.json@9:0: not \"JSON\"\norders: 7 done\n" +
		"time=2026-01-01T00:00:00.000Z level=WARN msg=other pipeline=orders\n"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
