package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

const howToList = "add a line for it to the table in internal/archtest/table_test.go that says what it may import"

// direct checks the imports of one file against the table.
func direct(s source) (found []string) {
	from := layerOf(s.dir())
	if from == nil {
		return []string{s.rel + ": package " + s.dir() + " is in no layer: " + howToList}
	}
	for _, spec := range s.file.Imports {
		to, _ := strconv.Unquote(spec.Path.Value)
		rel, ours := relative(to)
		switch {
		case standard(to):
			if to == "testing" && !s.test && !from.testing && from.path != "test/..." {
				found = append(found, fmt.Sprintf("%s: %s → testing: only tests and conformance suites may", s.at(spec.Pos()), s.dir()))
			}
		case !ours && !from.libraries:
			found = append(found, fmt.Sprintf("%s: %s → %s: only the standard library is allowed here, in tests too", s.at(spec.Pos()), s.dir(), to))
		case ours:
			if ok, why := from.allows(s.dir(), rel, s.test); !ok {
				found = append(found, fmt.Sprintf("%s: %s → %s, %s (internal/archtest/table_test.go)", s.at(spec.Pos()), s.dir(), rel, strings.TrimLeft(why, "; ")))
			}
		}
	}
	return found
}

// node is a package as "go list -deps" reports it.
type node struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     *struct {
		Path string
		Main bool
	}
	Error *struct{ Err string }
}

// graph maps import paths to packages.
type graph map[string]node

// chain returns the shortest way from a package to one that bad accepts.
func (g graph) chain(from string, bad func(node) bool) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]].Imports {
			if _, seen := before[to]; seen {
				continue
			}
			before[to] = queue[0]
			if bad(g[to]) {
				return track(before, to)
			}
			queue = append(queue, to)
		}
	}
	return nil
}

func track(before map[string]string, to string) (way []string) {
	for ; to != ""; to = before[to] {
		way = append(way, to)
	}
	slices.Reverse(way)
	return way
}

// reach is a rule about everything that a package pulls in, however far away.
type reach struct {
	from, never func(n node) bool
	why         string
}

// far are the rules that must hold along any chain of imports.
var far = []reach{
	{
		from: func(n node) bool { return n.Module != nil && n.Module.Path == modulePath },
		never: func(n node) bool {
			return !n.Standard && n.ImportPath != "" && (n.Module == nil || n.Module.Path != modulePath)
		},
		why: "the core module builds from the standard library alone",
	},
	{
		from: func(n node) bool {
			l := layerOf(rel(n))
			return l != nil && !l.testing && l.path != "test/..."
		},
		never: func(n node) bool { return n.ImportPath == "testing" },
		why:   "what users link contains no test code",
	},
	{
		from:  in("lag", "reconcile", "semantics", "console"),
		never: func(n node) bool { return in("consumer", "relay", "transform")(n) || adapter(n) },
		why:   "what observes and judges neither connects nor moves messages",
	},
	{
		from:  adapter,
		never: in("inbox", "arbitrate", "outbox", "effect", "letter", "consumer", "relay", "transform", "console"),
		why:   "an adapter knows its SPI, not who uses it",
	},
	{
		from:  func(n node) bool { return adapter(n) && strings.HasPrefix(rel(n), "broker/") },
		never: func(n node) bool { r := rel(n); return r == "store" || strings.HasPrefix(r, "store/") },
		why:   "brokers and stores do not know each other",
	},
}

func rel(n node) string {
	r, ours := relative(n.ImportPath)
	if !ours {
		return "-"
	}
	return r
}

func in(layers ...string) func(node) bool {
	return func(n node) bool {
		l := layerOf(rel(n))
		return l != nil && slices.Contains(layers, l.path)
	}
}

func adapter(n node) bool {
	l := layerOf(rel(n))
	return l != nil && l.adapter
}

// distant checks every package of ours in the graph against the rules of far.
func distant(g graph) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(g)) {
		n := g[name]
		if _, ours := relative(name); !ours {
			continue
		}
		for _, rule := range far {
			if !rule.from(n) {
				continue
			}
			if way := g.chain(name, rule.never); way != nil {
				found = append(found, strings.Join(way, " → ")+": "+rule.why)
			}
		}
	}
	return found
}

func list(t *testing.T) graph {
	t.Helper()
	args := []string{"list", "-e", "-deps", "-json=ImportPath,Imports,Standard,Module,Error"}
	for _, m := range modules(t) {
		args = append(args, m.Dir+"/...")
	}
	g := graph{}
	for _, n := range decodeAll[node](t, goCommand(t, args...)) {
		if n.Error != nil {
			t.Errorf("%s: %s", n.ImportPath, n.Error.Err)
		}
		g[n.ImportPath] = n
	}
	return g
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, problem := range direct(s) {
			t.Error(problem)
		}
	}
}

func TestImportChains(t *testing.T) {
	for _, problem := range distant(list(t)) {
		t.Error(problem)
	}
}

