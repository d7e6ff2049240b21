package e2e

import (
	"crypto/sha256"
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

// table is a file of one format with the given ids, as text.
func table(format string, ids ...string) string {
	switch format {
	case "array":
		var all []string
		for _, id := range ids {
			all = append(all, event(id))
		}
		return "[\n  " + strings.Join(all, ",\n  ") + "\n]\n"
	case "csv":
		return "\ufeffid,note\r\n" + strings.Join(ids, ",\"a \"\"note\"\"\r\nof two lines\"\r\n") + ",\r\n"
	}
	var all []string
	for _, id := range ids {
		all = append(all, event(id)+"\n")
	}
	return strings.Join(all, "")
}

// TestFormats: one file, many messages, plain and compressed.
func TestFormats(t *testing.T) {
	for _, format := range []string{"lines", "array", "csv"} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s gzip %v", format, packed), func(t *testing.T) {
				t.Parallel()
				q := rig.NewQueue(t, plain+"files: "+format+"\n")
				body, name := table(format, "a", "b", "c"), "orders."+format
				if packed {
					body, name = compress(t, body), name+".gz"
				}
				q.Deliver(name, body)
				e := q.Run("run --dry-run --json")
				if e.Code != 0 || strings.Count(e.Stdout, `"verdict":"handle"`) != 3 {
					t.Errorf("--dry-run: %v", e)
				}
				if s := q.Drain(0); s.Applied != 3 {
					t.Errorf("%+v, want three applied", s)
				}
				if got := strings.Join(q.Strings("SELECT id FROM effects ORDER BY id"), " "); got != "a b c" {
					t.Errorf("effects of %q", got)
				}
				if q.Read("done", name) != body {
					t.Error("the file in done/ has changed")
				}
				q.Deliver("again-"+name, body)
				if s := q.Drain(0); s.Duplicates != 3 {
					t.Errorf("%+v, want three duplicates", s)
				}
			})
		}
	}
}

// TestFormatsOfTheHostile: a record that cannot be used is one dead letter
// that says why, and the others flow; what nobody can read on ends in error/
// with how far it was read.
func TestFormatsOfTheHostile(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for name, c := range map[string]struct {
		format, body string
		applied      string
		why          []string
		file         string // stage in which the file ends
	}{
		"fields":        {"csv", "id,b\n1,x\n2\n3,y,z\n4,\n", "1 4", []string{"line 3: 1 fields, and the header has 2", "line 4: 3 fields"}, "done"},
		"quotes":        {"csv", "id,b\n1,x\n2,y\"z\n\"3\"x,\n4,\n", "1 4", []string{"line 3: field 2: a quote", "line 4: field 1: something follows"}, "done"},
		"no end":        {"csv", "id,b\n1,x\n2,\"y\n3,z\n", "1", []string{"line 3: a quoted field begins there and has no end; 1 records before that were taken"}, "error"},
		"same names":    {"csv", "id,id\n1,2\n", "", []string{"columns 1 and 2 of the header have the same name"}, "error"},
		"no name":       {"csv", "id,\n1,2\n", "", []string{"column 2 of the header has no name"}, "error"},
		"no header":     {"csv", "", "", []string{"no line with the names"}, "error"},
		"UTF-16":        {"csv", "\xff\xfei\x00d\x00\n\x00", "", []string{"not UTF-8"}, "error"},
		"Latin-1":       {"csv", "id,b\n1,M\xfcller\n2,x\n", "2", []string{"line 2: field 2: not UTF-8"}, "done"},
		"old Mac":       {"csv", "id,b\r1,x\r", "", []string{"carriage return"}, "error"},
		"long record":   {"csv", "id,b\n1,x\n2," + long + "\n3,y\n", "1 3", []string{"more than the 65536 allowed"}, "done"},
		"long header":   {"csv", "id," + long + "\n1,x\n", "", []string{"the header is too long"}, "error"},
		"empty id":      {"csv", "id,b\n,x\n2,y\n", "2", []string{"0 bytes"}, "done"},
		"control":       {"csv", "id,b\n\"a\x1b[31m\x00\",x\n", "a\x1b[31m\x00", nil, "done"},
		"not JSON":      {"array", `[{"id":"1"},{id:2},{"id":"3"}]`, "1 3", []string{"not valid JSON"}, "done"},
		"twice":         {"array", `[{"id":"1","id":"2"},{"id":"3"}]`, "3", []string{"twice"}, "done"},
		"scalars":       {"array", `[1,null,"x",{"id":"3"}]`, "3", []string{"a number", "null", "a string"}, "done"},
		"long element":  {"array", `[{"id":"1","b":"` + long + `"},{"id":"3"}]`, "3", []string{"more than the 65536 allowed"}, "done"},
		"broken array":  {"array", `[{"id":"1"},{"id":"2"} {"id":"3"}]`, "1 2", []string{"a comma or ] is expected; 2 elements before that were taken"}, "error"},
		"wrong bracket": {"array", `[{"id":"1"},{"id":["2"}]`, "1", []string{"} closes what was opened with [; 1 elements"}, "error"},
		"truncated":     {"array", `[{"id":"1"},{"id":`, "1", []string{"the array has no end: the file stops at byte 18; 1 elements"}, "error"},
		"no array":      {"array", `{"id":"1"}`, "", []string{"does not begin with ["}, "error"},
		"deep":          {"array", "[" + strings.Repeat("[", 50_000), "", []string{"nested deeper than 10000"}, "error"},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s gzip %v", name, packed), func(t *testing.T) {
				t.Parallel()
				q := rig.NewQueue(t, strings.Replace(plain, "message: {id: .id}", "message: {id: .id, max_bytes: 65536}\nfiles: "+c.format, 1))
				body := c.body
				if packed {
					body = compress(t, body)
				}
				q.Deliver("file.gz", body)
				code := 3
				if len(c.why) == 0 {
					code = 0
				}
				if s := q.Drain(code); s.Dead != int64(len(c.why)) || !s.Balanced {
					t.Errorf("%+v, want %d dead", s, len(c.why))
				}
				if got := strings.Join(q.Strings("SELECT id FROM effects ORDER BY id"), " "); got != c.applied {
					t.Errorf("effects of %q, want %q", got, c.applied)
				}
				letters := strings.Join(q.Strings("SELECT error FROM semel_letter"), "\n")
				for _, why := range c.why {
					if !strings.Contains(letters, why) {
						t.Errorf("no letter says %q: %.500q", why, letters)
					}
				}
				if q.Read(c.file, "file.gz") != body {
					t.Errorf("the file in %s/ has changed", c.file)
				}
				if left := append(q.Files("inbox"), q.Files("processing")...); len(left) > 0 {
					t.Errorf("%q is left", left)
				}
			})
		}
	}
}

