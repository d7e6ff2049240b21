package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// committer turns items into committed transactions, one at a time. It is the
// only place that decides how large a batch is and what follows a failure.
type committer[Tx any] struct {
	c *Consumer[Tx]
	b *batch[Tx]
	// mark is the number of the last batch that committed.
	slot int
	mark int64
	// size is the largest batch it takes at present. It falls where something
	// failed and doubles with every clean commit of so many; redo: the next
	// commit is not one of those.
	size int
	redo bool
	// turn: it holds Consumer.turn.
	turn bool
	// outside is the last wait for what PrepareBatch depends on; 0: it works.
	outside time.Duration
	// hard ends handlers; see Consumer.Run.
	hard context.Context
	// look is the shortest delay of a letter written since letters were
	// looked at; negative: none.
	look time.Duration
}

func newCommitter[Tx any](c *Consumer[Tx], slot int, hard context.Context) *committer[Tx] {
	b := &batch[Tx]{c: c, dedup: inbox.Open(c.cfg.Inbox, c.cfg.Name, store.Records[Tx](c.store)),
		holds: map[string]*store.Hold{}, blocked: map[string]bool{}, versions: map[string]*versioned{}}
	return &committer[Tx]{c: c, b: b, slot: slot, size: c.cfg.MaxBatch, hard: hard, look: -1}
}

// loop works until the queue is closed. One committer runs the letters, too.
func (w *committer[Tx]) loop(queue <-chan []item) error {
	var items []item
	timer := time.NewTimer(0)
	defer timer.Stop()
	if w.slot > 0 {
		timer.Stop()
	}
	for {
		select {
		case slab, ok := <-queue:
			if !ok {
				return nil
			}
			items = w.collect(items[:0], slab, queue)
			if err := w.process(items); err != nil {
				return err
			}
			if w.slot == 0 && w.look >= 0 {
				timer.Reset(w.look)
			}
		case <-timer.C:
			w.c.busy.Store(true)
			w.look = -1
			next, err := w.letters()
			w.c.busy.Store(false)
			if err != nil {
				return err
			}
			timer.Reset(next)
		}
	}
}

// collect takes all that has arrived while the last batch was committed: under
// load batches grow by themselves, and an idle pipeline waits for nothing.
func (w *committer[Tx]) collect(items, slab []item, queue <-chan []item) []item {
	for {
		items = append(items, slab...)
		w.c.slabs.put(slab)
		select {
		case more, ok := <-queue:
			if !ok {
				return items
			}
			slab = more
		default:
			return items
		}
	}
}

// drop gives up whatever still arrives.
func (w *committer[Tx]) drop(queue <-chan []item) {
	for slab := range queue {
		w.giveUp(slab, semel.Released)
	}
}

// process decides all items, or gives them up: those whose scope is lost, and
// everything left when the consumer has to stop. Its error is fatal.
//
// A failure of message i costs one redo of the messages before it, and i is
// then run alone or parked: linear in failures, and always a prefix.
func (w *committer[Tx]) process(items []item) error {
	if err := w.takeOver(items); err != nil {
		w.giveUp(items, semel.Released)
		return err
	}
	items = w.arrange(items)
	defer w.takeTurn(false)
	defer w.works()
	for len(items) > 0 {
		if items = w.giveUpLost(items); len(items) == 0 {
			return nil
		}
		w.takeTurn(items[0].letter == nil && suspicion(&items[0]) != nil)
		if w.hard.Err() != nil {
			w.giveUp(items, semel.Released)
			return nil //nolint:nilerr // what failed was given back
		}
		n := w.cut(items)
		err := w.attempt(items[:n])
		if err == nil {
			items = items[n:]
			continue
		}
		if err := w.after(items[:n], err); err != nil {
			w.giveUp(items, semel.Released)
			return err
		}
	}
	return nil
}

// takeOver books the suspicion against deliveries of sources without scopes
// whose holder vanished, before they are run.
func (w *committer[Tx]) takeOver(items []item) error {
	var units []string
	for i := range items {
		if it := &items[i]; it.letter == nil && it.scope == nil && it.d.Takeover != semel.Fresh {
			it.suspect = &store.Suspect{Unit: fmt.Sprintf("%s %x", it.d.Origin(), store.Print(&it.d.Message))}
			units = append(units, it.suspect.Unit)
		}
	}
	slices.Sort(units)
	for len(units) > 0 {
		err := w.bookTakeOver(items, slices.Compact(units))
		if err == nil {
			return nil
		}
		if err := w.after(nil, err); err != nil || w.hard.Err() != nil {
			return err
		}
	}
	return nil
}

