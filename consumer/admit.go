package consumer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// The admission of a batch, in lock order: holds by key, inbox and letters by
// id, versions by key. Rows are written with the verdict that is expected;
// correct() amends the few that came out otherwise, before the commit.

// hold locks the hold rows of all keys of the batch.
func (b *batch[Tx]) hold(ctx context.Context) error {
	if b.c.cfg.Order != OrderKey {
		return nil
	}
	b.collectKeys(func(it *item) bool { return true })
	if len(b.keys) == 0 {
		return nil
	}
	rows, err := b.c.store.Lock(ctx, b.tx, b.c.cfg.Name, b.keys, nil)
	for i := range rows {
		b.holds[rows[i].Key] = &rows[i]
	}
	return err
}

// collectKeys fills b.keys with the keys of the items that want it, sorted,
// without repeats.
func (b *batch[Tx]) collectKeys(want func(*item) bool) {
	b.keys = b.keys[:0]
	for i := range b.items {
		if it := &b.items[i]; it.d.Key != "" && it.verdict == semel.Undecided && want(it) {
			b.keys = append(b.keys, it.d.Key)
		}
	}
	slices.Sort(b.keys)
	b.keys = slices.Compact(b.keys)
}

// again is an item with the id of an earlier one of the batch.
type again struct {
	item, record int
}

// claim inserts the inbox rows, which says at once which messages were decided
// before. Letters claim theirs as well: it tells them what the row says, and
// those that could not be read before have none yet.
func (b *batch[Tx]) claim(ctx context.Context) error {
	if !b.c.recorded {
		return nil
	}
	b.sortByID()
	for _, i := range b.order {
		it := &b.items[i]
		if n := len(b.owner); n > 0 && b.items[b.owner[n-1]].d.ID == it.d.ID {
			b.again = append(b.again, again{i, n - 1})
			continue
		}
		b.records = append(b.records, b.record(it, it.expected()))
		b.owner = append(b.owner, i)
	}
	if len(b.records) == 0 {
		return nil
	}
	var err error
	b.prior, err = b.dedup.Claim(ctx, b.tx, b.records, b.prior)
	return err
}

// expected is the verdict that a claim is written with.
func (it *item) expected() semel.Verdict {
	switch it.fate {
	case filter:
		return semel.Filtered
	case park:
		return semel.Parked
	}
	return semel.Applied
}

// record is the inbox row of an item, or what the ledger counts of it where
// there are no rows: then nobody needs the fingerprint, which is the dearest
// thing to compute.
func (b *batch[Tx]) record(it *item, v semel.Verdict) store.Record {
	r := store.Record{ID: it.d.ID, Verdict: v, Bucket: store.Bucket(it.d.Time), Hash: store.Hash(b.c.cfg.Name, it.d.ID)}
	if b.c.recorded {
		r.Fingerprint = it.fingerprint()
	}
	return r
}

// sortByID orders the items that have an identity to claim.
func (b *batch[Tx]) sortByID() {
	b.order = b.order[:0]
	for i := range b.items {
		it := &b.items[i]
		if it.d.ID != "" && it.verdict == semel.Undecided && (it.letter == nil || !it.letter.Conflict) {
			b.order = append(b.order, i)
		}
	}
	slices.SortFunc(b.order, func(x, y int) int {
		return cmp.Or(strings.Compare(b.items[x].d.ID, b.items[y].d.ID), x-y)
	})
}

// repeated decides an item whose id is known.
func (b *batch[Tx]) repeated(it *item, known store.Fingerprint) {
	it.known = true
	if b.c.same(it.fingerprint(), known) {
		it.verdict = semel.Duplicate
		return
	}
	b.contest(it)
}

// contest makes a letter of a message whose id is known with other content. If
// it is a letter already, which could not be read before, it stays one.
func (b *batch[Tx]) contest(it *item) {
	if it.letter != nil {
		b.refuse(it, "conflict", errContested, "discard it, or publish it again under an id of its own")
		return
	}
	err := cmp.Or(it.err, error(&semel.Error{Stage: "admit", Message: it.name(), Err: errContested, Hint: "discard it, or publish it again under an id of its own"}))
	it.refused = &cause{store.Business, "conflict", err}
	it.verdict, it.state = semel.Conflict, store.StateDead
}

var errContested = errors.New("the id is known with other content")

// take moves the letters of the batch to the state they will have if all goes
// well. Letters that someone else moved meanwhile drop out.
func (b *batch[Tx]) take(ctx context.Context) error {
	var moves []store.Move
	var mover []int
	for i := range b.items {
		if it := &b.items[i]; it.letter != nil {
			moves, mover = append(moves, b.c.move(it, it.takenTo())), append(mover, i)
		}
	}
	if len(moves) == 0 {
		return nil
	}
	missed, err := b.c.store.Move(ctx, b.tx, b.c.cfg.Name, moves, nil)
	for _, m := range missed {
		b.items[mover[m]].verdict = semel.Dropped
	}
	fault.Hit(fault.Retaken)
	return err
}

