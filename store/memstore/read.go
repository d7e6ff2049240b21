package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// read opens a snapshot; the caller closes it with s.mu.RUnlock if there was
// no error.
func (s *Store) read(ctx context.Context, op Op) error {
	if err := s.ask(ctx, op, store.Mark{}); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.RLock()
	return nil
}

// Due implements store.Reader. maxBytes 0 means no limit. The head of a key is its open letter with the
// lowest number; what is not at the head does not run, nor does what stands
// behind a dead head.
func (s *Store) Due(ctx context.Context, consumer string, limit int, maxBytes int64) ([]store.Letter, time.Duration, error) {
	if err := s.read(ctx, OpDue); err != nil {
		return nil, -1, err
	}
	defer s.mu.RUnlock()
	rows := s.runnable(consumer)
	now := time.Now()
	var due []store.Letter
	var size int64
	for _, row := range rows {
		size += weight(&row.Message)
		full := len(due) >= limit || len(due) > 0 && maxBytes > 0 && size > maxBytes
		if full || row.Due.After(now) {
			return due, max(0, row.Due.Sub(now)), nil
		}
		due = append(due, view(row, true))
	}
	return due, -1, nil
}

// weight is the size of body and header.
func weight(m *semel.Message) int64 {
	n := len(m.Body)
	for _, f := range m.Header {
		n += len(f.Name) + len(f.Value)
	}
	return int64(n)
}

// runnable returns the letters that only wait for their time, earliest first.
func (s *database) runnable(consumer string) []*letterRow {
	heads := make(map[string]*letterRow)
	var rows []*letterRow
	for k := range s.waiting.committed() {
		if k.consumer != consumer {
			continue
		}
		row, _ := s.letters.was(k)
		if row.Number == 0 {
			rows = append(rows, row)
		} else if h := heads[row.Message.Key]; h == nil || row.Number < h.Number {
			heads[row.Message.Key] = row
		}
	}
	for _, h := range heads {
		if h.State == store.StateRetry || h.State == store.StateHeld {
			rows = append(rows, h)
		}
	}
	slices.SortFunc(rows, func(a, b *letterRow) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.serial, b.serial))
	})
	return rows
}

// List implements store.Lister.
func (s *Store) List(ctx context.Context, q store.Query) ([]store.Letter, error) {
	if err := s.read(ctx, OpList); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	from := &letterRow{Letter: store.Letter{Ref: q.After.Ref, Created: q.After.Created}}
	start := q.After == (store.Cursor{})
	rows := s.sorted(func(l *letterRow) bool { return matches(l, &q) && (start || byCreation(l, from) > 0) })
	if q.Limit <= 0 {
		q.Limit = 100
	}
	var out []store.Letter
	var size int64
	for _, row := range rows[:min(q.Limit, len(rows))] {
		size += weight(&row.Message)
		if q.Bodies && size > store.MaxPageBytes && len(out) > 0 {
			break
		}
		out = append(out, view(row, q.Bodies))
	}
	return out, nil
}

// sorted returns the committed letters that fit, by creation and reference.
func (s *database) sorted(fits func(*letterRow) bool) []*letterRow {
	var rows []*letterRow
	for _, row := range s.letters.committed() {
		if fits(row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, byCreation)
	return rows
}

func byCreation(a, b *letterRow) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Ref, b.Ref))
}

// Groups implements store.Lister.
func (s *Store) Groups(ctx context.Context, q store.Query) ([]store.Group, error) {
	if err := s.read(ctx, OpGroups); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	type kind struct {
		cause string
		state store.State
	}
	groups := make(map[kind]*store.Group)
	for _, row := range s.sorted(func(l *letterRow) bool { return matches(l, &q) }) {
		k := kind{row.Cause.ID, row.State}
		g := groups[k]
		if g == nil {
			known, _ := s.causes.was(key{q.Consumer, row.Cause.ID})
			known.State, known.First = row.State, row.Created
			g = &known
			groups[k] = g
		}
		g.N++
		if row.Failed.After(g.Last) {
			g.Last = row.Failed
		}
	}
	var out []store.Group
	for _, g := range groups {
		out = append(out, *g)
	}
	return out, nil
}

func matches(l *letterRow, q *store.Query) bool {
	return l.Consumer == q.Consumer &&
		(len(q.States) == 0 || slices.Contains(q.States, l.State)) &&
		(q.Class == "" || l.Class == q.Class) &&
		(q.Reason == "" || l.Reason == q.Reason) &&
		(q.ID == "" || l.Message.ID == q.ID) &&
		(q.Key == "" || l.Message.Key == q.Key) &&
		(q.Type == "" || l.Message.Type == q.Type) &&
		strings.HasPrefix(l.Cause.ID, q.Cause) && strings.HasPrefix(l.Ref, q.Ref)
}

// Limits of store.Status.
const (
	maxHolds  = 100
	maxFences = 1000
)

