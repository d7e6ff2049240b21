// Package config reads pipeline files. Whatever is wrong with one is told at
// once, each problem with its place and what to do about it.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/retry"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
	"github.com/semel-dev/semel/cmd/semel/internal/outside"
	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

// File is a pipeline file that was checked.
type File struct {
	// Path is where it was read from.
	Path          string
	Name          string
	Source, Store Location
	// Files, Complete and Done are words of the file for directories; empty:
	// not stated.
	Files, Complete, Done string
	// Delimiter stands between fields where Files is "csv"; 0: not stated.
	Delimiter byte
	Start     consumer.Start
	Rules     message.Rules
	Inbox     inbox.Strategy
	TrustID   bool
	Arbitrate arbitrate.Policy
	Order     consumer.Order
	DeadHolds bool
	Handler   *sqlstep.Handler
	// Outside is the effect outside of the database; nil: none.
	Outside *outside.Step
	// Index is a document in a search server; nil: none. Not with Outside.
	Index *outside.Index
	// Setup are statements that make the pipeline's own tables.
	Setup []string
	Retry retry.Policy
	// Zero: the consumer's default.
	Keep, Horizon     time.Duration
	ReplayRevised     bool
	Batch, MaxCrashes int
}

// Options are what a build can do and what the command line says.
type Options struct {
	// Sources are the schemes of sources; true: the source cannot say how
	// late it may deliver again, so that horizon has to be stated.
	Sources map[string]bool
	// Stores are the schemes of stores and what their SQL looks like.
	Stores map[string]sqlstep.Dialect
	// Name, Source and Store replace those of the file where not empty.
	Name, Source, Store string
	// Getenv answers env: references.
	Getenv func(string) string
}

// keys are those of the top level.
var keys = []string{
	"name", "source", "store", "files", "delimiter", "complete", "done", "start", "message", "inbox", "trust_id",
	"arbitrate", "order", "dead_holds", "handle", "setup", "retry", "keep", "horizon", "error_return",
	"batch", "max_crashes",
}

// loader reads one file.
type loader struct {
	*reader
	opt  Options
	file *File
	dir  string
	top  section
	// keyed: there is a message.key, right or wrong.
	keyed bool
}

// Load reads and checks the pipeline file at path. A file with problems gives
// Problems.
func Load(path string, opt Options) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, openProblem(path, err)
	}
	l := &loader{reader: &reader{file: path}, opt: opt, file: &File{Path: path}, dir: filepath.Dir(path)}
	if doc := l.document(text); doc != nil {
		l.read(doc)
	}
	if len(l.problems) > 0 {
		l.problems.sort()
		return nil, l.problems
	}
	return l.file, nil
}

func openProblem(path string, err error) error {
	p := Problem{File: path, What: "cannot be read: " + cause(err), Remedy: "name a pipeline file that this user may read"}
	if errors.Is(err, fs.ErrNotExist) {
		p.What, p.Remedy = "there is no such file", "name a pipeline file; semel init writes one"
	}
	return Problems{p}
}

// cause is an error without the path, which is named already.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}

func (l *loader) read(doc ast.Node) {
	if l.top = l.mapping(doc, "", keys...); len(l.top) == 0 && len(l.problems) > 0 {
		return
	}
	f := l.file
	l.names()
	f.Files = l.word("files", "whole", "lines", "array", "csv")
	f.Delimiter = l.delimiter()
	f.Complete = l.word("complete", "rename", "marker", "settled", "checksum")
	f.Done = l.word("done", "keep", "delete")
	if l.word("start", "first", "end") != "" {
		f.Start = []consumer.Start{consumer.StartFirst, consumer.StartEnd}[l.choice(l.top["start"], "start", "first", "end")]
	}
	f.TrustID = l.boolean(l.top["trust_id"], "trust_id")
	f.DeadHolds = l.boolean(l.top["dead_holds"], "dead_holds")
	if l.word("order", "none", "key") == "key" {
		f.Order = consumer.OrderKey
	}
	f.ReplayRevised = l.word("error_return", "propose", "replay") == "replay"
	f.Batch = int(l.integer(l.top["batch"], "batch", 1, 100_000))
	f.MaxCrashes = int(l.integer(l.top["max_crashes"], "max_crashes", 1, 1000))
	f.Keep = l.positive(l.top["keep"], "keep")
	f.Horizon = l.positive(l.top["horizon"], "horizon")
	l.inbox()
	l.message()
	l.arbitrate()
	l.handle()
	l.setup()
	l.retry()
	l.retention()
}

// word reads one of some words; "" if it is absent or wrong.
func (l *loader) word(key string, words ...string) string {
	before := len(l.problems)
	i := l.choice(l.top[key], key, words...)
	if i < 0 || len(l.problems) > before {
		return ""
	}
	return words[i]
}

