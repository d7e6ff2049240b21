package sqlstep

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
)

var names = []string{"id", "status", "n"}

func TestParametersAreFound(t *testing.T) {
	pg := Postgres()
	my := Dialect{Name: "mysql", Backslash: true}
	for _, tc := range []struct {
		d          Dialect
		text, want string
		args       []int
	}{
		{SQLite(), "INSERT INTO t VALUES (:id, :n, :id)", "INSERT INTO t VALUES (?, ?, ?)", []int{0, 2, 0}},
		{pg, "INSERT INTO t VALUES (:id, :n, :id)", "INSERT INTO t VALUES ($1, $2, $3)", []int{0, 2, 0}},
		{SQLite(), "UPDATE t SET a=':id', b='it''s :id', c=:id;", "UPDATE t SET a=':id', b='it''s :id', c=?", []int{0}},
		{SQLite(), `UPDATE t SET ":id"=1, "a"":id"=2, [:id]=3, ` + "`:id`" + `=:id ; ; `, `UPDATE t SET ":id"=1, "a"":id"=2, [:id]=3, ` + "`:id`" + `=?`, []int{0}},
		{SQLite(), "UPDATE t SET a=1 -- :nope\n, b=:id /* :nope */", "UPDATE t SET a=1 -- :nope\n, b=? /* :nope */", []int{0}},
		{SQLite(), "DELETE FROM t WHERE a=:id/* /* :nope */", "DELETE FROM t WHERE a=?/* /* :nope */", []int{0}},
		{pg, "DELETE FROM t WHERE a=:id/* /* :nope */ :nope */", "DELETE FROM t WHERE a=$1/* /* :nope */ :nope */", []int{0}},
		{pg, "UPDATE t SET a=:id::text, b=$x$ :nope $x$, c=$$ :nope $$, d=a[1]", "UPDATE t SET a=$1::text, b=$x$ :nope $x$, c=$$ :nope $$, d=a[1]", []int{0}},
		{pg, "UPDATE t SET a=b ? 'x' WHERE c=:id", "UPDATE t SET a=b ? 'x' WHERE c=$1", []int{0}},
		{pg, "UPDATE t SET a=b WHERE c @> :id::jsonb", "UPDATE t SET a=b WHERE c @> $1::jsonb", []int{0}},
		{pg, `UPDATE t SET a=E'\' :nope', b=e'\\', c=type'\', d=:id, e=:n`, `UPDATE t SET a=E'\' :nope', b=e'\\', c=type'\', d=$1, e=$2`, []int{0, 2}},
		{my, `UPDATE t SET a='\' :nope', b=:id`, `UPDATE t SET a='\' :nope', b=?`, []int{0}},
		{SQLite(), `UPDATE t SET a='\', b=:id, c=':nope'`, `UPDATE t SET a='\', b=?, c=':nope'`, []int{0}},
		{my, "UPDATE t SET a=@@x", "", nil},
		{SQLite(), "WITH x AS (SELECT :id AS a) INSERT INTO t SELECT a FROM x", "WITH x AS (SELECT ? AS a) INSERT INTO t SELECT a FROM x", []int{0}},
		{SQLite(), "SELECT :id", "SELECT ?", []int{0}},
	} {
		s, err := Compile(tc.text, Ignore, names, make([]bool, len(names)), tc.d)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%s: compiled to %q", tc.text, s.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if s.text != tc.want || !slices.Equal(s.args, tc.args) {
			t.Errorf("%s:\n got %q %v\nwant %q %v", tc.text, s.text, s.args, tc.want, tc.args)
		}
	}
}

