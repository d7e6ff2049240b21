package demo

import (
	"fmt"
	"io"
)

// Report is what was shown. Its form as JSON does not change.
type Report struct {
	Results []*Result `json:"incidents"`
	// Shown: semel was exact and the naive consumer was not, in every one.
	Shown bool `json:"shown"`
	// Problems say why not.
	Problems  []string `json:"problems"`
	ElapsedMS int64    `json:"elapsed_ms"`
	// Dir holds queues, databases and pipeline files, if they were kept.
	Dir string `json:"dir,omitempty"`
}

// Result is one incident on both sides.
type Result struct {
	Incident string `json:"incident"`
	Title    string `json:"title"`
	// Counted says what Expected and the sides' Counted are, Broken what
	// their Wrong is.
	Counted string `json:"counted"`
	Broken  string `json:"broken"`
	// Messages are the distinct ones. Redelivered were delivered once more by
	// the source, Late came for the first time behind a newer one of their
	// key, Slow were answered too late by the receiver.
	Messages    int `json:"messages"`
	Redelivered int `json:"redelivered"`
	Late        int `json:"late"`
	Slow        int `json:"slow_answers"`
	// KilledAt is the fault point, Kills how often each side had to die there.
	KilledAt string `json:"killed_at"`
	Kills    int    `json:"kills"`
	Expected int    `json:"expected"`
	Naive    Side   `json:"naive"`
	Semel    Side   `json:"semel"`

	inc *incident
}

// Side is what one consumer came to, as it was read back.
type Side struct {
	Counted int `json:"counted"`
	Wrong   int `json:"wrong"`
	// Left are files that are not in done/.
	Left int `json:"left"`
	// Kills are the processes that died by SIGKILL.
	Kills     int   `json:"kills"`
	ElapsedMS int64 `json:"elapsed_ms"`
	// Account is semel's ledger.
	Account *Account `json:"account,omitempty"`
}

// Account is what semel's ledger says of the deliveries.
type Account struct {
	Applied    int64 `json:"applied"`
	Duplicates int64 `json:"duplicates"`
	Superseded int64 `json:"superseded"`
	// Letters are those that still wait for something.
	Letters int64 `json:"letters"`
	// Balanced: the ledger and every row of the inbox agree.
	Balanced bool `json:"balanced"`
}

func (s *Side) right(expected int) bool {
	return s.Counted == expected && s.Wrong == 0 && s.Left == 0
}

// conclude decides whether the report shows what it is to show.
func (r *Report) conclude() {
	r.Problems = []string{}
	for _, x := range r.Results {
		r.Problems = append(r.Problems, x.problems()...)
	}
	r.Shown = len(r.Problems) == 0
}

// problems say what is not as it has to be, on both sides.
func (r *Result) problems() (found []string) {
	bad := func(format string, args ...any) {
		found = append(found, r.Incident+": "+fmt.Sprintf(format, args...))
	}
	for name, s := range map[string]*Side{sideNaive: &r.Naive, sideSemel: &r.Semel} {
		if s.Kills != r.Kills {
			bad("%s was killed %d times instead of %d: the comparison is void", name, s.Kills, r.Kills)
		}
	}
	if s := &r.Semel; !s.right(r.Expected) {
		bad("semel is WRONG: %s %d, expected %d; %s: %d; files left: %d", r.Counted, s.Counted, r.Expected, r.Broken, s.Wrong, s.Left)
	}
	if a := r.Semel.Account; a == nil || !a.Balanced || a.Letters > 0 || a.Superseded != int64(r.Late) || a.Applied+a.Superseded != int64(r.Messages) {
		bad("semel's account is WRONG: %+v for %d messages, of which %d are late", a, r.Messages, r.Late)
	}
	switch s := &r.Naive; {
	case s.Left > 0:
		bad("the naive consumer left %d files: it was not fair", s.Left)
	case s.right(r.Expected):
		bad("the naive consumer was right: nothing was shown")
	}
	return found
}

