package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// The tests of this file are named after the lines of the requirements that
// they show.

// plain is a pipeline with as little as possible; MORE stands for what a test
// adds.
const plain = `
name: plain
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, key TEXT NOT NULL DEFAULT '', rev INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE IF NOT EXISTS counter (n INTEGER NOT NULL);
  INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)
message: {id: .id}
handle:
  sql:
    - UPDATE counter SET n = n + 1
    - INSERT INTO effects (id) VALUES (:id)
  with: {id: .id}
horizon: 7d
`

func event(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }

// TestC1StandardForm: receive, parse, check, work and record in one
// transaction, acknowledge last. A process that dies after each step shows
// what was on disk at that moment.
func TestC1StandardForm(t *testing.T) {
	for _, c := range []struct {
		point   fault.Point
		effects int64 // and records: they come and go together
		stage   string
	}{
		{filebroker.Claimed, 0, "processing"},
		{fault.Received, 0, "processing"},
		{fault.Decoded, 0, "processing"},
		{fault.Opened, 0, "processing"},
		{fault.Admitted, 0, "processing"},
		{fault.Handled, 0, "processing"},
		{fault.Committed, 1, "processing"},
		{fault.Settling, 1, "processing"},
		{filebroker.Moved, 1, "done"},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, plain)
			q.Drain(0) // the tables
			q.Deliver("a.json", event("a"))
			if e := q.Run("run --once", "SEMEL_FAULT="+string(c.point)); !e.Killed() {
				t.Fatalf("not killed: %v", e)
			}
			effects, records := q.Int("SELECT COUNT(*) FROM effects"), q.Int("SELECT COUNT(*) FROM semel_inbox")
			if effects != c.effects || records != c.effects || q.Int("SELECT n FROM counter") != c.effects {
				t.Errorf("%d effects and %d records, want %d of both", effects, records, c.effects)
			}
			if files := q.Files(c.stage); len(files) != 1 || len(q.Files("inbox")) != 0 {
				t.Errorf("%s/ holds %q, want the one file", c.stage, files)
			}
			q.Drain(0)
			if n := q.Int("SELECT n FROM counter"); n != 1 {
				t.Errorf("the counter says %d in the end", n)
			}
		})
	}
}

// TestC2PermanentErrors: a malformed message, a missing field, an unknown code
// and a constraint go to the dead letters at once, and the rest goes on.
func TestC2PermanentErrors(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, `
name: orders
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS countries (code TEXT NOT NULL PRIMARY KEY, orders INTEGER NOT NULL DEFAULT 0);
  INSERT INTO countries (code) SELECT 'NL' WHERE NOT EXISTS (SELECT 1 FROM countries);
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, cents INTEGER NOT NULL CHECK (cents > 0))
message: {id: .id, schema: order.schema.json}
handle:
  sql:
    - exec: UPDATE countries SET orders = orders + 1 WHERE code = :country
      none: fail
    - INSERT INTO effects (id, cents) VALUES (:id, :cents)
  with: {id: .id, country: .country, cents: .cents}
horizon: 7d
`)
	schema := `{"type": "object", "required": ["id", "country", "cents"], "properties": {"cents": {"type": "integer"}}}`
	if err := os.WriteFile(filepath.Join(q.Dir, "order.schema.json"), []byte(schema), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"format":     `{"id": "format", "country": "NL"`,
		"field":      `{"id": "field", "country": "NL"}`,
		"type":       `{"id": "type", "country": "NL", "cents": "5"}`,
		"code":       `{"id": "code", "country": "XX", "cents": 5}`,
		"constraint": `{"id": "constraint", "country": "NL", "cents": 0}`,
		"good":       `{"id": "good", "country": "NL", "cents": 5}`,
	} {
		q.Deliver(name+".json", body)
	}
	s := q.Drain(3)
	if s.Dead != 5 || s.Applied != 1 || s.Parked != 0 || s.Taken != 0 {
		t.Errorf("%+v, want 5 dead at once and 1 applied", s)
	}
	got := q.Strings("SELECT substr(origin, 1, instr(origin, '.') - 1) || ' ' || class || ' ' || reason || ' ' || attempts FROM semel_letter ORDER BY 1")
	want := []string{"code business permanent 1", "constraint business permanent 1", "field format invalid 0", "format format invalid 0", "type format invalid 0"}
	if !slices.Equal(got, want) {
		t.Errorf("letters %q, want %q", got, want)
	}
	if files := q.Files("error"); len(files) != 5 {
		t.Errorf("error/ holds %q", files)
	}
	if n := q.Int("SELECT orders FROM countries"); n != 1 {
		t.Errorf("%d orders of the country: something of a dead message stayed", n)
	}
}

