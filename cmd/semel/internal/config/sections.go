package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/semel-dev/semel/arbitrate"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

// expr reads a jq expression; nil if it is absent or wrong.
func (l *loader) expr(n ast.Node, where string) *message.Expr {
	if n == nil {
		return nil
	}
	s := l.text(n, where)
	if s == "" {
		return nil
	}
	e, err := message.Compile(where, strings.TrimRight(s, " \n"))
	var bad *message.Error
	if errors.As(err, &bad) {
		l.problemAt(l.within(n, bad.At), "", "%s: %s", where, bad.Msg)
		return nil
	}
	return e
}

func (l *loader) message() {
	n := l.top["message"]
	if n == nil {
		l.required("message", "add message: {id: .event_id}, with a jq expression that gives each event its own id")
		return
	}
	s := l.mapping(n, "message", "format", "id", "key", "type", "time", "schema", "filter", "max_bytes", "max_depth")
	r := &l.file.Rules
	r.CloudEvents = l.choice(s["format"], "message.format", "json", "cloudevents") == 1
	r.ID = l.expr(s["id"], "message.id")
	r.Key, l.keyed = l.expr(s["key"], "message.key"), s["key"] != nil
	r.Type = l.expr(s["type"], "message.type")
	r.Time = l.expr(s["time"], "message.time")
	r.Filter = l.expr(s["filter"], "message.filter")
	r.MaxBytes = l.bytes(s["max_bytes"], "message.max_bytes")
	r.MaxDepth = int(l.integer(s["max_depth"], "message.max_depth", 1, 10_000))
	switch {
	case s["id"] == nil && !r.CloudEvents:
		l.problem(n, "add id: with a jq expression that gives each event its own id, such as .event_id", "message has no id")
	case r.ID != nil && r.ID.Constant():
		l.problem(s["id"], "use a field of the message, such as .event_id", "message.id is the same for all messages: all but the first would be duplicates")
	}
	if n := s["schema"]; n != nil {
		l.schema(n)
	}
}

func (l *loader) schema(n ast.Node) {
	path := l.text(n, "message.schema")
	if path == "" {
		return
	}
	s, err := message.LoadSchema(l.beside(path))
	if err != nil {
		l.problem(n, "name a JSON Schema that can be read, beside the pipeline file", "message.schema: %s: %s", path, cause(err))
		return
	}
	l.file.Rules.Schema = s
}

func (l *loader) arbitrate() {
	n := l.top["arbitrate"]
	if n == nil {
		return
	}
	s := l.mapping(n, "arbitrate", "version", "as", "tie", "missing", "latest")
	f := l.file
	f.Arbitrate = arbitrate.Policy{On: true, Latest: l.boolean(s["latest"], "arbitrate.latest")}
	f.Rules.Version = l.expr(s["version"], "arbitrate.version")
	f.Rules.Tie = l.expr(s["tie"], "arbitrate.tie")
	f.Rules.VersionTime = l.choice(s["as"], "arbitrate.as", "integer", "time") == 1
	missing := []arbitrate.Missing{arbitrate.MissingDead, arbitrate.MissingSuperseded, arbitrate.MissingApply}
	if i := l.choice(s["missing"], "arbitrate.missing", "dead", "superseded", "apply"); i >= 0 {
		f.Arbitrate.Missing = missing[i]
	}
	if s["version"] == nil {
		l.problem(n, "add version: with a jq expression, such as .revision", "arbitrate has no version")
	}
	if l.top["message"] != nil && !l.keyed {
		l.problem(n, "add key: to message, such as .order.id", "arbitrate needs message.key: versions are compared per key")
	}
}

func (l *loader) handle() {
	n := l.top["handle"]
	if n == nil {
		l.required("handle", "add handle: {sql: …} with the statements that are the effect of a message")
		return
	}
	s := l.mapping(n, "handle", "sql", "with", "http", "exec", "index")
	l.file.Handler = &sqlstep.Handler{Params: message.NewParams(l.file.Rules.MaxDepth)}
	switch {
	case s["http"] != nil && s["exec"] != nil:
		l.problem(s["exec"], "make two pipelines of them", "handle has http and exec: the guard of one message is for one effect")
	case s["index"] != nil && (s["http"] != nil || s["exec"] != nil):
		l.problem(s["index"], "make two pipelines of them", "handle has index and another effect outside of the database: one of them may fail while the other is done")
	case s["index"] != nil:
		l.index(s["index"])
	case s["http"] != nil:
		l.http(s["http"])
	case s["exec"] != nil:
		l.exec(s["exec"])
	case s["sql"] == nil:
		l.problem(n, "add sql: with the statements that are the effect of a message, or http:, exec: or index:", "handle has no sql")
	}
	switch {
	case s["sql"] != nil:
		l.sql(s["sql"], s["with"])
	case s["with"] != nil:
		l.problem(s["with"], "add sql:, or remove it", "handle.with has values for statements, and there are none")
	}
}

