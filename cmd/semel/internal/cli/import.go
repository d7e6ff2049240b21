package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

const importHelp = `Read back what letters export wrote, after an editor or jq. A body that means
something else than before is proposed for its letter, which is edited then and
tried with it at its next replay; what the producer sent is kept. Blanks,
escapes and the notation of numbers do not count as changes, the order of keys
does. A letter that has changed since the export is refused, and so is a new id.
Importing a file again does nothing twice. PATH is - or nothing for standard
input.

Example:
  semel letters import orders.yaml fixed.jsonl --dry-run
  semel letters import orders.yaml fixed.jsonl --replay --note "had no currency"`

type importOptions struct {
	place
	replay, dryRun bool
	by, note       string
}

func (a *app) importCommand() *cobra.Command {
	var o importOptions
	c := &cobra.Command{Use: "import FILE [PATH]", Short: "Propose content that was edited outside", Args: arguments("FILE", "[PATH]"),
		Long: importHelp + lettersCodes + "\n  3  some lines were refused\n  5  interrupted; the same command goes on",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usagef("one PATH at most")
			}
			return a.importAll(args, o)
		}}
	f := c.Flags()
	f.BoolVar(&o.replay, "replay", false, "have what is proposed tried at once")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would be proposed; change nothing")
	f.StringVar(&o.by, "as", "", "who decides (default: the user of the system)")
	f.StringVar(&o.note, "note", "", "why, for those who look later")
	o.flags(c)
	return c
}

func (a *app) importAll(args []string, o importOptions) error {
	o.by = decider(o.by)
	if err := letter.CheckSaid(o.by, o.note); err != nil {
		return exit(exitUsage, err)
	}
	in := a.in
	if len(args) == 2 && args[1] != "-" {
		f, err := openExport(args[1])
		if err != nil {
			return exit(exitUsage, fmt.Errorf("%w: name a file that letters export wrote, or - for standard input", err))
		}
		defer f.Close()
		in = f
	}
	return a.withStore(args[0], o.place, func(_ context.Context, f *config.File, st *adapters.Store) error {
		im := &importer{a: a, o: o, file: f, st: st, decoder: message.NewDecoder(f.Rules)}
		ctx, stop := a.signals(func(s os.Signal) { fmt.Fprintf(a.err, "%v: finishing the lines in hand\n", s) })
		defer stop()
		return im.run(ctx, newObjects(in))
	})
}

// openExport opens what may be read as a file.
func openExport(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err == nil && fi.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s is a directory", path)
	}
	return f, nil
}

// importer reads objects, in batches of which each is a transaction or two.
type importer struct {
	a       *app
	o       importOptions
	file    *config.File
	st      *adapters.Store
	decoder *message.Decoder

	batch []entry
	bytes int
	sum   importSum
}

// importSum is the last line of --json. Its form is frozen.
type importSum struct {
	Unchanged int `json:"unchanged"`
	Proposed  int `json:"proposed"`
	Replayed  int `json:"replayed"`
	Refused   int `json:"refused"`
}

// entry is one record and what becomes of it.
type entry struct {
	line    int
	ref     string
	err     error            // why it is refused
	edit    *letter.Proposal // what is to be proposed; nil: nothing
	changed string           // where the content differs
	version int64            // of a letter that has its edit, for the replay
}

const batchBytes = 8 << 20

func (im *importer) run(ctx context.Context, in *objects) error {
	for ctx.Err() == nil {
		rec, err := in.next()
		if errors.Is(err, io.EOF) {
			return im.finish(im.flush())
		}
		if err != nil {
			return im.finish(errors.Join(im.flush(), exit(exitFault, fmt.Errorf("reading line %d: %w", in.line, err))))
		}
		e := entry{line: rec.line, err: rec.err}
		if e.err == nil {
			if err := im.consider(context.WithoutCancel(ctx), rec.text, &e); err != nil {
				return im.finish(errors.Join(im.flush(), exit(exitFault, err)))
			}
		}
		im.batch = append(im.batch, e)
		if im.bytes += len(rec.text); len(im.batch) == letter.Chunk || im.bytes > batchBytes {
			if err := im.flush(); err != nil {
				return im.finish(err)
			}
		}
	}
	fault := im.flush()
	if err := im.finish(fault); fault != nil {
		return err
	}
	fmt.Fprintln(im.a.err, "interrupted: the same command goes on")
	return exit(exitWaiting, nil)
}

// importJSON is what import reads of an exported letter.
type importJSON struct {
	Pipeline *string         `json:"pipeline"`
	Ref      string          `json:"ref"`
	Version  int64           `json:"version"`
	ID       *string         `json:"id"`
	Key      *string         `json:"key"`
	Header   *[]headerJSON   `json:"header"`
	JSON     json.RawMessage `json:"json"`
	Text     *string         `json:"text"`
	Base64   *string         `json:"base64"`
}

