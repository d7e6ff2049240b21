package propose

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// file reads the messages of one file.
func (s *Sample) file(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return bare(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return errors.Join(errors.New("it is not a regular file any more"), err)
	}
	s.Files++
	src, zipped, err := unzip(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return err
	}
	r := &reader{sample: s, src: src, name: filepath.Base(path), zipped: zipped}
	return r.read(ctx)
}

func unzip(src *bufio.Reader) (_ *bufio.Reader, zipped bool, err error) {
	if magic, _ := src.Peek(3); !bytes.Equal(magic, []byte{0x1f, 0x8b, 8}) {
		return src, false, nil
	}
	z, err := gzip.NewReader(src)
	if err != nil {
		return nil, true, fmt.Errorf("not a whole gzip file: %w", err)
	}
	return bufio.NewReaderSize(z, 64<<10), true, nil
}

// reader reads one file.
type reader struct {
	sample *Sample
	src    *bufio.Reader
	name   string
	zipped bool
	at     int64
}

// read finds out by the first line whether lines are messages.
func (r *reader) read(ctx context.Context) error {
	first, err := r.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	ends := errors.Is(err, io.EOF)
	if r.named() || !ends && message.Check(first, 0) == nil && !r.blank() {
		return r.lines(ctx, first, ends)
	}
	return r.whole(first, ends)
}

// named reports a name that says there are messages in lines.
func (r *reader) named() bool {
	name := strings.TrimSuffix(strings.ToLower(r.name), ".gz")
	return strings.HasSuffix(name, ".ndjson") || strings.HasSuffix(name, ".jsonl")
}

// blank reports whether only space follows, as far as it can be seen.
func (r *reader) blank() bool {
	rest, _ := r.src.Peek(r.src.Size())
	return len(bytes.TrimSpace(rest)) == 0
}

// line returns the next line with its end; what is longer than a message may
// be is cut.
func (r *reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.src.ReadSlice('\n')
		r.at += int64(len(part))
		r.sample.Bytes += int64(len(part))
		if len(line) <= message.DefaultMaxBytes {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		// A file of one endless line is not read to its end.
		if r.at > 2*MaxBytes {
			return line, io.EOF
		}
	}
}

func (r *reader) lines(ctx context.Context, line []byte, ends bool) error {
	s := r.sample
	s.Lines = true
	s.inLines++
	for from := int64(0); ; {
		if len(bytes.TrimSpace(line)) > 0 {
			s.add(Document{File: r.name, Position: from, Body: bytes.TrimSuffix(line, []byte("\n"))})
		}
		if ends || ctx.Err() != nil {
			return ctx.Err()
		}
		if s.full() {
			s.More = s.More || !r.blank()
			return nil
		}
		from = r.at
		var err error
		if line, err = r.line(); err != nil && !errors.Is(err, io.EOF) {
			s.Documents = append(s.Documents, Document{File: r.name, Position: from, Problem: err})
			return nil
		}
		ends = err != nil
	}
}

// whole takes the file for one message.
func (r *reader) whole(first []byte, ends bool) error {
	s := r.sample
	body := first
	if !ends {
		rest, err := io.ReadAll(io.LimitReader(r.src, message.DefaultMaxBytes+1))
		if err != nil {
			return err
		}
		s.Bytes += int64(len(rest))
		body = append(body, rest...)
	}
	s.add(Document{File: r.name, Body: body})
	switch several := bytes.ContainsRune(bytes.TrimSpace(body), '\n'); {
	case several && r.zipped:
		s.note("%s is compressed: gzip is read as lines (files: lines), not as one message of several lines; unpack it first", printable(r.name))
	case several:
		s.wholes++
	case r.zipped:
		s.Lines = true
		s.inLines++
	}
	return nil
}

// add checks a document and takes it in.
func (s *Sample) add(d Document) {
	if d.Body == nil {
		d.Body = []byte{}
	}
	if d.Problem = message.Check(d.Body, 0); len(d.Body) > message.DefaultMaxBytes {
		d.Body, d.Problem = nil, tooLarge()
	}
	s.Documents = append(s.Documents, d)
}

// split returns the elements of an array of objects; nil for anything else.
func split(body []byte) [][]byte {
	if b := bytes.TrimSpace(message.Trim(body)); len(b) == 0 || b[0] != '[' {
		return nil
	}
	var all []json.RawMessage
	if json.Unmarshal(message.Trim(body), &all) != nil {
		return nil // cannot be: it was checked
	}
	elements := make([][]byte, 0, len(all))
	for _, e := range all {
		if e[0] != '{' {
			return nil
		}
		elements = append(elements, e)
	}
	return elements
}

// printable is a name of a file without what could give orders to a terminal
// or end a comment.
func printable(s string) string {
	q := fmt.Sprintf("%+q", s)
	return q[1 : len(q)-1]
}
