package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// classOf classifies an error for which there is no store.
func classOf(t *testing.T, err error) semel.Class {
	t.Helper()
	s, serr := sqlstore.New(sqlstore.Config{DB: &sql.DB{}, Dialect: sqlstore.SQLite(), Driver: sqliteDriver{}})
	if serr != nil {
		t.Fatal(serr)
	}
	return s.Classify(err)
}

func TestOpenNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b.db", "q?mark=1.db", "per%20cent.db", "hash#tag.db", "é.db", "a&b=c.db"} {
		path := filepath.Join(dir, name)
		s := openAt(t, path, Config{})
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the file has another name: %v", err)
		}
	}
	for _, u := range []string{"sqlite://" + dir + "/url.db", "sqlite:" + dir + "/short.db", "file:" + dir + "/uri.db", "file:" + dir + "/par.db?_pragma=user_version(7)"} {
		s := openAt(t, u, Config{})
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, name := range []string{"url.db", "short.db", "uri.db", "par.db"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"", ":memory:", "file::memory:", "file:x?mode=memory&cache=shared", "sqlite://host/path", "sqlite:///x?y=z", "sqlite:", "sqlite://%zz"} {
		if s, err := Open(t.Context(), name, Config{}); err == nil {
			s.Close(t.Context())
			t.Errorf("%q was opened", name)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), Config{LockWait: -1}); err == nil {
		t.Error("a negative LockWait was taken")
	}
}

// TestOpenFails has files that can not be used: all of them are the
// infrastructure's fault, and say which file it is.
func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a directory":       dir,
		"missing directory": filepath.Join(dir, "missing", "x.db"),
		"not a database":    garbage,
		"below a file":      filepath.Join(garbage, "x.db"),
	} {
		_, err := Open(t.Context(), path, Config{})
		if err == nil || classOf(t, err) != semel.ClassInfrastructure {
			t.Errorf("%s: %v; want an error of class infrastructure", name, err)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	s, path := fresh(t)
	execute(t, s, "INSERT INTO effect VALUES ('k', 'v')")
	ro := openAt(t, "file:"+path+"?mode=ro", Config{})
	if _, err := ro.Status(t.Context(), "c", true); err != nil {
		t.Errorf("reading: %v", err)
	}
	out, err := ro.InTx(t.Context(), store.Mark{}, putting("k"))
	if out != store.RolledBack || ro.Classify(err) != semel.ClassInfrastructure {
		t.Errorf("writing: outcome %d, %v (%v)", out, err, ro.Classify(err))
	}
}

// TestCorrupt damages every page but the first.
func TestCorrupt(t *testing.T) {
	s, path := fresh(t)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(data); i++ {
		data[i] = 0xaa
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path, Config{}); err == nil {
		defer s.Close(t.Context())
		err = s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1})
	}
	if classOf(t, err) != semel.ClassInfrastructure {
		t.Errorf("%v (%v)", err, classOf(t, err))
	}
}

// pool opens a pool of the user's own on a fresh database.
func pool(t *testing.T, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "own.db")+"?"+params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestNew(t *testing.T) {
	db := pool(t, "_pragma=journal_mode(wal)&_pragma=synchronous(extra)&_pragma=busy_timeout(1234)")
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("Close closed a pool that is not the store's: %v", err)
	}
	for range 4 { // none of them may have the settings of the store's own
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var timeout int
		if err := conn.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&timeout); err != nil || timeout != 1234 {
			t.Errorf("a connection of the user's has busy_timeout %d, %v", timeout, err)
		}
	}
	if _, err := s.InTx(t.Context(), store.Mark{}, putting("k")); err == nil {
		t.Error("a closed store runs transactions")
	}
}

