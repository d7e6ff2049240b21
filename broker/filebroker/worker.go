package filebroker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// worker is one registration of this process: a directory below processing/
// with a lock file. A process that was silent for too long loses it and
// registers again under another name.
type worker struct {
	name, dir string
	lock      *os.File
	claims    atomic.Uint64
	lost      atomic.Bool
	wake      func() // called when lost becomes true
	quit      chan struct{}
	ended     chan struct{}
}

// workerName is new for every registration, so a restarted process never
// takes its earlier self for alive.
func workerName(base string) string {
	if base == "" {
		host, _ := os.Hostname()
		if len(host) > maxWorker-12 {
			host = host[:maxWorker-12]
		}
		base = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	var b [6]byte
	rand.Read(b[:])
	return base + "-" + hex.EncodeToString(b[:])
}

// register makes the worker's directory. It appears under its name with the
// lock taken: nobody can find it between the two and think its owner dead.
func register(l layout, cfg Config, wake func()) (*worker, error) {
	name := workerName(cfg.Worker)
	w := &worker{name: name, dir: filepath.Join(l.processing, name), wake: wake, quit: make(chan struct{}), ended: make(chan struct{})}
	hidden := filepath.Join(l.processing, "."+name)
	if err := os.Mkdir(hidden, 0o777); err != nil {
		return nil, err
	}
	err := w.appear(hidden)
	if err != nil {
		if w.lock != nil {
			w.lock.Close()
		}
		return nil, errors.Join(err, os.RemoveAll(hidden))
	}
	go w.beat(cfg.Lease / 6)
	return w, nil
}

func (w *worker) appear(hidden string) (err error) {
	w.lock, err = os.OpenFile(filepath.Join(hidden, lockName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	if err := tryLock(w.lock); err != nil && !errors.Is(err, errNoLocks) {
		return err
	}
	if _, err := touch(w.lock, filepath.Join(hidden, lockName)); err != nil {
		return err
	}
	return w.show(hidden)
}

// show renames the directory, lock included, to where it is found.
func (w *worker) show(hidden string) (err error) {
	if lockSurvivesMove {
		return os.Rename(hidden, w.dir)
	}
	w.lock.Close()
	if err := os.Rename(hidden, w.dir); err != nil {
		return err
	}
	w.lock, err = os.OpenFile(filepath.Join(w.dir, lockName), os.O_RDWR, 0)
	return err
}

// beat shows that this process runs. It waits for nothing else, least of all
// for a database.
func (w *worker) beat(every time.Duration) {
	defer close(w.ended)
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-t.C:
			if !w.mine() {
				w.lost.Store(true)
				w.wake()
				return
			}
			_, _ = w.touch() // the next beat may do better; a lease has six
		}
	}
}

// mine reports whether the directory still holds our lock file. A reaper
// removes it when it has taken the claims.
func (w *worker) mine() bool {
	there, err := os.Lstat(filepath.Join(w.dir, lockName))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	ours, err := w.lock.Stat()
	return err != nil || os.SameFile(there, ours)
}

// touch renews the lock file and returns the time that the file system gave
// it. Writing takes the clock of the file system, not that of this host.
func (w *worker) touch() (time.Time, error) { return touch(w.lock, filepath.Join(w.dir, lockName)) }

func touch(f *os.File, path string) (time.Time, error) {
	if _, err := f.WriteAt([]byte{'.'}, 0); err != nil {
		// A full file system may refuse even one byte in place of another.
		now := time.Now()
		if os.Chtimes(path, now, now) != nil {
			return time.Time{}, err
		}
	}
	fi, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return fi.ModTime(), nil
}

// claimDir makes a directory for a claim.
func (w *worker) claimDir() (string, error) {
	dir := w.nextClaim("")
	return dir, os.Mkdir(dir, 0o777)
}

// nextClaim names one; suffix is what a claim carries in its name.
func (w *worker) nextClaim(suffix string) string {
	return filepath.Join(w.dir, strconv.FormatUint(w.claims.Add(1), 10)+suffix)
}

// halt stops the heartbeat.
func (w *worker) halt() {
	close(w.quit)
	<-w.ended
}

// leave frees the lock and removes what is empty.
func (w *worker) leave() {
	w.lock.Close()
	if entries, err := os.ReadDir(w.dir); err == nil && len(entries) == 1 {
		// Only the lock file: nothing is left to take over.
		os.Remove(filepath.Join(w.dir, lockName))
		os.Remove(w.dir)
	}
}
