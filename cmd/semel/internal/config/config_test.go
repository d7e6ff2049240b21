package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"

	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

const good = `name: orders
source: directory:///var/spool/orders            # the root
store:  sqlite:orders.db
files: lines
complete: marker
done: delete
start: end
message:
  id: .event_id
  key: .order.id
  type: .type
  time: .at
  filter: .test | not
  max_bytes: 64KiB
  max_depth: 20
inbox: unique-key
trust_id: true
arbitrate: {version: .order.revision, as: time, tie: .rank, missing: superseded, latest: true}
order: key
dead_holds: true
handle:
  sql:
    - exec: |
        INSERT INTO orders (id, status, revision) VALUES (:id, :status, :revision)
        ON CONFLICT (id) DO UPDATE SET status = excluded.status
      none: superseded
    - DELETE FROM open WHERE id = :id
  with: {id: .order.id, status: .order.status, revision: 5}
setup:
  - CREATE TABLE IF NOT EXISTS orders (id, status, revision)
  - tables.sql
retry: {immediate: 0, delays: [1s, 10s, 1d]}
keep: 40d
horizon: 7d
error_return: replay
batch: 500
max_crashes: 4
`

func options() Options {
	return Options{
		Sources: map[string]bool{"directory": true},
		Stores:  map[string]sqlstep.Dialect{"sqlite": sqlstep.SQLite()},
		Getenv: func(name string) string {
			return map[string]string{"STORE": "sqlite:///x.db", "BAD": "postgres://joe:secret@host/db"}[name]
		},
	}
}

func load(t *testing.T, text string, opt Options) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	for name, s := range map[string]string{
		"p.yaml":     text,
		"tables.sql": "CREATE TABLE IF NOT EXISTS open (id);",
		"bad.sql":    "CREATE TABLE IF NOT EXISTS open (id);\nCREATE TABLE t (a)",
		"bad.json":   "{",
		"url":        "sqlite:///from-file.db\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Load(filepath.Join(dir, "p.yaml"), opt)
	var p Problems
	if errors.As(err, &p) {
		for i := range p {
			p[i].File = strings.TrimPrefix(p[i].File, dir+"/")
			p[i].What = strings.ReplaceAll(p[i].What, dir+"/", "")
		}
	}
	return f, err
}

func TestEverything(t *testing.T) {
	f, err := load(t, good, options())
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "orders" || f.Source.String() != "directory:/var/spool/orders" || !filepath.IsAbs(f.Store.Path) || filepath.Base(f.Store.Path) != "orders.db" {
		t.Errorf("name %q, source %v, store %v", f.Name, f.Source, f.Store)
	}
	if f.Files != "lines" || f.Complete != "marker" || f.Done != "delete" || f.Start != consumer.StartEnd || f.Order != consumer.OrderKey {
		t.Errorf("files %q, complete %q, done %q, start %v, order %v", f.Files, f.Complete, f.Done, f.Start, f.Order)
	}
	r := f.Rules
	if r.ID.Text != ".event_id" || r.Filter.Text != ".test | not" || r.Tie.Text != ".rank" || !r.VersionTime || r.MaxBytes != 64<<10 || r.MaxDepth != 20 {
		t.Errorf("rules: %+v", r)
	}
	if f.Inbox != inbox.UniqueKey || !f.TrustID || !f.DeadHolds || !f.ReplayRevised || f.Batch != 500 || f.MaxCrashes != 4 {
		t.Errorf("%+v", f)
	}
	if f.Arbitrate != (arbitrate.Policy{On: true, Missing: arbitrate.MissingSuperseded, Latest: true}) {
		t.Errorf("arbitrate: %+v", f.Arbitrate)
	}
	if f.Retry.Immediate != -1 || len(f.Retry.Delays) != 3 || f.Retry.Delays[2] != 24*time.Hour || f.Keep != 40*24*time.Hour || f.Horizon != 7*24*time.Hour {
		t.Errorf("retry %+v, keep %v, horizon %v", f.Retry, f.Keep, f.Horizon)
	}
	if len(f.Handler.Steps) != 2 || len(f.Setup) != 2 {
		t.Errorf("%d steps, setup %q", len(f.Handler.Steps), f.Setup)
	}
}

// small is a good file whose lines the tests of problems replace.
const small = `name: orders
source: directory:spool
store: sqlite:orders.db
message:
  id: .event_id
handle:
  sql: DELETE FROM t WHERE id = :id
  with: {id: .order.id}
horizon: 7d
`

