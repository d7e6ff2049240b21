package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// moves are the steps that a schedule is made of; nested those of them that
// may happen between two transactions of somebody else.
func moves() []move {
	return []move{
		{"publish", 8, true, (*world).publishOne},
		{"deliver", 40, true, (*world).deliverSome},
		{"process", 40, true, (*world).processSome},
		{"settle", 20, true, (*world).settleSome},
		{"letters", 15, true, (*world).runLetters},
		{"assign", 20, true, (*world).assignSome},
		{"revoke", 4, true, (*world).revokeOne},
		{"lose", 4, true, (*world).loseOne},
		{"epoch taken", 3, true, (*world).takeEpoch},
		{"zombie", 3, true, (*world).makeZombie},
		{"zombie told", 3, true, (*world).tellZombie},
		{"rewind", 3, true, (*world).rewind},
		{"deliver again", 4, true, (*world).deliverAgain},
		{"person replays", 5, true, func(m *world) bool { return m.decide(m.replay) }},
		{"person replays what is proposed", 4, true, func(m *world) bool { return m.decide(m.replayProposed) }},
		{"person edits", 3, true, func(m *world) bool { return m.decide(m.edit) }},
		{"person discards", 2, true, func(m *world) bool { return m.decide(m.discard) }},
		{"person returns", 5, true, func(m *world) bool { return m.decide(m.giveBack) }},
		{"lose a settlement", 2, true, func(m *world) bool { m.src.lose++; return true }},
		{"crash ahead", 4, true, func(m *world) bool { m.crashIn = 1 + m.rnd.IntN(12); return true }},
		{"crash in an operation ahead", 4, true, func(m *world) bool { m.crashOpIn = 1 + m.rnd.IntN(30); return true }},
		{"error ahead", 6, true, (*world).errorAhead},
		{"unknown commit ahead", 3, true, (*world).loseCommit},
		{"start", 8, false, (*world).startOne},
		{"stop", 2, false, (*world).stopOne},
		{"sleep", 8, false, (*world).sleep},
		{"break", 2, false, (*world).breakStore},
	}
}

func nested() []move {
	return slices.DeleteFunc(moves(), func(s move) bool { return !s.nested })
}

const maxWorkers = 3

func (m *world) startOne() bool { return len(m.alive()) < maxWorkers && m.start() }

func (m *world) stopOne() bool {
	w := m.someone((*worker).idle)
	if w == nil {
		return false
	}
	hard := m.chance(50)
	if hard {
		m.seen["stopped at once"]++
	}
	return w.leave(hard)
}

// someone is a process that lives and is fit for something.
func (m *world) someone(fit func(*worker) bool) *worker {
	ws := slices.DeleteFunc(m.alive(), func(w *worker) bool { return !fit(w) })
	if len(ws) == 0 {
		return nil
	}
	return ws[m.rnd.IntN(len(ws))]
}

func (m *world) publishOne() bool {
	if len(m.unsent) == 0 {
		return false
	}
	m.src.publish(m.unsent[0].content)
	m.unsent = m.unsent[1:]
	return true
}

func (m *world) deliverSome() bool {
	w := m.someone(func(w *worker) bool {
		return !w.zombie && !w.receiving && !w.ending && w.queued() < 4 && m.src.has(w)
	})
	return w != nil && w.receive(1+m.rnd.IntN(5))
}

func (m *world) processSome() bool {
	w := m.someone(func(w *worker) bool { return w.queued() > 0 })
	return w != nil && w.process(m.rnd.IntN(len(w.slots)))
}

func (m *world) settleSome() bool {
	w := m.someone(func(w *worker) bool { return len(w.c.out) > 0 })
	return w != nil && w.report(1+m.rnd.IntN(6))
}

func (m *world) runLetters() bool {
	if m.nextDue() != 0 && m.chance(80) {
		return false
	}
	w := m.someone((*worker).idle)
	return w != nil && w.takeLetters()
}

func (m *world) assignSome() bool {
	ps := m.src.unowned()
	w := m.someone(func(w *worker) bool { return !w.zombie && !w.receiving && !w.ending })
	if len(ps) == 0 || w == nil {
		return false
	}
	m.rnd.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
	return m.src.assign(w, ps[:1+m.rnd.IntN(len(ps))])
}

