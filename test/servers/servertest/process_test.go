package servertest

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// child is a process that uses servers.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	dirs  []string // of the servers that it got
}

// spawn starts a child and waits until it has its servers.
func spawn(t *testing.T, what string, env ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), append(env, "SEMEL_TEST_CHILD="+what)...)
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.end(true) })
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if dir, ok := strings.CutPrefix(scan.Text(), "dir "); ok {
			c.dirs = append(c.dirs, dir)
		} else if scan.Text() != "ready" {
			t.Fatal(scan.Text())
		} else {
			return c
		}
	}
	t.Fatal("the child ended early")
	return nil
}

// end kills the child, or lets it return from main without having stopped a
// server.
func (c *child) end(kill bool) {
	if kill {
		_ = c.cmd.Process.Kill()
	}
	c.stdin.Close()
	_ = c.cmd.Wait()
}

// Without a host, a process starts servers for itself, and whatever ends it ends
// them: kill -9 as well.
func TestServersEndWithTheirProcess(t *testing.T) {
	for _, c := range []struct {
		name, child string
		kinds       []Kind
		kill        bool
	}{
		{"kill -9", "hold", Kinds(), true},
		{"end of main", "hold", Kinds(), false},
		{"kill -9 while its server is paused", "paused", []Kind{Postgres}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := spawn(t, c.child, "SEMEL_TEST_CHILD_KINDS="+spaced(c.kinds), HostEnv+"=")
			if len(p.dirs) != len(c.kinds) {
				t.Fatalf("%d servers, want %d", len(p.dirs), len(c.kinds))
			}
			for _, dir := range p.dirs {
				if len(workingIn(dir)) == 0 {
					t.Errorf("nothing runs in %s", dir)
				}
			}
			p.end(c.kill)
			for _, dir := range p.dirs {
				rig.Until(t, dir+" is gone", func() bool {
					_, err := os.Stat(dir)
					return os.IsNotExist(err)
				})
				gone(t, dir)
			}
		})
	}
}

func spaced(kinds []Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, " ")
}

// A container that ends takes the keeper, too. The next start cleans up.
func TestSweep(t *testing.T) {
	p := spawn(t, "paused", HostEnv+"=")
	dir := p.dirs[0]
	keeper := exec.Command("sh", "-c", `for p in /proc/[0-9]*; do grep -qs "keeper.$1\$" "$p/cmdline" && kill -9 "${p#/proc/}"; done; :`, "sh", dir)
	if out, err := keeper.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sweep()
	if len(workingIn(dir)) == 0 {
		t.Fatal("a server whose owner lives was swept away")
	}
	p.end(true)
	rig.Until(t, "the note is given up", func() bool { return orphaned(filepath.Join(dir, "note")) })
	if len(workingIn(dir)) == 0 {
		t.Fatal("the keeper lives: there is nothing to sweep")
	}
	sweep()
	gone(t, dir)
}

// Processes of one run share a server, which is stopped when none uses it.
func TestHost(t *testing.T) {
	var told strings.Builder
	h, err := Listen(filepath.Join(t.TempDir(), "h"), time.Millisecond, &told)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	both := []string{"SEMEL_TEST_CHILD_KINDS=redis postgres", h.Env()}
	one, two := spawn(t, "hold", both...), spawn(t, "hold", both...)
	if strings.Join(one.dirs, " ") != strings.Join(two.dirs, " ") || len(one.dirs) != 2 {
		t.Fatalf("the servers of two processes: %v, %v", one.dirs, two.dirs)
	}
	one.end(true)
	if third := spawn(t, "hold", both...); strings.Join(third.dirs, " ") != strings.Join(two.dirs, " ") {
		t.Fatalf("a server that was in use was stopped: %v, then %v", two.dirs, third.dirs)
	} else {
		third.end(true)
	}
	two.end(true)
	for _, dir := range two.dirs {
		rig.Until(t, "an idle server is stopped", func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		})
		gone(t, dir)
	}
	again := spawn(t, "hold", both...)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range again.dirs {
		gone(t, dir)
	}
	if text := told.String(); strings.Count(text, "redis 7") != 2 {
		t.Errorf("two starts of redis were not told:\n%s", text)
	}
}

func TestHostRefuses(t *testing.T) {
	h, err := Listen(filepath.Join(t.TempDir(), "h"), 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	_, socket, _ := strings.Cut(h.Env(), "=")
	if _, err := request(t.Context(), socket, "oracle"); err == nil || !strings.Contains(err.Error(), "no server is called") {
		t.Errorf("an unknown server: %v", err)
	}
	if _, err := Listen(h.dir, 0, io.Discard); err == nil {
		t.Error("two hosts in one place")
	}
	done := make(chan error, 1)
	go func() { done <- Down(context.Background(), h.dir) }()
	<-h.Down()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("down: %v", err)
	}
	if _, err := request(t.Context(), socket, "redis"); err == nil || !strings.Contains(err.Error(), "still running") {
		t.Errorf("a host that is gone: %v", err)
	}
}
