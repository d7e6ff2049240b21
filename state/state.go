// Package state moves rows along a state machine: an order from created to paid
// to shipped, by messages that may come twice or in the wrong order.
//
// The machine is data: which states there are and from which states each is
// entered. A [Mover] makes a move in one statement, UPDATE … WHERE id = ? AND
// status IN (…), so two workers never both make it. If no row changed, one read
// tells why, and the verdict says what becomes of the message:
//
//   - the row is at the state or past it: [semel.ErrSuperseded]; acked, not retried;
//   - the row could be moved by now, somebody changed it between the statement
//     and the read: [semel.ErrStale]; the handler runs again;
//   - the row is not there yet, or before the states that the move starts from:
//     an [EarlyError], transient or permanent as [Machine.Early] says;
//   - no path of the machine leads from the row to the state or back: a
//     permanent error, for a person.
//
// Guarantee: a state is entered only from the states that are listed. On a
// machine without cycles that also makes repeats harmless, without any record
// of ids. Cost: the update alone; a read more on a miss.
package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/semel-dev/semel"
)

// Early says what becomes of a message that skips ahead.
type Early uint8

const (
	// Retry: the message in between may still come. The retry policy decides how
	// long it is waited for; then it is a dead letter. The default.
	Retry Early = iota
	// Dead: straight to the dead letters, where nothing can come late.
	Dead
)

// Machine describes where the state of a row stands and how it may change.
type Machine struct {
	// Table, ID and State name the table, its key column and the column of the
	// state, as plain identifiers; Table may have a schema in front.
	Table, ID, State string
	// Start is the state that a row is inserted with.
	Start string
	// From has for each other state the states it is entered from. Start may
	// be entered again, too; then the machine has a cycle.
	From map[string][]string
	// Early says what becomes of a message that skips ahead.
	Early Early
	// Numbered writes parameters as $1, as PostgreSQL wants them, not as ?.
	Numbered bool
}

// Mover moves rows. It never changes and is safe for concurrent use.
type Mover struct {
	m      Machine
	read   string
	moves  map[string]Statement
	after  map[string]map[string]bool // after[a][b]: b can be reached from a, a itself only by a cycle
	cycles []string
}

// Statement makes a move. Its parameters are the new state, the row's key, and
// States.
type Statement struct {
	Text   string
	States []string // it may be entered from
}

// New checks the machine and returns all its problems at once.
func New(m Machine) (*Mover, error) {
	m.From = maps.Clone(m.From)
	for to, from := range m.From {
		m.From[to] = slices.Clone(from)
	}
	v := &Mover{m: m, moves: map[string]Statement{}, after: map[string]map[string]bool{}}
	if err := errors.Join(append(m.badNames(), m.badStates()...)...); err != nil {
		return nil, err
	}
	for s := range m.states() {
		v.after[s] = m.reach(s)
		if v.after[s][s] {
			v.cycles = append(v.cycles, s)
		}
	}
	slices.Sort(v.cycles)
	if err := errors.Join(v.unreachable()...); err != nil {
		return nil, err
	}
	v.read = fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s", m.State, m.Table, m.ID, m.mark(1))
	for to, from := range m.From {
		v.moves[to] = m.move(from)
	}
	return v, nil
}

