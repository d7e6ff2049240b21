package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// strict refuses orders of countries that it does not know, which a person can
// change.
const strict = `
name: strict
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS countries (code TEXT NOT NULL PRIMARY KEY, orders INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL)
message: {id: .id, filter: .skip != true}
handle:
  sql:
    - exec: UPDATE countries SET orders = orders + 1 WHERE code = :country
      none: fail
    - INSERT INTO effects (id) VALUES (:id)
  with: {id: .id, country: .country}
horizon: 7d
`

func order(id, country string) string { return fmt.Sprintf(`{"id":%q,"country":%q}`, id, country) }

// letter is what letters list --json says.
type letter struct {
	Ref, State, Class, Reason, ID, Error, By, Note, Body string
	Seen, Proposed, Attempts                             int
}

// onlyLetter returns the one open letter.
func onlyLetter(t *testing.T, q *rig.Queue) letter {
	t.Helper()
	var l letter
	q.Run("letters list --json").JSON(t, &l)
	return l
}

func wantEffects(t *testing.T, q *rig.Queue, want string) {
	t.Helper()
	if got := strings.Join(q.Strings("SELECT id FROM effects ORDER BY id"), " "); got != want {
		t.Errorf("effects of %q, want %q", got, want)
	}
}

// wantStatus checks that the account balances and how many letters are dead.
func wantStatus(t *testing.T, q *rig.Queue, dead int64) {
	t.Helper()
	var s struct {
		Balanced bool
		Letters  map[string]int64
	}
	e := q.Run("status --rows --json")
	e.JSON(t, &s)
	if !s.Balanced || s.Letters["dead"] != dead || e.Code != map[bool]int{true: 3, false: 0}[dead > 0] {
		t.Errorf("status: want a balanced account and %d dead: %v", dead, e)
	}
}

// explained asks for one message and wants a sentence and an exit code.
func explained(t *testing.T, q *rig.Queue, id, sentence string, code int) {
	t.Helper()
	var x struct{ Answer string }
	e := q.Run("explain --json " + id)
	e.JSON(t, &x)
	if e.Code != code || !strings.Contains(x.Answer, sentence) {
		t.Errorf("explain %s: want %q and exit code %d: %v", id, sentence, code, e)
	}
}

// TestReplayAfterTheCauseIsGone: a person lists, looks, removes the cause, and
// has the letter tried again. It is applied once, whoever asks how often.
func TestReplayAfterTheCauseIsGone(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	q.Deliver("a.json", order("a", "NL"))
	q.Drain(3)
	l := onlyLetter(t, q)
	if l.State != "dead" || l.Class != "business" || l.Reason != "permanent" || l.ID != "a" {
		t.Errorf("%+v", l)
	}
	var shown letter
	q.Run("letters show --json "+l.Ref[:6]).JSON(t, &shown)
	if shown.Body != order("a", "NL") || !strings.Contains(shown.Error, "changed no row") {
		t.Errorf("show: %+v", shown)
	}
	if e := q.Run("letters show " + l.Ref + " --body"); e.Stdout != order("a", "NL") {
		t.Errorf("the body alone: %v", e)
	}
	q.Exec("INSERT INTO countries (code) VALUES ('NL')")
	if e := q.Run("letters replay --dry-run " + l.Ref); e.Code != 0 || onlyLetter(t, q).State != "dead" {
		t.Errorf("dry run: %v", e)
	}
	if e := q.Run("letters replay --note fixed --as anna " + l.Ref); e.Code != 0 {
		t.Errorf("%v", e)
	}
	if e := q.Run("letters replay " + l.Ref); e.Code != 3 || !strings.Contains(e.Stderr, "retry") {
		t.Errorf("the second person must hear of the first: %v", e)
	}
	explained(t, q, "a", "will be tried again", 0)
	if s := q.Drain(0); s.Applied != 1 || s.Taken != 1 {
		t.Errorf("%+v, want the letter applied", s)
	}
	q.Deliver("again.json", order("a", "NL"))
	q.Drain(0)
	if e := q.Run("letters replay " + l.Ref); e.Code != 3 {
		t.Errorf("a closed letter is not replayed: %v", e)
	}
	q.Drain(0)
	wantEffects(t, q, "a")
	wantStatus(t, q, 0)
	explained(t, q, "a", "effect is committed", 0)
}

