package filebroker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	scanChunk  = 1024    // names read from inbox/ at a time
	maxTracked = 1 << 16 // files remembered between two scans
)

// candidate is a file in inbox/ that may be claimed.
type candidate struct {
	name string
	size int64
	sum  *checked // Summed only
}

// scanner goes through inbox/ again and again, a chunk of names at a time, so
// that a million files cost no more memory than a thousand.
type scanner struct {
	cfg   Config
	inbox string

	dir   *os.File
	names []fs.DirEntry
	back  []candidate

	mu      sync.Mutex
	pass    uint64
	skipped map[string]uint64    // reported and left; the pass that last saw it
	seen    map[string]*sighting // Settled
	sums    map[string]*checked  // Summed
	stopped map[identity]bool    // refused by the pipeline
}

// sighting is what we know of a file that must not change.
type sighting struct {
	identity
	first, last time.Time
	scans       int
	pass        uint64
}

func newScanner(cfg Config, inbox string) *scanner {
	return &scanner{cfg: cfg, inbox: inbox, skipped: map[string]uint64{}, seen: map[string]*sighting{}, sums: map[string]*checked{}, stopped: map[identity]bool{}}
}

// next returns a file that is complete; ok is false at the end of a pass.
func (s *scanner) next(ctx context.Context) (c candidate, ok bool, err error) {
	if n := len(s.back); n > 0 {
		c, s.back = s.back[n-1], s.back[:n-1]
		return c, true, nil
	}
	for {
		if len(s.names) == 0 {
			if more, err := s.read(); !more || err != nil {
				return c, false, err
			}
		}
		e := s.names[0]
		s.names = s.names[1:]
		if c, ok := s.consider(ctx, e); ok {
			return c, true, nil
		}
	}
}

// unread gives a candidate back that did not fit.
func (s *scanner) unread(c candidate) { s.back = append(s.back, c) }

// missed is called when someone else was faster: workers that go through the
// same names in the same order would meet at each of them.
func (s *scanner) missed() {
	if n := len(s.names); n > 1 {
		at := rand.IntN(n)
		s.names = append(slices.Clone(s.names[at:]), s.names[:at]...)
	}
}

func (s *scanner) read() (more bool, err error) {
	if s.dir == nil {
		if s.dir, err = os.Open(s.inbox); err != nil {
			return false, err
		}
		s.mu.Lock()
		s.pass++
		s.mu.Unlock()
	}
	s.names, err = s.dir.ReadDir(scanChunk)
	if err != nil || len(s.names) == 0 {
		s.endPass()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return false, err
	}
	slices.SortFunc(s.names, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return true, nil
}

// endPass forgets what is no longer there.
func (s *scanner) endPass() {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pass := range s.skipped {
		if pass != s.pass {
			delete(s.skipped, name)
		}
	}
	for name, seen := range s.seen {
		if seen.pass != s.pass {
			delete(s.seen, name)
		}
	}
	for name, sum := range s.sums {
		if sum.pass != s.pass {
			delete(s.sums, name)
		}
	}
}

func (s *scanner) close() {
	if s.dir != nil {
		s.dir.Close()
		s.dir = nil
	}
	s.names = nil
}

// consider looks at one entry. Nothing is opened: that could wait for the
// writer of a pipe.
func (s *scanner) consider(ctx context.Context, e fs.DirEntry) (c candidate, ok bool) {
	name := e.Name()
	if s.cfg.Ignores(name) {
		return c, false
	}
	fi, err := os.Lstat(filepath.Join(s.inbox, name))
	if err != nil {
		return c, false // it vanished: normal
	}
	if why := unfit(fi); why != nil {
		s.skip(name, why)
		return c, false
	}
	c = candidate{name: name, size: fi.Size()}
	if s.cfg.Complete == Summed {
		c.sum, ok = s.summed(ctx, name, fi)
	} else {
		ok = s.complete(name, fi)
	}
	return c, ok && !s.isStopped(fi)
}

func unfit(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return ErrNotRegular
	}
	if _, links := inode(fi); links > 1 {
		return ErrHardLink
	}
	return nil
}

// Ignores reports that a file of this name in inbox/ is not one of the queue: it
// is ours or nobody's, a sidecar, or still under a temporary name.
func (c Config) Ignores(name string) bool {
	if strings.HasPrefix(name, ".") || isSidecar(name) {
		return true
	}
	if c.Complete == Marked {
		return strings.HasSuffix(name, cmp.Or(c.MarkerSuffix, ".ok"))
	}
	if _, sum := SumOf(name); sum && c.Complete == Summed {
		return true
	}
	return isTemporary(name)
}

func isTemporary(name string) bool {
	if strings.HasSuffix(name, "~") {
		return true
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".tmp", ".part", ".filepart", ".swp", ".crdownload":
		return true
	}
	return false
}

// complete applies the rule by which writers say that they are finished.
func (s *scanner) complete(name string, fi fs.FileInfo) bool {
	switch s.cfg.Complete {
	case Marked:
		return exists(filepath.Join(s.inbox, name+s.cfg.MarkerSuffix))
	case Settled:
		return s.settled(name, identify(fi), time.Now())
	}
	return true
}

// settled notes another look at a file. The age counts from our first sight
// of it in this state: a copy may keep an old modification time.
func (s *scanner) settled(name string, id identity, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[name]
	switch {
	case seen == nil && len(s.seen) >= maxTracked:
		return false
	case seen == nil || !seen.same(id):
		s.seen[name] = &sighting{identity: id, first: now, last: now, scans: 1, pass: s.pass}
	case now.Sub(seen.last) >= s.cfg.Poll/2:
		seen.last, seen.pass = now, s.pass
		seen.scans++
	default:
		seen.pass = s.pass
	}
	return s.isSettled(s.seen[name], now)
}

func (s *scanner) isSettled(seen *sighting, now time.Time) bool {
	return seen != nil && seen.scans >= s.cfg.Scans && now.Sub(seen.first) >= s.cfg.MinAge
}

// skip reports a file that is left where it is, once as long as it is there.
func (s *scanner) skip(name string, why error) {
	s.mu.Lock()
	_, known := s.skipped[name]
	if known || len(s.skipped) < maxTracked {
		s.skipped[name] = s.pass
	}
	s.mu.Unlock()
	if !known {
		s.cfg.Report(name, why)
	}
}

// stop keeps a file from being claimed again by this process.
func (s *scanner) stop(id identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[id] = true
}

func (s *scanner) isStopped(fi fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stopped) > 0 && s.stopped[identify(fi)]
}
