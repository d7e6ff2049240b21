package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Tx is the transaction a handler works in. It can not be committed or rolled
// back: the pipeline does that. Its methods may be used until the handler
// returns; rows and statements that are still open then are closed.
//
// Name this interface in handlers: func(ctx context.Context, tx sqlstore.Tx, m
// semel.Message) error.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Unwrap returns the connection behind tx for tools that need one, such as
// ORMs. It must not be kept or closed, and must not begin or end transactions.
// It returns nil for a Tx that is not this package's.
func Unwrap(t Tx) *sql.Conn {
	if t, ok := t.(*tx); ok {
		return t.session.conn
	}
	return nil
}

// tx is one running transaction.
type tx struct {
	store   *Store
	session *session
	ctx     context.Context // ends with the transaction
	quiet   context.Context // without cancellation, for this package's statements
	cancel  context.CancelFunc

	mu    sync.Mutex // one statement at a time, none after the end
	over  bool
	stmts []*sql.Stmt // prepared by handlers
	rows  *sql.Rows   // the last that a handler opened
	cause error       // the statement error with which the transaction was lost
	guest bool        // the function is not this package's

	pending Pending    // of the driver's module
	token   []byte     // names the mark of a transaction that was given none
	mark    store.Mark // that is open; zero: none
	watched bool       // by a savepoint

	versions map[rowKey]bool // that are there and locked

	fresh map[string]int64 // consumers interned by this transaction
	clock int64
	args  []any
}

func newTx(ctx context.Context, s *Store, ss *session) *tx {
	t := &tx{store: s, session: ss}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.quiet = context.WithoutCancel(ctx)
	return t
}

var errOver = errors.New("sqlstore: the transaction is over; a handler must not use it after it returned")

// finish ends all use by handlers. Rows close when their context ends.
func (t *tx) finish() {
	if t.mu.TryLock() { // before the cancellation, which would cost a server's connection
		t.closeRows()
		t.mu.Unlock()
	}
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, st := range t.stmts {
		st.Close()
	}
}

// closeRows closes what a handler left open: a server's connection takes no
// statement meanwhile.
func (t *tx) closeRows() {
	if t.rows != nil && t.store.dialect.Server {
		t.rows.Close()
		t.rows = nil
	}
}

// within bounds ctx by the transaction, so that no cursor outlives it: an open
// cursor pins the snapshot, and the next transaction could not write.
func (t *tx) within(ctx context.Context) context.Context {
	bound, cancel := context.WithCancel(ctx)
	if t.usable() != nil {
		cancel()
	} else {
		context.AfterFunc(t.ctx, cancel)
	}
	return bound
}

// lost notes the first error with which the database gave up the transaction,
// and returns it for those that only follow from it.
func (t *tx) lost(err error) error {
	if err != nil {
		if n, ok := t.session.guard.(Noter); ok {
			n.Note(err)
		}
	}
	open := t.session.guard.Fate() == Open
	switch {
	case open:
		t.cause = nil // also after ROLLBACK TO a savepoint
	case err == nil:
	case t.cause == nil:
		t.cause = err
	case !errors.Is(err, t.cause):
		return fmt.Errorf("sqlstore: an earlier statement of the transaction failed: %w", t.cause)
	}
	return err
}

// usable refuses what would run outside of the transaction.
func (t *tx) usable() error {
	if t.over {
		return errOver
	}
	switch t.session.guard.Fate() {
	case Gone, Refused:
		return errors.Join(store.ErrEnded, t.cause)
	}
	return nil
}

// ExecContext runs a statement; it is kept prepared for the next time.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if err := t.send(ctx); err != nil {
		return nil, err
	}
	if t.store.dialect.Prepares {
		r, err := t.session.conn.ExecContext(ctx, query, args...)
		return r, t.lost(err)
	}
	r, err := t.session.user.get(t.session.conn, query).exec(ctx, t.quiet, args)
	return r, t.lost(err)
}

// QueryContext runs a query.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if err := t.send(ctx); err != nil {
		return nil, err
	}
	rows, err := t.session.conn.QueryContext(t.within(ctx), query, args...) //nolint:sqlclosecheck // the caller closes it, or the end of the transaction
	t.rows = rows
	return rows, t.lost(err)
}

