package config

import (
	"os"
	"strings"
	"testing"
)

const page = "../../../../docs/reference/pipeline.md"

// TestTheReferencePage: its example is a good file, and it has every key.
func TestTheReferencePage(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	_, example, ok := strings.Cut(text, "```yaml\n")
	example, _, end := strings.Cut(example, "```")
	if !ok || !end {
		t.Fatal("the page has no example")
	}
	if _, err := load(t, example, options()); err != nil {
		t.Errorf("the example of %s:\n%v", page, err)
	}
	for _, key := range append(keys, "id", "key", "schema", "filter", "max_bytes", "max_depth", "version", "as", "tie", "missing", "latest", "retry.immediate", "retry.delays") {
		if !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "`"+key+":`") && !strings.Contains(text, "`"+key+".") && key != "message" {
			t.Errorf("%s does not explain %q", page, key)
		}
	}
}
