package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// action is what replay and discard have in common.
type action struct {
	place
	yes, dryRun      bool
	expect, by, note string
	verb, done       string
	// again are the flags that a command to go on needs.
	again func() []string
	do    func(ctx context.Context, d adapters.Desk, consumer string, targets []letter.Target, by, note string) ([]letter.Done, error)
}

func (o *action) flags(c *cobra.Command) {
	o.place.flags(c)
	f := c.Flags()
	f.BoolVar(&o.yes, "yes", false, "do not ask before acting on what a filter selects")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what is selected; change nothing")
	f.StringVar(&o.expect, "expect", "", "act only if the selection still has this `HASH`")
	f.StringVar(&o.by, "as", "", "who decides (default: the user of the system)")
}

func (a *app) replayCommand() *cobra.Command {
	o := &action{verb: "replay", done: "replayed"}
	proposed := false
	o.do = func(ctx context.Context, d adapters.Desk, consumer string, targets []letter.Target, by, note string) ([]letter.Done, error) {
		if proposed {
			return d.ReplayProposed(ctx, consumer, targets, by, note)
		}
		return d.Replay(ctx, consumer, targets, by, note)
	}
	o.again = func() (flags []string) {
		if proposed {
			flags = append(flags, "--proposed")
		}
		return append(flags, o.said("--note")...)
	}
	c := &cobra.Command{Use: "replay FILE REF...|TERM...", Short: "Have dead letters tried again", Args: arguments("FILE", "[TERM...]"),
		Long: "Have dead letters tried again, with their id: a running semel takes them up like\nevery retry, and a message that was applied meanwhile is not applied twice.\nEdited ones are tried with their edit. state=dead selects all that are dead.\nCtrl-C stops after the letters in hand and tells the command that goes on.\n\nExample:\n  semel letters replay orders.yaml class=system --dry-run" +
			lettersCodes + "\n  3  some could not be replayed\n  5  interrupted; some are left",
		RunE: func(_ *cobra.Command, args []string) error { return a.act(args[0], args[1:], o) }}
	o.flags(c)
	c.Flags().StringVar(&o.note, "note", "", "why, for those who look later")
	c.Flags().BoolVar(&proposed, "proposed", false, "with what was sent again or proposed last, not the first")
	return c
}

func (a *app) discardCommand() *cobra.Command {
	o := &action{verb: "discard", done: "discarded"}
	o.do = func(ctx context.Context, d adapters.Desk, consumer string, targets []letter.Target, by, reason string) ([]letter.Done, error) {
		return d.Discard(ctx, consumer, targets, by, reason)
	}
	o.again = func() []string { return o.said("--reason") }
	c := &cobra.Command{Use: "discard FILE REF...|TERM...", Short: "Close dead letters for good", Args: arguments("FILE", "[TERM...]"),
		Long: "Close dead letters for good. Who did it and why stays on record, and the same\nmessage, if it comes again, is a duplicate. Ctrl-C stops after the letters in\nhand and tells the command that goes on.\n\nExample:\n  semel letters discard orders.yaml k3q --reason \"sent by mistake\"" +
			lettersCodes + "\n  3  some could not be discarded\n  5  interrupted; some are left",
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

func (o *action) said(flag string) []string {
	if o.note == "" {
		return nil
	}
	return []string{flag, o.note}
}

// kind is what plans count letters by.
type kind struct {
	cause, reason string
	class         store.Class
}

func (k kind) String() string { return strings.TrimPrefix(string(k.class)+", "+k.reason, ", ") }

// chosen is a selection that is frozen: what is in it, each letter as it was
// seen.
type chosen struct {
	targets []letter.Target
	kinds   map[kind]int64
	// changed is when a letter of it was changed last: what is changed later
	// was so by this action or after it.
	changed time.Time
}

func (c *chosen) add(l *store.Letter) {
	c.targets = append(c.targets, letter.Target{Ref: l.Ref, Version: l.Version})
	if l.Updated.After(c.changed) {
		c.changed = l.Updated
	}
	c.kinds[kind{l.Cause.ID, l.Reason, l.Class}]++
}

// hash names the selection: it differs if a letter comes, goes or changes.
func (c *chosen) hash() string {
	h := sha256.New()
	for _, t := range slices.SortedFunc(slices.Values(c.targets), func(a, b letter.Target) int { return strings.Compare(a.Ref, b.Ref) }) {
		fmt.Fprintf(h, "%s %d\n", t.Ref, t.Version)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5]))
}

