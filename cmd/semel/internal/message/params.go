package message

import (
	"sync"

	"github.com/semel-dev/semel"
)

// Params are the named values that a handler takes from a message. They are
// safe for concurrent use.
type Params struct {
	exprs []*Expr
	views sync.Pool
}

// NewParams returns parameters with one value for each expression, in order.
// maxDepth is that of the Rules; 0 means the default.
func NewParams(maxDepth int, exprs ...*Expr) *Params {
	if maxDepth == 0 {
		maxDepth = DefaultMaxDepth
	}
	plan := newPlan(maxDepth, exprs...)
	p := &Params{exprs: exprs}
	p.views.New = func() any { return plan.view() }
	return p
}

// Values appends the values for m to out, as Param makes them. Its errors are
// semel.Invalid. The message passed the decoder before, so the body is JSON
// where one is needed.
func (p *Params) Values(m *semel.Message, out []any) ([]any, error) {
	if len(p.exprs) == 0 {
		return out, nil
	}
	v := p.views.Get().(*view)
	defer func() { v.close(); p.views.Put(v) }()
	if err := v.open(m.Body, metaOfMessage(m)); err != nil {
		return out, semel.Invalid(err)
	}
	for _, e := range p.exprs {
		x, err := v.eval(e)
		if err != nil {
			return out, explain(e, err)
		}
		out = append(out, Param(x))
	}
	return out, nil
}

// NeedsMeta reports whether any of them looks at $meta.
func (p *Params) NeedsMeta() bool {
	for _, e := range p.exprs {
		if e.NeedsMeta() {
			return true
		}
	}
	return false
}
