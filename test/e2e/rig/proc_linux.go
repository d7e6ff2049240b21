package rig

import (
	"bytes"
	"fmt"
	"os"
)

// peak is the most memory that a process had so far.
func peak(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, line, _ := bytes.Cut(status, []byte("VmHWM:"))
	var kib int64
	if _, err := fmt.Sscanf(string(line), "%d kB", &kib); err != nil {
		return 0 // it has ended
	}
	return kib * 1024
}

// stopped reads the state behind the name, which may hold anything.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(stat, ')')
	return err == nil && at >= 0 && bytes.HasPrefix(stat[at:], []byte(") T"))
}
