package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const statusHelp = `Say where everything is now: what lies in each stage of the source and who holds
it, which letters wait for what, which keys are held, who works, how far each
scope is, and whether the account balances.

Example:
  semel status orders.yaml

Exit codes:
  0  nothing waits for a person
  1  the command line or the pipeline file is wrong
  2  the source or the store could not be read
  3  there are dead letters
  4  the account does not balance`

func (a *app) statusCommand() *cobra.Command {
	var p place
	var rows bool
	c := &cobra.Command{
		Use: "status FILE", Short: "Where everything is now", Long: statusHelp, Args: arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.status(args[0], p, rows) },
	}
	c.Flags().BoolVar(&rows, "rows", false, "compare the ledger with every row as well (reads all)")
	p.flags(c)
	return c
}

// stageJSON and the types below are the frozen form of status --json.
type stageJSON struct {
	Stage  string `json:"stage"`
	Worker string `json:"worker,omitempty"`
	Files  int64  `json:"files"`
}

type fenceJSON struct {
	Scope  string `json:"scope"`
	Next   int64  `json:"next"`
	Epoch  int64  `json:"epoch"`
	Worker string `json:"worker,omitempty"`
	Left   bool   `json:"left"`
}

type holdJSON struct {
	Key     string `json:"key"`
	Letters int64  `json:"letters"`
}

type workerJSON struct {
	Worker string `json:"worker"`
	Slot   int    `json:"slot"`
	Batch  int64  `json:"batch"`
}

type suspectJSON struct {
	Unit    string `json:"unit"`
	Charged int    `json:"charged"`
	Limit   int    `json:"limit"`
}

type imbalanceJSON struct {
	Account string `json:"account"`
	Day     int64  `json:"day"`
	Ledger  int64  `json:"ledger"`
	Rows    int64  `json:"rows"`
}

type statusJSON struct {
	Name       string           `json:"name"`
	Source     string           `json:"source"`
	Store      string           `json:"store"`
	Stages     []stageJSON      `json:"stages"`
	Letters    map[string]int64 `json:"letters"`
	NextDue    *time.Time       `json:"next_due"`
	Held       []holdJSON       `json:"held_keys"`
	HeldKeys   int64            `json:"held_keys_total"`
	Workers    []workerJSON     `json:"workers"`
	Fences     []fenceJSON      `json:"fences"`
	Suspects   []suspectJSON    `json:"suspects"`
	Ledger     map[string]int64 `json:"ledger"`
	Imbalances []imbalanceJSON  `json:"imbalances"`
	Balanced   bool             `json:"balanced"`
}

func (a *app) status(path string, p place, rows bool) error {
	ctx := context.Background()
	f, err := a.load(path, p)
	if err != nil {
		return err
	}
	st, err := a.open(ctx, f)
	if err != nil {
		return err
	}
	defer st.Close()
	stages, err := adapters.Look(f).Stages(ctx)
	if err != nil {
		return exit(exitFault, err)
	}
	now, err := st.Reader.Status(ctx, f.Name, rows)
	if err != nil {
		return exit(exitFault, err)
	}
	s := statusOf(f, stages, now)
	if a.json {
		err = writeJSON(a.out, s)
	} else {
		a.printStatus(f, s)
	}
	if err != nil {
		return exit(exitFault, err)
	}
	return exit(s.code(), nil)
}

func (s *statusJSON) code() int {
	switch {
	case !s.Balanced:
		return exitImbalanced
	case s.Letters[string(store.StateDead)]+s.Letters[string(store.StateEdited)]+s.Letters[string(store.StateApproved)] > 0:
		return exitDead
	}
	return exitDone
}

