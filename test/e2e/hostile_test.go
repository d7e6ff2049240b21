package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// hostile is a pipeline whose messages come from people who mean no good.
const hostile = plain + "keep: 30d\n"

// bodies are messages and what has to be said of them; "" for those that are
// fine.
func bodies() map[string]struct{ body, why string } {
	type c = struct{ body, why string }
	long := strings.Repeat("i", 256)
	return map[string]c{
		"empty":           {"", "empty"},
		"blank":           {" \n\t ", "empty"},
		"truncated":       {`{"id": "truncated", "a": [1, 2`, "end"},
		"two values":      {`{"id": "two"} {"id": "three"}`, "after"},
		"not JSON":        {"id=5&name=x", ""},
		"ten MB":          {`{"id": "ten MB", "pad": "` + strings.Repeat("x", 10<<20) + `"}`, ""},
		"too large":       {`{"id": "too large", "pad": "` + strings.Repeat("x", 17<<20) + `"}`, "bytes"},
		"invalid UTF-8":   {"{\"id\": \"utf\xff\xfe\"}", "UTF-8"},
		"NUL":             {"{\"id\": \"nul\x00\"}", ""},
		"NUL bytes":       {"\x00\x00\x00\x00", ""},
		"escaped NUL":     {`{"id": "nul\u0000inside"}`, ""},
		"duplicate keys":  {`{"id": "one", "id": "two"}`, "twice"},
		"nested":          {`{"id": "nested", "a": ` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}", "deep"},
		"float":           {`{"id": 1.5}`, "integer"},
		"exponent":        {`{"id": 1e3}`, "integer"},
		"null":            {`{"id": null}`, "null"},
		"missing":         {`{"di": 1}`, "missing"},
		"boolean":         {`{"id": true}`, "boolean"},
		"object":          {`{"id": {"a": 1}}`, "object"},
		"empty id":        {`{"id": ""}`, "bytes"},
		"255 bytes":       {event(long[:255]), ""},
		"256 bytes":       {event(long), "256 bytes"},
		"large integer":   {`{"id": 9007199254740992}`, ""},
		"larger integer":  {`{"id": 9007199254740993}`, ""},
		"array":           {`[{"id": "in an array"}]`, ""},
		"lone surrogate":  {`{"id": "\ud800"}`, ""},
		"byte order mark": {"\ufeff" + event("bom"), ""},
	}
}

// fine are those of bodies that are applied.
func fine(name string) bool {
	switch name {
	case "ten MB", "255 bytes", "large integer", "larger integer", "escaped NUL", "byte order mark":
		return true
	}
	return false
}

// TestHostileBodies: every message that cannot be used becomes a dead letter
// that says why, and everything else flows.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, hostile)
	var good, bad int64
	for name, c := range bodies() {
		q.Deliver(name+".json", c.body)
		if fine(name) {
			good++
		} else {
			bad++
		}
	}
	for i := range 10 {
		q.Deliver(fmt.Sprintf("flow %d.json", i), event(fmt.Sprintf("flow %d", i)))
	}
	if s := q.Drain(3); s.Applied != good+10 || s.Dead != bad {
		t.Errorf("%+v, want %d applied and %d dead", s, good+10, bad)
	}
	for name, c := range bodies() {
		stage := "error"
		if fine(name) {
			stage = "done"
		}
		if got := q.Read(stage, name+".json"); got != c.body {
			t.Errorf("%s: the file in %s/ has changed", name, stage)
		}
		if fine(name) {
			continue
		}
		why := q.Strings("SELECT class || ' ' || reason || ': ' || error FROM semel_letter WHERE substr(CAST(origin AS TEXT), 1, length(?)) = ?", name+".json@", name+".json@")
		if len(why) != 1 || !strings.HasPrefix(why[0], "format ") || !strings.Contains(why[0], c.why) {
			t.Errorf("%s: letters %.300q, want one that says %q", name, why, c.why)
			continue
		}
		if n := len(why[0]); n > 4200 {
			t.Errorf("%s: the error has %d bytes", name, n)
		}
	}
	if n := q.Int("SELECT COUNT(*) FROM effects WHERE id IN ('9007199254740992', '9007199254740993')"); n != 2 {
		t.Errorf("%d effects of the two large integers: they were merged", n)
	}
}

// TestHostileLines: the same in one file of lines, plain and compressed. A
// line that cannot be used does not hurt its neighbours.
func TestHostileLines(t *testing.T) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("gzip %v", packed), func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, hostile+"files: lines\n")
			var text strings.Builder
			var good, bad int64
			text.WriteString("\n\r\n   \n") // blank lines are none
			for name, c := range bodies() {
				if strings.TrimSpace(c.body) == "" {
					continue
				}
				text.WriteString(c.body + "\n")
				text.WriteString(event("after "+name) + "\r\n")
				good++
				if fine(name) {
					good++
				} else {
					bad++
				}
			}
			body := text.String()
			if packed {
				body = compress(t, body)
			}
			q.Deliver("all.ndjson", body)
			q.Deliver("empty.ndjson", "")
			if s := q.Drain(3); s.Applied != good || s.Dead != bad {
				t.Errorf("%+v, want %d applied and %d dead", s, good, bad)
			}
			if done := q.Files("done"); len(done) != 2 {
				t.Errorf("done/ holds %q", done)
			}
			if files := q.Files("error"); int64(len(files)) != bad {
				t.Errorf("error/ holds %d files, want %d dead lines", len(files), bad)
			}
		})
	}
}

