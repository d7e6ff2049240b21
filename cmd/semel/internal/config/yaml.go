package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader turns the nodes of one YAML document into values and collects the
// problems on the way, so that all of them are told at once.
type reader struct {
	file     string
	lines    []string
	problems Problems
}

func (r *reader) problem(n ast.Node, remedy, format string, args ...any) {
	r.problemAt(posOf(n), remedy, format, args...)
}

func (r *reader) problemAt(p Pos, remedy, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.file, p, fmt.Sprintf(format, args...), remedy})
}

func posOf(n ast.Node) Pos {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return Pos{}
	}
	p := n.GetToken().Position
	return Pos{p.Line, max(1, p.Column)}
}

// document parses the text and returns its one document; nil after a problem.
func (r *reader) document(text []byte) ast.Node {
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	r.lines = strings.Split(string(text), "\n")
	if at := badByte(text); at >= 0 {
		line := 1 + bytes.Count(text[:at], []byte("\n"))
		r.problemAt(Pos{line, at - bytes.LastIndexByte(text[:at], '\n')}, "save it as UTF-8", "not a text in UTF-8")
		return nil
	}
	f, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	var docs []ast.Node
	for _, d := range f.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	switch len(docs) {
	case 0:
		r.problemAt(Pos{1, 1}, "start with the lines name, source, store, message and handle; semel run --help shows an example", "the file is empty")
		return nil
	case 1:
		return docs[0]
	}
	r.problem(docs[1], "write one pipeline a file", "a second document")
	return nil
}

func badByte(b []byte) int {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && n == 1 || c == 0 {
			return i
		}
		i += n
	}
	return -1
}

// defaultRemedy is for a text that the parser cannot make sense of.
const defaultRemedy = "write key: value, one a line, what belongs to a key indented below it"

func (r *reader) syntax(err error) {
	var s *yaml.SyntaxError
	if !errors.As(err, &s) || s.Token == nil {
		r.problemAt(Pos{1, 1}, defaultRemedy, "not YAML: %v", err)
		return
	}
	remedy := defaultRemedy
	switch {
	case strings.Contains(s.Message, "escape"):
		remedy = `put jq strings between single quotes: '"\(.a)"'`
	case strings.Contains(s.Message, "mapping value is not allowed"):
		remedy = "put a value that contains a colon and a space between single quotes"
	case strings.Contains(s.Message, "cannot start any token"):
		remedy = "indent with spaces; put values that begin with a special character between single quotes"
	}
	r.problemAt(Pos{s.Token.Position.Line, max(1, s.Token.Position.Column)}, remedy, "not YAML: %s", s.Message)
}

// section is a mapping whose keys were checked.
type section map[string]ast.Node

// mapping reads a node as a mapping with the given keys. where names it in
// problems.
func (r *reader) mapping(n ast.Node, where string, known ...string) section {
	s := section{}
	r.entries(n, where, func(key, value ast.Node, name string) {
		if !slices.Contains(known, name) {
			r.problem(key, suggest(name, known), "unknown key %q%s", name, in(where))
			return
		}
		s[name] = value
	})
	return s
}

func in(where string) string {
	if where == "" {
		return ""
	}
	return " in " + where
}

// entries calls fn for every entry with a plain key that was not there before
// and a value.
func (r *reader) entries(n ast.Node, where string, fn func(key, value ast.Node, name string)) {
	seen := map[string]Pos{}
	for _, e := range r.mappingValues(n, where) {
		key, ok := e.Key.(*ast.StringNode)
		if !ok {
			r.problem(e.Key, "write plain words as keys", "a key that is not a word%s", in(where))
			continue
		}
		if first, again := seen[key.Value]; again {
			r.problem(key, fmt.Sprintf("it is there in line %d already; keep one", first.Line), "the key %q twice", key.Value)
			continue
		}
		seen[key.Value] = posOf(key)
		if r.plain(e.Value) {
			fn(key, e.Value, key.Value)
		}
	}
}