// TestFormatsSurviveDeaths kills the process at every point in the middle of a
// file; with the position as the only memory, nothing is lost or done twice.
func TestFormatsSurviveDeaths(t *testing.T) {
	for j, format := range []string{"array", "csv"} {
		for i, packed := range []bool{false, true} {
			inbox := []string{"position", "table"}[(i+j)%2]
			t.Run(fmt.Sprintf("%s gzip %v %s", format, packed, inbox), func(t *testing.T) {
				t.Parallel()
				q := rig.NewQueue(t, plain+"files: "+format+"\nbatch: 2\nmax_crashes: 100\ninbox: "+inbox+"\n")
				died, n := 0, int64(0)
				for _, p := range fault.All() {
					var ids []string
					for range 7 {
						ids, n = append(ids, fmt.Sprint("m", n)), n+1
					}
					body := table(format, ids...)
					if packed {
						body = compress(t, body)
					}
					q.Deliver(string(p), body)
					if e := q.Run("run --once", fmt.Sprintf("SEMEL_FAULT=%s:2", p)); e.Signal != 0 {
						died++
					}
					q.Drain(0)
					if got, once := q.Int("SELECT n FROM counter"), q.Int("SELECT COUNT(DISTINCT id) FROM effects"); got != n || once != n {
						t.Fatalf("after a death at %s: %d effects of %d messages, want %d", p, got, once, n)
					}
				}
				if died < 5 {
					t.Errorf("the process died at %d points only", died)
				}
			})
		}
	}
}

// TestDelimiter: other characters between fields; a file with another one than
// was said is seen by its fields.
func TestDelimiter(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"files: csv\ndelimiter: \"\\t\"\n")
	q.Deliver("a.tsv", "id\tb,c\n1\t,\n")
	q.Deliver("b.tsv", "id,b\n2,3\n")
	if s := q.Drain(3); s.Applied != 1 || s.Dead != 1 {
		t.Errorf("%+v", s)
	}
}

// TestLargeFilesAreStreamed: a file that is much larger than a message takes
// no more memory than one.
func TestLargeFilesAreStreamed(t *testing.T) {
	for _, format := range []string{"array", "csv"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, plain+"files: "+format+"\n")
			ids := make([]string, 2000)
			for i := range ids {
				ids[i] = strings.Repeat(fmt.Sprintf("%04d", i), 50)
			}
			one := table(format, ids...)
			f, err := os.Create(q.Path("inbox", "large.tmp"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			head, rest, _ := strings.Cut(one, "\n")
			pad := strings.Repeat(" ", 1<<20)
			if format == "csv" { // blank lines
				pad = strings.Repeat("\n", 1<<18)
			}
			for _, s := range append(append([]string{head, "\n"}, slices.Repeat([]string{pad}, 200)...), rest) {
				if _, err := f.WriteString(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(f.Name(), filepath.Join(filepath.Dir(f.Name()), "large")); err != nil {
				t.Fatal(err)
			}
			c := q.Semel("run --once --json")
			c.Measure = true
			e := rig.Run(t, c)
			if s := e.Summary(t); s.Applied != int64(len(ids)) {
				t.Errorf("%+v", s)
			}
			if e.Memory > 100<<20 {
				t.Errorf("%d MB of memory", e.Memory>>20)
			}
		})
	}
}

// sumOf is what sha256sum prints.
func sumOf(body, name string) string {
	return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(body)), name)
}