var (
	name      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*$`)
)

func (m *Machine) badNames() []error {
	errs := []error{plain("Table", m.Table, tableName), plain("ID", m.ID, name), plain("State", m.State, name)}
	if m.Early > Dead {
		errs = append(errs, fmt.Errorf("state: Early is %d: Retry or Dead", m.Early))
	}
	return errs
}

func plain(what, s string, shape *regexp.Regexp) error {
	if shape.MatchString(s) {
		return nil
	}
	return fmt.Errorf("state: %s %q is not a plain SQL name: letters, digits and _", what, s)
}

func (m *Machine) badStates() (errs []error) {
	if m.Start == "" {
		errs = append(errs, errors.New("state: Start is empty: name the state that a row is inserted with"))
	}
	if len(m.From) == 0 {
		errs = append(errs, errors.New("state: From is empty: a machine without moves"))
	}
	for _, to := range slices.Sorted(maps.Keys(m.From)) {
		if to == "" || len(m.From[to]) == 0 {
			errs = append(errs, fmt.Errorf("state: %q has no state it is entered from: list them, or remove it", to))
		}
		for i, from := range m.From[to] {
			errs = append(errs, m.badMove(to, from, slices.Contains(m.From[to][:i], from)))
		}
	}
	return errs
}

func (m *Machine) badMove(to, from string, again bool) error {
	switch {
	case from == to:
		return fmt.Errorf("state: %q is entered from itself: that is no move, and a repeat could not be told from it", to)
	case !m.states()[from]:
		return fmt.Errorf("state: %q is entered from %q, which is neither Start nor entered from anywhere", to, from)
	case again:
		return fmt.Errorf("state: %q is entered from %q twice", to, from)
	}
	return nil
}

func (v *Mover) unreachable() (errs []error) {
	for _, to := range slices.Sorted(maps.Keys(v.m.From)) {
		if to != v.m.Start && !v.after[v.m.Start][to] {
			errs = append(errs, fmt.Errorf("state: %q cannot be reached from %q", to, v.m.Start))
		}
	}
	return errs
}

func (m *Machine) states() map[string]bool {
	all := map[string]bool{m.Start: true}
	for to := range m.From {
		all[to] = true
	}
	return all
}

// reach returns what can be reached from a state by one move or more.
func (m *Machine) reach(start string) map[string]bool {
	found := map[string]bool{}
	for todo := []string{start}; len(todo) > 0; {
		s := todo[0]
		todo = todo[1:]
		for to, from := range m.From {
			if !found[to] && slices.Contains(from, s) {
				found[to] = true
				todo = append(todo, to)
			}
		}
	}
	return found
}

func (m *Machine) mark(n int) string {
	if m.Numbered {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

func (m *Machine) move(from []string) Statement {
	marks := make([]string, len(from))
	for i := range from {
		marks[i] = m.mark(i + 3)
	}
	return Statement{States: from, Text: fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s = %s AND %s IN (%s)",
		m.Table, m.State, m.mark(1), m.ID, m.mark(2), m.State, strings.Join(marks, ", "))}
}

// Cycles returns the states that a row can come back to, sorted. There late
// and early look the same, and a repeat may be a move: such a machine needs
// dedup by id beside it.
func (v *Mover) Cycles() []string { return slices.Clone(v.cycles) }

// Tx is what Move needs of a transaction; sqlstore.Tx is one.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Move moves the row with that key to a state. Nil means that this transaction
// made the move; what must follow a real move stands behind it, in the
// transaction or in semel.OnCommit. Handlers return any error as it is.
func (v *Mover) Move(ctx context.Context, tx Tx, id any, to string) error {
	st, err := v.Update(to)
	if err != nil {
		return err
	}
	r, err := tx.ExecContext(ctx, st.Text, st.args(id, to)...)
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil || n == 1 {
		return err
	}
	if n > 1 {
		return semel.Fault(fmt.Errorf("state: %d rows of %s have one %s: it must be unique", n, v.m.Table, v.m.ID))
	}
	return v.why(tx.QueryRowContext(ctx, v.read, id), to)
}

func (v *Mover) why(row *sql.Row, to string) error {
	var now string
	if err := row.Scan(&now); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return v.Missed(now, to)
}

func (s Statement) args(id any, to string) []any {
	args := []any{to, id}
	for _, f := range s.States {
		args = append(args, f)
	}
	return args
}

// Update returns the statement of a move, for drivers that Move does not know.
// A state that the machine does not move to is a permanent error.
func (v *Mover) Update(to string) (Statement, error) {
	st, ok := v.moves[to]
	if !ok {
		return st, semel.Permanent(fmt.Errorf("state: there is no move to %q: %s", to,
			strings.Join(slices.Sorted(maps.Keys(v.moves)), ", ")))
	}
	st.States = slices.Clone(st.States)
	return st, nil
}

// Read returns the statement that reads a row's state; its parameter is the key.
func (v *Mover) Read() string { return v.read }

// EarlyError says that a message skips ahead: the row is not yet where the move
// starts, or not there, and then Now is empty.
type EarlyError struct{ Table, Now, To string }

func (e *EarlyError) Error() string {
	if e.Now == "" {
		return fmt.Sprintf("state: no row of %s yet to become %q", e.Table, e.To)
	}
	return fmt.Sprintf("state: too early: the row of %s is %q, from which %q is not entered at once", e.Table, e.Now, e.To)
}

// Missed says what it means that no row changed, where the row is in state now;
// "" means that there is no row.
func (v *Mover) Missed(now, to string) error {
	after, known := v.after[now]
	switch {
	case now == to:
		return semel.ErrSuperseded
	case slices.Contains(v.m.From[to], now):
		return semel.ErrStale
	case now == "" || after[to]: // on a cycle too: nothing is dropped that may still count
		err := error(&EarlyError{v.m.Table, now, to})
		if v.m.Early == Dead {
			return semel.Permanent(err)
		}
		return err
	case v.after[to][now]:
		return semel.ErrSuperseded
	case !known:
		return semel.Permanent(fmt.Errorf("state: a row of %s is %q, which the machine does not have", v.m.Table, now))
	}
	return semel.Permanent(fmt.Errorf("state: a row of %s is %q, from where no path leads to %q or back", v.m.Table, now, to))
}
