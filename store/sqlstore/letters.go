package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Columns of a message, in the order of messageArgs.
const messageCols = "id, key, type, source, time_s, time_ns, version_n, version_tie, version_set, header, body, fingerprint"

func messageArgs(m *semel.Message, f store.Fingerprint) []any {
	return []any{
		blob(m.ID), blob(m.Key), blob(m.Type), blob(m.Source), m.Time.Unix(), int64(m.Time.Nanosecond()),
		m.Version.N, blob(m.Version.Tie), flag(m.Version.Set), packHeader(m.Header), m.Body, f[:],
	}
}

// messageRow scans messageCols, or without header and body.
type messageRow struct{ s, ns int64 }

func (r *messageRow) dest(m *semel.Message, f *store.Fingerprint, bodies bool) []any {
	d := []any{&m.ID, &m.Key, &m.Type, &m.Source, &r.s, &r.ns, &m.Version.N, &m.Version.Tie, &m.Version.Set}
	if bodies {
		d = append(d, (*header)(&m.Header), (*body)(&m.Body))
	}
	return append(d, (*fingerprint)(f))
}

func (r *messageRow) time() time.Time { return time.Unix(r.s, r.ns).UTC() }

// Columns of a letter for reading; row comes first.
const (
	briefCols  = "l.row, l.ref, l.id, l.key, l.type, l.source, l.time_s, l.time_ns, l.version_n, l.version_tie, l.version_set, l.fingerprint, " + letterRest
	fullCols   = "l.row, l.ref, l.id, l.key, l.type, l.source, l.time_s, l.time_ns, l.version_n, l.version_tie, l.version_set, l.header, l.body, l.fingerprint, " + letterRest
	letterRest = `l.origin, l.state, l.version, l.number, l.class, l.reason, l.conflict, l.attempts, l.seen, l.error, l.stack, l.cause,
		l.due, l.created, l.updated, l.failed, l.actor, l.note, l.proposed`
	letterFrom = " FROM semel_letter l "
)

func letterCols(bodies bool) string {
	if bodies {
		return fullCols
	}
	return briefCols
}

func scanLetter(r *sql.Rows, consumer string, bodies bool) (row int64, l store.Letter, err error) {
	var m messageRow
	dest := append([]any{&row, &l.Ref}, m.dest(&l.Message, &l.Fingerprint, bodies)...)
	err = r.Scan(append(dest, &l.Origin, &l.State, &l.Version, &l.Number, &l.Class, &l.Reason, &l.Conflict, &l.Attempts, &l.Seen,
		&l.Error, &l.Stack, &l.Cause.ID, (*millis)(&l.Due), (*millis)(&l.Created), (*millis)(&l.Updated), (*millis)(&l.Failed),
		&l.By, &l.Note, &l.Proposed)...)
	l.Message.Time, l.Consumer = m.time(), consumer
	return row, l, err
}

const anyLetter = "SELECT EXISTS (SELECT 1 FROM semel_letter WHERE consumer = ?)"

// Any reports whether the consumer has letters.
func (s *Store) Any(ctx context.Context, x Tx, consumer string) (bool, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return false, err
	}
	defer t.mu.Unlock()
	return t.some(anyLetter, n)
}

// Find reads the letters of ids and refs.
func (s *Store) Find(ctx context.Context, x Tx, consumer string, ids, refs []string, out []store.Letter) ([]store.Letter, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return out, err
	}
	defer t.mu.Unlock()
	if some, err := t.some(anyLetter, n); err != nil || !some {
		return out, err
	}
	seen := make(map[int64]bool)
	find := func(names []string, column string) error {
		return t.chunks(names, func(marks string, args []any) error {
			q := "SELECT " + briefCols + letterFrom + "WHERE l." + column + " IN (" + marks + ") AND l.consumer = ? ORDER BY l.row{lock}"
			return t.each(q, func(r *sql.Rows) error {
				row, l, err := scanLetter(r, consumer, false)
				if err == nil && !seen[row] {
					seen[row] = true
					out = append(out, l)
				}
				return err
			}, append(args, n)...)
		})
	}
	if err = find(ids, "id"); err == nil {
		err = find(refs, "ref")
	}
	return out, err
}

// Park writes new letters.
func (s *Store) Park(ctx context.Context, x Tx, ps []store.Parking, exists []int) ([]int, error) {
	for i := range ps {
		fresh, err := s.park(ctx, x, &ps[i])
		if err != nil {
			return exists, err
		}
		if !fresh {
			exists = append(exists, i)
		}
	}
	return exists, nil
}

