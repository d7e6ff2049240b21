package e2e

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// demonstration is what demo --json says.
type demonstration struct {
	Incidents []struct {
		Incident string
		Kills    int
		Expected int
		Late     int64
		Naive    demoSide
		Semel    demoSide
	}
	Shown    bool
	Problems []string
	Dir      string
}

type demoSide struct {
	Counted, Wrong, Left, Kills int
	Account                     struct {
		Applied, Duplicates, Superseded, Letters int64
		Balanced                                 bool
	}
}

// demo prepares semel demo in a directory for temporary files of its own.
func demo(t *testing.T, words string) (c rig.Command, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	return rig.Command{Path: rig.Program(t, "cmd/semel"), Args: append([]string{"demo"}, strings.Fields(words)...),
		Env: []string{"TMPDIR=" + tmp, "TMP=" + tmp, "SEMEL_STORE=sqlite:" + filepath.Join(tmp, "mine.db")}}, tmp
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestA1A2A3Demo: the three incidents happen to the naive consumer and not to
// semel; nothing is left afterwards.
func TestA1A2A3Demo(t *testing.T) {
	t.Parallel()
	c, tmp := demo(t, "--json")
	e := rig.Run(t, c)
	if e.Code != 0 {
		t.Fatal(e)
	}
	var d demonstration
	e.JSON(t, &d)
	if !d.Shown || len(d.Problems) > 0 || len(d.Incidents) != 3 {
		t.Fatal(e)
	}
	for i, x := range d.Incidents {
		if x.Incident != fmt.Sprintf("A%d", i+1) || x.Kills < 4 || x.Naive.Kills != x.Kills || x.Semel.Kills != x.Kills {
			t.Errorf("%s: %d kills, want %d on both sides: %d, %d", x.Incident, x.Kills, x.Kills, x.Naive.Kills, x.Semel.Kills)
		}
		if x.Semel.Counted != x.Expected || x.Semel.Wrong != 0 || x.Semel.Left != 0 || !x.Semel.Account.Balanced || x.Semel.Account.Superseded != x.Late {
			t.Errorf("%s: semel: %+v, want %d", x.Incident, x.Semel, x.Expected)
		}
		if x.Naive.Counted == x.Expected || x.Naive.Wrong == 0 || x.Naive.Left != 0 {
			t.Errorf("%s: naive: %+v", x.Incident, x.Naive)
		}
	}
	// Each kill between the commit and the ack is one more in the counter.
	if a2 := d.Incidents[1]; a2.Naive.Counted < a2.Expected+a2.Kills || a2.Semel.Account.Duplicates < int64(a2.Kills) {
		t.Errorf("a2: the kills did nothing: %+v", a2)
	}
	if a3 := d.Incidents[2]; a3.Late == 0 {
		t.Errorf("a3: nothing came late: %+v", a3)
	}
	wantEmpty(t, tmp)
}

// TestDemoForPeople: one incident as text, kept, and played with.
func TestDemoForPeople(t *testing.T) {
	t.Parallel()
	c, tmp := demo(t, "a2 --keep")
	e := rig.Run(t, c)
	if e.Code != 0 || !strings.Contains(e.Stdout, "semel is exact, the naive consumer is wrong") {
		t.Fatal(e)
	}
	row := regexp.MustCompile(`(?m)^A2  tickets counted +(\d+) +(\d+) +(\d+)$`).FindStringSubmatch(e.Stdout)
	if row == nil || row[3] != row[1] || row[2] == row[1] {
		t.Errorf("the row says %q: %v", row, e)
	}
	if !strings.Contains(e.Stderr, "semel  424/424  kill -9 ×6") || strings.Contains(e.Stderr+e.Stdout, "\x1b") {
		t.Errorf("a pipe gets lines without colours: %v", e)
	}
	_, dir, _ := strings.Cut(e.Stdout, "kept: ")
	dir, _, _ = strings.Cut(dir, "\n")
	if filepath.Dir(dir) != tmp {
		t.Fatalf("%q is not where it was kept: %v", dir, e)
	}
	semel := func(words string) rig.Exit {
		return rig.Run(t, rig.Command{Path: c.Path, Args: strings.Fields(words), Dir: filepath.Join(dir, "a2")})
	}
	if e := semel("explain pipeline.yaml sale-00008"); e.Code != 0 || !strings.Contains(e.Stdout, "Its effect is committed.") || strings.Count(e.Stdout, "done/") != 2 {
		t.Errorf("what the text says to look at: %v", e)
	}
	if s := semel("run pipeline.yaml --once --json").Summary(t); s.Received != 0 || !s.Balanced {
		t.Errorf("%+v, want nothing left", s)
	}
}

// TestDemoInterrupted ends its children and removes everything, also when the
// terminal is closed.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			interruptDemo(t, s)
		})
	}
}

func interruptDemo(t *testing.T, s syscall.Signal) {
	t.Helper()
	// Whoever runs the tests may ignore the signal (nohup), and children would
	// inherit that; what is caught they do not inherit.
	signal.Notify(make(chan os.Signal, 1), s)
	c, tmp := demo(t, "")
	p := rig.Start(t, c)
	rig.Until(t, "the children at work", func() bool {
		done, err := filepath.Glob(filepath.Join(tmp, "*", "a1", "*", "queue", "done", "0001.json"))
		return err == nil && len(done) == 2
	})
	p.Signal(s)
	if e := p.Wait(); e.Code != 2 || !strings.Contains(e.Stderr, "interrupted: nothing was shown") || e.Stdout != "" {
		t.Error(e)
	}
	wantEmpty(t, tmp)
}

func TestDemoUsage(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{"a4": "one of a1, a2, a3", "a1 a1": "at most once", "--fast": "unknown flag"} {
		c, _ := demo(t, words)
		if e := rig.Run(t, c); e.Code != 1 || !strings.Contains(e.Stderr, want) {
			t.Errorf("%s: %v", words, e)
		}
	}
}
