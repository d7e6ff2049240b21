package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

var first = flag.Uint64("seed", 0, "other messages, orders and second deaths in TestCrashPoints")

// kinds are the pipelines in which a process dies at every point.
var kinds = []kind{
	{name: "whole", inbox: "table"},
	{name: "whole-versions", inbox: "table", versions: true},
	{name: "whole-marker-norename", inbox: "table", marker: true, norename: true},
	{name: "whole-checksum", inbox: "table", checksum: true},
	{name: "lines", lines: true, inbox: "table"},
	{name: "lines-versions", lines: true, inbox: "table", versions: true},
	{name: "lines-position", lines: true, inbox: "position"},
	{name: "lines-position-versions", lines: true, inbox: "position", versions: true},
	{name: "lines-order", lines: true, inbox: "table", order: true},
	{name: "lines-order-position", lines: true, inbox: "position", order: true},
	{name: "lines-marker-norename", lines: true, inbox: "table", marker: true, norename: true},
}

// points are those at which a process of this kind can die.
func (k kind) points() []fault.Point {
	all := append(fault.All(), filebroker.Points()...)
	return slices.DeleteFunc(all, func(p fault.Point) bool {
		switch p {
		case filebroker.Marker:
			return !k.marker && !k.checksum
		case filebroker.Parted:
			return !k.checksum
		case filebroker.Linked:
			return !k.norename
		case filebroker.Split:
			return !k.lines
		}
		return false
	})
}

// TestCrashPoints kills a real process at every point, restarts it, sometimes
// kills it again elsewhere, and finds nothing lost and nothing done twice. It
// fails if a point was never reached.
func TestCrashPoints(t *testing.T) {
	logs := t.TempDir()
	t.Run("kill", func(t *testing.T) {
		for i, k := range kinds {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				crashEverywhere(t, k, *first+uint64(i), filepath.Join(logs, k.name))
			})
		}
	})
	reached := map[string]bool{}
	files, err := os.ReadDir(logs)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < len(kinds) {
		return // a part of them was asked for
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(logs, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range strings.Fields(string(b)) {
			reached[p] = true
		}
	}
	for _, p := range append(fault.All(), filebroker.Points()...) {
		if !reached[string(p)] {
			t.Errorf("no process ever came to %s", p)
		}
	}
}

// crashEverywhere goes through the points of a kind on one queue.
func crashEverywhere(t *testing.T, k kind, seed uint64, log string) {
	q := rig.NewQueue(t, k.pipeline())
	q.FaultLog = log
	s := newSubject(t, q, k, seed, func(at string) rig.Command {
		c := q.Semel("run --once --json --wait 5s", "SEMEL_FAULT="+at)
		if k.norename {
			c = confined(t, c, "-norename")
		}
		return c
	})
	points := k.points()
	for _, n := range []int{1, 2} {
		for _, p := range points {
			s.dieAt(p, n)
			if s.r.IntN(2) == 0 {
				s.run(fmt.Sprintf("%s:%d", points[s.r.IntN(len(points))], 1+s.r.IntN(4)))
			}
			s.recover()
			if t.Failed() {
				t.Fatalf("stopped at %s:%d, wave %d; again: go test -count 1 -run 'TestCrashPoints/kill/%s$' ./test/e2e -seed %d", p, n, s.waves, k.name, *first)
			}
		}
	}
	if held := q.Int("SELECT COUNT(*) FROM semel_letter WHERE reason = 'held'"); k.order != (held > 0) {
		t.Errorf("%d messages waited behind an earlier one of their key", held)
	}
	for _, p := range points {
		if s.killed[string(p)] == 0 {
			t.Errorf("no process died at %s", p)
		}
	}
}

// confined is a command under a kernel that can do less.
func confined(t testing.TB, c rig.Command, how ...string) rig.Command {
	t.Helper()
	c.Args = append(append(how, c.Path), c.Args...)
	c.Path = rig.Program(t, "test/e2e/confine")
	return c
}

// maxWaves is how often a point is tried with a fresh wave. The points of
// careful mode and takeover need work that somebody left.
const maxWaves = 4

// dieAt delivers something and runs until the process died at the n-th hit.
// A worker gives files back when it is stopped by a fault, here by a table that
// is missing.
func (s *subject) dieAt(p fault.Point, n int) {
	s.t.Helper()
	for range maxWaves {
		if p == filebroker.Returned {
			s.run("") // the tables have to be there
			s.q.Exec("ALTER TABLE semel_ledger RENAME TO away")
		}
		s.deliver()
		if p == fault.Started || p == filebroker.Taken {
			s.run(string(fault.Admitted))
			s.deliver()
		}
		killed, e := s.run(fmt.Sprintf("%s:%d", p, n))
		if p == filebroker.Returned {
			s.q.Exec("ALTER TABLE away RENAME TO semel_ledger")
		}
		if killed {
			return
		}
		if e.Code != 3 && e.Code != 2 {
			s.t.Errorf("while waiting for %s:%d: %v", p, n, e)
		}
	}
	if n == 1 {
		s.t.Errorf("%s was not reached in %d waves", p, maxWaves)
	}
}

// recover checks what the deaths left, runs to the end, and checks again.
func (s *subject) recover() {
	s.t.Helper()
	for _, bad := range s.want.Safety(s.q.State()) {
		s.t.Errorf("after deaths at %s: %s", s.since, bad)
	}
	_, e := s.run("")
	if e.Code != 3 || !e.Summary(s.t).Balanced {
		s.t.Errorf("restarted after %s: want exit code 3 and a balanced account: %v", s.since, e)
	}
	for _, bad := range s.want.Final(s.q.State()) {
		s.t.Errorf("restarted after %s: %s", s.since, bad)
	}
	s.since = nil
}
