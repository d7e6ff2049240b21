package propose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// Bounds of a sample.
const (
	// MaxMessages and MaxBytes are how much is looked at. A single message is
	// bounded by message.DefaultMaxBytes.
	MaxMessages = 2000
	MaxBytes    = 32 << 20
	maxNames    = 100_000 // of a directory
)

// Document is one message of a sample.
type Document struct {
	// File is the name of its file, Position the byte where its line begins.
	File     string
	Position int64
	Body     []byte
	// Problem says why no pipeline could read it; nil if one can.
	Problem error
}

// Place names the document for people.
func (d *Document) Place(lines bool) string {
	if lines {
		return fmt.Sprintf("%s:%d", d.File, d.Position)
	}
	return d.File
}

// Delivery is the document as a source would hand it over.
func (d *Document) Delivery() *semel.Delivery {
	m := &semel.Delivery{}
	m.Body = d.Body
	m.Position.Scope.Name, m.Position.Lo = d.File, d.Position
	return m
}

// Sample is some of a user's messages.
type Sample struct {
	// Path is the file or directory they were read from.
	Path      string
	Documents []Document
	// Files is how many files were opened, Bytes how much was read of them,
	// More whether there is more than was looked at.
	Files int
	Bytes int64
	More  bool
	// Lines: a line of a file is a message, not the file.
	Lines bool
	// Names is false where the names of the files are none that a source would
	// show, as for the elements of an array.
	Names bool
	// Notes is what a person should know of how the files look.
	Notes []string

	inLines, wholes int // files with messages in lines; that are one of several lines
}

// Readable counts the documents without a problem.
func (s *Sample) Readable() int {
	n := 0
	for i := range s.Documents {
		if s.Documents[i].Problem == nil {
			n++
		}
	}
	return n
}

func (s *Sample) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

func (s *Sample) full() bool {
	return len(s.Documents) >= MaxMessages || s.Bytes >= MaxBytes
}

// Read looks at a file of messages (JSON, NDJSON, either with gzip) or at a
// directory of such files. Of a directory queue it is inbox/, and done/ if that
// is not enough. What is not a regular file is left alone. An error says what
// is wrong with path; what is wrong with single messages is in the sample.
func Read(ctx context.Context, path string) (*Sample, error) {
	s := &Sample{Path: path, Names: true}
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file or directory")
	case err != nil:
		return nil, bare(err)
	case fi.IsDir():
		err = s.directory(ctx, path)
	case fi.Mode().IsRegular():
		err = s.file(ctx, path)
	default:
		return nil, fmt.Errorf("it is %s: name a regular file or a directory", kindOf(fi.Mode()))
	}
	if err != nil {
		return nil, err
	}
	s.describe()
	return s, nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// bare takes the path off an error that names it already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// directory reads a directory of messages, or the stages of a queue.
func (s *Sample) directory(ctx context.Context, root string) error {
	dirs := []string{root}
	if fi, err := os.Stat(filepath.Join(root, "inbox")); err == nil && fi.IsDir() {
		dirs = []string{filepath.Join(root, "inbox"), filepath.Join(root, "done")}
	}
	for _, dir := range dirs {
		paths, err := s.list(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != root {
			continue
		}
		if err != nil {
			return fmt.Errorf("the directory cannot be read: %w", bare(err))
		}
		for _, path := range pick(paths, MaxMessages) {
			if s.full() {
				s.More = true
				return nil
			}
			if err := s.file(ctx, path); err != nil && ctx.Err() != nil {
				return err
			} else if err != nil {
				s.Documents = append(s.Documents, Document{File: filepath.Base(path), Problem: bare(err)})
			}
		}
		s.More = s.More || len(paths) > MaxMessages
	}
	return nil
}

// pick takes the first half of n as they come, where repeats are close to each
// other, and the other half from all over the rest.
func pick(paths []string, n int) []string {
	if len(paths) <= n {
		return paths
	}
	picked := slices.Clone(paths[:n/2])
	rest := paths[n/2:]
	for i := range n - n/2 {
		picked = append(picked, rest[i*len(rest)/(n-n/2)])
	}
	return picked
}

// list returns the files of a directory that could be messages, by name.
func (s *Sample) list(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var paths []string
	others := 0
	for len(paths) < maxNames {
		entries, err := f.ReadDir(1000)
		for _, e := range entries {
			switch {
			case hidden(e.Name()):
			case !e.Type().IsRegular():
				others++
			default:
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if others > 0 {
		s.note("%d entries of %s/ are not regular files (directories, links, pipes): a source leaves them alone, and so does this", others, filepath.Base(dir))
	}
	slices.Sort(paths)
	return paths, nil
}

// hidden are names that a directory queue takes for unfinished or its own.
func hidden(name string) bool {
	if name[0] == '.' || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".semel.json") || strings.HasSuffix(name, ".ok") {
		return true
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".tmp", ".part", ".filepart", ".swp", ".crdownload":
		return true
	}
	return false
}

// describe adds what is only seen of the sample as a whole.
func (s *Sample) describe() {
	if s.Files == 1 && len(s.Documents) == 1 && !s.Lines {
		s.elements()
	}
	if s.inLines > 0 && s.wholes > 0 {
		s.Lines = s.inLines >= s.wholes
		s.note("%s with a message in each line, %d with one message of several lines: a source reads all of its files one way (files: lines or files: whole)", counted(s.inLines, "file"), s.wholes)
	}
}

// elements takes a file that is one array of objects for what its author
// meant: many messages.
func (s *Sample) elements() {
	doc := &s.Documents[0]
	if doc.Problem != nil {
		return
	}
	elements := split(doc.Body)
	if len(elements) < 2 {
		return
	}
	s.More = s.More || len(elements) > MaxMessages
	docs := make([]Document, 0, len(elements))
	for i, e := range elements[:min(len(elements), MaxMessages)] {
		docs = append(docs, Document{File: doc.File, Position: int64(i), Body: e})
	}
	s.Documents, s.Lines, s.Names = docs, true, false
	s.note("the file is one array of %d objects, and a file or a line is one message: its elements were looked at; jq -c '.[]' FILE makes a line of each", len(elements))
}

// problem is what stands in for a body that is too large to be read.
func tooLarge() error {
	return fmt.Errorf("it has more than %d MiB, the default of message.max_bytes", message.DefaultMaxBytes>>20)
}
