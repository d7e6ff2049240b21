package printable_test

import (
	"testing"

	"github.com/semel-dev/semel/internal/printable"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain":            "plain",
		"é 订单":             "é 订单",
		"two\nlines":       "two\nlines",
		"red \x1b[31mtext": `red \x1b[31mtext`,
		"bell\a":           `bell\a`,
		"cr\rover":         `cr\rover`,
		"bad \xff\xfe":     `bad \xff\xfe`,
		"bidi \u202e":      `bidi \u202e`,
		"�":                "�",
	} {
		if got := printable.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	if got := printable.Line("a\nb\x1bc", 100); got != `a | b\x1bc` {
		t.Errorf("%q", got)
	}
	if got := printable.Line("订单订单", 3); got != "订单…" {
		t.Errorf("%q", got)
	}
}
