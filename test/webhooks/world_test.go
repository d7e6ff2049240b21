// Package webhooks_test consumes the real payloads of examples/webhooks, by the
// library and by the binary.
package webhooks_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/examples/webhooks"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// world is a database in which many consumers run one after the other, each
// under its own name and with its own rows.
type world struct {
	t     testing.TB
	store *sqlitestore.Store
	db    *sql.DB           // for reading what they did
	lines map[string]string // what each payload says, by id of the delivery
}

func newWorld(t testing.TB) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhooks.db")
	db, err := rig.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	// winner is the id of the message that wrote the row; effects counts how
	// often that happened.
	if _, err := db.Exec(`CREATE TABLE items (consumer TEXT NOT NULL, id TEXT NOT NULL, line TEXT NOT NULL, winner TEXT NOT NULL,
		version INTEGER NOT NULL, effects INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (consumer, id)) STRICT`); err != nil {
		t.Fatal(err)
	}
	st, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close(context.Background()) })
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for _, d := range deliveries(t) {
		it, _, err := webhooks.Read(d.Body)
		if err != nil {
			t.Fatal(err)
		}
		lines[d.ID] = it.String()
	}
	return &world{t, st, db, lines}
}

// keep is the handler of the example: the message's state replaces what is
// there.
const keep = `INSERT INTO items (consumer, id, line, winner, version) VALUES (?, ?, ?, ?, ?)
	ON CONFLICT (consumer, id) DO UPDATE SET line = excluded.line, winner = excluded.winner, version = excluded.version, effects = effects + 1`

// upsert makes a handler of such a statement.
func (w *world) upsert(consumer, statement string) func(context.Context, sqlstore.Tx, semel.Message) error {
	return func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		_, err := tx.ExecContext(ctx, statement, consumer, m.Key, w.lines[m.ID], m.ID, m.Version.N)
		return err
	}
}

// newest is the configuration of the example under a name.
func newest(name string) consumer.Config {
	return consumer.Config{Name: name, Decoder: broker.DecoderFunc(webhooks.Decode), Arbitrate: arbitrate.Policy{On: true}}
}

// consume delivers the messages in this order and returns what became of them.
func (w *world) consume(cfg consumer.Config, ds []webhooks.Delivery, handle func(context.Context, sqlstore.Tx, semel.Message) error) semel.Account {
	w.t.Helper()
	b := membroker.New(membroker.Config{})
	for _, d := range ds {
		b.Publish(0, semel.Message{ID: d.ID, Body: slices.Clone(d.Body)})
	}
	src := b.Receiver()
	defer src.Close(w.t.Context())
	cfg.Horizon, cfg.Drain = 1, &consumer.Drain{}
	c, err := consumer.New(cfg, src, w.store, consumer.Each(handle))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Run(w.t.Context()); err != nil {
		w.t.Fatalf("%s: %v", cfg.Name, err)
	}
	if left := b.Unsettled(); len(left) > 0 {
		w.t.Errorf("%s: %d messages were not settled", cfg.Name, len(left))
	}
	a := c.Account()
	if !a.Balanced() {
		w.t.Errorf("%s: the account does not balance: %+v", cfg.Name, a)
	}
	return a
}

// column returns one of the rows of a consumer, by id.
func (w *world) column(consumer, name string) (all []string) {
	w.t.Helper()
	rows, err := w.db.Query("SELECT "+name+" FROM items WHERE consumer = ? ORDER BY id", consumer)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func deliveries(t testing.TB) []webhooks.Delivery {
	t.Helper()
	all, err := webhooks.Deliveries()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// about returns those about one entity, n of them.
func about(t testing.TB, key string, n int) []webhooks.Delivery {
	t.Helper()
	some, err := webhooks.About(deliveries(t), key)
	if err != nil || len(some) != n {
		t.Fatalf("%d deliveries about %s, %v; want %d", len(some), key, err, n)
	}
	return some
}

func handled(a semel.Account) int64 {
	return a.Of[semel.Applied] + a.Of[semel.Duplicate] + a.Of[semel.Superseded]
}
