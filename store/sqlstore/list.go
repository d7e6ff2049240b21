package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/store"
)

// where collects conditions.
type where struct {
	terms []string
	args  []any
}

func (w *where) and(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) prefix(column, prefix string) {
	w.and(column+" >= ?", blob(prefix))
	if end := after(prefix); end != nil {
		w.and(column+" < ?", end)
	}
}

// with returns w with one more condition; w stays as it is.
func (w *where) with(term string, args ...any) where {
	return where{append(slices.Clip(w.terms), term), append(slices.Clip(w.args), args...)}
}

func (w *where) String() string { return "WHERE " + strings.Join(w.terms, " AND ") }

// conditions are those of a query that do not depend on how it is run.
func conditions(n int64, qu *store.Query) (w where) {
	w.and("l.consumer = ?", n)
	if qu.ID != "" {
		w.and("l.id = ?", blob(qu.ID))
	}
	if qu.Key != "" {
		w.and("l.key = ?", blob(qu.Key))
	}
	if qu.Type != "" {
		w.and("l.type = ?", blob(qu.Type))
	}
	if qu.Class != "" {
		w.and("l.class = ?", string(qu.Class))
	}
	if qu.Reason != "" {
		w.and("l.reason = ?", qu.Reason)
	}
	return w
}

// place is where a letter stands in a listing.
type place struct {
	row, created int64
	ref          string
	state        store.State
	bytes        int64
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.created, o.created), strings.Compare(p.ref, o.ref))
}

const placeCols = "l.row, l.created, l.ref, l.state, COALESCE(LENGTH(l.body), 0) + COALESCE(LENGTH(l.header), 0)"

// List returns a page of letters. It is merged from runs, one for each state
// and cause, each of which an index has in the right order: a page costs its
// length, however many letters there are.
func (s *Store) List(ctx context.Context, qu store.Query) (out []store.Letter, err error) {
	if qu.Limit <= 0 {
		qu.Limit = 100
	}
	err = s.read(ctx, func(q reader) error {
		n, err := q.number(qu.Consumer)
		if err != nil || n == 0 {
			return err
		}
		places, err := q.places(n, &qu)
		if err != nil {
			return err
		}
		slices.SortFunc(places, place.compare)
		places = places[:min(qu.Limit, len(places))]
		if qu.Bodies {
			places = fitting(places)
		}
		out, err = q.lettersAt(qu.Consumer, places, qu.Bodies)
		return err
	})
	return out, err
}

// fitting cuts a page whose bodies are too large.
func fitting(places []place) []place {
	var sum int64
	for i, p := range places {
		if sum += p.bytes; sum > store.MaxPageBytes && i > 0 {
			return places[:i]
		}
	}
	return places
}

