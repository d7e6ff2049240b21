package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// TestDirectoryQueue is the line of the requirements about directory queues.
func TestDirectoryQueue(t *testing.T) {
	t.Run("stages", directoryStages)
	t.Run("temporary names", directoryTemporary)
	t.Run("markers", directoryMarkers)
	t.Run("still being written", directorySettled)
	t.Run("several processes", directorySeveral)
	t.Run("claims of the dead", directoryTakeover)
	t.Run("foreign files", directoryForeign)
	t.Run("delete", directoryDelete)
}

// directoryStages: a file goes from inbox/ through processing/ to done/ or
// error/, under its name, byte for byte; nothing that lies there is replaced.
func directoryStages(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	q.Deliver("good.json", event("a")+"  \n")
	q.Deliver("bad.json", "{")
	q.Drain(3)
	q.Deliver("good.json", event("b"))
	q.Deliver("bad.json", "[")
	q.Drain(3)
	for _, c := range []struct{ stage, name, body string }{
		{"done", "good.json", event("a") + "  \n"}, {"done", "good.1.json", event("b")},
		{"error", "bad.json", "{"}, {"error", "bad.1.json", "["},
	} {
		if got := q.Read(c.stage, c.name); got != c.body {
			t.Errorf("%s/%s holds %q, want %q", c.stage, c.name, got, c.body)
		}
	}
	var side struct{ File, Origin, Letter, Why, Consumer string }
	if err := json.Unmarshal([]byte(q.Read("error", "bad.1.json.semel.json")), &side); err != nil {
		t.Fatal(err)
	}
	refs := q.Strings("SELECT CAST(ref AS TEXT) FROM semel_letter")
	if !slices.Contains(refs, side.Letter) || side.File != "bad.1.json" || side.Why == "" || side.Consumer != "plain" || !strings.HasPrefix(side.Origin, "bad.json@") {
		t.Errorf("sidecar %+v, letters %q", side, refs)
	}
	for _, stage := range []string{"inbox", "processing"} {
		if files := q.Files(stage); len(files) > 0 {
			t.Errorf("%s/ still holds %q", stage, files)
		}
	}
}

