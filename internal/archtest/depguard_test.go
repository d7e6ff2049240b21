package archtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the depguard rules of .golangci.yml from the table")

const (
	begin = "        # BEGIN rules from internal/archtest/table_test.go: go test ./internal/archtest -run Depguard -write\n"
	end   = "        # END rules from internal/archtest/table_test.go\n"
)

// depguard renders the table for golangci-lint, so that editors mark a
// forbidden import where it is typed. Tests get one rule of their own that is
// wider than the table; the tests here are exact.
func depguard() string {
	var b strings.Builder
	outside := []string{"$test"}
	for i, l := range table {
		if l.libraries {
			outside = append(outside, not(globs(l.path))...)
		}
		if l.path == "test/..." {
			continue // may import anything
		}
		files := append(globs(l.path), "!$test")
		for _, earlier := range table[:i] {
			if matches(l.path, earlier.path) {
				files = append(files, not(globs(earlier.path))...)
			}
		}
		writeRule(&b, ruleName(l.path), files, l.libraries, l.allowList(), l.denyList())
	}
	writeRule(&b, "tests of modules without libraries", outside, false, []string{modulePath}, nil)
	return b.String()
}

// ruleName avoids dots, which the reader of the file takes apart.
func ruleName(pattern string) string {
	if pattern == "." {
		return "root"
	}
	return strings.TrimSuffix(pattern, "/...")
}

// writeRule writes a rule that allows the standard library, or any library,
// and of ours what is in allow. In depguard the more specific entry wins.
func writeRule(b *strings.Builder, name string, files []string, libraries bool, allow, deny []string) {
	mode := "strict"
	if libraries {
		mode = "lax"
	} else {
		allow = append([]string{"$gostd"}, allow...)
	}
	fmt.Fprintf(b, "        %q:\n          list-mode: %s\n", name, mode)
	writeList(b, "files", files)
	writeList(b, "allow", allow)
	if len(deny) > 0 {
		b.WriteString("          deny:\n")
	}
	for _, d := range deny {
		fmt.Fprintf(b, "            - {pkg: %q, desc: %q}\n", d, "see internal/archtest/table_test.go")
	}
}

func writeList(b *strings.Builder, name string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "          %s:\n", name)
	}
	for _, item := range items {
		fmt.Fprintf(b, "            - %q\n", item)
	}
}

// allowList returns the imports of ours that the layer may have: exact ones
// end in "$", trees in "/".
func (l layer) allowList() []string {
	if slices.Contains(l.may, "...") {
		if l.libraries {
			return nil // nothing but the deny list says no
		}
		return []string{modulePath}
	}
	list := []string{modulePath + "/fault$"}
	for _, pattern := range l.may {
		tree, isTree := strings.CutSuffix(pattern, "/...")
		switch {
		case pattern == ".":
			list = append(list, modulePath+"$")
		case isTree:
			list = append(list, modulePath+"/"+tree+"/")
		default:
			list = append(list, modulePath+"/"+pattern+"$")
		}
	}
	if !strings.ContainsAny(l.path, "*.") {
		list = append(list, modulePath+"/"+l.path+"/internal/")
	}
	return list
}

// denyList returns the imports of ours that need an explicit no.
func (l layer) denyList() (list []string) {
	if !slices.Contains(l.may, "...") {
		if l.libraries {
			return []string{modulePath}
		}
		return nil
	}
	for _, other := range table {
		if other.testing {
			list = append(list, modulePath+"/"+other.path)
		}
	}
	return list
}

// globs returns the files that a pattern of the table covers.
func globs(pattern string) []string {
	const base = "${config-path}/"
	if tree, ok := strings.CutSuffix(pattern, "..."); ok {
		return []string{base + tree + "**.go"}
	}
	if pattern == "." {
		return []string{base + "*.go"}
	}
	return []string{base + pattern + "/*.go", base + pattern + "/internal/**.go"}
}

func not(globs []string) (negated []string) {
	for _, g := range globs {
		negated = append(negated, "!"+g)
	}
	return negated
}

func TestDepguard(t *testing.T) {
	file := filepath.Join(root(t), ".golangci.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf(".golangci.yml has lost the lines that enclose the rules:\n%s%s", begin, end)
	}
	want := before + begin + depguard() + end + after
	if want == string(text) {
		return
	}
	if !*write {
		t.Fatal("the depguard rules of .golangci.yml are not those of the table: go test ./internal/archtest -run Depguard -write")
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
