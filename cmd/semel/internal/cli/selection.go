package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/letter/filter"
	"github.com/semel-dev/semel/store"
)

// States that verbs mean where the filter says nothing of states.
func openStates() []store.State {
	return slices.DeleteFunc(store.States(), func(s store.State) bool { return !s.Open() })
}

func deadStates() []store.State {
	return []store.State{store.StateDead, store.StateEdited, store.StateApproved}
}

// selection is which letters a command line means.
type selection struct {
	// refs are given one by one; then there is no filter.
	refs   []string
	filter *filter.Filter
	states []store.State
	now    time.Time // what ages are counted from
}

// filtered reads terms for a verb that only looks; references are a term, too.
func filtered(args []string, states []store.State) (*selection, error) {
	s, err := selected(args, states)
	if err != nil || len(s.refs) == 0 {
		return s, err
	}
	text := "ref=" + strings.ToLower(strings.Join(s.refs, ","))
	s.refs, s.states = nil, store.States()
	if s.filter, err = filter.Parse(text); err != nil {
		return nil, exit(exitUsage, err)
	}
	return s, nil
}

// selected reads references or terms.
func selected(args []string, states []store.State) (*selection, error) {
	s := &selection{states: states, now: time.Now()}
	terms := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		ref := arg != "" && !strings.EqualFold(arg, "and") && strings.Trim(strings.ToLower(arg), "abcdefghijklmnopqrstuvwxyz234567") == ""
		if ref {
			s.refs = append(s.refs, arg)
		}
		return ref
	})
	text := strings.TrimSpace(strings.Join(terms, " "))
	if len(s.refs) > 0 && text != "" {
		return nil, usagef("references and filters exclude each other: %s looks like a reference; a term has an operator, such as ref=%s", s.refs[0], s.refs[0])
	}
	var err error
	if s.filter, err = filter.Parse(text); err != nil {
		return nil, exit(exitUsage, err)
	}
	return s, nil
}

const listPage = 500

// each calls fn for all letters that the filter means, oldest first, a page at
// a time.
func (s *selection) each(ctx context.Context, r store.Reader, consumer string, bodies bool, fn func(*store.Letter) error) error {
	q, exact := s.filter.Query(consumer, s.states)
	q.Limit, q.Bodies = listPage, q.Bodies || bodies
	for {
		page, err := r.List(ctx, q)
		if err != nil {
			return exit(exitFault, err)
		}
		if len(page) == 0 {
			return nil
		}
		for i := range page {
			if !exact && !s.filter.Match(&page[i], s.now) {
				continue
			}
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
		last := &page[len(page)-1]
		q.After = store.Cursor{Created: last.Created, Ref: last.Ref}
	}
}

// groups counts the letters that the filter means, by cause and state: by the
// store alone if it can.
func (s *selection) groups(ctx context.Context, r store.Reader, consumer string) ([]store.Group, error) {
	q, exact := s.filter.Query(consumer, s.states)
	if exact {
		gs, err := r.Groups(ctx, q)
		if err != nil {
			return nil, exit(exitFault, err)
		}
		return gs, nil
	}
	tally := map[[2]string]*store.Group{}
	err := s.each(ctx, r, consumer, false, func(l *store.Letter) error {
		k := [2]string{l.Cause.ID, string(l.State)}
		g := tally[k]
		if g == nil {
			g = &store.Group{Cause: l.Cause, State: l.State, Class: l.Class, Reason: l.Reason, First: l.Created}
			tally[k] = g
		}
		g.N++
		if l.Failed.After(g.Last) {
			g.Last = l.Failed
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return described(ctx, r, consumer, tally)
}

// described adds what causes mean to groups that were counted here.
func described(ctx context.Context, r store.Reader, consumer string, tally map[[2]string]*store.Group) (out []store.Group, err error) {
	known, err := r.Groups(ctx, store.Query{Consumer: consumer})
	if err != nil {
		return nil, exit(exitFault, err)
	}
	of := map[string]*store.Group{}
	for i := range known {
		of[known[i].Cause.ID] = &known[i]
	}
	for _, g := range tally {
		if k := of[g.Cause.ID]; k != nil {
			g.Cause, g.Class, g.Reason = k.Cause, k.Class, k.Reason
		}
		out = append(out, *g)
	}
	return out, nil
}