// directoryTemporary: names that writers use before a file is finished are
// left alone.
func directoryTemporary(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	temporary := []string{".hidden.json", "a.json.tmp", "b.json.part", "c.json~", ".d.json.swp", "e.PART", "f.filepart", "g.crdownload"}
	for _, name := range temporary {
		if err := os.WriteFile(q.Path("inbox", name), []byte(event(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	q.Deliver("ready.json", event("ready"))
	if s := q.Drain(0); s.Received != 1 || s.Applied != 1 {
		t.Errorf("%+v, want the one file with a proper name", s)
	}
	for _, name := range temporary {
		if _, err := os.Lstat(q.Path("inbox", name)); err != nil {
			t.Errorf("%s was touched: %v", name, err)
		}
	}
	if err := os.Rename(q.Path("inbox", "a.json.tmp"), q.Path("inbox", "a.json")); err != nil {
		t.Fatal(err)
	}
	if s := q.Drain(0); s.Applied != 1 {
		t.Errorf("%+v, want the renamed file", s)
	}
}

// directoryMarkers: a file counts when its marker is there, and the marker
// goes with it.
func directoryMarkers(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"complete: marker\n")
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(q.Path("inbox", name), []byte(event(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s := q.Drain(0); s.Received != 0 {
		t.Errorf("%+v without a marker", s)
	}
	q.Deliver("a.json.ok", "")
	if s := q.Drain(0); s.Applied != 1 {
		t.Errorf("%+v, want the marked file", s)
	}
	inbox, err := filepath.Glob(q.Path("inbox", "*"))
	if err != nil || len(inbox) != 1 || filepath.Base(inbox[0]) != "b.json" {
		t.Errorf("inbox/ holds %q, %v, want the unmarked file alone", inbox, err)
	}
}

// directorySettled: with complete: settled a file is taken when it has stopped
// to change, and --once waits for that.
func directorySettled(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"complete: settled\nfiles: lines\n")
	path := q.Path("inbox", "log.ndjson")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(id string) {
		if _, err := f.WriteString(event(id) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	p := q.Start("run --once --json")
	rig.Until(t, "the pipeline works", func() bool {
		_, err := os.Stat(q.DB)
		return err == nil && len(q.Strings("SELECT name FROM sqlite_master WHERE name = 'semel_batch'")) > 0 && q.Int("SELECT COUNT(*) FROM semel_batch") > 0
	})
	write("b")
	e := p.Wait()
	if s := e.Summary(t); e.Code != 0 || s.Applied != 2 || len(q.Files("done")) != 1 {
		t.Errorf("want both lines, the file waited for: %v", e)
	}
}

// directorySeveral: processes share one queue; every message is applied once
// and all of them find some.
func directorySeveral(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"batch: 20\n")
	const messages = 600
	for i := range messages {
		q.Deliver(fmt.Sprintf("%03d.json", i), event(fmt.Sprint(i)))
	}
	var ps []*rig.Process
	for range 3 {
		ps = append(ps, q.Start("run --once --json"))
	}
	var applied int64
	for _, p := range ps {
		e := p.Wait()
		if e.Code != 0 {
			t.Fatalf("%v", e)
		}
		applied += e.Summary(t).Applied
	}
	if n := q.Int("SELECT n FROM counter"); n != messages || applied != messages || len(q.Files("done")) != messages {
		t.Errorf("counter %d, applied %d, want %d", n, applied, messages)
	}
}

// directoryTakeover: what a dead worker had claimed is done by the next one,
// at once and without passing through inbox/.
func directoryTakeover(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	for i := range 10 {
		q.Deliver(fmt.Sprintf("%d.json", i), event(fmt.Sprint(i)))
	}
	if e := q.Run("run --once", "SEMEL_FAULT="+string(fault.Handled)); !e.Killed() {
		t.Fatalf("%v", e)
	}
	if in, claimed := q.Files("inbox"), q.Files("processing"); len(in) != 0 || len(claimed) != 10 {
		t.Fatalf("inbox/ %q, processing/ %q: want all ten claimed", in, claimed)
	}
	if s := q.Drain(0); s.Received != 10 || s.Applied != 10 {
		t.Errorf("%+v, want all ten taken over", s)
	}
	if left, err := os.ReadDir(q.Path("processing")); err != nil || len(left) > 0 {
		t.Errorf("processing/ still holds %v, %v", left, err)
	}
}

// directoryForeign: a directory of somebody else's files is taken as it is,
// whatever the names and the bytes, with the name as the id.
func directoryForeign(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, `
name: foreign
source: directory:ROOT
store: sqlite:DB
setup: CREATE TABLE IF NOT EXISTS scans (name TEXT NOT NULL, content BLOB NOT NULL)
message: {id: $meta.file}
handle:
  sql: INSERT INTO scans (name, content) VALUES (:name, :content)
  with: {name: $meta.file, content: $body}
horizon: 7d
`)
	files := map[string]string{
		"scan 1.pdf": "%PDF-\x00\xff\xfe", "NOTES": "", "liste.csv": "a;b\n", "🛫 'quoted' \"name\".txt": "x", "-rf": "y", "a\nb": "z",
	}
	for name, body := range files {
		q.Deliver(name, body)
	}
	if s := q.Drain(0); s.Applied != int64(len(files)) {
		t.Errorf("%+v, want all %d", s, len(files))
	}
	for name, body := range files {
		if got := q.Read("done", name); got != body {
			t.Errorf("%q became %q", name, got)
		}
		if n := q.Int("SELECT COUNT(*) FROM scans WHERE name = ? AND content = CAST(? AS BLOB)", name, body); n != 1 {
			t.Errorf("%q: %d effects", name, n)
		}
	}
}

// directoryDelete: done: delete keeps nothing.
func directoryDelete(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"done: delete\n")
	q.Deliver("a.json", event("a"))
	q.Deliver("bad.json", "{")
	q.Drain(3)
	if done, bad := q.Files("done"), q.Files("error"); len(done) != 0 || len(bad) != 1 {
		t.Errorf("done/ %q, error/ %q", done, bad)
	}
}
