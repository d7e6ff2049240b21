package demo

import (
	"context"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

// incident is one thing that goes wrong where messages are delivered at least
// once.
type incident struct {
	name, title string
	// counted is what total counts, broken what is wrong with an entity.
	counted, broken string
	// point is where both sides are killed, moment the same in words, and
	// visits at which visit of the point, a process each.
	point  fault.Point
	moment string
	visits []int
	input  func() input

	// consumer is the name under which semel remembers, pipeline its file;
	// without one semel's side is a program, see notify.go. example is the id
	// of a message about which there is something to explain.
	consumer, pipeline, example string
	// table and effect are SQL, the same for both sides; with says which field
	// of a message each parameter of effect is. look reads what is there by
	// entity; without one the receiver's notes say it.
	table, effect, look string
	with                map[string]string
	// total counts what is there.
	total func(got, want map[string]string) int

	// naive says what went wrong, remedy is the line that prevents it, and
	// limit says what it does not prevent. Lines have at most 68 characters.
	naive  []string
	remedy string
	limit  []string
}

func incidents() []incident { return []incident{a1(), a2(), a3()} }

// Names are those of the incidents, in order.
func Names() []string {
	var names []string
	for _, inc := range incidents() {
		names = append(names, inc.name)
	}
	return names
}

func byName(name string) (incident, bool) {
	for _, inc := range incidents() {
		if inc.name == name {
			return inc, true
		}
	}
	return incident{}, false
}

func a1() incident {
	return incident{
		name: "a1", title: "Duplicate notification",
		counted: "notices that customers got", broken: "notices that came more than once",
		point: fault.Handled, moment: "after the receiver took the notice, before the commit and the ack",
		visits: []int{31, 44, 27, 39, 35}, input: notices,
		consumer: "notices",
		table:    "CREATE TABLE IF NOT EXISTS notified (id TEXT NOT NULL) STRICT",
		effect:   "INSERT INTO notified (id) VALUES (:id)",
		with:     map[string]string{"id": "id"},
		total:    sum,
		naive: []string{"It was killed, or gave up waiting, after the receiver had taken the",
			"notice. It sent the notice again, and the customer got it twice."},
		remedy: `req.Header.Set("Idempotency-Key", m.ID)   // the same every time`,
		limit: []string{"It takes a receiver that honours the key, as the one here does. For",
			"others there is the guard of handle: http: and of package effect."},
	}
}

func a2() incident {
	return incident{
		name: "a2", title: "Counter too high",
		counted: "tickets counted", broken: "counters that are wrong",
		point: fault.Committed, moment: "after the commit, before the ack",
		visits: []int{47, 61, 38, 55, 72, 49}, input: sales,
		consumer: "tickets", pipeline: ticketsFile, example: "sale-00008",
		table:  "CREATE TABLE IF NOT EXISTS sold (\n  concert TEXT NOT NULL PRIMARY KEY, cnt INTEGER NOT NULL\n) STRICT",
		effect: "INSERT INTO sold (concert, cnt) VALUES (:concert, 1)\nON CONFLICT (concert) DO UPDATE SET cnt = cnt + 1",
		with:   map[string]string{"concert": "concert"},
		look:   "SELECT concert, cnt FROM sold",
		total:  sum,
		naive: []string{"What came again, from the source or after a kill -9, was counted",
			"again: nothing remembered that it had been."},
		remedy: "message: {id: .event}   # recorded in the transaction that counts",
	}
}

func a3() incident {
	return incident{
		name: "a3", title: "Status goes backwards",
		counted: "orders in their last status", broken: "orders in an earlier status",
		point: fault.Committed, moment: "after the commit, before the ack",
		visits: []int{41, 53, 36, 60}, input: changes,
		consumer: "orders", pipeline: ordersFile, example: "evt-000002",
		table:  "CREATE TABLE IF NOT EXISTS orders (\n  id TEXT NOT NULL PRIMARY KEY, status TEXT NOT NULL\n) STRICT",
		effect: "INSERT INTO orders (id, status) VALUES (:id, :status)\nON CONFLICT (id) DO UPDATE SET status = excluded.status",
		with:   map[string]string{"id": "order", "status": "status"},
		look:   "SELECT id, status FROM orders",
		total:  equal,
		naive: []string{`"paid", late or delivered again, came behind "cancelled" and`,
			"overwrote it: the last to arrive won, not the newest."},
		remedy: "arbitrate: {version: .revision, as: integer}   # older: superseded",
	}
}

const ticketsFile = `# Counts tickets. A message is applied once, however often it is delivered.
name: tickets
source: directory:semel/queue
store: sqlite:semel/app.db
setup: |
  TABLE
message: {id: .event}
handle:
  sql: |
    EFFECT
  with: {concert: .concert}
horizon: 7d
batch: 1   # for the demonstration only: both sides die at the same message
`

const ordersFile = `# Keeps the status of orders. An older revision never replaces a newer one.
name: orders
source: directory:semel/queue
store: sqlite:semel/app.db
setup: |
  TABLE
message: {id: .event, key: .order}
arbitrate: {version: .revision, as: integer}
handle:
  sql: |
    EFFECT
  with: {id: .order, status: .status}
horizon: 7d
batch: 1   # for the demonstration only: both sides die at the same message
`

// file is the pipeline file.
func (inc *incident) file() string {
	indent := func(sql, by string) string { return strings.ReplaceAll(sql, "\n", "\n"+by) }
	return strings.NewReplacer("TABLE", indent(inc.table, "  "), "EFFECT", indent(inc.effect, "    ")).Replace(inc.pipeline)
}

// sum is the total of entities that are numbers.
func sum(got, _ map[string]string) (n int) {
	for _, v := range got {
		i, err := strconv.Atoi(v)
		if err == nil {
			n += i
		}
	}
	return n
}

// equal counts entities that are as they should be.
func equal(got, want map[string]string) (n int) {
	for k, v := range want {
		if got[k] == v {
			n++
		}
	}
	return n
}

// wrong counts entities that are not as they should be, or should not be.
func wrong(got, want map[string]string) int {
	n := len(want) - equal(got, want)
	for k := range got {
		if _, ok := want[k]; !ok {
			n++
		}
	}
	return n
}

// found reads what is there by entity.
func (inc *incident) found(ctx context.Context, s side) (got map[string]string, err error) {
	if inc.look == "" {
		return noted(s.notes())
	}
	st, err := sqlitestore.Open(ctx, s.db(), sqlitestore.Config{})
	if err != nil {
		return nil, err
	}
	defer st.Close(ctx)
	got = map[string]string{}
	_, err = st.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		rows, err := tx.QueryContext(ctx, inc.look)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var entity, state string
			if err := rows.Scan(&entity, &state); err != nil {
				return err
			}
			got[entity] = state
		}
		return rows.Err()
	})
	return got, err
}
