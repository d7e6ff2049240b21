package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// recorder collects the texts of all statements of a store.
type recorder struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (r *recorder) rewrite(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[text] = true
	return text
}

// recorded opens a store whose statements are recorded.
func recorded(t *testing.T) (*sqlstore.Store, *sql.DB, *recorder) {
	t.Helper()
	name, err := dataSource(filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	r, d := &recorder{seen: map[string]bool{}}, sqlstore.SQLite()
	d.Rewrite = r.rewrite
	s, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: d, Driver: sqliteDriver{}, CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, db, r
}

// queries are all shapes of a listing.
func queries() map[string]store.Query {
	dead := []store.State{store.StateDead, store.StateEdited}
	return map[string]store.Query{
		"all": {}, "states": {States: dead}, "id": {ID: "a"}, "key": {Key: "k"}, "cause": {Cause: "c"}, "ref": {Ref: "a"},
		"class": {Class: store.System}, "reason": {Reason: "r"}, "type": {Type: "t"}, "bodies": {Bodies: true},
		"much": {States: dead, Cause: "c", Key: "k", Class: store.System}, "ref and more": {Ref: "a", States: dead, Cause: "c", ID: "a"},
	}
}

// everything asks a store for all that it can do with letters.
func everything(t *testing.T, s *sqlstore.Store) {
	t.Helper()
	ctx := t.Context()
	m := semel.Message{ID: "a", Key: "k", Type: "t", Body: []byte("1")}
	of := func(ref string, st store.State, number int64) store.Parking {
		return store.Parking{Letter: store.Letter{Ref: ref, Consumer: "c", Message: m, State: st, Number: number, Cause: store.Cause{ID: "c" + ref}}, Attempt: store.Attempt{N: 1}}
	}
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		if _, err := s.Park(ctx, tx, []store.Parking{of("a", store.StateDead, 0), of("b", store.StateHeld, 1), of("d", store.StateRetry, 0), of("e", store.StateApplied, 0)}, nil); err != nil {
			return err
		}
		if _, err := s.Park(ctx, tx, []store.Parking{of("e", store.StateDead, 0)}, nil); err != nil {
			return err
		}
		if _, err := s.Any(ctx, tx, "c"); err != nil {
			return err
		}
		if _, err := s.Find(ctx, tx, "c", []string{"a"}, []string{"a"}, nil); err != nil {
			return err
		}
		r := store.Revision{Ref: "a", Message: m, Fingerprint: store.Fingerprint{2}}
		other := store.Revision{Ref: "a", Message: m, Fingerprint: store.Fingerprint{3}}
		if err := s.Note(ctx, tx, "c", []string{"a"}, []store.Revision{r, other, r}); err != nil {
			return err
		}
		_, err := s.Move(ctx, tx, "c", []store.Move{
			{Ref: "a", Version: 1, To: store.StateDead, Attempt: store.Attempt{N: 2}, Cause: store.Cause{ID: "c2"}, By: "ann", Revised: &store.Revised{Message: m}},
			{Ref: "d", Version: 1, To: store.StateDiscarded},
		}, nil)
		return err
	})
	for _, q := range queries() {
		for _, after := range []store.Cursor{{}, {Created: time.Unix(1, 0), Ref: "a"}} {
			q.Consumer, q.After = "c", after
			if _, err := s.List(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Groups(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Revisions(ctx, "c", "a")
	if err == nil {
		_, _, err = s.Due(ctx, "c", 10, 1000)
	}
	if err == nil {
		_, err = s.Trace(ctx, "c", "a", "")
	}
	if err == nil {
		_, err = s.Status(ctx, "c", false)
	}
	if err == nil {
		_, err = s.Purge(ctx, store.Purge{Consumer: "c", Keep: 0})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// allowed are plans that sort or walk, and why that is right. The key is a part
// of the statement.
var allowed = map[string]string{
	"ORDER BY l.row":               "Find and held letters: as many rows as a batch asks for, locked or run in the order of writing",
	"GROUP BY l.cause, l.state":    "counting: with a term that no index has together with causes, groups are made in memory",
	"SELECT cause, class, reason":  "semel_cause: all causes of a consumer, a row for each group",
	"DELETE FROM semel_cause":      "semel_cause: after a purge, each cause is looked up in semel_letter_cause",
	"MIN(number) AS first FROM":    "the heads of held keys: the partial index has only letters in order",
	"SELECT state, COUNT(*)":       "counting: status counts all letters of a consumer, from an index alone",
	"FROM semel_letter_attempt":    "the attempts of one letter",
	"FROM semel_letter_revision r": "the revisions of one letter",
}

// TestLetterPlans: every statement about letters finds its rows by an index,
// and lists come out of it in order.
func TestLetterPlans(t *testing.T) {
	s, db, r := recorded(t)
	everything(t, s)
	used, asked := map[string]bool{}, 0
	for _, text := range slices.Sorted(maps.Keys(r.seen)) {
		if !strings.Contains(text, "semel_letter") && !strings.Contains(text, "semel_cause") || strings.HasPrefix(text, "CREATE") {
			continue
		}
		asked++
		plan := planOf(t, db, text)
		for _, index := range []string{"state", "id", "key", "cause", "due"} {
			if strings.Contains(plan, "INDEX semel_letter_"+index+" (") {
				used[index] = true
			}
		}
		if problem := judge(text, plan); problem != "" {
			t.Errorf("%s\n%s\n%s", problem, text, plan)
		}
	}
	if asked < 40 {
		t.Errorf("only %d statements about letters were seen", asked)
	}
	for _, index := range []string{"state", "id", "key", "cause", "due"} {
		if !used[index] {
			t.Errorf("no statement uses semel_letter_%s", index)
		}
	}
	for what, plan := range map[string]string{
		"a page of a state": "SELECT l.row FROM semel_letter l WHERE l.consumer = ? AND l.state = ? ORDER BY l.updated LIMIT ?",
		"a text":            "SELECT row FROM semel_letter WHERE error = ?",
		"two runs at once":  "SELECT l.row FROM semel_letter l WHERE l.consumer = ? AND l.state IN (?, ?) ORDER BY l.created, l.ref",
	} {
		if judge(plan, planOf(t, db, plan)) == "" {
			t.Errorf("%s: what has to be refused is not", what)
		}
	}
}

func planOf(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, "  "+detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// judge says what is wrong with a plan.
func judge(text, plan string) string {
	for part := range allowed {
		if strings.Contains(text, part) {
			return ""
		}
	}
	for line := range strings.Lines(plan) {
		line = strings.TrimSpace(line)
		switch {
		case line == "SCAN CONSTANT ROW": // a SELECT without FROM
		case strings.HasPrefix(line, "SCAN "):
			return "it walks through a table"
		case strings.HasPrefix(line, "USE TEMP B-TREE"):
			return "it sorts"
		}
	}
	return ""
}

// fill writes n dead letters of 20 causes and 1,000 keys, and a few edited ones.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error { _, err := s.Any(ctx, tx, "c"); return err })
	execute(t, s, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d - 1)
		INSERT INTO semel_letter (consumer, ref, id, key, type, source, time_s, time_ns, version_n, version_tie, version_set, header, body,
		fingerprint, origin, state, open, version, number, class, reason, conflict, attempts, seen, error, stack, cause, due, created,
		updated, failed, actor, note, proposed)
		SELECT (SELECT number FROM semel_consumer), CAST(printf('%%016x', i * 2654435761) AS BLOB), CAST('id' || i AS BLOB), CAST('key' || (i %% 1000) AS BLOB), x'', x'', 0, 0, 0, x'', 0, NULL,
		CAST(printf('{"i":%%d,"pad":"%%100s"}', i, '') AS BLOB), zeroblob(16), x'', 'dead', 1, 1, 0, 'system', 'exhausted', 0, 3, 0,
		printf('handle: id%%d: no connection %%100s', i, ''), '', CAST(printf('cause%%02d', i %% 20) AS BLOB), 0, 1000 + i, 1000 + i, 1000 + i, '', '', 0 FROM n`, n),
		`INSERT INTO semel_cause SELECT DISTINCT consumer, cause, class, reason, 'text' FROM semel_letter`,
		`UPDATE semel_letter SET state = 'edited' WHERE id IN (CAST('id7' AS BLOB), CAST('id77' AS BLOB), CAST('id777' AS BLOB))`,
		fmt.Sprintf("INSERT INTO semel_ledger SELECT number, 'opened', 0, %d, 0, 0 FROM semel_consumer", n))
}

// TestManyLetters compares the work of operators' questions with few and with
// many letters. What reads a page must not become slower with what is there;
// what counts may grow as much as what it counts.
func TestManyLetters(t *testing.T) {
	const few, many = 1_000, 100_000
	stores := map[int]*Store{}
	for _, n := range []int{few, many} {
		stores[n], _ = fresh(t)
		fill(t, stores[n], n)
	}
	dead := []store.State{store.StateDead, store.StateEdited, store.StateApproved}
	list := func(want int, q store.Query) func(*Store) error {
		return func(s *Store) error {
			q.Consumer = "c"
			ls, err := s.List(t.Context(), q)
			if err == nil && len(ls) != want {
				err = fmt.Errorf("%d letters, want %d", len(ls), want)
			}
			return err
		}
	}
	groups := func(q store.Query) func(*Store) error {
		return func(s *Store) error {
			q.Consumer = "c"
			gs, err := s.Groups(t.Context(), q)
			if err == nil && len(gs) < 20 {
				err = fmt.Errorf("%d groups", len(gs))
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		run func(*Store) error
		// most is how much longer it may take: 1 would be ideal for a page and
		// 100 for a count. A page that reads everything is at 100 and more.
		most float64
	}{
		"first page":         {list(500, store.Query{States: dead, Limit: 500}), 15},
		"a page in between":  {list(100, store.Query{States: dead, Limit: 100, After: store.Cursor{Created: time.UnixMilli(1000 + few/2), Ref: "x"}}), 15},
		"rare state":         {list(3, store.Query{States: []store.State{store.StateEdited}, Limit: 500}), 15},
		"one group":          {list(40, store.Query{States: dead, Cause: "cause07", Limit: 40}), 15},
		"one id":             {list(1, store.Query{ID: "id500"}), 15},
		"one key":            {list(1, store.Query{Key: "key500", Limit: 1}), 15},
		"one reference":      {list(1, store.Query{Ref: fmt.Sprintf("%016x", 500*2654435761), Bodies: true}), 15},
		"bodies":             {list(100, store.Query{States: dead, Limit: 100, Bodies: true}), 15},
		"groups":             {groups(store.Query{}), 1000},
		"groups of a class":  {groups(store.Query{Class: store.System}), 1000},
		"groups of a reason": {groups(store.Query{Reason: "exhausted"}), 2000},
	} {
		t.Run(name, func(t *testing.T) {
			ratio := float64(fastest(t, stores[many], c.run)) / float64(fastest(t, stores[few], c.run))
			t.Logf("%.1f times", ratio)
			if ratio > c.most {
				t.Errorf("with %d letters it takes %.1f times what it takes with %d, at most %.0f are right", many, ratio, few, c.most)
			}
		})
	}
	t.Run("bulk", func(t *testing.T) { bulk(t, stores[few], stores[many]) })
}

// fastest is the shortest of several runs: others use the machine as well.
func fastest(t *testing.T, s *Store, run func(*Store) error) time.Duration {
	t.Helper()
	least := time.Hour
	for range 7 {
		began := time.Now()
		if err := run(s); err != nil {
			t.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	return least
}

// bulk replays and discards 300 letters among few and among many.
func bulk(t *testing.T, few, many *Store) {
	took := map[*Store]time.Duration{}
	for _, s := range []*Store{few, many} {
		ls, err := s.List(t.Context(), store.Query{Consumer: "c", States: []store.State{store.StateDead}, Limit: 300})
		if err != nil {
			t.Fatal(err)
		}
		var targets []letter.Target
		for _, l := range ls {
			targets = append(targets, letter.Target{Ref: l.Ref, Version: l.Version})
		}
		d := letter.Desk[sqlstore.Tx]{Store: s}
		began := time.Now()
		replayed, err := d.Replay(t.Context(), "c", targets[:200], "ann", "")
		discarded, err2 := d.Discard(t.Context(), "c", targets[200:], "ann", "no use")
		took[s] = time.Since(began)
		if err != nil || err2 != nil || len(replayed) != 200 || len(discarded) != 100 {
			t.Fatal(err, err2)
		}
		for _, done := range append(replayed, discarded...) {
			if done.Err != nil {
				t.Fatal(done)
			}
		}
	}
	ratio := float64(took[many]) / float64(took[few])
	t.Logf("%.1f times", ratio)
	if ratio > 20 {
		t.Errorf("300 of 100,000 letters take %v, of 1,000 %v", took[many], took[few])
	}
}