// waiting is a pipeline whose messages fail until the row exists that they
// refer to.
const waiting = `
name: waiting
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS accounts (name TEXT NOT NULL PRIMARY KEY, balance INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL)
message: {id: .id}
handle:
  sql:
    - INSERT INTO effects (id) VALUES (:id)
    - exec: UPDATE accounts SET balance = balance + 1 WHERE name = :account
      none: stale
  with: {id: .id, account: .account}
retry: {immediate: 1, delays: [50ms, 200ms, 800ms]}
horizon: 7d
`

// TestC3TransientErrors: once more at once, then after growing delays with
// jitter, then a dead letter that shows the attempts.
func TestC3TransientErrors(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, waiting)
	q.Deliver("a.json", `{"id": "a", "account": "nobody"}`)
	s := q.Drain(3)
	if s.Dead != 1 || s.Parked != 3 || s.Taken != 3 {
		t.Errorf("%+v, want it parked three times, taken up three times, and dead", s)
	}
	if got := q.Strings("SELECT class || ' ' || reason || ' ' || attempts FROM semel_letter"); !slices.Equal(got, []string{"system exhausted 5"}) {
		t.Errorf("letter %q, want 5 attempts in all", got)
	}
	// The attempts in hand when the letter was written are in its count; the
	// later ones have rows of their own.
	at := q.Strings("SELECT at FROM semel_letter_attempt ORDER BY n")
	if len(at) < 4 {
		t.Fatalf("attempts at %q, want the one that parked it and three later ones", at)
	}
	times := make([]int, len(at))
	for i := range at {
		times[i], _ = strconv.Atoi(at[i])
	}
	times = times[len(times)-4:]
	for i, delay := range []int{50, 200, 800} {
		if d := times[i+1] - times[i]; d < delay {
			t.Errorf("attempt %d came %d ms after the one before it, want at least %d", i+3, d, delay)
		}
	}
	var l struct{ Attempts int }
	q.Run("letters list --json").JSON(t, &l)
	if l.Attempts != 5 {
		t.Errorf("letters list says %d attempts", l.Attempts)
	}
}