// takenTo is the verdict a letter is taken up with.
func (it *item) takenTo() semel.Verdict {
	switch {
	case it.fate == park && it.dead:
		return semel.Dead
	case it.fate == park:
		return semel.Parked
	}
	return semel.Applied
}

// comeBack deals with messages that people gave back through the source: the
// letter is replayed, as it is or with the new content, or keeps the new
// content as a proposal. What is not that any more is an ordinary delivery.
func (b *batch[Tx]) comeBack(ctx context.Context) error {
	for i := range b.items {
		it := &b.items[i]
		if it.d.Returns == "" || it.verdict != semel.Undecided {
			continue
		}
		found, err := b.c.store.Find(ctx, b.tx, b.c.cfg.Name, nil, []string{it.d.Returns}, nil)
		if err != nil {
			return err
		}
		if len(found) == 0 || found[0].Conflict || found[0].Message.ID != "" && found[0].Message.ID != it.d.ID {
			continue
		}
		if err := b.giveBack(ctx, it, &found[0]); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch[Tx]) giveBack(ctx context.Context, it *item, l *store.Letter) error {
	if i := slices.IndexFunc(b.moves, func(m store.Move) bool { return m.Ref == l.Ref }); i >= 0 {
		l.State = store.StateRetry // it was given back twice
		if r := b.moves[i].Revised; r != nil {
			l.Fingerprint = r.Fingerprint
		}
	}
	same := l.Ref == b.c.ref(it) || b.c.same(it.fingerprint(), l.Fingerprint)
	m := store.Move{Ref: l.Ref, Version: l.Version, To: store.StateRetry, Number: l.Number, By: letter.BySource, Note: "returned through the source"}
	switch reaction := letter.Redelivered(l.State, same, true, b.c.cfg.ReplayRevised); {
	case reaction == letter.Contest || !l.State.Open(): // decided meanwhile
		return nil
	case it.fate == park: // it still cannot be read: trying it again would not help
		b.resent(it, l, same)
		it.reject = true
		return nil
	case reaction == letter.Note || reaction == letter.Propose:
		b.resent(it, l, same)
		it.reject = letter.Edited(l)
		return nil
	case reaction == letter.Revise || letter.Unread(l):
		if l.Message.ID == "" {
			if err := b.identify(ctx, it); err != nil || it.known {
				return err
			}
		}
		if letter.Repair(&m, l, store.Revised{Message: it.d.Message, Fingerprint: it.fingerprint()}, b.c.cfg.Worker) {
			if err := b.c.store.Release(ctx, b.tx, b.c.cfg.Name, l.Message.Key, 1); err != nil {
				return err
			}
		}
	}
	it.known, it.ref, it.verdict = true, l.Ref, semel.Parked
	b.moves = append(b.moves, m)
	return nil
}

// identify claims the id that a repaired message has now, for its letter.
func (b *batch[Tx]) identify(ctx context.Context, it *item) error {
	r := b.record(it, semel.Parked)
	prior, err := b.dedup.Claim(ctx, b.tx, []store.Record{r}, nil)
	if err != nil {
		return err
	}
	if len(prior) > 0 {
		b.repeated(it, prior[0].Fingerprint)
		return nil
	}
	b.ledger.record(r, 1)
	return nil
}

// resent counts a redelivery of an open letter; other content is kept as a
// proposal.
func (b *batch[Tx]) resent(it *item, l *store.Letter, same bool) {
	it.known, it.ref, it.verdict = true, l.Ref, semel.Duplicate
	b.seen = append(b.seen, l.Ref)
	if same {
		return
	}
	it.verdict = semel.Conflict
	note := "resent by the source"
	if it.err != nil && it.attempts == 0 {
		note = letter.Unreadable
	}
	b.proposed = append(b.proposed, store.Revision{Ref: l.Ref, By: letter.BySource, Note: note, Message: it.d.Message, Fingerprint: it.fingerprint()})
}

// find reads the letters that matter: those of messages that the inbox says
// are parked, or has with other content; where no inbox row would tell, those
// of every id; and those of messages without id.
func (b *batch[Tx]) find(ctx context.Context) error {
	var ids, refs []string
	for i := range b.prior {
		if b.lettered(&b.prior[i]) {
			ids = append(ids, b.prior[i].ID)
		}
	}
	for i := range b.items {
		if it := &b.items[i]; it.d.ID == "" && it.letter == nil && it.verdict == semel.Undecided {
			refs = append(refs, b.c.ref(it))
		}
	}
	if b.c.recorded && len(ids)+len(refs) == 0 {
		return nil
	}
	any, err := b.c.store.Any(ctx, b.tx, b.c.cfg.Name)
	if err != nil || !any {
		return err
	}
	for i := range b.items {
		if it := &b.items[i]; !b.c.recorded && it.d.ID != "" && it.letter == nil && it.verdict == semel.Undecided {
			ids = append(ids, it.d.ID)
		}
	}
	if len(ids)+len(refs) == 0 {
		return nil
	}
	slices.Sort(ids)
	slices.Sort(refs)
	b.letters, err = b.c.store.Find(ctx, b.tx, b.c.cfg.Name, slices.Compact(ids), slices.Compact(refs), b.letters)
	return err
}

// lettered reports whether a letter may tell more than the row that was there
// before.
func (b *batch[Tx]) lettered(p *store.Prior) bool {
	it := &b.items[b.owner[p.I]]
	switch {
	case it.letter != nil:
		return false
	case p.Verdict == semel.Parked || p.Verdict == semel.Discarded || !b.c.same(it.fingerprint(), p.Fingerprint):
		return true
	}
	return slices.ContainsFunc(b.again, func(a again) bool {
		return a.record == p.I && !b.c.same(b.items[a.item].fingerprint(), p.Fingerprint)
	})
}

// letterOf returns the letter that stands for the item: its own by reference,
// or that of its id.
func (b *batch[Tx]) letterOf(it *item) *store.Letter {
	var of *store.Letter
	ref := b.c.ref(it)
	for i := range b.letters {
		l := &b.letters[i]
		if l.Ref == ref {
			return l
		}
		if it.d.ID != "" && l.Message.ID == it.d.ID && !l.Conflict {
			of = l
		}
	}
	return of
}

// settlePrior decides what was decided before, and what comes twice in the
// batch.
func (b *batch[Tx]) settlePrior(context.Context) error {
	for i := range b.prior {
		b.meet(&b.items[b.owner[b.prior[i].I]], &b.prior[i])
	}
	for _, a := range b.again {
		it := &b.items[a.item]
		if p := slices.IndexFunc(b.prior, func(p store.Prior) bool { return p.I == a.record }); p >= 0 && b.items[b.owner[a.record]].letter == nil {
			b.meet(it, &b.prior[p])
		} else {
			b.repeated(it, b.items[b.owner[a.record]].fingerprint())
		}
	}
	if len(b.letters) > 0 {
		b.settleLetters()
	}
	return nil
}

// meet confronts an item with the row that was there before.
func (b *batch[Tx]) meet(it *item, p *store.Prior) {
	if it.letter != nil && it.letter.Message.ID == it.d.ID {
		it.row = &p.Record // its own
		return
	}
	same := b.c.same(it.fingerprint(), p.Fingerprint)
	if it.letter == nil && (p.Verdict == semel.Parked || p.Verdict == semel.Discarded || !same) {
		if l := b.letterOf(it); l != nil {
			b.react(it, l, same)
			return
		}
	}
	b.repeated(it, p.Fingerprint)
}

// settleLetters meets items that no inbox row told about with their letters.
func (b *batch[Tx]) settleLetters() {
	for i := range b.items {
		it := &b.items[i]
		if it.letter != nil || it.verdict != semel.Undecided || b.c.recorded && it.d.ID != "" {
			continue
		}
		if l := b.letterOf(it); l != nil {
			b.react(it, l, false)
		}
	}
}

// react applies the redelivery table.
func (b *batch[Tx]) react(it *item, l *store.Letter, same bool) {
	it.known, it.ref = true, l.Ref
	it.reject = l.State == store.StateDead || letter.Edited(l)
	same = same || l.Ref == b.c.ref(it) || b.c.same(it.fingerprint(), l.Fingerprint)
	switch letter.Redelivered(l.State, same, false, false) {
	case letter.Note, letter.Propose:
		b.resent(it, l, same)
	default:
		b.contest(it)
	}
}

// decide goes through the batch in order. What the item's fate, the hold of
// its key or its version decides gets a verdict here; the rest is handled.
func (b *batch[Tx]) decide(ctx context.Context) error {
	if err := b.loadVersions(ctx); err != nil {
		return err
	}
	for i := range b.items {
		it := &b.items[i]
		if it.verdict == semel.Undecided {
			b.fated(it)
		}
		if it.verdict == semel.Undecided && b.c.cfg.Arbitrate.On && it.d.Key != "" {
			b.rule(i)
		}
		if it.state != "" && b.ordered(it) {
			b.blocked[it.d.Key] = true
		}
	}
	for _, key := range b.keys {
		if v := b.versions[key]; v != nil && v.changed {
			b.newest = append(b.newest, v.Versioned)
		}
	}
	return nil
}

// fated turns the item's fate into a verdict; what stays undecided is run.
func (b *batch[Tx]) fated(it *item) {
	switch {
	case it.letter != nil && it.fate == park:
		it.verdict = it.takenTo()
	case it.letter != nil:
	case it.fate == filter:
		it.verdict = semel.Filtered
	case it.fate == park && it.dead:
		it.verdict, it.state = semel.Dead, store.StateDead
	case it.fate == park:
		it.verdict, it.state = semel.Parked, store.StateRetry
	case b.waits(it):
		it.verdict, it.state = semel.Parked, store.StateHeld
	}
}

// ordered reports whether the item's letter takes a place behind its key.
func (b *batch[Tx]) ordered(it *item) bool {
	return b.c.cfg.Order == OrderKey && it.d.Key != "" && it.verdict != semel.Conflict &&
		(it.state != store.StateDead || b.c.cfg.DeadHolds)
}

// waits reports whether the item has to queue behind its key.
func (b *batch[Tx]) waits(it *item) bool {
	if b.c.cfg.Order != OrderKey || it.d.Key == "" {
		return false
	}
	h := b.holds[it.d.Key]
	return h != nil && h.Size > 0 || b.blocked[it.d.Key]
}

func (b *batch[Tx]) loadVersions(ctx context.Context) error {
	if !b.c.cfg.Arbitrate.On {
		b.keys = b.keys[:0]
		return nil
	}
	b.collectKeys(func(it *item) bool { return it.fate == run })
	if len(b.keys) == 0 {
		return nil
	}
	var err error
	b.current, err = b.c.store.Versions(ctx, b.tx, b.c.cfg.Name, b.keys, b.current)
	for i := range b.current {
		b.versions[b.current[i].Key] = &versioned{Versioned: b.current[i]}
	}
	return err
}

// versioned is the newest version of a key as the batch goes on.
type versioned struct {
	store.Versioned
	changed bool
	by      int // the item of this batch that set it
}

func (b *batch[Tx]) rule(i int) {
	it := &b.items[i]
	if !it.d.Version.Set {
		b.unversioned(it)
		return
	}
	mine := store.Versioned{Key: it.d.Key, Version: it.d.Version, ID: it.d.ID, Fingerprint: it.fingerprint()}
	v := b.versions[it.d.Key]
	known := v != nil
	if !known {
		v = &versioned{}
	}
	switch r := arbitrate.Rule(v.Versioned, known, mine); r {
	case arbitrate.Older, arbitrate.Same:
		it.verdict = semel.Superseded
	case arbitrate.Raised:
		it.verdict = semel.Superseded
		by := i
		if v.changed {
			by = v.by
		}
		*v = versioned{mine, true, by}
	case arbitrate.TieLost:
		b.ties++
		it.verdict = semel.Superseded
	case arbitrate.TieOpen:
		b.refuse(it, "tie", errors.New("another message about the key has the same version and other content, and nothing decides between them"), "state a tie expression, or discard one of them")
	default:
		if r == arbitrate.TieWon {
			b.ties++
		}
		if b.c.cfg.Arbitrate.Latest && v.changed {
			b.items[v.by].verdict = semel.Superseded
		}
		*v = versioned{mine, true, i}
		b.versions[it.d.Key] = v
	}
}

func (b *batch[Tx]) unversioned(it *item) {
	switch b.c.cfg.Arbitrate.Missing {
	case arbitrate.MissingSuperseded:
		it.verdict = semel.Superseded
	case arbitrate.MissingDead:
		b.refuse(it, "no version", errors.New("the message has no version, so it cannot be ordered"), "repair and replay it, or say what missing versions mean")
	}
}

// refuse buries a message that admission cannot accept.
func (b *batch[Tx]) refuse(it *item, why string, err error, hint string) {
	it.refused = &cause{store.Business, why, &semel.Error{Stage: "admit", Message: it.name(), Err: err, Hint: hint}}
	it.verdict, it.state = semel.Dead, store.StateDead
}

// same compares contents as far as the configuration wants it.
func (c *Consumer[Tx]) same(a, b store.Fingerprint) bool { return a == b || c.cfg.TrustID }

// ref is the reference of the item's own letter.
func (c *Consumer[Tx]) ref(it *item) string {
	if it.letter != nil {
		return it.letter.Ref
	}
	return letter.Ref(c.cfg.Name, it.d.ID, it.fingerprint(), it.d.Origin())
}
