package filebroker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/broker"
)

// Depth implements broker.Measurer. Waiting are the complete files of inbox/
// without those that were reported and left; Claimed are the files of all
// workers; Settling are those that the rules Settled and Summed still wait for. What a
// writer has not renamed or marked yet is not in the queue. It reads the
// directories: about a microsecond per file.
func (c *core) Depth(ctx context.Context) (broker.Depth, error) {
	d, err := c.count(ctx)
	if err == nil && d.Empty() {
		// A claim given back between the two looks was in neither.
		return c.count(ctx)
	}
	return d, err
}

func (c *core) count(ctx context.Context) (d broker.Depth, err error) {
	err = eachEntry(ctx, c.dirs.inbox, func(e fs.DirEntry) {
		switch waiting, settling := c.scan.counts(e); {
		case waiting:
			d.Waiting++
		case settling:
			d.Settling++
		}
	})
	if err != nil {
		return d, err
	}
	d.Claimed, err = countClaimed(ctx, c.dirs.processing, 2)
	return d, err
}

// countClaimed counts the files in claims, which are depth directories below
// dir. A claim without a file that is not empty counts as one: a marker was
// taken and its file not yet, or a sidecar has to follow its file.
func countClaimed(ctx context.Context, dir string, depth int) (n int64, err error) {
	var below []string
	hidden := false
	err = eachEntry(ctx, dir, func(e fs.DirEntry) {
		switch {
		case depth > 0 && e.IsDir():
			below = append(below, filepath.Join(dir, e.Name()))
		case depth == 0 && e.Name()[0] == '.':
			hidden = true
		case depth == 0:
			n++
		}
	})
	if n == 0 && hidden {
		n = 1
	}
	for _, sub := range below {
		if err != nil {
			break
		}
		var in int64
		in, err = countClaimed(ctx, sub, depth-1)
		n += in
	}
	return n, err
}

// counts says how an entry of inbox/ counts, without noting that it was seen.
func (s *scanner) counts(e fs.DirEntry) (waiting, settling bool) {
	name := e.Name()
	if s.cfg.Ignores(name) || !e.Type().IsRegular() {
		return false, false
	}
	fi, err := os.Lstat(filepath.Join(s.inbox, name))
	if err != nil || unfit(fi) != nil || s.isStopped(fi) {
		return false, false
	}
	switch s.cfg.Complete {
	case Marked:
		return s.complete(name, fi), false
	case Settled:
		s.mu.Lock()
		defer s.mu.Unlock()
		ready := s.isSettled(s.seen[name], time.Now())
		return ready, !ready
	case Summed:
		if _, _, ok := s.beside(name); !ok {
			return false, false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		sum := s.sums[name]
		ready := sum != nil && s.isComplete(sum, time.Now())
		return ready, !ready
	}
	return true, false
}

// eachEntry calls fn for every entry; a directory that vanished has none.
func eachEntry(ctx context.Context, dir string, fn func(fs.DirEntry)) error {
	f, err := os.Open(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer f.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := f.ReadDir(scanChunk)
		for _, e := range entries {
			fn(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ignoreMissing(err)
		}
	}
}
