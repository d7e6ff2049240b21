package filebroker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// lines is a queue whose messages are parts of files: lines, elements of an
// array, records of CSV. A file is a scope: it is assigned when it is claimed
// and revoked when all of it is decided.
type lines struct {
	*core
	owner broker.Owner

	// Guarded by recv. Files are read one after the other.
	files []*file
	plain packing

	fenced []semel.Scope // guarded by core.mu
}

// lineFile is the part of a file that only lines have.
type lineFile struct {
	r       *reader
	fh      *os.File
	start   int64 // where to begin; what is before was decided
	behind  bool  // what was decided has to be passed over yet
	stopped int64 // where broken begins
	broken  error // why it cannot be read
	revoked bool
	retry   time.Time // when to try to finish it again

	// Guarded by core.mu:
	left int  // lines handed over and not settled
	end  bool // nothing more will be handed over
}

// restEnd is the offset after the rest of a file that cannot be read. It
// tells a later owner that the rest was decided as well.
const restEnd = int64(1)<<62 - 1

// maxAssign bounds how many files are assigned in one step.
const maxAssign = 64

// Bind implements broker.Owned.
func (l *lines) Bind(o broker.Owner) { l.owner = o }

// Capabilities implements broker.Receiver.
func (l *lines) Capabilities() broker.Capabilities {
	c := l.core.Capabilities()
	c.Traits = semel.StablePosition | semel.ExclusiveScope | semel.InOrderPerScope
	c.Ephemeral = true
	return c
}

// gather reads lines, claiming files as it comes to the end of those it has:
// more at a time the smaller they are. Only one file is open at a time.
func (l *lines) gather(ctx context.Context, b *basket) error {
	for want := 1; !b.full() && ctx.Err() == nil; {
		if f := l.current(); f != nil {
			if more, err := l.readInto(ctx, f, b); more || err != nil {
				return err
			}
			continue
		}
		if n, err := l.acquire(ctx, want); n == 0 || err != nil {
			return err
		}
		want = min(2*want, maxAssign)
	}
	return nil
}

// current is the file that is being read: the first that has not ended.
func (l *lines) current() *file {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if !f.lines.end {
			return f
		}
	}
	return nil
}

// readInto adds lines of f; more says that the next one did not fit.
func (l *lines) readInto(ctx context.Context, f *file, b *basket) (more bool, err error) {
	if err := l.open(f); err != nil {
		return false, err
	}
	if err := l.catchUp(ctx, f); err != nil {
		return false, err
	}
	before := len(b.items)
	end := l.fill(f, b)
	if end {
		f.lines.close()
	}
	l.mu.Lock()
	f.lines.left += len(b.items) - before
	f.lines.end = end
	l.mu.Unlock()
	return !end, nil
}

// fill reports whether the file has come to its end.
func (l *lines) fill(f *file, b *basket) (end bool) {
	for f.lines.broken == nil {
		rec, err := f.lines.r.next()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			f.lines.stopAt(rec.start, err)
			continue
		case !b.fits(int64(len(rec.body))):
			f.lines.r.unread(rec)
			return false
		}
		b.add(item{file: f, start: rec.start, next: rec.next, raw: rec.raw, body: rec.body, bad: rec.bad, returns: f.returns()})
	}
	if f.fate == nil {
		f.fate = f.lines.broken
		b.add(item{file: f, whole: true, start: f.lines.stopped, next: restEnd, returns: f.returns(), bad: semel.Invalid(f.lines.broken)})
	}
	return true
}

// stopAt notes that nothing can be read from a place on.
func (lf *lineFile) stopAt(at int64, why error) {
	lf.stopped, lf.broken = max(lf.start, at), why
}

// catchUp passes over the records that were decided before. Formats other than
// lines are read from the beginning of the file again: what a byte in the
// middle means depends on those before it, and a reader that guessed might go
// on where another one stops.
func (l *lines) catchUp(ctx context.Context, f *file) error {
	for lf := f.lines; lf.behind && lf.broken == nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := lf.r.next()
		switch {
		case errors.Is(err, io.EOF):
			if lf.behind = false; rec.start < lf.start {
				l.condemn(f, ErrChanged)
			}
		case err != nil:
			lf.stopAt(rec.start, err)
		case rec.start >= lf.start:
			lf.behind = false
			lf.r.unread(rec)
		case rec.next > lf.start:
			l.condemn(f, errInside)
		}
	}
	return nil
}

// errInside says that a position lies in the middle of a record.
var errInside = errors.New("the position up to which the file was decided is none of this format: was it read in another one before?")

// returns names the letter that the file came back for, once: a dead line
// comes back as a file of one line.
func (f *file) returns() string {
	if f.told {
		return ""
	}
	f.told = true
	return f.letter
}

// open begins to read at the offset that the owner gave. What is wrong with
// the file itself is told by fill, not by an error.
func (l *lines) open(f *file) error {
	lf := f.lines
	if lf.opened() {
		return nil
	}
	fh, err := openClaimed(f.path())
	if err != nil {
		return l.cannotOpen(f, err)
	}
	fi, err := fh.Stat()
	if err != nil {
		fh.Close()
		return err
	}
	if !identify(fi).same(f.id) {
		fh.Close()
		l.condemn(f, ErrChanged)
		return nil
	}
	lf.fh = fh
	src, chunk, err := l.plain.open(fh, f.id.size)
	from := int64(0)
	if err == nil && l.cfg.Files == Lines {
		from = lf.start
		err = skipTo(src, from)
	}
	lf.behind = from < lf.start
	lf.r = newReader(src, l.cfg.splitter(), from, l.cfg.MaxBytes, chunk)
	switch {
	case f.wrong != nil:
		lf.stopAt(lf.start, f.wrong)
	case err == nil:
	case lf.start == 0:
		lf.broken = err
	default:
		l.condemn(f, err)
	}
	return nil
}

