package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// stmtCache keeps a handler's statements prepared: compiling one costs more
// than running it. When full it starts over, which is right for the common
// few texts and harmless for texts that never repeat.
type stmtCache struct{ m map[string]*userStmt }

const (
	maxUserStmts = 128
	quick        = 2 * time.Millisecond
)

// get returns the statement of a text.
func (c *stmtCache) get(conn *sql.Conn, query string) *userStmt {
	if u := c.m[query]; u != nil {
		return u
	}
	u := &userStmt{conn: conn, query: query}
	u.run = u.onDriver
	c.put(u)
	return u
}

func (c *stmtCache) put(u *userStmt) {
	if len(c.m) >= maxUserStmts {
		c.close(u.conn)
	}
	if c.m == nil {
		c.m = make(map[string]*userStmt)
	}
	c.m[u.query] = u
}

func (c *stmtCache) close(conn *sql.Conn) {
	for _, u := range c.m {
		if u.pooled != nil {
			u.pooled.Close()
		}
	}
	_ = conn.Raw(c.closeNative)
	c.m = nil
}

func (c *stmtCache) closeNative(any) error {
	for _, u := range c.m {
		if u.native != nil {
			_ = u.native.Close()
		}
	}
	return nil
}

// userStmt is one of them. It is prepared when it is first run, and run on the
// driver's connection: what database/sql does around a statement costs about a
// tenth of a short one, and this is where a handler's statements spend their
// time. sql.Conn.Raw keeps the rest of database/sql off the connection
// meanwhile, so rows that a handler has open are safe. Arguments that need
// converting (driver.Valuer, sql.NamedArg and the like) go through database/sql.
type userStmt struct {
	conn   *sql.Conn
	query  string
	pooled *sql.Stmt   // nil: was not needed yet
	native driver.Stmt // likewise
	// quick: the last time it took no time worth interrupting. Drivers watch
	// a context that can end with a goroutine for each statement, which costs
	// as much as a short statement itself; one that was quick goes without.
	quick bool
	runs  uint8 // to look at the clock now and then only

	// The call under way: run is onDriver, bound once.
	run    func(driverConn any) error
	ctx    context.Context
	args   []driver.NamedValue
	result sql.Result
}

// exec runs the statement; ctx, or quiet if that is not worth watching.
func (u *userStmt) exec(ctx, quiet context.Context, args []any) (sql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if u.runs++; u.quick {
		if u.runs%16 != 0 {
			return u.once(quiet, args)
		}
		ctx = quiet
	}
	start := time.Now()
	r, err := u.once(ctx, args)
	u.quick = err == nil && time.Since(start) < quick
	return r, err
}

func (u *userStmt) once(ctx context.Context, args []any) (sql.Result, error) {
	if !u.plain(args) {
		return u.onPool(ctx, args)
	}
	u.ctx = ctx
	err := u.conn.Raw(u.run)
	r := u.result
	clear(u.args) // bodies are not to be kept
	u.ctx, u.result = nil, nil
	if errors.Is(err, driver.ErrSkip) {
		return u.onPool(ctx, args)
	}
	return r, err
}

// plain readies arguments that a driver takes as they are, and says whether
// all of them are.
func (u *userStmt) plain(args []any) bool {
	u.args = u.args[:0]
	for i, a := range args {
		if n, ok := a.(int); ok {
			a = int64(n)
		} else if !driver.IsValue(a) {
			return false
		}
		u.args = append(u.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return true
}

// onDriver is what happens inside Raw; driver.ErrSkip: the driver has no such
// way.
func (u *userStmt) onDriver(driverConn any) error {
	if u.native == nil {
		c, ok := driverConn.(driver.ConnPrepareContext)
		if !ok {
			return driver.ErrSkip
		}
		st, err := c.PrepareContext(u.ctx, u.query)
		if err != nil {
			return err
		}
		u.native = st
	}
	st, ok := u.native.(driver.StmtExecContext)
	if !ok {
		return driver.ErrSkip
	}
	r, err := st.ExecContext(u.ctx, u.args)
	u.result = r
	return err
}

func (u *userStmt) onPool(ctx context.Context, args []any) (sql.Result, error) {
	if u.pooled == nil {
		st, err := u.conn.PrepareContext(ctx, u.query)
		if err != nil {
			return nil, err
		}
		u.pooled = st
	}
	return u.pooled.ExecContext(ctx, args...)
}
