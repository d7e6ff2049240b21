package consumer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store"
)

// heal ends all misfortunes and drains what there is.
func (m *world) heal() {
	m.trace("- heal")
	m.calm = true
	m.crashIn, m.crashOpIn, m.errorIn, m.src.lose, m.down = 0, 0, 0, 0, false
	m.mem.Heal()
	m.mem.Fail("commit", 0, nil)
	m.mem.Fail("committed", 0, nil)
	m.mem.Fail("resolve", 0, nil)
	for m.tellZombie() {
	}
	for m.publishOne() {
	}
	for _, e := range m.src.all {
		if (e.plan == "killer" || e.plan == "deadly") && e.times < 0 && !m.chance(50) {
			e.times = 3
		}
	}
	if m.drain() && m.cfg.Order == OrderKey {
		m.decideAll()
		m.drain()
	}
	for _, w := range m.alive() {
		w.leave(false)
	}
}

// drain goes on until nothing is left to be done.
func (m *world) drain() bool {
	for range 2000 {
		m.tick()
		if len(m.bad) > 0 {
			return false
		}
		if len(m.alive()) == 0 {
			m.start()
		}
		if m.goOn() {
			continue
		}
		next := m.nextDue()
		if next < 0 {
			return true
		}
		time.Sleep(next)
	}
	m.violated("it does not drain")
	return false
}

// goOn does whatever can be done at once.
func (m *world) goOn() (some bool) {
	synctest.Wait()
	m.finishRevocations()
	m.finishWorkers()
	for _, w := range m.alive() {
		if ps := m.src.unowned(); len(ps) > 0 && !w.dead {
			m.src.assign(w, ps)
			some = true
		}
		for !w.dead && w.receive(5) {
			some = true
		}
		for slot := range w.slots {
			some = !w.dead && w.process(slot) || some
		}
		some = w.report(1<<20) || some
		if !w.dead && m.nextDue() == 0 {
			some = w.takeLetters() || some
		}
	}
	return some || !m.src.empty() || len(m.pending) > 0
}

// nextDue is when the next letter may run; negative: none.
func (m *world) nextDue() (next time.Duration) {
	m.peek(func() {
		due, d, err := m.mem.Due(context.Background(), "model", 1, 1<<20)
		if next = d; len(due) > 0 || err != nil {
			next = 0
		}
	})
	return next
}

// decideAll gives every key free that a dead letter holds.
func (m *world) decideAll() {
	for range 100 {
		again := false
		for _, l := range m.letters() {
			if forPerson(&l) && l.Number > 0 {
				m.discard(l)
				again = true
			}
		}
		if !m.drain() || !again {
			return
		}
	}
	m.violated("keys stay held")
}

// peek reads the store without being bothered.
func (m *world) peek(fn func()) {
	was := m.quiet
	m.quiet = true
	if m.down && !was {
		m.mem.Heal()
		defer m.mem.Break()
	}
	fn()
	m.quiet = was
}

// truth is what the store says in the end.
type truth struct {
	*world
	rows    map[string]string
	letters []store.Letter
	byRef   map[string]*store.Letter
	status  store.Status
}

func (m *world) truth() *truth {
	t := &truth{world: m, rows: m.mem.Rows(), letters: m.letters(), byRef: map[string]*store.Letter{}}
	for i := range t.letters {
		t.byRef[t.letters[i].Ref] = &t.letters[i]
	}
	return t
}

func (m *world) check() {
	if len(m.bad) > 0 {
		return
	}
	m.peek(func() {
		s, err := m.mem.Status(context.Background(), "model", true)
		if err != nil {
			m.violated("status: %v", err)
		}
		t := m.truth()
		t.status = s
		t.effects()
		t.each()
		t.open()
		t.holds()
		t.fences()
		t.balance()
		t.order()
	})
}

func (t *truth) effect(c *content) int {
	n, _ := strconv.Atoi(t.rows["effect/"+c.ID+"/"+string(c.Body)])
	return n
}

// effects: none twice, none of what nobody published, versions only upwards.
func (t *truth) effects() {
	for row, n := range t.rows {
		kind, rest, _ := strings.Cut(row, "/")
		switch kind {
		case "bad":
			t.violated("version went backwards: key %s: %s", rest, n)
		case "effect":
			id, body, _ := strings.Cut(rest, "/")
			c := t.contents[contentKey{id, body}]
			if c == nil || c.broken && c.back == "" || c.filter && !t.replayed[id] {
				t.violated("phantom effect of %s", rest)
				continue
			}
			most := 1
			if t.cfg.Inbox == inbox.Position {
				most = max(1, c.copies) // 0: a person wrote it
			}
			if t.effect(c) > most {
				t.violated("applied twice: %s %s times, published %d times", rest, n, c.copies)
			}
		}
	}
	if t.cfg.Inbox == inbox.Table {
		t.oneContent()
	}
}

