package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/semel-dev/semel/cmd/semel/internal/draft"
	"github.com/semel-dev/semel/cmd/semel/internal/propose"
)

// decision is what was chosen for an expression, and what there was to choose.
type decision struct {
	// Expr is empty where there is none.
	Expr string `json:"expr,omitempty"`
	// By is "flag", "answer" or "proposal".
	By         string              `json:"by,omitempty"`
	As         string              `json:"as,omitempty"`
	Ties       int                 `json:"ties,omitempty"`
	Candidates []propose.Candidate `json:"candidates"`
	Rejected   []propose.Rejected  `json:"rejected"`
}

// about is what speaks for the choice, for the comment beside it.
func (d *decision) about() []string {
	for _, c := range d.Candidates {
		if c.Expr == d.Expr {
			lines := []string{sentence(strings.Join(c.Why, ", "))}
			for _, w := range c.Warnings {
				lines = append(lines, "Beware: "+sentence(w))
			}
			return lines
		}
	}
	return nil
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func (w *wizard) id() (err error) {
	d := &w.result.ID
	d.Candidates, d.Rejected = []propose.Candidate{}, []propose.Rejected{}
	if w.study != nil {
		d.Candidates, d.Rejected = w.study.IDs()
	}
	return w.settle("id", w.o.id, d, true, "What makes an event the same at every delivery? Best is an id of the business, from the producer.")
}

func (w *wizard) key() error {
	d := &w.result.Key
	d.Candidates, d.Rejected = []propose.Candidate{}, []propose.Rejected{}
	if w.study != nil && w.o.key != nothing {
		d.Candidates = w.study.Keys(w.result.ID.Expr)
	}
	if w.o.key == "" && len(d.Candidates) == 0 && w.study != nil && w.ask == nil {
		return nil
	}
	return w.settle("key", w.o.key, d, false, "Which entity is an event about? Versions are compared per key; - for none.")
}

func (w *wizard) version() error {
	d := &w.result.Version
	d.Candidates, d.Rejected = []propose.Candidate{}, []propose.Rejected{}
	key := w.result.Key.Expr
	switch {
	case key == "" && w.o.version != "" && w.o.version != nothing:
		return usagef("--key is missing: versions are compared per key")
	case key == "":
		return nil
	}
	if w.study != nil && w.o.version != nothing {
		d.Candidates, d.Rejected = w.study.Versions(key)
	}
	if err := w.settle("version", w.o.version, d, false, "Of one key, should the message with the highest version win? Which number or time is it? - for none."); err != nil || d.Expr == "" {
		return err
	}
	d.As = w.o.as
	if d.As == "" && w.study != nil {
		d.As = w.study.As(d.Expr)
	}
	if d.As == "" {
		d.As = "integer"
	}
	if w.study != nil {
		if d.Ties = w.study.Ties(key, d.Expr, d.As); d.Ties > 0 {
			w.note("ties: %s with the version of another one of their key and other content; of those the larger id wins, unless you change tie", counted(int64(d.Ties), "message"))
		}
	}
	return nil
}

// settle decides for an expression.
func (w *wizard) settle(flag, given string, d *decision, essential bool, question string) error {
	w.show(flag, d)
	proposed := nothing
	if len(d.Candidates) > 0 {
		proposed = d.Candidates[0].Expr
	}
	switch {
	case given == nothing:
	case given != "":
		d.Expr, d.By = given, "flag"
	case w.ask != nil:
		return w.settleByAsking(flag, d, essential, question, proposed)
	case w.o.yes && proposed != nothing:
		d.Expr, d.By = proposed, "proposal"
	case essential && proposed != nothing:
		return usagef("--%s is missing. %s Proposed is %s: state it, or --yes takes what is proposed", flag, question, proposed)
	case essential && w.study != nil:
		return usagef("--%s is missing. %s Nothing in the sample was found to be one", flag, question)
	case essential:
		return usagef("--%s is missing. %s Name messages to look at with --sample", flag, question)
	}
	if d.Expr != "" {
		w.tell("%-8s %s", flag, d.Expr)
	}
	return nil
}

func (w *wizard) settleByAsking(flag string, d *decision, essential bool, question, proposed string) error {
	fmt.Fprintln(w.ask.out, question)
	def := proposed
	if essential && def == nothing {
		def = ""
	}
	answer, err := w.ask.text(flag, def, func(s string) error {
		switch {
		case pick(s, d.Candidates) != "" || s == nothing && !essential:
			return nil
		case s == nothing:
			return errors.New("a message without id cannot be recognised; $meta.file is the name of its file")
		}
		return errors.Join(oneLine(s), expression(s))
	})
	switch {
	case err != nil:
		return err
	case answer == nothing:
		return nil
	}
	d.Expr, d.By = answer, "answer"
	if c := pick(answer, d.Candidates); c != "" {
		d.Expr = c
	}
	return nil
}

// pick is the candidate with a number.
func pick(answer string, cs []propose.Candidate) string {
	if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(cs) {
		return cs[n-1].Expr
	}
	return ""
}

// show lists what is proposed and what is not, with reasons.
func (w *wizard) show(flag string, d *decision) {
	if d.Candidates == nil {
		d.Candidates = []propose.Candidate{}
	}
	if d.Rejected == nil {
		d.Rejected = []propose.Rejected{}
	}
	if len(d.Candidates)+len(d.Rejected) == 0 {
		return
	}
	w.tell("\nproposals for the %s:", flag)
	for i, c := range d.Candidates {
		w.tell("  %d  %s", i+1, c.Expr)
		w.wrapped("     ", strings.Join(c.Why, "; "))
		for _, warning := range c.Warnings {
			w.wrapped("     ", "Beware: "+warning)
		}
	}
	for _, r := range d.Rejected {
		w.wrapped("  ", "not "+r.Expr+": "+r.Why)
	}
}

// wrapped tells a text in lines that fit a narrow terminal.
func (w *wizard) wrapped(indent, text string) {
	const width = 78
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(indent+line+word) > width {
			w.tell("%s%s", indent, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	w.tell("%s%s", indent, line)
}

func (w *wizard) table() (err error) {
	w.o.table, err = w.decide("table", w.o.table, tableName(w.o.name), false, "The table to write to.", draft.CheckTable)
	return err
}

// tableName makes one of the pipeline's name.
func tableName(name string) string {
	t := draft.Name(name, "messages")
	if draft.CheckTable(t) != nil {
		return "t_" + t
	}
	return t
}

// asker asks on a terminal, a line at a time.
type asker struct {
	in  *bufio.Reader
	out io.Writer
}

// asker is nil where there is no terminal on both sides.
func (a *app) asker() *asker {
	if _, ok := terminal(a.err); !ok || !isTerminal(a.in) {
		return nil
	}
	return &asker{bufio.NewReaderSize(a.in, 64<<10), a.err}
}

// maxAnswers is how many wrong answers are taken.
const maxAnswers = 10

// text asks until check takes the answer; an empty one is the default.
func (q *asker) text(what, def string, check func(string) error) (string, error) {
	for range maxAnswers {
		if def == "" {
			fmt.Fprintf(q.out, "%s: ", what)
		} else {
			fmt.Fprintf(q.out, "%s [%s]: ", what, printable(def))
		}
		line, err := q.in.ReadSlice('\n')
		answer := strings.TrimSpace(string(line))
		switch {
		case err != nil:
			return "", usagef("nothing was written: the input ended at the question for the %s", what)
		case answer == "" && def == "":
			continue
		case answer == "":
			answer = def
		}
		if err = check(answer); err == nil {
			return answer, nil
		}
		fmt.Fprintln(q.out, "  "+printable(err.Error()))
	}
	return "", usagef("nothing was written: no answer for the %s would do", what)
}

// yes asks for a yes, which an empty answer is.
func (q *asker) yes(question string) bool {
	fmt.Fprintf(q.out, "%s [Y/n] ", printable(question))
	line, err := q.in.ReadSlice('\n')
	answer := strings.ToLower(strings.TrimSpace(string(line)))
	return err == nil && (answer == "" || answer == "y" || answer == "yes")
}
