package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// ownFiles are 40 events of 10 orders as somebody has them in a directory.
func ownFiles(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		body := fmt.Sprintf("{\n  \"eventId\": \"ev-%04x\",\n  \"order\": {\"id\": \"o-%d\", \"revision\": %d},\n  \"status\": %q,\n  \"total amount\": %d.25\n}\n",
			i*7919, i%10, i/10, []string{"placed", "paid", "packed", "sent"}[i/10], i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("order %02d.json", i)), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wantSent checks that each order has one row, with its last state.
func wantSent(t *testing.T, q *rig.Queue, table string) {
	t.Helper()
	if n, sent := q.Int("SELECT COUNT(*) FROM "+table), q.Int("SELECT COUNT(*) FROM "+table+" WHERE status = 'sent'"); n != 10 || sent != 10 {
		t.Errorf("%d rows, %d of them sent: want 10 and 10", n, sent)
	}
}

// initQueue is a queue that has no pipeline file yet.
func initQueue(t *testing.T) *rig.Queue {
	t.Helper()
	q := rig.NewQueue(t, "")
	if err := errors.Join(os.Remove(q.File), os.RemoveAll(q.Root)); err != nil {
		t.Fatal(err)
	}
	q.Root = filepath.Join(q.Dir, "own files")
	return q
}

// TestInitByFlags: somebody's own files, in a directory that is no queue yet.
// The commands that init shows are run as they are.
func TestInitByFlags(t *testing.T) {
	t.Parallel()
	q := initQueue(t)
	ownFiles(t, q.Root)
	args := []string{"init", q.File, "--source", q.Root, "--store", q.DB, "--name", "own orders", "--id", ".eventId"}
	e := rig.Run(t, rig.Command{Path: rig.Program(t, "cmd/semel"), Args: append(args, "--key", ".order.id", "--version", ".order.revision")})
	if e.Code != 0 || !strings.Contains(e.Stdout, "of 40 messages in the sample would be: 40 applied") || !strings.Contains(e.Stdout, "only those in inbox/ are taken") {
		t.Fatalf("init: %v", e)
	}
	_, next, _ := strings.Cut(e.Stdout, "\nnext:\n")
	if strings.Count(next, "\n") != 4 {
		t.Fatalf("want four commands: %v", e)
	}
	shell(t, q.Dir, next)
	wantSent(t, q, "own_orders")
	if n := len(q.Files("done")); n != 40 {
		t.Errorf("%d files in done/, want 40", n)
	}
	if e := rig.Run(t, rig.Command{Path: rig.Program(t, "cmd/semel"), Args: args}); e.Code != 1 || !strings.Contains(e.Stderr, "stays as it is") {
		t.Errorf("a second time: want it refused: %v", e)
	}
	if s := q.Drain(0); s.Received != 0 {
		t.Errorf("the file works no more: %+v", s)
	}
}

// shell runs commands as they are shown to people, in dir, and returns what
// they say.
func shell(t *testing.T, dir, commands string) string {
	t.Helper()
	c := exec.Command("sh", "-e", "-c", "semel() { "+rig.Program(t, "cmd/semel")+` "$@"; }`+"\n"+commands)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands that are shown:\n%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}

// conversation is a person at a terminal.
type conversation struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	mu   sync.Mutex
	text strings.Builder
	read int // up to here it was answered
	end  chan struct{}
}

// talk starts a program on a terminal of its own.
func talk(t *testing.T, dir string, args ...string) *conversation {
	t.Helper()
	c := &conversation{t: t, cmd: exec.Command(rig.Program(t, "cmd/semel"), args...), end: make(chan struct{})}
	c.cmd.Dir = dir
	tty, err := pty.Start(c.cmd)
	if err != nil {
		t.Fatal(err)
	}
	c.tty = tty
	go func() {
		defer close(c.end)
		_, _ = io.Copy(c, tty) // ends with an error when the terminal is gone
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = tty.Close()
		<-c.end
	})
	return c
}

func (c *conversation) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(b)
}

func (c *conversation) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.text.String(), "\r\n", "\n")
}

// answer waits for a question and types a line.
func (c *conversation) answer(question, line string) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Log(c.String())
		}
	}()
	rig.Until(c.t, "the question "+question, func() bool {
		at := strings.Index(c.String()[c.read:], question)
		if at >= 0 {
			c.read += at + len(question)
		}
		return at >= 0
	})
	if _, err := io.WriteString(c.tty, line); err != nil {
		c.t.Fatal(err)
	}
}