func (w *committer[Tx]) bookTakeOver(items []item, units []string) error {
	name := w.c.cfg.Name
	return w.commit(w.hard, func(ctx context.Context, tx Tx) error {
		if err := w.setAside(ctx, tx, items); err != nil {
			return err
		}
		rows, err := w.c.store.Suspects(ctx, tx, name, units, nil)
		if err != nil {
			return err
		}
		var now []store.Suspect
		for i := range items {
			it := &items[i]
			if it.suspect == nil {
				continue
			}
			known := slices.IndexFunc(rows, func(s store.Suspect) bool { return s.Unit == it.suspect.Unit })
			s := store.Suspect{Unit: it.suspect.Unit}
			if known >= 0 {
				s = rows[known]
			}
			*it.suspect = takeover(s, known >= 0, it.d.Takeover == semel.Crashed, min(len(units), w.c.cfg.MaxBatch))
			now = append(now, *it.suspect)
		}
		slices.SortFunc(now, func(x, y store.Suspect) int { return cmp.Compare(x.Unit, y.Unit) })
		now = slices.CompactFunc(now, func(x, y store.Suspect) bool { return x.Unit == y.Unit })
		return w.c.store.Suspect(ctx, tx, name, now)
	})
}

// setAside finds the deliveries that were set aside unread before and come
// again, because the process died before it could settle them. Their letters
// stand for them; to decode one would kill once more.
func (w *committer[Tx]) setAside(ctx context.Context, tx Tx, items []item) error {
	doubted := map[string][]*item{}
	for i := range items {
		if it := &items[i]; it.suspect != nil {
			ref := letter.Ref(w.c.cfg.Name, "", store.Print(&it.d.Message), it.d.Origin())
			doubted[ref] = append(doubted[ref], it)
		}
	}
	letters, err := w.c.store.Find(ctx, tx, w.c.cfg.Name, nil, slices.Sorted(maps.Keys(doubted)), nil)
	if err != nil {
		return err
	}
	for i := range letters {
		if l := &letters[i]; l.State.Open() {
			for _, it := range doubted[l.Ref] {
				it.suspect = nil
				it.bury(l.Class, l.Reason, nil)
			}
		}
	}
	return nil
}

// takeTurn waits until no other committer works on suspects, or ends that: a
// message that was started alone is charged with the death of the process, so
// it must not be another's.
func (w *committer[Tx]) takeTurn(want bool) {
	switch {
	case want && !w.turn:
		w.c.turn <- struct{}{}
	case !want && w.turn:
		<-w.c.turn
	}
	w.turn = want
}

// arrange sets aside what has to run apart (work taken over from the dead) and
// orders sources without scopes by key, so that two workers meet the rows of
// keys in the same order.
func (w *committer[Tx]) arrange(items []item) []item {
	if len(items) == 0 || items[0].letter != nil {
		return items
	}
	rank := func(it *item) int {
		if it.suspect != nil || it.scope != nil && it.scope.suspect != nil {
			return 0
		}
		return 1
	}
	scoped := items[0].scope != nil
	order := func(x, y *item) int {
		if r := rank(x) - rank(y); r != 0 || scoped {
			return r
		}
		return cmp.Compare(x.d.Key, y.d.Key)
	}
	for i := 1; i < len(items); i++ { // mostly in order, and items are large to move
		if order(&items[i-1], &items[i]) > 0 {
			slices.SortStableFunc(items, func(x, y item) int { return order(&x, &y) })
			break
		}
	}
	return items
}

// cut says how many items the next transaction takes. What runs alone runs
// alone, and suspects of one scope run apart from everybody else.
func (w *committer[Tx]) cut(items []item) int {
	first, most := &items[0], w.size
	for i := range items {
		it, s := &items[i], suspicion(&items[i])
		if s != nil {
			most = min(most, s.Limit)
		}
		apart := it.alone || first.alone || (s == nil) != (suspicion(first) == nil) || s != nil && it.scope != first.scope
		if i > 0 && (i >= most || apart) {
			return i
		}
	}
	return len(items)
}

func suspicion(it *item) *store.Suspect {
	if it.suspect == nil && it.scope != nil {
		return it.scope.suspect
	}
	return it.suspect
}

