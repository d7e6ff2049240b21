package mysqlstore_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/sqltest"
)

// pipeline is a queue and a pipeline file whose store is a new database.
func pipeline(t *testing.T, text string) (q *rig.Queue, db *sql.DB, url string) {
	t.Helper()
	url = kind.Database(t)
	q = sqltest.Queue(t, text, url)
	return q, pool(t, url), url
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
	if n := sqltest.Count(t, db, "SELECT COUNT(*) FROM semel_letter WHERE state = 'dead' AND class = 'business'"); n != 2 {
		t.Errorf("%d of the 2 that do not fit are dead letters", n)
	}
}

func TestCrashPoints(t *testing.T) {
	q, db, _ := pipeline(t, counted)
	sqltest.CrashPoints(t, q, db)
}

// TestFlights runs the example in MySQL's words.
func TestFlights(t *testing.T) {
	q, db, url := pipeline(t, sqltest.Example(t, "flights/flights.mysql.yaml"))
	sqltest.Flights(t, q, db, url)
}
