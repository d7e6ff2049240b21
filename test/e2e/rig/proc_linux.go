package rig

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

func maxRSS(ru *syscall.Rusage) int64 { return ru.Maxrss * 1024 }

// stopped reads the state behind the name, which may hold anything.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(stat, ')')
	return err == nil && at >= 0 && bytes.HasPrefix(stat[at:], []byte(") T"))
}
