// Package state_test moves orders on real databases, by messages that come twice
// and in the wrong order.
package state_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/state"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/mysqlstore"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
)

// database is a store, a pool on the same database, and a mover of its orders.
type database struct {
	store.Backend[sqlstore.Tx]
	pool   *sql.DB
	orders *state.Mover
}

var databases = map[string]func(t *testing.T) database{
	"sqlite": func(t *testing.T) database {
		file := filepath.Join(t.TempDir(), "orders.db")
		s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Config{})
		return prepare(t, s, err, "sqlite", file, false)
	},
	"postgres": func(t *testing.T) database {
		url := servertest.Postgres.Database(t)
		s, err := pgstore.Open(t.Context(), url, pgstore.Config{})
		return prepare(t, s, err, "pgx", url, true)
	},
	"mariadb": func(t *testing.T) database {
		url := servertest.MariaDB.Database(t)
		s, err := mysqlstore.Open(t.Context(), url, mysqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := servertest.MySQLConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		return prepare(t, s, err, "mysql", cfg.FormatDSN(), false)
	},
}

type migrating interface {
	store.Backend[sqlstore.Tx]
	Migrate(context.Context) error
}

func prepare(t *testing.T, s migrating, err error, driver, at string, numbered bool) database {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := sql.Open(driver, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	if _, err := pool.Exec("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, status VARCHAR(20) NOT NULL, moves INTEGER NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	v, err := state.New(state.Machine{Table: "orders", ID: "id", State: "status", Start: "created", Numbered: numbered,
		From: map[string][]string{"paid": {"created"}, "packed": {"paid"}, "shipped": {"packed"}, "refunded": {"shipped"}}})
	if err != nil {
		t.Fatal(err)
	}
	return database{s, pool, v}
}

func (d database) insert(t *testing.T, id string) {
	t.Helper()
	if _, err := d.pool.Exec("INSERT INTO orders VALUES ('" + id + "', 'created', 0)"); err != nil {
		t.Fatal(err)
	}
}

func (d database) status(t *testing.T, id string) (status string, moves int) {
	t.Helper()
	if err := d.pool.QueryRow("SELECT status, moves FROM orders WHERE id = '"+id+"'").Scan(&status, &moves); err != nil {
		t.Fatal(err)
	}
	return status, moves
}

// move moves an order in a transaction of its own and counts it if it moved.
func (d database) move(ctx context.Context, id, to string, within func()) error {
	var verdict error
	_, err := d.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		if verdict = d.step(ctx, tx, id, to); within != nil {
			within()
		}
		return nil
	})
	return errors.Join(verdict, err)
}

func (d database) step(ctx context.Context, tx sqlstore.Tx, id, to string) error {
	if err := d.orders.Move(ctx, tx, id, to); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE orders SET moves = moves + 1 WHERE id = '"+id+"'") // follows a real move only
	return err
}

func random(t *testing.T) (seed uint64) {
	t.Helper()
	seed = rand.Uint64()
	if s := os.Getenv("SEMEL_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("replay: SEMEL_TEST_SEED=%d go test -count 1 ./test/state -run '^%s$'", seed, t.Name())
	return seed
}

var line = []string{"created", "paid", "packed", "shipped", "refunded"}

// unguarded is what a consumer without a state machine does.
func (d database) unguarded(ctx context.Context, tx sqlstore.Tx, id, to string) error {
	_, err := tx.ExecContext(ctx, "UPDATE orders SET status = '"+to+"', moves = moves + 1 WHERE id = '"+id+"'")
	return err
}

const many = 20 // orders

// consume handles every event of all orders; a tenth is published again under an
// id of its own, and they are handed over repeated and in another order. It returns how
// many orders did not end as they should, and the account.
func (d database) consume(t *testing.T, seed uint64, step func(ctx context.Context, tx sqlstore.Tx, id, to string) error) (wrong int, a semel.Account) {
	t.Helper()
	b := membroker.New(membroker.Config{Seed: seed, Duplicate: 0.1, Reorder: 5})
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range many {
		d.insert(t, fmt.Sprint("o", i))
	}
	for i := range many {
		for _, to := range line[1:] {
			id := fmt.Sprint("o", i)
			b.Publish(-1, semel.Message{ID: id + "-" + to, Key: id, Type: to})
			if rnd.IntN(10) == 0 {
				b.Publish(-1, semel.Message{ID: id + "-" + to + "-again", Key: id, Type: to})
			}
		}
	}
	for i := range many { // late, far behind the last one
		if rnd.IntN(10) == 0 {
			id := fmt.Sprint("o", i)
			b.Publish(-1, semel.Message{ID: id + "-late", Key: id, Type: line[1+rnd.IntN(3)]})
		}
	}
	delays := make([]time.Duration, 50)
	for i := range delays {
		delays[i] = 100 * time.Millisecond
	}
	c, err := consumer.New(consumer.Config{
		Name: "orders", Horizon: time.Hour,
		Decoder: broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
		Retry:   retry.Policy{Immediate: -1, Delays: delays},
		Drain:   &consumer.Drain{},
	}, b.Receiver(), d.Backend, consumer.Each(func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		return step(ctx, tx, m.Key, m.Type)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if status, moves := d.status(t, fmt.Sprint("o", i)); status != "refunded" || moves != len(line)-1 {
			wrong++
		}
	}
	return wrong, c.Account()
}

// TestOrders: every order ends where its events lead, by each move once. The same
// events without the machine leave orders in a wrong state.
func TestOrders(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			seed := random(t)
			d := open(t)
			wrong, a := d.consume(t, seed, d.step)
			if wrong > 0 || a.Of[semel.Dead] > 0 || a.Of[semel.Applied] != int64(many*(len(line)-1)) || a.Of[semel.Superseded] == 0 || a.Of[semel.Parked] == 0 {
				t.Errorf("%d orders are wrong: %+v", wrong, a)
			}
			broken := open(t)
			if wrong, a := broken.consume(t, seed, broken.unguarded); wrong == 0 {
				t.Errorf("without the machine no order is wrong: %+v", a)
			}
		})
	}
}