func (l *loader) delimiter() byte {
	n := l.top["delimiter"]
	if n == nil {
		return 0
	}
	before := len(l.problems)
	s := l.text(n, "delimiter")
	switch {
	case len(l.problems) > before:
	case len(s) != 1 || !filebroker.IsDelimiter(s[0]):
		l.problem(n, `write ",", ";", "|" or "\t"`, "delimiter must be one character")
	case l.file.Files != "csv":
		l.problem(n, "add files: csv, or remove it", "delimiter is for CSV")
	default:
		return s[0]
	}
	return 0
}

// required tells that a key is missing.
func (l *loader) required(key, remedy string) {
	l.problemAt(Pos{}, remedy, "%s is missing", key)
}

func (l *loader) names() {
	f := l.file
	f.Name = l.text(l.top["name"], "name")
	if l.opt.Name != "" {
		f.Name = l.opt.Name
	}
	switch n := len(f.Name); {
	case n == 0 && l.top["name"] == nil:
		l.required("name", "add a line such as name: orders; everything remembered is kept under it")
	case n > semel.MaxIDBytes:
		l.problem(l.top["name"], "shorten it", "name has %d bytes: at most %d are allowed", n, semel.MaxIDBytes)
	}
	f.Source = l.location("source", l.opt.Source, slices.Sorted(maps.Keys(l.opt.Sources)))
	f.Store = l.location("store", l.opt.Store, slices.Sorted(maps.Keys(l.opt.Stores)))
}

// location reads source or store. Relative paths are relative to the working
// directory, as everywhere; only what belongs to the pipeline itself (schema,
// setup, secrets) lies beside its file.
func (l *loader) location(key, override string, schemes []string) Location {
	n, s := l.top[key], override
	if s == "" {
		if n == nil {
			l.required(key, "add a line "+key+": "+forms(schemes))
			return Location{}
		}
		s = l.text(n, key)
	}
	if s == "" {
		return Location{}
	}
	s, err := l.resolve(s)
	if err == nil {
		var loc Location
		if loc, err = ParseLocation(s, schemes); err == nil {
			return loc
		}
	}
	if override != "" {
		l.problems = append(l.problems, Problem{File: "--" + key + " or $SEMEL_" + strings.ToUpper(key), What: err.Error()})
	} else {
		l.problem(n, "", "%s: %v", key, err)
	}
	return Location{}
}

// resolve follows env:NAME and file:PATH, so that secrets need not stand in a
// pipeline file.
func (l *loader) resolve(s string) (string, error) {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		if v := l.opt.Getenv(name); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set: set it for this process, or write the place itself", name)
	}
	path, ok := strings.CutPrefix(s, "file:")
	if !ok {
		return s, nil
	}
	b, err := os.ReadFile(l.beside(path))
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %s: name a file that this user may read, beside the pipeline file", path, cause(err))
	}
	return strings.TrimSpace(string(b)), nil
}

// beside makes a path relative to the pipeline file.
func (l *loader) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.dir, path)
}

func (l *loader) inbox() {
	var words []string
	for _, s := range inbox.All() {
		words = append(words, s.String())
	}
	if i := l.choice(l.top["inbox"], "inbox", words...); i >= 0 {
		l.file.Inbox = inbox.All()[i]
	}
}

func (l *loader) retry() {
	if l.top["retry"] == nil {
		return
	}
	s := l.mapping(l.top["retry"], "retry", "immediate", "delays")
	p := &l.file.Retry
	if n := s["immediate"]; n != nil {
		if p.Immediate = int(l.integer(n, "retry.immediate", 0, 100)); p.Immediate == 0 {
			p.Immediate = -1 // of the policy: none
		}
	}
	if s["delays"] == nil {
		return
	}
	p.Delays = []time.Duration{}
	for _, n := range l.list(s["delays"], "retry.delays") {
		d := l.positive(n, "a delay of retry.delays")
		if d > retry.MaxDelay {
			l.problem(n, "shorten it", "a delay of retry.delays is above %d days", retry.MaxDelay/(24*time.Hour))
		}
		p.Delays = append(p.Delays, d)
	}
}

// retention says with a place what the consumer would refuse without one.
func (l *loader) retention() {
	f := l.file
	if !f.Inbox.Facts().Remembers || len(l.problems) > 0 {
		return
	}
	if f.Horizon == 0 && l.opt.Sources[f.Source.Scheme] {
		l.required("horizon", "add a line such as horizon: 7d, how late the source may deliver the same message again; ids are kept longer than that")
		return
	}
	keep := f.KeepOrDefault()
	if need := f.Horizon + f.Retry.Span(); keep < need {
		n := l.top["keep"]
		if n == nil {
			n = l.top["horizon"]
		}
		l.problem(n, fmt.Sprintf("keep at least %v, or state a shorter horizon", need), "ids would be forgotten after %v, before the source (%v) and the retries (%v) are over, and a late repeat applied again", keep, f.Horizon, f.Retry.Span())
	}
}

// KeepOrDefault is how long ids are remembered.
func (f *File) KeepOrDefault() time.Duration {
	if f.Keep == 0 {
		return 30 * 24 * time.Hour
	}
	return f.Keep
}