// TestReplayByARunningWorker: the worker that runs takes the replayed letter
// up; nobody has to start anything.
func TestReplayByARunningWorker(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	q.Deliver("a.json", order("a", "NL"))
	q.Drain(3)
	p := q.Start("run")
	rig.Until(t, "the worker runs", func() bool { return workers(q) == 1 })
	q.Exec("INSERT INTO countries (code) VALUES ('NL')")
	if e := q.Run("letters replay state=dead --yes"); e.Code != 0 {
		t.Errorf("%v", e)
	}
	rig.Until(t, "the letter is applied", func() bool { return q.Int("SELECT COUNT(*) FROM effects") == 1 })
	if e := p.Interrupt(); e.Code != 0 {
		t.Errorf("%v", e)
	}
	wantStatus(t, q, 0)
}

// TestDiscard: a person gives a message up and says why. It stays on record,
// and the same message is a duplicate from then on.
func TestDiscard(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	q.Deliver("a.json", order("a", "NL"))
	q.Drain(3)
	l := onlyLetter(t, q)
	if e := q.Run("letters discard " + l.Ref); e.Code != 1 || !strings.Contains(e.Stderr, "--reason") {
		t.Errorf("without a reason: %v", e)
	}
	if e := q.Run("letters discard --reason test-data --as anna " + l.Ref); e.Code != 0 {
		t.Errorf("%v", e)
	}
	q.Exec("INSERT INTO countries (code) VALUES ('NL')")
	q.Deliver("again.json", order("a", "NL"))
	if s := q.Drain(0); s.Duplicates != 1 || s.Applied != 0 {
		t.Errorf("%+v, want a duplicate", s)
	}
	var shown letter
	q.Run("letters show --json "+l.Ref).JSON(t, &shown)
	if shown.State != "discarded" || shown.By != "anna" || shown.Note != "test-data" {
		t.Errorf("%+v", shown)
	}
	explained(t, q, "a", "discarded", 0)
	wantEffects(t, q, "")
	wantStatus(t, q, 0)
}