// act freezes the selection, shows it, asks where a filter made it, and acts.
// Interrupted, it has acted on the first of them; the same command then finds
// the rest.
func (a *app) act(path string, args []string, o *action) error {
	sel, err := selected(args, deadStates())
	if err != nil {
		return err
	}
	if err := letter.CheckSaid(o.decider(), o.note); err != nil {
		return exit(exitUsage, err)
	}
	if len(sel.refs) == 0 && sel.filter.Empty() {
		return usagef("say which letters: references, or a filter; state=dead is all that are dead")
	}
	return a.withStore(path, o.place, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		c, err := choose(ctx, st.Reader, f.Name, sel)
		if err != nil {
			return err
		}
		if h := c.hash(); o.expect != "" && o.expect != h {
			return usagef("the selection has changed: it is %s now, %s; look again with --dry-run", h, counted(int64(len(c.targets)), "letter"))
		}
		if o.dryRun || len(c.targets) == 0 {
			return a.plan(ctx, st, f, o, c)
		}
		if len(sel.refs) == 0 && !o.yes {
			if err := a.confirm(ctx, st, f, o, c); err != nil {
				return err
			}
		}
		return a.carryOut(f, st, o, sel, c)
	})
}

func choose(ctx context.Context, r store.Reader, consumer string, sel *selection) (*chosen, error) {
	c := &chosen{kinds: map[kind]int64{}}
	if len(sel.refs) == 0 {
		return c, sel.each(ctx, r, consumer, false, func(l *store.Letter) error {
			c.add(l)
			return nil
		})
	}
	for _, ref := range sel.refs {
		l, err := find(ctx, r, consumer, ref, false)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.targets, func(t letter.Target) bool { return t.Ref == l.Ref }) {
			c.add(l)
		}
	}
	return c, nil
}

// planJSON is the frozen form of --dry-run.
type planJSON struct {
	Verb      string          `json:"verb"`
	Count     int             `json:"count"`
	Selection string          `json:"selection"`
	Groups    []planGroupJSON `json:"groups"`
	Refs      []string        `json:"refs"`
}

