package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait of a test. It is generous: the machine may be
// busy, and only a test that fails waits so long.
const Patience = 2 * time.Minute

// Command is a process to be started.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment of the test.
	Env []string
	Dir string
	// Attr, if not nil, is how the process is made.
	Attr *syscall.SysProcAttr
	// Measure fills Exit.Memory.
	Measure bool
}

// Process is one that was started. It does not outlive its test.
type Process struct {
	t        testing.TB
	cmd      *exec.Cmd
	began    time.Time
	out, err lockedBuffer
	ended    chan struct{}
	exit     Exit
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code, -1 if a signal ended it.
	Code   int
	Signal syscall.Signal
	Stdout string
	Stderr string
	Took   time.Duration
	// Memory is the most that it had in memory, in bytes, by samples; 0 where
	// that cannot be known.
	Memory int64
}

// Start starts a process.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(c.Path, c.Args...), began: time.Now(), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Dir, p.cmd.SysProcAttr = c.Dir, c.Attr
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var memory func() int64
	if c.Measure {
		memory = p.measure()
	}
	go p.reap(memory)
	t.Cleanup(func() {
		p.Signal(syscall.SIGCONT)
		p.Signal(syscall.SIGKILL)
		<-p.ended
	})
	return p
}

// measure samples the peak until the process ends. What wait4 says of it
// includes the peak of the test itself, which the process was made from.
func (p *Process) measure() func() int64 {
	quit, result := make(chan struct{}), make(chan int64, 1)
	go func() {
		t := time.NewTicker(5 * time.Millisecond)
		defer t.Stop()
		var most int64
		for {
			select {
			case <-t.C:
				most = max(most, peak(p.PID()))
			case <-quit:
				result <- most
				return
			}
		}
	}()
	return func() int64 { close(quit); return <-result }
}

func (p *Process) reap(memory func() int64) {
	defer close(p.ended)
	err := p.cmd.Wait()
	p.exit = Exit{Code: p.cmd.ProcessState.ExitCode(), Took: time.Since(p.began), Stdout: p.out.String(), Stderr: p.err.String()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal()
	}
	if memory != nil {
		p.exit.Memory = memory()
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		p.exit.Stderr += "\nwait: " + err.Error()
	}
}

// Wait waits until the process has ended. If it does not, the test fails with
// what its goroutines did.
func (p *Process) Wait() Exit {
	p.t.Helper()
	return p.WaitFor(Patience)
}

// WaitFor is Wait with another patience.
func (p *Process) WaitFor(patience time.Duration) Exit {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Signal(syscall.SIGCONT)
		p.Signal(syscall.SIGQUIT)
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
			p.Signal(syscall.SIGKILL)
			<-p.ended
		}
		p.t.Fatalf("inconclusive: %v did not end within %v\n%s", p.cmd.Args, patience, tail(p.exit.Stderr, 200))
	}
	return p.exit
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Alive reports whether it has not ended yet.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal; a process that has ended does not mind.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Stopped reports whether it was stopped by SIGSTOP and is still so.
func (p *Process) Stopped() bool { return p.Alive() && stopped(p.PID()) }

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends it like kill -9 does.
func (p *Process) Kill() Exit {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	return p.Wait()
}

// Stderr is what it wrote so far.
func (p *Process) Stderr() string { return p.err.String() }

// Run starts a process and waits for its end.
func Run(t testing.TB, c Command) Exit {
	t.Helper()
	return Start(t, c).Wait()
}

// Killed reports whether it died by SIGKILL.
func (e Exit) Killed() bool { return e.Signal == syscall.SIGKILL }

// String says how it ended, for the message of a failure.
func (e Exit) String() string {
	how := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != 0 {
		how = "killed by " + e.Signal.String()
	}
	return fmt.Sprintf("%s after %v\n--- stdout\n%s\n--- stderr\n%s", how, e.Took.Round(time.Millisecond), tail(e.Stdout, 60), tail(e.Stderr, 60))
}

// Summary is the last line of run --json.
type Summary struct {
	Received, Taken, Applied, Duplicates, Superseded, Conflicts, Filtered int64
	Parked, Released, Dropped, Dead                                       int64
	Balanced                                                              bool
}

// Summary reads it; without one the test fails.
func (e Exit) Summary(t testing.TB) Summary {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(e.Stdout), "\n")
	var s Summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		t.Fatalf("no summary in the last line: %v\n%v", err, e)
	}
	return s
}

// JSON reads everything the process wrote as one value.
func (e Exit) JSON(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Stdout), into); err != nil {
		t.Fatalf("not JSON: %v\n%v", err, e)
	}
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("… %d lines", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}

// lockedBuffer can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Until looks again and again until something is seen. It gives up, and fails
// the test, at the deadline.
func Until(t testing.TB, what string, seen func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !seen() {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("inconclusive: not seen within %v: %s", Patience, what)
		}
	}
}
