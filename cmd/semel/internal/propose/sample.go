package propose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/filebroker"
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
func (d *Document) Place(f Format) string {
	if f.Files == "whole" {
		return d.File
	}
	return fmt.Sprintf("%s:%d", d.File, d.Position)
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
	// Format is that of most files.
	Format Format
	// Summed: beside every file there is a checksum.
	Summed bool
	// Notes is what a person should know of how the files look.
	Notes []string

	formats map[Format]int // files that look so
	late    bool           // reading took too long
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

// Read looks at a file of messages (JSON, NDJSON, CSV, with gzip or not) or at a
// directory of such files. Of a directory queue it is inbox/, and done/ if that
// is not enough. What is not a regular file is left alone. An error says what
// is wrong with path; what is wrong with single messages is in the sample.
func Read(ctx context.Context, path string) (*Sample, error) {
	s := &Sample{Path: path, formats: map[Format]int{}}
	fi, err := os.Stat(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path) // a source follows none
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file or directory")
	case err != nil:
		return nil, bare(err)
	case fi.IsDir():
		err = s.directory(ctx, path)
	case fi.Mode().IsRegular():
		if err = s.file(ctx, path); err == nil && fi.Size() == 0 && len(s.Documents) == 0 {
			err = errors.New("it is empty")
		}
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
		if dir == root {
			paths = likely(paths)
		}
		for _, path := range pick(paths, MaxMessages) {
			if s.full() || s.late {
				s.More = true
				return nil
			}
			if err := s.file(ctx, path); err != nil {
				s.Documents = append(s.Documents, Document{File: filepath.Base(path), Problem: bare(err)})
			}
		}
		s.More = s.More || len(paths) > MaxMessages
	}
	return nil
}

// likely keeps the files that are named like messages, if there are any: in a
// directory that is no queue other things lie about.
func likely(paths []string) []string {
	var named []string
	for _, path := range paths {
		name := strings.TrimSuffix(strings.ToLower(path), ".gz")
		switch filepath.Ext(name) {
		case ".json", ".ndjson", ".jsonl", ".csv", ".tsv":
			named = append(named, path)
		}
	}
	if len(named) == 0 {
		return paths
	}
	return named
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
	others, summed := 0, map[string]bool{}
	for len(paths) < maxNames {
		entries, err := f.ReadDir(1000)
		for _, e := range entries {
			of, isSum := filebroker.SumOf(e.Name())
			switch {
			case hidden(e.Name()):
			case !e.Type().IsRegular():
				others++
			case isSum:
				summed[filepath.Join(dir, of)] = true
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
	s.sums(dir, paths, summed)
	return paths, nil
}

// sums says which files of a directory have a checksum.
func (s *Sample) sums(dir string, paths []string, summed map[string]bool) {
	with := 0
	for _, path := range paths {
		if summed[path] {
			with++
		}
	}
	switch {
	case with == 0:
	case with == len(paths):
		s.Summed = true
	default:
		s.note("%d of %d files in %s/ have a checksum beside them, which is no message: with complete: checksum those are taken, and only those; without it checksums are taken for messages", with, len(paths), filepath.Base(dir))
	}
}

// hidden are names that a directory queue takes for unfinished or its own.
func hidden(name string) bool {
	return filebroker.Config{}.Ignores(name) || strings.HasSuffix(name, ".ok")
}

// describe adds what is only seen of the sample as a whole.
func (s *Sample) describe() {
	most := 0
	for _, f := range slices.SortedFunc(maps.Keys(s.formats), func(a, b Format) int { return cmp.Compare(a.Files, b.Files) }) {
		if n := s.formats[f]; n > most {
			s.Format, most = f, n
		}
	}
	if len(s.formats) > 1 {
		s.note("%d of %s look like files: %s, others like something else: a source reads all of its files one way", most, counted(s.Files, "file"), s.Format.Files)
	}
	if s.late {
		s.note("reading took too long; what was read until then was looked at")
	}
}
