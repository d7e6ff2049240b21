//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/semel-dev/semel/examples/flights"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// The first hour with semel, on a terminal: what somebody does who has nothing
// but the README. Which test does which step:
//
//	run the example                     TestMakeExample; in full TestD04Flights
//	the tutorial, every command of it   test/docs: TestTutorial
//	break the example, read, repair     TestNewcomerBreaksTheExample
//	a disk that is full, in depth       TestFullDisk, TestNoSpace
//	init over one's own files           TestInitAsks, TestInitByFlags; and
//	find out why one died, repair it    TestNewcomerOwnFiles
//	the display that is live            TestNewcomerWatches
//	the same for thousands              TestLetters…
//	each error has its remedy           cmd/semel/internal/cli: TestRemedies…
//	each help fits the screen           cmd/semel/internal/cli: TestHelps

// seen runs the binary on a terminal of its own and wants what it ends with
// and says. Lines that show progress are part of what it says.
func seen(t *testing.T, q *rig.Queue, words string, code int, say ...string) string {
	t.Helper()
	c := talk(t, q.Dir, q.Semel(words).Args...)
	if got := c.wait(); got != code {
		t.Fatalf("%s: exit code %d, want %d\n%s", words, got, code, c)
	}
	for _, s := range say {
		if !strings.Contains(c.String(), s) {
			t.Errorf("%s does not say %q:\n%s", words, s, c)
		}
	}
	return c.String()
}

// someFlights lays the example out and leaves the first n files of it.
func someFlights(t *testing.T, n int) (q *rig.Queue, text string) {
	t.Helper()
	q, _ = example(t, "flights.yaml")
	if _, err := (flights.Inbox{Root: q.Root, Seed: 1}).Deliver(); err != nil {
		t.Fatal(err)
	}
	for _, name := range q.Files("inbox")[n:] {
		if err := os.Remove(q.Path("inbox", name)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(q.File)
	if err != nil {
		t.Fatal(err)
	}
	q.File = filepath.Join(q.Dir, "flights.yaml")
	return q, strings.NewReplacer("directory:.work/flights", "directory:ROOT", "sqlite:.work/flights/flights.db", "sqlite:DB").Replace(string(b))
}

// TestNewcomerBreaksTheExample: each time the message says what is wrong and
// what to do, that is done, and nothing was lost.
func TestNewcomerBreaksTheExample(t *testing.T) {
	t.Parallel()
	const files = 200
	q, text := someFlights(t, files)
	broken := func(old, with string) {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("the example has no %q", old)
		}
		q.Describe(strings.Replace(text, old, with, 1))
	}
	waits := func() {
		t.Helper()
		if n := len(q.Files("inbox")); n != files {
			t.Errorf("%d files wait, want %d", n, files)
		}
	}

	broken("message:   ", "mesage:    ") // a misspelt key
	seen(t, q, "run --once", 1, `flights.yaml:17:1: unknown key "mesage": did you mean message?`)
	broken("  as: integer", "\tas: integer") // not YAML
	seen(t, q, "run --once", 1, "not YAML: ", "indent with spaces")
	broken("(.seq | tostring)", "(.seq | tostring") // not jq
	seen(t, q, "run --once", 1, "message.id: the jq expression ends early: complete it")
	broken("sqlite:DB", "sqlite:"+q.Dir+"/nowhere/flights.db") // no such directory
	seen(t, q, "run --once", 1, "nowhere does not exist (create it; ")
	waits()

	broken("(flight, status, at, seq)", "(flight, state, at, seq)") // a missing column
	seen(t, q, "run --once", 2, "no column named state", "correct statement 1 of handle.sql in "+q.File, "--check tries it", "nothing is lost")
	seen(t, q, "run --check", 1, "handler   NOT usable", "no column named state")
	waits()

	q.Describe(text) // a dead disk
	e := rig.Run(t, confined(t, q.Semel("run --once"), "-nospace", "4000"))
	if e.Code != 2 || !strings.Contains(e.Stderr, "full") && !strings.Contains(e.Stderr, "I/O") || !strings.Contains(e.Stderr, "make room on its disk") {
		t.Errorf("want it told that the disk is full: %v", e)
	}
	waits()

	broken(`.flight + "/" + (.seq | tostring)`, ".flight_id") // a field that is not there
	seen(t, q, "run --dry-run", 0, "message.id (.flight_id) is null or missing: a string or an integer is needed", fmt.Sprintf("dead                 %d", files))
	waits()
	said := seen(t, q, "run --once", 3, "Not one could be handled. If the pipeline file is at fault, correct it")
	if !strings.Contains(said, "semel letters replay "+q.File+" state=dead") {
		t.Errorf("it does not say how to go on:\n%s", said)
	}
	q.Describe(text)
	c := talk(t, q.Dir, letters(q, "replay", "state=dead").Args...)
	c.answer(fmt.Sprintf("%d letters", files), "y\n")
	if code := c.wait(); code != 0 {
		t.Fatalf("replay: exit code %d\n%s", code, c)
	}
	seen(t, q, "run --once", 0, fmt.Sprintf("taken up             %d", files), "Every message is accounted for.")
	seen(t, q, "status --rows", 0, "The account balances.")
	wantSomeFlights(t, q)
}

// TestNewcomerWatches: the line that shows progress stays one line, also when
// the terminal becomes narrow, and Ctrl-C ends the run in good order.
func TestNewcomerWatches(t *testing.T) {
	t.Parallel()
	const narrow = 40
	q := rig.NewQueue(t, plain)
	q.Deliver("a.json", event("a"))
	c := talk(t, q.Dir, q.Semel("run").Args...)
	c.answer("\r\x1b[Kplain  1 done", "")
	if err := pty.Setsize(c.tty, &pty.Winsize{Rows: 24, Cols: narrow}); err != nil {
		t.Fatal(err)
	}
	q.Deliver("b.json", event("b"))
	c.answer("\r\x1b[Kplain  2 done", "")
	before := len(c.String())
	c.answer("\r\x1b[Kplain  2 done", "")
	c.answer("\r\x1b[Kplain  2 done", "\x03")
	if code := c.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, c)
	}
	for line := range strings.SplitSeq(c.String()[before:], "\r\x1b[K") {
		line = strings.TrimSuffix(line, "^C") // the terminal's echo
		if strings.Contains(line, "  1 in the") {
			t.Errorf("nothing is left, and it says %q", line)
		}
		if strings.HasPrefix(line, "plain  2 done") && len([]rune(line)) >= narrow {
			t.Errorf("a line of %d characters on a terminal of %d: %q", len([]rune(line)), narrow, line)
		}
	}
	if !strings.Contains(c.String(), "\x1b[Kplain: interrupt: finishing what is in hand") || !strings.Contains(c.String(), "Every message is accounted for.") {
		t.Errorf("want it ended in good order:\n%s", c)
	}
}

