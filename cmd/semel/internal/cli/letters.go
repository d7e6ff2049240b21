package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const lettersHelp = `Letters are messages that were set aside: dead ones wait for a person, the others
for their time or for an earlier message of their key. A letter is named by its
reference; any beginning of it that is unique will do.

Example:
  semel letters list orders.yaml --state dead
  semel letters show orders.yaml k3q
  semel letters replay orders.yaml k3q
  semel letters discard orders.yaml --class format --reason "test data"`

const lettersCodes = `

Exit codes:
  0  done
  1  the command line or the pipeline file is wrong
  2  the store could not be read or written`

func (a *app) lettersCommand() *cobra.Command {
	c := &cobra.Command{Use: "letters", Short: "List, show, replay and discard parked messages", Long: lettersHelp, Args: cobra.NoArgs,
		RunE: helpOnly}
	c.AddCommand(a.listCommand(), a.showCommand(), a.replayCommand(), a.discardCommand())
	return c
}

// filter selects letters.
type filter struct {
	states         []string
	class, key, id string
}

func (q *filter) flags(c *cobra.Command, states string) {
	f := c.Flags()
	f.StringSliceVar(&q.states, "state", nil, "only these states (default: "+states+")")
	f.StringVar(&q.class, "class", "", "only this class: format, business or system")
	f.StringVar(&q.key, "key", "", "only this key")
	f.StringVar(&q.id, "id", "", "only this message id")
}

var (
	openStates = []store.State{store.StateDead, store.StateEdited, store.StateApproved, store.StateRetry, store.StateHeld}
	deadStates = openStates[:3]
	allStates  = append(slices.Clone(openStates), store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded)
)

// query checks the words of the filter.
func (q *filter) query(consumer string, states []store.State) (store.Query, error) {
	out := store.Query{Consumer: consumer, States: states, Class: store.Class(q.class), ID: q.id, Key: q.key, Limit: listPage}
	if q.class != "" && !slices.Contains([]store.Class{store.Format, store.Business, store.System}, out.Class) {
		return out, usagef("--class %s: one of format, business, system", q.class)
	}
	if len(q.states) == 0 {
		return out, nil
	}
	out.States = nil
	for _, s := range q.states {
		if !slices.Contains(allStates, store.State(s)) {
			return out, usagef("--state %s: one of %s", s, joinStates(allStates))
		}
		out.States = append(out.States, store.State(s))
	}
	return out, nil
}

