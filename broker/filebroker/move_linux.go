package filebroker

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	atFDCWD         = -100
	renameNoReplace = 1
)

// renameat2 is the number of the system call; package syscall is frozen and
// names it for few architectures only. 0: not known.
func renameat2() uintptr {
	switch runtime.GOARCH {
	case "amd64":
		return 316
	case "arm64", "riscv64", "loong64":
		return 276
	case "386":
		return 353
	case "arm":
		return 382
	case "ppc64", "ppc64le":
		return 357
	case "s390x":
		return 347
	}
	return 0
}

// renameNew renames old to new in one step unless new exists. It returns
// errNoNative where kernel or file system cannot do that.
func renameNew(old, new string) error {
	nr := renameat2()
	if nr == 0 {
		return errNoNative
	}
	from, err := syscall.BytePtrFromString(old)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(new)
	if err != nil {
		return err
	}
	at := atFDCWD
	for {
		_, _, errno := syscall.Syscall6(nr, uintptr(at), uintptr(unsafe.Pointer(from)), uintptr(at), uintptr(unsafe.Pointer(to)), renameNoReplace, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
			continue
		case syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP:
			return errNoNative
		}
		return &os.LinkError{Op: "rename", Old: old, New: new, Err: errno}
	}
}
