package pgstore

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Queue queues a statement of the handler. All that the handlers of a batch
// queue is sent in one round trip, at the latest when the last of them has
// returned; a statement that is not queued, whoever runs it, comes after those
// that were queued before. Parameters are $1, $2, …, and keep their values
// until then.
//
// An error of the statement is the error of the message whose handler queued
// it. What Queue itself returns is about its use, and to be returned.
func Queue(tx sqlstore.Tx, sql string, args ...any) error { return QueueThen(tx, nil, sql, args...) }

// QueueThen is Queue with a function that is told how many rows the statement
// changed. Its error counts as the handler's: semel.ErrDuplicate and
// semel.ErrSuperseded decide the message, others fail it. By then everything
// that was queued behind has been sent: a statement that depends on this one
// has to say so itself (WHERE EXISTS, WITH). It must not use tx.
func QueueThen(tx sqlstore.Tx, then func(rows int64) error, sql string, args ...any) error {
	if word := control(sql); word != "" {
		return sqlstore.Failf(semel.ClassFault, "pgstore: %w: %s in a queue; remove it from the handler, the pipeline commits", store.ErrEnded, word)
	}
	q, err := queueOf(tx)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.told) == 0 {
		q.told = append(q.told, told{i: -1})
	}
	q.waiting = append(q.waiting, statement{sql, args, then, len(q.told) - 1})
	return nil
}

// control returns the word of a statement that begins or ends a transaction.
func control(sql string) string {
	sql = strings.TrimSpace(sql)
	if len(sql) > 0 && strings.IndexByte("IUDWiudw", sql[0]) >= 0 {
		return "" // INSERT, UPDATE, DELETE, WITH: the common ones, at no cost
	}
	words := strings.Fields(strings.ToUpper(sql[:min(len(sql), 64)]))
	if len(words) == 0 || words[0] == "ROLLBACK" && slices.Contains(words, "TO") {
		return ""
	}
	word := strings.Trim(words[0], ";")
	if slices.Contains([]string{"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"}, word) || word == "PREPARE" && slices.Contains(words, "TRANSACTION") {
		return word
	}
	return ""
}

// queue is what the handlers of a transaction have queued, and what became of
// it.
type queue struct {
	mu      sync.Mutex
	conn    *pgx.Conn
	waiting []statement
	told    []told // messages in the order of Begin
	first   int    // of told: not handed over yet
	failed  error  // nothing can be sent any more
}

type statement struct {
	sql  string
	args []any
	then func(rows int64) error
	of   int // index into told
}

// told is what is known of a message; i is -1 for what was queued before the
// first.
type told struct {
	i   int
	err error
}

// queueOf returns the queue of a transaction, which is made when it is first
// asked for.
func queueOf(tx sqlstore.Tx) (*queue, error) {
	before, err := sqlstore.Attach(tx, nil)
	if err != nil {
		return nil, err
	}
	if q, ok := before.(*queue); ok {
		return q, nil
	}
	conn := Conn(tx)
	if conn == nil {
		return nil, sqlstore.Failf(semel.ClassFault, "pgstore: %T is not a transaction in PostgreSQL through pgx", tx)
	}
	q := &queue{conn: conn}
	_, err = sqlstore.Attach(tx, q)
	return q, err
}

