package consumer

import (
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
)

// TestOneKillerAmongMany: a message that takes the process down is found by
// halves and set aside after three lone starts; everybody else is applied.
func TestOneKillerAmongMany(t *testing.T) {
	for _, partitions := range []int{0, 2} {
		for _, at := range []int{0, 1000, 1999} {
			for _, plan := range []string{"killer", "deadly"} {
				t.Run(fmt.Sprintf("%d partitions, message %d, %s", partitions, at, plan), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { killer(t, partitions, at, plan) })
				})
			}
		}
	}
}

// killer has a message whose handler kills, or that is deadly to decode: then
// it is never read, and has no id.
func killer(t *testing.T, partitions, at int, plan string) {
	const n = 2000
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	w := newWorld(1, func(m *world) { m.manyWith(partitions, n, at, plan) }, coverage{})
	w.calm = true
	for range n {
		w.publishOne()
	}
	for range 200 {
		if len(w.alive()) == 0 {
			w.start()
		}
		if !w.bulk() {
			break
		}
	}
	w.drain()
	for _, p := range w.alive() {
		p.leave(false)
	}
	w.check()
	for _, b := range w.bad {
		t.Error(b)
	}
	ls := w.letters()
	id := fmt.Sprintf("m%d", at)
	if plan == "deadly" {
		id = ""
	}
	if len(ls) != 1 || ls[0].Message.ID != id || string(ls[0].Message.Body) != fmt.Sprintf("b%d", at) || ls[0].Reason != "crash" || ls[0].State != store.StateDead {
		t.Errorf("letters: %+v", ls)
	}
	if w.crashes > 20 {
		t.Errorf("%d crashes to find it", w.crashes)
	}
	if len(w.bad) == 0 {
		t.Logf("%d crashes", w.crashes)
	}
}

// manyWith sets a world up with n messages of which one kills the process.
func (m *world) manyWith(partitions, n, at int, plan string) {
	m.src = newSource(m, partitions)
	m.cfg.Inbox, m.cfg.Order, m.cfg.Arbitrate, m.cfg.Retry = inbox.Table, OrderNone, arbitrate.Policy{}, retry.Policy{}
	m.cfg.MaxBatch, m.cfg.MaxCrashes = 2000, 3
	m.work, m.slots = Each(m.handle), 1
	m.wrap(m.plain())
	m.unsent, m.contents = nil, map[contentKey]*content{}
	for i := range n {
		c := &content{Message: semel.Message{ID: fmt.Sprintf("m%d", i), Key: fmt.Sprintf("k%d", i%97), Body: []byte(fmt.Sprintf("b%d", i))}}
		if i == at {
			c.plan, c.times = plan, -1
		}
		m.unsent = append(m.unsent, &entry{content: m.know(c)})
	}
}

// bulk does all that can be done with large batches.
func (m *world) bulk() (some bool) {
	for _, w := range m.alive() {
		if ps := m.src.unowned(); len(ps) > 0 {
			some = m.src.assign(w, ps)
		}
		for !w.dead && w.receive(700) {
			some = true
		}
		some = !w.dead && w.process(0) || some
		some = w.report(1<<20) || some
	}
	return some || len(m.alive()) == 0
}

