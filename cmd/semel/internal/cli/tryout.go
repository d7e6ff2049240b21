package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/draft"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/propose"
)

// initResult is what init --json says.
type initResult struct {
	File    string         `json:"file"`
	Written bool           `json:"written"`
	Name    string         `json:"name"`
	Source  string         `json:"source"`
	Store   string         `json:"store"`
	Table   string         `json:"table"`
	Files   string         `json:"files"`
	Inbox   string         `json:"inbox"`
	Keep    string         `json:"keep"`
	Horizon string         `json:"horizon"`
	Sample  *sampleSize    `json:"sample,omitempty"`
	ID      decision       `json:"id"`
	Key     decision       `json:"key"`
	Version decision       `json:"version"`
	Tried   map[string]int `json:"tried,omitempty"`
	Aside   []aside        `json:"aside"`
	Notes   []string       `json:"notes"`
	Next    []string       `json:"next"`
	// Text is the file, where it was not written.
	Text string `json:"text,omitempty"`

	text string
}

// sampleSize is how much was looked at.
type sampleSize struct {
	Path       string `json:"path"`
	Files      int    `json:"files"`
	Messages   int    `json:"messages"`
	Bytes      int64  `json:"bytes"`
	Unreadable int    `json:"unreadable"`
	More       bool   `json:"more"`
}

func sampled(s *propose.Sample) *sampleSize {
	return &sampleSize{s.Path, s.Files, len(s.Documents), s.Bytes, len(s.Documents) - s.Readable(), s.More}
}

func (s *sampleSize) describe() string {
	text := fmt.Sprintf("%s in %s of %s", counted(int64(s.Messages), "message"), counted(int64(s.Files), "file"), s.Path)
	if s.More {
		text += "; there are more"
	}
	if s.Unreadable > 0 {
		text += fmt.Sprintf("; %s cannot be read", thousands(int64(s.Unreadable)))
	}
	return text
}

// aside is a message of the sample that would not be applied in good order.
type aside struct {
	Place string `json:"place"`
	Why   string `json:"why"`
}

// maxAside is how many of them are told.
const maxAside = 5

// tryOut writes the text, reads it the way run does, and applies the sample in
// a transaction that is rolled back.
func (w *wizard) tryOut() error {
	w.compose()
	f, err := w.load()
	if err != nil {
		return exit(exitUsage, err)
	}
	if f.Store.Scheme != "sqlite" {
		return usagef("--store: %w", errOtherSQL)
	}
	if w.root == "" && f.Source.Scheme == "directory" {
		w.root = f.Source.Path
	}
	if err := w.source(f); err != nil {
		return exit(exitUsage, err)
	}
	notes, unfit, err := adapters.Check(w.ctx, f, consumerConfig(f, nil, semel.Observer{}))
	if err := errors.Join(err, unfit); err != nil {
		return exit(exitUsage, err)
	}
	if adapters.StoreExists(f.Store) { // else they say that it is yet to be made
		for _, n := range notes {
			w.note("%s", n)
		}
	}
	if w.study == nil {
		return nil
	}
	return w.rehearse(f)
}

// compose writes the pipeline file.
func (w *wizard) compose() {
	o, r := &w.o, &w.result
	d := draft.Draft{
		Name: o.name, Source: o.source, Store: o.store, Table: o.table, File: shell(w.file),
		ID: r.ID.Expr, Key: r.Key.Expr, Version: r.Version.Expr, As: r.Version.As,
		AboutID: r.ID.about(), AboutKey: r.Key.about(), AboutVersion: r.Version.about(),
	}
	if r.Version.Ties > 0 {
		d.Tie = d.ID
	}
	d.Format = propose.Format{Files: "whole"}
	if w.study != nil {
		without := []string{d.Key, d.Version}
		if d.Key == "" || d.Version == "" {
			without = []string{d.Key, d.ID}
		}
		d.Columns, d.Seen, d.Format, d.Summed = w.study.Columns(without...), w.study.Messages(), w.study.Sample.Format, w.study.Sample.Summed
		if d.Version == "" {
			for _, x := range r.Version.Rejected {
				d.AboutVersion = append(d.AboutVersion, fmt.Sprintf("Not %s: %s.", x.Expr, x.Why))
			}
		}
	}
	r.text, r.Files = d.Text(), d.Format.Files
	r.File, r.Name, r.Source, r.Store, r.Table = w.file, o.name, o.source, o.store, o.table
	r.Inbox, r.Keep, r.Horizon = "table", "30d", "7d"
}

