package docs_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// README: begin

type order struct {
	Event, Customer string
	Cents           int64
}

// decode says where the id is. What is not an order never will be: Invalid.
func decode(d *semel.Delivery) error {
	var o order
	if err := json.Unmarshal(d.Body, &o); err != nil {
		return semel.Invalid(err)
	}
	d.ID, d.Key = o.Event, o.Customer
	return nil
}

// add is the handler. `cents = cents + ?` is what must never happen twice.
func add(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
	var o order
	if err := json.Unmarshal(m.Body, &o); err != nil {
		return semel.Invalid(err)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO balance (customer, cents) VALUES (?, ?)
		ON CONFLICT (customer) DO UPDATE SET cents = cents + excluded.cents`, o.Customer, o.Cents)
	return err
}

func consume(ctx context.Context, spool, file string) error {
	db, err := sqlitestore.Open(ctx, file, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	if err := db.Migrate(ctx); err != nil {
		return err
	}
	files, err := filebroker.Open(ctx, filebroker.Config{Root: spool})
	if err != nil {
		return err
	}
	defer files.Close(ctx)
	c, err := consumer.New(consumer.Config{
		Name:    "orders",
		Decoder: broker.DecoderFunc(decode),
		Horizon: 7 * 24 * 3600e9, // how late a file may come again
		Drain:   &consumer.Drain{},
	}, files, db, consumer.Each(add))
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// README: end

// TestLibrary runs the README's program twice over files that repeat events.
func TestLibrary(t *testing.T) {
	dir := t.TempDir()
	inbox, file := filepath.Join(dir, "inbox"), filepath.Join(dir, "orders.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE balance (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(inbox, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, again := range []string{"a", "b"} {
		for i := range 10 {
			body := fmt.Sprintf(`{"event":"e%d","customer":"c%d","cents":100}`, i, i%2)
			if err := os.WriteFile(filepath.Join(inbox, fmt.Sprintf("%s%d.json", again, i)), []byte(body), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := consume(t.Context(), dir, file); err != nil {
			t.Fatal(err)
		}
	}
	var total int64
	if err := db.QueryRow("SELECT sum(cents) FROM balance").Scan(&total); err != nil || total != 1000 {
		t.Errorf("%d cents (%v), want 1000: ten events of 100", total, err)
	}
}

// TestReadme keeps the README's program the one that is tested here.
func TestReadme(t *testing.T) {
	source := read(t, "library_test.go")
	_, program, _ := strings.Cut(source, "// README: begin\n")
	program, _, found := strings.Cut(program, "// README: end\n")
	if !found {
		t.Fatal("library_test.go has no program between its markers")
	}
	_, block, _ := strings.Cut(read(t, "../../README.md"), "```go\n")
	block, _, _ = strings.Cut(block, "```\n")
	if strings.TrimSpace(block) != strings.TrimSpace(program) {
		t.Errorf("the README's program differs from the tested one; it should be:\n%s", program)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