// TestComesBackFromError: a person moves a file from error/ to inbox/. The same
// bytes are a replay. Repaired bytes are a proposal, or a replay where the
// pipeline says so. A dead line comes back as a file of one line.
func TestComesBackFromError(t *testing.T) {
	for name, c := range map[string]struct {
		more, broken, repaired string
		effects                string
		code                   int
		proposed               int
	}{
		"same":                     {broken: order("a", "NL"), effects: "a"},
		"repaired":                 {broken: order("a", "XX"), repaired: order("a", "NL"), code: 3, proposed: 1},
		"repaired, replay":         {more: "error_return: replay\n", broken: order("a", "XX"), repaired: order("a", "NL"), effects: "a"},
		"without id, repaired":     {broken: `{"id": "a"`, repaired: order("a", "NL"), code: 3, proposed: 1},
		"without id, replay":       {more: "error_return: replay\n", broken: `{"id": "a"`, repaired: order("a", "NL"), effects: "a"},
		"still broken, replay":     {more: "error_return: replay\n", broken: `{"id": "a"`, repaired: `{"id": "a",`, code: 3, proposed: 1},
		"line, same":               {more: "files: lines\n", broken: order("a", "NL"), effects: "a"},
		"line, repaired, replay":   {more: "files: lines\nerror_return: replay\n", broken: order("a", "XX"), repaired: order("a", "NL"), effects: "a"},
		"line, without id, replay": {more: "files: lines\nerror_return: replay\n", broken: `{"id": "a"`, repaired: order("a", "NL"), effects: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, strict+c.more)
			q.Deliver("a.json", c.broken+"\n")
			q.Drain(3)
			ref := onlyLetter(t, q).Ref
			q.Exec("INSERT INTO countries (code) VALUES ('NL')")
			bad := q.Files("error")
			if len(bad) != 1 {
				t.Fatalf("error/ holds %q", bad)
			}
			if c.repaired != "" {
				if err := os.WriteFile(q.Path("error", bad[0]), []byte(c.repaired+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(q.Path("error", bad[0]), q.Path("inbox", bad[0])); err != nil {
				t.Fatal(err)
			}
			if s := q.Drain(c.code); !s.Balanced {
				t.Errorf("%+v", s)
			}
			wantEffects(t, q, c.effects)
			wantStatus(t, q, int64(min(c.code, 1)))
			var l letter
			q.Run("letters show --json "+ref).JSON(t, &l)
			if l.Proposed != c.proposed || (l.State == "applied") != (c.effects != "") {
				t.Errorf("letter %+v, want %d proposed", l, c.proposed)
			}
			if n := q.Int("SELECT COUNT(*) FROM semel_letter"); n != 1 {
				t.Errorf("%d letters, want the one", n)
			}
			side, err := filepath.Glob(q.Path("error", "*.semel.json"))
			left := q.Files("error")
			if err != nil || len(side) != len(left) {
				t.Errorf("error/ holds %q and sidecars %q, %v", left, side, err)
			}
			if n := len(q.Files("inbox")) + len(q.Files("processing")); n != 0 {
				t.Errorf("%d files are not finished", n)
			}
		})
	}
}

// TestExplain says where a message is at each stage of its life.
func TestExplain(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	if e := q.Run("explain a"); e.Code != 1 || !strings.Contains(e.Stderr, "does not exist") {
		t.Errorf("before the first run: %v", e)
	}
	q.Drain(0)
	explained(t, q, "a", "Nothing is known", 3)
	q.Deliver("a.json", order("a", "NL"))
	explained(t, q, "a", "lies in the source", 0)
	q.Drain(3)
	explained(t, q, "a", "dead letter", 0)
	q.Deliver("skip.json", `{"id": "skip", "skip": true}`)
	q.Drain(3)
	explained(t, q, "skip", "filter", 0)
	q.Exec("INSERT INTO countries (code) VALUES ('NL')")
	q.Deliver("b.json", order("b", "NL"))
	if e := q.Run("run --once", "SEMEL_FAULT="+string(fault.Admitted)); !e.Killed() {
		t.Fatalf("%v", e)
	}
	e := q.Run("explain b")
	if !strings.Contains(e.Stdout, "processing/") {
		t.Errorf("claimed by a dead worker: %v", e)
	}
	q.Drain(3)
	explained(t, q, "b", "effect is committed", 0)
	if e := q.Run("explain b"); !strings.Contains(e.Stdout, "done/b.json") || !strings.Contains(e.Stdout, "applied") {
		t.Errorf("%v", e)
	}
}

// TestLookingChangesNothing: what only looks leaves files and tables as they
// are, and makes none.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strict)
	q.Deliver("a.json", order("a", "NL"))
	for _, words := range []string{"run --check", "run --dry-run"} {
		if e := q.Run(words); e.Code != 0 {
			t.Errorf("%s: %v", words, e)
		}
	}
	if entries, err := os.ReadDir(q.Root); err != nil || len(entries) != 1 {
		t.Errorf("before the first run there are %v, %v: want inbox/ alone", entries, err)
	}
	if _, err := os.Stat(q.DB); !os.IsNotExist(err) {
		t.Errorf("a database was made: %v", err)
	}
	q.Drain(3)
	q.Deliver("b.json", order("b", "NL"))
	if e := q.Run("run --once", "SEMEL_FAULT="+string(fault.Admitted)); !e.Killed() {
		t.Fatalf("%v", e)
	}
	q.Deliver("c.json", order("a", "NL"))
	before := everything(t, q)
	for words, code := range map[string]int{
		"run --check": 0, "run --dry-run": 0, "run --dry-run --json": 0, "status --rows": 3, "letters list": 0, "explain a": 0,
		"letters replay state=dead --dry-run": 0, "letters discard state=dead --reason x --dry-run": 0, "schema check": 0,
	} {
		if e := q.Run(words); e.Code != code {
			t.Errorf("%s: want exit code %d: %v", words, code, e)
		}
		if after := everything(t, q); after != before {
			t.Errorf("%s changed\n%s\nto\n%s", words, before, after)
		}
	}
}

