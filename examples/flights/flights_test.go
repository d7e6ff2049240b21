package flights_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/examples/flights"
)

func events(t *testing.T) []flights.Event {
	t.Helper()
	e, err := flights.Events()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// end is the state of every flight after all events took effect once, in
// whatever order: the one with the highest Seq.
func end(events []flights.Event, key func(flights.Event) string) map[string]flights.Event {
	last := map[string]flights.Event{}
	for _, e := range events {
		if e.Seq > last[key(e)].Seq {
			last[key(e)] = e
		}
	}
	return last
}

func full(e flights.Event) string { return e.Flight }

// coarse leaves out the airport of origin.
func coarse(e flights.Event) string { return e.Flight[:strings.LastIndex(e.Flight, "-")] }

func TestEventsAreComplete(t *testing.T) {
	all := events(t)
	if len(all) != 19888 {
		t.Errorf("%d events, want 19888", len(all))
	}
	ids := map[string]bool{}
	for i, e := range all {
		ids[e.ID()] = true
		if follows := i > 0 && all[i-1].Flight == e.Flight && all[i-1].Seq+1 == e.Seq; !follows && e.Seq != 1 {
			t.Errorf("%s does not follow the event before it", e.ID())
		}
	}
	if len(ids) != len(all) {
		t.Errorf("%d ids for %d events", len(ids), len(all))
	}
}

func TestEndState(t *testing.T) {
	count := map[string]int{}
	last := end(events(t), full)
	for _, e := range last {
		count[e.Status]++
	}
	want := map[string]int{flights.Arrived: 6580, flights.Cancelled: 71, flights.Departed: 3}
	if fmt.Sprint(count) != fmt.Sprint(want) || len(last) != 6654 {
		t.Errorf("%d flights end as %v, want 6654 as %v", len(last), count, want)
	}
}

func TestCoarseKeyMergesFlights(t *testing.T) {
	all := events(t)
	if n := len(end(all, coarse)); n != 6648 {
		t.Errorf("%d flights without the origin, want 6648", n)
	}
	ids := map[string]bool{}
	for _, e := range all {
		ids[fmt.Sprintf("%s/%d", coarse(e), e.Seq)] = true
	}
	if lost := len(all) - len(ids); lost != 18 {
		t.Errorf("%d events share an id with another one's, want 18", lost)
	}
}

func TestDeliverFiles(t *testing.T) {
	root := t.TempDir()
	first := deliver(t, flights.Inbox{Root: root, Seed: 1, Again: 0.05})
	want := flights.Delivered{Run: 1, Files: 20882, Messages: 20882, Events: 19888}
	if first != want {
		t.Errorf("delivered %+v, want %+v", first, want)
	}
	files := read(t, filepath.Join(root, "inbox"))
	if len(files) != 20882 {
		t.Errorf("%d files in the inbox, want 20882", len(files))
	}
	checkDeliveries(t, files, 994)
}

func TestDeliverAgainAfterTheFilesMoved(t *testing.T) {
	root := t.TempDir()
	in := flights.Inbox{Root: root, Seed: 7, Lines: 2}
	deliver(t, in)
	before := read(t, filepath.Join(root, "inbox"))
	moved := filepath.Join(root, "done", "deeper")
	if err := os.MkdirAll(filepath.Dir(moved), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "inbox"), moved); err != nil {
		t.Fatal(err)
	}
	if d := deliver(t, in); d.Run != 2 {
		t.Errorf("second run is numbered %d", d.Run)
	}
	for name := range read(t, filepath.Join(root, "inbox")) {
		if _, clash := before[name]; clash {
			t.Errorf("%s came a second time under the same name", name)
		}
	}
}

func TestDeliverLines(t *testing.T) {
	root := t.TempDir()
	d := deliver(t, flights.Inbox{Root: root, Seed: 3, Again: 0.3, Lines: 5})
	files := read(t, filepath.Join(root, "inbox"))
	zipped := 0
	for name := range files {
		if strings.HasSuffix(name, ".gz") {
			zipped++
		}
	}
	if len(files) != 5 || d.Files != 5 || zipped != 2 {
		t.Errorf("%d files, %d of them compressed, reported as %d; want 5 and 2", len(files), zipped, d.Files)
	}
	checkDeliveries(t, files, d.Messages-d.Events)
}

func TestSeedDecides(t *testing.T) {
	inbox := func(seed uint64) string {
		root := t.TempDir()
		deliver(t, flights.Inbox{Root: root, Seed: seed, Again: 0.05, Lines: 1})
		body, err := os.ReadFile(filepath.Join(root, "inbox", "run1-00001.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	one := inbox(1)
	if one != inbox(1) {
		t.Error("the same seed made another order")
	}
	if one == inbox(2) {
		t.Error("another seed made the same order")
	}
}

func TestDeliverRefuses(t *testing.T) {
	for _, in := range []flights.Inbox{{Again: -0.1}, {Again: 1.1}, {Lines: -1}} {
		in.Root = t.TempDir()
		if _, err := in.Deliver(); err == nil {
			t.Errorf("%+v was accepted", in)
		}
	}
}

func deliver(t *testing.T, in flights.Inbox) flights.Delivered {
	t.Helper()
	d, err := in.Deliver()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// read returns the events of every file in dir.
func read(t *testing.T, dir string) map[string][]flights.Event {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]flights.Event{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("temporary file %s was left", entry.Name())
		}
		files[entry.Name()] = readFile(t, filepath.Join(dir, entry.Name()))
	}
	return files
}

func readFile(t *testing.T, path string) (all []flights.Event) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var e flights.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// checkDeliveries wants every event once or twice, and twice times two of them.
func checkDeliveries(t *testing.T, files map[string][]flights.Event, twice int) {
	t.Helper()
	times := map[flights.Event]int{}
	for _, all := range files {
		for _, e := range all {
			times[e]++
		}
	}
	again := 0
	for _, e := range events(t) {
		switch times[e] {
		case 1:
		case 2:
			again++
		default:
			t.Errorf("%s was delivered %d times", e.ID(), times[e])
		}
		delete(times, e)
	}
	if again != twice || len(times) != 0 {
		t.Errorf("%d events came twice and %d were invented, want %d and none", again, len(times), twice)
	}
}

func Example() {
	all, _ := flights.Events()
	for _, e := range all {
		if e.Flight == "2013-08-16-UA-236-JFK" {
			fmt.Println(e.ID(), e.Status, e.At)
		}
	}
	// Output:
	// 2013-08-16-UA-236-JFK/1 scheduled 2013-08-16T06:30
	// 2013-08-16-UA-236-JFK/2 departed 2013-08-16T06:27
	// 2013-08-16-UA-236-JFK/3 arrived 2013-08-16T09:11
}