// QueryRowContext runs a query for one row.
func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	bound := t.within(ctx)
	if t.usable() == nil && t.send(ctx) != nil {
		ended, cancel := context.WithCancel(ctx) // a *sql.Row can not be made to fail otherwise
		cancel()
		bound = ended
	}
	row := t.session.conn.QueryRowContext(bound, query, args...)
	_ = t.lost(row.Err())
	return row
}

// PrepareContext prepares a statement that lives until the handler returns.
func (t *tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if err := t.send(ctx); err != nil {
		return nil, err
	}
	st, err := t.session.conn.PrepareContext(ctx, query) //nolint:sqlclosecheck // closed at the end of the transaction
	if err == nil {
		t.stmts = append(t.stmts, st)
	}
	return st, t.lost(err)
}

// own returns the transaction behind a Tx that came from this store.
func (s *Store) own(x Tx) (*tx, error) {
	t, ok := x.(*tx)
	if !ok || t.store != s {
		return nil, errForeign(x)
	}
	return t, nil
}

func errForeign(x Tx) error {
	return failf(semel.ClassFault, "sqlstore: %T is not a transaction of this store; pass on the Tx that InTx gave", x)
}

// set opens a call of the store's own within a transaction: the consumer's
// number, and the lock on statements until done is called.
func (s *Store) set(ctx context.Context, x Tx, consumer string) (t *tx, n int64, err error) {
	t, err = s.own(x)
	if err != nil {
		return nil, 0, err
	}
	if err = ctx.Err(); err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	if t.over {
		err = errOver
	} else if err = t.send(ctx); err == nil {
		n, err = t.number(consumer)
	}
	if err != nil {
		t.mu.Unlock()
	}
	return t, n, err
}

// exec runs one of this package's statements.
func (t *tx) exec(portable string, args ...any) (int64, error) {
	r, err := t.session.exec(t.quiet, t.store.dialect, portable, args)
	if err = t.lost(err); err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// each runs one of this package's queries and calls scan for every row. scan
// must not run statements.
func (t *tx) each(portable string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := t.session.query(t.quiet, t.store.dialect, portable, args)
	if err != nil {
		return t.lost(err)
	}
	return t.lost(drain(rows, scan))
}

// one scans the one row of a query; sql.ErrNoRows if there is none.
func (t *tx) one(portable string, dest []any, args ...any) error {
	found := false
	err := t.each(portable, func(r *sql.Rows) error {
		found = true
		return r.Scan(dest...)
	}, args...)
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

func drain(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// now is the database's time in milliseconds, the same for the whole
// transaction.
func (t *tx) now() (int64, error) {
	if t.clock != 0 {
		return t.clock, nil
	}
	return t.clock, t.one("SELECT {now}", []any{&t.clock})
}

// lookup returns the number of a consumer, 0 if it has none.
func (t *tx) lookup(consumer string) (n int64, err error) {
	if n, ok := t.store.names.get(consumer); ok {
		return n, nil
	}
	if n, ok := t.fresh[consumer]; ok {
		return n, nil
	}
	err = t.one("SELECT number FROM semel_consumer WHERE name = ?", []any{&n}, blob(consumer))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// number returns the number of a consumer, giving it one if it has none.
// Others may use it only after the commit.
func (t *tx) number(consumer string) (int64, error) {
	n, err := t.lookup(consumer)
	if err == nil && n == 0 {
		if _, err = t.exec("INSERT INTO semel_consumer (name) VALUES (?) ON CONFLICT (name) DO NOTHING", blob(consumer)); err == nil {
			n, err = t.lookup(consumer)
		}
	}
	if err == nil && n == 0 {
		err = failf(semel.ClassContention, "sqlstore: another transaction is giving the consumer its number")
	}
	if err != nil {
		return 0, err
	}
	if _, known := t.store.names.get(consumer); !known {
		if t.fresh == nil {
			t.fresh = make(map[string]int64)
		}
		t.fresh[consumer] = n
	}
	return n, nil
}

// flag is a truth value as it is stored.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// blob returns s as bytes; never nil, which would be NULL.
func blob(s string) []byte { return append(make([]byte, 0, len(s)), s...) }
