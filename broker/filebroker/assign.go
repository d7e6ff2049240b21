package filebroker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

var errRestDecided = errors.New("the rest of the file could not be read; it was decided as a whole")

// acquire claims up to want files and has them assigned. It returns how many
// were added or dealt with.
func (l *lines) acquire(ctx context.Context, want int) (int, error) {
	want = min(want, l.cfg.MaxScopes-len(l.files))
	var files []*file
	for len(files) < want {
		f, err := l.next(ctx)
		if err != nil {
			l.todo = append(files, l.todo...)
			return 0, err
		}
		if f == nil {
			break
		}
		there, err := l.prepare(f)
		if err != nil {
			l.todo = append(append(files, f), l.todo...)
			return 0, err
		}
		if there {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return 0, nil
	}
	return len(files), l.assign(ctx, files)
}

// next returns a claimed file without an owner: first those of dead workers.
func (l *lines) next(ctx context.Context) (*file, error) {
	for len(l.todo) == 0 {
		more, err := l.unpack()
		if err != nil {
			return nil, err
		}
		if !more {
			defer l.retire()
			return l.claimNew(ctx, func(int64) bool { return true })
		}
	}
	f := l.todo[0]
	if err := l.proveSum(ctx, f); err != nil {
		return nil, err
	}
	l.todo = l.todo[1:]
	return f, nil
}

// prepare finds out which content this is and writes that into the name of
// the claim, so that whoever takes it over knows whether the file changed. It
// reports whether the file is still there.
func (l *lines) prepare(f *file) (there bool, err error) {
	head, err := readHead(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		l.gone(f)
		return false, nil
	}
	if err != nil && !unreadable(err) {
		return false, err
	}
	if err := f.examine(head); err != nil {
		return false, l.orLost(err, f.claim.dir)
	}
	if f.lines == nil {
		f.lines = &lineFile{}
	}
	claimed, _, _ := parseClaim(filepath.Base(f.claim.dir))
	switch {
	case claimed != "" && claimed != f.scope.Incarnation:
		f.scope.Incarnation = claimed
		l.condemn(f, ErrChanged)
	case claimed == "" && !f.claim.shared():
		return true, l.label(f)
	}
	return true, nil
}

// shared: a claim of whole files that is read as lines now.
func (cl *claim) shared() bool { return cl.old && cl.files > 1 }

func (l *lines) label(f *file) error {
	dir := f.claim.dir + "." + f.scope.Incarnation
	if err := os.Rename(f.claim.dir, dir); err != nil {
		return l.orLost(err, f.claim.dir)
	}
	f.claim.dir = dir
	return nil
}

func readHead(path string) ([]byte, error) {
	fh, err := openClaimed(path)
	if err != nil {
		return nil, err
	}
	defer fh.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(fh, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return head[:n], err
}

// assign asks the owner where to begin. Files that it refuses go back to
// inbox/; those that it could not look up are asked about again.
func (l *lines) assign(ctx context.Context, files []*file) error {
	starts := make([]semel.Offset, len(files))
	if l.owner != nil {
		var err error
		if starts, err = l.ask(ctx, files); err != nil {
			return l.unassigned(files, err)
		}
	}
	for i, f := range files {
		switch {
		case starts[i] == broker.Stopped():
			l.stop(f, ErrStopped)
			continue
		case starts[i].Lo == restEnd:
			l.condemn(f, errRestDecided)
		}
		f.lines.start = starts[i].Lo
		l.files = append(l.files, f)
	}
	return nil
}

// ask makes sure first that nobody took the files meanwhile: an assignment by
// a worker that was stopped would take the scope from its present owner.
func (l *lines) ask(ctx context.Context, files []*file) ([]semel.Offset, error) {
	as := make([]broker.Assignment, len(files))
	for i, f := range files {
		if !exists(f.path()) {
			return nil, l.orLost(fs.ErrNotExist, f.claim.dir)
		}
		as[i] = broker.Assignment{Scope: f.scope, Takeover: f.claim.takeover}
	}
	return l.owner.Assigned(ctx, as)
}

func (l *lines) unassigned(files []*file, err error) error {
	class, _ := semel.ClassOf(err)
	for _, f := range files {
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLost):
			l.todo = append(l.todo, f)
		case class == semel.ClassFault:
			l.stop(f, errors.Join(ErrStopped, err))
		case f.claim.takeover != semel.Fresh:
			// Given back, it would no longer tell how its owner ended.
			l.todo = append(l.todo, f)
		default:
			l.giveBack(f)
		}
	}
	if class == semel.ClassFault || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stop gives a file back and leaves it alone from now on.
func (l *lines) stop(f *file, why error) {
	l.cfg.Report(f.name, why)
	l.scan.stop(f.id)
	l.giveBack(f)
}

// Fenced is called by the pipeline when its database refuses what comes from
// scopes that it was assigned: a worker that had been stopped in the middle of
// asking for them did so late, and is their owner there. Here the claim
// decides: if it is still ours, the owner loses the scope and is asked again.
func (l *lines) Fenced(ss []semel.Scope) {
	l.mu.Lock()
	l.fenced = append(l.fenced, ss...)
	l.mu.Unlock()
	l.rouse()
}

// reassign puts fenced files back on the list of those without an owner.
func (l *lines) reassign() {
	l.mu.Lock()
	fenced := l.fenced
	l.fenced = nil
	l.mu.Unlock()
	for _, f := range l.files {
		if slices.Contains(fenced, f.scope) && !f.lines.revoked {
			l.owner.Lost([]semel.Scope{f.scope})
			l.disown(f)
		}
	}
}

// disown makes everything that was handed over of f stale.
func (l *lines) disown(f *file) {
	l.set.Lock()
	defer l.set.Unlock()
	l.remove(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.each(func(b *batch, it *item) {
		if it.file != f {
			return
		}
		if it.state == stuck {
			l.stuck--
		}
		l.ledger.close(b, it)
	})
	l.released = slices.DeleteFunc(l.released, func(it item) bool { return it.file == f })
	l.todo = append(l.todo, &file{claim: f.claim, name: f.name, back: f.back, letter: f.letter, wrong: f.wrong, proved: f.proved, proof: f.proof})
}
