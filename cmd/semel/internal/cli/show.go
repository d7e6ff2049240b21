package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// letterJSON is the frozen form of a letter.
type letterJSON struct {
	Ref      string       `json:"ref"`
	State    string       `json:"state"`
	Class    string       `json:"class"`
	Reason   string       `json:"reason"`
	Conflict bool         `json:"conflict,omitempty"`
	ID       string       `json:"id,omitempty"`
	Key      string       `json:"key,omitempty"`
	Type     string       `json:"type,omitempty"`
	Version  *int64       `json:"version,omitempty"`
	Origin   string       `json:"origin"`
	Attempts int          `json:"attempts"`
	Seen     int          `json:"seen"`
	Proposed int          `json:"proposed,omitempty"`
	Revised  bool         `json:"revised,omitempty"`
	Group    string       `json:"group,omitempty"`
	Error    string       `json:"error,omitempty"`
	Stack    string       `json:"stack,omitempty"`
	Due      *time.Time   `json:"due,omitempty"`
	Created  time.Time    `json:"created"`
	Updated  time.Time    `json:"updated"`
	Failed   *time.Time   `json:"failed,omitempty"`
	By       string       `json:"by,omitempty"`
	Note     string       `json:"note,omitempty"`
	Header   []headerJSON `json:"header,omitempty"`
	// Body is set where it is UTF-8, BodyBase64 otherwise; only show has it.
	Body       *string `json:"body,omitempty"`
	BodyBase64 string  `json:"body_base64,omitempty"`
	// Revisions is content beside the letter's; only show has it.
	Revisions []revisionJSON `json:"revisions,omitempty"`
}

// revisionJSON is what the producer sent (number 0), or content that is
// proposed.
type revisionJSON struct {
	N          int       `json:"n"`
	At         time.Time `json:"at"`
	By         string    `json:"by,omitempty"`
	Note       string    `json:"note,omitempty"`
	Body       *string   `json:"body,omitempty"`
	BodyBase64 string    `json:"body_base64,omitempty"`
}

type headerJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func letterOf(l *store.Letter) letterJSON {
	j := letterJSON{
		Ref: l.Ref, State: string(l.State), Class: string(l.Class), Reason: l.Reason, Conflict: l.Conflict,
		ID: l.Message.ID, Key: l.Message.Key, Type: l.Message.Type, Group: l.Cause.ID, Origin: l.Origin, Attempts: l.Attempts, Seen: l.Seen,
		Proposed: l.Proposed, Error: l.Error, Stack: l.Stack, Created: l.Created, Updated: l.Updated, By: l.By, Note: l.Note,
	}
	if l.Message.Version.Set {
		j.Version = &l.Message.Version.N
	}
	if l.State == store.StateRetry {
		j.Due = &l.Due
	}
	if !l.Failed.IsZero() {
		j.Failed = &l.Failed
	}
	return j
}

// withContent adds header and body.
func (j letterJSON) withContent(m *semel.Message) letterJSON {
	for _, f := range m.Header {
		j.Header = append(j.Header, headerJSON{f.Name, string(f.Value)})
	}
	j.Body, j.BodyBase64 = bodyJSON(m.Body)
	return j
}

// bodyJSON is text where it is UTF-8; a tombstone is neither.
func bodyJSON(body []byte) (text *string, other string) {
	switch {
	case body == nil:
	case utf8.Valid(body):
		s := string(body)
		return &s, ""
	default:
		return nil, base64.StdEncoding.EncodeToString(body)
	}
	return nil, ""
}

// withRevisions adds the content beside the letter's.
func (j letterJSON) withRevisions(rs []store.Revision, now *semel.Message) letterJSON {
	for _, r := range rs {
		v := revisionJSON{N: r.N, At: r.At, By: r.By, Note: r.Note}
		v.Body, v.BodyBase64 = bodyJSON(r.Message.Body)
		j.Revisions = append(j.Revisions, v)
	}
	j.Revised = revised(rs, now)
	return j
}

// revised reports whether now has taken the place of other content, which the
// producer sent. What was sent is kept as well where only the id was read
// later.
func revised(rs []store.Revision, now *semel.Message) bool {
	return len(rs) > 0 && rs[0].N == 0 && !(bytes.Equal(rs[0].Message.Body, now.Body) &&
		slices.EqualFunc(rs[0].Message.Header, now.Header, func(a, b semel.Field) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }))
}

func (a *app) showCommand() *cobra.Command {
	var p place
	var body, original bool
	c := &cobra.Command{Use: "show FILE REF", Short: "Show everything about one letter", Args: arguments("FILE", "REF"),
		Long: "Show everything about one letter: where it came from, why it is there, each\nfailed attempt, and its content.\n\nExample:\n  semel letters show orders.yaml k3q\n  semel letters show orders.yaml k3q --body > message.json" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error {
			if original && !body {
				return usagef("--original goes with --body; without, show has all of it")
			}
			return a.show(args[0], args[1], p, body, original)
		}}
	c.Flags().BoolVar(&body, "body", false, "write the body alone, as it is")
	c.Flags().BoolVar(&original, "original", false, "with --body: what the producer sent, not the edit")
	p.flags(c)
	return c
}

