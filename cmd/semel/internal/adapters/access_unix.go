//go:build unix

package adapters

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// writable asks the system without trying it out.
func writable(path string) error { return unix.Access(path, unix.W_OK) }

// linked reports whether a file has more than one name.
func linked(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
