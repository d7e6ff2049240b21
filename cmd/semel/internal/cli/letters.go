package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const lettersHelp = `Letters are messages that were set aside: dead ones wait for a person, the
others for their time or for an earlier message of their key. Verbs take
references (any beginning that is unique) or a filter, terms that all have to be
true:

  class=system state=dead,edited reason=exhausted error~timeout type=order.paid
  key=42 id=evt-1 group=k3q ref=ab "age>1h" "attempts>=3" reason!=tie
  ".order.total>100" '.order.id="x"'        (quotes are for the shell)

Example:
  semel letters groups orders.yaml                        why they died
  semel letters export orders.yaml group=k3q > bad.jsonl
  semel letters import orders.yaml fixed.jsonl --replay
  semel letters replay orders.yaml class=system
  semel letters discard orders.yaml class=format --reason "test data"`

const lettersCodes = `

Exit codes:
  0  done
  1  the command line or the pipeline file is wrong
  2  the store could not be read or written`

func (a *app) lettersCommand() *cobra.Command {
	c := &cobra.Command{Use: "letters", Short: "Find, repair, replay and discard parked messages", Long: lettersHelp, Args: verbs,
		RunE: helpOnly}
	c.AddCommand(a.listCommand(), a.groupsCommand(), a.countCommand(), a.showCommand(), a.replayCommand(), a.discardCommand(),
		a.exportCommand(), a.importCommand())
	return c
}

// withStore runs fn on a pipeline's store.
func (a *app) withStore(path string, p place, fn func(context.Context, *config.File, *adapters.Store) error) error {
	f, err := a.load(path, p)
	if err != nil {
		return err
	}
	ctx := context.Background()
	st, err := a.open(ctx, f)
	if err != nil {
		return err
	}
	defer st.Close()
	return fn(ctx, f, st)
}

func (a *app) listCommand() *cobra.Command {
	var p place
	var limit int
	c := &cobra.Command{Use: "list FILE [TERM...]", Short: "List letters, oldest first", Args: arguments("FILE", "[TERM...]"),
		Long: "List letters, oldest first, a line each; with --json an object each. Without a\nterm about state: those that are open. semel letters --help shows the terms.\n\nExample:\n  semel letters list orders.yaml class=format \"age>1d\"" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.list(args[0], args[1:], p, limit) }}
	c.Flags().IntVar(&limit, "limit", 100, "at most so many; 0: all")
	p.flags(c)
	return c
}

// errEnough ends a listing.
var errEnough = errors.New("enough")

func (a *app) list(path string, args []string, p place, limit int) error {
	sel, err := filtered(args, openStates())
	if err != nil {
		return err
	}
	return a.withStore(path, p, func(ctx context.Context, file *config.File, st *adapters.Store) error {
		n := 0
		t := table(a.out)
		err := sel.each(ctx, st.Reader, file.Name, false, func(l *store.Letter) error {
			if n == limit && limit > 0 {
				return errEnough
			}
			n++
			if a.json {
				return writeJSON(a.out, letterOf(l))
			}
			if n == 1 {
				fmt.Fprintln(t, "REF\tSTATE\tCLASS\tREASON\tGROUP\tTRIES\tAGE\tID\tERROR")
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.Ref, l.State, l.Class, l.Reason, first(l.Cause.ID, "-"), l.Attempts,
				span(time.Since(l.Created)), line(first(l.Message.ID, "at "+l.Origin), 40), line(cause(l.Error, l.Message.ID, l.Origin), 80))
			if n%listPage == 0 {
				return t.Flush() // a long list begins at once
			}
			return nil
		})
		t.Flush()
		switch {
		case errors.Is(err, errEnough):
			fmt.Fprintf(a.err, "more than %d; --limit 0 shows all\n", limit)
			return nil
		case err == nil && n == 0 && !a.json:
			fmt.Fprintln(a.out, "no letters")
		}
		return err
	})
}

// cause is the first line of an error without the stage and the name of the
// message that stand in front of it: where it is shown they are told already.
func cause(s string, names ...string) string {
	s = firstLine(s)
	for _, name := range names {
		if _, after, ok := strings.Cut(s, ": "+name+": "); ok && name != "" {
			return after
		}
	}
	return s
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// find returns the one letter whose reference begins with ref.
func find(ctx context.Context, r store.Reader, consumer, ref string, bodies bool) (*store.Letter, error) {
	found, err := r.List(ctx, store.Query{Consumer: consumer, Ref: strings.ToLower(ref), Limit: 2, Bodies: bodies})
	switch {
	case err != nil:
		return nil, exit(exitFault, err)
	case len(found) == 0:
		return nil, usagef("no letter has a reference that begins with %q: semel letters list shows those that are open", ref)
	case len(found) > 1 && found[0].Ref != strings.ToLower(ref):
		return nil, usagef("several letters have a reference that begins with %q: give more of it", ref)
	}
	return &found[0], nil
}
