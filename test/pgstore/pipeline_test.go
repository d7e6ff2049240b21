package pgstore_test

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
	url = database(t)
	q = sqltest.Queue(t, text, url)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return q, db, url
}

const typed = `
name: typed
source: directory:ROOT
store: STORE
setup: |
  CREATE TABLE IF NOT EXISTS typed (
    id text PRIMARY KEY, n bigint, small int, x double precision, d numeric(30, 6), yes boolean, j jsonb, at timestamptz, note text, raw bytea
  )
message:
  id: .id
inbox: table
handle:
  sql:
    - exec: |
        INSERT INTO typed VALUES (:id, :n, :n, :x, :d, :yes, :j, :at, :n, :raw) ON CONFLICT (id) DO NOTHING
      none: duplicate
    - exec: UPDATE typed SET note = note || '/' || :n::text WHERE id = :id AND (j IS NULL OR j @> '{}' OR j @> '[]')
  with: {id: .id, n: .n, x: .x, d: .d, yes: .yes, j: .j, at: .at, raw: $body}
horizon: 1h
`

// TestParameters: PostgreSQL has a type for each parameter, JSON has few. What
// fits arrives as it is, what does not is a dead letter.
func TestParameters(t *testing.T) {
	q, db, _ := pipeline(t, typed)
	q.Deliver("a.json", `{"id":"a","n":7,"x":1.5,"d":12345678901234567890.123456,"yes":true,"j":{"k":[1,null]},"at":"2026-02-03T04:05:06Z"}`)
	q.Deliver("b.json", `{"id":"b","n":null,"x":2,"d":"0.1","yes":false,"j":[],"at":null}`)
	q.Deliver("c.json", `{"id":7,"n":"8","x":-1e300,"d":1,"yes":null,"j":null,"at":"2026-02-03T04:05:06+02:00"}`)
	q.Deliver("d.json", `{"id":"d","n":1.5,"x":1,"d":1,"yes":true}`)
	q.Deliver("e.json", `{"id":"e","n":99999999999,"x":1,"d":1,"yes":true}`)
	q.Deliver("f.json", `{"id":"f\u0000","n":1,"x":1,"d":1,"yes":true}`)
	if e := q.Run("run --once --json"); e.Code != 3 {
		t.Fatalf("exit code %d\n%s", e.Code, e.Stderr)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT concat_ws('|', id, coalesce(n::text, 'NULL'), small, x, d, coalesce(yes::text, 'NULL'),
		coalesce(j::text, 'NULL'), coalesce((at AT TIME ZONE 'UTC')::text, 'NULL'), coalesce(note, 'NULL'), octet_length(raw) > 20) FROM typed ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var have []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		have = append(have, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`7|8|8|-1e+300|1.000000|NULL|NULL|2026-02-03 02:05:06|8/8|t`,
		`a|7|7|1.5|12345678901234567890.123456|true|{"k": [1, null]}|2026-02-03 04:05:06|7/7|t`,
		`b|NULL|2|0.100000|false|[]|NULL|NULL|t`,
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if n := sqltest.Count(t, db, "SELECT count(*) FROM semel_letter WHERE state = 'dead' AND class = 'business'"); n != 3 {
		t.Errorf("%d of the 3 that do not fit are dead letters", n)
	}
}

// TestVerbs: what looks at a store works, and no output shows the password.
func TestVerbs(t *testing.T) {
	q, _, url := pipeline(t, typed)
	q.Deliver("d.json", `{"id":"d","n":1.5,"x":1,"d":1,"yes":true}`)
	password := between(url, ":", "@")
	for _, c := range []struct {
		words string
		code  int
		says  string
	}{
		{"run --check", 0, "postgres://"},
		{"schema check", 3, "statements pending"},
		{"schema print", 0, "CREATE TABLE semel_inbox"},
		{"schema apply", 0, ""},
		{"run --once", 3, ""},
		{"schema check", 0, "up to date"},
		{"status", 3, "dead"},
		{"letters list", 0, "business"},
		{"explain d", 0, "dead"},
	} {
		words := strings.Fields(c.words)
		e := q.Run(c.words)
		if words[0] == "explain" {
			e = rig.Run(t, rig.Command{Path: rig.Program(t, "cmd/semel"), Args: []string{"explain", q.File, "d"}})
		}
		if e.Code != c.code || !strings.Contains(e.Stdout+e.Stderr, c.says) {
			t.Errorf("semel %s: exit code %d, want %d and %q:\n%s%s", c.words, e.Code, c.code, c.says, e.Stdout, e.Stderr)
		}
		if password != "" && strings.Contains(e.Stdout+e.Stderr, password) {
			t.Errorf("semel %s shows the password", c.words)
		}
	}
}

// between cuts the password out of an address.
func between(address, from, to string) string {
	_, rest, _ := strings.Cut(address, "://")
	user, _, ok := strings.Cut(rest, to)
	_, password, has := strings.Cut(user, from)
	if !ok || !has {
		return ""
	}
	return password
}

const counted = `
name: counted
source: directory:ROOT
store: STORE
setup: CREATE TABLE IF NOT EXISTS effects (id text NOT NULL, n bigint NOT NULL)
message: {id: .id, key: .key}
inbox: table
handle:
  sql: INSERT INTO effects VALUES (:id, :n)
  with: {id: .id, n: .n}
horizon: 1h
`

func TestCrashPoints(t *testing.T) {
	q, db, _ := pipeline(t, counted)
	sqltest.CrashPoints(t, q, db)
}

// TestFlights runs the example on PostgreSQL.
func TestFlights(t *testing.T) {
	q, db, url := pipeline(t, sqltest.Example(t, "flights/flights.yaml"))
	sqltest.Flights(t, q, db, url)
}
