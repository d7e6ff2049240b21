package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

const exportHelp = `Write letters as JSON lines, for an editor or jq, and for letters import. Of a
line, import reads back the body: in json if it is JSON (without blanks between
its parts), else in text if it is UTF-8, else in base64; a tombstone has none.
ref and version say which letter it was. Without a term about state: those that
are dead or edited; edited ones with their edit.

Example:
  semel letters export orders.yaml group=k3q |
    jq -c '.json.currency = "EUR"' | semel letters import orders.yaml -`

func (a *app) exportCommand() *cobra.Command {
	var p place
	c := &cobra.Command{Use: "export FILE [TERM...]", Short: "Write letters as JSON lines", Args: arguments("FILE", "[TERM...]"),
		Long: exportHelp + lettersCodes,
		RunE: func(_ *cobra.Command, args []string) error { return a.export(args[0], args[1:], p) }}
	p.flags(c)
	return c
}

// exportJSON is the frozen form of an exported letter.
type exportJSON struct {
	Pipeline string       `json:"pipeline"`
	Ref      string       `json:"ref"`
	Version  int64        `json:"version"`
	State    string       `json:"state"`
	Class    string       `json:"class"`
	Reason   string       `json:"reason"`
	Group    string       `json:"group,omitempty"`
	Attempts int          `json:"attempts"`
	Error    string       `json:"error,omitempty"`
	Created  time.Time    `json:"created"`
	Origin   string       `json:"origin"`
	ID       string       `json:"id,omitempty"`
	Key      string       `json:"key,omitempty"`
	Header   []headerJSON `json:"header,omitempty"`
	// One of them, or none: see exportHelp.
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 *string         `json:"base64,omitempty"`
}

func exportOf(l *store.Letter, m *semel.Message) exportJSON {
	j := exportJSON{
		Pipeline: l.Consumer, Ref: l.Ref, Version: l.Version, State: string(l.State), Class: string(l.Class), Reason: l.Reason,
		Group: l.Cause.ID, Attempts: l.Attempts, Error: cause(l.Error, l.Message.ID, l.Origin), Created: l.Created, Origin: l.Origin,
		ID: l.Message.ID, Key: l.Message.Key,
	}
	for _, f := range l.Message.Header {
		j.Header = append(j.Header, headerJSON{f.Name, string(f.Value)})
	}
	switch {
	case m.Body == nil:
	case message.Strict(m.Body):
		var b bytes.Buffer
		if json.Compact(&b, m.Body) == nil {
			j.JSON = b.Bytes()
		}
	case utf8.Valid(m.Body):
		s := string(m.Body)
		j.Text = &s
	default:
		s := base64.StdEncoding.EncodeToString(m.Body)
		j.Base64 = &s
	}
	return j
}

// content is what a letter would be tried with: its edit if it has one.
func content(ctx context.Context, r store.Reader, l *store.Letter) (*semel.Message, error) {
	if !letter.Edited(l) {
		return &l.Message, nil
	}
	rs, err := r.Revisions(ctx, l.Consumer, l.Ref)
	if err != nil {
		return nil, exit(exitFault, err)
	}
	if n := letter.LastEdit(rs); n != nil {
		return &n.Message, nil
	}
	return &l.Message, nil
}

func (a *app) export(path string, args []string, p place) error {
	sel, err := filtered(args, deadStates())
	if err != nil {
		return err
	}
	return a.withStore(path, p, func(ctx context.Context, f *config.File, st *adapters.Store) error {
		w := bufio.NewWriterSize(a.out, 64<<10)
		err := sel.each(ctx, st.Reader, f.Name, true, func(l *store.Letter) error {
			m, err := content(ctx, st.Reader, l)
			if err != nil {
				return err
			}
			return writeJSON(w, exportOf(l, m))
		})
		var coded *codedError
		if err = errors.Join(err, w.Flush()); err != nil && !errors.As(err, &coded) {
			return exit(exitFault, err)
		}
		return err
	})
}
