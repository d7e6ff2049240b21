package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/servers/servertest"
	"github.com/semel-dev/semel/test/sqltest"
)

// role makes a role with a password on the server of address, which may do
// nothing yet, and returns its name and its address.
func role(t testing.TB, address, options string) (name, as string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name = "role_" + strings.TrimPrefix(u.Path, "/semel_")
	admin(t, address, "CREATE ROLE "+name+" LOGIN PASSWORD '"+secret+"' "+options)
	t.Cleanup(func() {
		admin(t, address, "DROP OWNED BY "+name)
		admin(t, address, "DROP ROLE "+name)
	})
	u.User = url.UserPassword(name, secret)
	return name, u.String()
}

// TestLoginRefused: a login that the server refuses is no fault of the program,
// and what is said has the server's reason and not the password.
func TestLoginRefused(t *testing.T) {
	address := database(t)
	_, full := role(t, address, "CONNECTION LIMIT 0")
	wrong, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword("postgres", secret)
	for dsn, code := range map[string]string{full: "53300", wrong.String(): "28P01"} {
		s, err := pgstore.Open(t.Context(), dsn, pgstore.Config{})
		if err == nil {
			s.Close(t.Context())
			t.Errorf("%s: was opened", code)
			continue
		}
		if c := pgstore.Classify(err); c != semel.ClassInfrastructure || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: class %v: %v", code, c, err)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the password is in the error", code)
		}
	}
}

// TestWithoutCreate: a role that may not create tables is told what to do; when
// another role has done it, rights on the rows are enough.
func TestWithoutCreate(t *testing.T) {
	address := database(t)
	admin(t, address, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	name, as := role(t, address, "")
	s := openAt(t, as, pgstore.Config{})
	err := s.Migrate(t.Context())
	if s.Classify(err) != semel.ClassFault {
		t.Errorf("class %v: %v", s.Classify(err), err)
	}
	for _, says := range []string{"42501", "semel schema print", "SELECT, INSERT, UPDATE, DELETE"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: does not say %q", err, says)
		}
	}
	owner := openAt(t, address, pgstore.Config{})
	if err := owner.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, owner, "CREATE TABLE effect (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+name)
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("nothing is to be created any more: %v", err)
	}
	if err := s.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	write := func(end string) (store.Outcome, error) {
		return s.InTx(t.Context(), mark(1), func(ctx context.Context, tx sqlstore.Tx) error {
			if _, err := claim(ctx, s, tx, "a"); err != nil {
				return err
			}
			if err := put(ctx, tx, "a", "1"); err != nil || end == "" {
				return err
			}
			return sqltest.Ends(end)(ctx, tx)
		})
	}
	if out, err := write("COMMIT"); out != store.RolledBack || err == nil {
		t.Errorf("a handler's COMMIT: outcome %d, %v", out, err)
	}
	value(t, address, "a", "")
	if out, err := write(""); out != store.Committed || err != nil {
		t.Errorf("outcome %d, %v", out, err)
	}
	value(t, address, "a", "1")
}

// TestStandby refuses a server in recovery, and takes it when it is promoted.
func TestStandby(t *testing.T) {
	server := servertest.Postgres.Start(t, servertest.Options{})
	address := server.Database(t)
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var data string
	if err := db.QueryRowContext(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Kill(), os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o666), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	observe(t, address, "SELECT pg_is_in_recovery()")
	s, err := pgstore.Open(t.Context(), address, pgstore.Config{})
	if err == nil {
		s.Close(t.Context())
		t.Fatal("a standby was opened")
	}
	if c := pgstore.Classify(err); c != semel.ClassInfrastructure || !strings.Contains(err.Error(), "target_session_attrs=read-write") {
		t.Errorf("class %v: %v", c, err)
	}
	// The signal is removed by the server, whose directory it is.
	observe(t, address, "SELECT pg_promote()")
	if s = openAt(t, address, pgstore.Config{}); s.Migrate(t.Context()) != nil {
		t.Error("not after the promotion either")
	}
}

// TestIsolationIsPinned: what the user sets for the database does not change the
// level of our transactions, nor make them read only.
func TestIsolationIsPinned(t *testing.T) {
	u, err := url.Parse(database(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	for setting := range levels {
		for want, level := range levels {
			admin(t, u.String(), "ALTER DATABASE "+name+" SET default_transaction_isolation = '"+setting+"'")
			s := openAt(t, u.String(), pgstore.Config{Isolation: level})
			var got, readonly string
			_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
				return tx.QueryRowContext(ctx, "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(&got, &readonly)
			})
			if err != nil || got != want || readonly != "off" {
				t.Errorf("%s on a database of %s: %s, read only %s, %v", want, setting, got, readonly, err)
			}
		}
	}
}

// TestWriteSkew: of two transactions that each read what the other writes, one
// fails with Contention at SERIALIZABLE, and can be repeated.
func TestWriteSkew(t *testing.T) {
	s, url := fresh(t, pgstore.Config{Isolation: sql.LevelSerializable})
	execute(t, s, "INSERT INTO effect VALUES ('a', '0'), ('b', '0')")
	first, second, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	copies := func(mine, other chan struct{}, from, to string) error {
		_, err := in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
			var v []byte
			err := tx.QueryRowContext(ctx, "SELECT value FROM effect WHERE key = $1", []byte(from)).Scan(&v)
			close(mine)
			<-other
			if err != nil {
				return err
			}
			return put(ctx, tx, to, string(v)+from)
		})
		return err
	}
	go func() { done <- copies(first, second, "a", "b") }()
	mine, theirs := copies(second, first, "b", "a"), <-done
	failed := mine
	if mine == nil {
		failed = theirs
	}
	if (mine == nil) == (theirs == nil) || s.Classify(failed) != semel.ClassContention {
		t.Fatalf("not one of two failed with contention: %v; %v", mine, theirs)
	}
	again := func(from, to string) error {
		return copies(make(chan struct{}), closed(), from, to)
	}
	if mine != nil {
		err := again("b", "a")
		value(t, url, "a", "0ab")
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err := again("a", "b"); err != nil {
		t.Error(err)
	}
	value(t, url, "b", "0ba")
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
