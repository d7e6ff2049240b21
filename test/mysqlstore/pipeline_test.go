package mysqlstore_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// pipeline is a queue and a pipeline file whose store is a new database.
func pipeline(t *testing.T, text string) (q *rig.Queue, db *sql.DB, url string) {
	t.Helper()
	url = kind.Database(t)
	q = rig.NewQueue(t, strings.ReplaceAll(text, "STORE", "'"+url+"'"))
	return q, pool(t, url), url
}

func count(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const counted = `
name: counted
source: directory:ROOT
store: STORE
setup: |
  CREATE TABLE IF NOT EXISTS effects (id VARCHAR(64) NOT NULL, n BIGINT NOT NULL, note TEXT); -- not unique
  CREATE TABLE IF NOT EXISTS strict (id VARBINARY(255) PRIMARY KEY, at DATETIME(6), j JSON, d DECIMAL(30, 6))
message: {id: .id, key: .key}
inbox: table
handle:
  sql:
    - exec: INSERT INTO effects VALUES (:id, :n, :note)
    - exec: INSERT INTO strict VALUES (:id, :at, :j, :d) ON DUPLICATE KEY UPDATE d = VALUES(d)
  with: {id: .id, n: .n, note: .note, at: .at, j: .j, d: .d}
horizon: 1h
`

// TestVerbs: what looks at a store works, what does not fit is a dead letter,
// and no output shows the password.
func TestVerbs(t *testing.T) {
	q, db, url := pipeline(t, counted)
	q.Deliver("a.json", `{"id":"a","key":"k","n":1,"note":"it's \"quoted\" 🙂 \\ `+"`x`"+`","at":"2026-02-03 04:05:06.5","j":{"k":[1,null]},"d":12345678901234567890.123456}`)
	q.Deliver("b.json", `{"id":"b","key":"k","n":"many"}`)
	q.Deliver("c.json", `{"id":"c","key":"k","n":99999999999999999999}`)
	password := strings.SplitN(strings.SplitN(url, "@", 2)[0], ":", 3)[2]
	for _, c := range []struct {
		words string
		code  int
		says  string
	}{
		{"run --check", 0, "mysql://"},
		{"schema check", 3, "statements pending"},
		{"schema print", 0, "CREATE TABLE IF NOT EXISTS semel_inbox"},
		{"schema apply", 0, ""},
		{"run --check", 0, ""},
		{"run --once", 3, ""},
		{"schema check", 0, "up to date"},
		{"status", 3, "dead"},
		{"letters list", 0, "business"},
	} {
		e := q.Run(c.words)
		if e.Code != c.code || !strings.Contains(e.Stdout+e.Stderr, c.says) {
			t.Errorf("semel %s: exit code %d, want %d and %q:\n%s%s", c.words, e.Code, c.code, c.says, e.Stdout, e.Stderr)
		}
		if strings.Contains(e.Stdout+e.Stderr, password) {
			t.Errorf("semel %s shows the password", c.words)
		}
	}
	var note, at, j, d string
	if err := db.QueryRow("SELECT note, CAST(at AS CHAR), CAST(j AS CHAR), CAST(d AS CHAR) FROM effects JOIN strict ON strict.id = effects.id").Scan(&note, &at, &j, &d); err != nil {
		t.Fatal(err)
	}
	if note != "it's \"quoted\" 🙂 \\ `x`" || at != "2026-02-03 04:05:06.500000" || strings.ReplaceAll(j, " ", "") != `{"k":[1,null]}` || d != "12345678901234567890.123456" {
		t.Errorf("stored: %q %q %q %q", note, at, j, d)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM semel_letter WHERE state = 'dead' AND class = 'business'"); n != 2 {
		t.Errorf("%d of the 2 that do not fit are dead letters", n)
	}
}

// TestCrashPoints kills the worker at every point of a batch, twice, starts it
// again, and finds nothing lost and nothing done twice.
func TestCrashPoints(t *testing.T) {
	q, db, _ := pipeline(t, counted)
	points := []fault.Point{fault.Received, fault.Decoded, fault.Opened, fault.Admitted, fault.Handled, fault.Committed, fault.Settling}
	n := 0
	for _, p := range points {
		for hit := 1; hit <= 2; hit++ {
			for range 5 {
				n++
				body := fmt.Sprintf(`{"id":"%d","key":"%d","n":1}`, n, n%3)
				q.Deliver(fmt.Sprintf("%d.json", n), body)
				q.Deliver(fmt.Sprintf("%d-again.json", n), body)
			}
			e := q.Run("run --once --json", fmt.Sprintf("SEMEL_FAULT=%s:%d", p, hit))
			if e.Signal != syscall.SIGKILL && e.Code != 0 {
				t.Fatalf("%s:%d: exit code %d, signal %v\n%s", p, hit, e.Code, e.Signal, e.Stderr)
			}
			if hit == 1 && e.Signal != syscall.SIGKILL {
				t.Errorf("%s was never reached", p)
			}
			if twice := count(t, db, "SELECT COUNT(*) FROM (SELECT id FROM effects GROUP BY id HAVING COUNT(*) > 1) x"); twice > 0 {
				t.Fatalf("after a death at %s:%d %d effects happened twice", p, hit, twice)
			}
		}
	}
	if e := q.Run("run --once --json --wait 5s"); e.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", e.Code, e.Stdout, e.Stderr)
	}
	if have, ids := count(t, db, "SELECT COUNT(*) FROM effects"), count(t, db, "SELECT COUNT(DISTINCT id) FROM effects"); have != int64(n) || ids != int64(n) {
		t.Errorf("%d effects of %d ids, want %d", have, ids, n)
	}
	if rows := count(t, db, "SELECT COUNT(*) FROM semel_inbox"); rows != int64(n) {
		t.Errorf("%d inbox rows, want %d", rows, n)
	}
}

// TestFlights runs the example in MySQL's words, with two workers at once.
func TestFlights(t *testing.T) {
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "examples/flights/flights.mysql.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	q, db, url := pipeline(t, string(b))
	if e := rig.Run(t, rig.Command{Path: rig.Program(t, "examples/flights/layout"), Args: []string{"-root", q.Root}, Dir: root}); e.Code != 0 {
		t.Fatal(e.Stderr)
	}
	var workers []*rig.Process
	for range 2 {
		c := q.Semel("run --once --json")
		c.Args = append(c.Args, "--store", url, "--source", "directory:"+q.Root)
		workers = append(workers, rig.Start(t, c))
	}
	for _, w := range workers {
		if e := w.Wait(); e.Code != 0 {
			t.Errorf("exit code %d\n%s%s", e.Code, e.Stdout, e.Stderr)
		}
	}
	if n, last := count(t, db, "SELECT COUNT(*) FROM flights"), count(t, db, "SELECT SUM(n) FROM semel_ledger WHERE account IN ('applied', 'superseded')"); n != 6654 || last != 19888 {
		t.Errorf("%d flights from %d events, want 6654 from 19888", n, last)
	}
}
