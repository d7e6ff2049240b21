//go:build unix

package trap

import (
	"os"
	"os/signal"
	"syscall"
)

// stopSelf stops the process until somebody continues it. It waits for the
// continuation: a thread that ran on for a moment could do what the stop is to
// prevent.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) == nil {
		<-continued
	}
}