// problems are lines of small, what replaces them, and what is said of that.
// tells finds what tells a reader what to do: a word that asks for it, or what
// would be taken.
var tells = regexp.MustCompile(`\b(write|add|use|did you mean|one of|remove|name a|put|give|set it|move|choose|keep|correct|complete|shorten|save|start with|make|state|needs?|has|is needed|\d+ to \d+|at (most|least))\b`)

var problems = []struct{ replace, with, want string }{
	{small, "", "p.yaml:1:1: the file is empty: start with the lines name, source, store, message and handle; semel run --help shows an example"},
	{small, "# nothing\n", "p.yaml:1:1: the file is empty: start with the lines name, source, store, message and handle; semel run --help shows an example"},
	{small, "hello\n", "p.yaml:1:1: the file must be keys and values, not a text: write key: value, one a line"},
	{small, "- a\n", "p.yaml:1:1: the file must be keys and values, not a list: write key: value, one a line"},
	{small, "a: 1\n---\nb: 1\n", "p.yaml:3:2: a second document: write one pipeline a file"},
	{small, "a: \xff\n", "p.yaml:1:4: not a text in UTF-8: save it as UTF-8"},
	{small, "ab: x\na: \x00\n", "p.yaml:2:4: not a text in UTF-8: save it as UTF-8"},
	{small, "a: [1,\n", "p.yaml:1:4: not YAML: sequence end token ']' not found: write key: value, one a line, what belongs to a key indented below it"},
	{"id: .event_id", `id: "\(.a)"`, `p.yaml:5:9: not YAML: found unknown escape character '(': put jq strings between single quotes: '"\(.a)"'`},
	{"id: .event_id", `id: .a: b`, "p.yaml:5:7: not YAML: mapping value is not allowed in this context: put a value that contains a colon and a space between single quotes"},
	{"  id: .event_id", "\tid: .event_id", "p.yaml:5:1: not YAML: found character '\t' that cannot start any token: indent with spaces; put values that begin with a special character between single quotes"},

	{"message:", "mesage:", `p.yaml:4:1: unknown key "mesage": did you mean message?
p.yaml: message is missing: add message: {id: .event_id}, with a jq expression that gives each event its own id`},
	{"name: orders", "nonsense: orders", `p.yaml:1:1: unknown key "nonsense": one of name, source, store, files, delimiter, complete, done, start, message, inbox, trust_id, arbitrate, order, dead_holds, handle, setup, retry, keep, horizon, error_return, batch, max_crashes
p.yaml: name is missing: add a line such as name: orders; everything remembered is kept under it`},
	{"name: orders", "name: orders\nname: b", `p.yaml:2:1: the key "name" twice: it is there in line 1 already; keep one`},
	{"id: .event_id", "id: .event_id\n  filtr: .a", `p.yaml:6:3: unknown key "filtr" in message: did you mean filter?`},
	{"name: orders", "name: 2024", "p.yaml:1:7: name must be a text, not a number: put it between quotes"},
	{"name: orders", "name: [a]", "p.yaml:1:7: name must be a text, not a list: write one value behind the colon"},
	{"name: orders", "name:", "p.yaml:1:6: the value is empty: give a value, or remove the line\np.yaml: name is missing: add a line such as name: orders; everything remembered is kept under it"},
	{"name: orders", "name: " + strings.Repeat("x", 256), "p.yaml:1:7: name has 256 bytes: at most 255 are allowed: shorten it"},
	{"name: orders", "name: &a orders", "p.yaml:1:7: anchors, aliases and tags are not taken: write the value out\np.yaml: name is missing: add a line such as name: orders; everything remembered is kept under it"},
	{"name: orders", "3: orders", "p.yaml:1:1: a key that is not a word: write plain words as keys\np.yaml: name is missing: add a line such as name: orders; everything remembered is kept under it"},

	{"source: directory:spool\n", "", "p.yaml: source is missing: add a line source: directory:PATH"},
	{"directory:spool", "spool", "p.yaml:2:9: source: it has no scheme: write directory:PATH"},
	{"directory:spool", "directory:", "p.yaml:2:9: not YAML: mapping value is not allowed in this context: put a value that contains a colon and a space between single quotes"},
	{"directory:spool", `"directory:"`, "p.yaml:2:9: source: the path is missing: write directory:PATH"},
	{"directory:spool", "directory://spool/x", "p.yaml:2:9: source: what follows directory:// is a host: write directory:///spool/x for an absolute path or directory:spool/x for a relative one"},
	{"directory:spool", "kafka://joe:secret@host/t", `p.yaml:2:9: source: this build has no "kafka": write directory:PATH`},
	{"sqlite:orders.db", "env:BAD", `p.yaml:3:8: store: this build has no "postgres": write sqlite:PATH`},
	{"sqlite:orders.db", "env:NONE", "p.yaml:3:8: store: the environment variable NONE is not set: set it for this process, or write the place itself"},
	{"sqlite:orders.db", "file:none", "p.yaml:3:8: store: none cannot be read: no such file or directory: name a file that this user may read, beside the pipeline file"},

	{"  id: .event_id", "  key: .a", "p.yaml:5:6: message has no id: add id: with a jq expression that gives each event its own id, such as .event_id"},
	{"  id: .event_id", "  format: cloudevent", "p.yaml:5:9: message has no id: add id: with a jq expression that gives each event its own id, such as .event_id\np.yaml:5:11: message.format cannot be \"cloudevent\": did you mean cloudevents?"},
	{"id: .event_id", `id: .a | frob`, "p.yaml:5:7: message.id: function not defined: frob/0: a field has a dot in front, as in .event_id"},
	{"id: .event_id", `id: '.a | )'`, `p.yaml:5:13: message.id: not a jq expression from ")" on: write a field as .name or ."its name", a text as "…"`},
	{"id: .event_id", "id: |\n    .a |\n    now", "p.yaml:7:5: message.id: now is refused: it differs at every delivery of the same message; use what the message has"},
	{"id: .event_id", `id: '"a"'`, "p.yaml:5:7: message.id is the same for all messages: all but the first would be duplicates: use a field of the message, such as .event_id"},
	{"id: .event_id", `id: 5`, "p.yaml:5:7: message.id must be a text, not a number: put it between quotes"},
	{"id: .event_id", "id: .event_id\n  schema: none.json", "p.yaml:6:11: message.schema: none.json: no such file or directory: name a JSON Schema that can be read, beside the pipeline file"},
	{"id: .event_id", "id: .event_id\n  schema: bad.json", "p.yaml:6:11: message.schema: bad.json: unexpected EOF: name a JSON Schema that can be read, beside the pipeline file"},
	{"id: .event_id", "id: .event_id\n  max_bytes: 2GiB", "p.yaml:6:14: message.max_bytes must be a size: write 65536, 64KiB or 16MiB; at most 1GiB"},
	{"id: .event_id", "id: .event_id\n  max_depth: 0", "p.yaml:6:14: message.max_depth must be a whole number: 1 to 10000"},

	{"horizon: 7d", "horizon: 7d\ninbox: tabel", `p.yaml:10:8: inbox cannot be "tabel": did you mean table?`},
	{"horizon: 7d", "horizon: 7d\nfiles: all", `p.yaml:10:8: files cannot be "all": one of whole, lines, array, csv`},
	{"horizon: 7d", "horizon: 7d\nfiles: csv\ndelimiter: ab", `p.yaml:11:12: delimiter must be one character: write ",", ";", "|" or "\t"`},
	{"horizon: 7d", "horizon: 7d\nfiles: csv\ndelimiter: ''", `p.yaml:11:12: delimiter must be one character: write ",", ";", "|" or "\t"`},
	{"horizon: 7d", "horizon: 7d\nfiles: csv\ndelimiter: '\"'", `p.yaml:11:12: delimiter must be one character: write ",", ";", "|" or "\t"`},
	{"horizon: 7d", "horizon: 7d\ndelimiter: ;", `p.yaml:10:12: delimiter is for CSV: add files: csv, or remove it`},
	{"horizon: 7d", "horizon: 7d\ntrust_id: yes", "p.yaml:10:11: trust_id must be true or false, not a text: write true or false"},
	{"horizon: 7d", "horizon: 7d\nbatch: many", "p.yaml:10:8: batch must be a whole number: 1 to 100000"},
	{"horizon: 7d", "horizon: 7", "p.yaml:9:10: horizon: a duration needs a unit: 500ms, 30s, 10m, 12h or 30d"},
	{"horizon: 7d", "horizon: soon", "p.yaml:9:10: horizon: not a duration: write 500ms, 30s, 10m, 12h, 1d12h or 30d"},
	{"horizon: 7d", "horizon: -7d", "p.yaml:9:10: horizon: not a duration: write 500ms, 30s, 10m, 12h, 1d12h or 30d"},
	{"horizon: 7d", "horizon: 0s", "p.yaml:9:10: horizon must be above zero: write 1s or more, or remove the line"},
	{"horizon: 7d", "", "p.yaml: horizon is missing: add a line such as horizon: 7d, how late the source may deliver the same message again; ids are kept longer than that"},
	{"horizon: 7d", "horizon: 7d\nkeep: 1d", "p.yaml:10:7: ids would be forgotten after 24h0m0s, before the source (168h0m0s) and the retries (1m25.2s) are over, and a late repeat applied again: keep at least 168h1m25.2s, or state a shorter horizon"},
	{"horizon: 7d", "horizon: 40d", "p.yaml:9:10: ids would be forgotten after 720h0m0s, before the source (960h0m0s) and the retries (1m25.2s) are over, and a late repeat applied again: keep at least 960h1m25.2s, or state a shorter horizon"},
	{"horizon: 7d", "horizon: 7d\nretry: {delays: 1s, imediate: 2}", `p.yaml:10:17: retry.delays must be a list, not a text: write [a, b], or one a line with a dash
p.yaml:10:21: unknown key "imediate" in retry: did you mean immediate?`},
	{"horizon: 7d", "horizon: 7d\nretry: {delays: [31d]}", "p.yaml:10:18: a delay of retry.delays is above 30 days: shorten it"},
	{"horizon: 7d", "horizon: 7d\narbitrate: {version: .v}", "p.yaml:10:12: arbitrate needs message.key: versions are compared per key: add key: to message, such as .order.id"},
	{"id: .event_id", "id: .event_id\n  key: .k\narbitrate: {as: date}", `p.yaml:7:12: arbitrate has no version: add version: with a jq expression, such as .revision
p.yaml:7:17: arbitrate.as cannot be "date": one of integer, time`},

	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  with: {a: .b}", "p.yaml:7:7: handle has no sql: add sql: with the statements that are the effect of a message, or http:, exec: or index:\np.yaml:7:9: handle.with has values for statements, and there are none: add sql:, or remove it"},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  exec: x", `p.yaml:7:9: handle.exec must be keys and values, not a text: write key: value, one a line`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  exec: {argv: [a]}\n  http: {url: 'http://h/'}", `p.yaml:7:9: handle has http and exec: the guard of one message is for one effect: make two pipelines of them`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  exec: {env: {a-b: c, SEMEL_X: d}, expect: {done: [0, 300], permanent: [5-2]}}", `p.yaml:7:9: handle.exec has no argv: add argv: [PROGRAM, ARGUMENT…]; no shell is involved
p.yaml:7:15: handle.exec.env.SEMEL_X cannot be the name of a variable: use letters, digits and _, no digit first, and not SEMEL_…
p.yaml:7:15: handle.exec.env.a-b cannot be the name of a variable: use letters, digits and _, no digit first, and not SEMEL_…
p.yaml:7:56: handle.exec.expect.done must be a whole number: 0 to 255
p.yaml:7:74: handle.exec.expect.permanent: "5-2" is no range of 0 to 255: write a number, or two with - between them`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  index: {url: 'http://h/', index: i}", `p.yaml:7:10: handle.index has no id: add id: with a jq expression such as .order.id: messages about one thing write one document
p.yaml:7:10: handle.index has no version, and the pipeline does not arbitrate: an old message that is delivered again would overwrite a newer document: add version: with a jq expression such as .order.revision; write version: none if a document is written once, or its order does not matter`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  index: {url: 'http://h/', index: Ö, id: .id, version: none, username: u}", `p.yaml:7:10: handle.index: index "Ö" must be in lower case: correct it; semel run --check asks the server as well
p.yaml:7:10: handle.index: username and password belong together: correct it; semel run --check asks the server as well`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  index: {url: 'http://h/', index: i, id: .id, version: .v, username: u, password: 'env:NONE'}", `p.yaml:7:84: handle.index.password: the environment variable NONE is not set: set it for this process, or write the place itself`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  index: {url: 'http://h/', index: i, id: .id, version: .v}\n  exec: {argv: [a]}", `p.yaml:7:10: handle has index and another effect outside of the database: one of them may fail while the other is done: make two pipelines of them`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  exec: {argv: []}", `p.yaml:7:16: handle.exec.argv is empty: name a program`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {method: GET}", `p.yaml:7:9: handle.http.url is missing: add a URL such as https://mail.example/send
p.yaml:7:18: handle.http.method cannot be "GET": one of POST, PUT, PATCH, DELETE`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'ftp://joe:secret@h/'}", `p.yaml:7:15: handle.http.url is not an http or https URL: write https://HOST/PATH`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: env:NONE, body: .a | frob}", `p.yaml:7:15: handle.http.url: the environment variable NONE is not set: set it for this process, or write the place itself
p.yaml:7:31: handle.http.body: function not defined: frob/0: a field has a dot in front, as in .event_id`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'http://h/', timeout: 1h, headers: {idempotency-key: a, 'b c': d}}", `p.yaml:7:37: handle.http.timeout is above 10m0s: shorten it
p.yaml:7:50: handle.http.headers: "b c" cannot be the name of a header field: write letters, digits and -
p.yaml:7:50: handle.http.headers: Idempotency-Key is set by semel: remove it`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'http://h/', in_doubt: ask}", `p.yaml:7:9: handle.http.in_doubt is ask, and there is nothing to ask: add ask: with what answers whether it happened`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'http://h/', in_doubt: ask, ask: {url: 'http://h/x'}}", `p.yaml:7:48: handle.http.ask.url is the same for all messages: write {id} where the id of the message belongs`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'http://h/', ask: {url: 'http://h/{id}'}}", `p.yaml:7:33: handle.http.ask is never asked: write in_doubt: ask, or remove it`},
	{"  sql: DELETE FROM t WHERE id = :id\n  with: {id: .order.id}", "  http: {url: 'http://h/', in_doubt: maybe, expect: {done: [200-299], unknown: [204]}}", `p.yaml:7:38: handle.http.in_doubt cannot be "maybe": one of park, retry, ask
p.yaml:7:81: handle.http.expect: 204 is in done and in unknown: leave it in one of them`},
	{"DELETE FROM t WHERE id = :id", "COMMIT", "p.yaml:7:8: handle.sql: COMMIT is refused: the transaction belongs to the pipeline, which commits the effect together with the record that it happened; remove it"},
	{"DELETE FROM t WHERE id = :id", "DELETE FROM t WHERE id = :idd", "p.yaml:7:33: handle.sql: the parameter :idd is not defined: handle.with has id"},
	{"  with: {id: .order.id}\n", "", "p.yaml:7:33: handle.sql: the parameter :id is not defined: add it under handle.with"},
	{"{id: .order.id}", "{id: .order.id, b: .c}", "p.yaml:8:28: handle.with.b is not used: use :b in a statement, or remove it"},
	{"{id: .order.id}", "{id: .order.id, b-c: .c}", "p.yaml:8:25: handle.with.b-c cannot be the name of a parameter: use letters, digits and _, no digit first"},
	{"{id: .order.id}", `{id: ".order["}`, `p.yaml:8:22: handle.with.id: the jq expression ends early: complete it, or remove what its end waits for`},
	{"  sql: DELETE", "  sql:\n    - exec: |\n        DELETE\n        FROM t WHERE é = :x -- \n      none: maybe\n    - {exe: x}\n    - [x]\n    - COMMIT DELETE", `p.yaml:10:26: handle.sql: the parameter :x is not defined: handle.with has id
p.yaml:11:13: none cannot be "maybe": one of duplicate, superseded, stale, fail, ignore
p.yaml:12:7: a step of handle.sql has no exec: add exec: with a statement
p.yaml:12:8: unknown key "exe" in a step of handle.sql: did you mean exec?
p.yaml:13:7: a step of handle.sql must be keys and values, not a list: write key: value, one a line
p.yaml:14:7: handle.sql: COMMIT is refused: the transaction belongs to the pipeline, which commits the effect together with the record that it happened; remove it`},
	{"sql: DELETE FROM t WHERE id = :id", "sql: []", "p.yaml:7:8: handle.sql is an empty list: add a statement"},
	{"horizon: 7d", "horizon: 7d\nsetup: |\n  CREATE TABLE IF NOT EXISTS a (b);\n  CREATE TABLE t (a);", "p.yaml:12:3: setup: setup runs at every start: write CREATE … IF NOT EXISTS"},
	{"horizon: 7d", "horizon: 7d\nsetup: bad.sql", "bad.sql:2:1: setup: setup runs at every start: write CREATE … IF NOT EXISTS"},
	{"horizon: 7d", "horizon: 7d\nsetup: [none.sql]", "p.yaml:10:9: setup: none.sql: no such file or directory: name a file with statements that can be read, beside the pipeline file"},
}

func TestProblems(t *testing.T) {
	for _, tc := range problems {
		text := strings.Replace(small, tc.replace, tc.with, 1)
		f, err := load(t, text, options())
		if err == nil {
			t.Errorf("%q: loaded %+v, want\n%s", tc.with, f, tc.want)
			continue
		}
		if err.Error() != tc.want {
			t.Errorf("%q:\n got %s\nwant %s", tc.with, err, tc.want)
		}
		var all Problems
		errors.As(err, &all)
		for _, p := range all {
			if !tells.MatchString(p.What + ": " + p.Remedy) {
				t.Errorf("%q: it is not said what to do: %v", tc.with, p)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the password is shown", tc.with)
		}
	}
}

// TestCloudEventsNeedNoID: the event has one.
func TestCloudEventsNeedNoID(t *testing.T) {
	f, err := load(t, strings.Replace(small, "id: .event_id", "format: cloudevents", 1), options())
	if err != nil || !f.Rules.CloudEvents || f.Rules.ID != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestSeveralProblemsAtOnce(t *testing.T) {
	_, err := load(t, "nam: x\nsource: x\nmessage: {id: now}\nhandle: {sql: COMMIT}\nkeep: 3\n", options())
	var p Problems
	if !errors.As(err, &p) || len(p) != 7 {
		t.Errorf("%d problems:\n%v", len(p), err)
	}
}

func TestReferencesAndOverrides(t *testing.T) {
	opt := options()
	for _, tc := range []struct{ store, override, want string }{
		{"env:STORE", "", "/x.db"},
		{"file:url", "", "/from-file.db"},
		{"sqlite:///a.db", "", "/a.db"},
		{"sqlite:/a.db", "", "/a.db"},
		{"sqlite:///a.db", "sqlite:///b.db", "/b.db"},
		{"sqlite:///a.db", "env:STORE", "/x.db"},
	} {
		opt.Store, opt.Name = tc.override, "other"
		f, err := load(t, strings.Replace(small, "sqlite:orders.db", tc.store, 1), opt)
		if err != nil || f.Store.Path != tc.want || f.Name != "other" {
			t.Errorf("%+v: %+v, %v", tc, f, err)
		}
	}
	opt.Store = "mysql:x"
	if _, err := load(t, small, opt); err == nil || err.Error() != `--store or $SEMEL_STORE: this build has no "mysql": write sqlite:PATH` {
		t.Errorf("unknown store on the command line: %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load("none.yaml", options())
	if err == nil || err.Error() != "none.yaml: there is no such file: name a pipeline file; semel init writes one" {
		t.Error(err)
	}
	if _, err = Load(t.TempDir(), options()); err == nil || !strings.HasSuffix(err.Error(), ": cannot be read: is a directory: name a pipeline file that this user may read") {
		t.Error(err)
	}
}

func TestWindowsLineEndsAndByteOrderMark(t *testing.T) {
	if _, err := load(t, "\xef\xbb\xbf"+strings.ReplaceAll(good, "\n", "\r\n"), options()); err != nil {
		t.Error(err)
	}
}

func TestLocationsShowNoPassword(t *testing.T) {
	for l, want := range map[Location]string{
		{"postgres", "//joe:secret@host/db"}: "postgres://joe:xxxxx@host/db",
		{"postgres", "//joe:sec%ret@host"}:   "postgres:…",
		{"sqlite", "/a:b@c"}:                 "sqlite:/a:b@c",
	} {
		if l.String() != want {
			t.Errorf("%s, want %s", l, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "10s": 10 * time.Second, "1m": time.Minute, "1d12h": 36 * time.Hour, "1h30m": 90 * time.Minute, "500ms": time.Second / 2, "0s": 0,
		"": -1, "d": -1, "1": -1, "1x": -1, "-1s": -1, "1d-1s": -1, "99999999999d": -1, "1.5d": -1, "36501d": -1, "0": 0,
	} {
		d, err := ParseDuration(s)
		if err != nil {
			d = -1
		}
		if d != want {
			t.Errorf("%q: %v, want %v", s, d, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(good)
	f.Add(small)
	f.Add("a: {b: [1, {c: |\n  x\n")
	f.Fuzz(func(t *testing.T, text string) {
		l := &loader{reader: &reader{file: "p"}, opt: options(), file: &File{}, dir: t.TempDir()}
		if doc := l.document([]byte(text)); doc != nil {
			l.read(doc)
		}
		for _, p := range l.problems {
			if p.What == "" || p.Pos.Line < 0 || p.Pos.Col < 0 {
				t.Fatalf("problem %+v", p)
			}
		}
	})
}
