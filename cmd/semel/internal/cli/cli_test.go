package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// bench is a pipeline in a directory of its own.
type bench struct {
	t    *testing.T
	dir  string
	file string
	env  map[string]string
	in   string
}

// pipeline refuses n of 100 and more for good, and fails for a while as long
// as gate is empty where n is 50.
const pipeline = `name: orders
source: directory:DIR/q
store: sqlite:DIR/orders.db
setup:
  - CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, n INTEGER CHECK (n < 100)) STRICT
  - CREATE TABLE IF NOT EXISTS gate (n INTEGER NOT NULL)
message:
  id: .id
  key: .key
  filter: .test | not
arbitrate: {version: .v, missing: apply}
handle:
  sql:
    - exec: INSERT INTO orders (id, n) VALUES (:id, :n)
  with: {id: .id, n: .n}
retry: {immediate: 0, delays: [1h]}
horizon: 1h
keep: 2d
`

func newBench(t *testing.T, text string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), env: map[string]string{}}
	b.file = filepath.Join(b.dir, "p.yaml")
	if err := os.MkdirAll(filepath.Join(b.dir, "q", "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("p.yaml", strings.ReplaceAll(text, "DIR", b.dir))
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) deliver(name, body string) { b.t.Helper(); b.write("q/inbox/"+name, body) }

// semel runs a command line; FILE stands for the pipeline file.
func (b *bench) semel(words ...string) (code int, out, err string) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{in: strings.NewReader(b.in), out: &stdout, err: &stderr, getenv: func(n string) string { return b.env[n] }, exit: func(int) {}}
	for i := range words {
		words[i] = strings.Replace(words[i], "FILE", b.file, 1)
	}
	code = a.main(words)
	return code, b.tidy(stdout.String()), b.tidy(stderr.String())
}

var times = regexp.MustCompile(`\d+(\.\d+)? (ms|s|m \d+ s)\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)

// tidy takes out what differs from run to run.
func (b *bench) tidy(s string) string {
	return times.ReplaceAllString(strings.ReplaceAll(s, b.dir, "DIR"), "TIME")
}

// want runs a command line and compares the exit code and parts of the output.
func (b *bench) want(code int, line string, parts ...string) string {
	b.t.Helper()
	got, out, err := b.semel(strings.Fields(line)...)
	all := out + err
	if got != code {
		b.t.Fatalf("semel %s: exit code %d, want %d\n%s", line, got, code, all)
	}
	for _, p := range parts {
		if !strings.Contains(all, p) {
			b.t.Errorf("semel %s: %q is missing in\n%s", line, p, all)
		}
	}
	return out
}

// exec runs SQL beside the pipeline.
func (b *bench) exec(statements ...string) {
	b.t.Helper()
	st, err := adapters.OpenStore(b.t.Context(), config.Location{Scheme: "sqlite", Path: filepath.Join(b.dir, "orders.db")})
	if err != nil {
		b.t.Fatal(err)
	}
	defer st.Close()
	if err := st.Pipeline.Setup(b.t.Context(), statements); err != nil {
		b.t.Fatal(err)
	}
}

func TestRunOnce(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a1.json", `{"id":"a1","key":"a","n":1,"v":1}`)
	b.deliver("a2.json", `{"id":"a2","key":"a","n":2,"v":0}`)
	b.deliver("again.json", `{"id":"a1","key":"a","n":1,"v":1}`)
	b.deliver("t.json", `{"id":"t","test":true}`)
	b.deliver("bad.json", `{`)
	code, out, err := b.semel("run", "FILE", "--once")
	want := `orders: drained after TIME

  received               5
  applied                1   their effect is committed, once
  superseded             1   a newer version of the same key was there
  duplicates             1   known already, nothing done again
  filtered               1   not wanted by message.filter
  dead                   1   kept with their reason until a person decides

Every message is accounted for.
1 dead letter: semel letters list DIR/p.yaml
`
	if code != exitDead || out != want {
		t.Errorf("exit code %d, output\n%s\nwant\n%s", code, out, want)
	}
	if !strings.Contains(err, `msg="a new database" pipeline=orders store=sqlite:DIR/orders.db`+"\n") {
		t.Errorf("stderr:\n%s", err)
	}
}

func TestRunJSONEndsWithOneFrozenLine(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a","key":"a","n":1,"v":1}`)
	code, out, _ := b.semel("run", "FILE", "--once", "--json")
	out = regexp.MustCompile(`"elapsed_ms":\d+`).ReplaceAllString(out, `"elapsed_ms":N`)
	want := `{"received":1,"taken":0,"applied":1,"duplicates":0,"superseded":0,"conflicts":0,"filtered":0,"parked":0,"released":0,"dropped":0,"dead":0,"elapsed_ms":N,"balanced":true}` + "\n"
	if code != exitDone || out != want {
		t.Errorf("exit code %d, output %s", code, out)
	}
}

