package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// TestSetUpThatCannotWork: whatever is wrong with the set-up is refused before
// a message is taken, with what is wrong, where, and what to do.
func TestSetUpThatCannotWork(t *testing.T) {
	replace := func(old, new string) func(*testing.T, *rig.Queue) {
		return func(t *testing.T, q *rig.Queue) {
			if !strings.Contains(plain, old) {
				t.Fatalf("%q is not there", old)
			}
			q.Describe(strings.Replace(plain, old, new, 1))
		}
	}
	write := func(path, body string) {
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			panic(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, q *rig.Queue)
		say     []string
		code    int
	}{
		"COMMIT in a step": {replace("- UPDATE counter SET n = n + 1", "- COMMIT"),
			[]string{"pipeline.yaml:12:7", "COMMIT is refused", "remove it"}, 1},
		"COMMIT behind a statement": {replace("SET n = n + 1", "SET n = n + 1; COMMIT"),
			[]string{"pipeline.yaml:12:", "second statement"}, 1},
		"table in a step": {replace("- UPDATE counter SET n = n + 1", "- DROP TABLE counter"),
			[]string{"pipeline.yaml:12:7", "DROP is refused"}, 1},
		"source is missing": {replace("directory:ROOT", "directory:ROOT/nowhere"),
			[]string{"nowhere", "does not exist", "create it"}, 1},
		"source is the inbox": {replace("directory:ROOT", "directory:ROOT/inbox"),
			[]string{"inbox", "parent"}, 1},
		"source is a file": {func(t *testing.T, q *rig.Queue) {
			write(filepath.Join(q.Dir, "file"), "")
			replace("directory:ROOT", "directory:ROOT/../file")(t, q)
		}, []string{"not a directory"}, 1},
		"store is a directory": {func(_ *testing.T, q *rig.Queue) { os.Mkdir(q.DB, 0o755) },
			[]string{"semel.db", "is a directory", "name a file"}, 1},
		"store is something else": {func(_ *testing.T, q *rig.Queue) { write(q.DB, strings.Repeat("not a database ", 100)) },
			[]string{"semel.db", "not a SQLite database"}, 1},
		"directory of the store is missing": {replace("sqlite:DB", "sqlite:DB/deeper/x.db"),
			[]string{"does not exist", "create it"}, 1},
		"unknown scheme": {replace("directory:ROOT", "kafka://localhost/x"),
			[]string{"pipeline.yaml:3:9", "kafka", "directory"}, 1},
		"unknown key": {replace("horizon: 7d", "horizont: 7d"),
			[]string{"pipeline.yaml:15:1", "horizont", "horizon"}, 1},
		"handler that is to come": {replace("handle:\n  sql:", "handle:\n  http: x\n  sql:"),
			[]string{"pipeline.yaml:11:", "http"}, 1},
		"unfit strategy": {replace("horizon: 7d", "inbox: position"),
			[]string{"position", "table"}, 1},
		"order without owners": {replace("horizon: 7d", "horizon: 7d\norder: key"),
			[]string{"order", "exclusive"}, 1},
		"unknown parameter": {replace("VALUES (:id)", "VALUES (:idd)"),
			[]string{"pipeline.yaml:13:", ":idd", "id"}, 1},
		"not jq": {replace("message: {id: .id}", "message: {id: '.id |'}"),
			[]string{"pipeline.yaml:9:", "message.id"}, 1},
		"not YAML": {replace("name: plain", "name: [plain"),
			[]string{"pipeline.yaml:"}, 1},
		"no such file": {func(_ *testing.T, q *rig.Queue) { os.Remove(q.File) },
			[]string{"pipeline.yaml", "no such file"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, plain)
			q.Deliver("a.json", event("a"))
			c.prepare(t, q)
			for _, verb := range []string{"run --once", "run --check"} {
				e := q.Run(verb)
				if e.Code != c.code {
					t.Errorf("%s: want exit code %d: %v", verb, c.code, e)
				}
				for _, s := range c.say {
					if !strings.Contains(e.Stderr, s) {
						t.Errorf("%s does not say %q: %v", verb, s, e)
					}
				}
				if strings.Contains(e.Stderr, "goroutine ") {
					t.Errorf("%s crashed: %v", verb, e)
				}
			}
			if files := q.Files("inbox"); len(files) != 1 {
				t.Errorf("inbox/ holds %q: something was taken", files)
			}
		})
	}
}

// TestTwoPipelinesWithOneName would take each other's messages for duplicates.
func TestTwoPipelinesWithOneName(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	q.Drain(0)
	other := filepath.Join(q.Dir, "other")
	if err := os.MkdirAll(filepath.Join(other, "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	if e := q.Run("run --once", "SEMEL_SOURCE=directory:"+other); e.Code != 1 || !strings.Contains(e.Stderr, "source") || !strings.Contains(e.Stderr, "name of its own") {
		t.Errorf("another source: want it refused with the remedy: %v", e)
	}
	if e := q.Run("run --once --name second", "SEMEL_SOURCE=directory:"+other); e.Code != 0 {
		t.Errorf("with a name of its own: %v", e)
	}
	q.Describe(plain + "inbox: upsert\n")
	if e := q.Run("run --once"); e.Code != 1 || !strings.Contains(e.Stderr, "inbox") || !strings.Contains(e.Stderr, "name of its own") {
		t.Errorf("another strategy: want it refused with the remedy: %v", e)
	}
}

// nobody makes a process one that permissions apply to: to root they do not.
func nobody(t *testing.T, q *rig.Queue) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	const uid = 65534
	for dir := filepath.Dir(rig.Program(t, "cmd/semel")); dir != filepath.Dir(dir) && strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(q.Dir), 0o755); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(q.Dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

// TestReadOnlyPlaces: a directory or a database that cannot be written is
// refused at start, by name, with what to do.
func TestReadOnlyPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		path func(*rig.Queue) string
		mode os.FileMode
		say  string
	}{
		"inbox":           {func(q *rig.Queue) string { return q.Path("inbox") }, 0o555, "inbox"},
		"done":            {func(q *rig.Queue) string { return q.Path("done") }, 0o555, "done"},
		"error":           {func(q *rig.Queue) string { return q.Path("error") }, 0o555, "error"},
		"processing":      {func(q *rig.Queue) string { return q.Path("processing") }, 0o555, "processing"},
		"database":        {func(q *rig.Queue) string { return q.DB }, 0o444, "semel.db"},
		"database's home": {func(q *rig.Queue) string { return q.Dir }, 0o555, "semel.db"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, plain)
			run := func() rig.Exit {
				cmd := q.Semel("run --once")
				cmd.Attr = nobody(t, q)
				return rig.Run(t, cmd)
			}
			if e := run(); e.Code != 0 {
				t.Fatalf("before: %v", e)
			}
			q.Deliver("a.json", event("a"))
			path := c.path(q)
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			e := run()
			if err := os.Chmod(path, before.Mode().Perm()); err != nil {
				t.Fatal(err)
			}
			if e.Code != 1 && e.Code != 2 || !strings.Contains(e.Stderr, c.say) || !strings.Contains(e.Stderr, "writ") {
				t.Errorf("want it refused with the remedy: %v", e)
			}
			if files := q.Files("inbox"); len(files) != 1 {
				t.Errorf("inbox/ holds %q: something was taken", files)
			}
			if e := run(); e.Code != 0 || q.Int("SELECT n FROM counter") != 1 {
				t.Errorf("after the remedy: %v", e)
			}
		})
	}
}
