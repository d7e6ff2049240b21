package config

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/semel-dev/semel/effect"

	"github.com/semel-dev/semel/cmd/semel/internal/outside"
)

// maxCall bounds the timeout of a call outside of the database: a worker that
// takes over waits for several of them.
const maxCall = 10 * time.Minute

// http reads handle.http.
func (l *loader) http(n ast.Node) {
	const where = "handle.http"
	s := l.mapping(n, where, "url", "method", "headers", "body", "timeout", "expect", "in_doubt", "ask", "concurrency")
	if len(s) == 0 {
		l.empty(n, where)
		return
	}
	step := l.common(s, where)
	h := outside.HTTP{Header: l.headers(s["headers"]), Expect: l.codes(s["expect"], where, outside.HTTPCodes(), 100, 599)}
	h.Method = "POST"
	if methods := []string{"POST", "PUT", "PATCH", "DELETE"}; s["method"] != nil {
		if i := l.choice(s["method"], where+".method", methods...); i >= 0 {
			h.Method = methods[i]
		}
	}
	h.URL = l.url(n, s["url"], where+".url")
	if ask := l.asked(n, s, where, step); ask != nil {
		h.AskURL = l.url(ask, l.mapping(ask, where+".ask", "url")["url"], where+".ask.url")
		if h.AskURL != "" && !strings.Contains(h.AskURL, outside.IDPlace) {
			l.problem(ask, "write "+outside.IDPlace+" where the id of the message belongs", where+".ask.url is the same for all messages")
		}
	}
	h.Fresh = step.InDoubt != effect.Retry
	step.Target = outside.NewHTTP(h)
	l.file.Outside = step
}

// exec reads handle.exec.
func (l *loader) exec(n ast.Node) {
	const where = "handle.exec"
	s := l.mapping(n, where, "argv", "env", "body", "timeout", "expect", "in_doubt", "ask", "concurrency")
	if len(s) == 0 {
		l.empty(n, where)
		return
	}
	step := l.common(s, where)
	x := &outside.Exec{Expect: l.codes(s["expect"], where, outside.ExecCodes(), 0, 255), Argv: l.argv(n, s["argv"], where)}
	env := l.secrets(s["env"], where+".env")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !isParameter(name) || strings.HasPrefix(name, "SEMEL_") {
			l.problem(s["env"], "use letters, digits and _, no digit first, and not SEMEL_…", "%s.env.%s cannot be the name of a variable", where, name)
		}
		x.Env = append(x.Env, name+"="+env[name])
	}
	if ask := l.asked(n, s, where, step); ask != nil {
		x.AskArgv = l.argv(ask, l.mapping(ask, where+".ask", "argv")["argv"], where+".ask")
	}
	step.Target = x
	l.file.Outside = step
}

// empty tells what is missing, where it is not told already.
func (l *loader) empty(n ast.Node, where string) {
	if _, ok := n.(*ast.MappingNode); ok && len(l.problems) == 0 {
		l.problem(n, "say what to do with a message", "%s is empty", where)
	}
}

// common reads what http and exec have in common.
func (l *loader) common(s section, where string) *outside.Step {
	step := &outside.Step{Timeout: l.positive(s["timeout"], where+".timeout")}
	if step.Timeout > maxCall {
		l.problem(s["timeout"], "shorten it", "%s.timeout is above %v", where, maxCall)
	}
	step.Concurrency = int(l.integer(s["concurrency"], where+".concurrency", 1, 256))
	policies := []effect.Policy{effect.Park, effect.Retry, effect.Ask}
	if i := l.choice(s["in_doubt"], where+".in_doubt", "park", "retry", "ask"); i >= 0 {
		step.InDoubt = policies[i]
	}
	step.Body = l.one(s["body"], where+".body")
	return step
}

// asked is the section ask, which belongs to in_doubt: ask.
func (l *loader) asked(n ast.Node, s section, where string, step *outside.Step) ast.Node {
	switch ask := s["ask"]; {
	case ask == nil && step.InDoubt == effect.Ask:
		l.problem(n, "add ask: with what answers whether it happened", "%s.in_doubt is ask, and there is nothing to ask", where)
	case ask != nil && step.InDoubt != effect.Ask:
		l.problem(ask, "write in_doubt: ask, or remove it", "%s.ask is never asked", where)
	default:
		return ask
	}
	return nil
}

