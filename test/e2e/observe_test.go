package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// counts reads the samples of a family with one label besides the pipeline.
func count(m map[string]float64, family, label, value string) float64 {
	return m[fmt.Sprintf(`%s{pipeline="strict",%s=%q}`, family, label, value)]
}

// decided is the sum of all verdicts.
func decided(m map[string]float64) (n float64) {
	for name, v := range m {
		if strings.HasPrefix(name, "semel_messages_decided_total{") {
			n += v
		}
	}
	return n
}

// deliverMix delivers n messages that are applied, and one of each other kind.
// It returns how many that are.
func deliverMix(q *rig.Queue, n int) float64 {
	for i := range n {
		q.Deliver(fmt.Sprintf("a%d.json", i), order(fmt.Sprint("a", i), "NL"))
	}
	q.Deliver("b.json", order("unknown", "XX"))
	q.Deliver("c.json", `{"id": "torn`)
	q.Deliver("d.json", `{"id": "skipped", "skip": true}`)
	q.Deliver("e.json", order("a0", "NL"))
	return float64(n + 4)
}

// TestMetricsEqualTheAccount: the counters grow while it runs, never fall, and
// in the end are what the run itself says.
func TestMetricsEqualTheAccount(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict+"batch: 5\n")
	q.Drain(0)
	q.Exec("INSERT INTO countries (code) VALUES ('NL')")
	p := q.Start("run --json --http 127.0.0.1:0")
	site := p.Site()
	site.UntilConditions()
	want := deliverMix(q, 60)
	var last map[string]float64
	before := 0.0
	rig.Until(t, "everything is counted", func() bool {
		last = site.Metrics()
		now := decided(last)
		if now < before {
			t.Fatalf("counters fall from %v to %v", before, now)
		}
		before = now
		return now >= want
	})
	rig.Until(t, "the store was looked at", func() bool {
		last = site.Metrics()
		return count(last, "semel_letters", "state", "dead") == 2
	})
	if got := site.Conditions("/readyz"); len(got) > 0 {
		t.Errorf("dead letters are no reason for %q", got)
	}
	s := p.Interrupt().Summary(t)
	for verdict, n := range map[string]int64{
		"applied": s.Applied, "duplicate": s.Duplicates, "superseded": s.Superseded, "conflict": s.Conflicts, "filtered": s.Filtered,
		"parked": s.Parked, "dead": s.Dead, "released": s.Released, "dropped": s.Dropped, "discarded": 0,
	} {
		if got := count(last, "semel_messages_decided_total", "verdict", verdict); got != float64(n) {
			t.Errorf("%s: the metric says %v, the run %d", verdict, got, n)
		}
	}
	if s.Applied != 60 || s.Dead != 2 || s.Filtered != 1 || s.Duplicates != 1 {
		t.Errorf("%+v: the test did not do what it is for", s)
	}
	for sample, want := range map[string]float64{
		`semel_messages_received_total{pipeline="strict"}`:               float64(s.Received),
		`semel_dead_letters_total{pipeline="strict",reason="permanent"}`: 1,
		`semel_dead_letters_total{pipeline="strict",reason="invalid"}`:   1,
		`semel_batch_messages_sum{pipeline="strict"}`:                    float64(s.Received),
		`semel_imbalances{pipeline="strict"}`:                            0,
		`semel_source_messages{pipeline="strict",stage="waiting"}`:       0,
		`semel_live{pipeline="strict"}`:                                  1,
		`semel_condition{pipeline="strict",condition="unbalanced"}`:      0,
	} {
		if got, ok := last[sample]; !ok || got != want {
			t.Errorf("%s is %v (there: %t), want %v", sample, got, ok, want)
		}
	}
}

