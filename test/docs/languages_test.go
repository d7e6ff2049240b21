package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLanguages: whoever reads the README in Chinese reads the same README:
// its sections, its code, its tables, and where it leads.
func TestLanguages(t *testing.T) {
	english, chinese := shapeOf(read(t, repository+"/README.md")), shapeOf(read(t, repository+"/README.zh-CN.md"))
	for _, d := range differences(english, chinese) {
		t.Error("README.zh-CN.md is not in step with README.md: " + d)
	}
	if len(english.sections) < 8 || len(english.code) < 3 || len(english.tables) < 5 {
		t.Errorf("README.md has a shape of %d sections, %d blocks of code, %d tables", len(english.sections), len(english.code), len(english.tables))
	}
}

// shape is what does not depend on the language of a page.
type shape struct{ sections, code, tables, links []string }

var (
	remark = regexp.MustCompile(`(?m)\s*(?:#|//) .*$`)
	table  = regexp.MustCompile(`(?m)(?:^\|.*\n)+`)
	// firsts are first cells in code quotes: names, which are not translated.
	firsts = regexp.MustCompile("(?m)^\\| (`[^|]*`)")
)

func shapeOf(text string) shape {
	var s shape
	for l := range prose(text) {
		if level, _, ok := strings.Cut(l, " "); ok && level != "" && strings.Trim(level, "#") == "" {
			s.sections = append(s.sections, level)
		}
	}
	for i, block := range strings.Split("\n"+text, "\n```") {
		if i%2 == 1 {
			s.code = append(s.code, remark.ReplaceAllString(block, ""))
		}
	}
	for _, rows := range table.FindAllString(text, -1) {
		var names []string
		for _, m := range firsts.FindAllStringSubmatch(rows, -1) {
			names = append(names, m[1])
		}
		names = slices.DeleteFunc(names, func(n string) bool { return strings.Contains(n, "、") || strings.Contains(n, ", ") })
		s.tables = append(s.tables, fmt.Sprintf("%d rows, %s", strings.Count(rows, "\n"), strings.Join(names, " ")))
	}
	for _, l := range parse(text).links {
		if !strings.HasPrefix(l, "README") { // each leads to the other one
			s.links = append(s.links, l)
		}
	}
	return s
}

func differences(a, b shape) (all []string) {
	for _, part := range []struct {
		name string
		a, b []string
	}{{"section", a.sections, b.sections}, {"block of code", a.code, b.code}, {"table", a.tables, b.tables}, {"link", a.links, b.links}} {
		for i := range max(len(part.a), len(part.b)) {
			x, y := "(none)", "(none)"
			if i < len(part.a) {
				x = part.a[i]
			}
			if i < len(part.b) {
				y = part.b[i]
			}
			if x != y {
				all = append(all, fmt.Sprintf("%s %d is\n%s\nand should be\n%s", part.name, i+1, y, x))
				break
			}
		}
	}
	return all
}

// TestShape: what may differ, and what may not.
func TestShape(t *testing.T) {
	a := shapeOf("# A\ntext\n```\nmake x # do it\n```\n| a | b |\n|---|---|\n| `x` | why |\n[l](docs/)\n")
	b := shapeOf("# 甲\n文\n```\nmake x # 做\n```\n| 甲 | 乙 |\n|---|---|\n| `x` | 为 |\n[链](docs/)\n")
	if d := differences(a, b); len(d) > 0 {
		t.Errorf("a translation differs: %q", d)
	}
	c := shapeOf("## A\n```\nmake y\n```\n| a | b |\n|---|---|\n| `y` | why |\n[l](docs)\n")
	if d := differences(a, c); len(d) != 4 {
		t.Errorf("%q, want a difference of each kind", d)
	}
}
