package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// TestPipelines: every whole pipeline that a page shows is one that semel
// accepts, statements included.
func TestPipelines(t *testing.T) {
	semel := rig.Program(t, "cmd/semel")
	found := 0
	for page := range documents(t) {
		if !strings.HasPrefix(page, "docs/") {
			continue
		}
		for _, block := range fenced(read(t, filepath.Join(repository, page)), "yaml") {
			if !strings.HasPrefix(block, "name:") {
				continue
			}
			found++
			dir := t.TempDir()
			file := filepath.Join(dir, "pipeline.yaml")
			if err := os.WriteFile(file, []byte(block), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "inbox"), 0o777); err != nil {
				t.Fatal(err)
			}
			e := rig.Run(t, rig.Command{Path: semel, Dir: dir, Args: []string{"run", file, "--check", "--source", "directory:.", "--store", "sqlite:x.db"}})
			if e.Code != 0 {
				t.Errorf("%s: %v\n%s", page, e, block)
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d pipelines found", found)
	}
}

// fenced returns the blocks of a page in a language.
func fenced(text, language string) (blocks []string) {
	_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
	for ok {
		var block string
		block, rest, _ = strings.Cut(rest, "```")
		blocks = append(blocks, block)
		_, rest, ok = strings.Cut(rest, "\n```"+language+"\n")
	}
	return blocks
}
