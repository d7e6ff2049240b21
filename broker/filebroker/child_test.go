//go:build unix

package filebroker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
)

// childEnv holds the plan of a child: the test binary run again as a worker
// that can be killed for real.
const childEnv = "FILEBROKER_TEST_PLAN"

// plan is what a child does.
type plan struct {
	Root     string
	Files    Files
	Complete Complete
	LinkOnly bool
	Lease    time.Duration
	// DieAt kills the child at the Nth (from 1) hit of a point.
	DieAt fault.Point
	Nth   int
	// GiveBack closes the queue with everything unsettled.
	GiveBack bool
	// Hold waits, after the first deliveries, for a line on standard input
	// before it settles.
	Hold bool

	table *table
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var p plan
		if err := json.Unmarshal([]byte(text), &p); err == nil {
			err = p.run()
			if err == nil {
				os.Exit(0)
			}
			fmt.Println("child:", err)
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func (p plan) run() error {
	p.table = &table{root: p.Root, files: p.Files, epoch: map[string]int64{}}
	p.arm()
	q, err := Open(context.Background(), Config{Root: p.Root, Files: p.Files, Complete: p.Complete, MinAge: time.Millisecond, Scans: 2,
		Poll: time.Millisecond, Lease: p.Lease, linkOnly: p.LinkOnly,
		Report: func(name string, err error) { fmt.Printf("report %q: %v\n", name, err) }})
	if err != nil {
		return err
	}
	if o, ok := q.(broker.Owned); ok {
		o.Bind(p.table)
	}
	fmt.Println("worker", filepath.Base(coreOf(q).me.dir))
	if err := p.work(q); err != nil {
		return err
	}
	return q.Close(context.Background())
}

func (p plan) arm() {
	if p.DieAt == "" {
		return
	}
	var mu sync.Mutex
	left := max(p.Nth, 1)
	fault.Arm(func(at fault.Point) {
		mu.Lock()
		defer mu.Unlock()
		if at == p.DieAt {
			if left--; left == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	})
}

// work drains the queue: bodies with "bad" are rejected, the rest is acked.
func (p plan) work(q Queue) error {
	in := bufio.NewReader(os.Stdin)
	budget, patience := broker.Budget{Messages: 3, Bytes: 1 << 20}, 20*time.Millisecond
	if p.GiveBack {
		budget.Messages, patience = 100, time.Minute
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ds, err := q.Receive(ctx, budget)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			if d, err := q.Depth(context.Background()); err != nil || d.Empty() {
				return err
			}
			continue
		case err != nil:
			return err
		case p.GiveBack:
			return nil
		}
		for _, d := range ds {
			fmt.Printf("got %s %d %q\n", d.Position.Scope.Name, d.Takeover, d.Returns)
			if d.Malformed != nil {
				fmt.Println("malformed", d.Position.Scope.Name, d.Malformed)
			}
		}
		if p.Hold {
			fmt.Println("holding")
			if _, err := in.ReadString('\n'); err != nil {
				return err
			}
			p.Hold = false
		}
		if err := p.decide(q, ds); err != nil {
			return err
		}
	}
}

// decide commits and settles what the table takes; the rest belongs to others.
func (p plan) decide(q Queue, ds []semel.Delivery) error {
	ds, fenced, err := p.table.commit(ds)
	if err != nil {
		return err
	}
	if len(fenced) > 0 {
		fmt.Println("fenced", fenced)
		q.(*lines).Fenced(fenced)
	}
	s := acks(ds)
	for i, d := range ds {
		if bytes.Contains(d.Body, []byte("bad")) || d.Malformed != nil {
			s[i].Verb, s[i].Letter, s[i].Why = broker.Reject, "letter of "+d.Position.Scope.Name, "it is bad"
		}
	}
	out := make([]broker.Settled, len(s))
	if err := q.Settle(context.Background(), s, out); err != nil {
		return err
	}
	for _, o := range out {
		fmt.Println("settled", o)
	}
	return nil
}

// table stands for the database: fences and decisions, in files beside the
// four directories. A lock stands for its transactions.
type table struct {
	root  string
	files Files
	epoch map[string]int64 // of our assignments
}

// fenceRow is the row of one scope.
type fenceRow struct{ Epoch, Next int64 }

func (t *table) path(name string) string { return filepath.Join(t.root, name) }

// locked runs fn on the rows and writes them.
func (t *table) locked(fn func(rows map[string]fenceRow) error) error {
	lock, err := os.OpenFile(t.path("table.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	rows := map[string]fenceRow{}
	if b, err := os.ReadFile(t.path("table")); err == nil {
		if err := json.Unmarshal(b, &rows); err != nil {
			return err
		}
	}
	if err := fn(rows); err != nil {
		return err
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.path("table.new"), b, 0o666); err != nil {
		return err
	}
	return os.Rename(t.path("table.new"), t.path("table"))
}

// commit records decisions before they are settled. Scopes that another
// worker was assigned meanwhile are left out.
func (t *table) commit(ds []semel.Delivery) (kept []semel.Delivery, fenced []semel.Scope, err error) {
	err = t.locked(func(rows map[string]fenceRow) error {
		var decided strings.Builder
		for _, d := range ds {
			key := d.Position.Scope.String()
			row := rows[key]
			if t.files != Whole && (row.Epoch != t.epoch[key] || d.Position.Lo < row.Next) {
				fenced = append(fenced, d.Position.Scope)
				continue
			}
			row.Next = d.Next.Lo
			rows[key] = row
			kept = append(kept, d)
			fmt.Fprintf(&decided, "%s %s\n", d.Position, d.Body)
		}
		f, err := os.OpenFile(t.path("decided"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(decided.String())
		return err
	})
	return kept, fenced, err
}

func (t *table) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	at := make([]semel.Offset, len(as))
	err := t.locked(func(rows map[string]fenceRow) error {
		for i, a := range as {
			fmt.Printf("assigned %s %d\n", a.Scope.Name, a.Takeover)
			key := a.Scope.String()
			row := rows[key]
			row.Epoch++
			rows[key], t.epoch[key], at[i].Lo = row, row.Epoch, row.Next
		}
		return nil
	})
	return at, err
}

func (t *table) Revoked(context.Context, []semel.Scope) error { return nil }

func (t *table) Lost(ss []semel.Scope) {
	for _, s := range ss {
		fmt.Println("lost", s.Name)
	}
}

// child is a running worker.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *os.File
	lines chan string
	seen  []string
}

func start(t *testing.T, p plan) *child {
	t.Helper()
	return startBinary(t, os.Args[0], p, nil)
}

func startBinary(t *testing.T, binary string, p plan, attr *syscall.SysProcAttr) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(binary, "-test.run=^$"), lines: make(chan string, 1000)}
	c.cmd.SysProcAttr = attr
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.cmd.Stdin, c.cmd.Stderr = w, r, os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { c.cmd.Process.Kill(); w.Close() })
	return c
}

// until reads the child's output up to a line that begins with prefix.
func (c *child) until(prefix string) string {
	c.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.t.Fatalf("the child ended without saying %q; it said %q", prefix, c.seen)
			}
			c.seen = append(c.seen, line)
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-late:
			c.t.Fatalf("the child does not say %q; it said %q", prefix, c.seen)
		}
	}
}

// wait reads the rest and returns how the child ended.
func (c *child) wait() error {
	for line := range c.lines {
		c.seen = append(c.seen, line)
	}
	return c.cmd.Wait()
}

func (c *child) said(text string) bool { return strings.Contains(strings.Join(c.seen, "\n"), text) }

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) tell(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Fatal(err)
	}
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}
