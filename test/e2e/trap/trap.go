// Package trap lets the test programs below test/e2e die at a named point, by
// the same variables as the binary:
//
//	SEMEL_FAULT=POINT[:n]        the n-th time (default 1) that the process
//	                             comes to the point, it kills itself
//	SEMEL_FAULT=POINT[:n]=stop   it stops itself instead, until SIGCONT
//	SEMEL_FAULT_LOG=PATH         every point that is reached is appended once
package trap

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/semel-dev/semel/fault"
)

// Arm arms what the environment asks for, for the life of the process.
func Arm() error {
	t := trap{seen: map[fault.Point]bool{}, signal: syscall.SIGKILL}
	if err := t.parse(os.Getenv("SEMEL_FAULT")); err != nil {
		return err
	}
	if path := os.Getenv("SEMEL_FAULT_LOG"); path != "" {
		log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		t.log = log
	}
	fault.Arm(t.hit)
	return nil
}

type trap struct {
	mu     sync.Mutex
	point  fault.Point
	left   int
	signal syscall.Signal
	seen   map[fault.Point]bool
	log    *os.File
}

func (t *trap) parse(spec string) (err error) {
	spec, stop := strings.CutSuffix(spec, "=stop")
	if stop {
		t.signal = syscall.SIGSTOP
	}
	point, count, counted := strings.Cut(spec, ":")
	t.point, t.left = fault.Point(point), 1
	if counted {
		if t.left, err = strconv.Atoi(count); err != nil {
			return fmt.Errorf("SEMEL_FAULT: %w", err)
		}
	}
	return nil
}

func (t *trap) hit(p fault.Point) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.log != nil && !t.seen[p] {
		t.seen[p] = true
		fmt.Fprintln(t.log, p)
	}
	if p != t.point {
		return
	}
	if t.left--; t.left == 0 {
		Raise(t.signal)
	}
}

// Raise sends the process a signal, SIGKILL or SIGSTOP. It does not return from
// the first, and from the second when the process has been continued: a thread
// that ran on for a moment could do what the stop is to prevent.
func Raise(s syscall.Signal) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		fmt.Fprintln(os.Stderr, "trap:", err)
		os.Exit(2)
	}
	<-continued
}