// body is the content; there may be one of the three forms, or none.
func (j *importJSON) body() ([]byte, error) {
	forms := 0
	for _, there := range []bool{j.JSON != nil, j.Text != nil, j.Base64 != nil} {
		if there {
			forms++
		}
	}
	switch {
	case forms > 1:
		return nil, errors.New("it has more than one of json, text and base64: leave the one that is meant")
	case j.JSON != nil:
		var b bytes.Buffer
		err := json.Compact(&b, j.JSON)
		return b.Bytes(), err
	case j.Text != nil:
		return []byte(*j.Text), nil
	case j.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*j.Base64)
		if err != nil {
			return nil, errors.New("what it has in base64 is not that")
		}
		return append([]byte{}, b...), nil
	}
	return nil, nil
}

// consider compares a record with its letter. What is wrong with the record is
// noted in e; the error is that of the store.
func (im *importer) consider(ctx context.Context, text []byte, e *entry) error {
	var j importJSON
	var body []byte
	if body, e.err = im.parse(text, &j); e.err != nil {
		e.ref = j.Ref
		return nil //nolint:nilerr // it is the record's
	}
	e.ref = j.Ref
	found, err := im.st.Reader.List(ctx, store.Query{Consumer: im.file.Name, Ref: j.Ref, Limit: 1, Bodies: true})
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Ref != j.Ref {
		e.err = fmt.Errorf("%w in this store: import where it was exported", letter.ErrNotFound)
		return nil
	}
	return im.compare(ctx, &j, body, &found[0], e)
}

// parse reads a record and returns the body that it has.
func (im *importer) parse(text []byte, j *importJSON) ([]byte, error) {
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("it is not an exported letter: %s", notJSON(err))
	}
	switch {
	case j.Ref == "" || j.Version < 1:
		return nil, errors.New("it has no ref and version: lines are those of letters export")
	case j.Pipeline != nil && *j.Pipeline != im.file.Name:
		return nil, fmt.Errorf("it was exported from the pipeline %q, this is %q", *j.Pipeline, im.file.Name)
	}
	return j.body()
}

// notJSON says what is wrong with a text, without quoting it.
func notJSON(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("not valid JSON at byte %d of it", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf("%s is of another type", first(kind.Field, "the whole"))
	}
	return "not valid JSON"
}

func (im *importer) compare(ctx context.Context, j *importJSON, body []byte, l *store.Letter, e *entry) error {
	now, err := content(ctx, im.st.Reader, l)
	if err != nil {
		return err
	}
	same := sameBody(now.Body, body)
	switch {
	case body == nil && now.Body != nil: // a tool left it out; nobody edits a message into a tombstone
		e.err = errors.New("it has none of json, text and base64: keep the body in the line")
		return nil
	case l.Version == j.Version:
		if e.err = fixed(j, exportOf(l, now)); e.err != nil || same {
			return nil //nolint:nilerr // it is the record's
		}
	case same && letter.Edited(l) && l.Version == j.Version+1: // imported before, and not replayed
		e.version = l.Version
		return nil
	case same:
		return nil
	default:
		e.err = fmt.Errorf("%w: it was at version %d and is at %d, %s; export it again", letter.ErrMoved, j.Version, l.Version, l.State)
		return nil
	}
	if _, e.err = letter.Editable(l); e.err != nil {
		return nil //nolint:nilerr // it is the letter's
	}
	e.edit, e.err = im.read(l, body)
	e.edit.Version = j.Version
	e.changed = changes(now.Body, body)
	return nil
}

// fixed refuses changes of what follows from the body, or stays as it was.
func fixed(j *importJSON, was exportJSON) error {
	same := func(h, was headerJSON) bool { return h.Name == asJSON(was.Name) && h.Value == asJSON(was.Value) }
	switch {
	case j.ID != nil && *j.ID != asJSON(was.ID):
		return errors.New("id cannot be edited: it follows from the body")
	case j.Key != nil && *j.Key != asJSON(was.Key):
		return errors.New("key cannot be edited: it follows from the body")
	case j.Header != nil && !slices.EqualFunc(*j.Header, was.Header, same):
		return errors.New("headers cannot be edited")
	}
	return nil
}

// asJSON is how a text comes back from JSON, which has no bytes that are not
// UTF-8.
func asJSON(s string) string { return string([]rune(s)) }

