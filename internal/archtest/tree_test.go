package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// source is one Go file. Build tags are not looked at: the rules hold on
// every system.
type source struct {
	rel   string // of the file, with slashes
	test  bool
	lines int
	fset  *token.FileSet
	file  *ast.File
}

func (s source) dir() string { return path.Dir(s.rel) }

// at names a place for people: "consumer/batch.go:12".
func (s source) at(p token.Pos) string {
	return s.rel + ":" + itoa(s.fset.Position(p).Line)
}

// parse reads one file; all files of a package need the same fset.
func parse(fset *token.FileSet, rel string, src []byte) (source, error) {
	s := source{rel: rel, test: strings.HasSuffix(rel, "_test.go"), lines: bytes.Count(src, []byte("\n")), fset: fset}
	var err error
	s.file, err = parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

// root is the directory of the workspace.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.work here or above: run the tests in a clone of the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// walk calls fn for every file of the repository that could matter.
func walk(t *testing.T, root string, fn func(rel string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a temporary file of somebody else's test
			}
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "bin", "dist"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		fn(filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources parses every Go file of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	dir, fset := root(t), token.NewFileSet()
	var all []source
	walk(t, dir, func(rel string) {
		if !strings.HasSuffix(rel, ".go") {
			return
		}
		src, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(rel)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(fset, rel, src)
		if err != nil {
			t.Errorf("%s does not parse: %v", rel, err)
			return
		}
		all = append(all, s)
	})
	return all
}

// fixture parses a file that exists only here.
func fixture(t *testing.T, rel, text string) source {
	t.Helper()
	return fixtures(t, rel, text)[0]
}

// fixtures parses files given as name, text, name, text…
func fixtures(t *testing.T, namesAndTexts ...string) (all []source) {
	t.Helper()
	fset := token.NewFileSet()
	for pair := range slices.Chunk(namesAndTexts, 2) {
		s, err := parse(fset, pair[0], []byte(pair[1]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// goCommand runs the go command at the root of the workspace.
func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
		}
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// decodeAll reads the values that the go command prints one after the other.
func decodeAll[T any](t *testing.T, out []byte) []T {
	t.Helper()
	var all []T
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var v T
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
}
