package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/test/servers/servertest"
)

// The gate: what a message costs the toolkit itself, beside source, decoder,
// handler and store.
func TestToolkitAllocatesNextToNothing(t *testing.T) {
	fresh := decoded(decodedIDs())
	for _, dedup := range []inbox.Strategy{inbox.Position, inbox.Table} {
		objects, bytes, err := toolkit(t.Context(), dedup, fresh, 200_000, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if objects > 1 || bytes > 64 {
			t.Errorf("%s: %.2f allocations and %.1f bytes per message, at most 1 and 64 are allowed", dedup, objects, bytes)
		}
	}
}

// small is a plan that runs everything in seconds.
func small() plan {
	p := full().scaled(0.002)
	p.rounds, p.runs, p.batch = 2, 2, 100
	return p
}

// TestPostgresSuiteRuns: the rows of PostgreSQL have the effects that they say.
func TestPostgresSuiteRuns(t *testing.T) {
	sec, err := postgres(servertest.Postgres.Database(t))(t.Context(), small(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(sec.rows) != len(pgRungs()) || !strings.Contains(sec.markdown(), "position") {
		t.Errorf("the table is %s", sec.markdown())
	}
}

func TestEverySuiteRuns(t *testing.T) {
	for _, s := range suites() {
		t.Run(s.name, func(t *testing.T) {
			sec, err := s.run(t.Context(), small(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if len(sec.rows) == 0 {
				t.Error("no rows")
			}
			for _, r := range sec.rows {
				if len(r) != len(sec.columns) {
					t.Errorf("row %q has %d cells, want %d", r[0], len(r), len(sec.columns))
				}
			}
			t.Log("\n" + sec.markdown())
		})
	}
}

func TestTheLoopWithoutDedupIsFoundOut(t *testing.T) {
	p := small()
	for i, r := range rungs() {
		err := deliverTwice(t.Context(), p, r, filepath.Join(t.TempDir(), "d.db"), 400)
		var wrong *inexact
		switch {
		case i == 0 && !errors.As(err, &wrong):
			t.Errorf("%s: got %v, want it to be inexact", r.name, err)
		case i == 0 && (wrong.rows != 420 || wrong.ids != 400):
			t.Errorf("%s: %v, want 420 effects of 400 ids", r.name, wrong)
		case i > 0 && err != nil:
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func TestLostEffectsAreFoundOut(t *testing.T) {
	d, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "d.db"), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	l, err := newLoop(t.Context(), d, true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.run(t.Context(), newStream(0, 50, fill), 50, 10); err != nil {
		t.Fatal(err)
	}
	if err := d.verify(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.ExecContext(t.Context(), "DELETE FROM effect WHERE seq = 7"); err != nil {
		t.Fatal(err)
	}
	if err := d.verify(t.Context(), 50); err == nil {
		t.Error("a lost effect was not noticed")
	}
}

func TestMessages(t *testing.T) {
	if len(template) != 200 {
		t.Errorf("the message has %d bytes, want 200", len(template))
	}
	for name, fill := range map[string]func(int, *semel.Message){"random": fill, "ordered": fillOrdered} {
		seen, last, ordered := map[string]bool{}, "", 0
		for i := range 10_000 {
			var d semel.Delivery
			fill(i, &d.Message)
			if err := decode(&d); err != nil || len(d.ID) != 32 {
				t.Fatalf("%s: id %q, %v", name, d.ID, err)
			}
			if seen[d.ID] {
				t.Fatalf("%s: id %s is made twice", name, d.ID)
			}
			if d.ID[:12] >= last {
				ordered++
			}
			seen[d.ID], last = true, d.ID[:12]
		}
		if (ordered == 10_000) != (name == "ordered") {
			t.Errorf("%s: %d of 10000 ids are in order", name, ordered)
		}
	}
	if err := decode(&semel.Delivery{}); err == nil {
		t.Error("a body without id was accepted")
	}
}

func TestSpread(t *testing.T) {
	var v []float64
	for i := range 15 {
		v = append(v, float64((i*7)%15+1)) // 1 to 15 in some order
	}
	// Ranks 4 and 12 of 15 enclose the median with 96.5 %, 5 and 11 with 88 %.
	if got := spreadOf(v); got != (spread{4, 8, 12}) {
		t.Errorf("got %v", got)
	}
	if got := spreadOf([]float64{4, 1}); got != (spread{1, 2.5, 4}) {
		t.Errorf("got %v", got)
	}
	if got := spreadOf(nil); !math.IsNaN(got.mid) {
		t.Errorf("got %v", got)
	}
}

// TestCompareTakesTurns: each contender has one slice a round, and none is
// favoured by its place.
func TestCompareTakesTurns(t *testing.T) {
	const rounds = 400
	var turns []int
	row := func(i int) contender {
		return contender{name: strconv.Itoa(i), n: 10, slice: func(_ context.Context, from, n int) error {
			if n != 10 || from != len(turns)/3*10 {
				t.Errorf("%d was asked for %d messages from %d as turn %d", i, n, from, len(turns))
			}
			turns = append(turns, i)
			return nil
		}}
	}
	costs, err := compare(t.Context(), rounds, []contender{row(0), row(1), row(2)})
	if err != nil {
		t.Fatal(err)
	}
	var place, repeats [3]int // how often each was first, and followed itself
	for at := 0; at < len(turns); at += 3 {
		if round := turns[at : at+3]; round[0]+round[1]+round[2] != 3 || round[0] == round[1] {
			t.Fatalf("a round of %v", round)
		}
		place[turns[at]]++
		if at > 0 && turns[at] == turns[at-1] {
			repeats[turns[at]]++
		}
	}
	for i := range place {
		if n := place[i]; n < rounds/4 || n > rounds/2 {
			t.Errorf("%d was first in %d of %d rounds", i, n, rounds)
		}
		if n := repeats[i]; n < rounds/16 || n > rounds/5 {
			t.Errorf("%d followed itself %d times in %d rounds", i, n, rounds)
		}
	}
	if len(costs[0]) != rounds-1 || len(costs[2]) != rounds-1 {
		t.Errorf("%d and %d costs, want %d each: the first round is dropped", len(costs[0]), len(costs[2]), rounds-1)
	}
}

func TestGoal(t *testing.T) {
	const undecided = "**not decided**"
	for _, c := range []struct {
		got  spread
		is   relation
		want string
	}{
		{spread{0.96, 0.97, 2.00}, atLeast, "met"},
		{spread{0.90, 0.93, 0.96}, atLeast, undecided},
		{spread{0.60, 0.93, 0.96}, atLeast, undecided},
		{spread{0.90, 0.92, 0.94}, atLeast, "**not met**"},
		{spread{0.10, 0.20, 0.90}, atMost, "met"},
		{spread{0.94, 0.97, 0.99}, atMost, undecided},
		{spread{0.50, 0.97, 0.99}, atMost, undecided},
		{spread{0.96, 0.97, 0.99}, atMost, "**not met**"},
	} {
		if got := (goal{"x", c.got, c.is, 0.95}).verdict(); got != c.want {
			t.Errorf("%v %s 0.95: %s, want %s", c.got, c.is, got, c.want)
		}
	}
}

func TestTicks(t *testing.T) {
	parse := func(s string) ticks {
		t.Helper()
		got, err := parseTicks([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n")
	after := parse("cpu  150 0 110 725 110 0 0 5 0 0\n")
	if got := after.idleSince(before); got != 0.25 {
		t.Errorf("idle %v", got)
	}
	// 65 of 100 ticks were used, 40 by this process.
	if got := after.othersSince(before, 400*time.Millisecond); got != 0.25 {
		t.Errorf("others %v", got)
	}
	for _, s := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h i", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, err := parseTicks([]byte(s)); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestMountType(t *testing.T) {
	const mounts = "a / ext4 rw 0 0\nb /tmp tmpfs rw 0 0\nc /tmpfoo xfs rw 0 0\n"
	for path, want := range map[string]string{"/tmp/x": "tmpfs", "/tmp": "tmpfs", "/tmpx": "ext4", "/": "ext4", "/tmpfoo/y": "xfs"} {
		if got := mountType(mounts, path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestPageIsReplacedBetweenItsMarks(t *testing.T) {
	page := []byte("# Title\n" + pageBegin + "old\n" + pageEnd + "after\n")
	got, err := replaceMeasured(page, "new\n")
	if want := "# Title\n" + pageBegin + "new\n" + pageEnd + "after\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := replaceMeasured([]byte("# Title\n"), "new\n"); err == nil {
		t.Error("a page without marks was accepted")
	}
	real, err := os.ReadFile(filepath.Join("..", "..", "docs", "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceMeasured(real, ""); err != nil {
		t.Errorf("docs/benchmarks.md: %v", err)
	}
}

func TestOnlyWholeQuietRunsAreRecorded(t *testing.T) {
	for args, want := range map[string]bool{
		"": true, "-noisy": false, "-scale 0.5": false, "-rounds 8": false, "-rounds 31": true, "-only path": false,
		"-cpuprofile x": false, "-page=": false,
	} {
		o, err := parse(strings.Fields(args), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.recorded() == nil; got != want {
			t.Errorf("%q: recorded is %t", args, got)
		}
	}
}

func TestNothingIsRecordedIfOthersWork(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte(pageBegin+pageEnd), 0o666); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-page", page}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if err := conclude(o, &bytes.Buffer{}, "text\n", 0.2); err == nil {
		t.Error("a disturbed run was recorded")
	}
	if err := conclude(o, &bytes.Buffer{}, "text\n", 0.01); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(page); string(got) != pageBegin+"text\n"+pageEnd {
		t.Errorf("the page is %q", got)
	}
}

func TestThousands(t *testing.T) {
	for f, want := range map[float64]string{7: "7", 123: "123", 1234: "1,230", 123456: "123,000", 1234567: "1,230,000", 999.6: "1,000", math.NaN(): "?"} {
		if got := thousands(f); got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}
