package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

const explainHelp = `Say everything that is known about one message: what its record says, which
letters it has, which version of its key was applied, and where in the source it
lies. The source is searched by reading it, which takes a while if it is large.

Example:
  semel explain orders.yaml evt-4711

Exit codes:
  0  something is known
  1  the command line or the pipeline file is wrong
  2  the source or the store could not be read
  3  nothing is known of it`

type explainOptions struct {
	place
	key    string
	search time.Duration
}

func (a *app) explainCommand() *cobra.Command {
	var o explainOptions
	var search string
	c := &cobra.Command{Use: "explain FILE ID", Short: "Everything known about one message", Long: explainHelp, Args: arguments("FILE", "ID"),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			if o.search, err = config.ParseDuration(search); err != nil {
				return usagef("--search %s: %v", search, err)
			}
			return a.explain(args[0], args[1], o)
		}}
	c.Flags().StringVar(&o.key, "key", "", "its key, where neither a letter nor the source tells it")
	c.Flags().StringVar(&search, "search", "10s", "search source for `TIME`; 0s: not at all")
	o.flags(c)
	return c
}

// explanation is the frozen form of explain --json.
type explanation struct {
	ID      string       `json:"id"`
	Key     string       `json:"key,omitempty"`
	Answer  string       `json:"answer"`
	Record  *recordJSON  `json:"record"`
	Letters []letterJSON `json:"letters"`
	Version *versionJSON `json:"version"`
	// Effect is that outside of the database; null: there is none.
	Effect *effectJSON `json:"effect"`
	Places []string    `json:"places"`
	// Searched is false if the source was not searched to its end.
	Searched bool `json:"searched"`
}

type recordJSON struct {
	Verdict string    `json:"verdict"`
	At      time.Time `json:"at"`
}

type versionJSON struct {
	N  int64  `json:"version"`
	ID string `json:"id"`
}

func (a *app) explain(path, id string, o explainOptions) error {
	return a.withStore(path, o.place, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		x := &explanation{ID: id, Key: o.key, Letters: []letterJSON{}, Places: []string{}}
		if err := x.searchSource(ctx, f, o.search); err != nil {
			return exit(exitFault, err)
		}
		t, err := st.Reader.Trace(ctx, f.Name, id, x.Key)
		if err != nil {
			return exit(exitFault, err)
		}
		x.fill(t)
		effects, err := st.Effects.Effects(ctx, f.Name, store.EffectQuery{Key: id})
		if err != nil {
			return exit(exitFault, err)
		}
		if len(effects) > 0 {
			e := effectOf(&effects[0])
			x.Effect = &e
		}
		for i := range x.Letters {
			rs, err := st.Reader.Revisions(ctx, f.Name, x.Letters[i].Ref)
			if err != nil {
				return exit(exitFault, err)
			}
			if len(rs) == 0 {
				continue
			}
			l, err := find(ctx, st.Reader, f.Name, x.Letters[i].Ref, true)
			if err != nil {
				return err
			}
			x.Letters[i].Revised = revised(rs, &l.Message)
		}
		if a.json {
			err = writeJSON(a.out, x)
		} else {
			a.printExplanation(f, x)
		}
		if err == nil && !x.known() {
			return exit(exitDead, nil)
		}
		return err
	})
}

func (x *explanation) known() bool {
	return x.Record != nil || x.Effect != nil || len(x.Letters) > 0 || len(x.Places) > 0
}

// searchSource reads the source's stages for messages with the id.
func (x *explanation) searchSource(ctx context.Context, f *config.File, limit time.Duration) error {
	if limit == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	look, decoder := adapters.Look(f), message.NewDecoder(f.Rules)
	for _, stage := range []string{"inbox", "processing", "error", "done"} {
		err := look.Each(ctx, stage, func(place string, d *semel.Delivery) error {
			if d.Malformed == nil {
				_ = decoder.Decode(d) // undecodable messages may still have an id
			}
			if d.ID == x.ID {
				x.Places = append(x.Places, place)
				x.Key = first(x.Key, d.Key)
			}
			return nil
		})
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	x.Searched = true
	return nil
}

func (x *explanation) fill(t store.Trace) {
	if t.Record != nil {
		x.Record = &recordJSON{t.Record.Verdict.String(), t.At}
	}
	for i := range t.Letters {
		x.Letters = append(x.Letters, letterOf(&t.Letters[i]))
		x.Key = first(x.Key, t.Letters[i].Message.Key)
	}
	if t.Version != nil {
		x.Version = &versionJSON{t.Version.Version.N, t.Version.ID}
	}
	x.Answer = x.answer()
}

// answer is one sentence; an open letter says more than the record, and the
// record more than the source.
func (x *explanation) answer() string {
	for _, l := range x.Letters {
		switch s := store.State(l.State); {
		case s == store.StateRetry:
			return "It failed and will be tried again."
		case s == store.StateHeld:
			return "It waits behind an earlier message of its key."
		case s.Open():
			return "It is a dead letter and waits for a person: " + firstLine(l.Error)
		}
	}
	if x.Record != nil {
		return map[string]string{
			semel.Applied.String():    "Its effect is committed.",
			semel.Superseded.String(): "It was superseded by a newer version of its key.",
			semel.Filtered.String():   "The pipeline's filter did not want it.",
			semel.Discarded.String():  "A person discarded it.",
			semel.Parked.String():     "It is parked.",
		}[x.Record.Verdict]
	}
	switch {
	case len(x.Letters) > 0:
		return "Its letter is closed: " + x.Letters[0].State + "."
	case len(x.Places) > 0:
		return "It lies in the source; the pipeline keeps no record of it."
	case !x.Searched:
		return "Nothing is known of it; the source was not searched to its end (--search)."
	}
	return "Nothing is known of it."
}

func (a *app) printExplanation(f *config.File, x *explanation) {
	fmt.Fprintf(a.out, "%s: %s\n\n", printable(x.ID), printable(x.Answer))
	t := table(a.out)
	if x.Record != nil {
		fmt.Fprintf(t, "record\t%s, %s\n", x.Record.Verdict, stamp(x.Record.At))
	} else {
		fmt.Fprintf(t, "record\tnone (inbox: %s, kept %s)\n", f.Inbox, span(f.KeepOrDefault()))
	}
	for i, l := range x.Letters {
		changed := ""
		if l.Revised {
			changed = ", with other content than was sent: semel letters show " + f.Path + " " + l.Ref
		}
		fmt.Fprintf(t, "%s\t%s %s (%s, %s), %s: %s%s\n", once(i, "letters"), l.Ref, l.State, l.Class, l.Reason, counted(int64(l.Attempts), "attempt"), line(firstLine(l.Error), 120), changed)
	}
	if e := x.Effect; e != nil {
		fmt.Fprintf(t, "effect\toutside of the database: %s, %s, %s\n", e.State, counted(int64(e.Attempts), "attempt"), stamp(e.Since))
	}
	if x.Key != "" {
		fmt.Fprintf(t, "key\t%s\n", line(x.Key, 120))
	}
	if x.Version != nil {
		fmt.Fprintf(t, "version\t%d is the newest applied of this key, by %s\n", x.Version.N, line(x.Version.ID, 80))
	}
	for i, p := range x.Places {
		fmt.Fprintf(t, "%s\t%s\n", once(i, "source"), line(p, 200))
	}
	if len(x.Places) == 0 && x.Searched {
		fmt.Fprintf(t, "source\tnot there\n")
	}
	t.Flush()
	if !x.Searched {
		fmt.Fprintln(a.out, "The source was not searched to its end; --search takes longer.")
	}
}
