//go:build !unix

package filebroker

import (
	"errors"
	"io/fs"
	"os"
)

// inode has no answer here; size and modification time have to do.
func inode(fs.FileInfo) (ino, links uint64) { return 0, 1 }

func openClaimed(path string) (*os.File, error) { return os.Open(path) }

func crossDevice(error) bool { return false }

func unreadable(err error) bool { return errors.Is(err, fs.ErrPermission) }
