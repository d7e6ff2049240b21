package archtest

import (
	"path"
	"strings"
)

const modulePath = "github.com/semel-dev/semel"

// layer says what the packages of one pattern may import. A package may import
// what is below its own internal/, and in a "/..." tree any other of the tree.
type layer struct {
	// path is relative to the repository, "." for its root. It covers the
	// package and what is below its internal/; "/..." at the end covers the
	// whole tree; "*" stands for a part of one name. The first layer of the
	// table that matches a package is its layer.
	path string
	// may lists patterns of our packages it may import besides fault, which
	// everybody may.
	may []string
	// libraries: may import other people's modules. All others keep to the
	// standard library, in their tests too.
	libraries bool
	// adapter: only cmd, test and examples import it, others if they list it.
	adapter bool
	// testing: imports package testing; only tests import it.
	testing bool
}

// table is the only place where a new package is listed.
var table = []layer{
	{path: "."},
	{path: "fault"},
	{path: "retry", may: []string{"."}},
	{path: "cloudevents", may: []string{"."}},
	{path: "state", may: []string{"."}},
	{path: "broker", may: []string{"."}},
	{path: "store", may: []string{"."}},

	{path: "letter", may: []string{".", "store", "retry"}},
	{path: "letter/filter", may: []string{".", "store"}},
	{path: "inbox", may: []string{".", "store"}},
	{path: "arbitrate", may: []string{".", "store"}},
	{path: "outbox", may: []string{".", "store"}},
	{path: "effect", may: []string{".", "store"}},
	{path: "idempotency", may: []string{".", "store", "effect"}},

	{path: "consumer", may: pipeline},
	{path: "relay", may: pipeline},
	{path: "transform", may: pipeline},

	{path: "lag", may: []string{".", "broker", "store"}},
	{path: "reconcile", may: []string{".", "broker", "store"}},
	{path: "semantics", may: []string{".", "broker", "store", "inbox"}},
	{path: "observe", may: []string{".", "broker", "store", "internal/..."}},
	{path: "telemetry", may: []string{".", "observe"}, libraries: true},
	{path: "console", may: []string{".", "broker", "store", "letter", "lag", "reconcile", "semantics"}},
	{path: "verify", may: []string{".", "broker", "store", "consumer", "relay", "reconcile"}},

	{path: "broker/brokertest", may: []string{".", "broker"}, testing: true},
	{path: "broker/membroker", may: []string{".", "broker", "internal/..."}},
	{path: "broker/filebroker", may: []string{".", "broker", "internal/..."}, adapter: true},
	{path: "broker/*broker", may: []string{".", "broker", "internal/..."}, adapter: true, libraries: true},

	{path: "store/storetest", may: []string{".", "store"}, testing: true},
	{path: "store/memstore", may: []string{".", "store", "internal/..."}},
	{path: "store/sqlstore", may: []string{".", "store", "internal/..."}, adapter: true},
	{path: "store/searchstore", may: []string{".", "store", "internal/..."}, adapter: true},
	{path: "store/redisstore", may: []string{".", "store", "internal/..."}, adapter: true, libraries: true},
	{path: "store/*store", may: []string{".", "store", "store/sqlstore", "internal/..."}, adapter: true, libraries: true},

	{path: "semeltest", testing: true, may: []string{".", "broker", "store", "retry", "letter", "inbox", "arbitrate", "consumer",
		"broker/membroker", "store/memstore"}},

	{path: "internal/archtest", may: nil},
	{path: "internal/trap", may: []string{"fault"}},
	{path: "internal/printable"},
	{path: "internal/...", may: []string{"."}},
	{path: "examples/...", may: []string{"..."}},
	{path: "cmd/semel/...", may: []string{"..."}, libraries: true},
	{path: "test/...", may: []string{"..."}, libraries: true},
}

// pipeline is what moves messages may import.
var pipeline = []string{".", "broker", "store", "retry", "letter", "inbox", "arbitrate", "outbox", "effect"}

// matches reports whether a pattern covers the package at rel.
func matches(pattern, rel string) bool {
	if pattern == "..." {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return rel == tree || strings.HasPrefix(rel, tree+"/")
	}
	ok, _ := path.Match(pattern, owner(rel))
	return ok
}

// owner is the package that a package below its internal/ belongs to.
func owner(rel string) string {
	own, _, _ := strings.Cut(rel+"/", "/internal/")
	return strings.TrimSuffix(own, "/")
}

// layerOf returns the layer of the package at rel, nil if none is listed.
func layerOf(rel string) *layer {
	for _, l := range table {
		if matches(l.path, rel) {
			return &l
		}
	}
	return nil
}

// relative turns an import path into one relative to the repository. ours is
// false for packages of others.
func relative(importPath string) (rel string, ours bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// standard reports whether the import path is one of the standard library.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") && importPath != "C"
}

// allows says whether a file of the layer, in the package at from, may import
// what lies at rel, and if not, why. test says that it is a file of a test.
func (l *layer) allows(from, rel string, test bool) (ok bool, why string) {
	to := layerOf(rel)
	sibling := strings.Contains(l.path, "*") && owner(from) != owner(rel)
	switch {
	case to == nil:
		return false, "which is not listed"
	case to.path == l.path && !sibling, to.path == "fault":
		return true, ""
	case to.testing && !test && l.path != "test/...":
		return false, "which is for tests only"
	case l.lists(rel):
		return true, ""
	case test && !to.adapter:
		return true, ""
	case to.adapter:
		return false, "an adapter; it may import " + l.list()
	}
	return false, "; it may import " + l.list()
}

func (l *layer) lists(rel string) bool {
	for _, pattern := range l.may {
		if matches(pattern, rel) {
			return true
		}
	}
	return false
}

func (l *layer) list() string {
	names := []string{"fault"}
	for _, pattern := range l.may {
		if pattern == "." {
			pattern = "the root package"
		}
		names = append(names, pattern)
	}
	return strings.Join(names, ", ")
}
