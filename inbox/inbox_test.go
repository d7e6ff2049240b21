package inbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/inbox"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]inbox.Strategy{
		"table": inbox.Table, "position": inbox.Position, "unique-key": inbox.UniqueKey, "upsert": inbox.Upsert,
	} {
		if got, err := inbox.Parse(name); err != nil || got != want || got.String() != name {
			t.Errorf("Parse(%q) = %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "Table", " table", "uniquekey", "redis"} {
		_, err := inbox.Parse(name)
		if err == nil {
			t.Errorf("Parse(%q) found a strategy", name)
			continue
		}
		for _, s := range inbox.All() {
			if !strings.Contains(err.Error(), s.String()) {
				t.Errorf("Parse(%q): error %q does not name %s", name, err, s)
			}
		}
	}
}

// TestFacts: the documentation is made of them, so each strategy says all of
// it, and under a name of its own.
func TestFacts(t *testing.T) {
	all := inbox.All()
	if len(all) != 4 || all[0] != inbox.Table {
		t.Fatalf("strategies %v, want four, the default first", all)
	}
	names := map[string]bool{}
	for _, s := range all {
		f := s.Facts()
		for what, text := range map[string]string{
			"Name": f.Name, "Record": f.Record, "Protects": f.Protects, "Not": f.Not, "Condition": f.Condition, "Cost": f.Cost,
		} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("strategy %v does not state %s", s, what)
			}
		}
		if names[f.Name] {
			t.Errorf("two strategies are called %s", f.Name)
		}
		names[f.Name] = true
		if f.Remembers != (s == inbox.Table) {
			t.Errorf("strategy %v: remembers ids: %t", s, f.Remembers)
		}
	}
	if got := inbox.Strategy(len(all)).Facts(); got != (inbox.Facts{}) {
		t.Errorf("an unknown strategy has facts: %+v", got)
	}
}

// TestFit tries every strategy with every set of traits.
func TestFit(t *testing.T) {
	undemanding := []inbox.Strategy{inbox.Table, inbox.UniqueKey, inbox.Upsert}
	for have := range semel.Trait(16) {
		for _, s := range undemanding {
			if err := inbox.Fit(s, have); err != nil {
				t.Errorf("%v with a source of %v: %v", s, have, err)
			}
		}
		err := inbox.Fit(inbox.Position, have)
		missing := semel.Positions &^ have
		if missing == 0 {
			if err != nil {
				t.Errorf("position with a source of %v: %v", have, err)
			}
			continue
		}
		var unfit *inbox.UnfitError
		if !errors.As(err, &unfit) {
			t.Errorf("position with a source of %v: %v, want an *UnfitError", have, err)
			continue
		}
		if unfit.Strategy != inbox.Position || unfit.Missing != missing || !slices.Equal(unfit.Fit, undemanding) {
			t.Errorf("position with a source of %v: %+v, want %v missing and %v to choose from", have, *unfit, missing, undemanding)
		}
		for _, part := range []string{"position", missing.String(), "table, unique-key, upsert"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
	}
}
