package rig

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // the driver of the databases that are read
)

// Queue is a pipeline in a directory of its own: the file that describes it,
// the root of its directory queue, and its database.
type Queue struct {
	t testing.TB
	// Dir holds everything, Root is the source, DB the database and File the
	// pipeline file.
	Dir, Root, DB, File string
	// FaultLog, if not empty, collects the points that its processes reach.
	FaultLog string
}

// NewQueue makes one. In the pipeline file, ROOT and DB stand for the paths of
// source and store.
func NewQueue(t testing.TB, pipeline string) *Queue {
	t.Helper()
	dir := t.TempDir()
	q := &Queue{t: t, Dir: dir, Root: filepath.Join(dir, "q"), DB: filepath.Join(dir, "semel.db"), File: filepath.Join(dir, "pipeline.yaml")}
	if err := os.MkdirAll(q.stage("inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	q.Describe(pipeline)
	return q
}

// With is the same queue for another test, usually one of its subtests.
func (q *Queue) With(t testing.TB) *Queue {
	c := *q
	c.t = t
	return &c
}

// Describe writes the pipeline file anew.
func (q *Queue) Describe(pipeline string) {
	q.t.Helper()
	text := strings.NewReplacer("ROOT", q.Root, "DB", q.DB).Replace(pipeline)
	if err := os.WriteFile(q.File, []byte(text), 0o644); err != nil {
		q.t.Fatal(err)
	}
}

func (q *Queue) stage(name string) string { return filepath.Join(q.Root, name) }

// Path is a path below the root.
func (q *Queue) Path(elem ...string) string {
	return filepath.Join(append([]string{q.Root}, elem...)...)
}

// Semel is a call of the binary about this pipeline: "run --once" becomes
// semel run FILE --once. Words are separated by blanks.
func (q *Queue) Semel(words string, env ...string) Command {
	q.t.Helper()
	args := strings.Fields(words)
	at := 1
	if slices.Contains([]string{"letters", "schema", "effects"}, args[0]) {
		at = 2
	}
	args = slices.Insert(args, at, q.File)
	if q.FaultLog != "" {
		env = append(env, "SEMEL_FAULT_LOG="+q.FaultLog)
	}
	return Command{Path: Program(q.t, "cmd/semel"), Args: args, Env: env}
}

// Run calls the binary and waits for its end.
func (q *Queue) Run(words string, env ...string) Exit {
	q.t.Helper()
	return Run(q.t, q.Semel(words, env...))
}

// Start calls the binary and does not wait.
func (q *Queue) Start(words string, env ...string) *Process {
	q.t.Helper()
	return Start(q.t, q.Semel(words, env...))
}

// Drain runs the pipeline until nothing is left, with --json, and fails the
// test if it does not end with the code. It returns the summary.
func (q *Queue) Drain(code int, words ...string) Summary {
	q.t.Helper()
	e := q.Run("run --once --json " + strings.Join(words, " "))
	if e.Code != code {
		q.t.Fatalf("run --once: want exit code %d: %v", code, e)
	}
	return e.Summary(q.t)
}

// Deliver puts a file into the inbox, complete before it can be seen.
func (q *Queue) Deliver(name, body string) {
	q.t.Helper()
	if err := deliver(q.stage("inbox"), name, body); err != nil {
		q.t.Fatal(err)
	}
}

func deliver(inbox, name, body string) error {
	tmp, err := os.CreateTemp(inbox, ".delivering-")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(body)
	err = errors.Join(err, tmp.Close(), os.Chmod(tmp.Name(), 0o644))
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(inbox, name))
}

// Files returns the names in a stage, sorted, without those that begin with a
// dot and without sidecars, be they letters or SHA-256 checksums. In processing they are "worker/claim/name".
func (q *Queue) Files(stage string) []string {
	q.t.Helper()
	files, err := filesBelow(q.stage(stage))
	if err != nil {
		q.t.Fatal(err)
	}
	return files
}

func filesBelow(root string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() || e.Name()[0] == '.' || strings.HasSuffix(e.Name(), ".semel.json") || strings.HasSuffix(e.Name(), ".sha256"):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, rel)
		return err
	})
	sort.Strings(files)
	return files, err
}

// Read returns the content of a file below the root.
func (q *Queue) Read(elem ...string) string {
	q.t.Helper()
	b, err := os.ReadFile(q.Path(elem...))
	if err != nil {
		q.t.Fatal(err)
	}
	return string(b)
}

// Exec changes the database from outside, as another program of the user does.
func (q *Queue) Exec(statement string, args ...any) {
	q.t.Helper()
	db := q.open()
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		q.t.Fatalf("%s: %v", statement, err)
	}
}

// Int asks the database for one number.
func (q *Queue) Int(query string, args ...any) int64 {
	q.t.Helper()
	db := q.open()
	defer db.Close()
	var n int64
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		q.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Free reports whether nobody has the database's write lock: a process that was
// stopped may have been in a transaction of its own at that moment.
func (q *Queue) Free() bool {
	q.t.Helper()
	db := q.open()
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA busy_timeout = 500"); err != nil {
		q.t.Fatal(err)
	}
	_, err := db.Exec("BEGIN IMMEDIATE; ROLLBACK")
	return err == nil
}

// Strings asks the database for one column.
func (q *Queue) Strings(query string, args ...any) []string {
	q.t.Helper()
	db := q.open()
	defer db.Close()
	var all []string
	if err := rows(db, func(scan func(...any) error) error {
		var s string
		err := scan(&s)
		all = append(all, s)
		return err
	}, query, args...); err != nil {
		q.t.Fatal(err)
	}
	return all
}

func (q *Queue) open() *sql.DB {
	q.t.Helper()
	db, err := OpenDB(q.DB)
	if err != nil {
		q.t.Fatal(err)
	}
	return db
}

// OpenDB opens a database beside its users.
func OpenDB(path string) (*sql.DB, error) {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	db, err := sql.Open("sqlite", "file:"+escaped+"?_pragma=busy_timeout(30000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func rows(db *sql.DB, each func(scan func(...any) error) error, query string, args ...any) error {
	r, err := db.Query(query, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer r.Close()
	for r.Next() {
		if err := each(r.Scan); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return r.Err()
}

// Interrupt sends SIGINT, waits, and returns how the process ended.
func (p *Process) Interrupt() Exit {
	p.t.Helper()
	p.Signal(syscall.SIGINT)
	return p.Wait()
}