func (r *reader) mappingValues(n ast.Node, where string) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	what := "the file"
	if where != "" {
		what = where
	}
	r.problem(n, "write key: value, one a line", "%s must be keys and values, not %s", what, typeOf(n))
	return nil
}

// plain refuses what YAML has beyond values: it hides what a pipeline does.
func (r *reader) plain(n ast.Node) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.problem(n, "write the value out", "anchors, aliases and tags are not taken")
		return false
	case *ast.NullNode:
		r.problem(n, "give a value, or remove the line", "the value is empty")
		return false
	}
	return true
}

func typeOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "something else"
}

// text reads a text. A number is not taken for one: 0123 and 123 are the same
// number and different names.
func (r *reader) text(n ast.Node, where string) string {
	switch n := n.(type) {
	case nil:
		return ""
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	}
	remedy := "write one value behind the colon"
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		remedy = "put it between quotes"
	}
	r.problem(n, remedy, "%s must be a text, not %s", where, typeOf(n))
	return ""
}

// integer reads a whole number of at least low.
func (r *reader) integer(n ast.Node, where string, low, high int64) int64 {
	if n == nil {
		return 0
	}
	if i, ok := n.(*ast.IntegerNode); ok {
		if v, err := strconv.ParseInt(i.GetToken().Value, 10, 64); err == nil && v >= low && v <= high {
			return v
		}
	}
	r.problem(n, fmt.Sprintf("%d to %d", low, high), "%s must be a whole number", where)
	return 0
}

func (r *reader) boolean(n ast.Node, where string) bool {
	if n == nil {
		return false
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.problem(n, "write true or false", "%s must be true or false, not %s", where, typeOf(n))
		return false
	}
	return b.Value
}

// choice reads one of some words and returns its index; -1 if n is absent or
// after a problem.
func (r *reader) choice(n ast.Node, where string, words ...string) int {
	if n == nil {
		return -1
	}
	s := r.text(n, where)
	i := slices.Index(words, s)
	if i < 0 && s != "" {
		r.problem(n, suggest(s, words), "%s cannot be %q", where, s)
	}
	return i
}

// list reads a sequence of values.
func (r *reader) list(n ast.Node, where string) []ast.Node {
	if n == nil {
		return nil
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		r.problem(n, "write [a, b], or one a line with a dash", "%s must be a list, not %s", where, typeOf(n))
		return nil
	}
	var values []ast.Node
	for _, v := range s.Values {
		if r.plain(v) {
			values = append(values, v)
		}
	}
	return values
}

// within returns the place of a byte in the text of a scalar, as exactly as
// the form of the scalar allows.
func (r *reader) within(n ast.Node, at int) Pos {
	p := posOf(n)
	switch n := n.(type) {
	case *ast.LiteralNode:
		return r.withinBlock(p, n.Value.Value, at)
	case *ast.StringNode:
		if p.Line > len(r.lines) || at > len(n.Value) {
			return p
		}
		// Only where the text stands in one piece in its line.
		if i := strings.Index(r.lines[p.Line-1], n.Value); i >= 0 && n.Value != "" {
			return Pos{p.Line, 1 + utf8.RuneCountInString(r.lines[p.Line-1][:i+at])}
		}
	}
	return p
}

// withinBlock finds the line of a block scalar (|): its lines follow the
// indicator, all indented alike.
func (r *reader) withinBlock(p Pos, text string, at int) Pos {
	before := text[:min(at, len(text))]
	n := strings.Count(before, "\n")
	start := strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	if p.Line+n >= len(r.lines) || !strings.HasSuffix(r.lines[p.Line+n], line) {
		return p
	}
	indent := len(r.lines[p.Line+n]) - len(line)
	return Pos{p.Line + n + 1, 1 + indent + utf8.RuneCountInString(before[start:])}
}
