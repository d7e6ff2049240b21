//go:build unix

package outside

import (
	"os/exec"
	"syscall"
)

// group gives a program a process group of its own, so that its end is that of
// everything it started.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