// everything is the names of all files of the queue, and all rows that count.
func everything(t *testing.T, q *rig.Queue) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(q.Root, func(path string, _ fs.DirEntry, err error) error {
		all.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"SELECT CAST(id AS TEXT) || verdict || at FROM semel_inbox ORDER BY id",
		"SELECT CAST(ref AS TEXT) || state || version || seen || updated FROM semel_letter ORDER BY ref",
		"SELECT account || bucket || n FROM semel_ledger ORDER BY account, bucket",
		"SELECT CAST(worker AS TEXT) || batch FROM semel_batch ORDER BY worker",
		"SELECT CAST(unit AS TEXT) FROM semel_suspect ORDER BY unit",
		"SELECT code || orders FROM countries", "SELECT id FROM effects",
	} {
		all.WriteString(strings.Join(q.Strings(query), "\n") + "\n")
	}
	return all.String()
}

// held is a running pipeline that has read its messages and cannot begin a
// transaction, because the test has the database's lock.
type held struct {
	*rig.Process
	t    *testing.T
	q    *rig.Queue
	db   *sql.DB
	conn *sql.Conn
}

// hold starts a pipeline, takes the lock, delivers, and waits until messages
// are in the process's memory; files of lines are only claimed by then, since
// the database is asked where to begin.
func hold(t *testing.T, q *rig.Queue, words string, deliver func()) *held {
	t.Helper()
	h := &held{t: t, q: q, Process: q.Start(words, "SEMEL_FAULT_LOG="+filepath.Join(q.Dir, "points"))}
	rig.Until(t, "the pipeline works", func() bool { return workers(q) == 1 })
	var err error
	if h.db, err = rig.OpenDB(q.DB); err != nil {
		t.Fatal(err)
	}
	if h.conn, err = h.db.Conn(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.conn.Close(); h.db.Close() })
	h.exec("BEGIN IMMEDIATE")
	deliver()
	rig.Until(t, "messages are read, or their files claimed", func() bool {
		points, err := os.ReadFile(filepath.Join(q.Dir, "points"))
		return err == nil && (strings.Contains(string(points), string(fault.Decoded)) || len(q.Files("processing")) > 0)
	})
	return h
}

func (h *held) exec(statement string) {
	h.t.Helper()
	if _, err := h.conn.ExecContext(context.Background(), statement); err != nil {
		h.t.Fatalf("%s: %v", statement, err)
	}
}

// TestStatusWhileRunning: status does not wait for the pipeline, and says what
// it holds.
func TestStatusWhileRunning(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	h := hold(t, q, "run", func() { q.Deliver("a.json", event("a")) })
	var s struct {
		Stages []struct {
			Stage, Worker string
			Files         int64
		}
		Workers  []struct{ Worker string }
		Balanced bool
	}
	e := q.Run("status --json")
	e.JSON(t, &s)
	held := int64(0)
	for _, x := range s.Stages {
		if x.Stage == "processing" && x.Worker != "" {
			held += x.Files
		}
	}
	if e.Code != 0 || held != 1 || len(s.Workers) != 1 || !s.Balanced {
		t.Errorf("want one worker that holds one file: %v", e)
	}
	if e := q.Run("status"); e.Code != 0 || !strings.Contains(e.Stdout, "processing") || !strings.Contains(e.Stdout, "The account balances") {
		t.Errorf("%v", e)
	}
	h.exec("ROLLBACK")
	rig.Until(t, "it is applied", func() bool { return q.Int("SELECT COUNT(*) FROM effects") == 1 })
	if e := h.Interrupt(); e.Code != 0 {
		t.Errorf("%v", e)
	}
}

