// Command worker is a program of a user: the library on a directory queue and
// SQLite, with a handler in Go. One id may be deadly: its handler, or its
// decoder, kills the process, as running out of memory or a fault in C code does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/internal/trap"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

type options struct {
	root, db, deadly, unreadable string
	http, panics                 string
	lines                        bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "", "the directory queue")
	flag.StringVar(&o.db, "db", "", "the database")
	flag.StringVar(&o.deadly, "deadly", "", "the id whose handler kills the process")
	flag.StringVar(&o.unreadable, "unreadable", "", "the id whose decoder kills the process")
	flag.BoolVar(&o.lines, "lines", false, "every line of a file is a message")
	flag.StringVar(&o.http, "http", "", "where to answer questions about the run; it then goes on until it is told to stop")
	flag.StringVar(&o.panics, "panics", "", "while this file is there, handlers panic")
	flag.Parse()
	_, err := trap.Arm(os.Getenv, append(fault.All(), filebroker.Points()...))
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = run(ctx, o)
		stop()
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
	defer src.Close(context.WithoutCancel(ctx))
	mon := observe.NewMonitor(observe.Config{Pipeline: "worker"})
	pipeline := consumer.Config{
		Name: "worker", Decoder: broker.DecoderFunc(decoder(o.unreadable)), Horizon: 24 * time.Hour, Drain: &consumer.Drain{},
		Observer: mon.Observer(),
	}
	if o.http != "" {
		pipeline.Drain = nil
	}
	c, err := consumer.New(pipeline, src, st, consumer.Each(handler(o)))
	if err != nil {
		return err
	}
	if o.http != "" {
		if err := serve(ctx, o.http, mon, observe.Target{Account: c.Account, Depth: src.Depth, Status: func(ctx context.Context) (store.Status, error) {
			return st.Status(ctx, "worker", false)
		}}); err != nil {
			return err
		}
	}
	return c.Run(ctx)
}

// serve answers questions until ctx ends.
func serve(ctx context.Context, at string, mon *observe.Monitor, t observe.Target) error {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "http://%v/metrics\n", ln.Addr())
	go mon.Watch(ctx, t)
	go func() {
		if err := mon.Serve(ctx, ln); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
	}()
	return nil
}

type body struct {
	ID, Key string
	Rev     int64
}

func decoder(deadly string) func(*semel.Delivery) error {
	return func(d *semel.Delivery) error {
		var b body
		if err := json.Unmarshal(d.Body, &b); err != nil {
			return semel.Invalid(err)
		}
		if b.ID == deadly {
			trap.Kill()
		}
		d.ID, d.Key = b.ID, b.Key
		return nil
	}
}

func handler(o options) func(context.Context, sqlstore.Tx, semel.Message) error {
	return func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		if m.ID == o.deadly {
			trap.Kill()
		}
		if _, err := os.Stat(o.panics); o.panics != "" && err == nil {
			panic("told to")
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