func (a *app) show(path, ref string, p place, body, original bool) error {
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		l, err := find(ctx, st.Reader, f.Name, ref, true)
		if err != nil {
			return err
		}
		revisions, err := st.Reader.Revisions(ctx, f.Name, l.Ref)
		if err != nil {
			return exit(exitFault, err)
		}
		switch {
		case body && original && revised(revisions, &l.Message):
			_, err = a.out.Write(revisions[0].Message.Body)
			return err
		case body:
			_, err = a.out.Write(l.Message.Body)
			return err
		case a.json:
			return writeJSON(a.out, letterOf(l).withContent(&l.Message).withRevisions(revisions, &l.Message))
		}
		attempts, err := attemptsOf(ctx, st.Reader, f.Name, l)
		if err != nil {
			return exit(exitFault, err)
		}
		printLetter(a.out, f, l, attempts)
		printRevisions(a.out, f, l, revisions)
		return nil
	})
}

// printRevisions shows what the producer sent, if it was changed, and the
// content that was proposed last, beside the content that the letter has.
func printRevisions(w io.Writer, f *config.File, l *store.Letter, rs []store.Revision) {
	if revised(rs, &l.Message) {
		fmt.Fprintf(w, "\nas the producer sent it (--body --original writes it):")
		printBody(w, rs[0].Message.Body)
	}
	if len(rs) == 0 || l.Proposed == 0 {
		return
	}
	r := &rs[len(rs)-1]
	if e := letter.LastEdit(rs); e != nil && letter.Edited(l) {
		fmt.Fprintf(w, "\nedited by %s, %s:", printable(e.By), stamp(e.At))
		printBody(w, e.Message.Body)
		fmt.Fprintf(w, "\nTry it with that:  semel letters replay %s %s\n", f.Path, l.Ref)
		if e.N == r.N {
			return
		}
	}
	fmt.Fprintf(w, "\nproposed by %s, %s:", printable(r.By), stamp(r.At))
	printBody(w, r.Message.Body)
	fmt.Fprintf(w, "\nTry it with that:  semel letters replay %s %s --proposed\n", f.Path, l.Ref)
}

func attemptsOf(ctx context.Context, r store.Reader, consumer string, l *store.Letter) ([]store.Attempt, error) {
	if l.Message.ID == "" {
		return nil, nil
	}
	t, err := r.Trace(ctx, consumer, l.Message.ID, l.Message.Key)
	return t.Attempts[l.Ref], err
}

func printLetter(w io.Writer, f *config.File, l *store.Letter, attempts []store.Attempt) {
	t := table(w)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, strings.ReplaceAll(printable(value), "\n", "\n\t"))
		}
	}
	row("letter", l.Ref)
	row("state", fmt.Sprintf("%s (%s, %s)", l.State, l.Class, l.Reason))
	if l.State == store.StateRetry {
		row("due", due(l.Due)+", "+stamp(l.Due))
	}
	row("id", l.Message.ID)
	row("key", l.Message.Key)
	if l.Message.Version.Set {
		row("version", fmt.Sprint(l.Message.Version.N))
	}
	row("came from", l.Origin)
	row("since", stamp(l.Created)+", last changed "+stamp(l.Updated))
	row("attempts", fmt.Sprintf("%d, redelivered %d times meanwhile", l.Attempts, l.Seen))
	if l.Proposed > 0 {
		row("proposed", counted(int64(l.Proposed), "revision"))
	}
	row("group", l.Cause.ID)
	row("decided by", strings.TrimSuffix(l.By+": "+l.Note, ": "))
	row("error", chain(l.Error))
	row("stack", l.Stack)
	for i, x := range attempts {
		said := ": " + cause(x.Error, l.Message.ID, l.Origin)
		if i == len(attempts)-1 && x.Error == l.Error {
			said = "" // it is told above
		}
		row(fmt.Sprintf("attempt %d", x.N), fmt.Sprintf("%s, %s%s", stamp(x.At), x.Class, said))
	}
	for _, h := range l.Message.Header {
		row("header", h.Name+": "+string(h.Value))
	}
	t.Flush()
	printBody(w, l.Message.Body)
	if l.State == store.StateDead {
		fmt.Fprintf(w, `
Try it again:  semel letters replay %[1]s %[2]s
Repair it:     semel letters export %[1]s ref=%[2]s > letter.jsonl, then edit that file
               semel letters import %[1]s letter.jsonl --replay
Give it up:    semel letters discard %[1]s %[2]s --reason …
`, f.Path, l.Ref)
	}
}

// chain is an error without the links whose text the one before them has.
func chain(s string) string {
	var kept []string
	for l := range strings.SplitSeq(s, "\n") {
		if n := len(kept); n == 0 || !strings.Contains(kept[n-1], l) {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "\n")
}

// maxShown is how much of a body people get to see.
const maxShown = 4 << 10

func printBody(w io.Writer, body []byte) {
	shown := body
	if len(shown) > maxShown {
		shown = shown[:maxShown]
	}
	fmt.Fprintf(w, "\nbody, %s:\n%s\n", counted(int64(len(body)), "byte"), printable(strings.TrimRight(string(shown), "\n")))
	if len(shown) < len(body) {
		fmt.Fprintln(w, "… (--body writes all of it)")
	}
}
