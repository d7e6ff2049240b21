// Command worker is a program of a user: the library on a directory queue and
// SQLite, with a handler in Go. One id may be deadly: its handler kills the
// process, as running out of memory or a fault in C code does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/internal/trap"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

type options struct {
	root, db, deadly string
	lines            bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "", "the directory queue")
	flag.StringVar(&o.db, "db", "", "the database")
	flag.StringVar(&o.deadly, "deadly", "", "the id whose handler kills the process")
	flag.BoolVar(&o.lines, "lines", false, "every line of a file is a message")
	flag.Parse()
	_, err := trap.Arm(os.Getenv, append(fault.All(), filebroker.Points()...))
	if err == nil {
		err = run(context.Background(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(2)
	}
}

const tables = `
CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, key TEXT NOT NULL, rev INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counter (n INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)`

func run(ctx context.Context, o options) error {
	st, err := sqlitestore.Open(ctx, o.db, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer st.Close(ctx)
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	_, err = st.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, tables)
		return err
	})
	if err != nil {
		return err
	}
	cfg := filebroker.Config{Root: o.root, Report: func(name string, err error) { fmt.Fprintf(os.Stderr, "%s: %v\n", name, err) }}
	if o.lines {
		cfg.Files = filebroker.Lines
	}
	src, err := filebroker.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer src.Close(ctx)
	c, err := consumer.New(consumer.Config{
		Name: "worker", Decoder: broker.DecoderFunc(decode), Horizon: 24 * time.Hour, Drain: &consumer.Drain{},
	}, src, st, consumer.Each(handler(o.deadly)))
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

type body struct {
	ID, Key string
	Rev     int64
}

func decode(d *semel.Delivery) error {
	var b body
	if err := json.Unmarshal(d.Body, &b); err != nil {
		return semel.Invalid(err)
	}
	d.ID, d.Key = b.ID, b.Key
	return nil
}

func handler(deadly string) func(context.Context, sqlstore.Tx, semel.Message) error {
	return func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		if m.ID == deadly {
			trap.Kill()
		}
		var b body
		if err := json.Unmarshal(m.Body, &b); err != nil {
			return semel.Invalid(err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = n + 1"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (id, key, rev) VALUES (?, ?, ?)", b.ID, b.Key, b.Rev)
		return err
	}
}
