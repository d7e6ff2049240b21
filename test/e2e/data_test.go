package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/examples/flights"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/inputs"
)

// The tests of this file are those of the real inputs; their numbers are facts
// about the data. The large ones run one after the other: together they would
// only wait for the disk.

// example is a queue for a pipeline file of examples/flights, whose source and
// store are replaced.
func example(t *testing.T, file string) (q *rig.Queue, env []string) {
	t.Helper()
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	q = rig.NewQueue(t, "")
	q.File = filepath.Join(root, "examples", "flights", file)
	return q, []string{"SEMEL_SOURCE=directory:" + q.Root, "SEMEL_STORE=sqlite:" + q.DB}
}

// TestD04Flights: a week of real flights, shuffled, 5 % delivered twice, the
// process killed ten times on the way. Nothing is missing, nothing is extra.
func TestD04Flights(t *testing.T) {
	q, env := example(t, "flights.yaml")
	d, err := flights.Inbox{Root: q.Root, Seed: 4, Again: 0.05}.Deliver()
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for kills < 10 {
		p := q.Start("run --once", env...)
		enough := int64(kills+1) * int64(d.Events) / 11
		rig.Until(t, "some progress", func() bool { return !p.Alive() || progress(q) > enough })
		if !p.Kill().Killed() {
			t.Fatalf("it ended after %d deaths: %v", kills, p.Wait())
		}
		kills++
	}
	e := q.Run("run --once --json", env...)
	if s := e.Summary(t); e.Code != 0 || !s.Balanced {
		t.Errorf("after ten deaths: %v", e)
	}
	wantFlights(t, q, 6654, 6580, 71, 3)
	verdicts := q.Int("SELECT COUNT(*) FROM semel_inbox WHERE verdict IN (1, 3)")
	if n := q.Int("SELECT COUNT(*) FROM semel_inbox"); n != 19888 || verdicts != n {
		t.Errorf("%d records, %d applied or superseded, want 19,888 of both", n, verdicts)
	}
	if done := q.Files("done"); len(done) != d.Files || d.Messages != 20882 {
		t.Errorf("%d files of %d deliveries in done/, want all %d", len(done), d.Messages, d.Files)
	}
	wantStates(t, q)
}

// progress counts records; before the tables are made there is none.
func progress(q *rig.Queue) int64 {
	if _, err := os.Stat(q.DB); err != nil {
		return 0
	}
	if len(q.Strings("SELECT name FROM sqlite_master WHERE name = 'semel_inbox'")) == 0 {
		return 0
	}
	return q.Int("SELECT COUNT(*) FROM semel_inbox")
}

func wantFlights(t *testing.T, q *rig.Queue, all, arrived, cancelled, departed int64) {
	t.Helper()
	count := func(status string) int64 { return q.Int("SELECT COUNT(*) FROM flights WHERE status = ?", status) }
	if a, c, d := count(flights.Arrived), count(flights.Cancelled), count(flights.Departed); q.Int("SELECT COUNT(*) FROM flights") != all ||
		a != arrived || c != cancelled || d != departed {
		t.Errorf("%d arrived, %d cancelled, %d departed; want %d, %d, %d of %d", a, c, d, arrived, cancelled, departed, all)
	}
}

// wantStates compares every row with the last event of its flight.
func wantStates(t *testing.T, q *rig.Queue) {
	t.Helper()
	events, err := flights.Events()
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]flights.Event{}
	for _, e := range events {
		if e.Seq > last[e.Flight].Seq {
			last[e.Flight] = e
		}
	}
	var want []string
	for _, e := range last {
		want = append(want, fmt.Sprintf("%s %s %s %d", e.Flight, e.Status, e.At, e.Seq))
	}
	got := q.Strings("SELECT flight || ' ' || status || ' ' || at || ' ' || seq FROM flights")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the rows are not the last events of the flights")
	}
}

// TestD05CoarseKey: a key without the airport takes six pairs of different
// flights for one each. Their content differs, so 18 real events become dead
// letters that name the conflict instead of vanishing as duplicates. The events
// come as lines of a few files.
func TestD05CoarseKey(t *testing.T) {
	t.Parallel()
	q, env := example(t, "flights-coarse.yaml")
	text, err := os.ReadFile(q.File)
	if err != nil {
		t.Fatal(err)
	}
	q.File = filepath.Join(q.Dir, "pipeline.yaml")
	q.Describe(string(text) + "files: lines\n")
	if _, err := (flights.Inbox{Root: q.Root, Seed: 5, Again: 0.05, Lines: 6}).Deliver(); err != nil {
		t.Fatal(err)
	}
	e := q.Run("run --once --json", env...)
	s := e.Summary(t)
	if e.Code != 3 || s.Conflicts < 18 || !s.Balanced {
		t.Errorf("want conflicts and exit code 3: %v", e)
	}
	if n := q.Int("SELECT COUNT(*) FROM flights"); n != 6648 {
		t.Errorf("%d rows, want 6,648", n)
	}
	if got := q.Strings("SELECT state || ' ' || reason || ' ' || COUNT(*) FROM semel_letter GROUP BY state, reason"); !slices.Equal(got, []string{"dead conflict 18"}) {
		t.Errorf("letters %q, want 18 conflicts", got)
	}
	var l struct {
		Conflict bool
		Error    string
	}
	q.Run("letters list --limit 1 --json", env...).JSON(t, &l)
	if !l.Conflict || !strings.Contains(l.Error, "other content") {
		t.Errorf("the letter says %+v", l)
	}
}

