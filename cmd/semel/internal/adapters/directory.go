package adapters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

func queueConfig(f *config.File) filebroker.Config {
	c := filebroker.Config{Root: f.Source.Path, Consumer: f.Name, MaxBytes: f.Rules.MaxBytes}
	switch f.Files {
	case "lines":
		c.Files = filebroker.Lines
	case "array":
		c.Files = filebroker.Array
	case "csv":
		c.Files, c.Delimiter = filebroker.CSV, f.Delimiter
	}
	switch f.Complete {
	case "marker":
		c.Complete = filebroker.Marked
	case "settled":
		c.Complete = filebroker.Settled
	case "checksum":
		c.Complete = filebroker.Summed
	}
	if f.Done == "delete" {
		c.Done = filebroker.Delete
	}
	return c
}

func openDirectory(ctx context.Context, f *config.File, r Report) (broker.Receiver, error) {
	c := queueConfig(f)
	c.Report = r
	return filebroker.Open(ctx, c)
}

// scratchDirectory is there to be asked what such a source can do.
func scratchDirectory(ctx context.Context, f *config.File) (broker.Receiver, func(), error) {
	c := queueConfig(f)
	var err error
	if c.Root, err = os.MkdirTemp("", "semel-"); err != nil {
		return nil, nil, err
	}
	src, err := filebroker.Open(ctx, c)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(c.Root))
	}
	return src, func() { _ = errors.Join(src.Close(ctx), os.RemoveAll(c.Root)) }, nil
}

// Stages of a directory queue.
const (
	stageInbox      = "inbox"
	stageSettling   = "settling" // in inbox/ as well, not complete yet
	stageProcessing = "processing"
	stageDone       = "done"
	stageError      = "error"
)

// sidecarSuffix is that of the files which say why something is in error/.
const sidecarSuffix = ".semel.json"

// directory looks at a directory queue.
type directory struct{ cfg filebroker.Config }

func lookAtDirectory(f *config.File) Bystander {
	c := queueConfig(f)
	if c.MaxBytes == 0 {
		c.MaxBytes = message.DefaultMaxBytes
	}
	if c.MarkerSuffix == "" {
		c.MarkerSuffix = ".ok"
	}
	return directory{c}
}

// Check finds out what Open would refuse, without making a directory.
func (d directory) Check(context.Context) (notes []string, err error) {
	if err := d.cfg.Validate(); err != nil {
		return nil, semel.Fault(err)
	}
	if err := d.usable(d.cfg.Root); err != nil {
		return nil, err
	}
	for _, stage := range []string{stageInbox, stageProcessing, stageDone, stageError} {
		dir := filepath.Join(d.cfg.Root, stage)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, stage+"/ does not exist yet; the first run creates it")
			continue
		}
		if err := d.usable(dir); err != nil {
			return notes, err
		}
	}
	return append(notes, d.beside()...), nil
}

// beside tells of files that somebody may wait for in vain.
func (d directory) beside() []string {
	entries, err := os.ReadDir(d.cfg.Root)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s lies beside inbox/ (%d there); only what is in inbox/ is taken: move them, if they are messages", names[0], len(names))}
}

func (d directory) usable(dir string) error {
	fi, err := os.Stat(dir)
	hint := "let this user write the directory"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err, hint = errors.New("the directory does not exist"), "create it; a misspelt path would be an empty queue for ever"
	case err == nil && !fi.IsDir():
		err, hint = errors.New("it is not a directory"), "name the directory that holds inbox/"
	case err == nil:
		err = writable(dir)
	}
	if err == nil {
		return nil
	}
	return semel.Fault(&semel.Error{Stage: "open source", Message: dir, Err: bare(err), Hint: hint})
}

