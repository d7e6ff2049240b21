package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// each runs a test on every kind of server.
func each(t *testing.T, test func(t *testing.T, k Kind)) {
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) { test(t, k) })
	}
}

// gone checks that nothing is left of a server.
func gone(t *testing.T, dir string) {
	t.Helper()
	if pids := workingIn(dir); len(pids) > 0 {
		t.Errorf("processes %v still work in %s", pids, dir)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

// What does not end a server shares one.
func TestServer(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		s, err := Start(t.Context(), k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop() })
		t.Logf("%s %s: %v", k, s.Version(), s.Took())
		t.Run("identity", func(t *testing.T) { isItself(t, s) })
		t.Run("another on its port", func(t *testing.T) { notMistaken(t, s) })
		t.Run("address", func(t *testing.T) { usedIfMeant(t, s) })
		t.Run("pause", func(t *testing.T) { pauses(t, s) })
		t.Run("stop", func(t *testing.T) { stops(t, s) })
	})
}

func isItself(t *testing.T, s *Server) {
	id, err := s.recipe.identify(t.Context(), s.URL())
	if err != nil || id.data != s.data() || id.pid != s.PID() && s.kind != MariaDB { // which does not tell
		t.Errorf("it says it is %+v, %v; started was pid %d in %s", id, err, s.PID(), s.data())
	}
	if lines := strings.Join(Running(), "\n"); !strings.Contains(lines, s.data()) {
		t.Errorf("not among the running ones:\n%s", lines)
	}
}

func stops(t *testing.T, s *Server) {
	keeper := s.keeper.cmd.Process.Pid
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	gone(t, s.dir)
	if err := syscall.Kill(keeper, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the keeper is still there: %v", err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a server whose data is gone started again")
	}
}

func TestKillKeepsWhatWasCommitted(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		s := k.Start(t, Options{})
		address := s.Database(t)
		put(t, address, "committed")
		pid := s.PID()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if pids := workingIn(s.dir); len(pids) > 0 {
			t.Fatalf("processes %v survived", pids)
		}
		if id, err := s.recipe.identify(t.Context(), s.URL()); err == nil {
			t.Fatalf("somebody answers: %+v", id)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := get(t, address); got != "committed" {
			t.Errorf("after the restart: %q", got)
		}
		if s.PID() == pid {
			t.Error("the pid is the old one")
		}
		// Running and even paused, it is stopped in good order.
		if err := errors.Join(s.Pause(), s.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := get(t, address); got != "committed" {
			t.Errorf("after the second restart: %q", got)
		}
	})
}

func TestTwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		one, two := k.Start(t, Options{Fast: true}), k.Start(t, Options{Fast: true})
		put(t, one.URL(), "one")
		put(t, two.URL(), "two")
		if a, b := get(t, one.URL()), get(t, two.URL()); a != "one" || b != "two" {
			t.Errorf("the servers hold %q and %q", a, b)
		}
	})
}

// One that does not come up says why, and leaves nothing.
func TestStartFails(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		before := notes()
		_, err := Start(t.Context(), k, Options{Args: []string{"--nosuchsetting=1"}})
		if err == nil {
			t.Fatal("it started")
		}
		for _, want := range []string{"start " + string(k), "before it was ready", "the end of its log", "nosuchsetting"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q:\n%v", want, err)
			}
		}
		if after := notes(); len(after) > len(before) {
			t.Errorf("left: %v", after)
		}
	})
}

func TestDatabaseIsForOneTest(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		var address string
		t.Run("first", func(t *testing.T) {
			address = k.Database(t)
			put(t, address, "first")
			hold(t, address)
		})
		other := k.Database(t)
		put(t, other, "other")
		if got := get(t, other); got != "other" {
			t.Errorf("a new database holds %q", got)
		}
		if err := probe(t.Context(), address); err == nil {
			t.Errorf("the database of a test that ended is still there")
		}
	})
}

func pauses(t *testing.T, s *Server) {
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if id, err := s.recipe.identify(brief, s.URL()); err == nil {
		t.Fatalf("a paused server answers: %+v", id)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := s.recipe.identify(context.WithoutCancel(brief), s.URL())
		answer <- err
	}()
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("after it was resumed: %v", err)
	}
}

// notMistaken: whoever took the port, with the password even, is not our server.
func notMistaken(t *testing.T, s *Server) {
	ours := &Server{kind: s.kind, recipe: s.recipe, dir: "/tmp/semel-test-not-there", port: s.port, secret: s.secret}
	err := ours.recognise(t.Context(), s.process)
	if err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("it was taken for ours: %v", err)
	}
	ours.dir = s.dir
	err = ours.recognise(t.Context(), &process{cmd: &exec.Cmd{Process: &os.Process{Pid: s.PID() + 1}}})
	if s.kind != MariaDB && (err == nil || !strings.Contains(err.Error(), "another server")) {
		t.Errorf("another process was taken for ours: %v", err)
	}
	ours.secret = random()
	if s.kind == OpenSearch { // which has no password
		return
	}
	if err := ours.recognise(t.Context(), s.process); err == nil {
		t.Error("it takes any password")
	}
}

