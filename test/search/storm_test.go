package search_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store/searchstore"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// event is one version of a document.
type event struct {
	ID   string `json:"id"`
	Doc  string `json:"doc"`
	Rev  int64  `json:"rev"`
	Gone bool   `json:"gone"`
}

// history makes n events about documents, in the order in which they happened,
// and the order in which they are delivered: one in ten comes twice, and one in
// ten comes much too late.
func history(seed uint64, n int) (happened, delivered []event) {
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // replayed by its seed
	rev := map[string]int64{}
	for i := range n {
		doc := fmt.Sprintf("d%d", rnd.IntN(n/10))
		rev[doc]++
		happened = append(happened, event{fmt.Sprintf("e%d", i), doc, rev[doc], rnd.IntN(5) == 0})
	}
	type placed struct {
		at float64
		event
	}
	var all []placed
	for i, e := range happened {
		at := float64(i)
		if rnd.IntN(10) == 0 {
			at += rnd.Float64() * float64(n) / 4
		}
		all = append(all, placed{at, e})
		if rnd.IntN(10) == 0 {
			all = append(all, placed{at + rnd.Float64()*float64(n)/4, e})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return int(a.at*1e3) - int(b.at*1e3) })
	for _, p := range all {
		delivered = append(delivered, p.event)
	}
	return happened, delivered
}

// newest is what the index must hold in the end.
func newest(happened []event) map[string]string {
	want := map[string]string{}
	for _, e := range happened {
		want[e.Doc] = fmt.Sprintf(`{"doc":"%s","rev":%d}`, e.Doc, e.Rev)
		if e.Gone {
			want[e.Doc] = `{"deleted":true}`
		}
	}
	return want
}

// held is what the index holds.
func (p place) held() map[string]string {
	p.t.Helper()
	p.do("POST", "/_refresh", "", nil)
	var found struct {
		Hits struct {
			Hits []struct {
				ID     string          `json:"_id"`
				Source json.RawMessage `json:"_source"`
			}
		}
	}
	p.do("GET", "/_search?size=10000", "", &found)
	got := map[string]string{}
	for _, h := range found.Hits.Hits {
		got[h.ID] = string(h.Source)
	}
	return got
}

// wrong are the documents that differ, sorted.
func wrong(got, want map[string]string) (all []string) {
	for id := range maps.Keys(want) {
		if got[id] != want[id] {
			all = append(all, fmt.Sprintf("%s is %s, and its newest version %s", id, got[id], want[id]))
		}
	}
	for id := range got {
		if want[id] == "" {
			all = append(all, id+" is nobody's")
		}
	}
	slices.Sort(all)
	return all
}

func pipeline(p place, version string, batch int) string {
	return fmt.Sprintf(`name: search
source: directory:ROOT
store: sqlite:DB
files: lines
message: {id: .id, key: .doc}
handle:
  index:
    url: %s
    index: %s
    id: .doc
    version: %s
    document: '{doc: .doc, rev: .rev}'
    deleted: .gone
    timeout: 2s
batch: %d
horizon: 1d
`, p.server, p.index, version, batch)
}

// deliver puts the events into files of lines.
func deliver(q *rig.Queue, events []event, files int) {
	for i, part := range slices.Collect(slices.Chunk(events, (len(events)+files-1)/files)) {
		var b strings.Builder
		for _, e := range part {
			line, _ := json.Marshal(e) //nolint:errchkjson // texts and numbers
			b.Write(line)
			b.WriteByte('\n')
		}
		q.Deliver(fmt.Sprintf("events-%02d.ndjson", i), b.String())
	}
}

