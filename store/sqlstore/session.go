package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"time"
)

// session is a connection of a committer with its prepared statements. It is
// used by one transaction at a time.
type session struct {
	conn   *sql.Conn
	guard  Guard
	server bool
	own    map[string]*sql.Stmt // this package's, by portable text
	texts  map[string]string    // likewise, where the driver keeps them prepared
	used   bool                 // a transaction has begun on it
	user   stmtCache            // handlers'
}

// prepared returns the statement for a portable text of this package; there
// is a fixed number of them.
func (ss *session) prepared(ctx context.Context, d *Dialect, portable string) (*sql.Stmt, error) {
	if st := ss.own[portable]; st != nil {
		return st, nil
	}
	st, err := ss.conn.PrepareContext(ctx, d.text(portable))
	if err != nil {
		return nil, err
	}
	ss.own[portable] = st
	return st, nil
}

// text is a portable statement in the database's own words.
func (ss *session) text(d *Dialect, portable string) string {
	s, ok := ss.texts[portable]
	if !ok {
		s = d.text(portable)
		ss.texts[portable] = s
	}
	return s
}

// exec runs one of this package's statements.
func (ss *session) exec(ctx context.Context, d *Dialect, portable string, args []any) (sql.Result, error) {
	args = d.values(args)
	if d.Prepares {
		return ss.conn.ExecContext(ctx, ss.text(d, portable), args...)
	}
	st, err := ss.prepared(ctx, d, portable) //nolint:sqlclosecheck // closed with the session
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

func (ss *session) query(ctx context.Context, d *Dialect, portable string, args []any) (*sql.Rows, error) {
	args = d.values(args)
	if d.Prepares {
		return ss.conn.QueryContext(ctx, ss.text(d, portable), args...)
	}
	st, err := ss.prepared(ctx, d, portable) //nolint:sqlclosecheck // closed with the session
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// control runs a statement that begins or ends a transaction. A server that
// does not answer for so long is taken for gone.
func (ss *session) control(s *Store, statement string) error {
	if !s.dialect.Server {
		_, err := ss.exec(context.Background(), s.dialect, statement, nil)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.lockWait)
	defer cancel()
	_, err := ss.conn.ExecContext(ctx, statement) // not every server prepares these
	return err
}

// discard closes the connection for good: the pool must not hand out one whose
// state is not known. Statements go first, since SQLite keeps a connection, with
// its locks, alive behind them; and a ROLLBACK, which can undo only what is not
// committed, frees the locks even if a handler left a statement of its own.
func (ss *session) discard() {
	if err := ss.conn.Raw(func(any) error { return nil }); err != nil {
		return // the driver said it is bad, and database/sql closed it
	}
	if !ss.server { // a server rolls back by itself, and might not answer
		for _, st := range ss.own {
			st.Close()
		}
		ss.user.close(ss.conn)
		_, _ = ss.conn.ExecContext(context.Background(), "ROLLBACK")
	}
	_ = ss.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// sessions lends out sessions, at most as many as the database can use.
type sessions struct {
	gate   chan struct{} // nil: no bound
	mu     sync.Mutex
	idle   []*session
	closed bool
}

func (p *sessions) init(committers int) {
	if committers > 0 {
		p.gate = make(chan struct{}, committers)
	}
}

var errClosed = errors.New("sqlstore: the store is closed")

// session lends a session. The wait for a committer of this process to finish
// counts as waiting for the lock.
func (s *Store) session(ctx context.Context, until time.Time) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, until); err != nil {
		return nil, err
	}
	ss, err := s.sessions.take()
	if ss == nil && err == nil {
		ss, err = s.connect(ctx)
	}
	if err != nil {
		s.sessions.leave()
	}
	return ss, err
}

func (s *Store) enter(ctx context.Context, until time.Time) error {
	if s.sessions.gate == nil {
		return nil
	}
	select {
	case s.sessions.gate <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case s.sessions.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return s.waited(errors.New("a transaction of this process is still running"))
	}
}

func (s *Store) connect(ctx context.Context) (*session, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	ss := &session{conn: conn, server: s.dialect.Server, own: make(map[string]*sql.Stmt), texts: make(map[string]string)}
	if ss.guard, err = s.driver.Guard(ctx, conn); err != nil {
		ss.discard()
		return nil, err
	}
	return ss, nil
}

func (p *sessions) take() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	ss := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return ss, nil
}

func (p *sessions) put(ss *session) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.idle = append(p.idle, ss)
	}
	p.mu.Unlock()
	if closed {
		ss.discard()
	}
	p.leave()
}

func (p *sessions) discard(ss *session) {
	ss.discard()
	p.leave()
}

func (p *sessions) leave() {
	if p.gate != nil {
		<-p.gate
	}
}

// close discards the idle sessions: their settings differ from what the pool
// lends to others.
func (p *sessions) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, ss := range idle {
		ss.discard()
	}
}