func TestRefusedSteps(t *testing.T) {
	for _, tc := range []struct {
		text string
		none None
		want string
		at   int
	}{
		{"", Ignore, "empty", 0},
		{" -- nothing\n ;", Ignore, "empty", 0},
		{"COMMIT", Ignore, "COMMIT is refused: the transaction belongs to the pipeline", 0},
		{" /* x */ commit;", Ignore, "COMMIT is refused", 9},
		{"BEGIN IMMEDIATE", Ignore, "BEGIN is refused", 0},
		{"END", Ignore, "END is refused", 0},
		{"ROLLBACK TO x", Ignore, "ROLLBACK is refused", 0},
		{"SAVEPOINT x", Ignore, "SAVEPOINT is refused", 0},
		{"RELEASE x", Ignore, "RELEASE is refused", 0},
		{"START TRANSACTION", Ignore, "START is refused", 0},
		{"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", Ignore, "SET is refused", 0},
		{"PRAGMA synchronous=OFF", Ignore, "PRAGMA is refused: it reaches beyond", 0},
		{"ATTACH 'x' AS y", Ignore, "ATTACH is refused", 0},
		{"DETACH y", Ignore, "DETACH is refused", 0},
		{"VACUUM", Ignore, "VACUUM is refused", 0},
		{"CREATE TABLE t (a)", Ignore, "move it to setup", 0},
		{"ALTER TABLE t ADD b", Ignore, "move it to setup", 0},
		{"drop table t", Ignore, "move it to setup", 0},
		{"TRUNCATE t", Ignore, "move it to setup", 0},
		{"REINDEX", Ignore, "move it to setup", 0},
		{"CALL p()", Ignore, "CALL is refused: a step is", 0},
		{"EXPLAIN SELECT 1", Ignore, "EXPLAIN is refused: a step is", 0},
		{"(SELECT 1)", Ignore, "a step is", 0},
		{"WITH x AS (DELETE FROM t RETURNING a) SELECT 1", Fail, "none has no meaning", 0},
		{"WITH x AS (SELECT 1)", Ignore, "WITH is refused", 0},
		{"SELECT 1", Duplicate, "none has no meaning", 0},
		{"INSERT INTO t VALUES (1); COMMIT", Ignore, "a second statement", 26},
		{"INSERT INTO t VALUES (:idd)", Ignore, "the parameter :idd is not defined: handle.with has id, n, status", 22},
		{"INSERT INTO t VALUES (?)", Ignore, "written :name", 22},
		{"INSERT INTO t VALUES (@a)", Ignore, "written :name", 22},
		{"INSERT INTO t VALUES ($1)", Ignore, "written :name", 22},
		{"INSERT INTO t VALUES ('a)", Ignore, "the ' that starts here has no end", 22},
		{"INSERT INTO t /* VALUES (1)", Ignore, "comment that starts here has no end", 14},
		{"INSERT INTO t VALUES (1", Ignore, "the ( that starts here has no end", 21},
		{"INSERT INTO t VALUES 1)", Ignore, "this ) closes nothing", 22},
		{"INSERT INTO [t VALUES (1)", Ignore, "the [ that starts here has no end", 12},
	} {
		_, err := Compile(tc.text, tc.none, names, make([]bool, len(names)), SQLite())
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, tc.want) || e.At != tc.at {
			t.Errorf("%q: error %#v, want %q at %d", tc.text, err, tc.want, tc.at)
		}
	}
}

func TestUsedNames(t *testing.T) {
	used := make([]bool, len(names))
	if _, err := Compile("INSERT INTO t VALUES (:n)", Ignore, names, used, SQLite()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(used, []bool{false, false, true}) {
		t.Errorf("used: %v", used)
	}
}

func TestSetup(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"CREATE TABLE IF NOT EXISTS t (a); CREATE INDEX IF NOT EXISTS i ON t (a);", ""},
		{"CREATE TRIGGER IF NOT EXISTS g AFTER INSERT ON t BEGIN UPDATE t SET a = CASE WHEN 1 THEN 2 ELSE 3 END; DELETE FROM t; END; CREATE TABLE IF NOT EXISTS u (a)", ""},
		{"INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", ""},
		{"CREATE OR REPLACE VIEW v AS SELECT 1", ""},
		{"CREATE TABLE t (a)", "IF NOT EXISTS"},
		{"CREATE TABLE IF NOT EXISTS t (a); CREATE TABLE u (a)", "IF NOT EXISTS"},
		{"CREATE TABLE IF NOT EXISTS t (a); COMMIT", "COMMIT is refused"},
		{"DROP TABLE t", "DROP is refused"},
		{"PRAGMA journal_mode=DELETE", "PRAGMA is refused"},
		{"INSERT INTO t VALUES (:id)", "no parameter :id"},
		{"-- nothing", "empty"},
		{"CREATE TABLE IF NOT EXISTS t (a", "has no end: within [a, b]"},
	} {
		err := CheckSetup(tc.text, SQLite())
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want %q", tc.text, err, tc.want)
		}
	}
}