// usedIfMeant: a server that is given is used only if it is the one that was
// meant.
func usedIfMeant(t *testing.T, s *Server) {
	wrong := strings.Replace(s.URL(), s.secret, "wrong", 1)
	if s.kind == OpenSearch { // which has no password
		wrong = s.URL() + "/\x7f"
	}
	for _, c := range []struct{ value, refused string }{
		{s.proven(), ""},
		{s.URL() + "#foreign", ""},
		{s.URL(), "add #foreign"},
		{s.URL() + "#/tmp/semel-test-other/data", "add #foreign"},
		{wrong + "#foreign", "is of no use"},
	} {
		t.Setenv(s.kind.Env(), c.value)
		address, err := locate(t.Context(), s.kind)
		switch {
		case c.refused == "" && (err != nil || address != s.URL()):
			t.Errorf("%s gave %q, %v", c.value, address, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s was not refused with %q: %q, %v", c.value, c.refused, address, err)
		case err != nil && (strings.Contains(err.Error(), s.secret) || strings.Contains(err.Error(), "wrong@")):
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

// open speaks to an address of any dialect.
func open(address string) (*sql.DB, error) {
	if strings.HasPrefix(address, "mysql:") {
		return mysqlOpen(address)
	}
	return sql.Open("pgx", address)
}

// put commits a value. The place must be new: a database of its own.
func put(t testing.TB, address, value string) {
	t.Helper()
	if strings.HasPrefix(address, "redis:") {
		if ok, err := redisDo(t.Context(), address, "SET", "note", value, "NX"); err != nil || ok == nil {
			t.Fatal("set:", ok, err)
		}
		return
	}
	if strings.HasPrefix(address, "http:") {
		if err := opensearchDo(t.Context(), "PUT", note(address)+"?op_type=create", `{"value":"`+value+`"}`, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := open(inside(address))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{"CREATE TABLE note (value varchar(20))", fmt.Sprintf("INSERT INTO note VALUES ('%s')", value)} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func get(t testing.TB, address string) (value string) {
	t.Helper()
	if strings.HasPrefix(address, "redis:") {
		value, err := redisDo(t.Context(), address, "GET", "note")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(value, " ")
	}
	if strings.HasPrefix(address, "http:") {
		var found struct {
			Source struct{ Value string } `json:"_source"`
		}
		if err := opensearchDo(t.Context(), "GET", note(address), "", &found); err != nil {
			t.Fatal(err)
		}
		return found.Source.Value
	}
	db, err := open(inside(address))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "SELECT value FROM note").Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// note is a document of the database, or of a name that no database has.
func note(address string) string {
	if strings.Count(address, "/") == 2 {
		address += "/whole"
	}
	return address + "-note/_doc/1"
}

// inside names a database where the address of a whole MariaDB has none.
func inside(address string) string {
	if strings.HasPrefix(address, "mysql:") && strings.HasSuffix(address, "/") {
		return address + "mysql"
	}
	return address
}

// hold leaves a session with an open transaction to the end of the process.
func hold(t testing.TB, address string) {
	t.Helper()
	if !strings.HasPrefix(address, "postgres:") {
		return // MariaDB waits for such a session, and gives up after a while
	}
	db, err := open(address)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO note VALUES ('never')"); err != nil {
		t.Fatal(err)
	}
}

// probe fails if put was not there, or the database is not there any more.
func probe(ctx context.Context, address string) error {
	if strings.HasPrefix(address, "redis:") {
		// The number may have been given to the next test.
		value, err := redisDo(ctx, address, "GET", "note")
		if err == nil && strings.Join(value, "") != "first" {
			return errors.New("it is somebody else's")
		}
		return err
	}
	if strings.HasPrefix(address, "http:") {
		return opensearchDo(ctx, "GET", note(address), "", nil)
	}
	db, err := open(address)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// The processes that the tests below start are this binary again.
func TestMain(m *testing.M) {
	if do, ok := children()[os.Getenv("SEMEL_TEST_CHILD")]; ok {
		do()
		return
	}
	os.Exit(m.Run())
}

func children() map[string]func() {
	return map[string]func(){"hold": childHolds, "paused": childPauses}
}

func childHolds() {
	for _, name := range strings.Fields(os.Getenv("SEMEL_TEST_CHILD_KINDS")) {
		address, err := shared(Kind(name))
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
		id, err := Kind(name).recipe().identify(context.Background(), address)
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
		fmt.Println("dir", strings.TrimSuffix(id.data, "/data"))
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until we are told to end, or are killed
}

func childPauses() {
	s, err := Start(context.Background(), Postgres, Options{Fast: true})
	if err == nil {
		err = s.Pause()
	}
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("dir", s.dir)
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
