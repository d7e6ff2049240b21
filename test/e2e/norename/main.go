//go:build !linux

// Command norename runs a program as if the system had no rename that refuses
// to replace a file. Only Linux has one.
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	fmt.Fprintln(os.Stderr, "norename:", err)
	os.Exit(1)
}
