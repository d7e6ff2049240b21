//go:build unix

package adapters

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// writable asks the system without trying it out.
func writable(path string) error { return unix.Access(path, unix.W_OK) }

// links is how many names a file has.
func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}