// TestNewRefuses has pools that would lose commits or hang. The error says what
// to do.
func TestNewRefuses(t *testing.T) {
	single := pool(t, "_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	single.SetMaxOpenConns(1)
	for name, c := range map[string]struct {
		db     *sql.DB
		remedy string
	}{
		"no WAL":         {pool(t, "_pragma=synchronous(full)"), "PRAGMA journal_mode=WAL"},
		"not FULL":       {pool(t, "_pragma=journal_mode(wal)&_pragma=synchronous(normal)"), "synchronous(full)"},
		"one connection": {single, "SetMaxOpenConns"},
		"nil":            {nil, "nil"},
	} {
		_, err := New(t.Context(), c.db, Config{})
		if err == nil || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: %v; want an error that names %q", name, err, c.remedy)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		v    [3]int
		want bool
	}{{[3]int{3, 51, 2}, true}, {[3]int{3, 50, 9}, true}, {[3]int{2, 99, 99}, true}, {[3]int{3, 51, 3}, false}, {[3]int{3, 54, 0}, false}, {[3]int{4, 0, 0}, false}} {
		if older(c.v, oldest) != c.want {
			t.Errorf("%v is too old: %v, want %v", c.v, !c.want, c.want)
		}
	}
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := openAt(t, path, Config{})
	pending, err := s.Pending(t.Context())
	if err != nil || len(pending) == 0 || len(pending) != len(s.Statements()) {
		t.Fatalf("pending on an empty database: %d statements of %d, %v", len(pending), len(s.Statements()), err)
	}
	if out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "a"}}, nil)
		return err
	}); out != store.RolledBack || s.Classify(err) != semel.ClassFault {
		t.Errorf("without tables: outcome %d, %v (%v); want a fault", out, err, s.Classify(err))
	}
	var wg sync.WaitGroup
	for range 6 {
		other := openAt(t, path, Config{})
		wg.Go(func() {
			if err := other.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if pending, err := s.Pending(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("pending after Migrate: %q, %v", pending, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate again: %v", err)
	}
	execute(t, s, "INSERT INTO semel_schema (version, at) VALUES (99, 0)")
	_, perr := s.Pending(t.Context())
	for _, err := range []error{perr, s.Migrate(t.Context())} {
		if s.Classify(err) != semel.ClassFault {
			t.Errorf("tables of a newer program: %v", err)
		}
	}
}

// TestStatementsByHand applies the printed statements as an operator would.
func TestStatementsByHand(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "m.db"), Config{})
	execute(t, s, s.Statements()...)
	execute(t, s, "INSERT INTO semel_schema (version, at) VALUES (2, 0)")
	if pending, err := s.Pending(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("pending: %q, %v", pending, err)
	}
	if err := s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1}); err != nil {
		t.Error(err)
	}
}

// TestClassify has a handler's statements fail in every way.
func TestClassify(t *testing.T) {
	s, _ := fresh(t)
	execute(t, s, "CREATE TABLE strict (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0), u TEXT UNIQUE, p INTEGER REFERENCES strict) STRICT",
		"CREATE TRIGGER rule BEFORE DELETE ON strict BEGIN SELECT RAISE(ABORT, 'never'); END",
		"INSERT INTO strict VALUES (1, 1, 'u', NULL)")
	for statement, want := range map[string]semel.Class{
		"INSERT INTO strict VALUES (1, 1, NULL, NULL)":                         semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, 1, 'u', NULL)":                          semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, NULL, NULL, NULL)":                      semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, 0, NULL, NULL)":                         semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, 'x', NULL, NULL)":                       semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, 1, NULL, 9)":                            semel.ClassPermanent,
		"INSERT OR ROLLBACK INTO strict VALUES (1, 1, NULL, NULL)":             semel.ClassPermanent,
		"DELETE FROM strict":                                                   semel.ClassPermanent,
		"INSERT INTO strict VALUES (2, abs(-9223372036854775808), NULL, NULL)": semel.ClassPermanent,
		"SELECT json_extract('{', '$.a')":                                      semel.ClassPermanent,
		"INSERT INTO missing VALUES (1)":                                       semel.ClassFault,
		"INSERT INTO strict (missing) VALUES (1)":                              semel.ClassFault,
		"INSERT INTO strict VALUES (1)":                                        semel.ClassFault,
		"SELEC 1":                                                              semel.ClassFault,
		"SELECT missing()":                                                     semel.ClassFault,
		"INSERT INTO strict (n) VALUES (?)":                                    semel.ClassFault,
		"BEGIN":                                                                semel.ClassFault,
	} {
		out, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
		if err == nil || out != store.RolledBack || s.Classify(err) != want || errors.Is(err, store.ErrEnded) {
			t.Errorf("%s: outcome %d, %v (%v); want %v", statement, out, err, s.Classify(err), want)
		}
	}
	execute(t, s, "INSERT INTO effect VALUES ('after', 'v')")
}

// TestOpenTogether has several handles create one database.
func TestOpenTogether(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "new.db")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				s, err := Open(t.Context(), path, Config{})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close(t.Context())
				if err := s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Enlist(t.Context(), store.Worker{Consumer: "c", Name: fmt.Sprint(i), Slots: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// TestOpenAtOnce: workers that start together on a database that is not there
// yet all get it, whoever makes it.
func TestOpenAtOnce(t *testing.T) {
	const rounds, workers = 30, 8
	for range rounds {
		path := filepath.Join(t.TempDir(), "new.db")
		start, done := make(chan struct{}), make(chan error, workers)
		for range workers {
			go func() {
				<-start
				s, err := Open(t.Context(), path, Config{})
				if err == nil {
					err = errors.Join(s.Migrate(t.Context()), s.Close(t.Context()))
				}
				done <- err
			}()
		}
		close(start)
		for range workers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}
