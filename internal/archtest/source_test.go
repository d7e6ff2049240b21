package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Bounds on size. The first two are for every file and function outside of
// tests, the last two for all functions of the repository taken together.
const (
	maxFile    = 800 // lines
	maxMain    = 30  // lines of cmd/semel/main.go
	maxFunc    = 150 // lines
	maxMethods = 5   // entries of an interface, an embedded one counts as one
	maxMedian  = 10  // lines of a function
	maxPercent = 60  // lines of a function, 95th percentile
)

const (
	// bannedNames say nothing about what is inside of a package.
	bannedNames = "util utils common helper helpers manager service"
	// wellKnown methods mean the same everywhere.
	wellKnown = "Error Unwrap String Read Write ServeHTTP"
)

// exceptions are names that may break the rule given; each with its reason.
var exceptions = map[string]string{
	"fault.hook":    "variable",  // one atomic pointer, nil unless a test armed it
	"store.Backend": "interface", // the sum of the role interfaces, declared for brevity
}

func excepted(dir, name, rule string) bool { return exceptions[path.Base(dir)+"."+name] == rule }

// shape checks what can be said of one file that is not a test's.
func shape(s source) (found []string) {
	problem := func(p token.Pos, format string, args ...any) {
		found = append(found, s.at(p)+": "+fmt.Sprintf(format, args...))
	}
	if s.lines > maxFile {
		problem(s.file.Pos(), "the file has %d lines, at most %d", s.lines, maxFile)
	}
	if s.rel == "cmd/semel/main.go" && s.lines > maxMain {
		problem(s.file.Pos(), "the file has %d lines, at most %d: it only calls what is below internal/", s.lines, maxMain)
	}
	if slices.Contains(strings.Fields(bannedNames), s.file.Name.Name) {
		problem(s.file.Pos(), "package %s: name it after what it is about", s.file.Name.Name)
	}
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if fn.Recv == nil && fn.Name.Name == "init" && !strings.HasPrefix(s.rel, "cmd/") {
			problem(fn.Pos(), "init: let the caller call it")
		}
		if n := length(s, fn); n > maxFunc {
			problem(fn.Pos(), "%s has %d lines, at most %d", fn.Name.Name, n, maxFunc)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if i, ok := spec.Type.(*ast.InterfaceType); ok && len(i.Methods.List) > maxMethods && !excepted(s.dir(), spec.Name.Name, "interface") {
				problem(spec.Pos(), "interface %s has %d methods, at most %d", spec.Name.Name, len(i.Methods.List), maxMethods)
			}
		}
		return true
	})
	return append(found, undocumented(s)...)
}

func length(s source, fn *ast.FuncDecl) int {
	return s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
}

// undocumented finds exported names without a comment. In a group, a comment
// on the group stands for all of it, and any comment for the names it mentions.
func undocumented(s source) (found []string) {
	need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			found = append(found, s.at(name.Pos())+": "+name.Name+" has no comment that says what callers can rely on")
		}
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) && !slices.Contains(strings.Fields(wellKnown), d.Name.Name) {
				need(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			mentioned := mentions(s, d)
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					need(spec.Name, d.Doc, spec.Doc, spec.Comment)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if !mentioned[name.Name] {
							need(name, d.Doc, spec.Doc, spec.Comment)
						}
					}
				}
			}
		}
	}
	return found
}

// mentions returns the words of the comments inside of a declaration.
func mentions(s source, d *ast.GenDecl) map[string]bool {
	words := map[string]bool{}
	for _, c := range s.file.Comments {
		if c.Pos() < d.Pos() || c.End() > d.End() {
			continue
		}
		for _, word := range strings.FieldsFunc(c.Text(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			words[word] = true
		}
	}
	return words
}

// receiver returns the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// packages groups files by directory.
func packages(all []source) map[string][]source {
	p := map[string][]source{}
	for _, s := range all {
		p[s.dir()] = append(p[s.dir()], s)
	}
	return p
}

// unexplained finds packages without a package comment.
func unexplained(dir string, files []source) (found []string) {
	for _, s := range files {
		if s.test || s.file.Doc.Text() != "" {
			continue
		}
		found = append(found, s.rel+": package "+dir+" has no package comment in any file")
	}
	for _, s := range files {
		if !s.test && s.file.Doc.Text() != "" {
			return nil
		}
	}
	return found[:min(len(found), 1)]
}

// typical returns the median and the 95th percentile of the lengths of the
// functions outside of tests.
func typical(all []source) (median, percent int) {
	var lengths []int
	for _, s := range all {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				lengths = append(lengths, length(s, fn))
			}
		}
	}
	if len(lengths) == 0 {
		return 0, 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)/2], lengths[len(lengths)*95/100]
}

