package message

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// root is what a simple path starts from.
type root uint8

const (
	rootJQ   root = iota // not a simple path: jq evaluates it
	rootBody             // .a.b
	rootMeta             // $meta.file
	rootRaw              // $body, the bytes as they came
)

// Expr is one compiled expression. Its zero value is not usable; nil stands
// for an expression that the pipeline does not have.
type Expr struct {
	// Name says where it stands in the pipeline file ("message.id").
	Name string
	// Text is its source.
	Text string

	root root
	path []string
	code *gojq.Code
	// body and meta tell what jq looks at, so that the rest is not made.
	body, meta, bytes bool
	constant          bool
}

// Error is a problem with an expression; At is the byte in its text.
type Error struct {
	At  int
	Msg string
}

func (e *Error) Error() string { return e.Msg }

// variables are given to every jq program, in this order.
var variables = []string{"$meta", "$body"}

// refused are the jq functions that would make the result depend on something
// other than the message, or that talk to the outside.
var refused = map[string]string{
	"input":             "reads other messages",
	"inputs":            "reads other messages",
	"input_filename":    "is not known here; use $meta.file",
	"input_line_number": "is not known here; use $meta.position",
	"env":               "reads the environment",
	"$ENV":              "reads the environment",
	"debug":             "writes to the terminal",
	"stderr":            "writes to the terminal",
	"halt":              "ends the program; use empty or error",
	"halt_error":        "ends the program; use error",
	"modulemeta":        "reads files",
	"get_search_list":   "reads files",
	"now":               "differs at every delivery of the same message",
	"localtime":         "depends on the machine",
	"strflocaltime":     "depends on the machine",
}

// Compile reads a jq expression. The error is an *Error.
func Compile(name, text string) (*Expr, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &Error{0, "the expression is empty: write a jq expression, such as .event_id"}
	}
	q, err := gojq.Parse(text)
	if err != nil {
		return nil, parseError(text, err)
	}
	e := &Expr{Name: name, Text: text, constant: constant(q)}
	if e.root, e.path = simple(q); e.root != rootJQ {
		return e, e.checkMeta()
	}
	if len(q.Imports) > 0 || q.Meta != nil {
		return nil, &Error{0, "modules are not available: write the expression out"}
	}
	calls := callsOf(q)
	for _, name := range calls {
		if why, ok := refused[name]; ok {
			if !strings.Contains(why, "; ") {
				why += "; use what the message has"
			}
			return nil, &Error{max(0, strings.Index(text, name)), fmt.Sprintf("%s is refused: it %s", name, why)}
		}
	}
	e.meta = slices.Contains(calls, "$meta")
	e.bytes = slices.Contains(calls, "$body")
	e.body = !ignoresInput(q)
	if e.code, err = gojq.Compile(q, gojq.WithVariables(variables)); err != nil {
		return nil, &Error{0, err.Error() + ": " + remedy(calls)}
	}
	return e, nil
}

// remedy is for a program that names what is not there.
func remedy(calls []string) string {
	for _, name := range calls {
		if strings.HasPrefix(name, "$") && !slices.Contains(variables, name) {
			return "the variables are " + strings.Join(variables, " and ")
		}
	}
	return "a field has a dot in front, as in .event_id"
}

func parseError(text string, err error) *Error {
	var p *gojq.ParseError
	if !errors.As(err, &p) {
		return &Error{0, err.Error()}
	}
	at := min(max(0, p.Offset-len(p.Token)), len(text))
	if p.Token == "" {
		return &Error{at, "the jq expression ends early: complete it, or remove what its end waits for"}
	}
	return &Error{at, fmt.Sprintf(`not a jq expression from %q on: write a field as .name or ."its name", a text as "…"`, p.Token)}
}

