package docs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// claim is what a page says becomes of messages: the pipeline, the files, and
// the outcome. A file is "name content".
type claim struct {
	name, pipeline string
	setup          string // run when the tables are there
	files          []string
	code           int
	want           string // applied, duplicates, superseded, conflicts, parked, dead
	query, rows    string
}

func (c claim) check(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, c.pipeline)
	env := []string{"SEMEL_SOURCE=directory:" + q.Root, "SEMEL_STORE=sqlite:" + q.DB}
	if c.setup != "" {
		q.Run("run --once", env...)
		q.Exec(c.setup)
	}
	for i, f := range c.files {
		q.Deliver(fmt.Sprintf("%d.json", i), f)
	}
	e := q.Run("run --once --wait 0s --json", env...)
	s := e.Summary(t)
	got := fmt.Sprint(s.Applied, s.Duplicates, s.Superseded, s.Conflicts, s.Parked, s.Dead)
	if e.Code != c.code || got != c.want || !s.Balanced {
		t.Errorf("applied, duplicates, superseded, conflicts, parked, dead: %s, want %s; want exit code %d: %v", got, c.want, c.code, e)
	}
	if c.query == "" {
		return
	}
	if rows := strings.Join(q.Strings(c.query), ", "); rows != c.rows {
		t.Errorf("%q, want %q", rows, c.rows)
	}
}

// TestRecipes: the recipes do what they are there for.
func TestRecipes(t *testing.T) {
	recipes := map[string]string{}
	for _, block := range fenced(read(t, repository+"/docs/howto/README.md"), "yaml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(block, "name: "), "\n")
		recipes[name] = block
	}
	claims := []claim{
		{name: "visits", files: []string{`{"event":"e1","page":"p"}`, `{"event":"e2","page":"p"}`, `{"event":"e1","page":"p"}`},
			want: "2 1 0 0 0 0", query: "SELECT page || ' ' || n FROM visits", rows: "p 2"},
		{name: "payments", files: []string{`{"event":"e1","order":"o","cents":5}`, `{"event":"e2","order":"o","cents":5}`},
			want: "1 1 0 0 0 0", query: "SELECT order_no || ' ' || cents FROM payments", rows: "o 5"},
		{name: "tickets", setup: "INSERT INTO orders VALUES ('o1', 'new'), ('o2', 'cancelled')",
			files: []string{`{"message":"m1","order":"o1","event":"x"}`, `{"message":"m2","order":"o1","event":"x"}`, `{"message":"m3","order":"o2","event":"x"}`},
			want:  "1 0 2 0 0 0", query: "SELECT event || ' ' || n FROM sold", rows: "x 1"},
		{name: "stock", files: []string{`{"item":"i","revision":2,"pieces":7}`, `{"item":"i","revision":1,"pieces":9}`, `{"item":"i","revision":2,"pieces":7}`},
			want: "1 1 1 0 0 0", query: "SELECT item || ' ' || pieces FROM stock", rows: "i 7"},
		{name: "ledger", files: []string{strings.Join([]string{`{"entry":"a1","account":"a","cents":1}`, `{"entry":"a2","account":"a","cents":"many"}`,
			`{"entry":"b1","account":"b","cents":1}`, `{"entry":"a3","account":"a","cents":1}`}, "\n") + "\n"},
			code: 3, want: "2 0 0 0 1 1", query: "SELECT entry FROM ledger ORDER BY entry", rows: "a1, b1"},
		{name: "receipts", files: []string{`{"payment":"p","mail":"a@example.org","cents":1}`, `{"payment":"p","mail":"a@example.org","cents":1}`},
			want: "1 1 0 0 0 0", query: "SELECT id FROM mails WHERE sent = 0", rows: "p"},
	}
	for _, c := range claims {
		c.pipeline = recipes[c.name]
		delete(recipes, c.name)
		t.Run(c.name, c.check)
	}
	for name := range recipes {
		t.Errorf("nothing tries the recipe %s", name)
	}
}

