// Command broken is a consumer as people write it by hand, on the same
// directory queue, the same messages and the same tables as the pipelines of
// test/e2e, with the same fault points. One variant is sound; each of the
// others makes one well-known mistake. The checker has to find every one of
// them: that is what its silence about semel is worth.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/internal/trap"
)

// variant names a mistake.
type variant string

const (
	sound            variant = "sound"
	ackFirst         variant = "ack-before-commit"
	noInbox          variant = "no-inbox"
	checkThenInsert  variant = "check-then-insert"
	recordAfter      variant = "record-after-commit"
	markFirst        variant = "mark-before-work"
	letterAfterAck   variant = "letter-after-ack"
	parkedUnrecorded variant = "parked-without-record"
)

// attempts is how often a message that may pass later is tried.
const attempts = 1000

func main() {
	var c consumer
	var v string
	flag.StringVar(&c.root, "root", "", "the directory queue")
	flag.StringVar(&c.path, "db", "", "the database")
	flag.StringVar(&c.worker, "worker", "one", "name of this worker; it resumes what the name had claimed")
	flag.StringVar(&v, "variant", string(sound), "the mistake to make")
	flag.Parse()
	c.variant = variant(v)
	_, err := trap.Arm(os.Getenv, fault.All())
	if err == nil {
		err = c.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "broken:", err)
		os.Exit(2)
	}
}

type consumer struct {
	root, path, worker string
	variant            variant
	db                 *sql.Conn
}

type message struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Rev    int64  `json:"rev"`
	Amount int64  `json:"amount"`
	After  string `json:"after"`
	Skip   bool   `json:"skip"`
}

// errLater: the message may pass when it is tried again.
var errLater = errors.New("what it refers to is not there yet")

const tables = `
CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, key TEXT NOT NULL, rev INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counter (n INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
CREATE TABLE IF NOT EXISTS amounts (amount INTEGER NOT NULL CHECK (amount >= 0));
CREATE TABLE IF NOT EXISTS inbox (id TEXT NOT NULL PRIMARY KEY);
CREATE TABLE IF NOT EXISTS semel_letter (id TEXT NOT NULL, body BLOB, state TEXT NOT NULL, attempts INTEGER NOT NULL, ref TEXT NOT NULL UNIQUE)`