// url reads a URL, which may be env:NAME or file:PATH. Problems quote nothing
// of it: it may hold a secret.
func (l *loader) url(at, n ast.Node, where string) string {
	if n == nil {
		l.problem(at, "add a URL such as https://mail.example/send", "%s is missing", where)
		return ""
	}
	s := l.secret(n, where)
	if s == "" {
		return ""
	}
	u, err := url.Parse(strings.ReplaceAll(s, outside.IDPlace, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		l.problem(n, "write https://HOST/PATH", "%s is not an http or https URL", where)
		return ""
	}
	return s
}

// headers reads header fields, whose values may be secrets elsewhere.
func (l *loader) headers(n ast.Node) http.Header {
	const where = "handle.http.headers"
	h := http.Header{}
	fields := l.secrets(n, where)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		canonical, value := http.CanonicalHeaderKey(name), fields[name]
		switch {
		case !isToken(name):
			l.problem(n, "write letters, digits and -", "%s: %q cannot be the name of a header field", where, name)
		case canonical == "Idempotency-Key" || canonical == "Content-Length" || canonical == "Host":
			l.problem(n, "remove it", "%s: %s is set by semel", where, canonical)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			l.problem(n, "write it on one line", "%s: the value of %s has a control character", where, canonical)
		default:
			h[canonical] = []string{value}
		}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	return h
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

// secrets reads names with values, each of which may be env:NAME or file:PATH.
func (l *loader) secrets(n ast.Node, where string) map[string]string {
	out := map[string]string{}
	if n == nil {
		return out
	}
	l.entries(n, where, func(_, value ast.Node, name string) {
		s := l.text(value, where+"."+name)
		if s == "" {
			return
		}
		resolved, err := l.resolve(s)
		if err != nil {
			l.problem(value, "", "%s.%s: %v", where, name, err)
			return
		}
		out[name] = resolved
	})
	return out
}

func (l *loader) argv(at, n ast.Node, where string) (argv []string) {
	if n == nil {
		l.problem(at, "add argv: [PROGRAM, ARGUMENT…]; no shell is involved", "%s has no argv", where)
		return []string{"?"}
	}
	for _, item := range l.list(n, where+".argv") {
		argv = append(argv, l.text(item, where+".argv"))
	}
	if len(argv) == 0 {
		l.problem(n, "name a program", "%s.argv is empty", where)
		return []string{"?"}
	}
	return argv
}

// codes reads which numbers mean what. A list that is given replaces the
// default one, and takes its numbers from the others.
func (l *loader) codes(n ast.Node, where string, c outside.Codes, low, high int64) outside.Codes {
	if n == nil {
		return c
	}
	where += ".expect"
	s := l.mapping(n, where, "done", "permanent", "transient", "unknown")
	given := map[int]string{}
	for _, key := range []string{"done", "permanent", "transient", "unknown"} {
		if s[key] == nil {
			continue
		}
		for _, item := range l.list(s[key], where+"."+key) {
			r, ok := l.codeRange(item, where+"."+key, low, high)
			for code := r.Low; ok && code <= r.High; code++ {
				if other := given[code]; other != "" && other != key {
					l.problem(item, "leave it in one of them", "%s: %d is in %s and in %s", where, code, other, key)
					break
				}
				given[code] = key
			}
		}
	}
	return merged(c, given, int(low), int(high), s)
}

func (l *loader) codeRange(n ast.Node, where string, low, high int64) (outside.Range, bool) {
	before := len(l.problems)
	if _, ok := n.(*ast.IntegerNode); ok {
		v := int(l.integer(n, where, low, high))
		return outside.Range{Low: v, High: v}, len(l.problems) == before
	}
	text := l.text(n, where)
	var r outside.Range
	if k, err := fmt.Sscanf(text, "%d-%d", &r.Low, &r.High); err != nil || k != 2 || fmt.Sprintf("%d-%d", r.Low, r.High) != text ||
		r.Low < int(low) || r.High > int(high) || r.Low > r.High {
		if len(l.problems) == before {
			l.problem(n, "write a number, or two with - between them", "%s: %q is no range of %d to %d", where, text, low, high)
		}
		return r, false
	}
	return r, true
}

// merged sorts every code by what is given, else by the defaults of the lists
// that are not given.
func merged(c outside.Codes, given map[int]string, low, high int, s section) (out outside.Codes) {
	lists := []struct {
		key string
		def []outside.Range
		out *[]outside.Range
	}{{"done", c.Done, &out.Done}, {"permanent", c.Permanent, &out.Permanent}, {"transient", c.Transient, &out.Transient}}
	for code := low; code <= high; code++ {
		for _, list := range lists {
			byDefault := given[code] == "" && s[list.key] == nil &&
				slices.ContainsFunc(list.def, func(r outside.Range) bool { return code >= r.Low && code <= r.High })
			if given[code] == list.key || byDefault {
				*list.out = append(*list.out, outside.Range{Low: code, High: code})
			}
		}
	}
	return out
}