// TestC3TransientErrorsPass: a message whose cause goes away in time is
// applied once, and leaves no open letter.
func TestC3TransientErrorsPass(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strings.Replace(waiting, "50ms, 200ms, 800ms", "100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms", 1))
	q.Drain(0)
	q.Deliver("a.json", `{"id": "a", "account": "late"}`)
	p := q.Start("run --once --json")
	rig.Until(t, "the message is parked", func() bool { return q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'retry'") == 1 })
	q.Exec("INSERT INTO accounts (name, balance) VALUES ('late', 0)")
	e := p.Wait()
	if e.Code != 0 {
		t.Fatalf("%v", e)
	}
	if s := e.Summary(t); s.Applied != 1 || s.Dead != 0 || s.Taken < 1 {
		t.Errorf("%+v, want it applied when it was taken up", s)
	}
	if n := q.Int("SELECT balance FROM accounts"); n != 1 || q.Int("SELECT COUNT(*) FROM effects") != 1 {
		t.Errorf("balance %d, want 1", n)
	}
}

// TestC4DuplicatesAreAcked: repeats in one batch and later ones are
// acknowledged and do nothing.
func TestC4DuplicatesAreAcked(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	for i := range 3 {
		q.Deliver(fmt.Sprintf("first-%d.json", i), event("a"))
	}
	if s := q.Drain(0); s.Applied != 1 || s.Duplicates != 2 {
		t.Errorf("%+v, want 1 applied and 2 duplicates", s)
	}
	q.Deliver("again.json", event("a"))
	q.Deliver("first-0.json", event("a"))
	if s := q.Drain(0); s.Applied != 0 || s.Duplicates != 2 {
		t.Errorf("%+v, want 2 duplicates", s)
	}
	if n, done := q.Int("SELECT n FROM counter"), q.Files("done"); n != 1 || len(done) != 5 {
		t.Errorf("the counter says %d; done/ holds %q, want all five files", n, done)
	}
}

// TestC8TheKeyMatters: the same payment is published twice under two message
// ids. Only the business key finds that; ids made of the time or a constant
// are refused.
func TestC8TheKeyMatters(t *testing.T) {
	for id, want := range map[string]int64{".payment": 1, ".envelope": 2} {
		t.Run("id "+id, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, strings.Replace(plain, "message: {id: .id}", "message: {id: "+id+"}", 1))
			for _, envelope := range []string{"e1", "e2"} {
				q.Deliver(envelope+".json", fmt.Sprintf(`{"id": "x", "payment": "p", "envelope": %q}`, envelope))
			}
			e := q.Run("run --once --json")
			if n := q.Int("SELECT n FROM counter"); n != want {
				t.Errorf("counted %d, want %d: %v", n, want, e)
			}
		})
	}
	for id, remedy := range map[string]string{"now": "now", `"orders"`: ".event_id", "$ENV.HOSTNAME": "environment"} {
		t.Run("refused "+id, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, strings.Replace(plain, "message: {id: .id}", "message: {id: '"+id+"'}", 1))
			if e := q.Run("run --once"); e.Code != 1 || !strings.Contains(e.Stderr, remedy) || !strings.Contains(e.Stderr, "pipeline.yaml:9:") {
				t.Errorf("want it refused with its place and %q: %v", remedy, e)
			}
		})
	}
}

// TestC9Retention: records older than keep are removed in small steps, and the
// account goes on balancing.
func TestC9Retention(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strings.NewReplacer("horizon: 7d", "horizon: 1s\nkeep: 2s\nretry: {delays: []}\nfiles: lines").Replace(plain))
	const messages = 2500
	var lines strings.Builder
	for i := range messages {
		lines.WriteString(event(fmt.Sprint(i)) + "\n")
	}
	q.Deliver("a.ndjson", lines.String())
	if s := q.Drain(0); s.Applied != messages {
		t.Fatalf("%+v", s)
	}
	q.Exec("CREATE TABLE removed (at REAL)")
	q.Exec("CREATE TRIGGER removed AFTER DELETE ON semel_inbox BEGIN INSERT INTO removed VALUES (unixepoch('subsec')); END")
	rig.Until(t, "all records are old enough", func() bool {
		return q.Int("SELECT COALESCE(MAX(at), 0) < (unixepoch('subsec') - 2) * 1000 FROM semel_inbox") == 1
	})
	p := q.Start("run --json")
	rig.Until(t, "all records are gone", func() bool { return q.Int("SELECT COUNT(*) FROM semel_inbox") == 0 })
	if e := p.Interrupt(); e.Code != 0 {
		t.Errorf("%v", e)
	}
	if n := q.Int("SELECT COUNT(*) FROM removed"); n != messages {
		t.Errorf("%d records removed, want %d", n, messages)
	}
	if n := q.Int("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM removed GROUP BY at)"); n > 1000 {
		t.Errorf("%d records removed in one step, want at most 1,000", n)
	}
	var s struct {
		Balanced bool
		Ledger   map[string]int64
	}
	if q.Run("status --rows --json").JSON(t, &s); !s.Balanced || s.Ledger["purged_applied"] != messages {
		t.Errorf("after the purge: %+v", s)
	}
	for name, line := range map[string]string{"keep: 1s": "keep", "": "horizon"} {
		text := strings.Replace(plain, "horizon: 7d", name, 1)
		if name != "" {
			text += "horizon: 7d\n"
		}
		q.Describe(text)
		if e := q.Run("run --once"); e.Code != 1 || !strings.Contains(e.Stderr, line) {
			t.Errorf("with %q: want it refused, naming %s: %v", name, line, e)
		}
	}
}