// Begin says that what follows is of message i.
func (s *Store) Begin(tx sqlstore.Tx, i int) {
	q, err := queueOf(tx)
	if err != nil {
		return // the handler's own statements will say so
	}
	spoiled := sqlstore.Spoiled(tx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blame(spoiled)
	q.told = append(q.told, told{i: i})
}

// blame says that the last message spoiled the transaction, unless it is known
// who did: its handler did not return the error.
func (q *queue) blame(err error) {
	n := len(q.told)
	if err == nil || n == 0 || slices.ContainsFunc(q.told, func(t told) bool { return t.err != nil && !verdict(t.err) }) {
		return
	}
	q.told[n-1].err = err
}

// verdict reports errors that decide a message and leave the transaction.
func verdict(err error) bool {
	return errors.Is(err, semel.ErrDuplicate) || errors.Is(err, semel.ErrSuperseded)
}

// Flush sends what is queued and tells what became of each message.
func (s *Store) Flush(ctx context.Context, tx sqlstore.Tx, late func(i int, err error) (goOn bool)) error {
	q, err := queueOf(tx)
	if err != nil {
		return err
	}
	failed := s.SendPending(ctx, tx)
	spoiled := sqlstore.Spoiled(tx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blame(spoiled)
	rest := q.told[q.first:]
	q.first = len(q.told)
	for _, t := range rest {
		switch {
		case t.i < 0 && t.err != nil:
			return t.err
		case t.i >= 0 && !late(t.i, t.err):
			return nil
		case t.err != nil && !verdict(t.err):
			return t.err // late went on, and nothing can
		}
	}
	return failed
}

// Send implements sqlstore.Pending. It returns the error that spoiled the
// transaction, or one of a function that is no verdict; verdicts wait for
// Flush.
func (q *queue) Send(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || q.failed != nil {
		return q.failed
	}
	all := q.waiting
	q.waiting = nil
	var b pgx.Batch
	for _, st := range all {
		b.Queue(st.sql, st.args...)
	}
	br := q.conn.SendBatch(ctx, &b)
	failed := q.results(br, all)
	if err := br.Close(); failed == nil {
		failed = err
	}
	if unsent, ok := errors.AsType[pgx.ErrPreprocessingBatch](failed); ok {
		q.told[q.culprit(all, unsent)].err = failed
	}
	q.failed = failed
	return failed
}

// End implements sqlstore.Pending.
func (q *queue) End() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.told[q.first:] {
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// results reads what the server says, in order.
func (q *queue) results(br pgx.BatchResults, all []statement) error {
	var failed error
	for _, st := range all {
		tag, err := br.Exec()
		t := &q.told[st.of]
		if err == nil && st.then != nil && t.err == nil {
			err = st.then(tag.RowsAffected())
			t.err = err
			if err != nil && !verdict(err) && failed == nil {
				failed = err // what follows has been sent, and is undone
			}
			continue
		}
		if _, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err); unsent {
			return err // of any of them
		}
		if err != nil {
			t.err = err
			return err
		}
	}
	return failed
}

// culprit finds the statement that could not even be sent. pgx tells its text,
// and of a value that does not fit which it was and for what type; by then it
// has closed the connection, so nothing else can be asked.
func (q *queue) culprit(all []statement, failed pgx.ErrPreprocessingBatch) (of int) {
	first := -1
	for i, st := range all {
		if st.sql != failed.SQL() {
			continue
		}
		if !q.fits(st, failed.Error()) {
			return st.of
		}
		if first < 0 {
			first = i
		}
	}
	return all[max(first, 0)].of // the text itself is wrong
}

var (
	unfit      = regexp.MustCompile(`args\[(\d+)\]`)
	unfitType  = regexp.MustCompile(`\(OID (\d+)\)`)
	parameters = regexp.MustCompile(`\$(\d+)`)
)

// fits reports whether a statement could have been sent, where another one
// with the same text could not.
func (q *queue) fits(st statement, failure string) bool {
	last := 0
	for _, p := range parameters.FindAllStringSubmatch(st.sql, -1) {
		n, _ := strconv.Atoi(p[1])
		last = max(last, n)
	}
	if len(st.args) != last {
		return false
	}
	which, what := unfit.FindStringSubmatch(failure), unfitType.FindStringSubmatch(failure)
	if which == nil || what == nil {
		return true
	}
	i, _ := strconv.Atoi(which[1])
	oid, _ := strconv.ParseUint(what[1], 10, 32)
	if i >= len(st.args) {
		return true
	}
	var b pgx.ExtendedQueryBuilder
	return b.Build(q.conn.TypeMap(), &pgconn.StatementDescription{ParamOIDs: []uint32{uint32(oid)}}, st.args[i:i+1]) == nil
}