func (l *loader) sql(steps, with ast.Node) {
	names, exprs, nodes := l.with(with)
	used := make([]bool, len(names))
	h := &sqlstep.Handler{}
	for _, n := range l.steps(steps) {
		if s := l.step(n, names, used); s != nil {
			h.Steps = append(h.Steps, s)
		}
	}
	if len(l.problems) == 0 {
		for i, name := range names {
			if !used[i] {
				l.problem(nodes[i], fmt.Sprintf("use :%s in a statement, or remove it", name), "handle.with.%s is not used", name)
			}
		}
	}
	p := message.NewParams(l.file.Rules.MaxDepth, exprs...)
	l.file.Rules.KeepMeta = l.file.Rules.KeepMeta || p.NeedsMeta()
	h.Params = p
	l.file.Handler = h
}

// with reads the parameters, in the order of their names.
func (l *loader) with(n ast.Node) (names []string, exprs []*message.Expr, nodes []ast.Node) {
	if n == nil {
		return nil, nil, nil
	}
	all := map[string]ast.Node{}
	l.entries(n, "handle.with", func(key, value ast.Node, name string) {
		if !isParameter(name) {
			l.problem(key, "use letters, digits and _, no digit first", "handle.with.%s cannot be the name of a parameter", name)
			return
		}
		all[name] = value
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		// A name whose expression is wrong is known all the same, so that
		// the statements are not blamed for it.
		names, nodes = append(names, name), append(nodes, all[name])
		exprs = append(exprs, l.value(all[name], "handle.with."+name))
	}
	return names, exprs, nodes
}

// value is an expression for a parameter, where a plain number or true is one
// as well: jq reads it the same way.
func (l *loader) value(n ast.Node, where string) *message.Expr {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		e, err := message.Compile(where, n.GetToken().Value)
		if err == nil {
			return e
		}
	}
	return l.expr(n, where)
}

func isParameter(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// steps returns the steps of handle.sql, whose short form is one text.
func (l *loader) steps(n ast.Node) []ast.Node {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return []ast.Node{n}
	}
	steps := l.list(n, "handle.sql")
	if _, ok := n.(*ast.SequenceNode); ok && len(steps) == 0 && len(l.problems) == 0 {
		l.problem(n, "add a statement", "handle.sql is an empty list")
	}
	return steps
}

func (l *loader) step(n ast.Node, names []string, used []bool) *sqlstep.Step {
	none := sqlstep.Ignore
	text := n
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
	default:
		s := l.mapping(n, "a step of handle.sql", "exec", "none")
		if i := l.choice(s["none"], "none", sqlstep.Nones()...); i >= 0 {
			none = sqlstep.None(sqlstep.Nones()[i])
		}
		if text = s["exec"]; text == nil {
			if _, ok := n.(*ast.MappingNode); ok {
				l.problem(n, "add exec: with a statement", "a step of handle.sql has no exec")
			}
			return nil
		}
	}
	return l.statement(text, none, names, used)
}

func (l *loader) statement(n ast.Node, none sqlstep.None, names []string, used []bool) *sqlstep.Step {
	before := len(l.problems)
	sql := l.text(n, "a statement")
	if len(l.problems) > before {
		return nil
	}
	s, err := sqlstep.Compile(sql, none, names, used, l.opt.Stores[l.file.Store.Scheme])
	var bad *sqlstep.Error
	if errors.As(err, &bad) {
		l.problemAt(l.within(n, bad.At), "", "handle.sql: %s", bad.Msg)
		return nil
	}
	return s
}

// setup reads statements, or the path of a file with statements, or a list of
// either.
func (l *loader) setup() {
	n := l.top["setup"]
	if n == nil {
		return
	}
	items := []ast.Node{n}
	if _, ok := n.(*ast.SequenceNode); ok {
		items = l.list(n, "setup")
	}
	for _, item := range items {
		s := l.text(item, "setup")
		switch {
		case s == "":
		case strings.HasSuffix(s, ".sql") && !strings.ContainsAny(s, " \n;"):
			l.setupFile(item, s)
		default:
			l.setupText(s, func(at int) Problem { return Problem{File: l.reader.file, Pos: l.within(item, at)} })
		}
	}
}

func (l *loader) setupFile(n ast.Node, path string) {
	b, err := os.ReadFile(l.beside(path))
	if err != nil {
		l.problem(n, "name a file with statements that can be read, beside the pipeline file", "setup: %s: %s", path, cause(err))
		return
	}
	l.setupText(string(b), func(at int) Problem {
		before := string(b[:min(at, len(b))])
		return Problem{File: filepath.Join(l.dir, path), Pos: Pos{1 + strings.Count(before, "\n"), at - strings.LastIndex(before, "\n")}}
	})
}

func (l *loader) setupText(s string, place func(at int) Problem) {
	err := sqlstep.CheckSetup(s, l.opt.Stores[l.file.Store.Scheme])
	var bad *sqlstep.Error
	if errors.As(err, &bad) {
		p := place(bad.At)
		p.What = "setup: " + bad.Msg
		l.problems = append(l.problems, p)
		return
	}
	l.file.Setup = append(l.file.Setup, sqlstep.Calls(s, l.opt.Stores[l.file.Store.Scheme])...)
}
