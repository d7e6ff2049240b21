package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/draft"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/propose"
)

const initHelp = `Write a pipeline file that runs as it is. Looks at some of your messages, says
what could be their id, key and version and why, and tries the file on them.
On a terminal it asks for what no flag says; elsewhere --yes takes what it
proposes. FILE (default: pipeline.yaml) must not be there yet.

Example:
  semel init --source spool
  semel init orders.yaml --source spool --id .event_id --key .order.id

Exit codes:
  0  written
  1  the command line or a place is wrong, or something is missing
  2  the file could not be written
  3  written, and some messages of the sample would be set aside`

// nothing is the answer that there is no key or version.
const nothing = "-"

// sampleTime bounds how long a sample is read.
const sampleTime = 10 * time.Second

type initOptions struct {
	name, source, store, sample, id, key, version, as, table string

	yes, force, dryRun bool
}

func (a *app) initCommand() *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use: "init [FILE]", Short: "Write a pipeline file for your own messages", Long: initHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := "pipeline.yaml"
			if len(args) > 0 {
				file = args[0]
			}
			return a.initialize(file, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`NAME` of the pipeline (default: from FILE or source)")
	f.StringVar(&o.source, "source", "", "`DIRECTORY` that holds inbox/, or will")
	f.StringVar(&o.store, "store", "", "`DATABASE` (default: sqlite:NAME.db)")
	f.StringVar(&o.sample, "sample", "", "`PATH` of messages (default: that of the source)")
	f.StringVar(&o.id, "id", "", "same at every delivery of an event, a jq `EXPRESSION`")
	f.StringVar(&o.key, "key", "", "the entity it is about, a jq `EXPRESSION`; - for none")
	f.StringVar(&o.version, "version", "", "highest of a key wins, a jq `EXPRESSION`; - for none")
	f.StringVar(&o.as, "as", "", "versions are `integer` or time (default: what fits)")
	f.StringVar(&o.table, "table", "", "`TABLE` to write to (default: the name)")
	f.BoolVar(&o.yes, "yes", false, "take what is proposed, ask nothing")
	f.BoolVar(&o.force, "force", false, "replace FILE")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the file, write nothing")
	return c
}

// wizard makes one pipeline file.
type wizard struct {
	app  *app
	ctx  context.Context
	file string
	o    initOptions
	ask  *asker    // nil: there is nobody to ask
	out  io.Writer // for what is told on the way

	study  *propose.Study // nil: there is no sample
	root   string         // of a source that is a directory
	result initResult
}

func (a *app) initialize(file string, o initOptions) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	w := &wizard{app: a, ctx: ctx, file: file, o: o, out: a.out}
	if o.dryRun || a.json {
		w.out = a.err
	}
	if !o.yes {
		w.ask = a.asker()
	}
	if err := errors.Join(w.free(), o.check()); err != nil {
		return exit(exitUsage, err)
	}
	for _, step := range []func() error{w.places, w.sample, w.id, w.key, w.version, w.table, w.tryOut, w.makeSource, w.publish} {
		if err := step(); err != nil {
			return err
		}
	}
	return w.conclude()
}

// free wants that nothing would be overwritten.
func (w *wizard) free() error {
	fi, err := os.Lstat(w.file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(w.file)); err != nil {
			return fmt.Errorf("%s: the directory does not exist: create it, or name another file", w.file)
		}
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		return fmt.Errorf("%s is a directory: name a file, such as %s", w.file, filepath.Join(w.file, "pipeline.yaml"))
	case w.o.dryRun:
		return nil
	case w.o.force:
		if fi, err := os.Stat(w.file); err != nil || !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file, and nothing that --force replaces: name another file", w.file)
		}
		return nil
	}
	return fmt.Errorf("%s is there already and stays as it is: name another file, or --force replaces it", w.file)
}

// check looks at the flags alone.
func (o initOptions) check() error {
	var errs []error
	for _, f := range []struct{ flag, value string }{
		{"name", o.name}, {"source", o.source}, {"store", o.store}, {"id", o.id}, {"key", o.key}, {"version", o.version},
	} {
		if err := oneLine(f.value); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.flag, err))
		}
	}
	for _, f := range []struct{ flag, value string }{{"id", o.id}, {"key", o.key}, {"version", o.version}} {
		if err := expression(f.value); f.value != "" && f.value != nothing && err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.flag, err))
		}
	}
	if o.id == nothing {
		errs = append(errs, errors.New("--id -: a message without id cannot be recognised; --id '$meta.file' takes the name of its file"))
	}
	if o.as != "" && o.as != "integer" && o.as != "time" {
		errs = append(errs, fmt.Errorf("--as %s: integer or time", o.as))
	}
	if o.version != "" && o.version != nothing && o.key == nothing {
		errs = append(errs, errors.New("--version needs a key: versions are compared per key"))
	}
	if o.table != "" {
		if err := draft.CheckTable(o.table); err != nil {
			errs = append(errs, fmt.Errorf("--table %s: %w", o.table, err))
		}
	}
	return errors.Join(errs...)
}

func oneLine(s string) error {
	if strings.ContainsFunc(s, unicode.IsControl) || !strings.EqualFold(s, strings.ToValidUTF8(s, "?")) {
		return errors.New("it has control characters or is not UTF-8: write it on one line")
	}
	return nil
}

func expression(s string) error {
	_, err := message.Compile("expression", s)
	return err
}