// TestHostileGzip: what can be read of a damaged file is applied; the rest is
// one dead letter.
func TestHostileGzip(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strings.Replace(hostile, "message: {id: .id}", "message: {id: .id, max_bytes: 65536}\nfiles: lines", 1))
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "{\"id\": \"%d\", \"pad\": \"%d %x\"}\n", i, i*i, i*7919)
	}
	whole := compress(t, text.String())
	q.Deliver("cut.ndjson.gz", whole[:len(whole)/2])
	q.Deliver("garbage.ndjson.gz", compress(t, event("g1")+"\n")+"garbage behind the end")
	q.Deliver("two members.ndjson.gz", compress(t, event("t1")+"\n")+compress(t, event("t2")+"\n"))
	q.Deliver("bomb.ndjson.gz", compress(t, event("b1")+"\n"+strings.Repeat(" ", 64<<20)+"x\n"+event("b2")+"\n"))
	q.Deliver("only a header.gz", "\x1f\x8b\x08")
	c := q.Semel("run --once --json")
	c.Measure = true
	e := rig.Run(t, c)
	s := e.Summary(t)
	if e.Code != 3 || s.Dead != 4 {
		t.Errorf("want 4 dead letters: cut, garbage, bomb, header: %v", e)
	}
	for _, id := range []string{"0", "g1", "t1", "t2", "b1", "b2"} {
		if n := q.Int("SELECT COUNT(*) FROM effects WHERE id = ?", id); n != 1 {
			t.Errorf("%d effects of %s, want 1", n, id)
		}
	}
	if e.Memory > 100<<20 {
		t.Errorf("%d MiB for a bomb", e.Memory>>20)
	}
	for _, name := range []string{"cut.ndjson.gz", "garbage.ndjson.gz", "only a header.gz"} {
		if _, err := os.Stat(q.Path("error", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileNames: file names of all kinds, for messages that are fine and
// for dead ones, whose sidecar has a name, too.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, hostile)
	names := []string{
		strings.Repeat("n", 255), strings.Repeat("é", 127), "with spaces .json", `quote".json`, "it's.json", "🛫🛬.json",
		"new\nline.json", "tab\t.json", "-dash", "%2f.json", "back\\slash", "semi;colon", "$(touch x)", "\xff\xfe.json",
		"*", "?", "trailing dot.", "UPPER.JSON", "a.json.semel", "no extension",
	}
	for i, name := range names {
		body := event(fmt.Sprint(i))
		if i%2 == 1 {
			body = `{"id": `
		}
		q.Deliver(name, body)
	}
	if s := q.Drain(3); s.Applied != 10 || s.Dead != 10 {
		t.Errorf("%+v, want ten of each", s)
	}
	for i, name := range names {
		stage := []string{"done", "error"}[i%2]
		if _, err := os.Lstat(q.Path(stage, name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	sidecars, err := filepath.Glob(q.Path("error", "*.semel.json"))
	if err != nil || len(sidecars) != 10 {
		t.Errorf("%d sidecars, %v, want ten", len(sidecars), err)
	}
	// Again: the same names must find room beside themselves.
	for i, name := range names {
		body := event(fmt.Sprint(100 + i))
		if i%2 == 1 {
			body = `{"id": ` + fmt.Sprint(i)
		}
		q.Deliver(name, body)
	}
	if s := q.Drain(3); s.Applied != 10 || s.Dead != 10 {
		t.Errorf("the same names again: %+v, want ten of each", s)
	}
	if done, bad := q.Files("done"), q.Files("error"); len(done) != 20 || len(bad) != 20 {
		t.Errorf("%d files in done/, %d in error/, want 20 each", len(done), len(bad))
	}
}

// TestHostileFiles: what is not a regular file with one name stays in inbox/
// and is named; it neither blocks nor keeps the run from ending.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, hostile)
	outside := filepath.Join(q.Dir, "outside.json")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte(event("outside")), 0o644))
	in := func(name string) string { return q.Path("inbox", name) }
	must(os.Symlink(outside, in("symlink.json")))
	must(os.Symlink("nowhere", in("dangling.json")))
	must(syscall.Mkfifo(in("fifo.json"), 0o644))
	must(os.Mkdir(in("directory.json"), 0o755))
	must(os.Link(outside, in("hardlink.json")))
	left := []string{"symlink.json", "dangling.json", "fifo.json", "directory.json", "hardlink.json"}
	// The name of a socket is bound to a short length; the path is not ours.
	if l, err := net.Listen("unix", in("s")); err == nil {
		defer l.Close()
		left = append(left, "s")
	}
	switch err := syscall.Mknod(in("device.json"), syscall.S_IFCHR|0o644, 1<<8|5); { // /dev/zero
	case err == nil:
		left = append(left, "device.json")
	case !errors.Is(err, syscall.EPERM): // only root makes devices; a FIFO is as special
		t.Error(err)
	}
	q.Deliver("good.json", event("good"))
	e := q.Run("run --once --json")
	if s := e.Summary(t); e.Code != 0 || s.Received != 1 || s.Applied != 1 {
		t.Errorf("want the one regular file: %v", e)
	}
	for _, name := range left {
		if _, err := os.Lstat(in(name)); err != nil {
			t.Errorf("%s did not stay: %v", name, err)
		}
		if !strings.Contains(e.Stderr, "file="+name+" ") {
			t.Errorf("%s is not named: %v", name, e.Stderr)
		}
	}
	must(os.Remove(outside))
	if s := q.Drain(0); s.Applied != 1 {
		t.Errorf("%+v, want the file that has one name now", s)
	}
}