// attempt runs one transaction over the items and books it if it committed.
func (w *committer[Tx]) attempt(items []item) error {
	if err := w.announce(items); err != nil {
		return err
	}
	w.c.readLate(items)
	if it := &items[0]; it.letter == nil && len(items) == 1 && deaths(it) >= w.c.cfg.MaxCrashes {
		w.quarantine(it)
	}
	w.b.items = items
	ctx, end := w.open(items)
	if err := w.commit(ctx, w.b.run); err != nil {
		if end != nil {
			end(semel.Batch{}, err)
		}
		return err
	}
	fault.Hit(fault.Committed)
	took := time.Since(w.b.began)
	w.grow(len(items), took)
	batch := w.committed(items, took)
	if end != nil {
		end(batch, nil)
	}
	if !batch.Letters {
		w.c.pass(items)
	}
	return nil
}

// open tells the observer of a transaction, which may put something into its
// context.
func (w *committer[Tx]) open(items []item) (context.Context, func(semel.Batch, error)) {
	f := w.c.cfg.Observer.Open
	if f == nil {
		return w.hard, nil
	}
	return f(w.hard, semel.Opening{N: len(items), Letters: items[0].letter != nil, Messages: func(yield func(*semel.Message) bool) {
		for i := range items {
			if !yield(&items[i].d.Message) {
				return
			}
		}
	}})
}

// commit runs fn in a transaction of the slot and finds out how it ended.
func (w *committer[Tx]) commit(ctx context.Context, fn func(context.Context, Tx) error) error {
	mark := store.Mark{Consumer: w.c.cfg.Name, Worker: w.c.cfg.Worker, Slot: w.slot, Batch: w.mark + 1}
	outcome, err := w.c.store.InTx(ctx, mark, fn)
	if outcome == store.Unknown {
		outcome, err = w.resolve(mark, err)
	}
	if outcome != store.Committed {
		return err
	}
	w.mark++
	return nil
}

// resolve asks until it is known what became of the batch. The slot takes
// nothing new before; giving up would be guessing.
func (w *committer[Tx]) resolve(m store.Mark, cause error) (store.Outcome, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		outcome, err := w.c.store.Resolve(context.WithoutCancel(w.hard), m)
		if outcome != store.Unknown {
			return outcome, &semel.Error{Stage: "commit", Err: errors.Join(cause, errRolledBack)}
		}
		if w.hard.Err() != nil {
			return store.Unknown, &semel.Error{Stage: "commit", Err: errors.Join(cause, err), Hint: "the messages will come again, and be found if they are committed"}
		}
		w.c.paused(errors.Join(cause, err))
		wait(w.hard, pause)
		w.c.paused(nil)
	}
}

// errRolledBack marks a commit that turned out not to have happened. What made
// it fail says what follows, as for every other failure of the store.
var errRolledBack = errors.New("the transaction was rolled back")

// grow lets the batch double, as far as the store's locks may be held.
func (w *committer[Tx]) grow(n int, took time.Duration) {
	switch {
	case w.redo:
		w.size = min(max(16, w.size), w.c.cfg.MaxBatch)
	case n >= w.size:
		w.size = min(max(16, 2*w.size), w.c.cfg.MaxBatch)
	}
	w.redo = false
	if most := w.c.store.Capabilities().MaxHold; most > 0 && took > most {
		w.size = max(1, min(w.size, int(int64(n)*int64(most)/int64(took))))
	}
}

// committed books a batch.
func (w *committer[Tx]) committed(items []item, took time.Duration) semel.Batch {
	for i, a := range w.b.advances {
		w.b.moved[i].next = a.To
	}
	w.clearedSuspicions(items)
	batch := semel.Batch{Messages: len(items), Letters: items[0].letter != nil, Took: took, Handled: w.b.handled}
	stored := false
	for i := range items {
		if it := &items[i]; it.verdict != semel.Dropped || it.letter == nil {
			batch.Of[it.verdict]++
			stored = stored || it.state != ""
			if it.verdict == semel.Parked && (w.look < 0 || it.due < w.look) {
				w.look = it.due
			}
			if at := it.d.Time; !at.IsZero() && (batch.Oldest.IsZero() || at.Before(batch.Oldest)) {
				batch.Oldest = at
			}
			if (it.state == store.StateDead || it.verdict == semel.Dead) && !it.told {
				w.c.observeFailure(it) // nobody has heard of it yet
			}
		}
	}
	w.c.book(batch, w.b.ties)
	w.c.fail(w.follow())
	if stored {
		fault.Hit(fault.Stored)
	}
	if f := w.c.cfg.Observer.Batch; f != nil {
		f(batch)
	}
	return batch
}

// follow runs what handlers asked for after the commit.
func (w *committer[Tx]) follow() (err error) {
	defer recovered(&err)
	for _, fn := range w.b.hooks.fns {
		fn(w.hard)
	}
	return nil
}