func (c *consumer) run(ctx context.Context) error {
	db, err := sql.Open("sqlite", "file:"+c.path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if c.db, err = db.Conn(ctx); err != nil {
		return err
	}
	defer c.db.Close()
	if err := c.tx(ctx, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, tables); return err }); err != nil {
		return err
	}
	for _, dir := range []string{"inbox", "processing/" + c.worker, "done", "error"} {
		if err := os.MkdirAll(filepath.Join(c.root, dir), 0o777); err != nil {
			return err
		}
	}
	for {
		n, err := c.round(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
}

// round handles everything there is and returns how much it was.
func (c *consumer) round(ctx context.Context) (n int, err error) {
	for _, dir := range []string{"processing/" + c.worker, "inbox"} {
		entries, err := os.ReadDir(filepath.Join(c.root, dir))
		if err != nil {
			return n, err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			err := os.Rename(filepath.Join(c.root, dir, e.Name()), c.claimed(e.Name()))
			if errors.Is(err, os.ErrNotExist) {
				continue // another worker was faster
			}
			if err != nil {
				return n, err
			}
			if err := c.deliver(ctx, e.Name()); err != nil {
				return n, err
			}
			n++
		}
	}
	again, err := c.retry(ctx)
	return n + again, err
}

func (c *consumer) claimed(name string) string {
	return filepath.Join(c.root, "processing", c.worker, name)
}

// settle is the acknowledgement.
func (c *consumer) settle(name, stage string) error {
	return os.Rename(c.claimed(name), filepath.Join(c.root, stage, name))
}

func (c *consumer) deliver(ctx context.Context, name string) error {
	body, err := os.ReadFile(c.claimed(name))
	if err != nil {
		return err
	}
	fault.Hit(fault.Received)
	var m message
	if err := json.Unmarshal(body, &m); err != nil || m.ID == "" {
		return c.bury(ctx, name, message{}, body)
	}
	fault.Hit(fault.Decoded)
	if m.Skip {
		return c.settle(name, "done")
	}
	fresh, err := c.admitted(ctx, m)
	if err != nil {
		return err
	}
	if fresh {
		err = c.apply(ctx, name, m)
	} else {
		err = c.settleKnown(ctx, name, m)
	}
	switch {
	case errors.Is(err, errLater):
		return c.park(ctx, name, m, body, "retry")
	case err != nil && strings.Contains(err.Error(), "CHECK constraint"):
		return c.bury(ctx, name, m, body)
	}
	return err
}

// admitted asks before the transaction, where a variant does that.
func (c *consumer) admitted(ctx context.Context, m message) (fresh bool, err error) {
	switch c.variant {
	case checkThenInsert, recordAfter:
		var n int
		err := c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM inbox WHERE id = ?", m.ID).Scan(&n)
		fault.Hit(fault.Opened)
		return n == 0, err
	case markFirst:
		err := c.tx(ctx, func(tx *sql.Tx) (err error) {
			fresh, err = insert(ctx, tx, m.ID)
			return err
		})
		fault.Hit(fault.Opened)
		return fresh, err
	}
	return true, nil
}

// insert claims an id and reports whether it was new.
func insert(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	r, err := tx.ExecContext(ctx, "INSERT INTO inbox (id) VALUES (?) ON CONFLICT DO NOTHING", id)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

func (c *consumer) apply(ctx context.Context, name string, m message) error {
	known := false
	err := c.tx(ctx, func(tx *sql.Tx) error {
		switch c.variant {
		case sound, ackFirst, letterAfterAck, parkedUnrecorded:
			fault.Hit(fault.Opened)
			fresh, err := insert(ctx, tx, m.ID)
			if known = !fresh; err != nil || known {
				return err
			}
		case checkThenInsert:
			if _, err := insert(ctx, tx, m.ID); err != nil {
				return err
			}
		}
		fault.Hit(fault.Admitted)
		if err := effects(ctx, tx, m); err != nil {
			return err
		}
		fault.Hit(fault.Handled)
		if c.variant == ackFirst {
			err := c.settle(name, "done")
			fault.Hit(fault.Settling)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	fault.Hit(fault.Committed)
	switch {
	case known:
		return c.settleKnown(ctx, name, m)
	case c.variant == ackFirst:
		return nil
	case c.variant == recordAfter:
		if err := c.tx(ctx, func(tx *sql.Tx) error { _, err := insert(ctx, tx, m.ID); return err }); err != nil {
			return err
		}
	}
	fault.Hit(fault.Settling)
	return c.settle(name, "done")
}

// settleKnown acknowledges a repeat, with its first delivery.
func (c *consumer) settleKnown(ctx context.Context, name string, m message) error {
	var dead int
	err := c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM semel_letter WHERE id = ? AND state = 'dead'", m.ID).Scan(&dead)
	if err != nil {
		return err
	}
	if dead > 0 {
		return c.settle(name, "error")
	}
	return c.settle(name, "done")
}

// effects are the statements of the pipelines in test/e2e.
func effects(ctx context.Context, tx *sql.Tx, m message) error {
	if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = n + 1"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (id, key, rev) VALUES (?, ?, ?)", m.ID, m.Key, m.Rev); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO amounts (amount) VALUES (?)", m.Amount); err != nil {
		return err
	}
	if m.After == "" {
		return nil
	}
	var n int
	err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM effects WHERE id = ?", m.After).Scan(&n)
	if err == nil && n == 0 {
		err = errLater
	}
	return err
}

func (c *consumer) bury(ctx context.Context, name string, m message, body []byte) error {
	return c.park(ctx, name, m, body, "dead")
}

// park stores a letter and acknowledges its message.
func (c *consumer) park(ctx context.Context, name string, m message, body []byte, state string) error {
	stage := "done"
	if state == "dead" {
		stage = "error"
	}
	if c.variant == letterAfterAck {
		if err := c.settle(name, stage); err != nil {
			return err
		}
		fault.Hit(fault.Parked)
	}
	ref := m.ID
	if ref == "" {
		ref = "file " + name
	}
	err := c.tx(ctx, func(tx *sql.Tx) error {
		if m.ID != "" && (c.variant != parkedUnrecorded || state == "dead") {
			if _, err := insert(ctx, tx, m.ID); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO semel_letter (id, body, state, attempts, ref) VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING", m.ID, body, state, ref)
		if c.variant != letterAfterAck {
			fault.Hit(fault.Parked)
		}
		return err
	})
	if err != nil || c.variant == letterAfterAck {
		return err
	}
	fault.Hit(fault.Stored)
	return c.settle(name, stage)
}

// retry takes the letters up that may pass now. It returns how many changed.
func (c *consumer) retry(ctx context.Context) (n int, err error) {
	for {
		var ref string
		var body []byte
		err := c.db.QueryRowContext(ctx, `SELECT ref, body FROM semel_letter WHERE state = 'retry' AND attempts < ?
			AND body ->> 'after' IN (SELECT id FROM effects) LIMIT 1`, attempts).Scan(&ref, &body)
		if errors.Is(err, sql.ErrNoRows) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			return n, err
		}
		err = c.tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE semel_letter SET state = 'applied', attempts = attempts + 1 WHERE ref = ?", ref); err != nil {
				return err
			}
			fault.Hit(fault.Retaken)
			return effects(ctx, tx, m)
		})
		if err != nil {
			return n, err
		}
		n++
	}
}

func (c *consumer) tx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
