package config

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/semel-dev/semel/store/searchstore"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/outside"
)

// index reads handle.index.
func (l *loader) index(n ast.Node) {
	const where = "handle.index"
	s := l.mapping(n, where, "url", "index", "id", "version", "document", "deleted", "username", "password", "api_key", "timeout")
	if len(s) == 0 {
		l.empty(n, where)
		return
	}
	x := &outside.Index{}
	c := &x.Config
	c.URL = l.url(n, s["url"], where+".url")
	c.Index = l.text(s["index"], where+".index")
	c.Username, c.Password = l.secret(s["username"], where+".username"), l.secret(s["password"], where+".password")
	c.APIKey = l.secret(s["api_key"], where+".api_key")
	if c.Timeout = l.positive(s["timeout"], where+".timeout"); c.Timeout > maxCall {
		l.problem(s["timeout"], "shorten it", "%s.timeout is above %v", where, maxCall)
	}
	if s["id"] == nil {
		l.problem(n, "add id: with a jq expression such as .order.id: messages about one thing write one document", "%s has no id", where)
	}
	x.ID = l.one(s["id"], where+".id")
	x.Document, x.Deleted = l.one(s["document"], where+".document"), l.one(s["deleted"], where+".deleted")
	l.indexVersion(s, n)
	switch {
	case s["version"] == nil:
	case l.text(s["version"], where+".version") == "none":
		c.Versions = searchstore.NoVersions
	default:
		x.Version = l.one(s["version"], where+".version")
	}
	if len(l.problems) == 0 {
		for _, err := range c.Problems() {
			l.problem(n, "correct it; semel run --check asks the server as well", "%s: %v", where, err)
		}
	}
	l.file.Index = x
}

// indexVersion refuses a document without a version that nobody asked for.
func (l *loader) indexVersion(s section, n ast.Node) {
	if s["version"] == nil && l.top["arbitrate"] == nil {
		l.problem(n, "add version: with a jq expression such as .order.revision; write version: none if a document is written once, or its order does not matter",
			"handle.index has no version, and the pipeline does not arbitrate: an old message that is delivered again would overwrite a newer document")
	}
}

// one reads an expression for one value; nil if there is none.
func (l *loader) one(n ast.Node, where string) outside.Values {
	if n == nil {
		return nil
	}
	e := l.expr(n, where)
	if e == nil {
		return nil
	}
	p := message.NewParams(l.file.Rules.MaxDepth, e)
	l.file.Rules.KeepMeta = l.file.Rules.KeepMeta || p.NeedsMeta()
	return p
}

// secret reads a text that may be env:NAME or file:PATH, which it should be.
func (l *loader) secret(n ast.Node, where string) string {
	if n == nil {
		return ""
	}
	s := l.text(n, where)
	if s == "" {
		return ""
	}
	s, err := l.resolve(s)
	if err != nil {
		l.problem(n, "", "%s: %v", where, err)
		return ""
	}
	return s
}