// TestHealthOfALockedDatabase: red while somebody else keeps the lock, also
// while it is told to stop meanwhile, and green after it.
func TestHealthOfALockedDatabase(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	h := hold(t, q, "run --http 127.0.0.1:0", func() { q.Deliver("a.json", event("a")) })
	site := h.Site()
	site.UntilConditions("stalled")
	if got := site.Conditions("/livez"); len(got) > 0 {
		t.Errorf("another start would not help, and /livez says %q", got)
	}
	h.exec("ROLLBACK")
	site.UntilConditions()
	if n := q.Int("SELECT n FROM counter"); n != 1 {
		t.Errorf("applied %d times", n)
	}
	h.exec("BEGIN IMMEDIATE")
	q.Deliver("b.json", event("b"))
	rig.Until(t, "it has claimed the next one", func() bool { return len(q.Files("inbox")) == 0 })
	h.Signal(syscall.SIGTERM)
	rig.Until(t, "it says that it drains", func() bool { return slices.Contains(site.Conditions("/readyz"), "draining") })
	if got := site.Conditions("/livez"); len(got) > 0 {
		t.Errorf("while it drains /livez says %q", got)
	}
	h.exec("ROLLBACK")
	if e := h.Wait(); e.Code != 0 {
		t.Errorf("%v", e)
	}
}

// TestHealthOfAnAccount: a letter that somebody deletes from the table is
// missed, until it is back.
func TestHealthOfAnAccount(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	q.Deliver("a.json", order("a", "NL"))
	q.Drain(3)
	site := q.Start("run --http 127.0.0.1:0").Site()
	site.UntilConditions()
	q.Exec("CREATE TABLE aside AS SELECT * FROM semel_letter")
	q.Exec("DELETE FROM semel_letter")
	site.UntilConditions("unbalanced")
	if got := site.Metrics()[`semel_imbalances{pipeline="strict"}`]; got != 1 {
		t.Errorf("%v imbalances", got)
	}
	q.Exec("INSERT INTO semel_letter SELECT * FROM aside")
	site.UntilConditions()
}

// TestHealthOfPanics: a program whose handlers panic is not alive, and is again
// when they do not.
func TestHealthOfPanics(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, "")
	panics := filepath.Join(q.Dir, "panics")
	if err := os.WriteFile(panics, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := rig.Start(t, rig.Command{Path: rig.Program(t, "test/e2e/worker"), Args: []string{"-root", q.Root, "-db", q.DB, "-http", "127.0.0.1:0", "-panics", panics}})
	site := p.Site()
	site.UntilConditions()
	for i := range 5 {
		q.Deliver(fmt.Sprintf("%d.json", i), event(fmt.Sprint(i)))
	}
	site.UntilConditions("panic_loop")
	if got := site.Conditions("/livez"); !slices.Equal(got, []string{"panic_loop"}) {
		t.Errorf("/livez says %q", got)
	}
	if err := os.Remove(panics); err != nil {
		t.Fatal(err)
	}
	q.Deliver("good.json", event("good"))
	site.UntilConditions()
	if got := site.Conditions("/livez"); len(got) > 0 {
		t.Errorf("/livez says %q", got)
	}
	if e := p.Interrupt(); e.Code != 0 {
		t.Errorf("%v", e)
	}
}

// TestLogRecords: with --log json every line of standard error is a record.
// Of thousands of dead letters a few are told and the others counted, nothing
// of their bodies is.
func TestLogRecords(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict+"files: lines\n")
	var b strings.Builder
	const letters = 3000
	for i := range letters {
		fmt.Fprintf(&b, `{"id":"a%d","country":"XX","secret":"hunter2"}`+"\n", i)
	}
	q.Deliver("all.ndjson", b.String())
	e := q.Run("run --once --log json")
	if e.Code != 3 || strings.Contains(e.Stderr, "hunter2") {
		t.Fatalf("%v", e)
	}
	told, suppressed := 0, 0
	for line := range strings.Lines(e.Stderr) {
		var r struct {
			Time, Level, Msg, Pipeline, Class, Reason, Error string
			MessageID                                        string `json:"message_id"`
			Suppressed                                       int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time == "" || r.Pipeline != "strict" {
			t.Errorf("%q: %v", line, err)
		}
		suppressed += r.Suppressed
		if r.Msg == "dead letter" {
			told++
			if r.Level != "WARN" || r.Class != "permanent" || r.Reason != "permanent" || !strings.HasPrefix(r.MessageID, "a") || r.Error == "" {
				t.Errorf("%s", line)
			}
		}
	}
	if told+suppressed != letters || told < 10 || told > letters/10 {
		t.Errorf("%d told and %d counted, of %d", told, suppressed, letters)
	}
}

