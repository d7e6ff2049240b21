package memstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// letterRow is replaced, never changed.
type letterRow struct {
	store.Letter
	serial    int64 // order of writing
	attempts  []store.Attempt
	revisions []store.Revision
}

// copyMessage makes a message outlive its delivery.
func copyMessage(m semel.Message) semel.Message {
	m.Body = bytes.Clone(m.Body)
	m.Header = slices.Clone(m.Header)
	for i := range m.Header {
		m.Header[i].Value = bytes.Clone(m.Header[i].Value)
	}
	return m
}

// view is what a reader gets of a letter.
func view(row *letterRow, bodies bool) store.Letter {
	l := row.Letter
	if bodies {
		l.Message = copyMessage(l.Message)
	} else {
		l.Message.Body, l.Message.Header = nil, nil
	}
	return l
}

// Any implements store.Letters.
func (s *Store) Any(ctx context.Context, tx *Tx, consumer string) (bool, error) {
	if err := s.enter(ctx, tx, OpAny); err != nil {
		return false, err
	}
	n, _ := s.lettered.get(consumer)
	return n > 0, nil
}

// Find implements store.Letters.
func (s *Store) Find(ctx context.Context, tx *Tx, consumer string, ids, refs []string, out []store.Letter) ([]store.Letter, error) {
	if err := s.enter(ctx, tx, OpFind); err != nil {
		return out, err
	}
	first := len(out)
	found := func(ref string) bool {
		return slices.ContainsFunc(out[first:], func(l store.Letter) bool { return l.Ref == ref })
	}
	for _, id := range ids {
		same, _ := s.byID.get(key{consumer, id})
		for _, ref := range same {
			row, _ := s.letters.get(key{consumer, ref})
			out = append(out, view(row, false))
		}
	}
	for _, ref := range refs {
		if row, ok := s.letters.get(key{consumer, ref}); ok && !found(ref) {
			out = append(out, view(row, false))
		}
	}
	return out, nil
}

// Park implements store.Letters. A new letter has version 1.
func (s *Store) Park(ctx context.Context, tx *Tx, p []store.Parking, exists []int) ([]int, error) {
	if err := s.enter(ctx, tx, OpPark); err != nil {
		return exists, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i, park := range p {
		old, ok := s.letters.get(key{park.Consumer, park.Ref})
		if ok && !forgotten(old.State) {
			exists = append(exists, i)
			continue
		}
		s.serial++
		row := &letterRow{Letter: park.Letter, serial: s.serial}
		row.Message = copyMessage(park.Message)
		row.Version, row.Created, row.Updated, row.Due, row.Failed = 1, now, now, time.Time{}, time.Time{}
		row.fails(park.Cause, now)
		if ok {
			row.Version = old.Version + 1
		}
		if row.State == store.StateRetry {
			row.Due = now.Add(park.Delay)
		}
		row.attempt(park.Attempt, now)
		s.means(row)
		s.put(old, row)
	}
	return exists, nil
}

// fails notes the cause of a failure, if it is one.
func (r *letterRow) fails(c store.Cause, now time.Time) {
	if c.ID != "" {
		r.Cause, r.Failed = c, now
	}
}

// means keeps what the cause of a letter was when it was met first.
func (s *database) means(row *letterRow) {
	k := key{row.Consumer, row.Cause.ID}
	if _, ok := s.causes.get(k); !ok && row.Cause.ID != "" {
		s.causes.set(k, store.Group{Cause: row.Cause, Class: row.Class, Reason: row.Reason})
	}
	row.Cause.Text = ""
}

// forgotten reports whether a letter in this state gives way to a new one: its
// message comes again only after the inbox has forgotten it.
func forgotten(st store.State) bool {
	return st == store.StateApplied || st == store.StateSuperseded || st == store.StateDuplicate
}

func (r *letterRow) attempt(a store.Attempt, now time.Time) {
	if a.N == 0 {
		return
	}
	if a.At.IsZero() {
		a.At = now
	}
	r.attempts = append(slices.Clip(r.attempts), a)
}

// Move implements store.Letters.
func (s *Store) Move(ctx context.Context, tx *Tx, consumer string, m []store.Move, missed []int) ([]int, error) {
	if err := s.enter(ctx, tx, OpMove); err != nil {
		return missed, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range m {
		old, ok := s.letters.get(key{consumer, m[i].Ref})
		if !ok || old.Version != m[i].Version {
			missed = append(missed, i)
			continue
		}
		row := *old
		row.move(&m[i], now)
		s.means(&row)
		s.put(old, &row)
	}
	return missed, nil
}

func (r *letterRow) move(m *store.Move, now time.Time) {
	r.State, r.Number, r.Updated, r.Due = m.To, m.Number, now, time.Time{}
	r.Version++
	if m.To == store.StateRetry {
		r.Due = now.Add(m.Delay)
	}
	if m.Attempt.N != 0 {
		r.Class, r.Reason, r.Attempts = m.Class, m.Reason, m.Attempts
		r.Error, r.Stack = m.Attempt.Error, m.Attempt.Stack
		r.fails(m.Cause, now)
		r.attempt(m.Attempt, now)
	}
	if m.By != "" {
		r.By, r.Note = m.By, m.Note
	}
	if m.Revised != nil || !m.To.Open() {
		r.Proposed = 0 // none waits for a decision any more
	}
	if m.Revised != nil {
		r.putAside()
		r.Message, r.Fingerprint = copyMessage(m.Revised.Message), m.Revised.Fingerprint
	}
}

// put writes a letter and keeps the indexes; old is what it replaces.
func (s *database) put(old, row *letterRow) {
	k := key{row.Consumer, row.Ref}
	s.letters.set(k, row)
	if old == nil {
		s.lettersOf(row.Consumer, 1)
	}
	if old == nil || old.Message.ID != row.Message.ID {
		if old != nil {
			s.unindex(old)
		}
		s.index(row)
	}
	_, was := s.waiting.get(k)
	switch is := waits(row); {
	case is && !was:
		s.waiting.set(k, struct{}{})
	case was && !is:
		s.waiting.del(k)
	}
}

// lettersOf counts the letters of a consumer.
func (s *database) lettersOf(consumer string, n int64) {
	have, _ := s.lettered.get(consumer)
	s.lettered.set(consumer, have+n)
}

// waits reports whether Due has to look at the letter: it may run, or keeps
// others of its key from it.
func waits(row *letterRow) bool {
	return row.State == store.StateRetry || row.State == store.StateHeld || row.State.Open() && row.Number > 0
}

func (s *database) index(row *letterRow) {
	if row.Message.ID == "" {
		return
	}
	k := key{row.Consumer, row.Message.ID}
	refs, _ := s.byID.get(k)
	s.byID.set(k, append(slices.Clip(refs), row.Ref))
}

func (s *database) unindex(row *letterRow) {
	if row.Message.ID == "" {
		return
	}
	k := key{row.Consumer, row.Message.ID}
	refs, _ := s.byID.get(k)
	rest := slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return ref == row.Ref })
	if len(rest) == 0 {
		s.byID.del(k)
	} else {
		s.byID.set(k, rest)
	}
}

