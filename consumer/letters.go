package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Letters that are due run through the same transaction as deliveries; only
// their admission differs: the compare-and-set on the letter is the dedup.

// startedNote marks a letter whose attempt was announced. Whoever meets it
// again knows that the attempt did not come to an end.
const startedNote = "started"

// errDied is charged to a letter whose attempt was started and never ended.
var errDied = errors.New("the process died while this message was tried again")

// letters runs everything that is due and returns when to look again.
func (w *committer[Tx]) letters() (time.Duration, error) {
	for {
		due, next, err := w.c.store.Due(w.hard, w.c.cfg.Name, w.c.cfg.MaxBatch, w.c.cfg.MaxBytes)
		switch {
		case w.hard.Err() != nil:
			return 0, nil
		case err != nil && w.c.store.Classify(err) == semel.ClassFault:
			return 0, err
		case err != nil:
			return time.Second, nil // deliveries will notice, too, and pause
		case len(due) == 0 && next < 0:
			return time.Second, nil
		case len(due) == 0:
			return min(next, time.Second), nil
		}
		items, err := w.announceLetters(due)
		if err != nil {
			return time.Second, w.after(nil, err)
		}
		if len(items) == 0 { // someone else took them
			return 50 * time.Millisecond, nil
		}
		if err := w.process(items); err != nil {
			return 0, err
		}
		if w.c.soft.Err() != nil {
			return 0, nil
		}
	}
}

// announceLetters commits that the letters are about to run, and pushes their
// due time on so that nobody else takes them at once. A letter that was
// announced before and is still here took its process down: that is charged.
func (w *committer[Tx]) announceLetters(due []store.Letter) ([]item, error) {
	items := make([]item, len(due))
	moves := make([]store.Move, len(due))
	for i := range due {
		l := &due[i]
		items[i] = item{d: &semel.Delivery{Message: l.Message}, letter: l, print: l.Fingerprint, printed: true, attempts: l.Attempts, class: l.Class, why: l.Reason}
		_, delay, _ := w.c.cfg.Retry.Next(max(1, l.Attempts) + 1)
		moves[i] = store.Move{Ref: l.Ref, Version: l.Version, To: store.StateRetry, Number: l.Number,
			Delay: max(delay, time.Second), By: w.c.cfg.Worker, Note: startedNote}
	}
	var missed []int
	_, err := w.c.store.InTx(w.hard, store.Mark{}, func(ctx context.Context, tx Tx) (err error) {
		missed, err = w.c.store.Move(ctx, tx, w.c.cfg.Name, moves, missed[:0])
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, m := range missed {
		items[m].letter = nil
	}
	var keep, alone []item
	for _, it := range items {
		switch {
		case it.letter == nil:
			continue
		case it.letter.Note == startedNote:
			w.diedBefore(&it)
			alone = append(alone, it)
		default:
			keep = append(keep, it)
		}
		it.letter.Version++
		it.letter.State = store.StateRetry
	}
	return append(keep, alone...), nil
}

func (w *committer[Tx]) diedBefore(it *item) {
	w.c.charge(it, errDied)
	if it.fate == park && !it.dead {
		it.fate = run // its delay has passed already
	}
	it.alone = true
	w.c.observeFailure(it)
}

// unstart gives letters back that were announced and will not be run now.
func (w *committer[Tx]) unstart(items []item) {
	moves := make([]store.Move, 0, len(items))
	for i := range items {
		l := items[i].letter
		moves = append(moves, store.Move{Ref: l.Ref, Version: l.Version, To: l.State, Number: l.Number, By: w.c.cfg.Worker, Note: "given back"})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.hard), time.Second)
	defer cancel()
	// If this fails the letters run when their delay has passed, charged
	// with one attempt.
	_, _ = w.c.store.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) error {
		_, err := w.c.store.Move(ctx, tx, w.c.cfg.Name, moves, nil)
		return err
	})
}
