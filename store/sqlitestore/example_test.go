package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// A pipeline does this for every batch: the record that a message was handled
// and its effect are rows of one transaction. Here it happens twice for the same
// message.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, filepath.Join(dir, "orders.db"), sqlitestore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	if err := s.Migrate(ctx); err != nil {
		log.Fatal(err)
	}

	order := semel.Message{ID: "evt-1", Body: []byte(`{"order": "A-17", "total": 42}`)}
	for range 2 {
		outcome, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
			record := store.Record{ID: order.ID, Fingerprint: store.Print(&order), Verdict: semel.Applied}
			prior, err := s.Claim(ctx, tx, "orders", []store.Record{record}, nil)
			if err != nil {
				return err
			}
			fmt.Println("handled before:", len(prior) > 0)
			if len(prior) > 0 {
				return nil
			}
			if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (body TEXT NOT NULL)`); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO orders (body) VALUES (?)`, string(order.Body))
			return err
		})
		fmt.Println("committed:", outcome == store.Committed, err)
	}
	// Output:
	// handled before: false
	// committed: true <nil>
	// handled before: true
	// committed: true <nil>
}

// The user's own pool: semel's tables and the user's are in one database, and a
// handler's effects are visible through the pool once they are committed.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE stock (item TEXT PRIMARY KEY, n INTEGER NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	s, err := sqlitestore.New(ctx, db, sqlitestore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	_, err = s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO stock VALUES ('screw', 100)")
		return err
	})
	var n int
	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT n FROM stock WHERE item = 'screw'").Scan(&n)
	}
	fmt.Println(n, err)
	// Output: 100 <nil>
}