func statusOf(f *config.File, stages []adapters.Stage, now store.Status) *statusJSON {
	s := &statusJSON{
		Name: f.Name, Source: f.Source.String(), Store: f.Store.String(),
		Stages: []stageJSON{}, Letters: map[string]int64{}, Held: []holdJSON{}, HeldKeys: now.HoldKeys,
		Workers: []workerJSON{}, Fences: []fenceJSON{}, Suspects: []suspectJSON{},
		Ledger: map[string]int64{}, Imbalances: []imbalanceJSON{}, Balanced: len(now.Imbalances) == 0,
	}
	for _, x := range stages {
		s.Stages = append(s.Stages, stageJSON{x.Name, x.Worker, x.N})
	}
	for state, n := range now.Letters {
		s.Letters[string(state)] = n
	}
	if !now.NextDue.IsZero() {
		s.NextDue = &now.NextDue
	}
	for _, h := range now.Holds {
		s.Held = append(s.Held, holdJSON{h.Key, h.Size})
	}
	for _, w := range now.Workers {
		s.Workers = append(s.Workers, workerJSON{w.Worker, w.Slot, w.Batch})
	}
	for _, x := range now.Fences {
		s.Fences = append(s.Fences, fenceJSON{x.Scope.String(), x.Next.Lo, x.Epoch, x.Worker, x.Clean})
	}
	for _, x := range now.Suspects {
		s.Suspects = append(s.Suspects, suspectJSON{x.Unit, x.Charged, x.Limit})
	}
	for _, t := range now.Ledger {
		s.Ledger[t.Account] += t.N
	}
	for _, i := range now.Imbalances {
		s.Imbalances = append(s.Imbalances, imbalanceJSON{i.Account, i.Bucket, i.Ledger, i.Rows})
	}
	return s
}

func (a *app) printStatus(f *config.File, s *statusJSON) {
	fmt.Fprintf(a.out, "%s   %s → %s\n\n", printable(s.Name), printable(s.Source), printable(s.Store))
	t := table(a.out)
	a.printStages(t, s)
	printLetters(t, s)
	for i, w := range s.Workers {
		fmt.Fprintf(t, "%s\t%s\tbatch %s\n", once(i, "workers"), printable(w.Worker), thousands(w.Batch))
	}
	if len(s.Workers) > 0 {
		fmt.Fprintln(t, "\t\t(one that crashed stays listed until it is cleaned up)")
	}
	for i, h := range s.Held {
		fmt.Fprintf(t, "%s\t%s\t%s behind it\n", once(i, "held keys"), line(h.Key, 40), counted(h.Letters, "letter"))
	}
	for i, x := range s.Suspects {
		fmt.Fprintf(t, "%s\t%s\tlone starts that ended in a crash: %d; at most %d at a time\n", once(i, "suspects"), line(x.Unit, 60), x.Charged, x.Limit)
	}
	printFences(t, s)
	t.Flush()
	fmt.Fprintln(a.out)
	if s.Balanced {
		fmt.Fprintln(a.out, "The account balances.")
	} else {
		fmt.Fprintln(a.out, "The account does NOT balance: the ledger and the rows differ.")
	}
	for _, i := range s.Imbalances {
		fmt.Fprintf(a.out, "  %s, day %d: ledger %s, rows %s\n", i.Account, i.Day, thousands(i.Ledger), thousands(i.Rows))
	}
	if s.code() == exitDead {
		fmt.Fprintf(a.out, "What to do about dead letters: semel letters list %s\n", f.Path)
	}
}

// once is a row's title in its first row only.
func once(i int, title string) string {
	if i > 0 {
		return ""
	}
	return title
}

func (a *app) printStages(t io.Writer, s *statusJSON) {
	notes := map[string]string{"inbox": "to be taken", "settling": "not complete yet", "done": "finished", "error": "for a person to look at"}
	for i, x := range s.Stages {
		note := notes[x.Stage]
		if x.Worker != "" {
			note = "held by " + printable(x.Worker)
		}
		fmt.Fprintf(t, "%s\t%s\t%s %s\n", once(i, "source"), x.Stage, counted(x.Files, "file"), note)
	}
}

func printLetters(t io.Writer, s *statusJSON) {
	states := make([]string, 0, len(s.Letters))
	for state := range s.Letters {
		states = append(states, state)
	}
	slices.Sort(states)
	for i, state := range states {
		note := ""
		if state == string(store.StateRetry) && s.NextDue != nil {
			note = ", the first is due " + due(*s.NextDue)
		}
		fmt.Fprintf(t, "%s\t%s\t%s%s\n", once(i, "letters"), state, thousands(s.Letters[state]), note)
	}
}

// maxFences is how many scopes are shown to people.
const maxFences = 20

func printFences(t io.Writer, s *statusJSON) {
	for i, x := range s.Fences {
		if i == maxFences {
			fmt.Fprintf(t, "\t…\t%s more; --json shows them\n", thousands(int64(len(s.Fences)-i)))
			return
		}
		owner := "nobody reads it"
		if !x.Left {
			owner = "read by " + printable(x.Worker)
		}
		fmt.Fprintf(t, "%s\t%s\tdecided up to %s, %s\n", once(i, "scopes"), line(strings.TrimSpace(x.Scope), 60), thousands(x.Next), owner)
	}
}
