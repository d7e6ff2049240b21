package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Enlist writes the worker's marks and compares the identity.
func (s *Store) Enlist(ctx context.Context, w store.Worker) error {
	if w.Consumer == "" || w.Name == "" || w.Slots < 1 {
		return failf(semel.ClassFault, "sqlstore: a worker needs a consumer, a name and at least one slot: %+v", w)
	}
	err := s.update(ctx, func(t *tx) error {
		n, err := t.number(w.Consumer)
		if err != nil {
			return err
		}
		if err := t.identify(n, w); err != nil {
			return err
		}
		if err := t.intact(n, store.Mark{}); err != nil {
			return err
		}
		for slot := range w.Slots {
			_, err := t.exec(`INSERT INTO semel_batch (consumer, worker, slot, batch, open, at) VALUES (?, ?, ?, 0, 0, {now})
				ON CONFLICT (consumer, worker, slot) DO UPDATE SET batch = 0, open = 0, at = excluded.at`, n, blob(w.Name), slot)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.janitor.keep(w.Consumer, w.Name)
	}
	return err
}

func (t *tx) identify(n int64, w store.Worker) error {
	for _, fact := range slices.Sorted(maps.Keys(w.Identity)) {
		want, have := w.Identity[fact], ""
		_, err := t.exec("INSERT INTO semel_identity (consumer, fact, value) VALUES (?, ?, ?) ON CONFLICT (consumer, fact) DO NOTHING", n, fact, want)
		if err != nil {
			return err
		}
		if err := t.one("SELECT value FROM semel_identity WHERE consumer = ? AND fact = ?", []any{&have}, n, fact); err != nil {
			return err
		}
		if have != want {
			return &store.TakenError{Consumer: w.Consumer, Fact: fact, Have: have, Want: want}
		}
	}
	return nil
}

// Retire removes the worker's marks.
func (s *Store) Retire(ctx context.Context, consumer, worker string) error {
	s.janitor.drop(consumer, worker)
	return s.update(ctx, func(t *tx) error {
		n, err := t.lookup(consumer)
		if err == nil {
			_, err = t.exec("DELETE FROM semel_batch WHERE consumer = ? AND worker = ? AND open = 0", n, blob(worker))
		}
		return err
	})
}

// openMark moves the mark to the batch: the first write of the transaction.
func (t *tx) openMark(m store.Mark) error {
	if m == (store.Mark{}) {
		return t.openToken()
	}
	t.mark = m
	n, err := t.lookup(m.Consumer)
	if err != nil {
		return err
	}
	t.args = append(t.args[:0], m.Batch, n, blob(m.Worker), m.Slot, m.Batch-1)
	moved, err := t.exec(`UPDATE semel_batch SET batch = ?, open = 1, at = {now}
		WHERE consumer = ? AND worker = ? AND slot = ? AND batch = ? AND open = 0`, t.args...)
	if err != nil || moved == 1 {
		return err
	}
	return t.markError(n, m)
}

// openToken writes a mark that nobody else knows, where only an open mark keeps
// a handler from committing.
func (t *tx) openToken() error {
	if !t.store.dialect.Server || !t.guest || t.store.dialect.Savepoint {
		return nil
	}
	if !t.store.ready.Load() {
		var there int64
		if err := t.one(t.store.dialect.HasTable, []any{&there}, "semel_batch"); err != nil || there == 0 {
			return err // no pipeline has run here yet, so there is nothing that the commit could contradict
		}
		t.store.ready.Store(true)
	}
	t.token = []byte(rand.Text())
	_, err := t.exec("INSERT INTO semel_batch (consumer, worker, slot, batch, open, at) VALUES (0, ?, 0, 0, 1, {now})", t.token)
	return err
}

func (t *tx) closeToken() error {
	if t.token == nil {
		return nil
	}
	moved, err := t.exec("DELETE FROM semel_batch WHERE consumer = 0 AND worker = ? AND slot = 0", t.token)
	if err == nil && moved != 1 {
		err = ended("ROLLBACK")
	}
	return err
}

func (t *tx) markError(n int64, m store.Mark) error {
	var batch, open int64
	err := t.one("SELECT batch, open FROM semel_batch WHERE consumer = ? AND worker = ? AND slot = ?", []any{&batch, &open}, n, blob(m.Worker), m.Slot)
	why := fmt.Sprintf("it is at batch %d: someone else uses the slot, or a commit was taken for lost", batch)
	if errors.Is(err, sql.ErrNoRows) {
		why = "it does not exist: the worker was not enlisted, or was retired or purged"
	} else if err != nil {
		return err
	}
	return failf(semel.ClassFault, "sqlstore: worker %q slot %d of %q can not begin batch %d: its mark is not there: %s", m.Worker, m.Slot, m.Consumer, m.Batch, why)
}

// closeMark is the last write of the transaction.
func (t *tx) closeMark(m store.Mark) error {
	if m == (store.Mark{}) {
		return t.closeToken()
	}
	// t.args still has batch, consumer, worker and slot in this order.
	moved, err := t.exec("UPDATE semel_batch SET open = 0 WHERE batch = ? AND consumer = ? AND worker = ? AND slot = ? AND open = 1", t.args[:4]...)
	if err == nil && moved != 1 {
		err = fmt.Errorf("sqlstore: the mark of batch %d changed within its own transaction: %w", m.Batch, ended("ROLLBACK"))
	}
	return err
}

// savepoint is gone when the transaction has ended, however it ended.
const savepoint = "semel_the_pipeline_commits"

// save sets it, where nothing else tells that a handler ended the transaction.
func (t *tx) save() error {
	if !t.store.dialect.Savepoint || !t.guest {
		return nil
	}
	err := t.ddl("SAVEPOINT " + savepoint)
	t.watched = err == nil
	return err
}

// saved reports whether the transaction is still the one that was begun. A
// statement that the server never saw leaves that open: true.
func (t *tx) saved() bool {
	if !t.watched {
		return true
	}
	_, err := t.session.conn.ExecContext(context.Background(), "RELEASE SAVEPOINT "+savepoint)
	return err == nil || t.store.Classify(err) == semel.ClassInfrastructure
}

// intact refuses to go on where an open mark is committed: a handler has
// committed in the middle of that batch, so records and fences may be stored
// whose effects are not. own is the mark that this transaction has open itself.
func (t *tx) intact(n int64, own store.Mark) error {
	if !t.store.dialect.Savepoint {
		return nil
	}
	var by []byte
	var slot, batch, at int64
	err := t.one("SELECT worker, slot, batch, at FROM semel_batch WHERE consumer = ? AND open = 1 AND NOT (worker = ? AND slot = ?) LIMIT 1",
		[]any{&by, &slot, &batch, &at}, n, blob(own.Worker), own.Slot)
	if err == nil {
		return halfDone(by, slot, batch, time.UnixMilli(at))
	}
	return ignoreNone(err)
}

func halfDone(worker []byte, slot, batch int64, at time.Time) error {
	return failf(semel.ClassFault, "sqlstore: %w: batch %d of worker %q (slot %d, %s) was committed by its handler before it was complete, so messages may count as handled whose effects are missing; "+
		"mend the handler, complete or undo the effects of that time, and then: UPDATE semel_batch SET open = 0 WHERE open = 1",
		store.ErrEnded, batch, worker, slot, at.UTC().Format(time.RFC3339Nano))
}