// TestChecksums: a file counts when its checksum is there and fits, and takes
// it along; what does not fit ends in error/ with both digests.
func TestChecksums(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"complete: checksum\nerror_return: replay\n")
	body := event("a")
	q.Deliver("a.json.sha256", sumOf(body, "a.json"))
	if s := q.Drain(0); s.Received != 0 {
		t.Errorf("%+v: a checksum without a file", s)
	}
	q.Deliver("a.json", body)
	q.Deliver("b.json", event("b"))
	q.Deliver("c.json", event("c"))
	q.Deliver("c.json.sha256", sumOf(event("x"), "c.json"))
	e := q.Run("run --dry-run --json")
	if e.Code != 0 || strings.Count(e.Stdout, `"verdict":"handle"`) != 1 || strings.Count(e.Stdout, `"verdict":"dead"`) != 1 {
		t.Errorf("--dry-run: want those with a checksum, and whether it fits: %v", e)
	}
	if s := q.Drain(3); s.Applied != 1 || s.Dead != 1 {
		t.Errorf("%+v", s)
	}
	for path, want := range map[string]string{"done/a.json": body, "done/a.json.sha256": sumOf(body, "a.json"), "error/c.json": event("c"), "error/c.json.sha256": sumOf(event("x"), "c.json"), "inbox/b.json": event("b")} {
		if got := q.Read(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	var side struct{ Why, Letter string }
	if err := json.Unmarshal([]byte(q.Read("error", "c.json.semel.json")), &side); err != nil || side.Letter == "" ||
		!strings.Contains(side.Why, sumOf(event("c"), "")[:64]) || !strings.Contains(side.Why, sumOf(event("x"), "")[:64]) {
		t.Errorf("sidecar %+v, %v", side, err)
	}
	if e := q.Run("status --json"); e.Code != 3 || strings.Count(e.Stdout, `"files":1`) != 3 {
		t.Errorf("status: %v", e)
	}
	// Corrected, it is an ordinary message.
	q.Deliver("c.json.sha256", sumOf(event("c"), "c.json"))
	if err := os.Rename(q.Path("error", "c.json"), q.Path("inbox", "c.json")); err != nil {
		t.Fatal(err)
	}
	if s := q.Drain(0); s.Applied != 1 {
		t.Errorf("corrected: %+v", s)
	}
}

// TestChecksumBeforeTheFileIsWritten: the file is written where it lies, slowly,
// by a process that said what it will be; it is taken when it is all there.
func TestChecksumBeforeTheFileIsWritten(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain+"complete: checksum\nfiles: lines\n")
	var body string
	for i := range 20 {
		body += event(fmt.Sprint(i)) + "\n"
	}
	q.Deliver("log.sha256", sumOf(body, "log"))
	p := q.Start("run")
	f, err := os.Create(q.Path("inbox", "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The pipeline shows with other files that it looked meanwhile.
	for i, line := range strings.SplitAfter(body, "\n") {
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 && i < 20 {
			other := event(fmt.Sprint("other ", i)) + "\n"
			name := fmt.Sprint("other", i)
			q.Deliver(name, other)
			q.Deliver(name+".sha256", sumOf(other, name))
			rig.Until(t, "the pipeline looks", func() bool { return slices.Contains(q.Files("done"), name) })
			if slices.Contains(q.Files("done"), "log") {
				t.Fatal("a part was taken")
			}
		}
	}
	rig.Until(t, "the file is taken", func() bool { return slices.Contains(q.Files("done"), "log") })
	if e := p.Interrupt(); e.Code != 0 || q.Int("SELECT COUNT(*) FROM effects") != 24 {
		t.Errorf("%d effects: %v", q.Int("SELECT COUNT(*) FROM effects"), e)
	}
}

// events is a pipeline of CloudEvents.
var events = strings.NewReplacer("message: {id: .id}", "message: {format: cloudevents}", "VALUES (:id)", "VALUES (:id || ' ' || :n)",
	"with: {id: .id}", "with: {id: $meta.event.id, n: .n}").Replace(plain)

func cloudEvent(id, more string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/test","type":"made","data":{"n":%q}%s}`, id, "n of "+id, more)
}

// TestCloudEvents: in files of one, in lines and as the batch format, which is
// an array. The same id of another source is another event; what is none is a
// dead letter, and is handled when it comes back repaired.
func TestCloudEvents(t *testing.T) {
	for _, format := range []string{"whole", "lines", "array"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, events+"files: "+format+"\nerror_return: replay\n")
			other := strings.Replace(cloudEvent("1", ""), "/test", "/other", 1)
			bad := strings.Replace(cloudEvent("3", ""), "made", "", 1)
			all := []string{cloudEvent("1", ""), cloudEvent("2", `,"x":1`), other, bad, cloudEvent("1", `,"time":"2026-01-01T00:00:00Z"`)}
			switch format {
			case "whole":
				for i, body := range all {
					q.Deliver(fmt.Sprintf("%d.json", i), body)
				}
			case "lines":
				q.Deliver("all", strings.Join(all, "\n"))
			default:
				q.Deliver("all", "["+strings.Join(all, ",\n")+"]")
			}
			if s := q.Drain(3); s.Applied != 3 || s.Duplicates != 1 || s.Dead != 1 {
				t.Errorf("%+v", s)
			}
			if got := strings.Join(q.Strings("SELECT id FROM effects ORDER BY id"), "|"); got != "1 n of 1|1 n of 1|2 n of 2" {
				t.Errorf("effects of %q", got)
			}
			why := q.Strings("SELECT error FROM semel_letter")
			if len(why) != 1 || !strings.Contains(why[0], "the attribute type is missing or empty") {
				t.Errorf("letters %q", why)
			}
			dead := q.Files("error")
			if len(dead) != 1 {
				t.Fatalf("error/ holds %q", dead)
			}
			repaired := strings.Replace(q.Read("error", dead[0]), `"type":""`, `"type":"made"`, 1)
			if err := os.WriteFile(q.Path("error", dead[0]), []byte(repaired), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(q.Path("error", dead[0]), q.Path("inbox", dead[0])); err != nil {
				t.Fatal(err)
			}
			if s := q.Drain(0); s.Applied != 1 {
				t.Errorf("repaired: %+v", s)
			}
		})
	}
}