// oneContent: of the contents of one id at most one is applied.
func (t *truth) oneContent() {
	applied := map[string]int{}
	for k, c := range t.contents {
		applied[k.id] += t.effect(c)
	}
	for id, n := range applied {
		if n > 1 {
			t.violated("applied twice: %s with different contents", id)
		}
	}
}

// each: every message is somewhere.
func (t *truth) each() {
	for _, e := range t.src.all {
		if why := t.missing(e); why != "" {
			t.violated("lost: %s: %s", e, why)
		}
		if t.effect(e.content) == 0 && e.ID != "" {
			t.explain(e)
		}
	}
}

// explain: what has no effect has a reason for it.
func (t *truth) explain(e *entry) {
	l := t.own(e)
	if l == nil {
		l = t.of(e.ID)
	}
	switch {
	case l == nil:
	case l.State == store.StateDead && !t.excused(l):
		t.violated("dead without cause: %s: %s", e, l.Reason)
	case l.State == store.StateSuperseded && l.Fingerprint == store.Print(&e.Message) && !t.older(e.content):
		t.violated("superseded without cause: %s", e)
	}
}

func (t *truth) excused(l *store.Letter) bool {
	c := t.contents[contentKey{l.Message.ID, string(l.Message.Body)}]
	if c == nil {
		c = &content{}
	}
	switch l.Reason {
	case "invalid", "malformed":
		return l.Message.ID == "" || c.broken || c.plan == "invalid"
	case "permanent":
		return c.plan == "permanent"
	case "exhausted":
		return slices.Contains([]string{"transient", "panic", "later", "stale", "killer", "deadly"}, c.plan) || t.crashes > 0
	case "crash":
		return t.crashes > 0
	case "conflict":
		return l.Conflict
	case "tie", "no version":
		return t.cfg.Arbitrate.On
	}
	return false
}

// older reports whether the message may have been superseded.
func (t *truth) older(c *content) bool {
	if c.plan == "superseded" {
		return true
	}
	if !t.cfg.Arbitrate.On || c.Key == "" {
		return false
	}
	if !c.Version.Set {
		return t.cfg.Arbitrate.Missing == arbitrate.MissingSuperseded
	}
	tr, _ := t.mem.Trace(context.Background(), "model", c.ID, c.Key)
	return tr.Version != nil && (tr.Version.Version.N > c.Version.N ||
		tr.Version.Version.N == c.Version.N && tr.Version.Version.Tie >= c.Version.Tie)
}

// own is the letter of a delivery; one that was set aside unread has no id.
func (t *truth) own(e *entry) *store.Letter {
	if l := t.byRef[e.ref(e.ID)]; l != nil {
		return l
	}
	return t.byRef[e.ref("")]
}

// of is the letter that stands for an id.
func (t *truth) of(id string) *store.Letter {
	if i := slices.IndexFunc(t.letters, func(l store.Letter) bool { return l.Message.ID == id && !l.Conflict }); i >= 0 {
		return &t.letters[i]
	}
	return nil
}

// unsafe says why a delivery must not be acked yet.
func (t *truth) unsafe(e *entry) (why string) {
	if e.part != nil && t.fence(e.part).Next.Compare(e.pos.Offset) <= 0 {
		return "its position is not committed"
	}
	return t.missing(e)
}

func (m *world) fence(p *partition) store.Fence {
	s, _ := m.mem.Status(context.Background(), "model", false)
	for _, f := range s.Fences {
		if f.Scope == p.Scope {
			return f
		}
	}
	return store.Fence{}
}

// missing says why a message is not decided; empty: it is.
func (t *truth) missing(e *entry) string {
	switch {
	case t.effect(e.content) > 0 || t.own(e) != nil:
		return ""
	case slices.ContainsFunc(t.letters, func(l store.Letter) bool {
		return (l.Ref == e.back || l.Message.ID == e.ID) && (t.proposed(&l, e) || e.ID == "" || t.outdated(&l, e))
	}):
		return ""
	case e.ID == "":
		return "it has no letter"
	case t.cfg.Inbox == inbox.Table:
		return t.missingRecord(e)
	}
	if e.filter || e.plan == "duplicate" || e.plan == "superseded" || t.older(e.content) {
		return ""
	}
	return "it has no effect and no letter"
}

