package propose

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/filebroker"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// Format is how files hold messages.
type Format struct {
	// Files is the word of pipeline files: whole, lines, array or csv.
	Files string
	// Delimiter of csv.
	Delimiter byte
}

// errEnough ends the reading of a file.
var errEnough = errors.New("enough")

// file reads the messages of one file, as a source would.
func (s *Sample) file(ctx context.Context, path string) error {
	head, err := headOf(path)
	if err != nil {
		return bare(err)
	}
	s.Files++
	format := head.format()
	s.formats[format]++
	err = filebroker.Read(ctx, format.config(), path, func(m *semel.Delivery) error {
		s.add(m)
		if s.full() {
			s.More = s.More || format.Files != "whole"
			return errEnough
		}
		return nil
	})
	if ctx.Err() != nil {
		s.More, s.late = true, true
	} else if err != nil && !errors.Is(err, errEnough) {
		return bare(err)
	}
	return nil
}

func (f Format) config() filebroker.Config {
	c := filebroker.Config{MaxBytes: message.DefaultMaxBytes, Delimiter: f.Delimiter}
	switch f.Files {
	case "lines":
		c.Files = filebroker.Lines
	case "array":
		c.Files = filebroker.Array
	case "csv":
		c.Files = filebroker.CSV
	}
	return c
}

// add checks a message and takes it in.
func (s *Sample) add(m *semel.Delivery) {
	d := Document{File: m.Position.Scope.Name, Position: m.Position.Lo, Body: m.Body, Problem: m.Malformed}
	if d.Problem == nil {
		d.Problem = message.Check(d.Body, 0)
	}
	s.Bytes += int64(len(d.Body))
	s.Documents = append(s.Documents, d)
}

// head is the beginning of a file, unpacked.
type head struct {
	name   string
	text   []byte
	packed bool
}

const headBytes = 1 << 20

func headOf(path string) (head, error) {
	f, err := os.Open(path)
	if err != nil {
		return head{}, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return head{}, errors.Join(errors.New("it is not a regular file any more"), err)
	}
	h := head{name: strings.ToLower(filepath.Base(path))}
	src := bufio.NewReader(f)
	if magic, _ := src.Peek(3); bytes.Equal(magic, []byte{0x1f, 0x8b, 8}) {
		h.packed, h.name = true, strings.TrimSuffix(h.name, ".gz")
		z, err := gzip.NewReader(src)
		if err != nil {
			return h, nil // whoever reads it says what is wrong
		}
		src = bufio.NewReader(z)
	}
	h.text, _ = io.ReadAll(io.LimitReader(src, headBytes)) // what is broken further on is told by whoever reads it
	return h, nil
}

// format finds out by name and beginning how a file holds messages.
func (h head) format() Format {
	text := bytes.TrimSpace(message.Trim(h.text))
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	switch ext := filepath.Ext(h.name); {
	case ext == ".csv" || ext == ".tsv":
		return Format{"csv", delimiter(first)}
	case ext == ".ndjson" || ext == ".jsonl":
		return Format{Files: "lines"}
	case bytes.HasPrefix(text, []byte("[")) && bytes.HasPrefix(bytes.TrimSpace(text[1:]), []byte("{")) && (len(rest) == 0 || message.Check(first, 0) != nil):
		return Format{Files: "array"}
	case h.packed && len(rest) == 0, len(rest) > 0 && message.Check(first, 0) == nil:
		return Format{Files: "lines"}
	}
	return Format{Files: "whole"}
}

// delimiter is the one that the header of a CSV file has most often.
func delimiter(header []byte) byte {
	best, most := byte(','), 0
	for _, c := range []byte(",;\t|") {
		if n := bytes.Count(header, []byte{c}); n > most {
			best, most = c, n
		}
	}
	return best
}
