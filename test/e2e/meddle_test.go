package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// midway is a pipeline that has handled its message and not committed. It is
// stopped; go on lets it finish, and returns how it ended.
func midway(t *testing.T, q *rig.Queue, lines bool) (goOn func() rig.Exit) {
	t.Helper()
	p := rig.Start(t, rig.Command{
		Path: rig.Program(t, "test/e2e/worker"),
		Args: []string{"-root", q.Root, "-db", q.DB, fmt.Sprintf("-lines=%v", lines)},
		Env:  []string{"SEMEL_FAULT=" + string(fault.Handled) + "=stop"},
	})
	rig.Until(t, "it has handled the message", p.Stopped)
	return func() rig.Exit {
		p.Signal(syscall.SIGCONT)
		return p.Wait()
	}
}

// workers counts those that are enlisted; before the tables are made there is
// none.
func workers(q *rig.Queue) int64 {
	if _, err := os.Stat(q.DB); err != nil {
		return 0
	}
	if len(q.Strings("SELECT name FROM sqlite_master WHERE name = 'semel_batch'")) == 0 {
		return 0
	}
	return q.Int("SELECT COUNT(*) FROM semel_batch")
}

// claimed is the path of a file that a worker holds.
func claimed(t *testing.T, q *rig.Queue, name string) string {
	t.Helper()
	for _, f := range q.Files("processing") {
		if filepath.Base(f) == name {
			return q.Path("processing", f)
		}
	}
	t.Fatalf("%s is not claimed: %q", name, q.Files("processing"))
	return ""
}

// TestFileChangesAfterItsClaim: somebody writes to a file, puts another in its
// place, or takes it away, after a worker read it. What was read is applied,
// a file that changed goes to error/, and everything else flows.
func TestFileChangesAfterItsClaim(t *testing.T) {
	for name, c := range map[string]struct {
		meddle func(t *testing.T, path string)
		why    string
		stays  bool // the file ends in error/
	}{
		"written to": {func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(event("appended") + "\n")
			}
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}, "changed", true},
		"replaced": {func(t *testing.T, path string) {
			if err := os.WriteFile(path+".new", []byte(event("other")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, "changed", true},
		"gone": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "gone", false},
	} {
		for _, lines := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lines %v", name, lines), func(t *testing.T) {
				t.Parallel()
				q := rig.NewQueue(t, "")
				q.Deliver("a.json", event("a")+"\n")
				goOn := midway(t, q, lines)
				c.meddle(t, claimed(t, q, "a.json"))
				q.Deliver("b.json", event("b")+"\n")
				if e := goOn(); e.Code != 0 || !strings.Contains(e.Stderr, "a.json") || !strings.Contains(e.Stderr, c.why) {
					t.Errorf("want it told that a.json %s: %v", c.why, e)
				}
				if got := strings.Join(q.Strings("SELECT id FROM effects ORDER BY id"), " "); got != "a b" {
					t.Errorf("effects of %q, want a and b", got)
				}
				bad := q.Files("error")
				if c.stays != (len(bad) == 1) {
					t.Fatalf("error/ holds %q", bad)
				}
				if c.stays {
					var side struct{ Why string }
					if err := json.Unmarshal([]byte(q.Read("error", "a.json.semel.json")), &side); err != nil || !strings.Contains(side.Why, c.why) {
						t.Errorf("the sidecar says %+v, %v", side, err)
					}
				}
				if done := q.Files("done"); len(done) != 1 || done[0] != "b.json" {
					t.Errorf("done/ holds %q, want b.json", done)
				}
				for _, stage := range []string{"inbox", "processing"} {
					if left, err := os.ReadDir(q.Path(stage)); err != nil || len(left) > 0 {
						t.Errorf("%s/ holds %v, %v", stage, left, err)
					}
				}
			})
		}
	}
}

// TestFileVanishesBetweenDeaths: the claim of a dead worker lost its file.
func TestFileVanishesBetweenDeaths(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	for _, id := range []string{"a", "b"} {
		q.Deliver(id+".json", event(id))
	}
	if e := q.Run("run --once", "SEMEL_FAULT="+string(fault.Decoded)); !e.Killed() {
		t.Fatalf("%v", e)
	}
	if err := os.Remove(claimed(t, q, "a.json")); err != nil {
		t.Fatal(err)
	}
	if s := q.Drain(0); s.Applied != 1 || !s.Balanced {
		t.Errorf("%+v, want the other one applied", s)
	}
	if left, err := os.ReadDir(q.Path("processing")); err != nil || len(left) > 0 {
		t.Errorf("processing/ holds %v, %v", left, err)
	}
}

// TestFileReplacedBetweenDeaths: while no worker runs, a file of lines that was
// decided in part is replaced. What was decided stands, nothing of the other
// content is read from the old position on, and the file goes to error/.
func TestFileReplacedBetweenDeaths(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"files: lines\nbatch: 2\n")
	var lines strings.Builder
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		lines.WriteString(event(id) + "\n")
	}
	q.Deliver("all.ndjson", lines.String())
	if e := q.Run("run --once", "SEMEL_FAULT="+string(fault.Committed)); !e.Killed() {
		t.Fatalf("%v", e)
	}
	if err := os.WriteFile(claimed(t, q, "all.ndjson"), []byte(strings.ToUpper(lines.String())), 0o644); err != nil {
		t.Fatal(err)
	}
	e := q.Run("run --once --json")
	if s := e.Summary(t); !s.Balanced || !strings.Contains(e.Stderr, "changed") {
		t.Errorf("%v", e)
	}
	if got := strings.Join(q.Strings("SELECT id FROM effects"), ""); got != "ab" {
		t.Errorf("effects of %q, want those of before alone", got)
	}
	if files := q.Files("error"); len(files) != 1 || files[0] != "all.ndjson" {
		t.Errorf("error/ holds %q", files)
	}
}