func (s *Store) park(ctx context.Context, x Tx, p *store.Parking) (fresh bool, err error) {
	t, n, err := s.set(ctx, x, p.Consumer)
	if err != nil {
		return false, err
	}
	defer t.mu.Unlock()
	now, err := t.now()
	if err != nil {
		return false, err
	}
	version, err := t.makeWay(n, p.Ref)
	if err != nil || version == 0 {
		return false, err
	}
	failed, err := t.knowCause(n, p.Cause, p.Class, p.Reason, now)
	if err != nil {
		return false, err
	}
	args := append([]any{n, blob(p.Ref)}, messageArgs(&p.Message, p.Fingerprint)...)
	args = append(args, blob(p.Origin), string(p.State), flag(p.State.Open()), p.Number, string(p.Class), p.Reason, flag(p.Conflict),
		p.Attempts, p.Seen, p.Error, p.Stack, blob(p.Cause.ID), due(p.State, now, p.Delay), now, now, failed, p.By, p.Note, p.Proposed, version)
	moved, err := t.exec(`INSERT INTO semel_letter (consumer, ref, `+messageCols+`, origin, state, open, number, class, reason, conflict,
		attempts, seen, error, stack, cause, due, created, updated, failed, actor, note, proposed, version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (consumer, ref) DO NOTHING`, args...)
	if err != nil || moved == 0 { // someone else was first
		return false, err
	}
	return true, t.attempt(n, p.Ref, p.Attempt, now)
}

// knowCause notes what a cause means and returns when the failure was: now, or
// never if there is none.
func (t *tx) knowCause(n int64, c store.Cause, class store.Class, reason string, now int64) (failed int64, err error) {
	if c.ID == "" {
		return 0, nil
	}
	_, err = t.exec("INSERT INTO semel_cause (consumer, cause, class, reason, text) VALUES (?, ?, ?, ?, ?) ON CONFLICT (consumer, cause) DO NOTHING",
		n, blob(c.ID), string(class), reason, c.Text)
	return now, err
}

// makeWay returns the version of a new letter with this ref: 1, or one more
// than that of a letter that is done with and gives way. It is 0 if there is
// one that stays.
func (t *tx) makeWay(n int64, ref string) (int64, error) {
	var row, version int64
	var state store.State
	err := t.one("SELECT row, version, state FROM semel_letter WHERE consumer = ? AND ref = ?{lock}", []any{&row, &version, &state}, n, blob(ref))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 1, nil
	case err != nil:
		return 0, err
	case state == store.StateApplied || state == store.StateSuperseded || state == store.StateDuplicate:
		return version + 1, t.deleteLetter(row)
	}
	return 0, nil
}

// deleteLetter removes a letter with all that hangs on it.
func (t *tx) deleteLetter(row int64) error {
	for _, q := range []string{
		"DELETE FROM semel_letter_attempt WHERE letter = ?",
		"DELETE FROM semel_letter_revision WHERE letter = ?",
		"DELETE FROM semel_letter WHERE row = ?",
	} {
		if _, err := t.exec(q, row); err != nil {
			return err
		}
	}
	return nil
}

// due is when a letter may run: only a retry has a time.
func due(state store.State, now int64, delay time.Duration) int64 {
	if state != store.StateRetry {
		return 0
	}
	return now + delay.Milliseconds()
}

func (t *tx) attempt(n int64, ref string, a store.Attempt, now int64) error {
	if a.N == 0 {
		return nil
	}
	at := now
	if !a.At.IsZero() {
		at = a.At.UnixMilli()
	}
	_, err := t.exec(`INSERT INTO semel_letter_attempt (letter, n, at, class, error, stack, worker)
		SELECT row, ?, ?, ?, ?, ?, ? FROM semel_letter WHERE consumer = ? AND ref = ?
		ON CONFLICT (letter, n) DO UPDATE SET at = excluded.at, class = excluded.class, error = excluded.error,
		stack = excluded.stack, worker = excluded.worker`,
		a.N, at, int64(a.Class), a.Error, a.Stack, blob(a.Worker), n, blob(ref))
	return err
}

// Move makes transitions.
func (s *Store) Move(ctx context.Context, x Tx, consumer string, ms []store.Move, missed []int) ([]int, error) {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return missed, err
	}
	defer t.mu.Unlock()
	now, err := t.now()
	if err != nil {
		return missed, err
	}
	for i := range ms {
		moved, err := t.move(n, &ms[i], now)
		if err != nil {
			return missed, err
		}
		if !moved {
			missed = append(missed, i)
		}
	}
	return missed, nil
}

// move is the compare-and-set; what else the transition brings follows in the
// same transaction.
func (t *tx) move(n int64, m *store.Move, now int64) (bool, error) {
	ref := blob(m.Ref)
	moved, err := t.exec(`UPDATE semel_letter SET state = ?, open = ?, due = ?, number = ?, updated = ?, version = version + 1
		WHERE consumer = ? AND ref = ? AND version = ?`,
		string(m.To), flag(m.To.Open()), due(m.To, now, m.Delay), m.Number, now, n, ref, m.Version)
	if err != nil || moved == 0 {
		return false, err
	}
	if m.Attempt.N != 0 {
		err = t.failed(n, m, now)
	}
	if err == nil && m.By != "" {
		_, err = t.exec("UPDATE semel_letter SET actor = ?, note = ? WHERE consumer = ? AND ref = ?", m.By, m.Note, n, ref)
	}
	if err == nil && m.Revised != nil {
		err = t.revise(n, ref, m.Revised)
	}
	if err == nil && (m.Revised != nil || !m.To.Open()) {
		// Revised or closed: no proposal waits for a decision any more.
		_, err = t.exec("UPDATE semel_letter SET proposed = 0 WHERE consumer = ? AND ref = ?", n, ref)
	}
	return true, err
}