// ink colours text, if it may.
type ink bool

func (k ink) paint(code, s string) string {
	if !k {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (k ink) bold(s string) string  { return k.paint("1", s) }
func (k ink) dim(s string) string   { return k.paint("2", s) }
func (k ink) good(s string) string  { return k.paint("32", s) }
func (k ink) wrong(s string) string { return k.paint("1;31", s) }

// Print writes the report for people, at most 80 columns wide.
func (r *Report) Print(w io.Writer, color bool) {
	k := ink(color)
	r.printTable(w, k)
	for _, x := range r.Results {
		x.explain(w, k)
	}
	r.printEnd(w, k)
}

const rowFormat = "%-44s%10s  %10s  %10s\n"

func (r *Report) printTable(w io.Writer, k ink) {
	fmt.Fprint(w, k.bold(fmt.Sprintf(rowFormat, "", "expected", sideNaive, sideSemel)))
	var kills, naive, semel [2]int64
	for _, x := range r.Results {
		row := func(label string, expected, naive, semel int) {
			fmt.Fprintf(w, rowFormat, label, fmt.Sprint(expected), k.judged(naive, expected), k.judged(semel, expected))
		}
		row(x.Incident+"  "+x.Counted, x.Expected, x.Naive.Counted, x.Semel.Counted)
		row("    "+x.Broken, 0, x.Naive.Wrong, x.Semel.Wrong)
		kills[0] += int64(x.Naive.Kills)
		kills[1] += int64(x.Semel.Kills)
		naive[0] += x.Naive.ElapsedMS
		semel[0] += x.Semel.ElapsedMS
	}
	fmt.Fprintf(w, rowFormat, "    killed by kill -9", "", fmt.Sprint(kills[0]), fmt.Sprint(kills[1]))
	fmt.Fprintf(w, rowFormat, "    time", "", seconds(naive[0]), seconds(semel[0]))
}

// judged is a number of the table in its colour, padded outside of it.
func (k ink) judged(n, expected int) string {
	s := fmt.Sprintf("%10d", n)
	if n == expected {
		return k.good(s)
	}
	return k.wrong(s)
}

func seconds(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }

// explain says what went wrong, and which line prevents it.
func (r *Result) explain(w io.Writer, k ink) {
	fmt.Fprintf(w, "\n%s\n", k.bold(r.Incident+"  "+r.Title))
	paragraph(w, sideNaive, r.inc.naive)
	fmt.Fprintf(w, "    %s  %s\n", sideSemel, k.good(r.inc.remedy))
	paragraph(w, "", append([]string{r.Semel.Account.String()}, r.inc.limit...))
}

func paragraph(w io.Writer, label string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(w, "    %-5s  %s\n", label, line)
		label = ""
	}
}

// String says it in one line.
func (a *Account) String() string {
	s := fmt.Sprintf("%d applied, %d duplicates found", a.Applied, a.Duplicates)
	if a.Superseded > 0 {
		s += fmt.Sprintf(", %d superseded", a.Superseded)
	}
	return s
}

func (r *Report) printEnd(w io.Writer, k ink) {
	fmt.Fprintln(w)
	if r.Shown {
		fmt.Fprintf(w, "%s, the naive consumer is wrong; %s in all.\n", k.good("semel is exact"), seconds(r.ElapsedMS))
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, k.wrong(p))
	}
	if r.Dir == "" {
		fmt.Fprintln(w, k.dim("--keep leaves the queues, databases and pipeline files to look at."))
		return
	}
	fmt.Fprintf(w, "kept: %s\n", r.Dir)
	for _, x := range r.Results {
		if x.inc.pipeline == "" {
			fmt.Fprintf(w, "  %s: {%s,%s}/%s is what the receiver delivered\n", x.inc.name, sideNaive, sideSemel, notesName)
		} else {
			fmt.Fprintf(w, "  %s: cd %s; semel explain %s %s\n", x.inc.name, x.inc.name, pipelineName, x.inc.example)
		}
	}
}