// read has the pipeline's decoder read a body: what it refuses would die
// again.
func (im *importer) read(l *store.Letter, body []byte) (*letter.Proposal, error) {
	d := &semel.Delivery{Message: l.Message}
	d.Body, d.ID, d.Key, d.Version = body, "", "", semel.Version{}
	p := &letter.Proposal{Target: letter.Target{Ref: l.Ref}}
	err := im.decoder.Decode(d)
	switch {
	case errors.Is(err, semel.ErrFiltered):
		return p, errors.New("the pipeline's filter does not want it like that: discard the letter instead")
	case err != nil:
		return p, fmt.Errorf("the pipeline could not read it: %w", err)
	case l.Message.ID != "" && d.ID != l.Message.ID:
		return p, errors.New("its id would be another: that is another message, which has to be sent as one")
	}
	p.Message = d.Message
	return p, nil
}

// flush proposes what is in hand, has it replayed, and reports.
func (im *importer) flush() error {
	defer func() { im.batch, im.bytes = im.batch[:0], 0 }()
	if im.o.dryRun {
		return im.report()
	}
	var edits []letter.Proposal
	var of []*entry
	for i := range im.batch {
		if e := &im.batch[i]; e.err == nil && e.edit != nil {
			edits, of = append(edits, *e.edit), append(of, e)
		}
	}
	done, err := im.st.Desk.Propose(context.Background(), im.file.Name, edits, im.o.by, im.o.note)
	for i, d := range done {
		of[i].err, of[i].version = d.Err, d.Version
	}
	if err != nil {
		im.batch = nil // nothing of it is done
		return exit(exitFault, err)
	}
	if im.o.replay {
		if err := im.try(); err != nil {
			return exit(exitFault, err)
		}
	}
	return im.report()
}

// try replays the letters that have their edit.
func (im *importer) try() error {
	var targets []letter.Target
	var of []*entry
	for i := range im.batch {
		if e := &im.batch[i]; e.err == nil && e.version > 0 {
			targets, of = append(targets, letter.Target{Ref: e.ref, Version: e.version}), append(of, e)
		}
	}
	done, err := im.st.Desk.Replay(context.Background(), im.file.Name, targets, im.o.by, im.o.note)
	for i, d := range done {
		if of[i].err = d.Err; d.Err == nil {
			im.sum.Replayed++
		}
	}
	return err
}

func (im *importer) report() error {
	for i := range im.batch {
		e := &im.batch[i]
		result := "unchanged"
		switch {
		case e.err != nil:
			result = "refused"
			im.sum.Refused++
		case e.edit != nil || e.version > 0:
			result = "proposed"
			im.sum.Proposed++
		default:
			im.sum.Unchanged++
		}
		if err := im.tell(e, result); err != nil {
			return exit(exitFault, err)
		}
	}
	return nil
}

// importedJSON is the frozen form of what import says of a record.
type importedJSON struct {
	Line    int    `json:"line"`
	Ref     string `json:"ref,omitempty"`
	Result  string `json:"result"`
	Changed string `json:"changed,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (im *importer) tell(e *entry, result string) error {
	if im.a.json {
		j := importedJSON{Line: e.line, Ref: e.ref, Result: result, Changed: e.changed}
		if e.err != nil {
			j.Error = e.err.Error()
		}
		return writeJSON(im.a.out, j)
	}
	where := strings.TrimSuffix(fmt.Sprintf("line %d: %s", e.line, printable(e.ref)), ": ")
	switch result {
	case "refused":
		fmt.Fprintf(im.a.err, "%s: refused: %s\n", where, printable(e.err.Error()))
	case "proposed":
		fmt.Fprintf(im.a.out, "%s: proposed%s\n", where, line(prefixed(" ", e.changed), 200))
	}
	return nil
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// finish tells the sum.
func (im *importer) finish(err error) error {
	s := im.sum
	if im.a.json {
		err = errors.Join(err, writeJSON(im.a.out, s))
	} else {
		would := ""
		if im.o.dryRun {
			would = "would be "
		}
		fmt.Fprintf(im.a.out, "%s %sproposed, %s unchanged, %s refused", thousands(int64(s.Proposed)), would, thousands(int64(s.Unchanged)), thousands(int64(s.Refused)))
		switch {
		case im.o.replay && !im.o.dryRun:
			fmt.Fprintf(im.a.out, ", %s replayed\nA running semel takes them up now; if none runs: semel run %s --once\n", thousands(int64(s.Replayed)), im.file.Path)
		case s.Proposed > 0 && !im.o.dryRun:
			fmt.Fprintf(im.a.out, "\nTry them: semel letters replay %s state=edited\n", im.file.Path)
		default:
			fmt.Fprintln(im.a.out)
		}
	}
	if err == nil && s.Refused > 0 {
		return exit(exitDead, nil)
	}
	return err
}
