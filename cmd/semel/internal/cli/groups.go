package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

func (a *app) groupsCommand() *cobra.Command {
	var p place
	var limit int
	c := &cobra.Command{Use: "groups FILE [TERM...]", Short: "Group letters by what went wrong", Args: arguments("FILE", "[TERM...]"),
		Long: "Group letters by what went wrong: one line for each cause, those with most\nopen letters first. Ids, numbers, quoted values, paths and times are taken out\nof the errors, so that failures of one cause meet. GROUP is the term group=… of\nall verbs. Without a term about state, closed letters count as well.\n\nExample:\n  semel letters groups orders.yaml class=system\n  semel letters list orders.yaml group=k3q" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.groups(args[0], args[1:], p, limit) }}
	c.Flags().IntVar(&limit, "limit", 100, "at most so many; 0: all")
	p.flags(c)
	return c
}

// groupJSON is the frozen form of a group.
type groupJSON struct {
	Group  string           `json:"group"`
	Class  string           `json:"class"`
	Reason string           `json:"reason"`
	Text   string           `json:"text"`
	First  time.Time        `json:"first"`
	Last   time.Time        `json:"last"`
	Open   int64            `json:"open"`
	Total  int64            `json:"total"`
	States map[string]int64 `json:"states"`
}

// gather makes one group of each cause. Letters that never failed are in none.
func gather(parts []store.Group) []groupJSON {
	byCause := map[string]*groupJSON{}
	for _, p := range parts {
		if p.Cause.ID == "" {
			continue
		}
		g := byCause[p.Cause.ID]
		if g == nil {
			g = &groupJSON{Group: p.Cause.ID, Class: string(p.Class), Reason: p.Reason, Text: p.Cause.Text, First: p.First, Last: p.Last, States: map[string]int64{}}
			byCause[p.Cause.ID] = g
		}
		g.Total += p.N
		g.States[string(p.State)] += p.N
		if p.State.Open() {
			g.Open += p.N
		}
		if p.First.Before(g.First) {
			g.First = p.First
		}
		if p.Last.After(g.Last) {
			g.Last = p.Last
		}
	}
	all := make([]groupJSON, 0, len(byCause))
	for _, g := range byCause {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b groupJSON) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), b.Last.Compare(a.Last), cmp.Compare(a.Group, b.Group))
	})
	return all
}

func (a *app) groups(path string, args []string, p place, limit int) error {
	sel, err := filtered(args, nil)
	if err != nil {
		return err
	}
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		parts, err := sel.groups(ctx, st.Reader, f.Name)
		if err != nil {
			return err
		}
		all := gather(parts)
		shown := all
		if limit > 0 && len(all) > limit {
			shown = all[:limit]
		}
		if a.json {
			for _, g := range shown {
				if err := writeJSON(a.out, g); err != nil {
					return exit(exitFault, err)
				}
			}
		} else {
			a.printGroups(shown)
		}
		if len(shown) < len(all) {
			fmt.Fprintf(a.err, "%d of %d groups; --limit 0 shows all\n", len(shown), len(all))
		}
		return nil
	})
}

func (a *app) printGroups(gs []groupJSON) {
	if len(gs) == 0 {
		fmt.Fprintln(a.out, "no letters that failed")
		return
	}
	t := table(a.out)
	fmt.Fprintln(t, "GROUP\tOPEN\tTOTAL\tCLASS\tREASON\tFIRST\tLAST\tERROR")
	for _, g := range gs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Group, thousands(g.Open), thousands(g.Total), g.Class, g.Reason,
			ago(g.First), ago(g.Last), line(g.Text, 100))
	}
	t.Flush()
}

// ago is how long something is past.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(time.Since(t)) + " ago"
}

func (a *app) countCommand() *cobra.Command {
	var p place
	c := &cobra.Command{Use: "count FILE [TERM...]", Short: "Count letters, by state and by reason", Args: arguments("FILE", "[TERM...]"),
		Long: "Count letters, by state and by class and reason. Without a term about state,\nclosed letters count as well.\n\nExample:\n  semel letters count orders.yaml state=open error~timeout" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.count(args[0], args[1:], p) }}
	p.flags(c)
	return c
}

// countJSON is the frozen form of a count.
type countJSON struct {
	Total   int64            `json:"total"`
	States  map[string]int64 `json:"states"`
	Reasons []reasonJSON     `json:"reasons"`
}

type reasonJSON struct {
	Class  string `json:"class"`
	Reason string `json:"reason"`
	N      int64  `json:"n"`
}

func countOf(parts []store.Group) countJSON {
	c := countJSON{States: map[string]int64{}, Reasons: []reasonJSON{}}
	for _, p := range parts {
		c.Total += p.N
		c.States[string(p.State)] += p.N
		reason := p.Reason
		if p.Cause.ID == "" {
			reason = "held"
		}
		i := slices.IndexFunc(c.Reasons, func(r reasonJSON) bool { return r.Class == string(p.Class) && r.Reason == reason })
		if i < 0 {
			i = len(c.Reasons)
			c.Reasons = append(c.Reasons, reasonJSON{Class: string(p.Class), Reason: reason})
		}
		c.Reasons[i].N += p.N
	}
	slices.SortFunc(c.Reasons, func(a, b reasonJSON) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Class, b.Class), strings.Compare(a.Reason, b.Reason))
	})
	return c
}

func (a *app) count(path string, args []string, p place) error {
	sel, err := filtered(args, nil)
	if err != nil {
		return err
	}
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		parts, err := sel.groups(ctx, st.Reader, f.Name)
		if err != nil {
			return err
		}
		c := countOf(parts)
		if a.json {
			return writeJSON(a.out, c)
		}
		t := table(a.out)
		fmt.Fprintf(t, "total\t%s\n", thousands(c.Total))
		for _, s := range store.States() {
			if n := c.States[string(s)]; n > 0 {
				fmt.Fprintf(t, "%s\t%s\n", s, thousands(n))
			}
		}
		for _, r := range c.Reasons {
			fmt.Fprintf(t, "%s\t%s\n", strings.TrimPrefix(r.Class+", "+r.Reason, ", "), thousands(r.N))
		}
		t.Flush()
		return nil
	})
}