// load reads the text as run would, from a file elsewhere: what would not do
// is never at its place.
func (w *wizard) load() (*config.File, error) {
	dir, err := os.MkdirTemp("", "semel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pipeline.yaml")
	if err := os.WriteFile(path, []byte(w.result.text), 0o600); err != nil {
		return nil, err
	}
	opt := adapters.Options()
	opt.Getenv = w.app.getenv
	f, err := config.Load(path, opt)
	var problems config.Problems
	if errors.As(err, &problems) {
		for i := range problems {
			problems[i].File = strings.ReplaceAll(problems[i].File, path, w.file)
		}
		return nil, problems
	}
	if err == nil {
		f.Path = w.file
	}
	return f, err
}

// source says what is found where messages are to come from. That there is
// nothing yet is no error: the files may come later.
func (w *wizard) source(f *config.File) error {
	if w.root != "" {
		if _, err := os.Stat(w.root); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	_, err := adapters.Look(f).Check(w.ctx)
	return err
}

// rehearse foresees what becomes of the sample, and lets the handler try what
// would reach it.
func (w *wizard) rehearse(f *config.File) error {
	r := &rehearsal{file: f, decoder: message.NewDecoder(f.Rules), ids: map[string]store.Fingerprint{},
		versions: map[string]store.Versioned{}, counts: map[string]int64{}}
	s := w.study.Sample
	var handled []semel.Message
	var places []string
	w.result.Aside = []aside{}
	for i := range s.Documents {
		d := s.Documents[i].Delivery()
		d.Malformed = s.Documents[i].Problem
		if d.Body != nil && f.Rules.Key == nil && !f.Rules.ID.NeedsBody() {
			d.Malformed = nil // nothing looks into it
		}
		x, err := r.foresee(w.ctx, s.Documents[i].Place(s.Format), d)
		if err != nil {
			return exit(exitFault, err)
		}
		switch x.Verdict {
		case "handle":
			handled, places = append(handled, d.Message), append(places, x.Place)
		case semel.Dead.String():
			w.setAside(x.Place, x.Why)
		case semel.Conflict.String():
			w.setAside(x.Place, "its id was there with other content")
		}
	}
	outcomes, err := adapters.Try(w.ctx, f, handled)
	if err != nil {
		return exit(startCode(nil, err), err)
	}
	w.result.Tried = map[string]int{"messages": len(s.Documents)}
	for v, n := range r.counts {
		w.result.Tried[v] = int(n)
	}
	delete(w.result.Tried, "handle")
	w.outcomes(outcomes, places)
	return nil
}

func (w *wizard) outcomes(outcomes []error, places []string) {
	tried := w.result.Tried
	for i, err := range outcomes {
		switch {
		case err == nil:
			tried["applied"]++
		case errors.Is(err, semel.ErrDuplicate):
			tried["duplicate"]++
		case errors.Is(err, semel.ErrSuperseded):
			tried["superseded"]++
		default:
			tried["dead"]++
			w.setAside(places[i], err.Error())
		}
	}
}

func (w *wizard) setAside(place, why string) {
	if len(w.result.Aside) < maxAside {
		w.result.Aside = append(w.result.Aside, aside{place, why})
	}
}

// makeSource makes the directory that is missing, when somebody says so.
func (w *wizard) makeSource() error {
	if w.root == "" || w.o.dryRun {
		return nil
	}
	inbox := filepath.Join(w.root, "inbox")
	if _, err := os.Stat(inbox); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !w.o.yes && (w.ask == nil || !w.ask.yes(inbox+"/ does not exist. Create it?")) {
		return nil
	}
	if err := os.MkdirAll(inbox, 0o777); err != nil {
		return usagef("%s cannot be created: %w: create it yourself, or name another source", inbox, bare(err))
	}
	w.note("%s/ was created", inbox)
	return nil
}

// bare takes the path off an error that names it already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// publish puts the file in its place; without --force it replaces none.
func (w *wizard) publish() error {
	if w.o.dryRun {
		return nil
	}
	write := w.create
	if w.o.force {
		write = w.replace
	}
	if err := write(); errors.Is(err, fs.ErrExist) {
		return usagef("%s has appeared meanwhile and stays as it is: name another file, or --force replaces it", w.file)
	} else if err != nil {
		return exit(exitFault, fmt.Errorf("%s was not written: %w", w.file, bare(err)))
	}
	w.result.Written = true
	return nil
}

func (w *wizard) create() error {
	f, err := os.OpenFile(w.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(w.result.text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(w.file))
	}
	return nil
}

// replace puts the text in the place of a file, with the permissions of that
// one. A link stays a link.
func (w *wizard) replace() error {
	if err := w.create(); !errors.Is(err, fs.ErrExist) {
		return err
	}
	path, err := filepath.EvalSymlinks(w.file)
	if err != nil {
		return err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".semel-init-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(w.result.text)
	err = errors.Join(err, tmp.Chmod(fi.Mode().Perm()), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// conclude says what came out.
func (w *wizard) conclude() error {
	r := &w.result
	w.advise()
	if r.Notes == nil {
		r.Notes = []string{}
	}
	if r.Aside == nil {
		r.Aside = []aside{}
	}
	if !r.Written {
		r.Text = r.text
	}
	switch {
	case w.app.json:
		if err := writeJSON(w.app.out, r); err != nil {
			return exit(exitFault, err)
		}
	default:
		w.say()
	}
	if r.Tried["dead"]+r.Tried["conflict"] > 0 {
		return exit(exitDead, nil)
	}
	return nil
}

// advise says which commands come next.
func (w *wizard) advise() {
	if w.root != "" {
		inbox := filepath.Join(w.root, "inbox")
		_, err := os.Stat(inbox)
		missing := errors.Is(err, fs.ErrNotExist)
		if missing {
			w.result.Next = append(w.result.Next, "mkdir -p "+shell(inbox))
		}
		if s := w.result.Sample; s != nil && w.sampleIsRoot() {
			w.note("the files lie in %s itself, and only those in inbox/ are taken: move them there; to keep them where they are, copy them (not with ln: a file with a second hard link is left alone)", w.root)
			if from := w.patterns(); from != "" {
				w.result.Next = append(w.result.Next, "mv "+from+shell(inbox)+"/")
			}
		}
	}
	for _, flag := range []string{"--check", "--once"} {
		w.result.Next = append(w.result.Next, "semel run "+shell(w.file)+" "+flag)
	}
}

// patterns are what a shell takes for the files that were looked at; "" if it
// would take more.
func (w *wizard) patterns() string {
	if w.study.Sample.Summed {
		return ""
	}
	var all []string
	for _, d := range w.study.Sample.Documents {
		ext := filepath.Ext(d.File)
		if !shellSafe.MatchString(ext) {
			return ""
		}
		if p := shell(w.root) + "/*" + ext + " "; !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return strings.Join(all, "")
}

// sampleIsRoot: the messages that were looked at lie in the source's directory
// itself.
func (w *wizard) sampleIsRoot() bool {
	path, err := os.Stat(w.result.Sample.Path)
	if err != nil || w.study == nil {
		return false
	}
	if root, err := os.Stat(w.root); err != nil || !os.SameFile(path, root) {
		return false
	}
	return slices.ContainsFunc(w.study.Sample.Documents, func(d propose.Document) bool {
		_, err := os.Lstat(filepath.Join(w.root, d.File))
		return err == nil
	})
}

// say is the result for people.
func (w *wizard) say() {
	r := &w.result
	w.tell("")
	if r.Tried != nil {
		w.tell("%s", r.foretold())
		for _, x := range r.Aside {
			w.tell("  %s: %s", x.Place, line(x.Why, 200))
		}
	}
	if !r.Written {
		fmt.Fprint(w.app.out, r.text)
		return
	}
	w.tell("wrote %s\n\nnext:", r.File)
	for _, n := range r.Next {
		w.tell("  %s", n)
	}
}

// foretold says what would become of the sample.
func (r *initResult) foretold() string {
	var parts []string
	for _, p := range []struct{ count, words string }{
		{"applied", "applied"}, {"superseded", "superseded"}, {"duplicate", "recognised as repeats"},
		{"conflict", "set aside as conflicts"}, {"dead", "dead letter"},
	} {
		if n := r.Tried[p.count]; n > 0 || p.count == "applied" {
			parts = append(parts, thousands(int64(n))+" "+p.words+plural(n, p.count == "dead"))
		}
	}
	return fmt.Sprintf("of %s in the sample would be: %s", counted(int64(r.Tried["messages"]), "message"), strings.Join(parts, ", "))
}

func plural(n int, counts bool) string {
	if counts && n != 1 {
		return "s"
	}
	return ""
}

var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// shell quotes a path for the commands that are shown.
func shell(path string) string {
	if rel, err := filepath.Rel(".", path); err == nil && !filepath.IsAbs(path) {
		path = rel
	}
	if shellSafe.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(printable(path), "'", `'\''`) + "'"
}
