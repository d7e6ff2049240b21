package docs_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// repository is where the pages lie, seen from here.
const repository = "../.."

// document is a Markdown file: what it links to, and what can be linked to.
type document struct {
	links   []string
	anchors []string
}

// documents returns every Markdown file of the repository by its path in it.
func documents(t *testing.T) map[string]document {
	t.Helper()
	docs := map[string]document{}
	root := os.DirFS(repository)
	err := fs.WalkDir(root, ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" || e.Name() == "dist"):
			return fs.SkipDir
		case !e.IsDir() && path.Ext(p) == ".md":
			docs[p] = parse(read(t, filepath.Join(repository, p)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 20 {
		t.Fatalf("only %d Markdown files below %s", len(docs), repository)
	}
	return docs
}

var (
	link    = regexp.MustCompile(`!?\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\)|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()]*\))?[^()\s]*)(?:\s+"[^"]*")?\)`)
	source  = regexp.MustCompile(`(?:src|srcset|href)="([^"]*)"`)
	code    = regexp.MustCompile("`+[^`]*`+")
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	target  = regexp.MustCompile(`(?:id|name)="([^"]*)"`)
)

func parse(text string) document {
	var d document
	for l := range prose(text) {
		if m := heading.FindStringSubmatch(l); m != nil {
			d.anchors = append(d.anchors, unique(d.anchors, anchor(m[1])))
		}
		for _, m := range target.FindAllStringSubmatch(l, -1) {
			d.anchors = append(d.anchors, m[1])
		}
		bare := code.ReplaceAllStringFunc(l, func(s string) string { return strings.Repeat("x", len(s)) })
		for _, m := range slices.Concat(link.FindAllStringSubmatch(bare, -1), source.FindAllStringSubmatch(bare, -1)) {
			d.links = append(d.links, m[1])
		}
	}
	return d
}

// prose yields the lines that are not in a fenced block.
func prose(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		fence := ""
		for l := range strings.Lines(text) {
			l = strings.TrimRight(l, "\r\n")
			mark := strings.TrimLeft(l, " ")
			switch {
			case fence != "":
				if strings.HasPrefix(mark, fence) && strings.Trim(mark, "`~ ") == "" {
					fence = ""
				}
			case strings.HasPrefix(mark, "```"), strings.HasPrefix(mark, "~~~"):
				fence = mark[:3]
			default:
				if !yield(l) {
					return
				}
			}
		}
	}
}

// anchor is the fragment that GitHub gives a heading.
func anchor(title string) string {
	title = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.ReplaceAll(title, "`", ""))
}

// unique numbers an anchor that is there already, as GitHub does.
func unique(have []string, a string) string {
	for i, try := 1, a; ; i++ {
		if !slices.Contains(have, try) {
			return try
		}
		try = fmt.Sprintf("%s-%d", a, i)
	}
}

// resolve returns the path in the repository and the fragment that a link of
// the page means; ok is false for links to elsewhere.
func resolve(page, link string) (to, fragment string, ok bool) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return "", "", false
	}
	to = page
	if u.Path != "" {
		to = path.Join(path.Dir(page), u.Path)
	}
	return to, u.Fragment, true
}

// TestLinks: what a page links to is there, down to the heading.
func TestLinks(t *testing.T) {
	docs := documents(t)
	links := 0
	for page, d := range docs {
		for _, problem := range broken(page, d, docs) {
			t.Error(problem)
		}
		links += len(d.links)
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}

func broken(page string, d document, docs map[string]document) (problems []string) {
	for _, l := range d.links {
		to, fragment, ok := resolve(page, l)
		if !ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s is not there", page, l))
			continue
		}
		if other, isPage := docs[to]; fragment != "" && isPage && !slices.Contains(other.anchors, fragment) {
			problems = append(problems, fmt.Sprintf("%s: %s has no heading %q; it has %q", page, to, fragment, other.anchors))
		}
	}
	return problems
}

// TestTables: every row has the cells of its header; a bar in code makes one
// more if it is not escaped, and the reader loses the last.
func TestTables(t *testing.T) {
	for page := range documents(t) {
		for _, problem := range crooked(read(t, filepath.Join(repository, page))) {
			t.Errorf("%s: %s", page, problem)
		}
	}
}

func crooked(text string) (problems []string) {
	cells := 0
	for l := range prose(text) {
		if !strings.HasPrefix(l, "|") {
			cells = 0
			continue
		}
		n := strings.Count(l, "|") - strings.Count(l, `\|`)
		if cells == 0 {
			cells = n
		}
		if n != cells {
			problems = append(problems, fmt.Sprintf("%d cells, the header has %d: %s", n-1, cells-1, l))
		}
	}
	return problems
}

// TestEveryPageIsReachable: whoever starts at the entrance finds every page of
// docs by following links.
func TestEveryPageIsReachable(t *testing.T) {
	docs := documents(t)
	seen := reachable("docs/README.md", docs)
	for page := range docs {
		if strings.HasPrefix(page, "docs/") && !seen[page] {
			t.Errorf("no way leads from docs/README.md to %s", page)
		}
	}
}

// reachable follows the links of pages below docs; README.md and its like link
// everywhere and would hide a page that the entrance forgot.
func reachable(page string, docs map[string]document) map[string]bool {
	seen, todo := map[string]bool{}, []string{page}
	for len(todo) > 0 {
		page, todo = todo[0], todo[1:]
		if seen[page] || !strings.HasPrefix(page, "docs/") {
			continue
		}
		seen[page] = true
		for _, l := range docs[page].links {
			to, _, ok := resolve(page, l)
			if info, err := os.Stat(filepath.Join(repository, to)); ok && err == nil && info.IsDir() {
				to = path.Join(to, "README.md")
			}
			if _, isPage := docs[to]; ok && isPage {
				todo = append(todo, to)
			}
		}
	}
	return seen
}

// TestCheckersOfPages: the checks above find what they are there for.
func TestCheckersOfPages(t *testing.T) {
	page := "# One\n\n## A `b`, c!\n## A `b`, c!\n[x](other.md#gone) ![y](none.svg) `[not](a-link)` [z](#a-b-c-1) [w](https://example.org/a)\n```\n# no heading\n[no](link.md)\n```\n"
	d := parse(page)
	if want := []string{"one", "a-b-c", "a-b-c-1"}; !slices.Equal(d.anchors, want) {
		t.Errorf("anchors %q, want %q", d.anchors, want)
	}
	if got := crooked("| a | b |\n|---|---|\n| `x\\|y` | z |\n| `x|y` | z |\n"); len(got) != 1 {
		t.Errorf("crooked rows %q, want the last", got)
	}
	docs := map[string]document{"docs/goals.md": d, "docs/benchmarks.md": {}}
	if seen := reachable("docs/goals.md", docs); seen["docs/benchmarks.md"] {
		t.Error("a page is reachable without a link")
	}
	d.links = append(d.links, "benchmarks.md#gone")
	docs["docs/goals.md"] = d
	if got := broken("docs/goals.md", d, docs); len(got) != 3 {
		t.Errorf("%q, want other.md, none.svg and a heading", got)
	}
	if seen := reachable("docs/goals.md", docs); !seen["docs/benchmarks.md"] {
		t.Error("a page is not reachable by a link")
	}
}