// TestStorm: 20,000 events, repeated and reordered, by two workers. One is
// killed after a bulk and before the commit; the node is killed, and paused. Every document ends up
// in its newest version, and nothing is a dead letter.
func TestStorm(t *testing.T) {
	seed := rand.Uint64() //nolint:gosec // printed
	if s := os.Getenv("SEMEL_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("replay: SEMEL_TEST_SEED=%d go test ./search -run '^TestStorm$'", seed)
	s := servertest.OpenSearch.Start(t, servertest.Options{})
	p := newPlace(t, s.URL(), "")
	happened, delivered := history(seed, 20_000)
	q := rig.NewQueue(t, pipeline(p, ".rev", 200))
	deliver(q, delivered, 8)
	if e := q.Run("run", fmt.Sprintf("SEMEL_FAULT=%s:5", searchstore.Indexed)); !e.Killed() {
		t.Fatalf("it was to die after a bulk: %v", e)
	}
	one, two := q.Start("run"), q.Start("run")
	recorded := func(n int64) {
		rig.Until(t, fmt.Sprintf("%d events are recorded", n), func() bool { return q.Int("SELECT COUNT(*) FROM semel_inbox") >= n })
	}
	told := func() int { return strings.Count(one.Stderr()+two.Stderr(), "index "+p.index+" at ") }
	recorded(4000)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, "somebody says that nobody answers", func() bool { return told() > 0 })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorded(8000)
	before := told()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, "somebody has waited in vain", func() bool { return told() > before })
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	recorded(20_000)
	for _, w := range []*rig.Process{one, two} {
		if e := w.Interrupt(); e.Code != 0 {
			t.Errorf("%v", e)
		}
	}
	q.Drain(0)
	if bad := wrong(p.held(), newest(happened)); len(bad) > 0 {
		t.Errorf("seed %d: %d documents, the first: %s", seed, len(bad), bad[0])
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_letter"); n != 0 {
		t.Errorf("%d letters", n)
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_inbox"); n != 20_000 {
		t.Errorf("%d events are recorded", n)
	}
}

// TestStormBroken: without versions the same history goes wrong, although every
// event is handled once; the checker has to see it.
func TestStormBroken(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), "")
	happened, delivered := history(1, 2000)
	q := rig.NewQueue(t, pipeline(p, "none", 200))
	deliver(q, delivered, 2)
	q.Drain(0)
	if bad := wrong(p.held(), newest(happened)); len(bad) == 0 {
		t.Error("nothing is wrong with a pipeline that has no versions: the checker sees nothing")
	} else {
		t.Logf("%d documents, the first: %s", len(bad), bad[0])
	}
}

// TestKilled: at every point of the pipeline the process is killed, and the next
// one ends what it began.
func TestKilled(t *testing.T) {
	for _, at := range append(searchstore.Points(), fault.Received, fault.Decoded, fault.Opened, fault.Admitted, fault.Handled, fault.Committed, fault.Settling) {
		t.Run(string(at), func(t *testing.T) {
			p := newPlace(t, servertest.OpenSearch.Database(t), "")
			happened, delivered := history(7, 100)
			q := rig.NewQueue(t, pipeline(p, ".rev", 20))
			deliver(q, delivered, 1)
			if e := q.Run("run --once", "SEMEL_FAULT="+string(at)+":2"); !e.Killed() {
				t.Fatalf("it was to die: %v", e)
			}
			q.Drain(0)
			if bad := wrong(p.held(), newest(happened)); len(bad) > 0 {
				t.Errorf("%d documents, the first: %s", len(bad), bad[0])
			}
			if n := q.Int("SELECT COUNT(*) FROM semel_inbox"); n != 100 {
				t.Errorf("%d events are recorded", n)
			}
		})
	}
}

// TestLetters: a message whose document the server refuses is a dead letter by
// itself; those in the same bulk are written. --check asks the server.
func TestLetters(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), `{"mappings":{"properties":{"doc":{"type":"keyword"},"rev":{"type":"byte"}}}}`)
	q := rig.NewQueue(t, pipeline(p, ".rev", 200))
	deliver(q, []event{{"e1", "a", 1, false}, {"e2", "b", 1000, false}, {"e3", "a", 2, false}, {"e4", "c", -1, false}, {"e5", "", 1, false}, {"e6", "a", 1, false}}, 1)
	if e := q.Run("run --check"); e.Code != 0 || !strings.Contains(e.Stdout, "index "+p.index) {
		t.Errorf("%v", e)
	}
	q.Drain(3)
	if got := q.Strings("SELECT CAST(id AS TEXT) || ' ' || state FROM semel_letter ORDER BY id"); !slices.Equal(got, []string{"e2 dead", "e4 dead", "e5 dead"}) {
		t.Errorf("letters: %q", got)
	}
	if got := p.held(); len(got) != 1 || got["a"] != `{"doc":"a","rev":2}` {
		t.Errorf("held: %v", got)
	}
	q.Describe(strings.Replace(pipeline(p, ".rev", 200), "index: "+p.index, "index: none-of-these", 1))
	if e := q.Run("run --check"); e.Code != 1 || !strings.Contains(e.Stderr, "create it") {
		t.Errorf("%v", e)
	}
	q.Describe(strings.Replace(pipeline(p, ".rev", 200), p.server, "http://127.0.0.1:1", 1))
	for _, words := range []string{"run --check", "run --once"} {
		if e := q.Run(words); e.Code != 2 || !strings.Contains(e.Stderr, "has to run") {
			t.Errorf("%s: %v", words, e)
		}
	}
}