type fakeTx struct {
	affected []int64
	ran      [][]any
	err      error
}

func (f *fakeTx) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	f.ran = append(f.ran, append([]any{query}, args...))
	return result(f.affected[len(f.ran)-1]), f.err
}

type result int64

func (r result) LastInsertId() (int64, error) { return 0, nil }
func (r result) RowsAffected() (int64, error) { return int64(r), nil }

type values []any

func (v values) Values(_ *semel.Message, out []any) ([]any, error) { return append(out, v...), nil }

func TestNoRow(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		none     None
		affected []int64
		err      error
		want     error
		class    semel.Class
		steps    int
	}{
		{Ignore, []int64{0, 1}, nil, nil, 0, 2},
		{Duplicate, []int64{1, 1}, nil, nil, 0, 2},
		{Duplicate, []int64{0}, nil, semel.ErrDuplicate, 0, 1},
		{Superseded, []int64{0}, nil, semel.ErrSuperseded, 0, 1},
		{Stale, []int64{0}, nil, semel.ErrStale, 0, 1},
		{Fail, []int64{0}, nil, nil, semel.ClassPermanent, 1},
		{Superseded, []int64{0}, boom, boom, 0, 1},
	} {
		used := make([]bool, len(names))
		first, err := Compile("UPDATE t SET a = :n WHERE id = :id", tc.none, names, used, SQLite())
		if err != nil {
			t.Fatal(err)
		}
		second, err := Compile("INSERT INTO log VALUES (:status)", Ignore, names, used, SQLite())
		if err != nil {
			t.Fatal(err)
		}
		tx := &fakeTx{affected: tc.affected, err: tc.err}
		h := Handler{Steps: []*Step{first, second}, Params: values{"a", "paid", int64(7)}}
		err = h.Handle(context.Background(), tx, semel.Message{})
		if tc.want != nil && !errors.Is(err, tc.want) || tc.want == nil && tc.class == 0 && err != nil {
			t.Errorf("%s: error %v, want %v", tc.none, err, tc.want)
		}
		if c, ok := semel.ClassOf(err); tc.class != 0 && (!ok || c != tc.class || !strings.Contains(err.Error(), "handle.sql, step 1: ")) {
			t.Errorf("%s: %v is of class %v", tc.none, err, c)
		}
		want := [][]any{{"UPDATE t SET a = ? WHERE id = ?", int64(7), "a"}, {"INSERT INTO log VALUES (?)", "paid"}}[:tc.steps]
		if !reflect.DeepEqual(tx.ran, want) {
			t.Errorf("%s: ran %v, want %v", tc.none, tx.ran, want)
		}
	}
}

func FuzzTokenize(f *testing.F) {
	for _, s := range []string{"INSERT INTO t VALUES (:id, 'x''', $a$ b $a$)", "WITH x AS (SELECT 1) UPDATE t SET a=[b:c]::x -- d", "/* a /* b */ c */ :n := :id"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range []Dialect{SQLite(), {Numbered: true, Nested: true}, {Backslash: true}} {
			tokens, err := tokenize(s, d)
			if err != nil {
				continue
			}
			end := 0
			for _, tok := range tokens {
				if tok.at < end || tok.end <= tok.at || tok.end > len(s) {
					t.Fatalf("%q: token %+v after %d", s, tok, end)
				}
				if tok.kind == param && s[tok.at:tok.end] != ":"+tok.text {
					t.Fatalf("%q: parameter %+v", s, tok)
				}
				end = tok.end
			}
			// What is taken as a step has one statement, and never one that
			// begins with a word that could end the transaction.
			if step, err := Compile(s, Ignore, names, make([]bool, 3), d); err == nil {
				verb := tokens[0].text
				if slices.Contains(controls, verb) || slices.Contains(shapes, verb) || slices.Contains(settings, verb) {
					t.Fatalf("%q taken as %q", s, step.text)
				}
			}
		}
	})
}
