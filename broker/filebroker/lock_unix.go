//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filebroker

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock of an open file without waiting. The lock ends with
// the process, whatever ends it.
func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return errNoLocks
	}
}

// lockSurvivesMove: a directory can be renamed while a file in it is open.
const lockSurvivesMove = true
