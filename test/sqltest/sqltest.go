// Package sqltest has the tests that stores on all SQL servers pass in the same
// way; what is special to one is beside its own tests.
package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/cutproxy"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
)

// Mark is that of the batches here. Its worker has to be enlisted.
func Mark(batch int64) store.Mark {
	return store.Mark{Consumer: "orders", Worker: "w", Batch: batch}
}

// Kit is a store and a table of the user's own beside it.
type Kit struct {
	Store store.Backend[sqlstore.Tx]
	// Put writes a value, as a handler does.
	Put func(ctx context.Context, tx sqlstore.Tx, key, value string) error
	// Value expects a committed value; "" means none.
	Value func(key, want string)
}

// CommitUnknown cuts the connection around COMMIT. The store says that it does
// not know, and finds out by the mark.
func (k Kit) CommitUnknown(t *testing.T, p *cutproxy.Proxy) {
	batch := int64(0)
	for range 3 {
		for how, want := range map[cutproxy.Cut]store.Outcome{cutproxy.Request: store.RolledBack, cutproxy.Answer: store.Committed} {
			key := fmt.Sprintf("%d after batch %d", how, batch)
			out, err := k.Store.InTx(t.Context(), Mark(batch+1), func(ctx context.Context, tx sqlstore.Tx) error {
				p.Next(how)
				return k.Put(ctx, tx, key, "v")
			})
			if out != store.Unknown || k.Store.Classify(err) != semel.ClassInfrastructure {
				t.Fatalf("cut %d: outcome %d, class %v: %v", how, out, k.Store.Classify(err), err)
			}
			if out, err = k.Store.Resolve(t.Context(), Mark(batch+1)); out != want || err != nil {
				t.Fatalf("cut %d: resolved to %d, %v, want %d", how, out, err, want)
			}
			if want == store.Committed {
				batch++
				k.Value(key, "v")
			} else {
				k.Value(key, "")
			}
		}
	}
}

// ServerKilled kills the server with -9 while batches commit, and starts it
// again. Every outcome is resolved, and what is stored is what was said.
func (k Kit) ServerKilled(t *testing.T, server *servertest.Server) {
	batch, unknown := int64(0), 0
	stored := map[string]string{}
	for round := range 3 {
		killed := make(chan error, 1)
		for n := 0; ; n++ {
			if n == 5*(round+1) {
				go func() { killed <- server.Kill() }()
			}
			key := fmt.Sprintf("%d/%d", round, n)
			out, err := k.Store.InTx(t.Context(), Mark(batch+1), func(ctx context.Context, tx sqlstore.Tx) error { return k.Put(ctx, tx, key, "v") })
			if err == nil {
				stored[key] = "v"
				batch++
				continue
			}
			if k.Store.Classify(err) != semel.ClassInfrastructure {
				t.Errorf("class %v: %v", k.Store.Classify(err), err)
			}
			if err := errors.Join(<-killed, server.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			if out == store.Unknown {
				unknown++
				if out, err = k.Store.Resolve(t.Context(), Mark(batch+1)); err != nil {
					t.Fatalf("not resolved: %v", err)
				}
			}
			if stored[key] = ""; out == store.Committed {
				stored[key] = "v"
				batch++
			}
			break
		}
	}
	for key, want := range stored {
		k.Value(key, want)
	}
	t.Logf("%d batches, %d commits were not answered", batch, unknown)
}

// Count asks for one number.
func Count(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// CrashPoints kills the worker at every point of a batch, twice, starts it
// again, and finds nothing lost and nothing done twice. The pipeline writes a
// row with the id of each message into the table effects.
func CrashPoints(t *testing.T, q *rig.Queue, db *sql.DB) {
	points := []fault.Point{fault.Received, fault.Decoded, fault.Opened, fault.Admitted, fault.Handled, fault.Committed, fault.Settling}
	n := 0
	for _, p := range points {
		for hit := 1; hit <= 2; hit++ {
			for range 5 {
				n++
				body := fmt.Sprintf(`{"id":"%d","key":"%d","n":1}`, n, n%3)
				q.Deliver(fmt.Sprintf("%d.json", n), body)
				q.Deliver(fmt.Sprintf("%d-again.json", n), body)
			}
			e := q.Run("run --once --json", fmt.Sprintf("SEMEL_FAULT=%s:%d", p, hit))
			if e.Signal != syscall.SIGKILL && e.Code != 0 {
				t.Fatalf("%s:%d: exit code %d, signal %v\n%s", p, hit, e.Code, e.Signal, e.Stderr)
			}
			if hit == 1 && e.Signal != syscall.SIGKILL {
				t.Errorf("%s was never reached", p)
			}
			if twice := Count(t, db, "SELECT count(*) FROM (SELECT id FROM effects GROUP BY id HAVING count(*) > 1) x"); twice > 0 {
				t.Fatalf("after a death at %s:%d %d effects happened twice", p, hit, twice)
			}
		}
	}
	if e := q.Run("run --once --json --wait 5s"); e.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", e.Code, e.Stdout, e.Stderr)
	}
	if have, ids := Count(t, db, "SELECT count(*) FROM effects"), Count(t, db, "SELECT count(DISTINCT id) FROM effects"); have != int64(n) || ids != int64(n) {
		t.Errorf("%d effects of %d ids, want %d", have, ids, n)
	}
	if rows := Count(t, db, "SELECT count(*) FROM semel_inbox"); rows != int64(n) {
		t.Errorf("%d inbox rows, want %d", rows, n)
	}
}

// Example is the text of a pipeline file below examples.
func Example(t testing.TB, name string) string {
	t.Helper()
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Flights runs the example of flights with two workers at once; q is a queue for
// its pipeline file, url the store's address.
func Flights(t *testing.T, q *rig.Queue, db *sql.DB, url string) {
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	if e := rig.Run(t, rig.Command{Path: rig.Program(t, "examples/flights/layout"), Args: []string{"-root", q.Root}, Dir: root}); e.Code != 0 {
		t.Fatal(e.Stderr)
	}
	var workers []*rig.Process
	for range 2 {
		c := q.Semel("run --once --json")
		c.Args = append(c.Args, "--store", url, "--source", "directory:"+q.Root)
		workers = append(workers, rig.Start(t, c))
	}
	for _, w := range workers {
		if e := w.Wait(); e.Code != 0 {
			t.Errorf("exit code %d\n%s%s", e.Code, e.Stdout, e.Stderr)
		}
	}
	if n, last := Count(t, db, "SELECT count(*) FROM flights"), Count(t, db, "SELECT sum(n) FROM semel_ledger WHERE account IN ('applied', 'superseded')"); n != 6654 || last != 19888 {
		t.Errorf("%d flights from %d events, want 6654 from 19888", n, last)
	}
}

// Queue is a queue for a pipeline file in which STORE stands for the address.
func Queue(t *testing.T, text, url string) *rig.Queue {
	return rig.NewQueue(t, strings.ReplaceAll(text, "STORE", "'"+url+"'"))
}

// Ends is a handler that sends one statement.
func Ends(statement string) func(context.Context, sqlstore.Tx) error {
	return func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
}