// clearedSuspicions keeps what the batch wrote of a scope under suspicion.
func (w *committer[Tx]) clearedSuspicions(items []item) {
	sc := items[0].scope
	if sc == nil || sc.suspect == nil {
		return
	}
	if left := w.b.suspects[0]; left.Limit > 0 {
		*sc.suspect = left
	} else {
		w.c.scopes.cleared(sc)
	}
}

// announce commits the start of a batch in careful mode, so that whoever finds
// us dead knows what was running. A message that was started alone often
// enough is only read once more, to be set aside under its id; one that killed
// then, too, is not even read.
func (w *committer[Tx]) announce(items []item) error {
	if suspicion(&items[0]) == nil {
		return nil
	}
	if items[0].letter != nil {
		return nil
	}
	var rows []store.Suspect
	for i := range items {
		it := &items[i]
		s := suspicion(it)
		*s = start(*s, len(items), it.d.Position.Offset)
		if len(items) == 1 && it.unread && deaths(it) > w.c.cfg.MaxCrashes {
			w.quarantine(it)
			return nil
		}
		if len(rows) == 0 || rows[len(rows)-1].Unit != s.Unit {
			rows = append(rows, *s)
		}
	}
	slices.SortFunc(rows, func(x, y store.Suspect) int { return cmp.Compare(x.Unit, y.Unit) })
	err := w.commit(w.hard, func(ctx context.Context, tx Tx) error {
		return w.c.store.Suspect(ctx, tx, w.c.cfg.Name, rows)
	})
	if err == nil {
		fault.Hit(fault.Started)
	}
	return err
}

// crashError tells how often a message took the process down.
type crashError int

func (n crashError) Error() string {
	return fmt.Sprintf("the process died %d times while this message ran alone", int(n))
}

// deaths counts the lone starts of the item that ended with the process.
func deaths(it *item) int {
	if s := suspicion(it); s != nil {
		return s.Charged
	}
	return 0
}

func (w *committer[Tx]) quarantine(it *item) {
	if it.fate != run { // the handler never saw it
		return
	}
	e := &semel.Error{Stage: "handle", Message: it.name(), Err: crashError(deaths(it)),
		Hint: "it is set aside; find out what it does to the handler before replaying it"}
	if it.unread {
		e.Stage, e.Hint = "decode", "it is set aside unread; find out what it does to the decoder before replaying it"
	}
	it.attempts = max(it.attempts, deaths(it))
	it.bury(store.System, "crash", e)
	w.c.observeFailure(it)
}

// after decides what follows a transaction that did not commit. It returns an
// error only if the consumer has to stop.
func (w *committer[Tx]) after(items []item, err error) error {
	var lost *lostError
	var failed *failure
	var full *fullError
	var opaque opaqueError
	switch {
	case errors.Is(err, store.ErrEnded):
		return &semel.Error{Stage: "handle", Err: err, Hint: "take COMMIT and ROLLBACK out of the handler; nothing was committed"}
	case errors.As(err, &lost):
		w.c.scopes.fenced(lost)
		return nil
	case errors.As(err, &full) && full.i > 0: // what comes before it need not wait
		w.size = full.i
		return nil
	case errors.As(err, &full):
		return w.waitForKey(full)
	case w.hard.Err() != nil:
		return nil //nolint:nilerr // cancelled handlers are charged with nothing
	case errors.Is(err, errUnprepared) && w.c.work.bulk != nil:
		return w.prepareBatch(items)
	case errors.Is(err, errUnprepared):
		w.prepare(items)
		return nil
	case errors.As(err, &failed):
		return w.failed(items, failed)
	case errors.As(err, &opaque):
		w.size = max(1, len(items)/2)
		return nil
	}
	return w.storeFailed(items, err)
}

// failed books the failure of one message.
func (w *committer[Tx]) failed(items []item, f *failure) error {
	it := &items[f.i]
	it.prepared = nil // the next attempt begins anew
	if errors.Is(f.err, semel.ErrStale) && it.stale < maxStale {
		it.stale++
		it.alone = true
		w.cutAt(f.i)
		return nil
	}
	if w.b.expired && len(items) > 1 && errors.Is(f.err, context.DeadlineExceeded) {
		it.alone = true // the others took the time; it gets all of it now
		w.cutAt(f.i)
		return nil
	}
	if class, marked := semel.ClassOf(f.err); marked && class == semel.ClassFault {
		return &semel.Error{Stage: "handle", Message: it.name(), Err: f.err}
	} else if !marked {
		switch class := w.c.store.Classify(f.err); class {
		case semel.ClassContention, semel.ClassInfrastructure, semel.ClassFault:
			return w.storeFailed(items, f.err)
		case semel.ClassPermanent:
			f.err = semel.Permanent(f.err)
		}
	}
	w.charged(items, f.i, f.err)
	return nil
}

