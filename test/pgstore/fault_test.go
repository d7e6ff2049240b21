package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/cutproxy"
	"github.com/semel-dev/semel/test/servers/servertest"
	"github.com/semel-dev/semel/test/sqltest"
)

func TestCommitUnknown(t *testing.T) {
	_, address := enlisted(t, pgstore.Config{})
	p, behind := cutproxy.Before(t, address, []byte("COMMIT\x00"))
	kit(t, openAt(t, behind, pgstore.Config{}), address).CommitUnknown(t, p)
}

func TestServerKilled(t *testing.T) {
	server := servertest.Postgres.Start(t, servertest.Options{})
	address := server.Database(t)
	s := openAt(t, address, pgstore.Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "CREATE TABLE effect (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)")
	if err := s.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	kit(t, s, address).ServerKilled(t, server)
}

func kit(t testing.TB, s *pgstore.Store, address string) sqltest.Kit {
	return sqltest.Kit{Store: s, Put: put, Value: func(key, want string) { value(t, address, key, want) }}
}

// TestServerKilledAroundCommit kills the server with -9 when a COMMIT has not
// reached it, and when it has been answered and the client does not know. Only
// the server that comes back can tell which of the two it was.
func TestServerKilledAroundCommit(t *testing.T) {
	server := servertest.Postgres.Start(t, servertest.Options{})
	address := server.Database(t)
	p, behind := cutproxy.Before(t, address, []byte("COMMIT\x00"))
	s := openAt(t, behind, pgstore.Config{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "CREATE TABLE effect (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)")
	if err := s.Enlist(t.Context(), store.Worker{Consumer: consumer, Name: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	batch := int64(0)
	for how, want := range map[cutproxy.Cut]store.Outcome{cutproxy.Request: store.RolledBack, cutproxy.Answer: store.Committed} {
		key := fmt.Sprint(how)
		out, err := s.InTx(t.Context(), mark(batch+1), func(ctx context.Context, tx sqlstore.Tx) error {
			p.Next(how)
			return put(ctx, tx, key, "v")
		})
		if out != store.Unknown {
			t.Fatalf("cut %d: outcome %d, %v", how, out, err)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if out, err = s.Resolve(t.Context(), mark(batch+1)); err == nil || s.Classify(err) != semel.ClassInfrastructure {
			t.Errorf("cut %d: resolved without a server to %d, %v", how, out, err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out, err = s.Resolve(t.Context(), mark(batch+1)); out != want || err != nil {
			t.Fatalf("cut %d: resolved to %d, %v, want %d", how, out, err, want)
		}
		there := ""
		if want == store.Committed {
			batch++
			there = "v"
		}
		value(t, address, key, there)
		// The pool has recovered: the next batch needs no second try.
		next := key + " next"
		if out, err := s.InTx(t.Context(), mark(batch+1), func(ctx context.Context, tx sqlstore.Tx) error { return put(ctx, tx, next, "v") }); out != store.Committed || err != nil {
			t.Errorf("cut %d: after the restart: outcome %d, %v", how, out, err)
		} else {
			batch++
		}
		value(t, address, next, "v")
	}
}