func joinStates(states []store.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

const listPage = 500

// everyLetter calls fn for all letters of a query, a page at a time.
func everyLetter(ctx context.Context, r store.Reader, q store.Query, fn func(*store.Letter) error) error {
	for {
		page, err := r.List(ctx, q)
		if err != nil {
			return exit(exitFault, err)
		}
		for i := range page {
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < q.Limit {
			return nil
		}
		q.After = page[len(page)-1].Ref
	}
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
	var q filter
	var p place
	var limit int
	c := &cobra.Command{Use: "list FILE", Short: "List letters, oldest first", Args: arguments("FILE"),
		Long: "List letters, oldest first, a line each; with --json an object each.\n\nExample:\n  semel letters list orders.yaml --class format" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.list(args[0], p, q, limit) }}
	q.flags(c, "all that are open")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many; 0: all")
	p.flags(c)
	return c
}

// errEnough ends a listing.
var errEnough = errors.New("enough")

func (a *app) list(path string, p place, f filter, limit int) error {
	return a.withStore(path, p, func(ctx context.Context, file *config.File, st *adapters.Store) error {
		q, err := f.query(file.Name, openStates)
		if err != nil {
			return err
		}
		n := 0
		t := table(a.out)
		err = everyLetter(ctx, st.Reader, q, func(l *store.Letter) error {
			if n == limit && limit > 0 {
				return errEnough
			}
			n++
			if a.json {
				return writeJSON(a.out, letterOf(l))
			}
			if n == 1 {
				fmt.Fprintln(t, "REF\tSTATE\tCLASS\tREASON\tTRIES\tAGE\tID\tERROR")
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.Ref, l.State, l.Class, l.Reason, l.Attempts, span(time.Since(l.Created)),
				line(first(l.Message.ID, "at "+l.Origin), 40), line(cause(l.Error, l.Message.ID, l.Origin), 80))
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
		return nil, usagef("no letter has a reference that begins with %q", ref)
	case len(found) > 1:
		return nil, usagef("several letters have a reference that begins with %q: give more of it", ref)
	}
	return &found[0], nil
}

// action is what replay and discard have in common.
type action struct {
	place
	filter
	all, yes, dryRun bool
	by, note         string
	verb, done       string
	do               func(ctx context.Context, d adapters.Desk, consumer string, refs []string, by, note string) ([]letter.Done, error)
}

func (o *action) flags(c *cobra.Command) {
	o.filter.flags(c, joinStates(deadStates))
	o.place.flags(c)
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, "all dead letters")
	f.BoolVar(&o.yes, "yes", false, "do not ask before acting on what a filter selects")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what is selected; change nothing")
	f.StringVar(&o.by, "as", "", "who decides (default: the user of the system)")
}

func (a *app) replayCommand() *cobra.Command {
	o := &action{verb: "replay", done: "replayed"}
	proposed := false
	o.do = func(ctx context.Context, d adapters.Desk, consumer string, refs []string, by, note string) ([]letter.Done, error) {
		if proposed {
			return d.ReplayProposed(ctx, consumer, refs, by, note)
		}
		return d.Replay(ctx, consumer, refs, by, note)
	}
	c := &cobra.Command{Use: "replay FILE [REF...]", Short: "Have dead letters tried again", Args: arguments("FILE", "[REF...]"),
		Long: "Have dead letters tried again, with their id: a running semel takes them up like\nevery retry, and a message that was applied meanwhile is not applied twice.\n\nExample:\n  semel letters replay orders.yaml --class system --dry-run" +
			lettersCodes + "\n  3  some could not be replayed",
		RunE: func(_ *cobra.Command, args []string) error { return a.act(args[0], args[1:], o) }}
	o.flags(c)
	c.Flags().StringVar(&o.note, "note", "", "why, for those who look later")
	c.Flags().BoolVar(&proposed, "proposed", false, "with the content that was sent again or returned last, not the first one")
	return c
}

func (a *app) discardCommand() *cobra.Command {
	o := &action{verb: "discard", done: "discarded"}
	o.do = func(ctx context.Context, d adapters.Desk, consumer string, refs []string, by, reason string) ([]letter.Done, error) {
		return d.Discard(ctx, consumer, refs, by, reason)
	}
	c := &cobra.Command{Use: "discard FILE [REF...]", Short: "Close dead letters for good", Args: arguments("FILE", "[REF...]"),
		Long: "Close dead letters for good. Who did it and why stays on record, and the same\nmessage, if it comes again, is a duplicate.\n\nExample:\n  semel letters discard orders.yaml k3q --reason \"sent by mistake\"" +
			lettersCodes + "\n  3  some could not be discarded",
		RunE: func(_ *cobra.Command, args []string) error {
			if strings.TrimSpace(o.note) == "" {
				return usagef("--reason is missing: someone will ask where the message went")
			}
			return a.act(args[0], args[1:], o)
		}}
	o.flags(c)
	c.Flags().StringVar(&o.note, "reason", "", "why (required)")
	return c
}

// act freezes the selection, shows it, asks where a filter made it, and acts.
// Interrupted, it has acted on the first of them; the same command then finds
// the rest.
func (a *app) act(path string, refs []string, o *action) error {
	filtered := o.all || o.class != "" || o.key != "" || o.id != "" || len(o.states) > 0
	switch {
	case len(refs) == 0 && !filtered:
		return usagef("say which letters: references, a filter, or --all")
	case len(refs) > 0 && filtered:
		return usagef("references and filters exclude each other")
	}
	return a.withStore(path, o.place, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		chosen, err := o.choose(ctx, st.Reader, f.Name, refs)
		if err != nil {
			return err
		}
		if o.dryRun || len(chosen) == 0 {
			return a.plan(o, chosen)
		}
		if filtered && !o.yes {
			if err := a.confirm(o, chosen); err != nil {
				return err
			}
		}
		return a.carryOut(ctx, f, st, o, chosen)
	})
}

func (o *action) choose(ctx context.Context, r store.Reader, consumer string, refs []string) (chosen []store.Letter, err error) {
	if len(refs) == 0 {
		q, err := o.query(consumer, deadStates)
		if err != nil {
			return nil, err
		}
		return chosen, everyLetter(ctx, r, q, func(l *store.Letter) error {
			chosen = append(chosen, *l)
			return nil
		})
	}
	for _, ref := range refs {
		l, err := find(ctx, r, consumer, ref, false)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, *l)
	}
	return chosen, nil
}

// plan tells what would be acted on.
func (a *app) plan(o *action, chosen []store.Letter) error {
	if a.json {
		refs := make([]string, len(chosen))
		for i := range chosen {
			refs[i] = chosen[i].Ref
		}
		return writeJSON(a.out, map[string]any{"verb": o.verb, "refs": refs})
	}
	fmt.Fprintf(a.out, "%s would be %s%s\n", counted(int64(len(chosen)), "letter"), o.done, kinds(chosen))
	return nil
}

// kinds counts letters by reason.
func kinds(chosen []store.Letter) string {
	n := map[string]int{}
	for i := range chosen {
		n[string(chosen[i].Class)+", "+chosen[i].Reason]++
	}
	var parts []string
	for k, c := range n {
		parts = append(parts, strconv.Itoa(c)+" "+k)
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " (" + strings.Join(parts, "; ") + ")"
}

func (a *app) confirm(o *action, chosen []store.Letter) error {
	what := fmt.Sprintf("%s %s%s", o.verb, counted(int64(len(chosen)), "letter"), kinds(chosen))
	if _, ok := terminal(a.err); !ok {
		return usagef("%s: add --yes to do it, or --dry-run to see which", what)
	}
	return a.ask(what)
}

// ask wants a yes.
func (a *app) ask(what string) error {
	fmt.Fprintf(a.err, "%s? [y/N] ", what)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usagef("nothing was changed")
	}
	return nil
}

func (a *app) carryOut(ctx context.Context, f *config.File, st *adapters.Store, o *action, chosen []store.Letter) error {
	refs := make([]string, len(chosen))
	for i := range chosen {
		refs[i] = chosen[i].Ref
	}
	done, err := o.do(ctx, st.Desk, f.Name, refs, o.decider(), o.note)
	refused := 0
	for _, d := range done {
		if d.Err != nil {
			refused++
		}
		switch {
		case a.json:
			err = errors.Join(err, writeJSON(a.out, doneOf(o, d)))
		case d.Err != nil:
			fmt.Fprintf(a.err, "%s: %s\n", d.Ref, printable(d.Err.Error()))
		}
	}
	if !a.json {
		fmt.Fprintf(a.out, "%s %s\n", counted(int64(len(done)-refused), "letter"), o.done)
		if o.verb == "replay" && len(done) > refused {
			fmt.Fprintf(a.out, "A running semel takes them up now; if none runs: semel run %s --once\n", f.Path)
		}
	}
	switch {
	case err != nil:
		return exit(exitFault, err)
	case refused > 0:
		return exit(exitDead, nil)
	}
	return nil
}

func doneOf(o *action, d letter.Done) map[string]string {
	m := map[string]string{"ref": d.Ref, "result": o.done}
	if d.Err != nil {
		m["result"], m["error"] = "refused", d.Err.Error()
	}
	return m
}

// decider names the person: --as, or the user of the system.
func (o *action) decider() string {
	if o.by != "" {
		return o.by
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
