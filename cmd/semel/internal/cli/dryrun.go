package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// maxForeseen is how many messages are shown to people one by one.
const maxForeseen = 20

// foreseen is what would become of one message.
type foreseen struct {
	Place   string `json:"place"`
	ID      string `json:"id,omitempty"`
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"`
}

// rehearsal foresees verdicts: it knows what the store knows and what would
// come before.
type rehearsal struct {
	file     *config.File
	reader   store.Reader // nil: there is no database yet
	decoder  *message.Decoder
	ids      map[string]store.Fingerprint
	versions map[string]store.Versioned
	counts   map[string]int64
	n        int64
}

// dryRun reads what waits in the source as the pipeline would, and takes
// nothing. Handlers do not run: what they would say is not foreseen.
func (a *app) dryRun(f *config.File) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r := &rehearsal{file: f, decoder: message.NewDecoder(f.Rules), ids: map[string]store.Fingerprint{},
		versions: map[string]store.Versioned{}, counts: map[string]int64{}}
	if adapters.StoreExists(f.Store) {
		st, err := a.open(ctx, f)
		if err != nil {
			return err
		}
		defer st.Close()
		r.reader = st.Reader
	}
	show := func(x foreseen) error {
		if a.json {
			return writeJSON(a.out, x)
		}
		if r.n <= maxForeseen {
			fmt.Fprintf(a.out, "%-12s %s\n", x.Verdict, printable(describe(x)))
		}
		return nil
	}
	for _, stage := range []string{"processing", "inbox"} {
		err := adapters.Look(f).Each(ctx, stage, func(place string, d *semel.Delivery) error {
			x, err := r.foresee(ctx, place, d)
			if err != nil {
				return err
			}
			return show(x)
		})
		if err != nil {
			return exit(exitFault, err)
		}
	}
	return a.printRehearsal(r)
}

func describe(x foreseen) string {
	s := x.Place
	for _, part := range []struct{ name, value string }{{"id", x.ID}, {"key", x.Key}, {"version", x.Version}} {
		if part.value != "" {
			s += "  " + part.name + " " + part.value
		}
	}
	if x.Why != "" {
		s += "  " + x.Why
	}
	return line(s, 300)
}

func (a *app) printRehearsal(r *rehearsal) error {
	if a.json {
		return writeJSON(a.out, struct {
			Messages int64            `json:"messages"`
			Counts   map[string]int64 `json:"counts"`
		}{r.n, r.counts})
	}
	if r.n > maxForeseen {
		fmt.Fprintf(a.out, "… and %s more; --json shows all\n", thousands(r.n-maxForeseen))
	}
	fmt.Fprintf(a.out, "\n%s would be read; nothing was changed\n", counted(r.n, "message"))
	for _, v := range []string{"handle", "superseded", "duplicate", "conflict", "filtered", "dead"} {
		if n := r.counts[v]; n > 0 {
			fmt.Fprintf(a.out, "  %-11s %12s\n", v, thousands(n))
		}
	}
	return nil
}

// foresee decides one message in the order of the pipeline.
func (r *rehearsal) foresee(ctx context.Context, place string, d *semel.Delivery) (foreseen, error) {
	x := foreseen{Place: place}
	err := d.Malformed
	if err == nil {
		err = r.decoder.Decode(d)
	}
	x.ID, x.Key = d.ID, d.Key
	if d.Version.Set {
		x.Version = strconv.FormatInt(d.Version.N, 10)
	}
	switch {
	case errors.Is(err, semel.ErrFiltered):
		x.Verdict = semel.Filtered.String()
	case err != nil:
		x.Verdict, x.Why = semel.Dead.String(), err.Error()
	default:
		if x.Verdict, err = r.admit(ctx, &d.Message); err != nil {
			return x, err
		}
	}
	r.n++
	r.counts[x.Verdict]++
	return x, nil
}

func (r *rehearsal) admit(ctx context.Context, m *semel.Message) (string, error) {
	var known store.Trace
	if r.reader != nil {
		var err error
		if known, err = r.reader.Trace(ctx, r.file.Name, m.ID, m.Key); err != nil {
			return "", err
		}
	}
	if v := r.repeated(m, known); v != semel.Undecided {
		return v.String(), nil
	}
	return r.versioned(m, known), nil
}

// repeated finds messages that are known by their id.
func (r *rehearsal) repeated(m *semel.Message, known store.Trace) semel.Verdict {
	if !r.file.Inbox.Facts().Remembers {
		return semel.Undecided
	}
	print, before := r.ids[m.ID], false
	if print != (store.Fingerprint{}) {
		before = true
	} else if known.Record != nil {
		print, before = known.Record.Fingerprint, true
	}
	own := store.Print(m)
	switch {
	case !before:
		r.ids[m.ID] = own
		return semel.Undecided
	case print == own || r.file.TrustID:
		return semel.Duplicate
	}
	return semel.Conflict
}

// versioned compares a message with the newest version of its key.
func (r *rehearsal) versioned(m *semel.Message, known store.Trace) string {
	const handle = "handle"
	if !r.file.Arbitrate.On {
		return handle
	}
	if !m.Version.Set {
		return map[arbitrate.Missing]string{arbitrate.MissingDead: "dead", arbitrate.MissingSuperseded: "superseded", arbitrate.MissingApply: handle}[r.file.Arbitrate.Missing]
	}
	newest, there := r.versions[m.Key]
	if !there && known.Version != nil {
		newest, there = *known.Version, true
	}
	own := store.Versioned{Key: m.Key, Version: m.Version, ID: m.ID, Fingerprint: store.Print(m)}
	switch arbitrate.Rule(newest, there, own) {
	case arbitrate.Newer, arbitrate.TieWon:
		r.versions[m.Key] = own
		return handle
	case arbitrate.TieOpen:
		return "dead"
	}
	return "superseded"
}