// TestModel: any events in any order, against a counter that knows its place.
func TestModel(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			seed := random(t)
			d, rnd := open(t), rand.New(rand.NewPCG(seed, 2))
			for i := range 20 {
				id, at := fmt.Sprint("m", i), -1
				for range 15 {
					if at < 0 && rnd.IntN(4) == 0 {
						d.insert(t, id)
						at = 0
					}
					to := 1 + rnd.IntN(len(line)-1)
					err := d.move(t.Context(), id, line[to], nil)
					var early *state.EarlyError
					var ok bool
					switch {
					case at < 0 || to > at+1:
						ok = errors.As(err, &early)
					case to == at+1:
						ok, at = err == nil, to
					default:
						ok = errors.Is(err, semel.ErrSuperseded)
					}
					if !ok {
						t.Fatalf("%s, after the event to %s the model is at %d: %v", id, line[to], at, err)
					}
				}
				if at < 0 {
					continue
				}
				if status, moves := d.status(t, id); status != line[at] || moves != at {
					t.Fatalf("%s is %s after %d moves, the model at %d", id, status, moves, at)
				}
			}
		})
	}
}

// TestTwoWorkers: two workers have the same event at once; one moves the order.
func TestTwoWorkers(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			d.insert(t, "a")
			// The first holds its transaction open until the second waits for it.
			holding, release := make(chan struct{}), make(chan struct{})
			one, two := make(chan error, 1), make(chan error, 1)
			go func() {
				one <- d.move(t.Context(), "a", "paid", func() { close(holding); <-release })
			}()
			<-holding
			going := make(chan struct{})
			go func() {
				close(going)
				two <- d.move(t.Context(), "a", "paid", nil)
			}()
			<-going
			if name == "postgres" {
				rig.Until(t, "the second waits for the row", func() bool {
					var waits int
					err := d.pool.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits)
					return err == nil && waits == 1
				})
			}
			close(release)
			first, second := <-one, <-two
			if first != nil || !errors.Is(second, semel.ErrSuperseded) {
				t.Errorf("the first is to move it, the second to find it moved: %v, %v", first, second)
			}
			if status, moves := d.status(t, "a"); status != "paid" || moves != 1 {
				t.Errorf("%s after %d moves", status, moves)
			}
		})
	}
}

// between runs something between the statement that changed no row and the read.
type between struct {
	sqlstore.Tx
	do func()
}

func (b between) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	b.do()
	return b.Tx.QueryRowContext(ctx, query, args...)
}

// TestStale: the move that was missing is made by somebody else just before the
// read. The handler is to run again, and then moves the order.
func TestStale(t *testing.T) {
	d := databases["postgres"](t)
	d.insert(t, "a")
	var verdict error
	_, err := d.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		verdict = d.orders.Move(ctx, between{tx, func() {
			if err := d.move(ctx, "a", "paid", nil); err != nil {
				t.Error(err)
			}
		}}, "a", "packed")
		return nil
	})
	if err != nil || !errors.Is(verdict, semel.ErrStale) {
		t.Errorf("%v, %v, want ErrStale", verdict, err)
	}
	if err := d.move(t.Context(), "a", "packed", nil); err != nil {
		t.Error(err)
	}
}