// TestA2CounterTooHigh: "n = n + 1" is repeated after a crash between effect
// and acknowledgement. With every strategy that admits, the count is the
// number of distinct events; without one it is too high, and the checker says
// so.
func TestA2CounterTooHigh(t *testing.T) {
	for name, k := range map[string]kind{
		"table":                {inbox: "table"},
		"table, lines":         {inbox: "table", lines: true},
		"position, lines":      {inbox: "position", lines: true},
		"upsert: not admitted": {inbox: "upsert"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(plain, "horizon: 7d", "horizon: 7d\nbatch: 10\ninbox: "+k.inbox, 1)
			if k.lines {
				text += "files: lines\n"
			}
			q := rig.NewQueue(t, text)
			const events = 40
			for f := range 4 {
				var lines []string
				for i := range events / 4 {
					lines = append(lines, event(fmt.Sprintf("%d-%d", f, i)))
				}
				if k.lines {
					q.Deliver(fmt.Sprintf("%d.ndjson", f), strings.Join(lines, "\n")+"\n")
					continue
				}
				for i, body := range lines {
					q.Deliver(fmt.Sprintf("%d-%d.json", f, i), body)
				}
			}
			for _, p := range []fault.Point{fault.Committed, fault.Settling, fault.Handled, fault.Committed, filebroker.Moved} {
				q.Run("run --once", "SEMEL_FAULT="+string(p))
			}
			q.Drain(0)
			n := q.Int("SELECT n FROM counter")
			if protected := k.inbox != "upsert"; protected != (n == events) || n < events {
				t.Errorf("the counter says %d of %d events", n, events)
			}
		})
	}
}

// TestA3StatusGoesBackwards: "paid" comes again, or late, after "cancelled".
// Versions leave "cancelled", and so does a state machine in the statement.
func TestA3StatusGoesBackwards(t *testing.T) {
	const orders = `
name: orders
source: directory:ROOT
store: sqlite:DB
setup: CREATE TABLE IF NOT EXISTS orders (id TEXT NOT NULL PRIMARY KEY, status TEXT NOT NULL)
message: {id: .id, key: .order}
horizon: 7d
`
	for name, c := range map[string]struct {
		rules      string
		end        string
		superseded int64
	}{
		"version": {`
arbitrate: {version: .rev, as: integer}
handle:
  sql: INSERT INTO orders (id, status) VALUES (:order, :status) ON CONFLICT (id) DO UPDATE SET status = excluded.status
  with: {order: .order, status: .status}
`, "cancelled", 1},
		"state machine": {`
handle:
  sql:
    - exec: INSERT INTO orders (id, status) VALUES (:order, :status) ON CONFLICT (id) DO UPDATE SET status = excluded.status WHERE orders.status <> 'cancelled'
      none: superseded
  with: {order: .order, status: .status}
`, "cancelled", 1},
		"neither": {`
handle:
  sql: INSERT INTO orders (id, status) VALUES (:order, :status) ON CONFLICT (id) DO UPDATE SET status = excluded.status
  with: {order: .order, status: .status}
`, "paid", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, orders+c.rules)
			deliver := func(file, id, status string, rev int) {
				q.Deliver(file, fmt.Sprintf(`{"id": %q, "order": "o", "status": %q, "rev": %d}`, id, status, rev))
				if s := q.Drain(0); !s.Balanced {
					t.Errorf("%+v", s)
				}
			}
			deliver("1.json", "created", "created", 1)
			deliver("2.json", "cancelled", "cancelled", 3)
			deliver("3.json", "paid", "paid", 2)
			deliver("4.json", "created", "created", 1) // a repeat
			if got := q.Strings("SELECT status FROM orders"); !slices.Equal(got, []string{c.end}) {
				t.Errorf("the order is %q, want %q", got, c.end)
			}
			if n := q.Int("SELECT COUNT(*) FROM semel_inbox WHERE CAST(id AS TEXT) = 'paid' AND verdict = 3"); n != c.superseded {
				t.Errorf("%d superseded, want %d", n, c.superseded)
			}
			if done := q.Files("done"); len(done) != 4 {
				t.Errorf("done/ holds %q, want all four acknowledged", done)
			}
		})
	}
}

