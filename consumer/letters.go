package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// Letters that are due run through the same transaction as deliveries; only
// their admission differs: the compare-and-set on the letter is the dedup.

// errDied is charged to a letter whose attempt was started alone and never
// ended.
var errDied = errors.New("the process died while this message was tried again")

// errMalformed is why a letter cannot be replayed as it is.
var errMalformed = errors.New("the source could make nothing of it, and what is stored may not be all of it: return it repaired through the source, or discard it")

// letters runs everything that is due and returns when to look again.
func (w *committer[Tx]) letters() (time.Duration, error) {
	for {
		due, next, err := w.c.store.Due(w.hard, w.c.cfg.Name, w.c.cfg.MaxBatch, w.c.cfg.MaxBytes)
		switch {
		case w.hard.Err() != nil:
			return 0, nil //nolint:nilerr // it ends
		case err != nil && w.c.store.Classify(err) == semel.ClassFault:
			return 0, err
		case err != nil:
			return time.Second, nil //nolint:nilerr // deliveries will notice, too, and pause
		case len(due) == 0 && next < 0:
			return time.Second, nil
		case len(due) == 0:
			return min(next, time.Second), nil
		}
		ran, err := w.runLetters(due)
		switch {
		case err != nil:
			return 0, err
		case ran == 0: // someone else took them
			return 50 * time.Millisecond, nil
		case w.c.soft.Err() != nil:
			return 0, nil //nolint:nilerr // it ends
		}
	}
}

// runLetters runs the letters in one go, and then one by one those whose last
// attempt did not come to an end.
func (w *committer[Tx]) runLetters(due []store.Letter) (ran int, err error) {
	var doubted []store.Letter
	fresh := slices.DeleteFunc(due, func(l store.Letter) bool {
		doubt := l.Note == letter.Started || l.Note == letter.StartedAlone
		if doubt {
			doubted = append(doubted, l)
		}
		return doubt
	})
	parts := slices.Collect(slices.Chunk(doubted, 1))
	if len(fresh) > 0 {
		parts = append([][]store.Letter{fresh}, parts...)
	}
	for _, part := range parts {
		items, err := w.announceLetters(part)
		if err == nil {
			ran += len(items)
			err = w.process(items)
		} else {
			err = w.after(nil, err)
		}
		if err != nil || w.c.soft.Err() != nil {
			return ran, err
		}
	}
	return ran, nil
}

// announceLetters commits that the letters are about to run, and pushes their
// due time on so that nobody else takes them at once. A letter that was
// announced alone and is still here took its process down: that is charged.
func (w *committer[Tx]) announceLetters(due []store.Letter) ([]item, error) {
	items := make([]item, len(due))
	moves := make([]store.Move, len(due))
	for i := range due {
		items[i] = w.c.letterItem(&due[i])
		moves[i] = w.announcement(&items[i])
	}
	var missed []int
	err := w.commit(w.hard, func(ctx context.Context, tx Tx) (err error) {
		missed, err = w.c.store.Move(ctx, tx, w.c.cfg.Name, moves, missed[:0])
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, m := range missed {
		items[m].letter = nil
	}
	items = slices.DeleteFunc(items, func(it item) bool { return it.letter == nil })
	for i := range items {
		items[i].letter.Version++
		items[i].letter.State = store.StateRetry
	}
	return items, nil
}

func (w *committer[Tx]) announcement(it *item) store.Move {
	l := it.letter
	_, delay, _ := w.c.cfg.Retry.Next(max(1, l.Attempts) + 1)
	if w.c.work.prepares() {
		delay = max(delay, w.c.cfg.HandlerTimeout) // it may be at it for so long
	}
	m := store.Move{Ref: l.Ref, Version: l.Version, To: store.StateRetry, Number: l.Number,
		Delay: max(delay, time.Second), By: w.c.cfg.Worker, Note: letter.Started}
	switch l.Note {
	case letter.StartedAlone:
		w.diedBefore(it)
		m.Class, m.Reason, m.Attempts, m.Attempt = it.class, it.why, it.attempts, it.attempt(w.c.cfg.Worker)
		m.Cause = it.common(&m.Attempt)
		fallthrough
	case letter.Started:
		m.Note = letter.StartedAlone
	}
	return m
}

// letterItem takes a letter up. One that could not be read when it was written
// will be read again: what reads messages may have been mended since.
func (c *Consumer[Tx]) letterItem(l *store.Letter) item {
	it := item{d: &semel.Delivery{Message: l.Message}, letter: l, print: l.Fingerprint, printed: true, attempts: l.Attempts,
		cause: cause{class: l.Class, why: l.Reason}, unread: letter.Unread(l)}
	if l.Reason == letter.Malformed {
		it.d.Malformed = errMalformed
	}
	return it
}

// readAgain makes of a letter what its decoding gave.
func (it *item) readAgain() {
	l := it.letter
	switch {
	case it.fate == park:
		it.d.Message = l.Message
	case l.Message.ID != "" && l.Message.ID != it.d.ID:
		it.decodeFailed(fmt.Errorf("its id was %q and is %q now", l.Message.ID, it.d.ID))
		it.d.Message = l.Message
	default: // letters are not filtered
		it.fate, it.reread, it.printed = run, true, false
	}
}

// diedBefore charges a death. A letter that was never read goes back to the
// dead as what it was: taken for one that failed, it would reach the handler
// without having been decoded.
func (w *committer[Tx]) diedBefore(it *item) {
	if it.unread {
		it.bury(it.class, it.why, &semel.Error{Stage: "decode", Message: it.name(), Err: errDied, Hint: "find out what it does to the decoder before replaying it"})
	} else {
		w.c.charge(it, errDied)
	}
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
	// If this fails the letters run when their delay has passed, one by one.
	_, _ = w.c.store.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) error {
		_, err := w.c.store.Move(ctx, tx, w.c.cfg.Name, moves, nil)
		return err
	})
}
