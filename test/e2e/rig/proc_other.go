//go:build !linux

package rig

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
)

func maxRSS(ru *syscall.Rusage) int64 { return ru.Maxrss }

func stopped(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && bytes.HasPrefix(bytes.TrimSpace(out), []byte("T"))
}