type planGroupJSON struct {
	Group  string `json:"group"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
	N      int64  `json:"n"`
}

// plan tells what would be acted on.
func (a *app) plan(ctx context.Context, st *adapters.Store, f *config.File, o *action, c *chosen) error {
	if a.json {
		p := planJSON{Verb: o.verb, Count: len(c.targets), Selection: c.hash(), Groups: []planGroupJSON{}, Refs: []string{}}
		for _, k := range c.sorted() {
			p.Groups = append(p.Groups, planGroupJSON{k.cause, string(k.class), k.reason, c.kinds[k]})
		}
		for _, t := range c.targets {
			p.Refs = append(p.Refs, t.Ref)
		}
		return writeJSON(a.out, p)
	}
	fmt.Fprintf(a.out, "%s would be %s%s\n", counted(int64(len(c.targets)), "letter"), o.done, c.summary())
	if len(c.targets) == 0 {
		return nil
	}
	if err := c.print(ctx, a.out, st.Reader, f.Name); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "selection %s: with --expect %s it is acted on only if it is still the same\n", c.hash(), c.hash())
	return nil
}

// sorted are the kinds, those with most letters first.
func (c *chosen) sorted() []kind {
	return slices.SortedFunc(maps.Keys(c.kinds), func(a, b kind) int {
		return cmp.Or(cmp.Compare(c.kinds[b], c.kinds[a]), strings.Compare(a.cause, b.cause), strings.Compare(a.reason, b.reason))
	})
}

// print shows how many letters there are of each group.
func (c *chosen) print(ctx context.Context, w io.Writer, r store.Reader, consumer string) error {
	known, err := r.Groups(ctx, store.Query{Consumer: consumer})
	if err != nil {
		return exit(exitFault, err)
	}
	texts := map[string]string{}
	for _, g := range known {
		texts[g.Cause.ID] = g.Cause.Text
	}
	t := table(w)
	for i, k := range c.sorted() {
		if i == planGroups {
			fmt.Fprintf(t, "  …\tand %d more groups\n", len(c.kinds)-i)
			break
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", thousands(c.kinds[k]), first(k.cause, "-"), line(first(texts[k.cause], k.reason), 90))
	}
	t.Flush()
	return nil
}

// planGroups is how many groups a plan shows.
const planGroups = 20

// summary counts letters by class and reason.
func (c *chosen) summary() string {
	n := map[string]int64{}
	for k, count := range c.kinds {
		n[k.String()] += count
	}
	var parts []string
	for k, count := range n {
		parts = append(parts, thousands(count)+" "+k)
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " (" + strings.Join(parts, "; ") + ")"
}

// confirm shows the plan to a person and asks.
func (a *app) confirm(ctx context.Context, st *adapters.Store, f *config.File, o *action, c *chosen) error {
	what := fmt.Sprintf("%s %s%s", o.verb, counted(int64(len(c.targets)), "letter"), c.summary())
	if _, ok := terminal(a.err); !ok {
		return usagef("%s: add --yes to do it, or --dry-run to see which", what)
	}
	if err := c.print(ctx, a.err, st.Reader, f.Name); err != nil {
		return err
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

// carryOut acts on a frozen selection, a transaction for each hundred.
func (a *app) carryOut(f *config.File, st *adapters.Store, o *action, sel *selection, c *chosen) error {
	p := newSteps(f.Name, a.err)
	ctx, stop := a.signals(func(s os.Signal) {
		fmt.Fprintf(a.err, "\n%v: finishing the letters in hand; again to end at once\n", s)
	})
	defer stop()
	resume := o.resume(f, sel, c, c.targets)
	if len(c.targets) > letter.Chunk {
		p.say("%s%s, selection %s; if this is interrupted, go on with: %s", counted(int64(len(c.targets)), "letter"), c.summary(), c.hash(), resume)
	}
	r := bulkResult{Selection: c.hash()}
	var err error
	for part := range slices.Chunk(c.targets, letter.Chunk) {
		if ctx.Err() != nil {
			break
		}
		var done []letter.Done
		done, err = o.do(context.WithoutCancel(ctx), st.Desk, f.Name, part, o.decider(), o.note)
		a.tell(o, p, done, &r)
		if err != nil {
			break
		}
		p.advance(r.Done+r.Refused, len(c.targets))
	}
	p.end()
	if r.Left = len(c.targets) - r.Done - r.Refused; r.Left > 0 {
		r.Resume = o.resume(f, sel, c, c.targets[r.Done+r.Refused:])
	}
	return a.conclusion(f, o, &r, err)
}

// tell reports what became of some letters.
func (a *app) tell(o *action, p *steps, done []letter.Done, r *bulkResult) {
	for _, d := range done {
		if d.Err == nil {
			r.Done++
		} else {
			r.Refused++
		}
		switch {
		case a.json:
			_ = writeJSON(a.out, doneOf(o, d)) // a reader that is gone does not stop what was decided
		case d.Err != nil:
			p.end()
			fmt.Fprintf(a.err, "%s: %s\n", d.Ref, printable(d.Err.Error()))
		}
	}
}

// bulkResult is the last line of --json. Its form is frozen.
type bulkResult struct {
	Selection string `json:"selection"`
	Done      int    `json:"done"`
	Refused   int    `json:"refused"`
	Left      int    `json:"left"`
	Resume    string `json:"resume,omitempty"`
}

func (a *app) conclusion(f *config.File, o *action, r *bulkResult, err error) error {
	if a.json {
		err = errors.Join(err, writeJSON(a.out, r))
	} else {
		fmt.Fprintf(a.out, "%s %s\n", counted(int64(r.Done), "letter"), o.done)
		if r.Left > 0 {
			fmt.Fprintf(a.out, "%s left; go on with:\n  %s\n", counted(int64(r.Left), "letter"), printable(r.Resume))
		}
		if o.verb == "replay" && r.Done > 0 {
			fmt.Fprintf(a.out, "A running semel takes them up now; if none runs: semel run %s --once\n", f.Path)
		}
	}
	switch {
	case err != nil:
		return exit(exitFault, err)
	case r.Left > 0:
		return exit(exitWaiting, nil)
	case r.Refused > 0:
		return exit(exitDead, nil)
	}
	return nil
}

// resume is the command that acts on the rest of a selection, and on nothing
// that was acted on: a letter that was replayed and died again was changed
// later.
func (o *action) resume(f *config.File, sel *selection, c *chosen, left []letter.Target) string {
	words := []string{"semel", "letters", o.verb, f.Path}
	if len(sel.refs) > 0 {
		for _, t := range left {
			words = append(words, t.Ref)
		}
	} else {
		words = append(words, strings.TrimSpace(sel.filter.At(sel.now)+" changed<="+c.changed.UTC().Format(time.RFC3339Nano)), "--yes")
	}
	for _, fl := range [][2]string{{"--name", o.name}, {"--source", o.source}, {"--store", o.store}, {"--as", o.by}} {
		if fl[1] != "" {
			words = append(words, fl[0], fl[1])
		}
	}
	words = append(words, o.again()...)
	for i := range words {
		words[i] = shellWord(words[i])
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word for a POSIX shell where it needs that.
func shellWord(w string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@+%", r)
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !plain(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

func doneOf(o *action, d letter.Done) map[string]string {
	m := map[string]string{"ref": d.Ref, "result": o.done}
	if d.Err != nil {
		m["result"], m["error"] = "refused", d.Err.Error()
	}
	return m
}

// decider names the person: --as, or the user of the system.
func (o *action) decider() string { return decider(o.by) }

func decider(by string) string {
	if by != "" {
		return by
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
