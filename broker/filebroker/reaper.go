package filebroker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
)

// reapIfDue takes over what workers left that are dead or silent. It looks
// often: the claims of a dead worker are the only messages that wait.
func (c *core) reapIfDue() error {
	now := time.Now()
	if now.Before(c.nextReap) {
		return nil
	}
	c.nextReap = now.Add(max(c.cfg.Poll, c.cfg.Lease/30))
	if !c.me.mine() {
		return errLost
	}
	return c.reap()
}

func (c *core) reap() error {
	others, err := os.ReadDir(c.dirs.processing)
	if err != nil {
		return err
	}
	clock, err := c.me.touch()
	if err != nil {
		return err
	}
	for _, e := range others {
		dir := filepath.Join(c.dirs.processing, e.Name())
		switch {
		case dir == c.me.dir || !e.IsDir():
		case e.Name()[0] == '.':
			c.sweep(dir, clock)
		default:
			if err := c.takeOver(dir, clock); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep removes what a process left that died while it registered.
func (c *core) sweep(dir string, clock time.Time) {
	if fi, err := os.Lstat(dir); err == nil && clock.Sub(fi.ModTime()) > c.cfg.Lease {
		os.Remove(filepath.Join(dir, lockName))
		os.Remove(dir)
	}
}

// takeOver moves the claims of a worker that is dead or silent into our own
// directory, whole claims at a time; of two that try, the rename lets one win.
func (c *core) takeOver(dir string, clock time.Time) error {
	how, lock, err := c.verdict(dir, clock)
	if err != nil || how == semel.Fresh {
		return err
	}
	if lock != nil {
		defer lock.Close()
	}
	claims, err := os.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, e := range claims {
		if e.IsDir() {
			if err := c.adopt(dir, e.Name(), how); err != nil {
				return err
			}
		}
	}
	for _, stage := range c.dirs.all() {
		os.Remove(filepath.Join(stage, probePrefix+filepath.Base(dir)))
	}
	os.Remove(filepath.Join(dir, lockName))
	os.Remove(dir)
	return nil
}

// verdict says how the owner of dir ended: semel.Fresh means it did not. The
// clock is the time that the file system gave our own lock file just now: the
// clocks of two hosts are never compared.
func (c *core) verdict(dir string, clock time.Time) (semel.Takeover, *os.File, error) {
	path := filepath.Join(dir, lockName)
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		// A worker appears with its lock file. Without one, others have begun
		// to take over what it has.
		return semel.Orphaned, nil, nil
	}
	if err != nil {
		return semel.Fresh, nil, err
	}
	if tryLock(lock) == nil {
		// Nobody shall take us, who hold it now, for silent. If it fails, another
		// reaper may take some of the claims, as orphaned.
		_, _ = touch(lock, path)
		return semel.Crashed, lock, nil
	}
	defer lock.Close()
	fi, err := lock.Stat()
	if err != nil || clock.Sub(fi.ModTime()) <= c.cfg.Lease {
		return semel.Fresh, nil, err
	}
	return semel.Orphaned, nil, nil
}

// adopt renames one claim into our own directory.
func (c *core) adopt(dir, name string, how semel.Takeover) error {
	incarnation, was, left := parseClaim(name)
	if left {
		how = was
	}
	suffix := ""
	if incarnation != "" {
		suffix = "." + incarnation
	}
	cl := &claim{dir: c.me.nextClaim(suffix), takeover: how, old: true}
	if err := os.Rename(filepath.Join(dir, name), cl.dir); err != nil {
		if !exists(c.me.dir) {
			return errLost
		}
		return ignoreMissing(err)
	}
	fault.Hit(Taken)
	c.adopted = append(c.adopted, cl)
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unpack looks into the next claim that was taken over, finishes the moves
// that were under way, and puts its files on the list to hand over.
func (c *core) unpack() (bool, error) {
	if len(c.adopted) == 0 {
		return false, nil
	}
	cl := c.adopted[0]
	names, err := c.recover(cl)
	if err != nil {
		return false, c.orLost(err, cl.dir)
	}
	c.adopted = c.adopted[1:]
	if len(names) == 0 {
		os.Remove(cl.dir)
		return true, nil
	}
	c.mu.Lock()
	cl.files = len(names)
	c.mu.Unlock()
	for _, name := range names {
		f := &file{claim: cl, name: name}
		c.cameBack(f)
		c.todo = append(c.todo, f)
	}
	return true, nil
}
