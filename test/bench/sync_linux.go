package main

import (
	"os"
	"syscall"
)

// syncData is what SQLite does at a commit.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
