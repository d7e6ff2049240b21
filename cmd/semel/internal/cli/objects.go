package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds one exported letter. The largest body that pipelines take by
// default fits in every form but text that is nothing but control characters.
const maxRecord = 32 << 20

// written is one JSON object of an import.
type written struct {
	line int // where it begins
	text []byte
	err  error // why it is none
}

// objects cuts a text into JSON objects: one a line, or spread over lines, as
// jq writes them. What is broken ends where a line begins with the next
// object, so that the rest can be read.
type objects struct {
	in   *bufio.Reader
	line int
	held []byte // a line that was read and belongs to the next one
	has  bool
}

func newObjects(in io.Reader) *objects {
	r := &objects{in: bufio.NewReaderSize(in, 64<<10)}
	if mark, _ := r.in.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = r.in.Discard(len(byteOrderMark))
	}
	return r
}

// byteOrderMark is what some editors put in front of a text.
const byteOrderMark = "\ufeff"

// next returns the next record; io.EOF at the end.
func (r *objects) next() (written, error) {
	var rec written
	var n nesting
	for {
		line, long, err := r.read()
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0 && !long) {
			if errors.Is(err, io.EOF) && rec.line > 0 {
				rec.err = errors.New("it has no end: a line of letters export has to be whole")
				return rec, nil
			}
			return rec, err
		}
		blank := len(bytes.TrimSpace(line)) == 0
		switch {
		case rec.line == 0 && blank && !long:
			continue
		case rec.line == 0:
			rec.line = r.line
		case bytes.HasPrefix(line, []byte("{")): // the one before has no end
			r.held, r.has = line, true
			rec.err = errors.New("it has no end: a line of letters export has to be whole")
			return rec, nil
		}
		if long || len(rec.text)+len(line) > maxRecord {
			rec.text, rec.err = nil, fmt.Errorf("it is longer than %d bytes", maxRecord)
			return rec, nil
		}
		rec.text = append(rec.text, line...)
		if n.read(line); n.depth <= 0 && !n.quoted {
			return rec, nil
		}
	}
}

// read returns the next line; long says that it was too long and is skipped.
func (r *objects) read() (line []byte, long bool, err error) {
	if r.has {
		line, r.held, r.has = r.held, nil, false
		return line, false, nil
	}
	r.line++
	for {
		part, err := r.in.ReadSlice('\n')
		if len(line)+len(part) > maxRecord {
			line, long = nil, true
		}
		if !long {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// nesting follows brackets through lines.
type nesting struct {
	depth           int
	quoted, escaped bool
}

func (n *nesting) read(line []byte) {
	for _, c := range line {
		switch {
		case n.escaped:
			n.escaped = false
		case n.quoted:
			n.escaped = c == '\\'
			n.quoted = c != '"'
		case c == '"':
			n.quoted = true
		case c == '{' || c == '[':
			n.depth++
		case c == '}' || c == ']':
			n.depth--
		}
	}
}
