// Package trap lets a test that runs a real process have it die, or stop, at a
// named point. For such tests, and for nobody else, there are two variables:
//
//	SEMEL_FAULT=POINT[:n]        the n-th time (default 1) that the process comes
//	                             to the point, it kills itself with SIGKILL
//	SEMEL_FAULT=POINT[:n]=stop   it stops itself instead, until SIGCONT
//	SEMEL_FAULT_LOG=PATH         every point that is reached is appended to the
//	                             file once, before the process dies
//
// Without them nothing is armed, and a point costs one atomic load.
package trap

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/semel-dev/semel/fault"
)

const (
	faultVar = "SEMEL_FAULT"
	logVar   = "SEMEL_FAULT_LOG"
)

// Arm arms what the environment asks for, at one of the points that the program
// can come to, until restore is called.
func Arm(getenv func(string) string, points []fault.Point) (restore func(), err error) {
	spec, path := getenv(faultVar), getenv(logVar)
	if spec == "" && path == "" {
		return func() {}, nil
	}
	t := &trap{seen: map[fault.Point]bool{}, spring: Kill}
	if spec, stop := strings.CutSuffix(spec, "=stop"); spec != "" {
		if stop {
			t.spring = stopSelf
		}
		if t.point, t.left, err = parse(spec, points); err != nil {
			return nil, err
		}
	}
	if path != "" {
		if t.log, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
			return nil, fmt.Errorf("%s: %w", logVar, err)
		}
	}
	disarm := fault.Arm(t.hit)
	return func() {
		disarm()
		if t.log != nil {
			t.log.Close()
		}
	}, nil
}

func parse(spec string, points []fault.Point) (p fault.Point, n int, err error) {
	name, count, counted := strings.Cut(spec, ":")
	n = 1
	if counted {
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			return "", 0, fmt.Errorf("%s: %q is not a count from 1", faultVar, count)
		}
	}
	if p = fault.Point(name); !slices.Contains(points, p) {
		return "", 0, fmt.Errorf("%s: unknown point %q: one of %v", faultVar, name, points)
	}
	return p, n, nil
}

// trap notes points and springs at one of them.
type trap struct {
	mu    sync.Mutex
	seen  map[fault.Point]bool
	log   *os.File
	point fault.Point
	left  int
	// spring is what happens there.
	spring func()
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
		t.spring()
	}
}

// Kill ends the process like kill -9 does, and does not return: a point that
// is passed although the signal is under way would be another crash.
func Kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGKILL)
	}
	if err != nil {
		os.Exit(137)
	}
	select {}
}