// Budgets of TestD07: several times what an idle machine with two cores needs.
const (
	d07Time   = 60 * time.Second
	d07Memory = 128 << 20
)

// TestD07Vulnerabilities: 4,789 files of a real project in one directory.
func TestD07Vulnerabilities(t *testing.T) {
	files, err := inputs.Vulnerabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := rig.NewQueue(t, `
name: vulnerabilities
source: directory:ROOT
store: sqlite:DB
setup: CREATE TABLE IF NOT EXISTS reports (id TEXT NOT NULL, summary TEXT, status TEXT, withdrawn TEXT)
message: {id: .id}
handle:
  sql: INSERT INTO reports (id, summary, status, withdrawn) VALUES (:id, :summary, :status, :withdrawn)
  with: {id: .id, summary: .summary, status: .database_specific.review_status, withdrawn: .withdrawn}
horizon: 7d
`)
	if err := inputs.Deliver(q.Root, files); err != nil {
		t.Fatal(err)
	}
	c := q.Semel("run --once --json")
	c.Measure = true
	e := rig.Run(t, c)
	if s := e.Summary(t); e.Code != 0 || s.Applied != 4789 {
		t.Errorf("%v", e)
	}
	if e.Took > d07Time || e.Memory > d07Memory {
		t.Errorf("it took %v and %d MiB, budget %v and %d MiB", e.Took, e.Memory>>20, d07Time, d07Memory>>20)
	}
	t.Logf("%v, %d MiB", e.Took, e.Memory>>20)
	if n := q.Int("SELECT COUNT(DISTINCT id) FROM reports"); n != 4789 || q.Int("SELECT COUNT(*) FROM reports") != n {
		t.Errorf("%d reports", n)
	}
	for _, stage := range []string{"inbox", "processing", "error"} {
		if left, err := os.ReadDir(q.Path(stage)); err != nil || len(left) > 0 {
			t.Errorf("%s/ holds %v, %v", stage, left, err)
		}
	}
	if done := q.Files("done"); len(done) != 4789 {
		t.Errorf("%d files in done/", len(done))
	}
}

// TestD09Earthquakes: one file per earthquake in the order of the feed; the
// whole feed again has no effect.
func TestD09Earthquakes(t *testing.T) {
	t.Parallel()
	files, err := inputs.Earthquakes()
	if err != nil {
		t.Fatal(err)
	}
	q := rig.NewQueue(t, `
name: earthquakes
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS earthquakes (id TEXT NOT NULL PRIMARY KEY, updated INTEGER NOT NULL, status TEXT, changes INTEGER NOT NULL DEFAULT 1)
message: {id: '.id + "/" + (.updated | tostring)', key: .id}
arbitrate: {version: .updated, as: integer}
handle:
  sql: |
    INSERT INTO earthquakes (id, updated, status) VALUES (:id, :updated, :status)
    ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, status = excluded.status, changes = changes + 1
  with: {id: .id, updated: .updated, status: .status}
horizon: 7d
`)
	for again, want := range []int64{1707, 0} {
		if err := inputs.Deliver(q.Root, files); err != nil {
			t.Fatal(err)
		}
		if s := q.Drain(0); s.Applied != want || s.Received != 1707 {
			t.Errorf("delivery %d: %+v, want %d applied", again+1, s, want)
		}
	}
	if n := q.Int("SELECT COUNT(*) FROM earthquakes WHERE changes = 1"); n != 1707 {
		t.Errorf("%d rows that were written once, want 1,707", n)
	}
	if n := q.Int("SELECT COUNT(*) FROM earthquakes WHERE status = 'reviewed'"); n != 1214 {
		t.Errorf("%d reviewed, want 1,214", n)
	}
}

// TestMakeExample runs what the README tells a newcomer to run, twice, in a
// copy of the repository.
func TestMakeExample(t *testing.T) {
	dir := rig.Copy(t)
	run := func(args ...string) rig.Exit {
		e := rig.Run(t, rig.Command{Path: "make", Args: append([]string{"-s", "example"}, args...), Dir: dir})
		if e.Code != 0 {
			t.Fatalf("make example: %v", e)
		}
		return e
	}
	if e := run(); !strings.Contains(e.Stdout, "20,882") || !strings.Contains(e.Stdout, "994") {
		t.Errorf("the summary does not name 20,882 deliveries and 994 duplicates: %v", e)
	}
	db := filepath.Join(dir, ".work", "flights", "flights.db")
	if _, err := os.Stat(db); err != nil {
		t.Fatal(err)
	}
	q := *rig.NewQueue(t, "")
	q.DB = db
	wantFlights(t, &q, 6654, 6580, 71, 3)
	if s := run("ARGS=--json").Summary(t); s.Received != 20882 || s.Applied != 0 || s.Duplicates != 20882 || !s.Balanced {
		t.Errorf("the second time: %+v, want duplicates alone", s)
	}
	wantFlights(t, &q, 6654, 6580, 71, 3)
}
