//go:build unix

package filebroker

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// inode returns the file's number and how many names it has.
func inode(fi fs.FileInfo) (ino, links uint64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 1
	}
	return uint64(st.Ino), uint64(st.Nlink) //nolint:unconvert // their types differ from system to system
}

// openClaimed opens a file for reading without following a link that was put
// in its place, and without waiting for the writer of a pipe.
func openClaimed(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

func crossDevice(err error) bool { return errors.Is(err, syscall.EXDEV) }

// unreadable tells a file that cannot be read from a system that cannot.
func unreadable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO)
}
