package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// provoked is an error that somebody meets, and the words with which it says
// what to do.
type provoked struct{ line, remedy string }

// wantRemedies runs command lines, DIR standing for the bench's directory. No
// error may be without a remedy.
func wantRemedies(t *testing.T, b *bench, all []provoked) {
	t.Helper()
	for _, p := range all {
		code, out, err := b.semel(strings.Fields(strings.ReplaceAll(p.line, "DIR", b.dir))...)
		if code == exitDone {
			t.Errorf("%s: nothing went wrong\n%s", p.line, out)
		}
		if !strings.Contains(err, p.remedy) {
			t.Errorf("%s does not say %q:\n%s", p.line, p.remedy, err)
		}
		if strings.Contains(err, "panic") || strings.Contains(err, "%!") {
			t.Errorf("%s: %s", p.line, err)
		}
	}
}

// TestRemediesOfTheCommandLine: what is typed wrong.
func TestRemediesOfTheCommandLine(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a","key":"a","n":500}`)
	b.want(exitDead, "run FILE --once")
	b.write("bad.jsonl", "{\n")
	wantRemedies(t, b, []provoked{
		{"rnu FILE", "did you mean run?"},
		{"frob", "it has demo, effects, explain, init, letters, run, schema, status, version"},
		{"schema FILE", "it has apply, check, print"},
		{"run", "FILE is missing\nsemel: semel run --help shows how it is used"},
		{"run FILE --onec", "semel: semel run --help shows how it is used"},
		{"run none.yaml", "name a pipeline file; semel init writes one"},
		{"run DIR", "name a pipeline file that this user may read"},
		{"run FILE --check --dry-run", "choose one"},
		{"run FILE --once --log xml", "it is text or json"},
		{"run FILE --once --log-level loud", "debug, info, warn or error"},
		{"run FILE --once --wait 5", "a duration needs a unit: 500ms, 30s, 10m"},
		{"run FILE --wait 5s", "--wait needs --once"},
		{"run FILE --http nonsense", "such as 127.0.0.1:9465"},
		{"run FILE --once --http " + ln.Addr().String(), "choose an address of this machine and a port that is free"},
		{"run FILE --store oracle:x", "write mariadb://HOST/… or mysql://HOST/… or postgres://HOST/… or sqlite:PATH"},
		{"run FILE --source x", "write directory:PATH"},
		{"letters", ""}, // the help
		{"letters lst FILE", "did you mean list?"},
		{"letters list FILE foo=bar", "fields are class, state"},
		{"letters list FILE state=ded", "did you mean dead?"},
		{"letters list FILE age>1x", "a time span is needed, such as 90s"},
		{"letters list FILE .a>", "write it without blanks"},
		{"letters show FILE zz", "semel letters list shows those that are open"},
		{"letters show FILE zz --original", "--original goes with --body"},
		{"letters replay FILE", "state=dead is all that are dead"},
		{"letters discard FILE state=dead", "--reason is missing: someone will ask"},
		{"letters import FILE none.jsonl", "name a file that letters export wrote"},
		{"letters import FILE DIR", "is a directory: name a file that letters export wrote"},
		{"letters import FILE DIR/bad.jsonl", "a line of letters export has to be whole"},
		{"letters import FILE DIR/p.yaml", "it is not an exported letter"},
		{"letters import FILE a b", "one PATH at most"},
		{"explain FILE", "ID is missing\nsemel: semel explain --help shows how it is used"},
		{"demo a9", "one of a1, a2, a3"},
	})
}

