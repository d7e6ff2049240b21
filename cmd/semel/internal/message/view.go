package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/semel-dev/semel"
)

// plan is a set of expressions that are evaluated over the same messages.
type plan struct {
	want     *branch
	slots    int
	slot     map[*Expr]int
	body     bool // some expression needs the body to be JSON
	maxDepth int
	budget   time.Duration // of one evaluation by jq
}

func newPlan(maxDepth int, exprs ...*Expr) *plan {
	p := &plan{want: newBranch(), slot: map[*Expr]int{}, maxDepth: maxDepth, budget: budget}
	for _, e := range exprs {
		if e == nil {
			continue
		}
		p.body = p.body || e.NeedsBody()
		if e.root == rootBody {
			p.slot[e] = p.want.add(e.path, &p.slots)
		}
	}
	return p
}

// view is one message as the expressions see it. It is reused.
type view struct {
	plan *plan
	scan scanner
	body []byte // without byte order mark
	meta Meta
	tree any
	has  bool // tree is made
	vars map[string]any
}

func (p *plan) view() *view {
	return &view{plan: p, scan: scanner{want: p.want, maxDepth: p.maxDepth}}
}

// open takes a message in and checks its body if an expression needs it.
func (v *view) open(body []byte, m Meta) error {
	v.body, v.meta, v.tree, v.has, v.vars = trim(body), m, nil, false, nil
	if !v.plan.body {
		return nil
	}
	return v.scan.scan(v.body, v.plan.slots)
}

// json returns the body as a tree, numbers as text. It was checked by open.
func (v *view) json() any {
	if !v.has && v.plan.body {
		v.tree, v.has = tree(v.body), true
	}
	return v.tree
}

// eval returns the one value of an expression.
func (v *view) eval(e *Expr) (any, error) {
	switch e.root {
	case rootBody:
		return v.at(v.scan.found[v.plan.slot[e]])
	case rootMeta:
		return v.meta.get(e.path)
	case rootRaw:
		return v.meta.raw, nil
	}
	return v.jq(e)
}

func (v *view) at(s span) (any, error) {
	if s.broken {
		return nil, fmt.Errorf("looks for a field in %s", s.kind)
	}
	text := v.body[s.from:s.to]
	switch s.kind {
	case kindBool:
		return text[0] == 't', nil
	case kindNumber:
		return json.Number(text), nil
	case kindString:
		return unquote(text), nil
	case kindArray, kindObject:
		return raw(text), nil
	}
	return nil, nil
}

// budget bounds one evaluation. A program that needs it never ends; a machine
// that was stopped in the middle of one looks the same, hence the second try.
const (
	budget      = time.Second
	budgetTries = 3
)

func (v *view) jq(e *Expr) (any, error) {
	var err error
	for range budgetTries {
		var x any
		if x, err = v.once(e); !errors.Is(err, context.DeadlineExceeded) {
			return x, err
		}
	}
	return nil, fmt.Errorf("does not end within %v: is there a loop?", v.plan.budget)
}

func (v *view) once(e *Expr) (any, error) {
	var input any
	if e.body {
		input = v.json()
	}
	ctx, cancel := context.WithTimeout(context.Background(), v.plan.budget)
	defer cancel()
	it := e.code.RunWithContext(ctx, input, v.metaVar(e), v.bodyVar(e))
	x, ok := it.Next()
	if !ok {
		return nil, errors.New("gives no value")
	}
	if err, ok := x.(error); ok {
		return nil, evalError(err)
	}
	y, more := it.Next()
	if err, ok := y.(error); more && ok {
		return nil, evalError(err)
	}
	if more {
		return nil, errors.New("gives more than one value")
	}
	return x, nil
}

func (v *view) metaVar(e *Expr) any {
	if !e.meta {
		return nil
	}
	if v.vars == nil {
		v.vars = v.meta.object()
	}
	return v.vars
}

func (v *view) bodyVar(e *Expr) any {
	if !e.bytes {
		return nil
	}
	return string(v.meta.raw)
}

// close lets go of the message.
func (v *view) close() { v.body, v.meta, v.tree, v.vars = nil, Meta{}, nil, nil }

// evalError keeps what jq says and drops what it quotes of the body: jq puts
// values behind the name of their type in parentheses.
func evalError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var own gojq.ValueError
	if errors.As(err, &own) {
		return errors.New("fails by its own call of error")
	}
	what, _, _ := strings.Cut(err.Error(), " (")
	if i := strings.IndexAny(what, `"{[`); i >= 0 {
		what = strings.TrimSpace(what[:i])
	}
	return fmt.Errorf("fails in jq: %s", what)
}

// explain names the expression an error belongs to.
func explain(e *Expr, err error) error {
	return semel.Invalid(fmt.Errorf("%s (%s) %w", e.Name, e.Text, err))
}
