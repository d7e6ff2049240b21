package consumer

import (
	"context"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// What a batch writes: everything that is known before the handlers run is
// written before them, so that the user's rows are locked last; what handlers
// decide otherwise is corrected after them.

// write stores letters, moves those that came back, and sets versions.
func (b *batch[Tx]) write(ctx context.Context) error {
	if err := b.queue(ctx); err != nil {
		return err
	}
	name, st := b.c.cfg.Name, b.c.store
	if err := b.park(ctx); err != nil {
		return err
	}
	if len(b.moves) > 0 { // one that missed was replayed by someone else: just as well
		if _, err := st.Move(ctx, b.tx, name, b.moves, nil); err != nil {
			return err
		}
		b.moves = b.moves[:0]
	}
	if len(b.seen)+len(b.proposed) > 0 {
		if err := st.Note(ctx, b.tx, name, b.seen, b.proposed); err != nil {
			return err
		}
	}
	if len(b.newest) > 0 {
		return st.SetVersions(ctx, b.tx, name, b.newest)
	}
	return nil
}

// queue collects the letters to be written, gives them their places behind
// their keys, and frees the places of letters that are through.
func (b *batch[Tx]) queue(ctx context.Context) error {
	for i := range b.items {
		it := &b.items[i]
		if it.letter != nil {
			if err := b.free(ctx, it); err != nil {
				return err
			}
			continue
		}
		if it.state == "" {
			continue
		}
		it.ref = b.c.ref(it)
		it.reject = it.state == store.StateDead
		if b.ordered(it) {
			if err := b.number(ctx, i); err != nil {
				return err
			}
		}
		b.parks, b.parked = append(b.parks, it.parking(&b.c.cfg, it.state)), append(b.parked, i)
	}
	b.alike()
	return nil
}

// alike settles the repeats of a message that dies in this batch like a later
// repeat: they go where it goes.
func (b *batch[Tx]) alike() {
	for _, a := range b.again {
		it, first := &b.items[a.item], &b.items[b.owner[a.record]]
		if it.verdict == semel.Duplicate && first.reject {
			it.reject, it.ref = true, first.ref
		}
	}
}

// number gives the item the next place behind its key.
func (b *batch[Tx]) number(ctx context.Context, i int) error {
	it := &b.items[i]
	if h := b.holds[it.d.Key]; h != nil && h.Size >= b.c.cfg.MaxHeld {
		return &fullError{i, it.d.Key, h.Size}
	}
	h, err := b.c.store.Append(ctx, b.tx, b.c.cfg.Name, it.d.Key, 1)
	if err != nil {
		return err
	}
	b.holds[it.d.Key] = &h
	it.number = h.Tail
	return nil
}

// free gives up a letter's place behind its key, unless it keeps it.
func (b *batch[Tx]) free(ctx context.Context, it *item) error {
	keeps := it.verdict == semel.Parked || it.verdict == semel.Dead && b.c.cfg.DeadHolds
	if it.letter.Number == 0 || it.verdict == semel.Dropped || keeps && !it.rekeyed() {
		return nil
	}
	return b.c.store.Release(ctx, b.tx, b.c.cfg.Name, it.letter.Message.Key, 1)
}

// park writes the letters. One that exists means that the message was parked
// before, earlier in this batch perhaps: it counts as seen again. Only where
// the inbox had forgotten it does it keep the verdict, with its new row.
func (b *batch[Tx]) park(ctx context.Context) error {
	if len(b.parks) == 0 {
		return nil
	}
	exists, err := b.c.store.Park(ctx, b.tx, b.parks, nil)
	if err != nil {
		return err
	}
	for _, e := range exists {
		it := &b.items[b.parked[e]]
		b.seen = append(b.seen, it.ref)
		it.state = "" // no letter is opened
		if it.known || it.d.ID == "" || !b.c.recorded {
			it.verdict, it.known = semel.Duplicate, true
		}
		if it.number > 0 {
			if err := b.c.store.Release(ctx, b.tx, b.c.cfg.Name, it.d.Key, 1); err != nil {
				return err
			}
		}
	}
	fault.Hit(fault.Parked)
	return nil
}

// correct amends rows whose expected verdict did not come true, and writes
// the ledger and the suspicions that are cleared.
func (b *batch[Tx]) correct(ctx context.Context) error {
	for i := range b.items {
		it := &b.items[i]
		if it.letter != nil {
			b.correctLetter(it)
		} else {
			b.correctDelivery(it)
		}
	}
	if err := b.dedup.Amend(ctx, b.tx, b.amends); err != nil {
		return err
	}
	name, st := b.c.cfg.Name, b.c.store
	if len(b.moves) > 0 {
		missed, err := st.Move(ctx, b.tx, name, b.moves, nil)
		if err != nil {
			return err
		}
		if len(missed) > 0 {
			return errors.New("a letter moved while its row was locked by this transaction")
		}
	}
	if b.clear(); len(b.suspects) > 0 {
		if err := st.Suspect(ctx, b.tx, name, b.suspects); err != nil {
			return err
		}
	}
	return st.Count(ctx, b.tx, name, b.ledger.lines)
}

func (b *batch[Tx]) correctDelivery(it *item) {
	if it.state != "" {
		b.ledger.add(store.AccountOpened, 0, 1, 0)
	}
	if it.known || it.d.ID == "" {
		b.ledger.count(it.verdict)
		return
	}
	b.claimed(it)
}

// claimed books a row that this batch inserted.
func (b *batch[Tx]) claimed(it *item) {
	r := b.record(it, rowVerdict(it))
	b.ledger.record(r, 1)
	if r.Verdict != it.expected() {
		b.amends = append(b.amends, r)
	}
}

func (b *batch[Tx]) correctLetter(it *item) {
	if it.verdict == semel.Dropped {
		return
	}
	if it.verdict != it.takenTo() || it.reread {
		m := b.c.move(it, it.verdict)
		m.Version++ // taking it up has counted it on
		if it.reread && !it.known {
			m.Revised = &store.Revised{Message: it.d.Message, Fingerprint: it.fingerprint()}
		}
		b.moves = append(b.moves, m)
	}
	open := it.verdict == semel.Parked || it.verdict == semel.Dead
	if !open {
		b.ledger.add(store.AccountClosed, 0, 1, 0)
	}
	switch {
	case it.known || it.d.ID == "" || it.letter.Conflict:
		b.ledger.count(it.verdict)
	case it.row == nil && (b.c.recorded || it.letter.Message.ID == ""): // it could not be read before
		b.claimed(it)
	case open:
		b.ledger.count(it.verdict)
	default:
		b.amended(it)
	}
}

// amended books that the row of a letter gets another verdict.
func (b *batch[Tx]) amended(it *item) {
	r := b.record(it, semel.Parked)
	if it.row != nil {
		r = *it.row // a revision may have changed what it is made of
	}
	b.ledger.record(r, -1)
	r.Verdict = rowVerdict(it)
	b.ledger.record(r, 1)
	b.amends = append(b.amends, r)
}

// rowVerdict is what the inbox row says of an item with this verdict.
func rowVerdict(it *item) semel.Verdict {
	switch it.verdict {
	case semel.Applied, semel.Duplicate: // the handler found the effect there
		return semel.Applied
	case semel.Superseded, semel.Filtered:
		return it.verdict
	case semel.Parked, semel.Dead:
		return semel.Parked
	}
	return semel.Undecided
}

// move is the transition by which a letter that was taken up ends in v.
func (c *Consumer[Tx]) move(it *item, v semel.Verdict) store.Move {
	to, err := letter.Next(it.letter.State, letter.Of(v))
	if err != nil { // Due returns only letters that may run
		to = it.letter.State
	}
	m := store.Move{Ref: it.letter.Ref, Version: it.letter.Version, To: to, Number: it.letter.Number, By: c.cfg.Worker}
	if v == semel.Parked || v == semel.Dead {
		m.Delay, m.Class, m.Reason, m.Attempts = it.due, it.reason().class, it.reason().why, it.attempts
		m.Attempt = it.attempt(c.cfg.Worker)
		m.Cause = it.common(&m.Attempt)
	}
	if !to.Open() || v == semel.Dead && !c.cfg.DeadHolds || it.rekeyed() {
		m.Number = 0
	}
	return m
}

// clear takes what the batch decides off the suspicions against its units. A
// scope under suspicion has the batch for itself; see cut.
func (b *batch[Tx]) clear() {
	if sc := b.items[0].scope; sc != nil && sc.suspect != nil {
		b.suspects = append(b.suspects, decided(*sc.suspect, len(b.items)))
		return
	}
	for i := range b.items {
		if s := b.items[i].suspect; s != nil {
			b.suspects = append(b.suspects, store.Suspect{Unit: s.Unit})
		}
	}
}
