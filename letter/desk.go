package letter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
)

// Desk is where people decide about letters. What it does is one transaction
// per chunk of letters, by the same compare-and-set as the pipeline's: the
// running consumer and a second person see it, or are seen.
type Desk[Tx any] struct{ Store store.Backend[Tx] }

// Target is a letter that is to be decided about.
type Target struct {
	Ref string
	// Version is that at which it was seen: one that has changed since is
	// refused. 0: whatever it is.
	Version int64
}

// Targets are letters as they are.
func Targets(refs ...string) []Target {
	all := make([]Target, len(refs))
	for i, ref := range refs {
		all[i].Ref = ref
	}
	return all
}

// Proposal is content that a person wants a letter to have.
type Proposal struct {
	Target
	// Message is the whole message, as the pipeline's decoder reads it.
	Message semel.Message
}

// Done is what became of one target.
type Done struct {
	Ref string
	// Version is the letter's afterwards, if it was decided about.
	Version int64
	// Err is nil, ErrNotFound, ErrMoved, a *TransitionError, or another
	// refusal.
	Err error
}

var (
	// ErrNotFound: the consumer has no such letter.
	ErrNotFound = errors.New("no such letter")
	// ErrMoved: it changed while it was being decided about; look again.
	ErrMoved = errors.New("the letter has changed meanwhile")

	errNothingProposed = errors.New("no readable content is proposed for it")
	errIDKnown         = errors.New("the id of the proposed content is known already: its message was decided apart from this letter")
	errOtherID         = errors.New("it would get another id: that is another message, which has to be sent as one")
	errContested       = errors.New("its id is known with other content: it can only be discarded")
)

// Chunk is how many letters are decided in one transaction.
const Chunk = 100

// Decided is the point at which a process may die between two chunks.
const Decided fault.Point = "L1-decided"

// Points returns the fault points of this package.
func Points() []fault.Point { return []fault.Point{Decided} }

// Replay makes dead letters due now; the running consumer takes them up, in
// the same way as every retry. One that was edited is tried with its edit. by
// names who asked; note may be empty. Letters that cannot be replayed are told
// in the result, one entry per target in the order given; the error is that of
// the store, and the result then tells what was done before it.
func (d Desk[Tx]) Replay(ctx context.Context, consumer string, targets []Target, by, note string) ([]Done, error) {
	return d.replay(ctx, consumer, targets, by, note, false)
}

// ReplayProposed is Replay with the content that was proposed last, by the
// source or by a person. A letter without id gets the id of that content; one
// that is known already is refused.
func (d Desk[Tx]) ReplayProposed(ctx context.Context, consumer string, targets []Target, by, note string) ([]Done, error) {
	return d.replay(ctx, consumer, targets, by, note, true)
}

func (d Desk[Tx]) replay(ctx context.Context, consumer string, targets []Target, by, note string, proposed bool) ([]Done, error) {
	if err := CheckSaid(by, note); err != nil {
		return nil, err
	}
	return d.each(ctx, consumer, targets, func(ctx context.Context, tx Tx, l *store.Letter, _ int) (store.Move, error) {
		to, err := Next(l.State, Replay)
		if err == nil && l.Conflict {
			err = errContested
		}
		m := store.Move{To: to, Number: l.Number, By: by, Note: note}
		switch {
		case err != nil:
		case proposed:
			err = d.revise(ctx, tx, l, &m, Newest)
		case Edited(l):
			err = d.revise(ctx, tx, l, &m, LastEdit)
		}
		return m, err
	})
}

// Edited reports whether a person has given the letter other content, which
// takes effect when it is replayed.
func Edited(l *store.Letter) bool {
	return l.State == store.StateEdited || l.State == store.StateApproved
}

// Newest is the content that was proposed last and can be read; nil: none. rs
// are the letter's revisions.
func Newest(rs []store.Revision) *store.Revision {
	return last(rs, func(r *store.Revision) bool { return r.Note != Unreadable })
}

// LastEdit is the content that a person proposed last; nil: none. What the
// source has sent again since is not what that person has seen.
func LastEdit(rs []store.Revision) *store.Revision {
	return last(rs, func(r *store.Revision) bool { return r.By != BySource })
}

func last(rs []store.Revision, fits func(*store.Revision) bool) *store.Revision {
	for i := len(rs) - 1; i >= 0; i-- {
		if rs[i].N > 0 && fits(&rs[i]) {
			return &rs[i]
		}
	}
	return nil
}

