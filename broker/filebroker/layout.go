package filebroker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
)

const (
	inboxDir      = "inbox"
	processingDir = "processing"
	doneDir       = "done"
	errorDir      = "error"

	lockName    = ".lock"
	probePrefix = ".semel-probe-"

	maxName   = 255
	maxWorker = 150
)

// layout is where the four stages are.
type layout struct{ inbox, processing, done, error string }

func layoutOf(root string) layout {
	at := func(dir string) string { return filepath.Join(root, dir) }
	return layout{at(inboxDir), at(processingDir), at(doneDir), at(errorDir)}
}

func (l layout) all() []string { return []string{l.inbox, l.processing, l.done, l.error} }

// prepare makes what is missing below root.
func prepare(cfg Config) (layout, error) {
	l := layoutOf(cfg.Root)
	fi, err := os.Stat(cfg.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.Create:
	case errors.Is(err, fs.ErrNotExist):
		return l, openError(cfg.Root, errors.New("the directory does not exist"), "create it, or allow it to be created; a misspelt path would be an empty queue for ever")
	case err != nil:
		return l, openError(cfg.Root, err, "check the path and its permissions")
	case !fi.IsDir():
		return l, openError(cfg.Root, errors.New("it is not a directory"), "name the directory that holds inbox/")
	}
	for _, dir := range l.all() {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return l, openError(dir, err, "the directory must be writable by this user, and its file system not mounted read-only")
		}
	}
	return l, nil
}

func openError(path string, err error, hint string) error {
	return &semel.Error{Stage: "open", Message: path, Err: err, Hint: hint}
}

// probe moves and links a file of its own through all four stages: a stage on
// another file system, or one that cannot be written, must be found before a
// message is in flight, not after its effect is committed.
func (l layout) probe(id string) error {
	dirs := l.all()
	at := func(i int) string { return filepath.Join(dirs[i%len(dirs)], probePrefix+id) }
	f, err := os.OpenFile(at(0), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return openError(dirs[0], err, "the directory must be writable by this user, and its file system not mounted read-only")
	}
	f.Close()
	for i := range dirs {
		if err := l.probeStep(at(i), at(i+1)); err != nil {
			return errors.Join(openError(dirs[(i+1)%len(dirs)], err, stepHint(err)), os.Remove(at(i)))
		}
	}
	return os.Remove(at(0))
}

func (l layout) probeStep(from, to string) error {
	native := renameNew(from, to)
	if native == nil {
		if err := os.Rename(to, from); err != nil {
			return err
		}
	}
	if err := os.Link(from, to); err != nil {
		if native != nil || crossDevice(err) {
			return fmt.Errorf("trial link failed: %w", err)
		}
	} else if err := os.Remove(to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("trial rename failed: %w", err)
	}
	return nil
}

func stepHint(err error) string {
	if crossDevice(err) {
		return "inbox, processing, done and error must be on one file system, since only then is a move atomic: move the queue, or mount all of it together"
	}
	return "all four directories must be writable by this user, and the file system must allow a move that replaces nothing"
}
