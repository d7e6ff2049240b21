package filebroker

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// whole is a queue whose messages are files.
type whole struct{ *core }

// gather claims files and reads them.
func (w *whole) gather(ctx context.Context, b *basket) error {
	defer w.retire()
	for !b.full() && ctx.Err() == nil {
		f, err := w.next(ctx, b)
		if f == nil || err != nil {
			return err
		}
		it, ok, err := w.load(f, b.fits)
		if errors.Is(err, fs.ErrNotExist) {
			w.gone(f)
			continue
		}
		if err != nil || !ok {
			w.todo = append([]*file{f}, w.todo...)
			return err
		}
		b.add(it)
	}
	return nil
}

// next returns a claimed file that was not handed over: first those of dead
// workers, then new ones.
func (w *whole) next(ctx context.Context, b *basket) (*file, error) {
	for len(w.todo) == 0 {
		more, err := w.unpack()
		if err != nil {
			return nil, err
		}
		if !more {
			return w.claimNew(ctx, b.fits)
		}
	}
	f := w.todo[0]
	if err := w.proveSum(ctx, f); err != nil {
		return nil, err
	}
	w.todo = w.todo[1:]
	return f, nil
}

// load reads a file; ok is false if it does not fit.
func (w *whole) load(f *file, fits func(int64) bool) (it item, ok bool, err error) {
	it = item{file: f, whole: true, returns: f.letter, next: 1}
	fh, err := openClaimed(f.path())
	if err != nil {
		if !unreadable(err) {
			return it, false, err
		}
		it.bad = semel.Invalid(err)
		return it, true, f.examine(nil)
	}
	defer fh.Close()
	fi, err := fh.Stat()
	if err != nil {
		return it, false, err
	}
	size := fi.Size()
	if size <= w.cfg.MaxBytes && !fits(size) {
		return it, false, nil
	}
	head, body, bad := w.read(fh, fi)
	f.identified(fi, head)
	if f.wrong != nil {
		body, bad = nil, semel.Invalid(f.wrong)
	}
	it.body, it.bad = body, bad
	return it, true, nil
}

// read returns the body and what goes into the incarnation. Of a file that is
// too large only the latter is read.
func (w *whole) read(fh io.Reader, fi fs.FileInfo) (head, body []byte, bad error) {
	size := fi.Size()
	switch {
	case !fi.Mode().IsRegular():
		return nil, nil, semel.Invalid(ErrNotRegular)
	case size > w.cfg.MaxBytes:
		bad = semel.Invalidf("the file has %d bytes, more than the %d allowed", size, w.cfg.MaxBytes)
		head = make([]byte, headBytes)
	default:
		body = w.slab.take(int(size))
		head = body
	}
	n, err := io.ReadFull(fh, head)
	switch {
	case err == nil || bad != nil:
		return head[:n], body, bad
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return head[:n], nil, semel.Invalid(ErrChanged)
	}
	return head[:n], nil, semel.Invalid(err)
}

// settle moves the file to where its message ended.
func (w *whole) settle(it *item, s broker.Settlement) broker.Settled {
	f := it.file
	if s.Verb == broker.Reject {
		f.fate, f.deadLetter = errors.New(s.Why), s.Letter
	}
	return w.answer(f, w.finish(f))
}

// tidy has nothing to do: a file is finished by its one settlement.
func (w *whole) tidy(context.Context) (bool, error) { return false, nil }

// leave gives back all files in hand.
func (w *whole) leave(context.Context) error {
	files := w.todo
	w.mu.Lock()
	w.ledger.each(func(_ *batch, it *item) { files = append(files, it.file) })
	for _, it := range w.released {
		files = append(files, it.file)
	}
	w.mu.Unlock()
	w.giveBackAll(files)
	return nil
}

// lose has nothing to add: all leases are stale.
func (w *whole) lose() {}

// Capabilities implements broker.Receiver. A move is the confirmation, and
// only the owner of a claim can make it.
func (w *whole) Capabilities() broker.Capabilities {
	c := w.core.Capabilities()
	c.Confirmed, c.FencesStale = true, true
	return c
}