// revise has the move bring content that is proposed.
func (d Desk[Tx]) revise(ctx context.Context, tx Tx, l *store.Letter, m *store.Move, which func([]store.Revision) *store.Revision) error {
	rs, err := d.Store.Revisions(ctx, l.Consumer, l.Ref)
	if err != nil {
		return fmt.Errorf("reading what is proposed for letter %s: %w", l.Ref, err)
	}
	chosen := which(rs)
	if chosen == nil || chosen.Message.ID == "" {
		return errNothingProposed
	}
	r := store.Revised{Message: chosen.Message, Fingerprint: chosen.Fingerprint}
	if l.Message.ID == "" {
		if err := d.identify(ctx, tx, l.Consumer, &r); err != nil {
			return err
		}
	}
	if Repair(m, l, r, m.By) {
		return d.Store.Release(ctx, tx, l.Consumer, l.Message.Key, 1)
	}
	return nil
}

// Propose puts content beside dead letters, which are edited then: it takes
// effect when they are replayed. What the producer sent stays. The id cannot
// change; a letter without one gets that of the content when it is replayed.
func (d Desk[Tx]) Propose(ctx context.Context, consumer string, edits []Proposal, by, note string) ([]Done, error) {
	if err := CheckSaid(by, note); err != nil {
		return nil, err
	}
	targets := make([]Target, len(edits))
	for i := range edits {
		targets[i] = edits[i].Target
	}
	return d.each(ctx, consumer, targets, func(ctx context.Context, tx Tx, l *store.Letter, i int) (store.Move, error) {
		to, err := Editable(l)
		m := &edits[i].Message
		switch {
		case err != nil:
		case m.ID == "" || l.Message.ID != "" && l.Message.ID != m.ID:
			err = errOtherID
		default:
			r := store.Revision{Ref: l.Ref, By: by, Note: note, Message: *m, Fingerprint: store.Print(m)}
			err = d.Store.Note(ctx, tx, consumer, nil, []store.Revision{r})
		}
		return store.Move{To: to, Number: l.Number, By: by, Note: note}, err
	})
}

// Editable returns the state of a letter once it is edited, or why it cannot be.
func Editable(l *store.Letter) (store.State, error) {
	to, err := Next(l.State, Edit)
	if err == nil && l.Conflict {
		err = errContested
	}
	return to, err
}

// identify claims the id that a repaired message has now, for its letter.
func (d Desk[Tx]) identify(ctx context.Context, tx Tx, consumer string, r *store.Revised) error {
	rec := store.Record{
		ID: r.Message.ID, Fingerprint: r.Fingerprint, Verdict: semel.Parked,
		Bucket: store.Bucket(r.Message.Time), Hash: store.Hash(consumer, r.Message.ID),
	}
	prior, err := d.Store.Claim(ctx, tx, consumer, []store.Record{rec}, nil)
	if err != nil {
		return err
	}
	if len(prior) > 0 {
		return errIDKnown
	}
	line := store.Tally{Account: semel.Parked.String(), Bucket: rec.Bucket, N: 1, Sum: rec.Hash}
	return d.Store.Count(ctx, tx, consumer, []store.Tally{line})
}

// Discard closes dead letters for good, with a reason, which is required. A
// redelivery of the same content is then a duplicate.
func (d Desk[Tx]) Discard(ctx context.Context, consumer string, targets []Target, by, reason string) ([]Done, error) {
	if reason == "" {
		return nil, errors.New("a discarded message needs a reason: someone will ask where it went")
	}
	if err := CheckSaid(by, reason); err != nil {
		return nil, err
	}
	return d.each(ctx, consumer, targets, func(ctx context.Context, tx Tx, l *store.Letter, _ int) (store.Move, error) {
		to, err := Next(l.State, Discard)
		if err != nil {
			return store.Move{}, err
		}
		return store.Move{To: to, By: by, Note: reason}, d.close(ctx, tx, l)
	})
}

