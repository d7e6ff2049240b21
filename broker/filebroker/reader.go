package filebroker

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/semel-dev/semel"
)

// token is what a splitter makes of some bytes.
type token uint8

const (
	outside token = iota // they belong to no record
	inside               // they belong to a record that goes on
	last                 // a record ends behind them
)

// A splitter knows one format: where a record begins and ends, and which
// message it is. It sees the bytes of a stream once, in order, in pieces of
// any size, and keeps none of them but a header, so that memory does not grow
// with the file. What it answers depends on the bytes alone, never on how they
// were cut.
type splitter interface {
	// step looks at bytes that follow those it saw and deals with the first n.
	// It deals with none only if a record ends here, or after an error.
	step(b []byte) (n int, t token, err error)
	// end is told that the stream is over, in the middle of a record or not. An
	// error says that more was to come.
	end(pending bool) error
	// message makes the body of a record that step has just come to the end
	// of; raw is nil if it was too long to be kept. The error is errNone if it
	// is no message, broken if nothing that follows can be read, and otherwise
	// what is wrong with this record.
	message(raw []byte) (body []byte, err error)
	// around is what a record needs before and behind it to be a file of its
	// own.
	around() (before, behind []byte)
	// unit is what people call a record.
	unit() string
}

// errNone says that a record is not a message: a blank line, a header.
var errNone = errors.New("not a message")

// broken is an error after which no record can be found any more.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

func brokenf(format string, args ...any) error { return broken{fmt.Errorf(format, args...)} }

// record is one message of a file.
type record struct {
	start, next int64  // of the decompressed stream
	raw, body   []byte // nil if it is too long
	bad         error  // why it is not a message
}

// reader cuts a stream into records. Those of one chunk share its memory,
// which is never reused: they stay valid as long as somebody holds them.
type reader struct {
	src   io.Reader
	split splitter
	max   int64 // longest record, and longest body
	chunk int   // bytes allocated at a time
	whole bool  // the stream is read from its beginning

	buf   []byte // what is read and not handed out
	off   int64  // offset of buf[0] in the stream
	tail  []byte // free memory behind buf
	err   error  // how the stream ended
	count int64  // records handed out
	held  *record
}

func newReader(src io.Reader, split splitter, off, max int64, chunk int) *reader {
	return &reader{src: src, split: split, off: off, max: max, chunk: chunk, whole: off == 0}
}

// next returns the next record; at the end io.EOF, or what makes the rest of
// the stream unreadable, with the place where that begins.
func (r *reader) next() (record, error) {
	if rec := r.held; rec != nil {
		r.held = nil
		return *rec, nil
	}
	for {
		rec, err := r.record()
		switch {
		case err == nil:
			r.count++
		case errors.Is(err, errNone):
			continue
		}
		return rec, err
	}
}

// unread gives the last record back.
func (r *reader) unread(rec record) { r.held = &rec }

func (r *reader) record() (record, error) {
	start, scanned := r.off, 0
	for {
		n, t, err := r.split.step(r.buf[scanned:])
		scanned += n
		switch {
		case err != nil:
			return record{start: start}, r.ended(err)
		case t == last:
			return r.cut(start, scanned)
		case t == outside:
			r.advance(scanned)
			start, scanned = r.off, 0
		}
		if scanned < len(r.buf) {
			continue
		}
		if pending := r.off - start + int64(scanned); r.err != nil {
			return r.finish(start, scanned, pending > 0)
		} else if pending > r.max {
			r.drop()
			scanned = 0
		}
		r.fill()
	}
}

// advance hands out n bytes.
func (r *reader) advance(n int) {
	r.buf, r.off = r.buf[n:], r.off+int64(n)
}

// drop forgets what is read of a record that is too long to be kept.
func (r *reader) drop() {
	r.off += int64(len(r.buf))
	r.tail = r.buf[:cap(r.buf)]
	r.buf = r.tail[:0]
	if len(r.tail) < minChunk {
		r.tail = nil
	}
}

// cut hands out the record from start to n bytes ahead.
func (r *reader) cut(start int64, n int) (record, error) {
	rec := record{start: start, next: r.off + int64(n)}
	size := rec.next - start
	if n > 0 && r.buf[n-1] == '\n' {
		size--
	}
	if size <= r.max {
		rec.raw = r.buf[:n:n]
	}
	r.advance(n)
	// One that was not kept is shown to the splitter all the same, since it
	// may be a header.
	body, err := r.split.message(rec.raw)
	switch {
	case err != nil && errors.As(err, new(broken)):
		return record{start: start}, r.ended(err)
	case err != nil && errors.Is(err, errNone):
		return rec, err
	case rec.raw == nil:
		err = r.tooLong(size)
	case int64(len(body)) > r.max:
		rec.raw, body, err = nil, nil, r.tooLong(int64(len(body)))
	}
	rec.body, rec.bad = body, err
	return rec, nil
}

func (r *reader) tooLong(size int64) error {
	return semel.Invalidf("the %s has %d bytes, more than the %d allowed", r.split.unit(), size, r.max)
}

// finish is called when the stream has ended and everything was looked at.
func (r *reader) finish(start int64, scanned int, pending bool) (record, error) {
	if !errors.Is(r.err, io.EOF) {
		return record{start: start}, r.ended(r.err)
	}
	if err := r.split.end(pending); err != nil {
		return record{start: start}, r.ended(err)
	}
	if !pending {
		return record{start: start}, io.EOF
	}
	return r.cut(start, scanned)
}

// ended adds how far the stream could be read.
func (r *reader) ended(err error) error {
	if !r.whole {
		return err
	}
	return fmt.Errorf("%w; %d %ss before that were taken", err, r.count, r.split.unit())
}

// fill reads more behind what is there.
func (r *reader) fill() {
	if len(r.tail) == 0 {
		fresh := make([]byte, max(r.chunk, 2*len(r.buf)))
		n := copy(fresh, r.buf)
		r.buf, r.tail = fresh[:n], fresh[n:]
	}
	n, err := r.src.Read(r.tail)
	r.buf = r.buf[:len(r.buf)+n]
	r.tail = r.tail[n:]
	r.err = err
}

// byLine is the splitter of Lines.
type byLine struct{}

func (byLine) step(b []byte) (int, token, error) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1, last, nil
	}
	return len(b), inside, nil
}

// end: a last line needs no newline; a claimed file is complete.
func (byLine) end(bool) error { return nil }

func (byLine) message(raw []byte) ([]byte, error) {
	body := bytes.TrimSuffix(raw, []byte("\n"))
	if raw != nil && blank(body) {
		return nil, errNone
	}
	return body[:len(body):len(body)], nil
}

func (byLine) around() (before, behind []byte) { return nil, nil }
func (byLine) unit() string                    { return "line" }

func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// mark is what some programs put at the beginning of UTF-8 files.
const mark = "\xef\xbb\xbf"

// isMark reports whether the byte c at a place of the stream belongs to a mark,
// as all those before it do.
func isMark(c byte, at, before int64) bool {
	return at == before && at < int64(len(mark)) && c == mark[at]
}