// cannotOpen sorts out why: the file is missing, it is at fault, or we are.
func (l *lines) cannotOpen(f *file, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.vanish(f)
		return nil
	case unreadable(err):
		f.lines.broken = err
		return nil
	}
	return err
}

// condemn sends the file to error/ without handing over anything more of it.
func (l *lines) condemn(f *file, why error) {
	l.cfg.Report(f.name, why)
	f.fate, f.lines.broken = why, why
}

// vanish forgets a file that is not in its claim any more.
func (l *lines) vanish(f *file) {
	l.gone(f)
	f.lines.broken, f.fate = ErrGone, ErrGone
	l.remove(f)
	if l.owner != nil && !f.lines.revoked {
		l.owner.Lost([]semel.Scope{f.scope})
	}
}

// remove takes f off the list; the list is copied because a caller may be
// going through it.
func (l *lines) remove(f *file) {
	f.lines.close()
	kept := make([]*file, 0, len(l.files))
	for _, g := range l.files {
		if g != f {
			kept = append(kept, g)
		}
	}
	l.files = kept
}

// opened: there is nothing more to find out by opening it.
func (lf *lineFile) opened() bool { return lf.r != nil || lf.broken != nil }

func (lf *lineFile) close() {
	if lf.fh != nil {
		lf.fh.Close()
		lf.fh = nil
	}
}

// settle counts a line as decided.
func (l *lines) settle(it *item, s broker.Settlement) broker.Settled {
	f := it.file
	if s.Verb == broker.Reject {
		if answer := l.reject(it, s); answer != broker.Done {
			return answer
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.lines.left--
	if f.lines.left == 0 && f.lines.end {
		l.rouse()
	}
	return broker.Done
}

// tidy revokes and moves the files of which every line is decided.
func (l *lines) tidy(ctx context.Context) (bool, error) {
	l.reassign()
	complete := l.complete()
	if len(complete) == 0 {
		return false, nil
	}
	if err := l.revoke(ctx, complete); err != nil {
		return false, err
	}
	moved := false
	for _, f := range complete {
		if l.answer(f, l.finish(f)) == broker.Unknown {
			f.lines.retry = time.Now().Add(l.cfg.Poll)
			continue
		}
		moved = true
		l.remove(f)
	}
	return moved, nil
}

func (l *lines) complete() []*file {
	var complete []*file
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if f.lines.end && f.lines.left == 0 && !now.Before(f.lines.retry) {
			complete = append(complete, f)
		}
	}
	return complete
}

// revoke tells the owner that scopes end in good order.
func (l *lines) revoke(ctx context.Context, files []*file) error {
	var scopes []semel.Scope
	for _, f := range files {
		if !f.lines.revoked {
			scopes = append(scopes, f.scope)
		}
	}
	if len(scopes) == 0 {
		return nil
	}
	if l.owner != nil {
		if err := l.owner.Revoked(ctx, scopes); err != nil {
			return err
		}
	}
	for _, f := range files {
		f.lines.revoked = true
	}
	return nil
}

// leave ends all scopes, finishes what is decided and gives back the rest.
func (l *lines) leave(ctx context.Context) error {
	err := l.revoke(ctx, l.files)
	l.set.Lock()
	complete := l.complete()
	l.set.Unlock()
	for _, f := range complete {
		if l.answer(f, l.finish(f)) != broker.Unknown {
			l.remove(f)
		}
	}
	for _, f := range l.files {
		f.lines.close()
	}
	l.giveBackAll(append(l.files, l.todo...))
	l.files = nil
	return err
}

// lose tells the owner that others have the files.
func (l *lines) lose() {
	var scopes []semel.Scope
	for _, f := range l.files {
		f.lines.close()
		if !f.lines.revoked {
			scopes = append(scopes, f.scope)
		}
	}
	l.files = nil
	if l.owner != nil && len(scopes) > 0 {
		l.owner.Lost(scopes)
	}
}

// reject writes a dead line to error/ as a file of its own, under a name that
// a repeat after a crash recognises.
func (l *lines) reject(it *item, s broker.Settlement) broker.Settled {
	f := it.file
	if it.whole {
		f.deadLetter = s.Letter
		if s.Why != "" {
			f.fate = errors.New(s.Why)
		}
		return broker.Done
	}
	as := lineName(f.name, it.start)
	origin := semel.Position{Scope: f.scope, Offset: semel.Offset{Lo: it.start}}
	if done, err := readSidecar(filepath.Join(l.dirs.error, sidecarName(as))); err == nil && done.Letter == s.Letter && done.Origin == origin.String() {
		return broker.Done
	}
	if _, arrived := l.hasArrived(f.claim.dir, lineCopy(it.start)); !arrived {
		if err := l.copyLine(it); err != nil {
			return l.answer(f, err)
		}
	}
	return l.answer(f, l.toError(f.claim.dir, lineCopy(it.start), as, Sidecar{Origin: origin.String(), Letter: s.Letter, Why: s.Why}))
}