func TestTakeover(t *testing.T) {
	const most = 2000
	for name, c := range map[string]struct {
		s             store.Suspect
		known, proven bool
		want          store.Suspect
	}{
		"first time":               {store.Suspect{Unit: "u"}, false, true, store.Suspect{Unit: "u", Limit: 1000, Left: 2000}},
		"not known to be dead":     {store.Suspect{Unit: "u"}, false, false, store.Suspect{Unit: "u", Limit: 1000, Left: 2000}},
		"between two batches":      {store.Suspect{Limit: 7, Left: 9}, true, true, store.Suspect{Limit: 7, Left: 9}},
		"in a batch":               {store.Suspect{Limit: 500, Left: 1500, Started: 500}, true, true, store.Suspect{Limit: 250, Left: 500}},
		"in a batch of three":      {store.Suspect{Limit: 3, Started: 3, Left: 3}, true, true, store.Suspect{Limit: 1, Left: 3}},
		"alone":                    {store.Suspect{Limit: 1, Started: 1, Left: 2, Charged: 1}, true, true, store.Suspect{Limit: 1, Left: 1, Charged: 2}},
		"alone, and perhaps alive": {store.Suspect{Limit: 1, Started: 1, Left: 2, Charged: 1}, true, false, store.Suspect{Limit: 1, Left: 1, Charged: 1}},
	} {
		if got := takeover(c.s, c.known, c.proven, most); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := takeover(store.Suspect{}, false, true, 1); got.Limit != 1 {
		t.Errorf("a batch of one: %+v", got)
	}
}

func TestStartAndDecided(t *testing.T) {
	at := semel.Offset{Lo: 5}
	charged := store.Suspect{Unit: "u", Limit: 1, Left: 3, At: at, Charged: 2}
	for name, c := range map[string]struct{ got, want store.Suspect }{
		"the same again":    {start(charged, 1, at), store.Suspect{Unit: "u", Limit: 1, Left: 3, At: at, Charged: 2, Started: 1}},
		"another":           {start(charged, 1, semel.Offset{Lo: 6}), store.Suspect{Unit: "u", Limit: 1, Left: 3, At: semel.Offset{Lo: 6}, Started: 1}},
		"a batch":           {start(charged, 4, semel.Offset{Lo: 6}), store.Suspect{Unit: "u", Limit: 1, Left: 3, At: at, Charged: 2, Started: 4}},
		"some decided":      {decided(store.Suspect{Unit: "u", Limit: 4, Left: 9, Started: 4}, 4), store.Suspect{Unit: "u", Limit: 4, Left: 5}},
		"the last decided":  {decided(store.Suspect{Unit: "u", Limit: 4, Left: 4, Started: 4}, 4), store.Suspect{Unit: "u"}},
		"more than is left": {decided(store.Suspect{Unit: "u", Limit: 4, Left: 1, Started: 4}, 4), store.Suspect{Unit: "u"}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}

// TestNothingAfterWhatIsGivenUp: once something of a scope was given back, what
// comes behind it is not decided, or there would be a gap in the position.
func TestNothingAfterWhatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, func(m *world) { m.manyWith(1, 10, 99, "killer") }, coverage{})
		w.calm = true
		w.start()
		p, k := w.workers[0], w.workers[0].slots[0]
		w.src.assign(p, w.src.unowned())
		for range 2 {
			w.publishOne()
			p.receive(1)
		}
		k.giveUp(<-p.queues[0], semel.Released)
		p.process(0)
		p.leave(false)
		if n := len(w.mem.Rows()); n > 0 {
			t.Errorf("%d rows were written", n)
		}
		if f := w.fence(w.src.parts[0]); f.Next != (semel.Offset{}) {
			t.Errorf("the position is %v", f.Next)
		}
		for _, b := range w.bad {
			t.Error(b)
		}
	})
}

// TestAnUnreadLetterThatKills: whatever is charged to a letter that was never
// decoded, it stays one that has to be.
func TestAnUnreadLetterThatKills(t *testing.T) {
	for name, l := range map[string]store.Letter{
		"invalid":   {Message: semel.Message{ID: "a"}, Class: store.Format, Reason: letter.Invalid},
		"malformed": {Message: semel.Message{ID: "a"}, Class: store.Format, Reason: letter.Malformed},
		"a killer":  {Class: store.System, Reason: "crash", Attempts: 4},
	} {
		w := &committer[mtx]{c: &Consumer[mtx]{cfg: Config{Worker: "w"}}}
		l.State, l.Note = store.StateRetry, letter.StartedAlone
		it := w.c.letterItem(&l)
		m := w.announcement(&it)
		l.Class, l.Reason, l.Attempts = m.Class, m.Reason, m.Attempts
		if it.fate != park || !it.dead || !letter.Unread(&l) || m.Attempt.N == 0 {
			t.Errorf("%s: %+v, dead %v", name, m, it.dead)
		}
	}
}