func TestImportsAreRefused(t *testing.T) {
	for _, c := range []struct{ file, imports, want string }{
		{"errors.go", modulePath + "/broker", ". → broker"},
		{"fault/fault.go", modulePath, "fault → ."},
		{"consumer/x.go", modulePath + "/broker/filebroker", "an adapter"},
		{"consumer/x.go", modulePath + "/broker/brokertest", "tests only"},
		{"consumer/internal/lane/x.go", modulePath + "/console", "consumer/internal/lane → console"},
		{"consumer/x_test.go", modulePath + "/store/sqlitestore", "an adapter"},
		{"consumer/x_test.go", "github.com/stretchr/testify/assert", "only the standard library"},
		{"consumer/x.go", "C", "only the standard library"},
		{"inbox/x.go", modulePath + "/broker", "inbox → broker"},
		{"store/sqlstore/x.go", "modernc.org/sqlite", "only the standard library"},
		{"broker/filebroker/x.go", modulePath + "/store", "broker/filebroker → store"},
		{"store/pgstore/x.go", modulePath + "/store/mysqlstore", "an adapter"},
		{"store/pgstore/x_test.go", modulePath + "/store/mysqlstore", "an adapter"},
		{"cmd/semel/internal/cli/x.go", modulePath + "/semeltest", "tests only"},
		{"cmd/semel/internal/cli/x.go", modulePath + "/queue", "not listed"},
		{"semel/x.go", "fmt", howToList},
		{"broker/kafka/x.go", "fmt", howToList},
		{"letter/x.go", "testing", "letter → testing"},
	} {
		if got := direct(imports(t, c.file, c.imports)); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s importing %s: %q, want one problem with %q", c.file, c.imports, got, c.want)
		}
	}
}

func TestImportsAreAllowed(t *testing.T) {
	for _, c := range []struct{ file, imports string }{
		{"errors.go", "errors"},
		{"example_test.go", modulePath + "/consumer"},
		{"store/x.go", modulePath + "/fault"},
		{"consumer/x.go", modulePath + "/arbitrate"},
		{"consumer/x.go", modulePath + "/consumer/internal/lane"},
		{"consumer/x_test.go", modulePath + "/broker/membroker"},
		{"consumer/x_test.go", modulePath + "/semeltest"},
		{"store/sqlitestore/x.go", modulePath + "/store/sqlstore"},
		{"store/sqlitestore/x.go", "modernc.org/sqlite"},
		{"store/sqlitestore/x_test.go", modulePath + "/store/storetest"},
		{"broker/brokertest/x.go", "testing"},
		{"cmd/semel/internal/adapters/sqlite.go", modulePath + "/store/sqlitestore"},
		{"test/inputs/x.go", "testing"},
		{"test/chaos/x.go", modulePath + "/store/storetest"},
		{"examples/flights/layout/main.go", modulePath + "/examples/flights"},
	} {
		if got := direct(imports(t, c.file, c.imports)); len(got) != 0 {
			t.Errorf("%s importing %s: %q", c.file, c.imports, got)
		}
	}
}

func imports(t *testing.T, file, importPath string) source {
	t.Helper()
	return fixture(t, file, "package x\n\nimport _ "+strconv.Quote(importPath)+"\n")
}

func TestChainsAreRefused(t *testing.T) {
	core := node{Module: &struct {
		Path string
		Main bool
	}{Path: modulePath}}
	g := graph{}
	add := func(from string, to ...string) {
		n := core
		n.ImportPath, n.Imports = from, to
		g[from] = n
	}
	m := modulePath + "/"
	add(m+"relay", m+"internal/clock")
	add(m+"internal/clock", "github.com/other/clock")
	g["github.com/other/clock"] = node{ImportPath: "github.com/other/clock"}
	add(m+"lag", m+"internal/tools")
	add(m+"internal/tools", m+"consumer")
	add(m + "consumer")
	add(m+"inbox", "strings", "iotest")
	g["strings"] = node{ImportPath: "strings", Standard: true}
	g["iotest"] = node{ImportPath: "iotest", Standard: true, Imports: []string{"testing"}}
	g["testing"] = node{ImportPath: "testing", Standard: true}
	add(m+"broker/filebroker", m+"internal/rows")
	add(m+"internal/rows", m+"store")
	add(m + "store")
	add(m+"store/brokenstore", m+"letter")
	add(m + "letter")

	got := strings.Join(distant(g), "\n")
	for _, want := range []string{
		m + "relay → " + m + "internal/clock → github.com/other/clock: the core module",
		m + "internal/clock → github.com/other/clock: the core module",
		m + "lag → " + m + "internal/tools → " + m + "consumer: what observes",
		m + "inbox → iotest → testing: what users link",
		m + "broker/filebroker → " + m + "internal/rows → " + m + "store: brokers and stores",
		m + "store/brokenstore → " + m + "letter: an adapter knows",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 6 {
		t.Errorf("%d problems, want 6:\n%s", n, got)
	}
}
