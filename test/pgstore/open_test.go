package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/test/sqltest"
)

const secret = "hunter2"

// TestOpenRefuses: what cannot work is refused at start with the remedy, and
// no message shows the password.
func TestOpenRefuses(t *testing.T) {
	good, err := url.Parse(database(t))
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(u *url.URL, q url.Values)) string {
		u := *good
		q := u.Query()
		change(&u, q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	latin := "semel_latin_" + strings.TrimPrefix(good.Path, "/semel_")
	admin(t, good.String(), "CREATE DATABASE "+latin+" ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	t.Cleanup(func() { admin(t, good.String(), "DROP DATABASE "+latin+" WITH (FORCE)") })
	for dsn, c := range map[string]struct {
		says  string
		class semel.Class
	}{
		with(func(_ *url.URL, q url.Values) { q.Set("synchronous_commit", "off") }): {"synchronous_commit", semel.ClassFault},
		with(func(u *url.URL, _ url.Values) { u.Path = latin }):                     {"ENCODING 'UTF8'", semel.ClassFault},
		with(func(u *url.URL, _ url.Values) { u.Path = "/nowhere" }):                {"nowhere", semel.ClassInfrastructure},
		with(func(u *url.URL, _ url.Values) { u.Host, u.User = "127.0.0.1:1", url.UserPassword("joe", secret) }): {
			"joe@127.0.0.1:1", semel.ClassInfrastructure},
		"postgres://joe:" + secret + "@127.0.0.1:port/x":         {"parse", semel.ClassFault},
		"host=127.0.0.1 port=1 password=" + secret + " user=joe": {"joe@127.0.0.1:1", semel.ClassInfrastructure},
	} {
		s, err := pgstore.Open(t.Context(), dsn, pgstore.Config{})
		if err == nil {
			s.Close(t.Context())
			t.Errorf("%s was opened", dsn)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || pgstore.Classify(err) != c.class {
			t.Errorf("%s: class %v: %v", dsn, pgstore.Classify(err), err)
		}
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(err.Error(), secret) {
			t.Errorf("the password is in %s", text)
		}
	}
	for _, c := range []pgstore.Config{{LockWait: -1}, {Idle: 1}, {Isolation: sql.LevelLinearizable}} {
		if s, err := pgstore.Open(t.Context(), good.String(), c); err == nil {
			s.Close(t.Context())
			t.Errorf("%+v was taken", c)
		}
	}
}

// admin runs a statement on the server.
func admin(t testing.TB, url, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err == nil {
		defer db.Close()
		_, err = db.ExecContext(context.Background(), statement)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNew works on a pool of the user's, which stays open.
func TestNew(t *testing.T) {
	_, url := fresh(t, pgstore.Config{})
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := pgstore.New(t.Context(), db, pgstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, s, "INSERT INTO effect VALUES ('a', '1')")
	value(t, url, "a", "1")
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// The connection that committed was set to read only: it must not come back.
	if _, err := db.ExecContext(t.Context(), "INSERT INTO effect VALUES ('b', '1')"); err != nil {
		t.Errorf("the pool is not as it was: %v", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := pgstore.New(t.Context(), db, pgstore.Config{}); err == nil {
		t.Error("a pool of one connection was taken")
	}
	if _, err := pgstore.New(t.Context(), nil, pgstore.Config{}); err == nil {
		t.Error("no pool was taken")
	}
}

// TestWithoutTables: before the first migration there is nothing that a
// handler's COMMIT could contradict, and transactions work.
func TestWithoutTables(t *testing.T) {
	url := database(t)
	s := openAt(t, url, pgstore.Config{})
	execute(t, s, "CREATE TABLE effect (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)", "INSERT INTO effect VALUES ('a', '1')")
	value(t, url, "a", "1")
	pending, err := s.Pending(t.Context())
	if all := pgstore.Statements(); err != nil || len(pending) != len(all) {
		t.Errorf("%d of %d statements are pending, %v", len(pending), len(all), err)
	}
	var looked sync.WaitGroup
	done := make(chan error)
	looked.Add(4)
	for range 4 { // of several processes one migrates
		go func() {
			s := openAt(t, url, pgstore.Config{})
			_, err := s.Pending(t.Context()) // what it saw then must not count any more
			looked.Done()
			looked.Wait()
			done <- errors.Join(err, s.Migrate(t.Context()))
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if pending, err = s.Pending(t.Context()); err != nil || len(pending) > 0 {
		t.Errorf("after the migration %q are pending, %v", pending, err)
	}
	if out, err := s.InTx(t.Context(), store.Mark{}, sqltest.Ends("COMMIT")); out != store.RolledBack || err == nil {
		t.Errorf("once there are tables, a COMMIT gives %d, %v", out, err)
	}
}
