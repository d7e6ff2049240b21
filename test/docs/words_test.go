package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
)

// TestWords: the reference explains every word that results and letters use.
func TestWords(t *testing.T) {
	page := read(t, repository+"/docs/reference/errors.md")
	words := reasons(t)
	for v := semel.Applied; v.String() != "unknown"; v++ {
		words = append(words, v.String())
	}
	for _, s := range []store.State{store.StateRetry, store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved,
		store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded} {
		words = append(words, string(s))
	}
	for _, w := range words {
		if !strings.Contains(page, "`"+w+"`") {
			t.Errorf("docs/reference/errors.md does not explain %q", w)
		}
	}
	for c := semel.ClassTransient; c.String() != "unknown"; c++ {
		if !strings.Contains(page, "\n| "+c.String()+" |") {
			t.Errorf("docs/reference/errors.md does not explain errors of class %s", c)
		}
	}
}

// reasons are the words that the pipeline writes into letters, as its source
// has them: they are no type of their own.
func reasons(t *testing.T) (words []string) {
	t.Helper()
	files, err := filepath.Glob(repository + "/consumer/*.go")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`(?:bury\(store\.\w+, |refuse\(it, |cause\{store\.\w+, |store\.System, |class, why = [^\n]*, )"([a-z ]+)"`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range word.FindAllSubmatch(b, -1) {
			words = append(words, string(m[1]))
		}
	}
	if len(words) < 7 {
		t.Fatalf("only %q found in the pipeline's source: has it changed its shape?", words)
	}
	return append(words, "invalid", "malformed", "repaired", "in doubt")
}

// TestStrategies: the pages that compare the strategies have all of them.
func TestStrategies(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh-CN.md", "docs/explanation/five-solutions.md", "docs/reference/pipeline.md"} {
		text := read(t, filepath.Join(repository, page))
		for _, s := range inbox.All() {
			if !strings.Contains(text, "`"+s.String()+"`") {
				t.Errorf("%s does not name %s", page, s)
			}
		}
	}
}
