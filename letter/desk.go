package letter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Desk is where people decide about letters. What it does is one transaction
// per chunk of letters, by the same compare-and-set as the pipeline's: the
// running consumer and a second person see it, or are seen.
type Desk[Tx any] struct{ Store store.Backend[Tx] }

// Done is what became of one reference.
type Done struct {
	Ref string
	// Err is nil, ErrNotFound, a *TransitionError, or another refusal.
	Err error
}

var (
	// ErrNotFound: the consumer has no such letter.
	ErrNotFound = errors.New("no such letter")
	// ErrMoved: it changed while it was being decided about; look again.
	ErrMoved = errors.New("the letter has changed meanwhile")

	errNothingProposed = errors.New("no readable content is proposed for it")
	errIDKnown         = errors.New("the id of the proposed content is known already: its message was decided apart from this letter")
	errContested       = errors.New("its id is known with other content: it can only be discarded")
)

// chunk is how many letters are decided in one transaction.
const chunk = 100

// Replay makes dead letters due now; the running consumer takes them up, in
// the same way as every retry. by names who asked; note may be empty.
// Letters that cannot be replayed are told in the result, one entry per
// reference in the order given; the error is that of the store.
func (d Desk[Tx]) Replay(ctx context.Context, consumer string, refs []string, by, note string) ([]Done, error) {
	return d.each(ctx, consumer, refs, func(_ context.Context, _ Tx, l *store.Letter) (store.Move, error) {
		to, err := Next(l.State, Replay)
		if err == nil && l.Conflict {
			err = errContested
		}
		return store.Move{To: to, Number: l.Number, By: by, Note: note}, err
	})
}

// ReplayProposed is Replay with the content that was proposed last, by the
// source or by a person who gave the message back. A letter without id gets
// the id of that content; one that is known already is refused.
func (d Desk[Tx]) ReplayProposed(ctx context.Context, consumer string, refs []string, by, note string) ([]Done, error) {
	proposed := make(map[string]*store.Revised, len(refs))
	for _, ref := range refs {
		rs, err := d.Store.Revisions(ctx, consumer, ref)
		if err != nil {
			return nil, fmt.Errorf("reading what is proposed for letter %s: %w", ref, err)
		}
		for _, r := range rs { // the last one that can be read
			if r.Note != Unreadable {
				proposed[ref] = &store.Revised{Message: r.Message, Fingerprint: r.Fingerprint}
			}
		}
	}
	return d.each(ctx, consumer, refs, func(ctx context.Context, tx Tx, l *store.Letter) (store.Move, error) {
		to, err := Next(l.State, Replay)
		r := proposed[l.Ref]
		switch {
		case err != nil:
		case l.Conflict:
			err = errContested
		case r == nil || r.Message.ID == "":
			err = errNothingProposed
		case l.Message.ID == "":
			err = d.identify(ctx, tx, l.Consumer, r)
		}
		m := store.Move{To: to, Number: l.Number, By: by, Note: note}
		if err == nil && Repair(&m, l, *r, by) {
			err = d.Store.Release(ctx, tx, l.Consumer, l.Message.Key, 1)
		}
		return m, err
	})
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
func (d Desk[Tx]) Discard(ctx context.Context, consumer string, refs []string, by, reason string) ([]Done, error) {
	if reason == "" {
		return nil, errors.New("a discarded message needs a reason: someone will ask where it went")
	}
	return d.each(ctx, consumer, refs, func(ctx context.Context, tx Tx, l *store.Letter) (store.Move, error) {
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

type decision[Tx any] func(context.Context, Tx, *store.Letter) (store.Move, error)

func (d Desk[Tx]) each(ctx context.Context, consumer string, refs []string, decide decision[Tx]) ([]Done, error) {
	done := make([]Done, 0, len(refs))
	for part := range slices.Chunk(refs, chunk) {
		var now []Done
		outcome, err := d.Store.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) (err error) {
			now, err = d.decide(ctx, tx, consumer, part, decide)
			return err
		})
		if outcome != store.Committed {
			return done, fmt.Errorf("deciding about letters (%d of %d done): %w", len(done), len(refs), err)
		}
		done = append(done, now...)
	}
	return done, nil
}

func (d Desk[Tx]) decide(ctx context.Context, tx Tx, consumer string, refs []string, decide decision[Tx]) ([]Done, error) {
	found, err := d.Store.Find(ctx, tx, consumer, nil, slices.Compact(slices.Sorted(slices.Values(refs))), nil)
	if err != nil {
		return nil, err
	}
	byRef := make(map[string]*store.Letter, len(found))
	for i := range found {
		byRef[found[i].Ref] = &found[i]
	}
	done := make([]Done, len(refs))
	for i, ref := range refs {
		done[i].Ref = ref
		l := byRef[ref]
		if l == nil {
			done[i].Err = ErrNotFound
			continue
		}
		delete(byRef, ref) // a reference given twice is decided once
		m, err := decide(ctx, tx, l)
		if refusal(err) {
			done[i].Err = err
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Ref, m.Version = ref, l.Version
		missed, err := d.Store.Move(ctx, tx, consumer, []store.Move{m}, nil)
		if err != nil {
			return nil, err
		}
		if len(missed) > 0 {
			return nil, fmt.Errorf("letter %s: %w", ref, ErrMoved)
		}
	}
	return done, nil
}

// refusal tells an answer about one letter from a failure of the store.
func refusal(err error) bool {
	for _, r := range []error{errContested, errNothingProposed, errIDKnown} {
		if errors.Is(err, r) {
			return true
		}
	}
	var illegal *TransitionError
	return errors.As(err, &illegal)
}