// TestA7LostByDedup: the mark must not survive a failure, or the retry is
// dropped. The naive form, which marks first, is flagged.
func TestA7LostByDedup(t *testing.T) {
	t.Run("failed, then repeated", func(t *testing.T) {
		t.Parallel()
		q := rig.NewQueue(t, strings.Replace(waiting, "50ms, 200ms, 800ms", "100ms, 1h", 1)+"keep: 30d\n")
		q.Deliver("a.json", `{"id": "a", "account": "late"}`)
		q.Deliver("b.json", `{"id": "a", "account": "late"}`)
		if s := q.Drain(5, "--wait 1s"); s.Parked != 2 || s.Duplicates != 1 {
			t.Errorf("%+v, want it parked twice, its repeat known", s)
		}
		q.Exec("INSERT INTO accounts (name, balance) VALUES ('late', 0)")
		q.Exec("UPDATE semel_letter SET due = 0") // the hour has passed
		q.Deliver("c.json", `{"id": "a", "account": "late"}`)
		if s := q.Drain(0); s.Applied != 1 || s.Duplicates != 1 {
			t.Errorf("%+v, want the retry applied and the repeat not", s)
		}
		if n := q.Int("SELECT balance FROM accounts"); n != 1 {
			t.Errorf("balance %d, want 1", n)
		}
	})
	t.Run("killed at work", func(t *testing.T) {
		t.Parallel()
		k := kind{inbox: "table"}
		q := rig.NewQueue(t, k.pipeline())
		s := newSubject(t, q, k, 7, func(at string) rig.Command {
			return q.Semel("run --once --json --wait 5s", "SEMEL_FAULT="+at)
		})
		wantVerdict(t, ordeal(t, s, []fault.Point{fault.Opened, fault.Admitted, fault.Handled}), "")
	})
	t.Run("marked first", func(t *testing.T) {
		t.Parallel()
		wantVerdict(t, ordeal(t, naive(t, kind{inbox: "table"}, "mark-before-work"), []fault.Point{fault.Opened}), "lost: ")
	})
}

// TestA9MalformedDoesNotBlock: whatever cannot be read goes straight to the
// dead letters, at whatever place of the queue or the file it stands.
func TestA9MalformedDoesNotBlock(t *testing.T) {
	for _, lines := range []bool{false, true} {
		t.Run(fmt.Sprintf("lines %v", lines), func(t *testing.T) {
			t.Parallel()
			text := plain
			if lines {
				text += "files: lines\n"
			}
			q := rig.NewQueue(t, text)
			var bodies []string
			for i := range 100 {
				body := event(fmt.Sprint(i))
				if i%10 == 0 {
					body = fmt.Sprintf(`{"id": "%d`, i)
				}
				bodies = append(bodies, body)
			}
			if lines {
				q.Deliver("all.ndjson", strings.Join(bodies, "\n"))
			} else {
				for i, body := range bodies {
					q.Deliver(fmt.Sprintf("%03d.json", i), body)
				}
			}
			if s := q.Drain(3); s.Applied != 90 || s.Dead != 10 {
				t.Errorf("%+v, want 90 applied and 10 dead", s)
			}
			if n := q.Int("SELECT COUNT(*) FROM semel_letter WHERE class = 'format' AND reason = 'invalid' AND attempts = 0"); n != 10 {
				t.Errorf("%d letters, want 10 that were never handled", n)
			}
			if files := q.Files("error"); len(files) != 10 {
				t.Errorf("error/ holds %q, want ten", files)
			}
		})
	}
}
