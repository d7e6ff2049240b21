package filebroker

import (
	"bytes"
	"errors"
	"io"
)

// line is one line of a file.
type line struct {
	start, next int64
	body        []byte // nil if it is too long
	tooLong     bool
}

// reader splits a stream into lines. The lines of one chunk share its memory,
// which is never reused: they stay valid as long as somebody holds them.
type reader struct {
	src   io.Reader
	max   int64 // longest line
	chunk int   // bytes allocated at a time

	buf  []byte // what is read and not handed out
	off  int64  // offset of buf[0] in the stream
	tail []byte // free memory behind buf
	err  error  // how the stream ended
	held *line
}

func newReader(src io.Reader, off, max int64, chunk int) *reader {
	return &reader{src: src, off: off, max: max, chunk: chunk}
}

// next returns the next line that is not blank; at the end the stream's error,
// io.EOF in the good case. A last line needs no newline.
func (r *reader) next() (line, error) {
	if l := r.held; l != nil {
		r.held = nil
		return *l, nil
	}
	for {
		l, err := r.line()
		if err != nil || l.tooLong || !blank(l.body) {
			return l, err
		}
	}
}

// unread gives the last line back.
func (r *reader) unread(l line) { r.held = &l }

func (r *reader) line() (line, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(r.buf[scanned:], '\n'); i >= 0 {
			return r.cut(scanned+i, 1), nil
		}
		scanned = len(r.buf)
		switch {
		case errors.Is(r.err, io.EOF) && scanned > 0:
			return r.cut(scanned, 0), nil
		case r.err != nil:
			return line{start: r.off}, r.err
		case int64(scanned) > r.max:
			return r.discard()
		}
		r.fill()
	}
}

// cut hands out n bytes and skips the newline.
func (r *reader) cut(n, newline int) line {
	l := line{start: r.off, body: r.buf[:n:n], next: r.off + int64(n+newline)}
	if int64(n) > r.max {
		l.body, l.tooLong = nil, true
	}
	r.buf, r.off = r.buf[n+newline:], l.next
	return l
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

// discard skips a line that is too long without keeping it.
func (r *reader) discard() (line, error) {
	l := line{start: r.off, tooLong: true}
	scratch := make([]byte, r.chunk)
	for {
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			r.cut(i, 1)
			l.next = r.off
			return l, nil
		}
		r.off += int64(len(r.buf))
		r.buf, r.tail = scratch[:0], scratch
		switch {
		case errors.Is(r.err, io.EOF):
			l.next = r.off
			return l, nil
		case r.err != nil:
			return l, r.err
		}
		r.fill()
	}
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