// wait returns the exit code.
func (c *conversation) wait() int {
	c.t.Helper()
	err := c.cmd.Wait()
	<-c.end
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// TestInitAsks: on a terminal, each question has its proposal as default, a
// number picks another one, and a wrong answer is told why.
func TestInitAsks(t *testing.T) {
	t.Parallel()
	q := initQueue(t)
	ownFiles(t, q.Path("inbox"))
	c := talk(t, filepath.Dir(q.File), "init")
	c.answer("source [directory:spool]: ", q.Root+"\n")
	c.answer("name [own_files]: ", "orders\n")
	c.answer("store [sqlite:orders.db]: ", "postgres:x\n")
	c.answer("SQL for SQLite", "")
	c.answer("store [sqlite:orders.db]: ", q.DB+"\n")
	c.answer("1  .eventId", "")
	c.answer("id [.eventId]: ", ".eventId |\n")
	c.answer("ends early", "")
	c.answer("id [.eventId]: ", "1\n")
	c.answer("key [.order.id]: ", "\n")
	c.answer("version [.order.revision]: ", "\n")
	c.answer("table [orders]: ", "states\n")
	if code := c.wait(); code != 0 || !strings.Contains(c.String(), "40 applied") || !strings.Contains(c.String(), "wrote pipeline.yaml") {
		t.Fatalf("exit code %d\n%s", code, c)
	}
	if s := q.Drain(0); s.Applied != 40 {
		t.Errorf("%+v", s)
	}
	wantSent(t, q, "states")
}

// TestInitInterrupted: whoever leaves at a question has written nothing.
func TestInitInterrupted(t *testing.T) {
	t.Parallel()
	const eot, etx = "\x04", "\x03"
	for name, leave := range map[string]string{"end of input": eot, "Ctrl-C": etx} {
		t.Run(name, func(t *testing.T) {
			q := initQueue(t)
			ownFiles(t, q.Path("inbox"))
			c := talk(t, filepath.Dir(q.File), "init", "--source", q.Root)
			c.answer("name [own_files]: ", "\n")
			c.answer("store [", "\n")
			c.answer("id [.eventId]: ", leave)
			if code := c.wait(); code == 0 {
				t.Errorf("exit code 0\n%s", c)
			}
			if _, err := os.Stat(q.File); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file was written: %v", err)
			}
		})
	}
}

// TestInitAsksForTheDirectory that is not there yet.
func TestInitAsksForTheDirectory(t *testing.T) {
	t.Parallel()
	q := initQueue(t)
	c := talk(t, filepath.Dir(q.File), "init", "--source", q.Root, "--store", q.DB, "--name", "n", "--id", ".id", "--key", "-", "--table", "t")
	c.answer("sample [-]: ", "\n")
	c.answer("inbox/ does not exist. Create it? [Y/n] ", "y\n")
	if code := c.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, c)
	}
	q.Deliver("a.json", event("a"))
	if s := q.Drain(0); s.Applied != 1 || q.Int("SELECT COUNT(*) FROM t") != 1 {
		t.Errorf("%+v", s)
	}
}

// TestInitPlacesThatAreClosed: what may not be read or written is refused with
// its name, and no crash.
func TestInitPlacesThatAreClosed(t *testing.T) {
	t.Parallel()
	q := initQueue(t)
	ownFiles(t, q.Path("inbox"))
	closed := filepath.Join(q.Dir, "closed")
	if err := os.Mkdir(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(q.Root, filepath.Join(q.Dir, "own")); err != nil {
		t.Fatal(err)
	}
	q.Root = filepath.Join(q.Dir, "own")
	attr := nobody(t, q)
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) rig.Exit {
		return rig.Run(t, rig.Command{Path: rig.Program(t, "cmd/semel"), Args: append([]string{"init"}, args...), Attr: attr})
	}
	for _, args := range [][]string{
		{q.File, "--source", q.Root, "--sample", closed, "--yes"},
		{q.File, "--source", closed, "--id", ".id"},
		{filepath.Join(closed, "p.yaml"), "--source", q.Root, "--yes"},
		{q.File, "--source", q.Root, "--store", filepath.Join(closed, "x.db"), "--yes"},
	} {
		e := run(args...)
		if e.Code != 1 || !strings.Contains(e.Stderr, "permission denied") || !strings.Contains(e.Stderr, "closed") {
			t.Errorf("%v: %v", args, e)
		}
	}
	if _, err := os.Stat(q.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
	one := q.Path("inbox", "order 07.json")
	if err := os.Chmod(one, 0); err != nil {
		t.Fatal(err)
	}
	if e := run(q.File, "--source", q.Root, "--store", q.DB, "--yes"); e.Code != 3 || !strings.Contains(e.Stdout, "39 applied, 1 dead letter\n  order 07.json: permission denied") {
		t.Errorf("one file that may not be read: %v", e)
	}
	if err := os.Chmod(closed, 0o755); err != nil && !errors.Is(err, syscall.EPERM) {
		t.Fatal(err)
	}
}