// Stages counts files, by worker where they are claimed.
func (d directory) Stages(ctx context.Context) ([]Stage, error) {
	inbox, settling, err := d.waiting()
	if err != nil {
		return nil, err
	}
	stages := []Stage{{Name: stageInbox, N: inbox}}
	if settling > 0 {
		stages = append(stages, Stage{Name: stageSettling, N: settling})
	}
	claimed, err := d.claimed(ctx)
	if err != nil {
		return nil, err
	}
	stages = append(stages, claimed...)
	for _, name := range []string{stageDone, stageError} {
		s := Stage{Name: name}
		if err := d.files(ctx, filepath.Join(d.cfg.Root, name), func(string) error { s.N++; return nil }); err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// waiting counts the files of inbox/ that may be taken, and those that are
// still being written: under a temporary name, or without a marker.
func (d directory) waiting() (ready, settling int64, err error) {
	dir := filepath.Join(d.cfg.Root, stageInbox)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		switch fi, err := e.Info(); {
		case d.isMessage(dir, e):
			ready++
		case err != nil || !fi.Mode().IsRegular() || linked(fi) || d.isOurs(e.Name()):
		default:
			settling++
		}
	}
	return ready, settling, nil
}

// isOurs tells files of the queue's own from those of writers.
func (d directory) isOurs(name string) bool {
	return strings.HasSuffix(name, sidecarSuffix) || strings.HasPrefix(name, ".semel-") || d.isSum(name) ||
		d.cfg.Complete == filebroker.Marked && strings.HasSuffix(name, d.cfg.MarkerSuffix)
}

// isSum tells checksum sidecars, which go where their files go.
func (d directory) isSum(name string) bool {
	_, sum := filebroker.SumOf(name)
	return sum && d.cfg.Complete == filebroker.Summed
}

// hasSum reports whether a file of inbox/ has one.
func hasSum(path string) bool {
	return slices.ContainsFunc(filebroker.SumSuffixes(), func(suffix string) bool {
		fi, err := os.Lstat(path + suffix)
		return err == nil && fi.Mode().IsRegular()
	})
}

func (d directory) claimed(ctx context.Context) (stages []Stage, err error) {
	workers, err := os.ReadDir(filepath.Join(d.cfg.Root, stageProcessing))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, w := range workers {
		if strings.HasPrefix(w.Name(), ".") {
			continue
		}
		s := Stage{Name: stageProcessing, Worker: w.Name()}
		if err := d.inClaims(ctx, w.Name(), func(string) error { s.N++; return nil }); err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// inClaims visits the files that a worker holds.
func (d directory) inClaims(ctx context.Context, worker string, fn func(path string) error) error {
	dir := filepath.Join(d.cfg.Root, stageProcessing, worker)
	claims, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, c := range claims {
		if !c.IsDir() {
			continue
		}
		if err := d.files(ctx, filepath.Join(dir, c.Name()), fn); err != nil {
			return err
		}
	}
	return nil
}

// files visits the files in a directory that are messages, by name. What
// vanishes meanwhile was taken by a worker.
func (d directory) files(ctx context.Context, dir string, fn func(path string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.isMessage(dir, e) {
			if err := fn(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// isMessage applies the rules of the queue to a name; whether a file has
// settled only a worker knows.
func (d directory) isMessage(dir string, e fs.DirEntry) bool {
	name := e.Name()
	if name[0] == '.' || strings.HasSuffix(name, sidecarSuffix) || d.isSum(name) || !e.Type().IsRegular() {
		return false
	}
	if filepath.Base(dir) != stageInbox {
		return true
	}
	if fi, err := e.Info(); err != nil || linked(fi) || d.cfg.Ignores(name) {
		return false
	}
	path := filepath.Join(dir, name)
	switch d.cfg.Complete {
	case filebroker.Marked:
		_, err := os.Lstat(path + d.cfg.MarkerSuffix)
		return err == nil
	case filebroker.Summed:
		return hasSum(path)
	}
	return true
}

// Each reads the files of a stage.
func (d directory) Each(ctx context.Context, stage string, fn func(string, *semel.Delivery) error) error {
	visit := func(path string) error { return d.read(ctx, path, fn) }
	if stage != stageProcessing {
		return d.files(ctx, filepath.Join(d.cfg.Root, stage), visit)
	}
	workers, err := d.claimed(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if err := d.inClaims(ctx, w.Worker, visit); err != nil {
			return err
		}
	}
	return nil
}

func (d directory) read(ctx context.Context, path string, fn func(string, *semel.Delivery) error) error {
	place, err := filepath.Rel(d.cfg.Root, path)
	if err != nil {
		return err
	}
	return filebroker.Read(ctx, d.cfg, path, func(m *semel.Delivery) error {
		if d.cfg.Files == filebroker.Whole {
			return fn(place, m)
		}
		return fn(fmt.Sprintf("%s:%d", place, m.Position.Lo), m)
	})
}
