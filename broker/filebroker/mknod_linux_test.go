package filebroker

import "syscall"

// mknod makes the device node of /dev/null.
func mknod(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3) }
