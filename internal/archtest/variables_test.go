package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// variables finds package variables that change or could. Allowed is what has
// a value from the start and is never written again, by tests neither: errors,
// tables, compiled expressions, embedded files, interface assertions. Commands
// and test/ may do as they like.
//
// Imports are not resolved, so a write hidden in a method of somebody else's
// type is not seen; the kinds of value that only make sense if they change
// (channels, maps made empty, locks, pools, pointers) are refused instead.
func variables(files []source) (found []string) {
	if dir := files[0].dir(); matches("cmd/...", dir) || matches("test/...", dir) {
		return nil
	}
	// An external test package is apart: its variables are its own affair.
	files = slices.DeleteFunc(slices.Clone(files), func(s source) bool { return strings.HasSuffix(s.file.Name.Name, "_test") })
	if len(files) == 0 {
		return nil
	}
	p := check(files)
	for _, s := range files {
		for _, decl := range s.file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR && !s.test {
				found = append(found, p.declared(s, d)...)
			}
		}
	}
	for _, s := range files {
		found = append(found, p.written(s)...)
	}
	return found
}

type checked struct {
	pkg  *types.Package
	info types.Info
}

// check resolves names as far as one package alone allows.
func check(files []source) checked {
	c := checked{info: types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var asts []*ast.File
	for _, s := range files {
		asts = append(asts, s.file)
	}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}}
	c.pkg, _ = conf.Check("p", files[0].fset, asts, &c.info) // what does not resolve is not looked at
	return c
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not resolved") }

// declared checks one declaration for values that must be meant to change.
func (c checked) declared(s source, d *ast.GenDecl) (found []string) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if name.Name == "_" || excepted(s.dir(), name.Name, "variable") {
				continue
			}
			why := ""
			switch {
			case embedded(d.Doc) || embedded(v.Doc):
			case len(v.Values) == 0:
				why = "starts as nothing, so it is there to be changed"
			case name.IsExported() && !strings.HasPrefix(name.Name, "Err"):
				why = "is exported, so anybody can change it"
			case strings.HasPrefix(strings.ToLower(name.Name), "err"):
			case i < len(v.Values):
				why = c.changeable(v.Values[i])
			}
			if why != "" {
				found = append(found, fmt.Sprintf("%s: package variable %s %s", s.at(name.Pos()), name.Name, why))
			}
		}
	}
	return found
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// changeable says of a value why it could only be meant to change.
func (c checked) changeable(value ast.Expr) string {
	switch v := value.(type) {
	case *ast.UnaryExpr:
		if v.Op == token.AND {
			return "is a pointer"
		}
	case *ast.CompositeLit:
		if typ := types.ExprString(v.Type); strings.HasPrefix(typ, "sync.") || strings.HasPrefix(typ, "atomic.") || strings.HasSuffix(typ, "{}") {
			return "is there to be changed"
		}
	case *ast.CallExpr:
		fun := types.ExprString(v.Fun)
		if fun == "new" || fun == "make" || strings.HasPrefix(fun, "atomic.") {
			return "is there to be changed"
		}
		if id, ok := v.Fun.(*ast.Ident); ok {
			if fn, ok := c.info.Uses[id].(*types.Func); ok && pointer(fn.Signature().Results()) {
				return "is a pointer"
			}
		}
	}
	return ""
}

func pointer(results *types.Tuple) bool {
	if results.Len() != 1 {
		return false
	}
	_, ok := results.At(0).Type().(*types.Pointer)
	return ok
}

// written finds what changes a package variable.
func (c checked) written(s source) (found []string) {
	report := func(e ast.Expr) {
		if name := c.variable(e); name != "" && !(s.test && strings.Contains(name, ".")) && !excepted(s.dir(), name, "variable") {
			found = append(found, fmt.Sprintf("%s: changes the package variable %s", s.at(e.Pos()), name))
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					report(e)
				}
			}
		case *ast.IncDecStmt:
			report(n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				report(n.Key)
				report(n.Value)
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				report(n.X)
			}
		case *ast.CallExpr:
			c.called(n, report)
		}
		return true
	})
	return found
}

// called looks at calls that change what they are given.
func (c checked) called(call *ast.CallExpr, report func(ast.Expr)) {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		if slices.Contains([]string{"delete", "clear", "copy"}, fun.Name) && len(call.Args) > 0 {
			report(call.Args[0])
		}
	case *ast.SelectorExpr:
		sel := c.info.Selections[fun]
		if sel == nil || sel.Kind() != types.MethodVal {
			return
		}
		if recv := sel.Obj().(*types.Func).Signature().Recv(); recv != nil {
			if _, ok := recv.Type().(*types.Pointer); ok {
				report(fun.X)
			}
		}
	}
}