// TestHostileCloudEvents: each is a dead letter with its reason.
func TestHostileCloudEvents(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, events+"files: lines\n")
	for body, why := range map[string]string{
		cloudEvent("1", `,"id":"2"`):                                                                   "id is there twice",
		cloudEvent("1", `,"data_base64":"AA=="`):                                                       "both data and data_base64",
		strings.Replace(cloudEvent("1", ""), "1.0", "0.3", 1):                                          "specversion is not 1.0",
		strings.Replace(cloudEvent("1", ""), `"id"`, `"i"`, 1):                                         "id is missing",
		`{"specversion":"1.0","id":"\ud800","source":"/a","type":"t","data":{"n":"x"}}`:                "half a surrogate pair",
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","data":{"n":"x","n":"y"}}`:             "a key twice",
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","datacontenttype":"a/b","data":{}}`:    "not JSON",
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","data":` + strings.Repeat("[", 20_000): "not valid JSON",
		`[]`: "not a JSON object",
	} {
		q.Deliver("one", body)
		if s := q.Drain(3); s.Dead != 1 {
			t.Errorf("%.100s: %+v", body, s)
		}
		last := q.Strings("SELECT error FROM semel_letter WHERE error LIKE '%' || ? || '%'", why)
		if len(last) == 0 {
			t.Errorf("%.100s: no letter says %q", body, why)
		}
	}
}

// TestTheHowToRuns: every pipeline of the page runs as it stands, on the files
// that the page makes.
func TestTheHowToRuns(t *testing.T) {
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", "howto", "formats.md"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "```yaml\n")[1:]
	if len(parts) < 3 {
		t.Fatalf("the page has %d pipelines", len(parts))
	}
	for _, part := range parts {
		pipeline, rest, _ := strings.Cut(part, "```")
		_, script, _ := strings.Cut(rest, "```sh\n")
		script, _, _ = strings.Cut(script, "```")
		name, _, _ := strings.Cut(strings.TrimPrefix(pipeline, "name: "), "\n")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(pipeline), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "spool", "inbox"), 0o755); err != nil {
				t.Fatal(err)
			}
			if e := rig.Run(t, rig.Command{Path: "/bin/sh", Args: []string{"-ec", script}, Dir: dir}); e.Code != 0 {
				t.Fatalf("the script: %v", e)
			}
			e := rig.Run(t, rig.Command{Path: rig.Program(t, "cmd/semel"), Args: []string{"run", "p.yaml", "--once", "--json"}, Dir: dir})
			if s := e.Summary(t); e.Code != 0 || s.Applied == 0 {
				t.Errorf("%v", e)
			}
		})
	}
}