// TestSignals: SIGINT and SIGTERM end a run in good order: what is in hand is
// finished, nothing stays claimed, and the next run does the rest, once. A run
// that was to drain says that something waits.
func TestSignals(t *testing.T) {
	for name, c := range map[string]struct {
		words  string
		signal syscall.Signal
		code   int
	}{
		"Ctrl-C":          {"run --json", syscall.SIGINT, 0},
		"Ctrl-C, --once":  {"run --once --wait 2h --json", syscall.SIGINT, 5},
		"SIGTERM":         {"run --json", syscall.SIGTERM, 0},
		"SIGTERM, --once": {"run --once --wait 2h --json", syscall.SIGTERM, 5},
	} {
		for _, lines := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lines %v", name, lines), func(t *testing.T) {
				t.Parallel()
				q := rig.NewQueue(t, patient(lines))
				// Parked for an hour, it keeps a run that waits for it from
				// ending before it is told to.
				q.Deliver("parked.json", `{"id": "parked", "after": "nothing"}`)
				q.Drain(5, "--wait 0s")
				p := hold(t, q, c.words, func() { deliverParts(q, lines) })
				p.Signal(c.signal)
				rig.Until(t, "it heard the signal", func() bool { return strings.Contains(p.Stderr(), "finishing") })
				p.exec("ROLLBACK")
				e := p.Wait()
				if s := e.Summary(t); e.Code != c.code || !s.Balanced || s.Received == parts*parts {
					t.Errorf("want exit code %d, a balanced account and something left: %v", c.code, e)
				}
				wantOrder(t, q)
				if len(q.Files("inbox")) == 0 {
					t.Error("nothing is left to resume")
				}
				q.Drain(5, "--wait 0s")
				if n := q.Int("SELECT n FROM counter"); n != parts*parts || q.Int("SELECT COUNT(DISTINCT id) FROM effects") != n {
					t.Errorf("the counter says %d in the end, want %d", n, parts*parts)
				}
			})
		}
	}
}

// TestSecondSignal: a second Ctrl-C ends the program at once, which loses
// nothing.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, patient(false))
	p := hold(t, q, "run", func() { deliverParts(q, false) })
	p.Signal(syscall.SIGINT)
	rig.Until(t, "it heard the first signal", func() bool { return strings.Contains(p.Stderr(), "finishing") })
	if e := p.Interrupt(); e.Code != 2 {
		t.Errorf("want exit code 2: %v", e)
	}
	p.exec("ROLLBACK")
	q.Drain(0)
	if n := q.Int("SELECT n FROM counter"); n != parts*parts {
		t.Errorf("the counter says %d in the end, want %d", n, parts*parts)
	}
	if left, err := os.ReadDir(q.Path("processing")); err != nil || len(left) > 0 {
		t.Errorf("processing/ holds %v, %v", left, err)
	}
}

// parts is how many files of lines there are, and lines in each.
const parts = 10

// patient is a pipeline of small batches that tries failed messages again
// after an hour.
func patient(lines bool) string {
	text := strings.NewReplacer("horizon: 7d", "horizon: 7d\nbatch: 10\nretry: {delays: [1h]}",
		"  with: {id: .id}", "    - {exec: \"UPDATE counter SET n = n WHERE :after = ''\", none: stale}\n  with: {id: .id, after: '.after // \"\"'}").Replace(plain)
	if lines {
		text += "files: lines\n"
	}
	return text
}

func deliverParts(q *rig.Queue, lines bool) {
	for i := range parts {
		var part []string
		for j := range parts {
			part = append(part, event(fmt.Sprintf("%d-%d", i, j)))
		}
		if lines {
			q.Deliver(fmt.Sprintf("%d.ndjson", i), strings.Join(part, "\n")+"\n")
			continue
		}
		for j, body := range part {
			q.Deliver(fmt.Sprintf("%d-%d.json", i, j), body)
		}
	}
}

// wantOrder checks that nobody left anything behind.
func wantOrder(t *testing.T, q *rig.Queue) {
	t.Helper()
	if left, err := os.ReadDir(q.Path("processing")); err != nil || len(left) > 0 {
		t.Errorf("processing/ holds %v, %v", left, err)
	}
	if n := workers(q) + q.Int("SELECT COUNT(*) FROM semel_fence WHERE clean = 0") + q.Int("SELECT COUNT(*) FROM semel_suspect"); n != 0 {
		t.Errorf("%d workers, owners or suspicions are left", n)
	}
}

// TestManyStartAtOnce: several processes make the database and its tables at
// the same moment.
func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	for i := range 100 {
		q.Deliver(fmt.Sprintf("%d.json", i), event(fmt.Sprint(i)))
	}
	var ps []*rig.Process
	for range 5 {
		ps = append(ps, q.Start("run --once --json"))
	}
	for _, p := range ps {
		if e := p.Wait(); e.Code != 0 || !e.Summary(t).Balanced {
			t.Errorf("%v", e)
		}
	}
	if n := q.Int("SELECT n FROM counter"); n != 100 {
		t.Errorf("the counter says %d, want 100", n)
	}
}
