package sqlstep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/semel-dev/semel"
)

// Execer is what a handler needs of a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Preparer can have a statement compiled.
type Preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Values appends the parameters of a message to out.
type Values interface {
	Values(m *semel.Message, out []any) ([]any, error)
}

// Handler runs steps. It is safe for concurrent use.
type Handler struct {
	Steps  []*Step
	Params Values
}

// Handle runs the steps in order until one changes no row and says that this
// decides the message.
func (h *Handler) Handle(ctx context.Context, tx Execer, m semel.Message) error {
	var space [16]any
	values, err := h.Params.Values(&m, space[:0])
	if err != nil {
		return err
	}
	for i, s := range h.Steps {
		if err := s.run(ctx, tx, values); err != nil {
			return h.name(i, err)
		}
	}
	return nil
}

// Prepare has all steps compiled, which finds tables and columns that are not
// there before a message does.
func (h *Handler) Prepare(ctx context.Context, tx Preparer) error {
	var errs []error
	var first error
	for i, s := range h.Steps {
		err := s.prepare(ctx, tx)
		if err == nil || first != nil && errors.Is(err, first) { // only because of the first
			continue
		}
		if first == nil {
			first = err
		}
		errs = append(errs, &FailedError{Step: i + 1, named: true, err: err})
	}
	return errors.Join(errs...)
}

func (s *Step) prepare(ctx context.Context, tx Preparer) error {
	st, err := tx.PrepareContext(ctx, s.text)
	if err != nil {
		return err
	}
	defer st.Close()
	return nil
}

// FailedError says which step a database did not take, from 1. Its text names
// the step where there are several.
type FailedError struct {
	Step  int
	named bool
	err   error
}

func (e *FailedError) Error() string {
	if !e.named {
		return e.err.Error()
	}
	return fmt.Sprintf("handle.sql, step %d: %v", e.Step, e.err)
}

// Unwrap returns what the database said.
func (e *FailedError) Unwrap() error { return e.err }

// name says which step it was.
func (h *Handler) name(i int, err error) error {
	if errors.Is(err, semel.ErrDuplicate) || errors.Is(err, semel.ErrSuperseded) || errors.Is(err, semel.ErrStale) {
		return err
	}
	return &FailedError{Step: i + 1, named: len(h.Steps) > 1, err: err}
}

// asText writes numbers and truth values as the server reads them, whatever the
// type of the column: a number may go into text, a text of digits into a number.
func asText(v any) any {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return v
}

func (s *Step) run(ctx context.Context, tx Execer, values []any) error {
	var space [16]any
	args := space[:0]
	for _, i := range s.args {
		v := values[i]
		if s.typed {
			v = asText(v)
		}
		args = append(args, v)
	}
	r, err := tx.ExecContext(ctx, s.text, args...)
	if err != nil || s.none == Ignore {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil || n > 0 {
		return err
	}
	switch s.none {
	case Duplicate:
		return semel.ErrDuplicate
	case Superseded:
		return semel.ErrSuperseded
	case Stale:
		return semel.ErrStale
	}
	return semel.Permanent(errors.New("the statement changed no row (none: fail)"))
}
