package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Dialect is what one database does its own way, as data. Statements are kept
// in one portable form: "?" for parameters, ON CONFLICT for upserts, {now} for
// the database's clock and {lock} at the end of a locking read.
type Dialect struct {
	// Capabilities are those of the store.
	Capabilities store.Capabilities
	// Begin opens a transaction that may write.
	Begin string
	// Server: the database is a server, and several transactions write at
	// once. Text is UTF-8 without NUL, and ends of transactions are given up
	// after LockWait, since a network can fall silent.
	Server bool
	// Prepares: the driver keeps statements prepared by itself. Else this
	// package does, for each connection.
	Prepares bool
	// Savepoint: nothing refuses a COMMIT inside a handler. It is noticed
	// afterwards, by a savepoint that is gone, and an open mark stays behind
	// for others to find. Where it is false and Server is true, a constraint on
	// the tables refuses a COMMIT while the mark of its transaction is open.
	Savepoint bool
	// Implicit: a statement that changes tables ends the transaction. Around are
	// run before and after it.
	Implicit bool
	Around   [2]string
	// Snapshot is the isolation level at which a transaction that only reads
	// sees one snapshot; zero: it always does.
	Snapshot sql.IsolationLevel
	// Now is an expression: milliseconds since 1970 by the database's clock.
	Now string
	// Lock is what a locking read ends with; empty where a transaction has
	// locked everything it can meet.
	Lock string
	// Numbered: parameters are $1, $2, … instead of ?.
	Numbered bool
	// Rewrite turns a whole statement into the database's own where the
	// rules above do not reach (MySQL's upsert). nil: not needed.
	Rewrite func(portable string) string
	// Duplicate reports that an INSERT found its row to be there; the statement is
	// undone, the transaction goes on. Where it is set, rows are inserted many at
	// a time.
	Duplicate func(error) bool
	// Alone is a statement after which no other transaction changes the tables;
	// empty: Begin sees to that. Where Implicit is true it is a query that
	// returns 1 when it has succeeded, and Together undoes it.
	Alone, Together string
	// HasTable counts the tables named by its one parameter.
	HasTable string
	// Migrations are the steps from nothing to this version. Steps are only
	// ever appended.
	Migrations [][]string
}

// text turns a portable statement into the database's own.
func (d *Dialect) text(portable string) string {
	s := strings.NewReplacer("{now}", d.Now, "{lock}", d.Lock).Replace(portable)
	if d.Rewrite != nil {
		s = d.Rewrite(s)
	}
	if !d.Numbered {
		return s
	}
	var b strings.Builder
	n := 0
	for {
		before, after, found := strings.Cut(s, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		s = after
	}
}

// values readies arguments of this package's statements.
func (d *Dialect) values(args []any) []any {
	if !d.Server {
		return args
	}
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = clean(s)
		}
	}
	return args
}

// clean replaces what a server does not take for text. It is for what people
// read: ids, keys and the like are bytes.
func clean(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ReplaceAll(s, "\x00", "\ufffd")
}

// Driver is what only the driver's module can know.
type Driver interface {
	// Guard readies a connection that will be used for writing, refuses one
	// whose settings would break the promise, and returns the watch over
	// its transactions.
	Guard(ctx context.Context, c *sql.Conn) (Guard, error)
	// Classify sorts an error of the driver; ok is false for others.
	Classify(err error) (c semel.Class, ok bool)
	// Again reports that a statement was refused because another
	// transaction is in the way, changed nothing, and may be repeated as it
	// is.
	Again(err error) bool
	// Denied reports that err answers a COMMIT: the transaction is rolled
	// back, without doubt.
	Denied(err error) bool
}

// Guard watches the transactions of one connection. It is used by one
// goroutine at a time.
type Guard interface {
	// Arm makes every COMMIT on the connection fail from now on, where it can.
	Arm()
	// Disarm ends that and says what became of the transaction meanwhile.
	Disarm() Fate
	// Fate is what has become of it so far, while armed.
	Fate() Fate
}

// Noter is implemented by guards that learn of a transaction's fate from the
// errors of its statements.
type Noter interface{ Note(err error) }

// Watch is what guards have in common that are told of a transaction's fate: by
// hooks, or by errors.
type Watch struct {
	armed bool
	fate  Fate
}

// Arm implements Guard.
func (w *Watch) Arm() { w.armed, w.fate = true, Open }

// Disarm implements Guard.
func (w *Watch) Disarm() Fate {
	fate := w.fate
	w.armed, w.fate = false, Open
	return fate
}

// Fate implements Guard.
func (w *Watch) Fate() Fate { return w.fate }

// Armed reports whether a handler has the transaction.
func (w *Watch) Armed() bool { return w.armed }

// Meet notes a fate, while armed. The first one counts, but that a COMMIT was
// refused says more than the end that follows from it.
func (w *Watch) Meet(f Fate) {
	if w.armed && (w.fate == Open || f == Refused) {
		w.fate = f
	}
}

// Fate is what became of a transaction while a handler had it.
type Fate uint8

const (
	// Open: nothing; it can be committed.
	Open Fate = iota
	// Gone: it was rolled back, by a statement or by the database.
	Gone
	// Refused: a COMMIT was tried, and refused; nothing of it is left.
	Refused
	// Failed: a statement failed, and the database takes no other until the
	// transaction, or a savepoint in it, is rolled back.
	Failed
	// Lost: the connection is gone.
	Lost
)
