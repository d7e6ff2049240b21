package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// result is what a run came to.
type result struct {
	file                 *config.File
	drained, interrupted bool
	account              semel.Account
	elapsed              time.Duration
	fault                error
	// status is that of the tables afterwards; looked: it could be read.
	status store.Status
	looked bool
	// left is what the source holds, waiting or claimed by anybody.
	left int64
	// notes are what there is to say of the source.
	notes []string
}

// conclude looks at the tables, tells the result, and turns it into the exit
// code. The rows are compared with the ledger only where the run came to its
// end by itself: a service that is told to stop has to stop.
func (a *app) conclude(ctx context.Context, st *adapters.Store, r *result) error {
	var err error
	if r.status, err = st.Reader.Status(ctx, r.file.Name, r.drained && !r.interrupted); err == nil {
		r.looked = true
	} else {
		r.fault = errors.Join(r.fault, fmt.Errorf("reading what is left: %w", err))
	}
	if a.json {
		err = writeJSON(a.out, r.json())
	} else {
		r.print(a.out)
	}
	code := r.code()
	if r.fault != nil {
		code, r.fault = faultCode(r.file, st, r.fault)
		return exit(code, r.fault)
	}
	return exit(code, err)
}

// dead counts letters that wait for a person, waiting those that wait for time
// or for a letter before them.
func (r *result) dead() int64 {
	l := r.status.Letters
	return l[store.StateDead] + l[store.StateEdited] + l[store.StateApproved]
}

func (r *result) waiting() int64 {
	return r.status.Letters[store.StateRetry] + r.status.Letters[store.StateHeld]
}

func (r *result) balanced() bool {
	return r.account.Balanced() && r.looked && len(r.status.Imbalances) == 0
}

func (r *result) code() int {
	switch {
	case r.fault != nil:
		return exitFault
	case !r.balanced():
		return exitImbalanced
	case !r.drained:
		return exitDone
	case r.dead() > 0:
		return exitDead
	case r.waiting() > 0 || r.interrupted && r.left > 0:
		return exitWaiting
	}
	return exitDone
}

// outcome is the last line of run --json. Its form is frozen.
type outcome struct {
	Received   int64 `json:"received"`
	Taken      int64 `json:"taken"`
	Applied    int64 `json:"applied"`
	Duplicates int64 `json:"duplicates"`
	Superseded int64 `json:"superseded"`
	Conflicts  int64 `json:"conflicts"`
	Filtered   int64 `json:"filtered"`
	Parked     int64 `json:"parked"`
	Released   int64 `json:"released"`
	Dropped    int64 `json:"dropped"`
	Dead       int64 `json:"dead"`
	ElapsedMS  int64 `json:"elapsed_ms"`
	Balanced   bool  `json:"balanced"`
}

func (r *result) json() outcome {
	of := r.account.Of
	return outcome{
		Received: r.account.Received, Taken: r.account.Taken,
		Applied: of[semel.Applied], Duplicates: of[semel.Duplicate], Superseded: of[semel.Superseded],
		Conflicts: of[semel.Conflict], Filtered: of[semel.Filtered], Parked: of[semel.Parked],
		Released: of[semel.Released], Dropped: of[semel.Dropped], Dead: of[semel.Dead],
		ElapsedMS: r.elapsed.Milliseconds(), Balanced: r.balanced(),
	}
}

// lines of the summary, in order. Those that are always shown answer the two
// questions that everybody has.
var summaryLines = [...]struct {
	verdict semel.Verdict
	label   string
	note    string
	always  bool
}{
	{semel.Applied, "applied", "their effect is committed, once", true},
	{semel.Superseded, "superseded", "a newer version of the same key was there", false},
	{semel.Duplicate, "duplicates", "known already, nothing done again", true},
	{semel.Conflict, "conflicts", "an id that is known, with other content", false},
	{semel.Filtered, "filtered", "not wanted by message.filter", false},
	{semel.Parked, "parked", "to be tried again later", false},
	{semel.Dead, "dead", "kept with their reason until a person decides", false},
	{semel.Released, "released", "given back unhandled", false},
	{semel.Dropped, "dropped", "another worker has them now", false},
}

func (r *result) print(w io.Writer) {
	how := "stopped"
	if r.drained && !r.interrupted && r.fault == nil {
		how = "drained"
	}
	n := r.account.Received + r.account.Taken
	fmt.Fprintf(w, "%s: %s after %s", printable(r.file.Name), how, span(r.elapsed))
	if n >= 1000 && r.elapsed > 0 {
		fmt.Fprintf(w, ", %s messages a second", thousands(int64(float64(n)/r.elapsed.Seconds())))
	}
	fmt.Fprint(w, "\n\n")
	fmt.Fprintf(w, "  %-11s %12s\n", "received", thousands(r.account.Received))
	if r.account.Taken > 0 {
		fmt.Fprintf(w, "  %-11s %12s   parked messages, taken up again\n", "taken up", thousands(r.account.Taken))
	}
	for _, l := range summaryLines {
		if c := r.account.Of[l.verdict]; c > 0 || l.always {
			fmt.Fprintf(w, "  %-11s %12s   %s\n", l.label, thousands(c), l.note)
		}
	}
	if r.account.Ties > 0 {
		fmt.Fprintf(w, "  %-11s %12s   equal versions, decided by arbitrate.tie\n", "ties", thousands(r.account.Ties))
	}
	fmt.Fprintln(w)
	r.printAccount(w)
	r.printNext(w)
}

func (r *result) printAccount(w io.Writer) {
	switch {
	case !r.looked:
		fmt.Fprintln(w, "The tables could not be read; nothing is known of the account.")
	case !r.account.Balanced():
		fmt.Fprintf(w, "The account does NOT balance: %s received or taken up, %s decided.\n", thousands(r.account.Received+r.account.Taken), thousands(r.account.Decided()))
	case len(r.status.Imbalances) == 0:
		fmt.Fprintln(w, "Every message is accounted for.")
	default:
		fmt.Fprintln(w, "The account does NOT balance: the ledger and the rows differ.")
	}
	for _, i := range r.status.Imbalances {
		fmt.Fprintf(w, "  %s, day %d: ledger %s, rows %s\n", i.Account, i.Bucket, thousands(i.Ledger), thousands(i.Rows))
	}
}

// printNext says what a person can do next, if there is anything.
func (r *result) printNext(w io.Writer) {
	all := r.account.Received + r.account.Taken
	if all == 0 {
		for _, n := range r.notes {
			fmt.Fprintln(w, "note:", printable(n))
		}
	}
	if n := r.dead(); n > 0 {
		fmt.Fprintf(w, "%s: semel letters list %s\n", counted(n, "dead letter"), r.file.Path)
	}
	if all > 1 && all == r.account.Of[semel.Dead] {
		fmt.Fprintf(w, "Not one could be handled. If the pipeline file is at fault, correct it, and then:\n  semel letters replay %s state=dead\n", r.file.Path)
	}
	if n := r.status.Letters[store.StateRetry]; n > 0 {
		fmt.Fprintf(w, "%s to be tried again, the first %s; a running semel does it\n", counted(n, "message"), due(r.status.NextDue))
	}
	if n := r.status.Letters[store.StateHeld]; n > 0 {
		fmt.Fprintf(w, "%s held behind an earlier one of the same key: semel status %s\n", counted(n, "message"), r.file.Path)
	}
	if r.interrupted && r.left > 0 {
		fmt.Fprintf(w, "%s left in the source; run it again\n", counted(r.left, "file"))
	}
}

func due(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return "in " + span(d)
	}
	return "now"
}