// close gives the letter's key free and books its end.
func (d Desk[Tx]) close(ctx context.Context, tx Tx, l *store.Letter) error {
	if l.Number > 0 {
		if err := d.Store.Release(ctx, tx, l.Consumer, l.Message.Key, 1); err != nil {
			return err
		}
	}
	lines := []store.Tally{{Account: store.AccountClosed, N: 1}}
	if Recorded(l) {
		r, err := d.discarded(ctx, tx, l)
		if err != nil {
			return err
		}
		lines = append(lines,
			store.Tally{Account: semel.Parked.String(), Bucket: r.Bucket, N: -1, Sum: -r.Hash},
			store.Tally{Account: semel.Discarded.String(), Bucket: r.Bucket, N: 1, Sum: r.Hash})
	}
	return d.Store.Count(ctx, tx, l.Consumer, lines)
}

// discarded writes the letter's row and returns it. What it is booked under is
// in the row: a revision may have changed the message's time.
func (d Desk[Tx]) discarded(ctx context.Context, tx Tx, l *store.Letter) (store.Record, error) {
	r := store.Record{
		ID: l.Message.ID, Fingerprint: l.Fingerprint, Verdict: semel.Discarded,
		Bucket: store.Bucket(l.Message.Time), Hash: store.Hash(l.Consumer, l.Message.ID),
	}
	prior, err := d.Store.Claim(ctx, tx, l.Consumer, []store.Record{r}, nil)
	if err != nil || len(prior) == 0 { // a strategy without rows has one now
		return r, err
	}
	r.Bucket, r.Hash = prior[0].Bucket, prior[0].Hash
	return r, d.Store.Record(ctx, tx, l.Consumer, []store.Record{r})
}

// decision says how letter l is moved; i is the index of its target.
type decision[Tx any] func(ctx context.Context, tx Tx, l *store.Letter, i int) (store.Move, error)

func (d Desk[Tx]) each(ctx context.Context, consumer string, targets []Target, decide decision[Tx]) ([]Done, error) {
	done := make([]Done, 0, len(targets))
	for part := range slices.Chunk(targets, Chunk) {
		var now []Done
		outcome, err := d.Store.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) (err error) {
			now, err = d.decide(ctx, tx, consumer, part, func(ctx context.Context, tx Tx, l *store.Letter, i int) (store.Move, error) {
				return decide(ctx, tx, l, len(done)+i)
			})
			return err
		})
		if outcome != store.Committed {
			return done, fmt.Errorf("deciding about letters (%d of %d done): %w", len(done), len(targets), err)
		}
		done = append(done, now...)
		fault.Hit(Decided)
	}
	return done, nil
}

func (d Desk[Tx]) decide(ctx context.Context, tx Tx, consumer string, targets []Target, decide decision[Tx]) ([]Done, error) {
	byRef, err := d.find(ctx, tx, consumer, targets)
	if err != nil {
		return nil, err
	}
	done, moves := make([]Done, len(targets)), make([]store.Move, 0, len(targets))
	for i, t := range targets {
		done[i].Ref = t.Ref
		l, found := byRef[t.Ref]
		switch {
		case !found:
			done[i].Err = ErrNotFound
			continue
		case l == nil || t.Version != 0 && t.Version != l.Version:
			done[i].Err = ErrMoved
			continue
		}
		byRef[t.Ref] = nil // a reference given twice is decided once
		m, err := decide(ctx, tx, l, i)
		if refusal(err) {
			done[i].Err = err
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Ref, m.Version = t.Ref, l.Version
		done[i].Version = l.Version + 1
		moves = append(moves, m)
	}
	missed, err := d.Store.Move(ctx, tx, consumer, moves, nil)
	if err == nil && len(missed) > 0 { // cannot be: Find has locked them
		err = fmt.Errorf("letter %s: %w", moves[missed[0]].Ref, ErrMoved)
	}
	return done, err
}

// find locks the letters.
func (d Desk[Tx]) find(ctx context.Context, tx Tx, consumer string, targets []Target) (map[string]*store.Letter, error) {
	refs := make([]string, len(targets))
	for i, t := range targets {
		refs[i] = t.Ref
	}
	slices.Sort(refs)
	found, err := d.Store.Find(ctx, tx, consumer, nil, slices.Compact(refs), nil)
	byRef := make(map[string]*store.Letter, len(found))
	for i := range found {
		byRef[found[i].Ref] = &found[i]
	}
	return byRef, err
}

// refusal tells an answer about one letter from a failure of the store.
func refusal(err error) bool {
	for _, r := range []error{errContested, errNothingProposed, errIDKnown, errOtherID} {
		if errors.Is(err, r) {
			return true
		}
	}
	var illegal *TransitionError
	return errors.As(err, &illegal)
}