// failed stores what a move says of a failure.
func (t *tx) failed(n int64, m *store.Move, now int64) error {
	ref := blob(m.Ref)
	_, err := t.exec("UPDATE semel_letter SET class = ?, reason = ?, error = ?, stack = ?, attempts = ? WHERE consumer = ? AND ref = ?",
		string(m.Class), m.Reason, m.Attempt.Error, m.Attempt.Stack, m.Attempts, n, ref)
	if err == nil && m.Cause.ID != "" {
		_, err = t.knowCause(n, m.Cause, m.Class, m.Reason, now)
	}
	if err == nil && m.Cause.ID != "" {
		_, err = t.exec("UPDATE semel_letter SET cause = ?, failed = ? WHERE consumer = ? AND ref = ?", blob(m.Cause.ID), now, n, ref)
	}
	if err != nil {
		return err
	}
	return t.attempt(n, m.Ref, m.Attempt, now)
}

// revise replaces the content of a letter. The first time, what the producer
// sent is put aside.
func (t *tx) revise(n int64, ref []byte, r *store.Revised) error {
	_, err := t.exec(`INSERT INTO semel_letter_revision (letter, n, at, actor, note, `+messageCols+`)
		SELECT row, 0, created, '', '', `+messageCols+` FROM semel_letter WHERE consumer = ? AND ref = ?
		ON CONFLICT (letter, n) DO NOTHING`, n, ref)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE semel_letter SET id = ?, key = ?, type = ?, source = ?, time_s = ?, time_ns = ?, version_n = ?,
		version_tie = ?, version_set = ?, header = ?, body = ?, fingerprint = ? WHERE consumer = ? AND ref = ?`,
		append(messageArgs(&r.Message, r.Fingerprint), n, ref)...)
	return err
}

// Note counts redeliveries and stores proposals.
func (s *Store) Note(ctx context.Context, x Tx, consumer string, seen []string, rs []store.Revision) error {
	t, n, err := s.set(ctx, x, consumer)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	for _, ref := range seen {
		if _, err := t.exec("UPDATE semel_letter SET seen = seen + 1 WHERE consumer = ? AND ref = ?", n, blob(ref)); err != nil {
			return err
		}
	}
	for i := range rs {
		if err := t.propose(n, &rs[i]); err != nil {
			return err
		}
	}
	return nil
}

// propose stores content beside a letter, as the newest. What is there already
// from the same hand is not stored twice.
func (t *tx) propose(n int64, r *store.Revision) error {
	now, err := t.now()
	if err != nil {
		return err
	}
	var row, newest, same int64
	if err := t.lockLetter(n, r.Ref); err != nil {
		return ignoreNone(err)
	}
	err = t.one(`SELECT l.row, COALESCE(MAX(r.n), 0), COALESCE(MAX(CASE WHEN r.fingerprint = ? AND r.actor = ? THEN r.n END), 0) FROM semel_letter l
		LEFT JOIN semel_letter_revision r ON r.letter = l.row AND r.n > 0 WHERE l.consumer = ? AND l.ref = ? GROUP BY l.row`,
		[]any{&row, &newest, &same}, r.Fingerprint[:], r.By, n, blob(r.Ref))
	if err != nil {
		return err
	}
	proposed := "proposed + 1"
	if same > 0 {
		proposed = "CASE WHEN proposed = 0 THEN 1 ELSE proposed END"
	}
	if same == 0 || same < newest {
		if err := t.renew(row, newest+1, same, now, r); err != nil {
			return err
		}
	}
	_, err = t.exec("UPDATE semel_letter SET proposed = "+proposed+" WHERE row = ?", row)
	return err
}

// lockLetter makes others wait who number proposals of the same letter.
func (t *tx) lockLetter(n int64, ref string) error {
	var row int64
	return t.one("SELECT row FROM semel_letter WHERE consumer = ? AND ref = ?{lock}", []any{&row}, n, blob(ref))
}

func ignoreNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// renew writes a proposal under a new number, in place of an old one.
func (t *tx) renew(row, number, old, now int64, r *store.Revision) error {
	if _, err := t.exec("DELETE FROM semel_letter_revision WHERE letter = ? AND n = ? AND n > 0", row, old); err != nil {
		return err
	}
	args := append([]any{row, number, now, r.By, r.Note}, messageArgs(&r.Message, r.Fingerprint)...)
	_, err := t.exec(`INSERT INTO semel_letter_revision (letter, n, at, actor, note, `+messageCols+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, args...)
	if err == nil && number > store.MaxProposals {
		_, err = t.exec(`DELETE FROM semel_letter_revision WHERE letter = ? AND n IN (SELECT * FROM (SELECT n FROM semel_letter_revision
			WHERE letter = ? AND actor = ? AND n > 0 ORDER BY n DESC LIMIT 1000 OFFSET ?) old)`, row, row, r.By, store.MaxProposals)
	}
	return err
}