// variable returns the name of the package variable that an expression
// reaches into, "other.Name" for one of another package, "" if there is none.
func (c checked) variable(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.variable(e.X)
	case *ast.IndexExpr:
		return c.variable(e.X)
	case *ast.SliceExpr:
		return c.variable(e.X)
	case *ast.StarExpr:
		return c.variable(e.X)
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok {
			if _, ok := c.info.Uses[id].(*types.PkgName); ok {
				return id.Name + "." + e.Sel.Name
			}
		}
		return c.variable(e.X)
	case *ast.Ident:
		if v, ok := c.info.Uses[e].(*types.Var); ok && v.Parent() == c.pkg.Scope() {
			return e.Name
		}
	}
	return ""
}

func TestVariablesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"starts empty":          {"var n int", "starts as nothing"},
		"lock":                  {"import \"sync\"\nvar mu = sync.Mutex{}", "there to be changed"},
		"map to be filled":      {"var m = make(map[string]int)", "there to be changed"},
		"channel":               {"var c = make(chan int)", "there to be changed"},
		"pointer":               {"type t struct{}\nvar p = &t{}", "is a pointer"},
		"pointer from function": {"type t struct{}\nfunc open() *t { return nil }\nvar p = open()", "is a pointer"},
		"exported":              {"var Default = 5", "anybody can change it"},
		"assigned":              {"var n = 1\nfunc f() { n = 2 }", "changes the package variable n"},
		"counted":               {"var n = 1\nfunc f() { n++ }", "changes the package variable n"},
		"element":               {"var m = map[int]int{1: 1}\nfunc f() { m[2] = 2 }", "changes the package variable m"},
		"field":                 {"type t struct{ a []int }\nvar s = t{}\nfunc f() { s.a[0] = 2 }", "changes the package variable s"},
		"deleted":               {"var m = map[int]int{1: 1}\nfunc f() { delete(m, 1) }", "changes the package variable m"},
		"copied into":           {"var b = []byte{1}\nfunc f() { copy(b[:], b) }", "changes the package variable b"},
		"lent":                  {"var n = 1\nfunc f() *int { return &n }", "changes the package variable n"},
		"method":                {"type t struct{}\nfunc (*t) set() {}\nvar s = t{}\nfunc f() { s.set() }", "changes the package variable s"},
		"range":                 {"var i = 1\nfunc f() { for i = range 3 {} }", "changes the package variable i"},
		"somebody else's":       {"import \"os\"\nfunc f() { os.Args = nil }", "changes the package variable os.Args"},
		"excepted elsewhere":    {"var hook int", "starts as nothing"},
	} {
		got := variables(fixtures(t, "a/x.go", "package a\n"+c.text+"\n"))
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: %q, want a problem with %q", name, got, c.want)
		}
	}
}

func TestVariablesOfTestsAreRefused(t *testing.T) {
	got := variables(fixtures(t,
		"a/x.go", "package a\nimport \"time\"\nvar now = time.Now\n",
		"a/x_test.go", "package a\nfunc f() { now = nil }\n"))
	if len(got) != 1 || !strings.Contains(got[0], "a/x_test.go:2: changes the package variable now") {
		t.Errorf("a test that swaps a variable: %q, want one problem", got)
	}
}

func TestVariablesAreAllowed(t *testing.T) {
	for name, text := range map[string]string{
		"error":        "import \"errors\"\n// ErrX is.\nvar ErrX = errors.New(\"x\")",
		"own error":    "type e struct{}\nvar errX = &e{}",
		"table":        "var names = [...]string{\"a\"}\nfunc f() string { return names[0] }",
		"expression":   "import \"regexp\"\nvar re = regexp.MustCompile(\"x\")\nfunc f() bool { return re.MatchString(\"\") }",
		"assertion":    "type t struct{}\nvar _ error = (*t)(nil)",
		"shadowed":     "var n = 1\nfunc f() { n := 2; n++; n = 3 }",
		"parameter":    "var n = 1\nfunc f(n int) { n++ }",
		"field":        "var n = 1\ntype t struct{ n int }\nfunc f(x *t) { x.n = n }",
		"embedded":     "import _ \"embed\"\n//go:embed x.txt\nvar text string",
		"lazy":         "import \"sync\"\nvar get = sync.OnceValue(func() int { return 1 })",
		"value method": "type t struct{}\nfunc (t) get() {}\nvar s = t{}\nfunc f() { s.get() }",
	} {
		if got := variables(fixtures(t, "a/x.go", "package a\n"+text+"\n")); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := variables(fixtures(t, "cmd/semel/internal/cli/x.go", "package cli\nvar version string\n")); len(got) != 0 {
		t.Errorf("variable of a command: %q", got)
	}
}