// wantSomeFlights compares the table with the files that were handled.
func wantSomeFlights(t *testing.T, q *rig.Queue) {
	t.Helper()
	handled := q.Int("SELECT COUNT(*) FROM semel_inbox WHERE verdict IN (1, 3)")
	rows := q.Int("SELECT COUNT(*) FROM flights")
	if keys := q.Int("SELECT COUNT(*) FROM semel_version"); handled != 200 || rows == 0 || rows != keys {
		t.Errorf("%d records, %d rows of %d flights: want 200, and a row each", handled, rows, keys)
	}
}

// TestNewcomerOwnFiles: init over a directory of one's own, one file of which
// is not like the others. Why it died is asked, and what the answer proposes is
// run as it is shown: export, an editor, import, and the run that applies it.
func TestNewcomerOwnFiles(t *testing.T) {
	t.Parallel()
	q := initQueue(t)
	ownFiles(t, q.Path("inbox"))
	c := talk(t, filepath.Dir(q.File), "init", "--source", q.Root, "--store", q.DB)
	for _, question := range []string{"name [own_files]: ", "id [.eventId]: ", "key [.order.id]: ", "version [.order.revision]: ", "table [own_files]: "} {
		c.answer(question, "\n")
	}
	if code := c.wait(); code != 0 {
		t.Fatalf("init: exit code %d\n%s", code, c)
	}
	q.Deliver("odd.json", `{"eventId": "odd", "order": {"nr": "o-3", "revision": 9}, "status": "sent", "total amount": 1.5}`)
	seen(t, q, "run --once", 3, "applied               40", "dead                   1", "1 dead letter: semel letters list "+q.File)
	seen(t, q, "letters groups", 0, "message.key (.order.id) is null or missing")
	ref := onlyLetter(t, q).Ref
	shown := seen(t, q, "letters show "+ref, 0, `"nr": "o-3"`, "message.key (.order.id) is null or missing: a string or an integer is needed")

	dir := t.TempDir()
	export, replay := shownCommand(t, shown, "semel letters export"), shownCommand(t, shown, "semel letters import")
	export, _, _ = strings.Cut(export, ", then edit")
	shell(t, dir, export)
	path := filepath.Join(dir, "letter.jsonl")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), `"nr":`, `"id":`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := shell(t, dir, replay); !strings.Contains(out, "1 proposed, 0 unchanged, 0 refused, 1 replayed") {
		t.Errorf("import: %s", out)
	}
	seen(t, q, "run --once", 0, "taken up               1", "applied                1")
	seen(t, q, "explain odd", 0, "odd: Its effect is committed.", "with other content than was sent")
	seen(t, q, "status --rows", 0, "The account balances.")
	wantSent(t, q, "own_files")
	if got := q.Strings("SELECT COUNT(*) || ' ' || MAX(order_revision) FROM own_files WHERE order_id = 'o-3'"); !slices.Equal(got, []string{"1 9"}) {
		t.Errorf("the row of the repaired message: %q", got)
	}
}

// shownCommand finds a command in what was shown.
func shownCommand(t *testing.T, shown, begin string) string {
	t.Helper()
	_, rest, ok := strings.Cut(shown, begin)
	if !ok {
		t.Fatalf("no %s in:\n%s", begin, shown)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return begin + line
}
