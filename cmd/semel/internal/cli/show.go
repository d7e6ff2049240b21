package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
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
	Version  *int64       `json:"version,omitempty"`
	Origin   string       `json:"origin"`
	Attempts int          `json:"attempts"`
	Seen     int          `json:"seen"`
	Proposed int          `json:"proposed,omitempty"`
	Error    string       `json:"error,omitempty"`
	Stack    string       `json:"stack,omitempty"`
	Due      *time.Time   `json:"due,omitempty"`
	Created  time.Time    `json:"created"`
	Updated  time.Time    `json:"updated"`
	By       string       `json:"by,omitempty"`
	Note     string       `json:"note,omitempty"`
	Header   []headerJSON `json:"header,omitempty"`
	// Body is set where it is UTF-8, BodyBase64 otherwise; only show has it.
	Body       *string `json:"body,omitempty"`
	BodyBase64 string  `json:"body_base64,omitempty"`
}

type headerJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func letterOf(l *store.Letter) letterJSON {
	j := letterJSON{
		Ref: l.Ref, State: string(l.State), Class: string(l.Class), Reason: l.Reason, Conflict: l.Conflict,
		ID: l.Message.ID, Key: l.Message.Key, Origin: l.Origin, Attempts: l.Attempts, Seen: l.Seen,
		Proposed: l.Proposed, Error: l.Error, Stack: l.Stack, Created: l.Created, Updated: l.Updated, By: l.By, Note: l.Note,
	}
	if l.Message.Version.Set {
		j.Version = &l.Message.Version.N
	}
	if l.State == store.StateRetry {
		j.Due = &l.Due
	}
	return j
}

// withContent adds header and body.
func (j letterJSON) withContent(m *semel.Message) letterJSON {
	for _, f := range m.Header {
		j.Header = append(j.Header, headerJSON{f.Name, string(f.Value)})
	}
	switch {
	case m.Body == nil:
	case utf8.Valid(m.Body):
		s := string(m.Body)
		j.Body = &s
	default:
		j.BodyBase64 = base64.StdEncoding.EncodeToString(m.Body)
	}
	return j
}

func (a *app) showCommand() *cobra.Command {
	var p place
	var body bool
	c := &cobra.Command{Use: "show FILE REF", Short: "Show everything about one letter", Args: arguments("FILE", "REF"),
		Long: "Show everything about one letter: where it came from, why it is there, each\nfailed attempt, and its content.\n\nExample:\n  semel letters show orders.yaml k3q\n  semel letters show orders.yaml k3q --body > message.json" + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.show(args[0], args[1], p, body) }}
	c.Flags().BoolVar(&body, "body", false, "write the body alone, as it is")
	p.flags(c)
	return c
}

func (a *app) show(path, ref string, p place, body bool) error {
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		l, err := find(ctx, st.Reader, f.Name, ref, true)
		if err != nil {
			return err
		}
		switch {
		case body:
			_, err = a.out.Write(l.Message.Body)
			return err
		case a.json:
			return writeJSON(a.out, letterOf(l).withContent(&l.Message))
		}
		attempts, err := attemptsOf(ctx, st.Reader, f.Name, l)
		if err != nil {
			return exit(exitFault, err)
		}
		proposed, err := st.Reader.Revisions(ctx, f.Name, l.Ref)
		if err != nil {
			return exit(exitFault, err)
		}
		printLetter(a.out, f, l, attempts)
		printProposed(a.out, f, l, proposed)
		return nil
	})
}

// printProposed shows the content that came last for a letter, beside the
// content that it has.
func printProposed(w io.Writer, f *config.File, l *store.Letter, rs []store.Revision) {
	if len(rs) == 0 || l.Proposed == 0 {
		return
	}
	r := rs[len(rs)-1]
	fmt.Fprintf(w, "\nproposed by the %s, %s:", r.By, stamp(r.At))
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
		row("proposed", counted(int64(l.Proposed), "revision")+" from the source")
	}
	row("decided by", strings.TrimSuffix(l.By+": "+l.Note, ": "))
	row("error", l.Error)
	row("stack", l.Stack)
	for _, x := range attempts {
		row(fmt.Sprintf("attempt %d", x.N), fmt.Sprintf("%s, %s: %s", stamp(x.At), x.Class, firstLine(x.Error)))
	}
	for _, h := range l.Message.Header {
		row("header", h.Name+": "+string(h.Value))
	}
	t.Flush()
	printBody(w, l.Message.Body)
	if l.State == store.StateDead {
		fmt.Fprintf(w, "\nTry it again:  semel letters replay %s %s\nGive it up:    semel letters discard %s %s --reason …\n", f.Path, l.Ref, f.Path, l.Ref)
	}
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