// Status implements store.Reader.
func (s *Store) Status(ctx context.Context, consumer string, rows bool) (store.Status, error) {
	if err := s.read(ctx, OpStatus); err != nil {
		return store.Status{}, err
	}
	defer s.mu.RUnlock()
	holds := s.holdsOf(consumer)
	st := store.Status{
		Letters:  make(map[store.State]int64),
		Holds:    holds[:min(maxHolds, len(holds))],
		HoldKeys: int64(len(holds)),
		Fences:   s.fencesOf(consumer, maxFences),
		Workers:  s.marksOf(consumer),
		Suspects: s.suspectsOf(consumer),
		Ledger:   s.ledgerOf(consumer),
	}
	var open int64
	for _, row := range s.letters.committed() {
		if row.Consumer != consumer {
			continue
		}
		st.Letters[row.State]++
		if row.State.Open() {
			open++
		}
		if row.State == store.StateRetry && (st.NextDue.IsZero() || row.Due.Before(st.NextDue)) {
			st.NextDue = row.Due
		}
	}
	st.Imbalances = imbalances(st.Ledger, open)
	if rows {
		st.Imbalances = append(st.Imbalances, s.unmirrored(consumer, st.Ledger)...)
	}
	return st, nil
}

func (s *database) holdsOf(consumer string) []store.Hold {
	var out []store.Hold
	for k, h := range s.holds.committed() {
		if k.consumer == consumer {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b store.Hold) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.Key, b.Key))
	})
	return out
}

func (s *database) ledgerOf(consumer string) []store.Tally {
	var out []store.Tally
	for k, t := range s.ledger.committed() {
		if k.consumer == consumer {
			out = append(out, store.Tally{Account: k.account, Bucket: k.bucket, N: t.n, Sum: t.sum})
		}
	}
	slices.SortFunc(out, func(a, b store.Tally) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), cmp.Compare(a.Bucket, b.Bucket))
	})
	return out
}

// imbalances compares the letters that are open with those that should be.
func imbalances(ledger []store.Tally, open int64) []store.Imbalance {
	var n int64
	for _, t := range ledger {
		switch t.Account {
		case store.AccountOpened:
			n += t.N
		case store.AccountClosed:
			n -= t.N
		}
	}
	if n == open {
		return nil
	}
	return []store.Imbalance{{Account: store.AccountOpened, Ledger: n, Rows: open}}
}

// mirrored are the verdicts that inbox rows have.
var mirrored = [...]semel.Verdict{semel.Applied, semel.Superseded, semel.Filtered, semel.Parked, semel.Discarded}

// unmirrored compares ledger and inbox rows, per verdict and bucket, where the
// consumer's strategy keeps rows. An imbalance with equal numbers is one of
// the hash sums.
func (s *database) unmirrored(consumer string, ledger []store.Tally) []store.Imbalance {
	if kept, _ := s.identity.was(key{consumer, "inbox"}); kept != "table" {
		return nil
	}
	rows, want := make(map[tallyKey]tally), make(map[tallyKey]tally)
	for k, r := range s.inbox.committed() {
		if k.consumer == consumer {
			rk := tallyKey{account: r.Verdict.String(), bucket: r.Bucket}
			rows[rk] = tally{rows[rk].n + 1, rows[rk].sum + r.Hash}
		}
	}
	for _, t := range ledger {
		name, purged := strings.CutPrefix(t.Account, store.AccountPurged)
		k := tallyKey{account: name, bucket: t.Bucket}
		if purged {
			t.N, t.Sum = -t.N, -t.Sum
		}
		want[k] = tally{want[k].n + t.N, want[k].sum + t.Sum}
	}
	var out []store.Imbalance
	for _, v := range mirrored {
		out = append(out, differences(v.String(), want, rows)...)
	}
	return out
}

func differences(account string, want, rows map[tallyKey]tally) []store.Imbalance {
	buckets := make(map[int64]bool)
	for _, m := range []map[tallyKey]tally{want, rows} {
		for k := range m {
			if k.account == account {
				buckets[k.bucket] = true
			}
		}
	}
	var out []store.Imbalance
	for _, b := range slices.Sorted(maps.Keys(buckets)) {
		k := tallyKey{account: account, bucket: b}
		if want[k] != rows[k] {
			out = append(out, store.Imbalance{Account: account, Bucket: b, Ledger: want[k].n, Rows: rows[k].n})
		}
	}
	return out
}

// Trace implements store.Reader.
func (s *Store) Trace(ctx context.Context, consumer, id, k string) (store.Trace, error) {
	if err := s.read(ctx, OpTrace); err != nil {
		return store.Trace{}, err
	}
	defer s.mu.RUnlock()
	t := store.Trace{Attempts: make(map[string][]store.Attempt), Fences: s.fencesOf(consumer, maxFences)}
	if row, ok := s.inbox.was(key{consumer, id}); ok {
		t.Record, t.At = &row.Record, row.at
	}
	for _, row := range s.sorted(func(l *letterRow) bool { return l.Consumer == consumer && l.Message.ID == id }) {
		t.Letters = append(t.Letters, view(row, true))
		if len(row.attempts) > 0 {
			t.Attempts[row.Ref] = slices.Clone(row.attempts)
		}
		k = cmp.Or(k, row.Message.Key)
	}
	if v, ok := s.versions.was(key{consumer, k}); ok {
		t.Version = &v
	}
	return t, nil
}

// Revisions implements store.Lister.
func (s *Store) Revisions(ctx context.Context, consumer, ref string) ([]store.Revision, error) {
	if err := s.read(ctx, OpRevisions); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	row, ok := s.letters.was(key{consumer, ref})
	if !ok {
		return nil, nil
	}
	out := slices.Clone(row.revisions)
	for i := range out {
		out[i].Message = copyMessage(out[i].Message)
	}
	return out, nil
}
