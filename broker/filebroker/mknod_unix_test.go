//go:build unix && !linux

package filebroker

import "syscall"

// mknod stands for a device node by a second pipe: their making differs from
// system to system.
func mknod(path string) error { return syscall.Mkfifo(path, 0o666) }
