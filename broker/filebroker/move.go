package filebroker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/fault"
)

var (
	errNoNative = errors.New("no rename that refuses to replace")
	errLocked   = errors.New("locked by another process")
	errNoLocks  = errors.New("no file locks here")
)

// mover moves files without ever replacing one.
type mover struct {
	linkOnly bool // do not use a rename that refuses to replace
}

// rename renames in one step unless new exists; errNoNative: not here.
func (m mover) rename(old, new string) error {
	if m.linkOnly {
		return errNoNative
	}
	return renameNew(old, new)
}

// moveNew moves old to new; the error is fs.ErrExist if new exists. Where the
// system has no such rename it links and unlinks; a crash in between leaves
// two names of one file, which [core.finishMove] recognises.
func (m mover) moveNew(old, new string) error {
	err := m.rename(old, new)
	if !errors.Is(err, errNoNative) {
		return err
	}
	if err := os.Link(old, new); err != nil {
		return err
	}
	fault.Hit(Linked)
	// If someone took the old name meanwhile, the new one must stay: whoever
	// took it finds the two and drops the old.
	return os.Remove(old)
}

// moveFree moves old into dir under name, or under the first free numbered
// form of it, and returns the name used. prepare, if given, is called before
// each try.
func (m mover) moveFree(old, dir, name string, taken func(name string) bool, prepare func(name string) error) (string, error) {
	for n := 0; ; n = nextFree(n, func(n int) bool { return taken(numbered(name, n)) }) {
		as := numbered(name, n)
		if prepare != nil {
			if taken(as) {
				continue
			}
			if err := prepare(as); err != nil {
				return as, err
			}
		}
		err := m.moveNew(old, filepath.Join(dir, as))
		if !errors.Is(err, fs.ErrExist) {
			return as, err
		}
	}
}

// nextFree finds a number above used that taken denies, in a logarithmic
// number of questions: a name may be reused for years.
func nextFree(used int, taken func(int) bool) int {
	lo, hi := used, used+1
	for step := 1; taken(hi); step *= 2 {
		lo, hi = hi, hi+step
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; taken(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// numbered puts a number before the extension: a.1.json. Number 0 is the name
// itself. Names stay within what file systems allow.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	return inserted(name, strconv.Itoa(n))
}

// inserted puts "."+part before the extension and shortens the stem, never
// the part or the extension, if the name becomes too long.
func inserted(name, part string) string {
	stem, ext := splitExt(name)
	part = "." + part
	if over := len(stem) + len(part) + len(ext) - maxName; over > 0 {
		stem = stem[:len(stem)-over]
	}
	return stem + part + ext
}

// splitExt finds the extension, with the one before a compression suffix. An
// extension is short and does not begin the name.
func splitExt(name string) (stem, ext string) {
	ext = shortExt(name)
	if packed(ext) {
		ext = shortExt(strings.TrimSuffix(name, ext)) + ext
	}
	return name[:len(name)-len(ext)], ext
}

func packed(ext string) bool {
	switch ext {
	case ".gz", ".zst", ".bz2", ".xz":
		return true
	}
	return false
}

func shortExt(name string) string {
	ext := filepath.Ext(name)
	if len(ext) < 2 || len(ext) > 16 || len(ext) == len(name) {
		return ""
	}
	return ext
}
