package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const effectsHelp = `Effects outside of the database (handle.http, handle.exec) are in doubt when
nobody knows whether they happened: the process died in the middle, or no answer
came. What is in doubt is not done again by itself, unless the file says so.
Find out at the receiver, say what you found, and replay the letter.

Example:
  semel effects list orders.yaml
  semel effects settle orders.yaml evt-17 --happened
  semel letters replay orders.yaml id=evt-17`

func (a *app) effectsCommand() *cobra.Command {
	c := &cobra.Command{Use: "effects", Short: "Effects outside of the database that are in doubt", Long: effectsHelp, Args: cobra.NoArgs, RunE: helpOnly}
	c.AddCommand(a.effectsListCommand(), a.effectsSettleCommand())
	return c
}

func (a *app) effectsListCommand() *cobra.Command {
	var p place
	c := &cobra.Command{Use: "list FILE", Short: "List effects that are under way or in doubt", Args: arguments("FILE"),
		Long: "List effects that are under way or in doubt, by message id, a line each; with\n--json an object each.\n\nExample:\n  semel effects list orders.yaml" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.listEffects(args[0], p) }}
	p.flags(c)
	return c
}

type effectJSON struct {
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Attempts int       `json:"attempts"`
	Token    int64     `json:"token"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
}

func effectOf(e *store.Effect) effectJSON {
	state := map[store.EffectState]string{store.EffectIntended: "under way", store.EffectDone: "happened", store.EffectFailed: "did not happen"}[e.State]
	if e.InDoubt() {
		state = "in doubt"
	}
	return effectJSON{e.Key, state, e.Attempts, e.Token, e.Updated, e.Note}
}

func (a *app) listEffects(path string, p place) error {
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		t, n := table(a.out), 0
		defer t.Flush()
		for after := ""; ; {
			rows, err := st.Effects.Effects(ctx, f.Name, store.EffectQuery{After: after})
			if err != nil {
				return exit(exitFault, err)
			}
			if len(rows) == 0 {
				break
			}
			for i := range rows {
				n++
				if err := a.showEffect(t, effectOf(&rows[i]), n == 1); err != nil {
					return err
				}
			}
			after = rows[len(rows)-1].Key
		}
		if n == 0 && !a.json {
			fmt.Fprintln(a.out, "nothing is in doubt")
		}
		return nil
	})
}

func (a *app) showEffect(t interface{ Write([]byte) (int, error) }, e effectJSON, head bool) error {
	if a.json {
		return writeJSON(a.out, e)
	}
	if head {
		fmt.Fprintln(t, "ID\tSTATE\tTRIES\tSINCE\tWHY")
	}
	_, err := fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", line(e.ID, 60), e.State, e.Attempts, span(time.Since(e.Since)), line(first(e.Why, "whoever was at it vanished"), 80))
	return err
}

type settling struct {
	place
	happened, not, dryRun bool
	by                    string
}

func (a *app) effectsSettleCommand() *cobra.Command {
	var o settling
	c := &cobra.Command{Use: "settle FILE ID", Short: "Say whether an effect in doubt has happened", Args: arguments("FILE", "ID"),
		Long: "Say whether an effect in doubt has happened. If it has, a replay of its letter\nrecords the message without doing it again; if it has not, a replay does it.\n\nExample:\n  semel effects settle orders.yaml evt-17 --did-not-happen" + lettersCodes + "\n  3  it is not in doubt",
		RunE: func(_ *cobra.Command, args []string) error {
			if o.happened == o.not {
				return usagef("say what you found out: --happened or --did-not-happen")
			}
			return a.settle(args[0], args[1], o)
		}}
	f := c.Flags()
	f.BoolVar(&o.happened, "happened", false, "it has happened")
	f.BoolVar(&o.not, "did-not-happen", false, "it has not")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would be settled; change nothing")
	f.StringVar(&o.by, "as", "", "who says so (default: the user of the system)")
	o.place.flags(c)
	return c
}

func (a *app) settle(path, id string, o settling) error {
	return a.withStore(path, o.place, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		rows, err := st.Effects.Effects(ctx, f.Name, store.EffectQuery{Key: id})
		if err != nil {
			return exit(exitFault, err)
		}
		if len(rows) == 0 {
			return exit(exitDead, fmt.Errorf("no effect is known of a message %q", id))
		}
		e := effectOf(&rows[0])
		if !rows[0].InDoubt() {
			return exit(exitDead, fmt.Errorf("the effect of %q is not in doubt: %s", id, e.State))
		}
		if !o.dryRun {
			err := effect.Settle(ctx, st.Effects, f.Name, id, o.happened, decider(o.by))
			if errors.Is(err, effect.ErrMoved) {
				return exit(exitDead, fmt.Errorf("the effect of %q is not in doubt any more", id))
			}
			if err != nil {
				return exit(exitFault, err)
			}
		}
		return a.told(f, e, o)
	})
}

// told says what was settled, and what to do next.
func (a *app) told(f *config.File, e effectJSON, o settling) error {
	found := "did not happen"
	if o.happened {
		found = "happened"
	}
	if a.json {
		return writeJSON(a.out, struct {
			effectJSON
			Found  string `json:"found"`
			DryRun bool   `json:"dry_run"`
		}{e, found, o.dryRun})
	}
	if o.dryRun {
		fmt.Fprintf(a.out, "the effect of %s is in doubt and would be settled: it %s\n", line(e.ID, 60), found)
		return nil
	}
	fmt.Fprintf(a.out, "settled: the effect of %s %s\nits letter waits: semel letters replay %s id=%s\n", line(e.ID, 60), found, printable(f.Path), line(e.ID, 60))
	return nil
}