// maxStale bounds optimistic misses in a row before they count as failures.
const maxStale = 3

// charged books a failed attempt of message i and arranges the next batch: the
// messages before it, and with them its letter if it gets one now.
func (w *committer[Tx]) charged(items []item, i int, err error) {
	it := &items[i]
	it.alone = false
	w.c.charge(it, err)
	w.c.observeFailure(it)
	w.cutAt(i)
	if it.fate == park {
		w.cutAt(i + 1)
	}
}

// cutAt makes the next batch end before message i.
func (w *committer[Tx]) cutAt(i int) { w.size, w.redo = max(1, i), true }

// storeFailed deals with errors that are not the message's: contention is
// redone in smaller pieces, a store that is down is waited for.
func (w *committer[Tx]) storeFailed(items []item, err error) error {
	switch w.c.store.Classify(err) {
	case semel.ClassContention:
		if len(items) > 0 {
			w.size = max(1, len(items)/2)
		}
		wait(w.hard, time.Duration(rand.Int64N(int64(10*time.Millisecond))))
		return nil
	case semel.ClassFault:
		return err
	}
	if w.probe() != nil {
		return w.pause(err)
	}
	switch len(items) {
	case 0:
		wait(w.hard, 50*time.Millisecond)
		return nil
	case 1:
		return w.broken(&items[0], items, err)
	}
	w.size = len(items) / 2
	return nil
}

// broken deals with a message that alone makes a store fail that otherwise
// works: after the second time that is charged to it, like a crash.
func (w *committer[Tx]) broken(it *item, items []item, err error) error {
	if it.breaks++; it.breaks < 2 {
		return nil
	}
	if it.fate != run { // not even its letter, or its record, can be written
		return w.pause(err)
	}
	it.breaks = 0
	w.charged(items, 0, err)
	return nil
}

// waitForKey lets parked messages run until a key that is full has room.
func (w *committer[Tx]) waitForKey(full *fullError) error {
	w.takeTurn(false) // whoever can help may need it
	w.c.paused(full)
	defer w.c.paused(nil)
	if !wait(w.c.soft, 100*time.Millisecond) {
		return errStopping
	}
	if w.slot > 0 {
		return nil
	}
	_, err := w.letters()
	return err
}

// errStopping ends a committer that cannot finish what it has because the
// consumer was told to stop. It is not reported.
var errStopping = errors.New("stopping")

// probe finds out whether the store can write at all.
func (w *committer[Tx]) probe() error {
	_, err := w.c.store.InTx(w.hard, store.Mark{}, func(ctx context.Context, tx Tx) error {
		return w.c.store.Count(ctx, tx, w.c.cfg.Name, []store.Tally{{Account: "probe", N: 1}})
	})
	return err
}

// pause waits until the store works again. Nothing is charged, nothing taken.
func (w *committer[Tx]) pause(cause error) error {
	w.c.paused(cause)
	defer w.c.paused(nil)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		if !wait(w.c.soft, pause) {
			return &semel.Error{Stage: "commit", Err: cause, Hint: "the store could not be used until the end; nothing was lost, the messages will come again"}
		}
		err := w.probe()
		if err == nil {
			return nil
		}
		if w.c.store.Classify(err) == semel.ClassFault {
			return err
		}
	}
}

// giveUpLost drops the items whose scope is not ours any more and releases
// those of scopes that are being given up.
func (w *committer[Tx]) giveUpLost(items []item) []item {
	var last *scope
	usable := true
	keep := items[:0]
	for i := range items {
		if sc := items[i].scope; sc != last {
			last, usable = sc, w.c.scopes.usable(sc)
		}
		if usable {
			if len(keep) != i {
				items[len(keep)] = items[i]
			}
			keep = items[:len(keep)+1]
			continue
		}
		w.giveUp(items[i:i+1], semel.Dropped)
	}
	return keep
}

// giveUp ends items undecided.
func (w *committer[Tx]) giveUp(items []item, v semel.Verdict) {
	if len(items) == 0 {
		return
	}
	if items[0].letter != nil {
		w.unstart(items)
		return
	}
	if v == semel.Released {
		w.c.scopes.end(items)
	}
	var batch semel.Batch
	batch.Of[v] = int64(len(items))
	w.c.book(batch, 0)
	for i := range items {
		items[i].verdict = v
	}
	w.c.pass(items)
}

// wait sleeps for d; it reports false if ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