// TestKeys: what docs/explanation/choosing-the-key.md says of wrong keys.
func TestKeys(t *testing.T) {
	pipeline := func(rules string) string {
		return "name: keys\nsource: directory:q\nstore: sqlite:x.db\nhorizon: 7d\n" +
			"setup: CREATE TABLE IF NOT EXISTS t (id TEXT)\n" + rules +
			"\nhandle:\n  sql: INSERT INTO t (id) VALUES (:id)\n  with: {id: $body}\n"
	}
	reason := "SELECT reason FROM semel_letter"
	for _, c := range []claim{
		{name: "too coarse", pipeline: pipeline("message: {id: .id}"), files: []string{`{"id":"a","n":1}`, `{"id":"a","n":2}`},
			code: 3, want: "1 0 0 1 0 0", query: reason, rows: "conflict"},
		{name: "too coarse, equal bodies", pipeline: pipeline("message: {id: .id}"), files: []string{`{"id":"a"}`, `{"id":"a"}`}, want: "1 1 0 0 0 0"},
		{name: "too coarse, trusted", pipeline: pipeline("message: {id: .id}\ntrust_id: true"), files: []string{`{"id":"a","n":1}`, `{"id":"a","n":2}`}, want: "1 1 0 0 0 0"},
		{name: "too fine", pipeline: pipeline("message: {id: .id}"), files: []string{`{"id":"a"}`, `{"id":"b"}`}, want: "2 0 0 0 0 0"},
		{name: "too fine, versions, equal bodies", pipeline: pipeline("message: {id: $meta.file, key: .key}\narbitrate: {version: .v}"),
			files: []string{`{"key":"k","v":1}`, `{"key":"k","v":1}`}, want: "1 0 1 0 0 0"},
		{name: "too fine, versions, other bodies", pipeline: pipeline("message: {id: .id, key: .key}\narbitrate: {version: .v}"),
			files: []string{`{"id":"a","key":"k","v":1}`, `{"id":"b","key":"k","v":1}`}, code: 3, want: "1 0 0 0 0 1", query: reason, rows: "tie"},
		{name: "missing", pipeline: pipeline("message: {id: .id}"), files: []string{`{"n":1}`}, code: 3, want: "0 0 0 0 0 1", query: reason, rows: "invalid"},
		{name: "key too coarse", pipeline: pipeline("message: {id: .id, key: .kind}\narbitrate: {version: .v}"),
			files: []string{`{"id":"a","kind":"x","v":2}`, `{"id":"b","kind":"x","v":1}`}, want: "1 0 1 0 0 0"},
		{name: "a missing part", pipeline: pipeline(`message: {id: '.a + "/" + .b'}`), files: []string{`{"b":"1"}`},
			want: "1 0 0 0 0 0", query: "SELECT id FROM semel_inbox", rows: "/1"},
		{name: "a missing part is an error", pipeline: pipeline(`message: {id: '(.a // error("no a")) + "/" + .b'}`), files: []string{`{"b":"1"}`},
			code: 3, want: "0 0 0 0 0 1", query: reason, rows: "invalid"},
		{name: "parts that cannot be misread", pipeline: pipeline(`message: {id: '[.a, .b] | tojson'}`), files: []string{`{"a":"a","b":"b/c"}`, `{"a":"a/b","b":"c"}`}, want: "2 0 0 0 0 0"},
		{name: "a float in a part", pipeline: pipeline(`message: {id: '"x/" + (.n | tostring)'}`), files: []string{`{"n":1.0}`, `{"n":1}`},
			want: "2 0 0 0 0 0", query: "SELECT id FROM semel_inbox ORDER BY id", rows: "x/1, x/1.0"},
		{name: "integers and strings", pipeline: pipeline("message: {id: .id}\ntrust_id: true"), files: []string{`{"id":7}`, `{"id":"7"}`}, want: "1 1 0 0 0 0"},
		{name: "bytes", pipeline: pipeline("message: {id: .id}"), files: []string{`{"id":"ORD"}`, `{"id":"ord"}`, `{"id":"\u00e9"}`, `{"id":"e\u0301"}`}, want: "4 0 0 0 0 0"},
		{name: "too long", pipeline: pipeline("message: {id: .id}"), files: []string{`{"id":"` + strings.Repeat("x", 255) + `"}`, `{"id":"` + strings.Repeat("x", 256) + `"}`},
			code: 3, want: "1 0 0 0 0 1", query: reason, rows: "invalid"},
	} {
		t.Run(c.name, c.check)
	}
}

// TestWorkedExamples: what the page says of an example is in its pipeline.
func TestWorkedExamples(t *testing.T) {
	blocks := fenced(read(t, repository+"/docs/explanation/choosing-the-key.md"), "yaml")
	if len(blocks) != 3 {
		t.Fatalf("%d examples, want 3", len(blocks))
	}
	for i, file := range []string{"/examples/flights/flights.yaml", "/examples/webhooks/webhooks.yaml", "/test/e2e/data_test.go"} {
		var have []string
		for l := range strings.Lines(read(t, repository+file)) {
			l, _, _ = strings.Cut(l, " #")
			have = append(have, strings.TrimSpace(l))
		}
		text := strings.Join(have, "\n")
		for l := range strings.Lines(blocks[i]) {
			name, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
			if name != "id" && name != "key" {
				continue
			}
			if !slices.Contains(have, name+": "+value) && !strings.Contains(text, name+": '"+value+"'") && !strings.Contains(text, name+": "+value+"}") {
				t.Errorf("%s does not have %s: %s", file, name, value)
			}
		}
	}
}