func (q reader) places(n int64, qu *store.Query) (out []place, err error) {
	w := conditions(n, qu)
	if qu.Ref != "" {
		return q.placesByRef(w, qu)
	}
	add := func(w where) error {
		found, err := q.run(w, qu)
		out = append(out, found...)
		return err
	}
	states := qu.States
	if len(states) == 0 {
		states = store.States()
	}
	for _, st := range states {
		w := w.with("l.state = ?", string(st))
		if qu.Cause == "" {
			err = add(w)
		} else {
			err = q.eachCause(n, qu.Cause, func(cause []byte) error { return add(w.with("l.cause = ?", cause)) })
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// run reads one run from where the listing stands.
func (q reader) run(w where, qu *store.Query) (out []place, err error) {
	if qu.After != (store.Cursor{}) {
		w = w.with("(l.created, l.ref) > (?, ?)", millisOf(qu.After.Created), blob(qu.After.Ref))
	}
	err = q.eachPlace(w.String()+" ORDER BY l.created, l.ref LIMIT ?", append(w.args, qu.Limit), func(p place) { out = append(out, p) })
	return out, err
}

// placesByRef reads what begins with a reference, which is little, in the
// order of references.
func (q reader) placesByRef(w where, qu *store.Query) (out []place, err error) {
	w.prefix("l.ref", qu.Ref)
	if qu.Cause != "" {
		w.prefix("l.cause", qu.Cause)
	}
	from := place{created: millisOf(qu.After.Created), ref: qu.After.Ref}
	err = q.eachPlace(w.String(), w.args, func(p place) {
		if (len(qu.States) == 0 || slices.Contains(qu.States, p.state)) && (qu.After == (store.Cursor{}) || p.compare(from) > 0) {
			out = append(out, p)
		}
	})
	return out, err
}

func (q reader) eachPlace(rest string, args []any, add func(place)) error {
	return q.each("SELECT "+placeCols+letterFrom+rest, func(r *sql.Rows) error {
		var p place
		err := r.Scan(&p.row, &p.created, &p.ref, &p.state, &p.bytes)
		add(p)
		return err
	}, args...)
}

// eachCause calls fn for every cause whose id begins with prefix.
func (q reader) eachCause(n int64, prefix string, fn func(cause []byte) error) error {
	w := where{}
	w.and("consumer = ?", n)
	w.prefix("cause", prefix)
	var causes [][]byte
	err := q.each("SELECT cause FROM semel_cause "+w.String(), func(r *sql.Rows) error {
		var c []byte
		err := r.Scan(&c)
		causes = append(causes, c)
		return err
	}, w.args...)
	for i := 0; err == nil && i < len(causes); i++ {
		err = fn(causes[i])
	}
	return err
}

// lettersAt reads letters in the order of their places.
func (q reader) lettersAt(consumer string, places []place, bodies bool) ([]store.Letter, error) {
	out := make([]store.Letter, len(places))
	at := make(map[int64]int, len(places))
	for i, p := range places {
		at[p.row] = i
	}
	for part := range slices.Chunk(places, 100) {
		args := make([]any, len(part))
		for i, p := range part {
			args[i] = p.row
		}
		marks := strings.Repeat("?, ", len(part)-1) + "?"
		err := q.each("SELECT "+letterCols(bodies)+letterFrom+"WHERE l.row IN ("+marks+")", func(r *sql.Rows) error {
			row, l, err := scanLetter(r, consumer, bodies)
			out[at[row]] = l
			return err
		}, args...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// millisOf is a time as it is stored.
func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Groups counts letters by cause and state. Without conditions, and with one
// about class, which is the same for all letters of a cause, it reads one index
// from end to end and no letter.
func (s *Store) Groups(ctx context.Context, qu store.Query) (out []store.Group, err error) {
	err = s.read(ctx, func(q reader) error {
		n, err := q.number(qu.Consumer)
		if err != nil || n == 0 {
			return err
		}
		class := qu.Class
		qu.Class = ""
		w := conditions(n, &qu)
		if qu.Ref != "" {
			w.prefix("l.ref", qu.Ref)
		}
		if qu.Cause != "" {
			w.prefix("l.cause", qu.Cause)
		}
		err = q.each("SELECT l.cause, l.state, COUNT(*), MIN(l.created), MAX(l.failed)"+letterFrom+w.String()+" GROUP BY l.cause, l.state", func(r *sql.Rows) error {
			var g store.Group
			err := r.Scan(&g.Cause.ID, &g.State, &g.N, (*millis)(&g.First), (*millis)(&g.Last))
			if len(qu.States) == 0 || slices.Contains(qu.States, g.State) {
				out = append(out, g)
			}
			return err
		}, w.args...)
		if err != nil {
			return err
		}
		err = q.describe(n, out)
		if out = slices.DeleteFunc(out, func(g store.Group) bool { return class != "" && g.Class != class }); len(out) == 0 {
			out = nil
		}
		return err
	})
	return out, err
}

// describe adds what the causes of groups mean.
func (q reader) describe(n int64, groups []store.Group) error {
	of := make(map[string][]*store.Group)
	for i := range groups {
		id := groups[i].Cause.ID
		of[id] = append(of[id], &groups[i])
	}
	return q.each("SELECT cause, class, reason, text FROM semel_cause WHERE consumer = ?", func(r *sql.Rows) error {
		var g store.Group
		err := r.Scan(&g.Cause.ID, &g.Class, &g.Reason, &g.Cause.Text)
		for _, to := range of[g.Cause.ID] {
			to.Cause, to.Class, to.Reason = g.Cause, g.Class, g.Reason
		}
		return err
	}, n)
}

// Revisions returns the content of a letter beside the one it has.
func (s *Store) Revisions(ctx context.Context, consumer, ref string) (out []store.Revision, err error) {
	err = s.read(ctx, func(q reader) error {
		return q.each(`SELECT r.n, r.at, r.actor, r.note, r.id, r.key, r.type, r.source, r.time_s, r.time_ns, r.version_n, r.version_tie,
			r.version_set, r.header, r.body, r.fingerprint FROM semel_letter_revision r
			JOIN semel_letter l ON l.row = r.letter JOIN semel_consumer c ON c.number = l.consumer
			WHERE c.name = ? AND l.ref = ? ORDER BY r.n`, func(r *sql.Rows) error {
			v, m := store.Revision{Ref: ref}, messageRow{}
			err := r.Scan(append([]any{&v.N, (*millis)(&v.At), &v.By, &v.Note}, m.dest(&v.Message, &v.Fingerprint, true)...)...)
			v.Message.Time = m.time()
			out = append(out, v)
			return err
		}, blob(consumer), blob(ref))
	})
	return out, err
}