func TestExitCodes(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		b := newBench(t, strings.Replace(pipeline, "INSERT INTO orders (id, n) VALUES (:id, :n)", "DELETE FROM gate WHERE n = :n\n      none: stale\n    - exec: INSERT INTO orders (id, n) VALUES (:id, :n)", 1))
		b.deliver("a.json", `{"id":"a","key":"a","n":1}`)
		b.want(exitWaiting, "run FILE --once --wait 0s", "parked                 1", "1 message to be tried again, the first in")
		b.want(exitDone, "status FILE", "retry", "1, the first is due in")
		b.want(exitDone, "explain FILE a", "a: It failed and will be tried again.")
	})
	t.Run("fault", func(t *testing.T) {
		b := newBench(t, strings.Replace(pipeline, "INSERT INTO orders", "INSERT INTO nowhere", 1))
		b.deliver("a.json", `{"id":"a","key":"a"}`)
		b.want(exitUsage, "run FILE --check", "no such table: nowhere")
		b.want(exitFault, "run FILE --once", "no such table: nowhere", "nothing is lost", "stopped after")
		if _, err := os.Stat(filepath.Join(b.dir, "q/inbox/a.json")); err != nil {
			t.Error("the message is not back in the inbox: ", err)
		}
	})
	t.Run("imbalance", func(t *testing.T) {
		b := newBench(t, pipeline)
		b.deliver("a.json", `{"id":"a","key":"a","n":1}`)
		b.want(exitDone, "run FILE --once")
		b.exec("DELETE FROM semel_inbox")
		b.want(exitImbalanced, "status FILE --rows", "does NOT balance", "applied")
		out := b.want(exitImbalanced, "run FILE --once --json")
		if !strings.Contains(out, `"balanced":false`) {
			t.Error(out)
		}
		b.want(exitImbalanced, "run FILE --once", "The account does NOT balance: the ledger and the rows differ.")
	})
	t.Run("name taken", func(t *testing.T) {
		b := newBench(t, pipeline)
		b.want(exitDone, "run FILE --once")
		if err := os.MkdirAll(filepath.Join(b.dir, "other"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.want(exitUsage, "run FILE --once --source directory:"+b.dir+"/other", "the name orders is taken by a pipeline whose source is directory:DIR/q, not directory:DIR/other: give this pipeline a name of its own")
		b.want(exitDone, "run FILE --once --name second --source directory:"+b.dir+"/other", "second: drained")
	})
	t.Run("usage", func(t *testing.T) {
		b := newBench(t, pipeline)
		for line, part := range map[string]string{
			"":                                   "Usage:\n  semel VERB",
			"frob":                               `semel has no verb "frob": it has demo`,
			"run":                                "FILE is missing",
			"run FILE more":                      `too many arguments from "more" on`,
			"run FILE --frob":                    "unknown flag: --frob\nsemel: semel run --help",
			"run none.yaml":                      "none.yaml: there is no such file",
			"run FILE --wait 3s":                 "--wait needs --once",
			"run FILE --once --wait soon":        "--wait soon: not a duration",
			"run FILE --check --dry-run":         "choose one",
			"run FILE --store oracle:x":          `--store or $SEMEL_STORE: this build has no "oracle"`,
			"run FILE --source directory:/none":  "open source: /none: the directory does not exist (create it",
			"run FILE --store sqlite:/none/x.db": "open store: /none/x.db: the directory /none does not exist (create it",
			"run FILE --store sqlite:" + b.file:  "it is not a SQLite database",
			"run FILE --store sqlite:" + b.dir:   "it is a directory (name a file",
			"status FILE":                        "does not exist: has the pipeline run yet? (semel run",
			"letters":                            "semel letters VERB",
			"letters frob":                       `semel letters has no verb "frob": it has count, discard, export,`,
			"letters lst FILE":                   `semel letters has no verb "lst": did you mean list?`,
			"explain FILE":                       "ID is missing",
			"explain FILE a --search x":          "--search x",
		} {
			b.want(exitUsage, line, part)
		}
	})
}

func TestEnvironmentBetweenFlagAndFile(t *testing.T) {
	b := newBench(t, pipeline)
	b.env["SEMEL_NAME"] = "fromenv"
	b.want(exitDone, "run FILE --once", "fromenv: drained")
	b.want(exitDone, "run FILE --once --name fromflag --store sqlite:"+b.dir+"/b.db", "fromflag: drained")
}

func TestLetters(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a\u001b[31m","key":"k","n":100}`)
	b.deliver("b.json", `{"id":"b","key":"k","n":200}`)
	b.deliver("c.json", "\x1b]0;title\x07")
	b.want(exitDead, "run FILE --once", "3 dead letters: semel letters list DIR/p.yaml")
	var letters []letterJSON
	for l := range strings.Lines(b.want(exitDone, "letters list FILE --json")) {
		var j letterJSON
		if err := json.Unmarshal([]byte(l), &j); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, j)
	}
	if len(letters) != 3 {
		t.Fatalf("%d letters", len(letters))
	}
	b.want(exitDone, "letters list FILE", "REF", `a\x1b[31m`, "CHECK constraint failed", "at c.json@")
	b.want(exitDone, "letters list FILE class=format --limit 1", "c.json")
	b.want(exitDone, "letters list FILE --limit 1", "more than 1; --limit 0 shows all")
	b.want(exitDone, "letters list FILE state=applied", "no letters")
	b.want(exitUsage, "letters list FILE state=gone", `"gone" does not go with state`, "one of open, closed, dead")
	b.want(exitUsage, "letters list FILE class=bad", "a class is one of format")
	ref := map[string]string{}
	for _, l := range letters {
		ref[first(l.ID, "c")] = l.Ref
	}
	out := b.want(exitDone, "letters show FILE "+ref["b"][:8], "business, permanent", "attempt 1", `{"id":"b","key":"k","n":200}`, "Give it up:")
	b.want(exitDone, "letters show FILE "+ref["c"], `\x1b]0;title\a`)
	if got := b.want(exitDone, "letters show FILE --body "+ref["b"]); got != `{"id":"b","key":"k","n":200}` {
		t.Errorf("body: %q", got)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("an escape sequence reaches the terminal")
	}
	b.want(exitUsage, "letters show FILE zzzz", `no letter has a reference that begins with "zzzz"`)
	b.want(exitUsage, "letters replay FILE", "say which letters")
	b.want(exitUsage, "letters replay FILE x state=dead", "exclude each other")
	b.want(exitUsage, "letters replay FILE state=dead", "replay 3 letters (1 format, invalid; 2 business, permanent): add --yes")
	b.want(exitDone, "letters replay FILE class=business --dry-run", "2 letters would be replayed (2 business, permanent)")
	b.want(exitDone, "letters replay FILE class=business --yes --as eve", "2 letters replayed", "semel run DIR/p.yaml --once")
	b.want(exitDead, "letters replay FILE "+ref["b"], "cannot be replayed", "0 letters replayed")
	b.want(exitDead, "run FILE --once", "taken up               2", "dead                   2")
	b.want(exitUsage, "letters discard FILE "+ref["c"], "--reason is missing")
	b.want(exitDone, "letters discard FILE "+ref["c"]+" --reason nonsense --as eve", "1 letter discarded")
	b.want(exitDone, "letters discard FILE id=b --yes --reason nonsense --json", `"result":"discarded"`)
	b.want(exitDone, "letters show FILE "+ref["c"], "discarded", "eve: nonsense")
	b.want(exitDone, "explain FILE b", "b: A person discarded it.", "discarded (business, permanent)")
	b.want(exitDead, "status FILE --rows", "dead       1", "discarded  2", "The account balances.")
}

func TestConfirm(t *testing.T) {
	b := newBench(t, pipeline)
	for answer, code := range map[string]int{"y\n": 0, "yes\n": 0, "\n": exitUsage, "": exitUsage, "no\n": exitUsage} {
		var stderr bytes.Buffer
		a := &app{in: strings.NewReader(answer), err: &stderr}
		err := a.ask("replay 2 letters")
		if (err == nil) != (code == 0) || stderr.String() != "replay 2 letters? [y/N] " {
			b.t.Errorf("%q: %v, %q", answer, err, stderr.String())
		}
	}
}

func TestExplain(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a","key":"k","n":1,"v":7}`)
	b.deliver("b.json", `{"id":"b","key":"k","n":2,"v":5}`)
	b.want(exitDone, "run FILE --once")
	b.deliver("later.json", `{"id":"a","key":"k","n":1,"v":7}`)
	b.want(exitDone, "explain FILE a", "a: Its effect is committed.\n", "version  7 is the newest applied of this key, by a", "inbox/later.json", "done/a.json")
	b.want(exitDone, "explain FILE b", "b: It was superseded by a newer version of its key.")
	b.want(exitDead, "explain FILE c", "c: Nothing is known of it.\n", "none (inbox: table, kept 2 d 0 h)", "not there")
	b.want(exitDead, "explain FILE c --search 0s", "the source was not searched to its end")
	var x explanation
	if err := json.Unmarshal([]byte(b.want(exitDone, "explain FILE a --json")), &x); err != nil {
		t.Fatal(err)
	}
	if x.Record.Verdict != "applied" || x.Version.N != 7 || x.Key != "k" || len(x.Places) != 2 || !x.Searched {
		t.Errorf("%+v", x)
	}
}

func TestDryRunForeseesWhatTheRunDoes(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("0.json", `{"id":"known","key":"k","n":1,"v":5}`)
	b.want(exitDone, "run FILE --once")
	b.deliver("1.json", `{"id":"known","key":"k","n":1,"v":5}`)
	b.deliver("2.json", `{"id":"old","key":"k","n":2,"v":4}`)
	b.deliver("3.json", `{"id":"new","key":"k","n":3,"v":6}`)
	b.deliver("4.json", `{"id":"new","key":"k","n":3,"v":6}`)
	b.deliver("5.json", `{"id":"new","key":"k","n":4,"v":6}`)
	b.deliver("6.json", `{"id":"t","test":true}`)
	b.deliver("7.json", `{"id":1.5}`)
	b.deliver("8.json", `{"id":"none","key":"other","n":5}`)
	b.deliver(".hidden", "x")
	b.deliver("x.tmp", "x")
	out := b.want(exitDone, "run FILE --dry-run")
	want := `duplicate    inbox/1.json  id known  key k  version 5
superseded   inbox/2.json  id old  key k  version 4
handle       inbox/3.json  id new  key k  version 6
duplicate    inbox/4.json  id new  key k  version 6
conflict     inbox/5.json  id new  key k  version 6
filtered     inbox/6.json  id t
dead         inbox/7.json  message.id (.id) is a number that is not an integer literal: a string or an integer is needed
handle       inbox/8.json  id none  key other

8 messages would be read; nothing was changed
  handle                 2
  superseded             1
  duplicate              2
  conflict               1
  filtered               1
  dead                   1
`
	if out != want {
		t.Errorf("dry run:\n%s\nwant\n%s", out, want)
	}
	b.want(exitDead, "run FILE --once", "applied                2", "superseded             1", "duplicates             2", "conflicts              1", "filtered               1")
}

func TestDryRunAndCheckChangeNothing(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("1.json", `{"id":"a","key":"k","n":1}`)
	b.want(exitDone, "run FILE --dry-run", "1 message would be read")
	b.want(exitDone, "run FILE --check", "the database does not exist yet", "processing/ does not exist yet")
	var names []string
	err := filepath.WalkDir(b.dir, func(path string, e os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, b.dir))
		return err
	})
	if got := fmt.Sprint(names); err != nil || got != "[ /p.yaml /q /q/inbox /q/inbox/1.json]" {
		t.Errorf("%v: %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	b := newBench(t, pipeline)
	b.want(exitDone, "run FILE --once")
	out := b.want(exitDone, "run FILE --check")
	want := `file      valid   DIR/p.yaml
source    usable  directory:DIR/q
store     usable  sqlite:DIR/orders.db
messages  whole   id .id, key .key, version .v
handler   usable  1 statement
together  usable  inbox table, kept 2 d 0 h
`
	if out != want {
		t.Errorf("check:\n%s\nwant\n%s", out, want)
	}
	b.want(exitDone, "run FILE --check --json", `"ok":true`)
	b.write("unfit.yaml", strings.ReplaceAll(strings.Replace(pipeline, "arbitrate", "inbox: position\narbitrate", 1), "DIR", b.dir))
	b.want(exitUsage, "run "+b.dir+"/unfit.yaml --check", "together  NOT usable", "unfit.yaml: source directory: inbox position needs a source with")
	if err := os.Remove(filepath.Join(b.dir, "q/error")); err != nil {
		t.Fatal(err)
	}
	b.write("q/error", "")
	b.want(exitUsage, "run FILE --check", "source    NOT usable", "DIR/q/error: it is not a directory")
}

func TestLinesAndGzip(t *testing.T) {
	b := newBench(t, strings.Replace(pipeline, "arbitrate:", "files: lines\ninbox: position\narbitrate:", 1))
	b.deliver("a.ndjson", "{\"id\":\"a\",\"key\":\"k\",\"n\":1}\n\n{\"id\":\"b\",\"key\":\"l\",\"n\":2}\n{")
	b.want(exitDone, "run FILE --dry-run", "inbox/a.ndjson:0  id a", "inbox/a.ndjson:28  id b", "dead         inbox/a.ndjson:55")
	b.want(exitDead, "run FILE --once", "received               3", "applied                2")
	b.want(exitDead, "status FILE", "a.ndjson@", "decided up to 56")
}

func TestSchema(t *testing.T) {
	b := newBench(t, pipeline)
	b.want(exitDead, "schema check FILE", "statements pending; semel schema apply DIR/p.yaml")
	b.want(exitDone, "schema print FILE", "CREATE TABLE semel_schema", "CREATE TABLE IF NOT EXISTS gate")
	b.want(exitDone, "schema apply FILE --dry-run", "CREATE TABLE semel_inbox")
	if _, err := os.Stat(filepath.Join(b.dir, "orders.db")); err == nil {
		t.Error("looking has made a database")
	}
	b.want(exitDone, "schema apply FILE", "statements applied; 2 texts of setup run")
	b.want(exitDone, "schema check FILE", "up to date")
	b.want(exitDone, "schema check FILE --json", `{"statements":[]}`)
	b.exec("DELETE FROM semel_schema", "INSERT INTO semel_schema (version, at) VALUES (99, 0)")
	b.want(exitFault, "status FILE", "use a newer program")
}

// TestHelps holds what every help has, of whatever verb there is: it fits a
// screen of 80 columns and nearly its lines, has an example and, where it does
// something, tells the exit codes.
func TestHelps(t *testing.T) {
	b := newBench(t, pipeline)
	walk((&app{}).root(), func(c *cobra.Command) {
		verb := strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), "semel"))
		out := b.want(exitDone, strings.TrimSpace(verb+" --help"), "\n  semel "+strings.Split(verb+" ", " ")[0], "--json")
		lines := strings.Split(out, "\n")
		if len(lines) > 35 {
			t.Errorf("%s --help has %d lines", verb, len(lines))
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > 80 {
				t.Errorf("%s --help has a line of %d characters: %s", verb, n, l)
			}
		}
		if !c.HasSubCommands() && !strings.Contains(out, "Exit codes") {
			t.Errorf("%s --help does not tell the exit codes", verb)
		}
		if example, _, _ := strings.Cut(out, "Usage:"); !strings.Contains(example, "semel "+verb) {
			t.Errorf("%s --help has no example", verb)
		}
	})
}