func (m *world) owned() *partition {
	var ps []*partition
	for _, p := range m.src.parts {
		if p.owner != nil && !p.owner.dead && !p.paused {
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return nil
	}
	return ps[m.rnd.IntN(len(ps))]
}

func (m *world) revokeOne() bool {
	p := m.owned()
	return p != nil && m.revoke(p.owner, p)
}

func (m *world) loseOne() bool {
	p := m.owned()
	if p == nil {
		return false
	}
	m.lose(p)
	return true
}

const ghost = "ghost"

// takeEpoch is a process that takes a scope's epoch and is not heard of again.
func (m *world) takeEpoch() bool {
	p := m.owned()
	if p == nil {
		return false
	}
	m.peek(func() {
		_, _ = m.mem.Assign(context.Background(), "model", ghost, []store.Start{{Scope: p.Scope, Create: store.CreateNever}})
	})
	return true
}

// makeZombie has the source take a process for dead that is not.
func (m *world) makeZombie() bool {
	w := m.someone(func(w *worker) bool { return !w.zombie })
	if w == nil {
		return false
	}
	w.zombie = true
	m.src.gone(w, semel.Orphaned)
	return true
}

func (m *world) tellZombie() bool {
	for _, w := range m.alive() {
		if w.zombie {
			w.zombie = false
			w.c.scopes.Lost(w.c.scopes.all())
			return true
		}
	}
	return false
}

// rewind has a source read a partition again from where it began in this
// assignment, or earlier.
func (m *world) rewind() bool {
	p := m.owned()
	if p == nil || p.cursor == 0 {
		return false
	}
	p.cursor = m.rnd.IntN(p.cursor)
	return true
}

// deliverAgain has a queue hand over a second copy, of whatever age.
func (m *world) deliverAgain() bool {
	if len(m.src.parts) > 0 || len(m.src.all) == 0 {
		return false
	}
	m.src.ready = append(m.src.ready, m.src.all[m.rnd.IntN(len(m.src.all))])
	return true
}

func (m *world) errorAhead() bool {
	m.errorIn = 1 + m.rnd.IntN(30)
	m.errClass = []semel.Class{semel.ClassContention, semel.ClassContention, semel.ClassInfrastructure, semel.ClassTransient, semel.ClassFault}[m.rnd.IntN(5)]
	return true
}

func (m *world) loseCommit() bool {
	committed := m.chance(50)
	m.seen["commit unknown, "+map[bool]string{true: "committed", false: "rolled back"}[committed]]++
	m.mem.LoseCommit(committed, m.rnd.IntN(3))
	return true
}

func (m *world) breakStore() bool {
	m.mem.Break()
	m.down = true
	m.seen["store down"]++
	m.healIn = 1 + m.rnd.IntN(8)
	for range 1 + m.rnd.IntN(3) {
		m.step(m.nested)
	}
	m.down = false
	m.mem.Heal()
	return true
}

func (m *world) sleep() bool {
	time.Sleep([]time.Duration{2 * time.Second, 11 * time.Second, 70 * time.Second}[m.rnd.IntN(3)])
	return true
}

// decide has a person do something about a letter that waits for one.
func (m *world) decide(do func(store.Letter) bool) bool {
	var dead []store.Letter
	for _, l := range m.letters() {
		if forPerson(&l) {
			dead = append(dead, l)
		}
	}
	return len(dead) > 0 && do(dead[m.rnd.IntN(len(dead))])
}

// forPerson reports whether a letter waits for a person.
func forPerson(l *store.Letter) bool { return l.State == store.StateDead || letter.Edited(l) }

// atDesk survives the death of the person's own process.
func (m *world) atDesk(do func() ([]letter.Done, error)) bool {
	defer m.survive()
	done, err := do()
	return err == nil && len(done) == 1 && done[0].Err == nil
}

func (m *world) replay(l store.Letter) bool {
	m.replayed[l.Message.ID] = true
	m.say("replay %s %s", l.Message.ID, l.Ref)
	if m.atDesk(func() ([]letter.Done, error) {
		return m.desk.Replay(context.Background(), "model", letter.Targets(l.Ref), "ann", "")
	}) {
		m.seen["letter replayed"]++
	}
	return true
}

func (m *world) replayProposed(l store.Letter) bool {
	m.replayed[l.Message.ID] = true
	m.reproposed[l.Ref] = true
	m.say("replay what is proposed for %s %s", l.Message.ID, l.Ref)
	if m.atDesk(func() ([]letter.Done, error) {
		return m.desk.ReplayProposed(context.Background(), "model", letter.Targets(l.Ref), "ann", "")
	}) {
		m.seen["proposal replayed"]++
	}
	return true
}

// edit gives a letter other content at the desk; a replay tries it.
func (m *world) edit(l store.Letter) bool {
	c := &content{Message: l.Message, back: l.Ref}
	c.Body = []byte(fmt.Sprintf("edited%d", m.rnd.IntN(1000)))
	if c.ID == "" {
		return false // it would have to be read
	}
	m.replayed[c.ID], m.reproposed[l.Ref] = true, true
	m.know(c)
	m.say("edit %s %s", l.Message.ID, l.Ref)
	if m.atDesk(func() ([]letter.Done, error) {
		p := letter.Proposal{Target: letter.Target{Ref: l.Ref, Version: l.Version}, Message: c.Message}
		return m.desk.Propose(context.Background(), "model", []letter.Proposal{p}, "ann", "")
	}) {
		m.seen["letter edited"]++
	}
	return true
}

func (m *world) discard(l store.Letter) bool {
	m.replayed[l.Message.ID] = true
	m.say("discard %s %s", l.Message.ID, l.Ref)
	if m.atDesk(func() ([]letter.Done, error) {
		return m.desk.Discard(context.Background(), "model", letter.Targets(l.Ref), "ann", "no use")
	}) {
		m.seen["letter discarded"]++
	}
	return true
}

// giveBack returns a dead letter through the source, as it is or repaired.
func (m *world) giveBack(l store.Letter) bool {
	c := &content{Message: l.Message, back: l.Ref}
	if m.chance(50) {
		m.seen["returned as it was"]++
		old := m.contents[contentKey{l.Message.ID, string(l.Message.Body)}]
		if old != nil {
			c.plan, c.times, c.later, c.filter, c.broken = old.plan, old.times, old.later, old.filter, old.broken
		}
		if l.Message.ID == "" {
			c.broken = true
		}
	} else {
		m.seen["returned revised"]++
		c.Body = []byte(fmt.Sprintf("repaired%d", len(m.src.all)))
		c.Time = time.Unix(86400*int64(m.rnd.IntN(4)), 0)
		if c.ID == "" {
			c.ID = "r" + strconv.Itoa(m.rnd.IntN(4))
			c.Key, c.Version = "k0", semel.Version{N: int64(m.rnd.IntN(20)), Set: true}
		}
	}
	m.replayed[c.ID] = true
	m.src.publish(m.know(c))
	return true
}

// know registers a content, or returns the one that is known with another way
// of being delivered.
func (m *world) know(c *content) *content {
	k := contentKey{c.ID, string(c.Body)}
	old := m.contents[k]
	if old == nil || c.ID == "" {
		if c.ID != "" {
			m.contents[k] = c
		}
		return c
	}
	if old.back == c.back {
		return old
	}
	again := *old
	again.back = c.back
	old.copies++
	return &again
}

// publishLater draws the messages of the schedule.
func (m *world) publishLater() {
	r := m.rnd
	version := int64(0)
	for range 12 + r.IntN(12) {
		c := &content{times: -1}
		c.ID = "m" + strconv.Itoa(r.IntN(30))
		c.Key = []string{"", "k0", "k0", "k1", "k2"}[r.IntN(5)]
		c.Body = []byte("b" + strconv.Itoa(len(m.unsent)))
		c.Time = time.Unix(86400*int64(r.IntN(2)), 0)
		version++
		c.Version = semel.Version{N: version + int64(r.IntN(5)) - 2, Tie: []string{"", "", "t1", "t2"}[r.IntN(4)], Set: r.IntN(8) > 0}
		m.drawPlan(c)
		switch n := r.IntN(20); {
		case n < 3 && len(m.unsent) > 0: // the same again
			c = m.unsent[r.IntN(len(m.unsent))].content
		case n < 5 && len(m.unsent) > 0: // the same id, other content
			c.ID = m.unsent[r.IntN(len(m.unsent))].ID
		case n < 6:
			c.ID, c.Key, c.broken = "", "", true
		case n < 7:
			c.broken = true
		case n < 9:
			c.filter = true
		}
		m.unsent = append(m.unsent, &entry{content: m.know(c)})
	}
}

func (m *world) drawPlan(c *content) {
	r := m.rnd
	n := r.IntN(26)
	plans := []struct {
		plan  string
		times int
	}{
		{"transient", 1 + r.IntN(2)}, {"transient", 1 + r.IntN(4)}, {"transient", -1}, {"permanent", -1}, {"invalid", -1},
		{"panic", 1 + r.IntN(2)}, {"stale", 1 + r.IntN(3)}, {"stale", 4}, {"duplicate", -1}, {"superseded", -1},
		{"later", 1}, {"killer", 1 + r.IntN(2)}, {"killer", -1}, {"deadly", 1 + r.IntN(2)}, {"deadly", -1}, {"contention", 1 + r.IntN(2)},
	}
	if n < len(plans) {
		c.plan, c.times = plans[n].plan, plans[n].times
	}
	c.later = r.IntN(2) == 0
}

func (m *world) decode(d *semel.Delivery) error {
	c := m.contents[contentKey{d.ID, string(d.Body)}]
	if c != nil && c.plan == "deadly" && (c.times < 0 || c.reads < c.times) {
		c.reads++
		m.seen["plan deadly"]++
		panic(fault.Crash{Point: "the decoder"})
	}
	switch {
	case d.ID == "":
		return semel.Invalidf("no id")
	case c != nil && c.filter:
		return semel.ErrFiltered
	}
	return nil
}

// handle is the user's code.
func (m *world) handle(_ context.Context, tx mtx, msg semel.Message) error {
	c := m.contents[contentKey{msg.ID, string(msg.Body)}]
	if c == nil {
		m.violated("the handler got what nobody published: %s %s", msg.ID, msg.Body)
		return nil
	}
	c.runs++
	m.say("run %s %s %s (%d): %s %d", msg.ID, msg.Body, msg.Key, c.runs, c.plan, c.times)
	if m.deferred && c.later {
		tx.Queue(func(tx mtx) error { return m.effect(tx, c) })
		return nil
	}
	return m.effect(tx, c)
}

// handleAll is the same, set-based.
func (m *world) handleAll(ctx context.Context, tx mtx, ms []semel.Message) error {
	var errs []error
	for i := range ms {
		err := m.handle(ctx, tx, ms[i])
		if err != nil && !m.contents[contentKey{ms[i].ID, string(ms[i].Body)}].later && semelVerdict(err) == nil {
			return errors.Join(err, errors.Join(errs...)) // names no message
		}
		errs = append(errs, semel.At(i, err))
	}
	return errors.Join(errs...)
}

func semelVerdict(err error) error {
	if errors.Is(err, semel.ErrDuplicate) || errors.Is(err, semel.ErrSuperseded) {
		return err
	}
	return nil
}

// effect writes first and fails then: what is written has to disappear.
func (m *world) effect(tx mtx, c *content) error {
	planned := c.times < 0 || c.runs <= c.times
	if planned && c.plan == "duplicate" || planned && c.plan == "superseded" {
		return m.outcome(c)
	}
	if err := m.write(tx, c); err != nil {
		return err
	}
	if planned {
		return m.outcome(c)
	}
	return nil
}

func (m *world) outcome(c *content) error {
	if c.plan != "" {
		m.seen["plan "+c.plan]++
	}
	switch c.plan {
	case "transient":
		return errors.New("not now")
	case "permanent":
		return semel.Permanent(errors.New("unknown code"))
	case "invalid":
		return semel.Invalid(errors.New("no field"))
	case "panic":
		panic("oops")
	case "stale":
		return semel.ErrStale
	case "duplicate":
		return semel.ErrDuplicate
	case "superseded":
		return fmt.Errorf("state: %w", semel.ErrSuperseded)
	case "later":
		return semel.RetryAfter(errors.New("busy"), 30*time.Second)
	case "killer":
		panic(fault.Crash{Point: "the handler"})
	case "contention":
		return memstore.Errorf(semel.ClassContention, "deadlock")
	}
	return nil
}

// prepare is work outside of the transaction: others go on meanwhile, and the
// process may die before it is recorded.
func (m *world) prepare(_ context.Context, msg semel.Message) (func(context.Context, mtx) error, error) {
	m.hit(fault.Called)
	return func(ctx context.Context, tx mtx) error { return m.handle(ctx, tx, msg) }, nil
}

// write is the effect, and what the checks need to know of it.
func (m *world) write(tx mtx, c *content) error {
	if err := tx.Add("effect/"+c.ID+"/"+string(c.Body), 1); err != nil || c.Key == "" {
		return err
	}
	if err := tx.Add("n/"+c.Key, 1); err != nil {
		return err
	}
	n, _, err := tx.Lookup("n/" + c.Key)
	if err != nil {
		return err
	}
	if err := tx.Put("seq/"+c.Key+"/"+c.ID, n); err != nil {
		return err
	}
	return m.writeVersion(tx, c)
}

func (m *world) writeVersion(tx mtx, c *content) error {
	if !c.Version.Set || !m.cfg.Arbitrate.On {
		return nil
	}
	v := fmt.Sprintf("%05d/%s", c.Version.N+100, c.Version.Tie)
	old, ok, err := tx.Lookup("version/" + c.Key)
	if err != nil {
		return err
	}
	if ok && old >= v {
		if err := tx.Put("bad/"+c.Key, fmt.Sprintf("%s after %s", v, old)); err != nil {
			return err
		}
	}
	return tx.Put("version/"+c.Key, v)
}