func TestSource(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		if !s.test {
			for _, problem := range shape(s) {
				t.Error(problem)
			}
		}
	}
	byDir := packages(all)
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		for _, problem := range append(unexplained(dir, byDir[dir]), variables(byDir[dir])...) {
			t.Error(problem)
		}
	}
	median, percent := typical(all)
	t.Logf("functions: median %d lines, 95th percentile %d", median, percent)
	if median > maxMedian || percent > maxPercent {
		t.Errorf("functions have a median of %d lines and a 95th percentile of %d, at most %d and %d", median, percent, maxMedian, maxPercent)
	}
}

func TestShapeIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"long file":          {"a/x.go", "package a\n" + strings.Repeat("\n", maxFile), "801 lines"},
		"long main":          {"cmd/semel/main.go", "package main\n" + strings.Repeat("\n", maxMain), "31 lines"},
		"long function":      {"a/x.go", "package a\nfunc f() {" + strings.Repeat("\n", maxFunc) + "}\n", "f has 151 lines"},
		"init":               {"a/x.go", "package a\nfunc init() {}\n", "init"},
		"empty name":         {"a/x.go", "package utils\n", "package utils"},
		"wide interface":     {"a/x.go", "package a\ntype t interface { a(); b(); c(); d(); e(); error }\n", "6 methods"},
		"function":           {"a/x.go", "package a\nfunc F() {}\n", "F has no comment"},
		"method":             {"a/x.go", "package a\n// T is.\ntype T[X any] struct{}\nfunc (t *T[X]) M() {}\n", "M has no comment"},
		"type":               {"a/x.go", "package a\ntype T struct{}\n", "T has no comment"},
		"constant":           {"a/x.go", "package a\nconst (\n\t// A is.\n\tA = 1\n\tB = 2\n)\n", "B has no comment"},
		"not mentioned":      {"a/x.go", "package a\nconst (\n\t// A and B are.\n\tA = 1\n\tB = 2\n\tC = 3\n)\n", "C has no comment"},
		"only a build line":  {"a/x.go", "package a\n//go:noinline\nfunc F() {}\n", "F has no comment"},
		"exception by place": {"a/x.go", "package a\ntype Backend interface { a(); b(); c(); d(); e(); error }\n", "6 methods"},
	} {
		got := shape(fixture(t, c.file, c.text))
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: %q, want a problem with %q", name, got, c.want)
		}
	}
}

func TestShapeIsAllowed(t *testing.T) {
	for name, s := range map[string]source{
		"method of a hidden type":  fixture(t, "a/x.go", "package a\ntype t struct{}\nfunc (t t) Error() string { return \"\" }\n"),
		"group comment":            fixture(t, "a/x.go", "package a\n// States.\nconst (\n\tA = 1\n\tB = 2\n)\n"),
		"line comment":             fixture(t, "a/x.go", "package a\nconst (\n\tA = 1 // a\n\tB = 2 // b\n)\n"),
		"mentioned beside another": fixture(t, "a/x.go", "package a\nconst (\n\t// A and B are.\n\tA = 1\n\tB = 2\n)\n"),
		"well-known method":        fixture(t, "a/x.go", "package a\n// E is.\ntype E struct{}\nfunc (E) Error() string { return \"\" }\n"),
		"method called init":       fixture(t, "a/x.go", "package a\ntype t struct{}\nfunc (t t) init() {}\n"),
		"init of a command":        fixture(t, "cmd/semel/x.go", "package main\nfunc init() {}\n"),
		"excepted interface":       fixture(t, "store/store.go", "package store\n// Backend is all.\ntype Backend interface { a(); b(); c(); d(); e(); error }\n"),
	} {
		if got := shape(s); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPackageComments(t *testing.T) {
	if got := unexplained("a", fixtures(t, "a/x.go", "package a\n", "a/x_test.go", "// Not here.\npackage a\n")); len(got) != 1 {
		t.Errorf("no package comment: %q, want one problem", got)
	}
	if got := unexplained("a", fixtures(t, "a/x.go", "package a\n", "a/y.go", "// Package a is.\npackage a\n")); len(got) != 0 {
		t.Errorf("comment in the other file: %q", got)
	}
}

func TestTypical(t *testing.T) {
	var text strings.Builder
	text.WriteString("package a\n")
	for i := range 100 {
		fmt.Fprintf(&text, "func f%d() {%s}\n", i, strings.Repeat("\n", i))
	}
	if median, percent := typical([]source{fixture(t, "a/x.go", text.String())}); median != 51 || percent != 96 {
		t.Errorf("median %d, 95th percentile %d, want 51 and 96", median, percent)
	}
}