// notice tells when a text is written.
type notice struct {
	bytes.Buffer
	text string
	seen chan struct{}
}

func (n *notice) Write(p []byte) (int, error) {
	c, err := n.Buffer.Write(p)
	if n.seen != nil && strings.Contains(n.String(), n.text) {
		close(n.seen)
		n.seen = nil
	}
	return c, err
}

func TestTheFirstSignalDrains(t *testing.T) {
	for _, moment := range []string{"a new database", "message_id=refused"} {
		b := newBench(t, pipeline)
		b.deliver("a.json", `{"id":"refused","key":"k","n":100}`)
		seen := make(chan struct{})
		stderr := &notice{text: moment, seen: seen}
		var stdout bytes.Buffer
		a := &app{in: strings.NewReader(""), out: &stdout, err: stderr, getenv: func(string) string { return "" }, exit: func(int) { t.Error("ended by the first signal") }}
		code := make(chan int)
		go func() { code <- a.main([]string{"run", b.file}) }()
		<-seen
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(syscall.SIGTERM)
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := <-code; c != exitDone {
			t.Errorf("%s: exit code %d\n%s%s", moment, c, stdout.String(), stderr.String())
		}
		if !strings.Contains(stderr.String(), "finishing what is in hand") || !strings.Contains(stdout.String(), "orders: stopped after") {
			t.Errorf("%s: %s%s", moment, stdout.String(), stderr.String())
		}
	}
}
