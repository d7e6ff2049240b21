package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where a filter finds the number of the call and the lower half of its
// fourth argument (on little-endian machines).
const (
	number = 0
	fourth = 40
)

// confine installs filters for the calls.
func confine(norename bool, nospace uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if norename {
		if err := install(
			load(number),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_RENAMEAT2},
			answer(unix.ENOSYS), allow()); err != nil {
			return err
		}
	}
	if nospace == 0 {
		return nil
	}
	return install(
		load(number),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_PWRITE64},
		load(fourth),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: nospace},
		answer(unix.ENOSPC), allow())
}

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func answer(e unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

func allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

func install(filter ...unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return nil
}
