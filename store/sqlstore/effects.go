package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

var _ store.Effects = (*Store)(nil)

const effectCols = "key, fingerprint, state, token, attempts, holder, until, result, size, note, at"

// scanEffect reads a row as it is at now.
func scanEffect(r *sql.Rows, now int64) (e store.Effect, err error) {
	var until int64
	var state string
	err = r.Scan(&e.Key, (*fingerprint)(&e.Fingerprint), &state, &e.Token, &e.Attempts, &e.Holder, &until,
		(*body)(&e.Result), &e.Size, &e.Note, (*millis)(&e.Updated))
	e.State = store.EffectState(state)
	e.Lease = max(0, time.Duration(until-now)*time.Millisecond)
	return e, err
}

// MoveEffect is a transaction of its own.
func (s *Store) MoveEffect(ctx context.Context, consumer string, from int64, e store.Effect) (now store.Effect, moved bool, err error) {
	if n := len(e.Key); n < 1 || n > semel.MaxIDBytes {
		return now, false, failf(semel.ClassPermanent, "sqlstore: a key has %d bytes; 1 to %d are allowed", n, semel.MaxIDBytes)
	}
	err = s.update(ctx, func(t *tx) error {
		n, err := t.number(consumer)
		if err != nil {
			return err
		}
		if moved, err = t.moveEffect(n, from, &e); err != nil {
			return err
		}
		now, err = t.effect(n, e.Key)
		return err
	})
	if err != nil {
		return store.Effect{}, false, err
	}
	return now, moved, nil
}

func (t *tx) moveEffect(n, from int64, e *store.Effect) (bool, error) {
	now, err := t.now()
	if err != nil {
		return false, err
	}
	values := []any{e.Fingerprint[:], string(e.State), e.Attempts, blob(e.Holder), now + e.Lease.Milliseconds(), e.Result, e.Size, blob(e.Note), now}
	var moved int64
	if from == 0 {
		moved, err = t.exec(`INSERT INTO semel_effect (fingerprint, state, attempts, holder, until, result, size, note, at, consumer, key, token)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (consumer, key) DO NOTHING`, append(values, n, blob(e.Key))...)
	} else {
		moved, err = t.exec(`UPDATE semel_effect SET fingerprint = ?, state = ?, attempts = ?, holder = ?, until = ?, result = ?, size = ?, note = ?, at = ?,
			token = token + 1 WHERE consumer = ? AND key = ? AND token = ?`, append(values, n, blob(e.Key), from)...)
	}
	return moved == 1, err
}

// effect reads a row in the transaction that wrote it, or met it.
func (t *tx) effect(n int64, key string) (e store.Effect, err error) {
	now, err := t.now()
	if err != nil {
		return e, err
	}
	err = t.each("SELECT "+effectCols+" FROM semel_effect WHERE consumer = ? AND key = ?{lock}", func(r *sql.Rows) (err error) {
		e, err = scanEffect(r, now)
		return err
	}, n, blob(key))
	return e, err
}

// Effects reads beside the writers.
func (s *Store) Effects(ctx context.Context, consumer string, q store.EffectQuery) (out []store.Effect, err error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	err = s.read(ctx, func(r reader) error {
		n, err := r.number(consumer)
		if err != nil || n == 0 {
			return err
		}
		var now int64
		if err := r.one("SELECT {now}", []any{&now}); err != nil {
			return err
		}
		where, args := "state = 'intended'", []any{n, blob(q.After)}
		if q.Key != "" {
			where, args = "key = ?", append(args, blob(q.Key))
		}
		return r.each("SELECT "+effectCols+" FROM semel_effect WHERE consumer = ? AND key > ? AND "+where+" ORDER BY key LIMIT ?", func(rows *sql.Rows) error {
			e, err := scanEffect(rows, now)
			out = append(out, e)
			return err
		}, append(args, q.Limit)...)
	})
	return out, err
}

// purgeEffects leaves those that are in doubt: without their row they would
// happen again.
func (t *tx) purgeEffects(n, before int64, limit int) (int64, error) {
	var keys [][]byte
	err := t.each("SELECT key FROM semel_effect WHERE consumer = ? AND state <> 'intended' AND at <= ? LIMIT ?{lock}", func(r *sql.Rows) error {
		var key []byte
		err := r.Scan(&key)
		keys = append(keys, key)
		return err
	}, n, before, limit)
	for i := 0; err == nil && i < len(keys); i++ {
		_, err = t.exec("DELETE FROM semel_effect WHERE consumer = ? AND key = ?", n, keys[i])
	}
	return int64(len(keys)), err
}
