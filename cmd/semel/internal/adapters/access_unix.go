//go:build unix

package adapters

import "golang.org/x/sys/unix"

// writable asks the system without trying it out.
func writable(path string) error { return unix.Access(path, unix.W_OK) }