// places asks for source, name and store.
func (w *wizard) places() (err error) {
	o := &w.o
	def, essential := "directory:spool", true
	if fi, err := os.Stat(o.sample); err == nil && fi.IsDir() {
		def, essential = "directory:"+queueOf(o.sample), false
	}
	if o.source, err = w.decide("source", o.source, def, essential, "Where do messages come from? A directory: files that are put into its inbox/.", checkSource); err != nil {
		return err
	}
	o.source = scheme(o.source, "directory")
	if loc, err := config.ParseLocation(o.source, []string{"directory"}); err == nil {
		if w.root = filepath.Clean(strings.TrimPrefix(o.source, "directory:")); strings.HasPrefix(w.root, "/") {
			w.root = loc.Path
		}
	}
	def = strings.TrimSuffix(filepath.Base(w.file), filepath.Ext(w.file))
	if def == "pipeline" && w.root != "" {
		abs, err := filepath.Abs(w.root)
		if err != nil {
			return err
		}
		def = filepath.Base(abs)
	}
	if o.name, err = w.decide("name", o.name, draft.Name(def, "pipeline"), false, "Its name. What it remembers is kept under it.", oneLine); err != nil {
		return err
	}
	o.store, err = w.decide("store", o.store, "sqlite:"+draft.Name(o.name, "semel")+".db", false, "The database with your tables.", checkStore)
	o.store = scheme(o.store, "sqlite")
	return err
}

// queueOf is the root of the queue that a directory belongs to.
func queueOf(dir string) string {
	if dir = filepath.Clean(dir); filepath.Base(dir) == "inbox" {
		return filepath.Dir(dir)
	}
	return dir
}

// scheme completes a bare path: somebody who is asked for a directory names
// one.
func scheme(s, name string) string {
	if strings.Contains(s, ":") {
		return s
	}
	return name + ":" + s
}

func checkSource(s string) error {
	return errors.Join(oneLine(s), located(scheme(s, "directory"), adapters.SourceSchemes()))
}

func checkStore(s string) error {
	if s = scheme(s, "sqlite"); isReference(s) || strings.HasPrefix(s, "sqlite:") {
		return errors.Join(oneLine(s), located(s, []string{"sqlite"}))
	}
	return errOtherSQL
}

var errOtherSQL = errors.New("init writes SQL for SQLite: name sqlite:PATH, and change store, setup and handle in the file afterwards")

// isReference: the location is in a variable or a file.
func isReference(s string) bool {
	return strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:")
}

func located(s string, schemes []string) error {
	if isReference(s) {
		return nil
	}
	_, err := config.ParseLocation(s, schemes)
	return err
}

// decide takes what was stated, or asks, or takes the default: where nobody
// can be asked, of what is essential only with --yes.
func (w *wizard) decide(flag, given, def string, essential bool, question string, check func(string) error) (string, error) {
	switch {
	case given != "":
		if err := check(given); err != nil {
			return "", usagef("--%s: %w", flag, err)
		}
		return given, nil
	case w.ask != nil:
		fmt.Fprintln(w.ask.out, question)
		return w.ask.text(flag, def, check)
	case essential:
		return "", usagef("--%s is missing. %s", flag, question)
	}
	return def, nil
}

// sample reads messages: those that were named, or those of the source.
func (w *wizard) sample() error {
	path := w.o.sample
	if path == "" && w.root != "" {
		if fi, err := os.Stat(w.root); err == nil && fi.IsDir() {
			path = w.root
		}
	}
	if path == "" && w.ask != nil {
		var err error
		fmt.Fprintln(w.ask.out, "Some of your messages, to look at: a file (JSON, NDJSON, CSV, .gz) or a directory.")
		if path, err = w.ask.text("sample", nothing, readable); err != nil {
			return err
		}
	}
	if path == "" || path == nothing {
		return nil
	}
	ctx, stop := context.WithTimeout(w.ctx, sampleTime)
	defer stop()
	s, err := propose.Read(ctx, path)
	if err != nil {
		return usagef("sample %s: %w", path, err)
	}
	return w.look(s)
}

func readable(path string) error {
	if path == nothing {
		return nil
	}
	_, err := os.Stat(path)
	return err
}

// look studies a sample, and says how much was seen.
func (w *wizard) look(s *propose.Sample) error {
	if len(s.Documents) == 0 {
		if w.o.sample != "" {
			return usagef("sample %s: there is no message in it: name a file or a directory with JSON files", s.Path)
		}
		return nil
	}
	w.result.Sample = sampled(s)
	if s.Readable() == 0 && w.o.id == "" {
		d := s.Documents[0]
		return usagef("sample %s: none of %s is JSON that can be read; %s: %w\nif they are not JSON, --id '$meta.file' takes the names of the files",
			s.Path, counted(int64(len(s.Documents)), "message"), printable(d.Place(s.Format)), d.Problem)
	}
	w.study = propose.NewStudy(s)
	w.tell("looked at %s", w.result.Sample.describe())
	for _, n := range s.Notes {
		w.note("%s", n)
	}
	if w.study.TooMany {
		w.note("the messages have very many fields; not all were looked at")
	}
	return nil
}

func (w *wizard) tell(format string, args ...any) {
	fmt.Fprintln(w.out, printable(fmt.Sprintf(format, args...)))
}

// note tells something that the result keeps.
func (w *wizard) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	w.result.Notes = append(w.result.Notes, n)
	w.tell("note: %s", n)
}
