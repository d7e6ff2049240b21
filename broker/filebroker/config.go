package filebroker

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Files says what a message is.
type Files uint8

const (
	// Whole: every file is one message, its bytes are the body.
	Whole Files = iota
	// Lines: every line of a file is one message (NDJSON, plain or gzip).
	Lines
	// Array: a file is one JSON array, plain or gzip, and each of its elements
	// is a message.
	Array
	// CSV: the first line of a file, plain or gzip, has the names of the
	// columns, and every record after it is a message: a JSON object with the
	// names in their order and strings as values. RFC 4180; blank lines are
	// skipped.
	CSV
)

// splitter returns one for a file that is about to be read.
func (c Config) splitter() splitter {
	switch c.Files {
	case Array:
		return &byArray{}
	case CSV:
		return newCSV(c.Delimiter)
	}
	return byLine{}
}

// Complete says how a file in inbox/ is known to be finished by its writer.
// Names that begin with a dot and sidecars of error/ never count as files.
type Complete uint8

const (
	// Renamed: the writer uses a temporary name (a leading dot, or a suffix
	// such as .tmp, .part, .filepart, .swp, .crdownload, ~) and renames the
	// file when it is finished.
	Renamed Complete = iota
	// Marked: the writer creates name+MarkerSuffix when name is finished.
	Marked
	// Settled: the file did not change (size, modification time, inode) over
	// Scans looks and MinAge, both counted from when we first saw it so.
	Settled
	// Summed: beside name there is name.sha256, name.sha512 or name.md5 with
	// the digest of its content, alone or as sha256sum prints it. The strongest
	// one counts. A file that does not fit, and has not changed over Scans looks
	// and MinAge either, is handed over as malformed. The sidecars go where
	// the file goes.
	Summed
)

// Done says what becomes of a file when everything of it is decided.
type Done uint8

const (
	// Keep moves it to done/.
	Keep Done = iota
	// Delete removes it.
	Delete
)

// Config says where the queue is and how to read it. The zero value of every
// field but Root is a documented default.
type Config struct {
	// Root holds inbox/, processing/, done/ and error/, all on one file
	// system. Required. It must exist; the four are made if missing.
	Root string
	// Create makes Root itself too.
	Create bool
	// Files says what a message is. Default Whole.
	Files Files
	// Delimiter stands between the fields of CSV. Default ','; a printable
	// ASCII character that is no letter, digit or quote, or a tab.
	Delimiter byte
	// Complete says when a file may be taken. Default Renamed.
	Complete Complete
	// MarkerSuffix is what Marked appends. Default ".ok"; it begins with a
	// dot and has at least three bytes.
	MarkerSuffix string
	// Scans and MinAge belong to Settled. Defaults 3 and 5 s.
	Scans  int
	MinAge time.Duration
	// Done says what becomes of finished files. Default Keep.
	Done Done
	// MaxBytes bounds one message. A larger one is handed over as malformed,
	// without body. Default 16 MiB.
	MaxBytes int64
	// MaxScopes bounds how many files Lines holds at a time. Default 256.
	MaxScopes int
	// Worker is what people see as the name of this process, followed by a
	// random part. Default: host and process id.
	Worker string
	// Consumer is noted in the sidecars of error/. Optional.
	Consumer string
	// Lease is how long a worker may stay silent before its claims are
	// taken over. A worker that is dead is noticed at once where the file
	// system has locks. Default 30 s.
	Lease time.Duration
	// Poll is how often an empty inbox is looked at. Default 250 ms.
	Poll time.Duration
	// Report is told, once per file, what cannot be handled as a message or
	// did not go as it should: [ErrNotRegular], [ErrHardLink], [ErrChanged],
	// [ErrGone], [ErrStopped], [ErrTaken], or an error of the file system.
	// It is called from several goroutines and must return quickly.
	Report func(name string, err error)

	linkOnly bool // as on systems without a rename that refuses to replace
}

func (c Config) withDefaults() Config {
	c.Delimiter = cmp.Or(c.Delimiter, ',')
	c.MarkerSuffix = cmp.Or(c.MarkerSuffix, ".ok")
	c.Scans = cmp.Or(c.Scans, 3)
	c.MinAge = cmp.Or(c.MinAge, 5*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<20)
	c.MaxScopes = cmp.Or(c.MaxScopes, 256)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 250*time.Millisecond)
	if c.Report == nil {
		c.Report = func(string, error) {}
	}
	return c
}

// Validate returns all problems of the configuration by itself, at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch base := filepath.Base(c.Root); {
	case c.Root == "":
		bad("root is missing: name the directory that holds inbox/, processing/, done/ and error/")
	case base == inboxDir:
		bad("root %q is the inbox itself: name its parent %q; inbox/, processing/, done/ and error/ live below the root", c.Root, filepath.Dir(filepath.Clean(c.Root)))
	}
	if d := c.Delimiter; d != 0 && !IsDelimiter(d) {
		bad("delimiter %q: a printable ASCII character that is no letter, digit or quote, or a tab", d)
	}
	if c.Files > CSV || c.Complete > Summed || c.Done > Delete {
		bad("unknown value of Files, Complete or Done")
	}
	if s := c.MarkerSuffix; s != "" && (len(s) < 3 || s[0] != '.' || strings.ContainsRune(s, filepath.Separator)) {
		bad("marker suffix %q: it begins with a dot and has at least three bytes", s)
	}
	if strings.ContainsAny(c.Worker, `/\`) || strings.HasPrefix(c.Worker, ".") || len(c.Worker) > maxWorker {
		bad("worker %q: no slash, no leading dot, at most %d bytes", c.Worker, maxWorker)
	}
	if c.Scans < 0 || c.MinAge < 0 || c.MaxBytes < 0 || c.MaxScopes < 0 || c.Lease < 0 || c.Poll < 0 {
		bad("Scans, MinAge, MaxBytes, MaxScopes, Lease and Poll cannot be negative")
	}
	return errors.Join(errs...)
}

// IsDelimiter reports whether c may be Config.Delimiter.
func IsDelimiter(c byte) bool {
	return c == '\t' || c > ' ' && c < 0x7f && c != '"' && c != '\'' && (!isScalar(c) || c == '-' || c == '+' || c == '.')
}