// Note implements store.Letters.
func (s *Store) Note(ctx context.Context, tx *Tx, consumer string, seen []string, r []store.Revision) error {
	if err := s.enter(ctx, tx, OpNote); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range seen {
		if old, ok := s.letters.get(key{consumer, ref}); ok {
			row := *old
			row.Seen++
			s.put(old, &row)
		}
	}
	for i := range r {
		if old, ok := s.letters.get(key{consumer, r[i].Ref}); ok {
			row := *old
			row.propose(r[i])
			s.put(old, &row)
		}
	}
	return nil
}

// putAside keeps what the producer sent, the first time that other content
// takes its place.
func (r *letterRow) putAside() {
	if len(r.revisions) > 0 && r.revisions[0].N == 0 {
		return
	}
	first := store.Revision{Ref: r.Ref, At: r.Created, Message: r.Message, Fingerprint: r.Fingerprint}
	r.revisions = append([]store.Revision{first}, r.revisions...)
}

// bounded leaves of the proposals of one hand the newest.
func bounded(rs []store.Revision, by string) []store.Revision {
	n := 0
	for _, r := range rs {
		if r.N > 0 && r.By == by {
			n++
		}
	}
	return slices.DeleteFunc(rs, func(r store.Revision) bool {
		if r.N == 0 || r.By != by || n <= store.MaxProposals {
			return false
		}
		n--
		return true
	})
}

// propose stores content as the newest; what is there already from the same
// hand is not stored twice.
func (r *letterRow) propose(v store.Revision) {
	same := slices.IndexFunc(r.revisions, func(p store.Revision) bool {
		return p.N > 0 && p.By == v.By && p.Fingerprint == v.Fingerprint
	})
	newest := 0
	if n := len(r.revisions); n > 0 {
		newest = r.revisions[n-1].N
	}
	if same < 0 || r.revisions[same].N < newest {
		v.N, v.At, v.Message = newest+1, time.Now(), copyMessage(v.Message)
		kept := slices.Clone(r.revisions)
		if same >= 0 {
			kept = slices.Delete(kept, same, same+1)
		}
		r.revisions = bounded(append(kept, v), v.By)
	}
	if same < 0 || r.Proposed == 0 {
		r.Proposed++
	}
}