// outdated reports whether the letter was repaired again, after it had been
// repaired with this content, by a person at the desk or through the source, or
// another repair of it was delivered again.
func (t *truth) outdated(l *store.Letter, e *entry) bool {
	return e.back == l.Ref && t.reproposed[l.Ref] || e.back == l.Ref && slices.ContainsFunc(t.src.all, func(later *entry) bool {
		return later.back == l.Ref && later != e && (later.n > e.n || later.handed > 1) && store.Print(&later.Message) == l.Fingerprint
	})
}

// proposed reports whether the content is kept beside a letter, or is the
// letter's.
func (m *world) proposed(l *store.Letter, e *entry) bool {
	print := store.Print(&e.Message)
	rs, _ := m.mem.Revisions(context.Background(), "model", l.Ref)
	return l.Fingerprint == print || slices.ContainsFunc(rs, func(r store.Revision) bool { return r.Fingerprint == print })
}

func (t *truth) missingRecord(e *entry) string {
	tr, err := t.mem.Trace(context.Background(), "model", e.ID, "")
	r := tr.Record
	switch {
	case err != nil:
		return err.Error()
	case r == nil:
		return "it is not recorded"
	case r.Fingerprint != store.Print(&e.Message):
		return "its id is recorded with other content, and it has no letter"
	case r.Verdict == semel.Applied && e.plan != "duplicate" && t.of(e.ID) == nil:
		return "it is recorded as applied, and is not"
	case r.Verdict == semel.Superseded && !t.older(e.content):
		return "it is recorded as superseded, and is not"
	case r.Verdict == semel.Filtered && !e.filter:
		return "it is recorded as filtered, and should not"
	case (r.Verdict == semel.Parked || r.Verdict == semel.Discarded) && t.of(e.ID) == nil:
		return "it is recorded as " + r.Verdict.String() + ", and has no letter"
	}
	return ""
}

// open: no letter waits for anything but a person, and no id has two.
func (t *truth) open() {
	seen := map[string]int{}
	for _, l := range t.letters {
		if l.State == store.StateRetry || l.State == store.StateHeld {
			t.violated("letter stuck in %s: %s", l.State, cmp.Or(l.Message.ID, l.Origin))
		}
		name := l.Message.ID
		if name == "" {
			name = l.Origin
		}
		if seen[name]++; seen[name] > 1 && !l.Conflict && t.cfg.Inbox == inbox.Table {
			t.violated("two letters of %s", name)
		}
		if l.Conflict {
			seen[name]--
		}
	}
}

// holds: each stands for as many letters as it says.
func (t *truth) holds() {
	behind := map[string]int64{}
	for _, l := range t.letters {
		if l.State.Open() && l.Number > 0 {
			behind[l.Message.Key]++
		}
	}
	for _, h := range t.status.Holds {
		if h.Size != behind[h.Key] || h.Size == 0 {
			t.violated("hold of %s has size %d, and %d letters stand behind it", h.Key, h.Size, behind[h.Key])
		}
		delete(behind, h.Key)
	}
	for key, n := range behind {
		t.violated("%d letters of %s stand behind no hold", n, key)
	}
}

// fences: everything is decided, and everybody left in good order.
func (t *truth) fences() {
	for _, p := range t.src.parts {
		if f := t.fence(p); f.Next != p.end() && len(p.log) > 0 || !f.Clean && f.Worker != ghost {
			t.violated("fence of %s ends at %v of %v, clean %v", p.Scope, f.Next, p.end(), f.Clean)
		}
	}
}

func (t *truth) balance() {
	for _, i := range t.status.Imbalances {
		t.violated("does not balance: %+v", i)
	}
}

// order: with order by key the first effects of a key are in the order of its
// partition, except where people interfered.
func (t *truth) order() {
	if t.cfg.Order != OrderKey {
		return
	}
	last := map[string]int{}
	who := map[string]string{}
	done := map[string]bool{}
	for _, p := range t.src.parts {
		for _, e := range p.log {
			n, err := strconv.Atoi(t.rows["seq/"+e.Key+"/"+e.ID])
			if err != nil || t.replayed[e.ID] || done[e.ID] || t.twice(e.ID) {
				continue
			}
			done[e.ID] = true
			if n < last[e.Key] {
				t.violated("order of key %s: %s before %s", e.Key, e, who[e.Key])
			}
			last[e.Key], who[e.Key] = n, fmt.Sprint(e)
		}
	}
}

// twice reports whether an id was published with several contents or more than
// once, so that it has no one place in the order.
func (t *truth) twice(id string) bool {
	n := 0
	for _, e := range t.src.all {
		if e.ID == id {
			n++
		}
	}
	return n > 1
}