// simple recognises paths of plain names, which need no jq.
func simple(q *gojq.Query) (root, []string) {
	t := q.Term
	if t == nil || len(q.FuncDefs) > 0 || q.Meta != nil || len(q.Imports) > 0 {
		return rootJQ, nil
	}
	var path []string
	r := rootBody
	switch {
	case t.Type == gojq.TermTypeIdentity:
	case t.Type == gojq.TermTypeIndex:
		name, ok := plainName(t.Index)
		if !ok {
			return rootJQ, nil
		}
		path = append(path, name)
	case t.Type == gojq.TermTypeFunc && t.Func.Name == "$meta":
		r = rootMeta
	case t.Type == gojq.TermTypeFunc && t.Func.Name == "$body" && len(t.SuffixList) == 0:
		return rootRaw, nil
	default:
		return rootJQ, nil
	}
	for _, s := range t.SuffixList {
		name, ok := plainName(s.Index)
		if !ok || s.Iter || s.Optional {
			return rootJQ, nil
		}
		path = append(path, name)
	}
	if r == rootMeta && len(path) == 0 {
		return rootJQ, nil
	}
	return r, path
}

func plainName(x *gojq.Index) (string, bool) {
	switch {
	case x == nil || x.IsSlice || x.End != nil:
		return "", false
	case x.Name != "":
		return x.Name, true
	case x.Str != nil && x.Str.Queries == nil:
		return x.Str.Str, true
	case x.Start != nil && x.Start.Term != nil && x.Start.Term.Type == gojq.TermTypeString &&
		x.Start.Term.Str.Queries == nil && len(x.Start.Term.SuffixList) == 0:
		return x.Start.Term.Str.Str, true
	}
	return "", false
}

// checkMeta refuses names that $meta does not have: jq would answer null.
func (e *Expr) checkMeta() error {
	if e.root != rootMeta || slices.Contains(metaNames, e.path[0]) {
		return nil
	}
	return &Error{0, fmt.Sprintf("$meta has no %q: it has %s", e.path[0], strings.Join(metaNames, ", "))}
}

// constant reports a literal.
func constant(q *gojq.Query) bool {
	if q.Term == nil || len(q.Term.SuffixList) > 0 {
		return false
	}
	switch q.Term.Type {
	case gojq.TermTypeNumber, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNull:
		return true
	case gojq.TermTypeString:
		return q.Term.Str.Queries == nil
	}
	return false
}

// Constant reports whether the expression is a literal, the same for every
// message.
func (e *Expr) Constant() bool { return e.constant }

// ignoresInput reports whether a program is certain not to look at the body,
// so that files that are not JSON can still be named by their file name.
func ignoresInput(q *gojq.Query) bool {
	switch {
	case len(q.FuncDefs) > 0 || len(q.Patterns) > 0:
		return false
	case q.Term == nil && q.Op == gojq.OpPipe:
		return ignoresInput(q.Left)
	case q.Term == nil:
		return q.Op == gojq.OpAdd && ignoresInput(q.Left) && ignoresInput(q.Right)
	case q.Term.Type == gojq.TermTypeString:
		return !slices.ContainsFunc(q.Term.Str.Queries, func(q *gojq.Query) bool { return !ignoresInput(q) })
	case q.Term.Type == gojq.TermTypeQuery && len(q.Term.SuffixList) == 0:
		return ignoresInput(q.Term.Query)
	}
	r, _ := simple(q)
	return r == rootMeta || r == rootRaw
}

// callsOf lists the functions and variables that a program names.
func callsOf(q *gojq.Query) []string {
	var names []string
	walk(reflect.ValueOf(q), func(f *gojq.Func) { names = append(names, f.Name) })
	return names
}

var funcType = reflect.TypeFor[*gojq.Func]()

// walk visits every call in a syntax tree. The tree is made of some twenty
// struct types; reflection visits those of later versions as well.
func walk(v reflect.Value, visit func(*gojq.Func)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Type() == funcType {
			visit(v.Interface().(*gojq.Func))
		}
		walk(v.Elem(), visit)
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	}
}

// NeedsMeta reports whether the expression looks at where the message came
// from, which a handler only knows if it is kept with the message.
func (e *Expr) NeedsMeta() bool { return e != nil && (e.root == rootMeta || e.meta) }

// needsDelivery reports whether the expression may ask for a part of $meta that
// is the delivery's, not the message's.
func (e *Expr) needsDelivery() bool {
	return e.NeedsMeta() && (e.meta || e.path[0] != "headers" && e.path[0] != "event")
}

// NeedsBody reports whether the body has to be JSON for this expression.
func (e *Expr) NeedsBody() bool { return e != nil && (e.root == rootBody || e.body) }