// TestAskedInTheWrongPlace: an address that cannot be had is refused before a
// message is taken.
func TestAskedInTheWrongPlace(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	p := q.Start("run --http 127.0.0.1:0")
	site := p.Site()
	site.UntilConditions()
	other := rig.NewQueue(t, plain)
	other.Deliver("a.json", event("a"))
	at := strings.TrimSuffix(strings.TrimPrefix(p.Stderr()[strings.Index(p.Stderr(), "http://"):], "http://"), "\n")
	at, _, _ = strings.Cut(at, "/")
	if e := other.Run("run --once --http " + at); e.Code != 1 || !strings.Contains(e.Stderr, "in use") || len(other.Files("inbox")) != 1 {
		t.Errorf("%v", e)
	}
	for _, words := range []string{"run --check --http :0", "run --dry-run --log json"} {
		if e := other.Run(words); e.Code != 1 || !strings.Contains(e.Stderr, "for runs that take messages") {
			t.Errorf("%s: %v", words, e)
		}
	}
}

// families are the names in TYPE lines, and their types.
func families(body string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(body) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			all[f[2]] = f[3]
		}
	}
	return all
}

// repositoryFile reads a file of the repository.
func repositoryFile(t *testing.T, path string) string {
	t.Helper()
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMetricsAreDocumented: the table of the documentation has the metrics of a
// real run, each with its type and labels, and no others. Dashboard and alerts
// ask for nothing that is not there.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	site := q.Start("run --http 127.0.0.1:0").Site()
	site.UntilConditions()
	q.Deliver("a.json", order("a", "NL"))
	rig.Until(t, "everything was seen", func() bool { return count(site.Metrics(), "semel_letters", "state", "dead") == 1 })
	_, body := site.Get("/metrics")
	exposed := families(body)
	samples := map[string]bool{}
	labels := map[string]map[string]bool{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		samples[name] = true
		labels[name] = map[string]bool{}
		for _, l := range label.FindAllStringSubmatch(rest, -1) {
			labels[name][l[1]] = true
		}
	}
	documented := map[string]bool{}
	for line := range strings.Lines(repositoryFile(t, "docs/reference/metrics.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `semel_") {
			continue
		}
		name := strings.Trim(cells[1], " `")
		documented[name] = true
		kind, _, _ := strings.Cut(strings.TrimSpace(cells[2]), ",")
		if exposed[name] != kind {
			t.Errorf("%s is documented as %s and is %q", name, kind, exposed[name])
		}
		if kind == "histogram" {
			name += "_count"
		}
		want := map[string]bool{"pipeline": true}
		if l := strings.Trim(cells[3], " `"); l != "" {
			want[l] = true
		}
		if !samples[name] || fmt.Sprint(labels[name]) != fmt.Sprint(want) {
			t.Errorf("%s has the labels %v, documented are %v", name, labels[name], want)
		}
	}
	for name := range exposed {
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
	}
	for _, path := range []string{"packaging/grafana/semel.json", "packaging/prometheus/semel.rules.yml"} {
		asked := asked.FindAllString(repositoryFile(t, path), -1)
		if len(asked) < 10 {
			t.Errorf("%s asks for %d metrics", path, len(asked))
		}
		for _, name := range asked {
			if !samples[name] {
				t.Errorf("%s asks for %s, which is not there", path, name)
			}
		}
	}
}

var (
	label = regexp.MustCompile(`([a-z_]+)="`)
	asked = regexp.MustCompile(`\bsemel_[a-z_]+`)
)