// TestRemediesOfPlaces: what is wrong around the pipeline file.
func TestRemediesOfPlaces(t *testing.T) {
	b := newBench(t, pipeline)
	b.write("text", strings.Repeat("no database ", 100))
	b.write("pages.db", "SQLite format 3\x00\x10\x00\x02\x02\x00"+strings.Repeat("\xff", 8000))
	b.write("q/stray.json", "{}")
	b.write("column.yaml", strings.ReplaceAll(strings.Replace(pipeline, "INSERT INTO orders (id, n)", "INSERT INTO orders (id, m)", 1), "DIR", b.dir))
	b.write("setup.yaml", strings.ReplaceAll(strings.Replace(pipeline, "CREATE TABLE IF NOT EXISTS gate (", "CREATE INDEX IF NOT EXISTS i ON nowhere (n) -- ", 1), "DIR", b.dir))
	wantRemedies(t, b, []provoked{
		{"status FILE", "has the pipeline run yet? (semel run"},
		{"run FILE --source directory:DIR/none", "create it; a misspelt path would be an empty queue"},
		{"run FILE --source directory:DIR/text", "name the directory that holds inbox/"},
		{"run FILE --store sqlite:DIR/none/x.db", "create it; a misspelt path would be an empty database"},
		{"run FILE --store sqlite:DIR", "name a file, such as DIR/semel.db"},
		{"run FILE --store sqlite:DIR/text", "name another file; this one is left as it is"},
		{"run FILE --store sqlite:DIR/pages.db", "the file is damaged: put a backup in its place"},
		{"run DIR/setup.yaml --once", "correct setup: in the pipeline file"},
		{"run DIR/setup.yaml --check", "correct setup: in the pipeline file"},
		{"run DIR/column.yaml --check", "correct statement 1 of handle.sql in DIR/column.yaml, or make what it names with setup:"},
	})
	b.want(exitDone, "run FILE --once", "note: stray.json lies beside inbox/ (1 there); only what is in inbox/ is taken: move them")
	b.deliver("a.json", `{"id":"a","key":"a","n":1}`)
	b.want(exitUsage, "run "+b.dir+"/column.yaml --check", "store     usable", "handler   NOT usable  1 statement")
	wantRemedies(t, b, []provoked{
		{"run DIR/column.yaml --once", "semel run DIR/column.yaml --check tries it\n  nothing is lost: what was not finished comes again"},
	})
	b.want(exitDone, "run FILE --once", "applied                1")
}

// TestRemedyOfAnExpressionThatFitsNothing: when not one message has an id, the
// pipeline file is what should be looked at; corrected, it takes them all.
func TestRemedyOfAnExpressionThatFitsNothing(t *testing.T) {
	b := newBench(t, strings.Replace(pipeline, "id: .id", "id: .identity", 1))
	b.deliver("a.json", `{"id":"a","key":"a","n":1}`)
	b.deliver("b.json", `{"id":"b","key":"b","n":2}`)
	b.want(exitDead, "run FILE --once", "dead                   2", "Not one could be handled. If the pipeline file is at fault, correct it, and then:\n  semel letters replay DIR/p.yaml state=dead\n")
	b.write("p.yaml", strings.ReplaceAll(pipeline, "DIR", b.dir))
	b.want(exitDone, "letters replay FILE state=dead --yes")
	b.want(exitDone, "run FILE --once", "applied                2")
	out := b.want(exitDone, "explain FILE a", "a: Its effect is committed.")
	if strings.Contains(out, "with other content") {
		t.Errorf("nobody changed the content:\n%s", out)
	}
}

// TestErrorsSayWhatToDo reads the texts of the errors that the command line
// makes itself: one that is new has to ask for something.
func TestErrorsSayWhatToDo(t *testing.T) {
	tells := regexp.MustCompile(`: |\b(goes? with|needs?|at most|is for|choose|is missing|nothing was changed)\b`)
	text := regexp.MustCompile(`usagef\(("(?:[^"\\]|\\.)*"|` + "`[^`]*`" + `)`)
	files, err := filepath.Glob("*.go")
	n := 0
	for _, name := range files {
		b, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr)
		for _, m := range text.FindAllStringSubmatch(string(b), -1) {
			if n++; !tells.MatchString(m[1]) {
				t.Errorf("%s: it is not said what to do: %s", name, m[1])
			}
		}
	}
	if err != nil || n < 10 {
		t.Fatalf("%d texts: %v", n, err)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestOutputThatIsLost: no verb ends well when its output went nowhere.
func TestOutputThatIsLost(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a","key":"a","n":500}`)
	b.want(exitDead, "run FILE --once")
	for _, line := range []string{
		"--help", "version", "version --json", "status FILE", "status FILE --json", "explain FILE a", "run FILE --once", "run FILE --once --json",
		"run FILE --check", "run FILE --dry-run", "letters list FILE", "letters groups FILE", "letters count FILE", "letters export FILE", "letters list FILE --json",
		"schema print FILE", "schema check FILE", "letters replay FILE state=dead --dry-run",
	} {
		var stderr strings.Builder
		a := &app{in: strings.NewReader(""), out: full{}, err: &stderr, getenv: func(string) string { return "" }, exit: func(int) {}}
		code := a.main(strings.Fields(strings.Replace(line, "FILE", b.file, 1)))
		if code != exitFault || strings.Count(stderr.String(), "no space left: make room for it, or write it elsewhere") != 1 || strings.Contains(stderr.String(), "--help") {
			t.Errorf("%s: exit code %d, %s", line, code, stderr.String())
		}
	}
}
