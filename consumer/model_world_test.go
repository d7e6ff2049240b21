package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

type mtx = *memstore.Tx

// world is everything outside of the pipeline: the source, the store, the
// processes that come and go, the people, and the misfortunes.
type world struct {
	seed       uint64
	rnd        *rand.Rand
	cfg        Config
	deferred   bool
	slots      int
	mem        *memstore.Store
	st         store.Backend[mtx]
	desk       letter.Desk[mtx]
	work       Work[mtx]
	src        *source
	hooks      sabotage
	contents   map[contentKey]*content
	unsent     []*entry
	workers    []*worker
	named      int
	stack      []*committer[mtx] // running; the last one may be interrupted
	pending    []*revocation
	replayed   map[string]bool // ids that people gave another chance
	reproposed map[string]bool // letters that people gave other content
	crashes    int

	// Misfortunes that are on their way: countdowns, 0: none.
	crashIn, crashOpIn, errorIn int
	errClass                    semel.Class
	healIn                      int
	calm                        bool // nothing goes wrong any more
	quiet                       bool // the checks themselves are asking
	asked                       int  // operations of the store
	down                        bool // the store is broken

	moves, nested []move
	seen          coverage
	trace         func(string, ...any)
	verbose       bool
	bad           []string
}

// worker is one process.
type worker struct {
	*world
	c         *Consumer[mtx]
	slots     []*committer[mtx]
	queues    []chan []item
	conn      *conn
	kill      func()
	stop      func()
	dead      bool
	zombie    bool // taken for dead by the source, and does not know it
	items     [][]item
	scratch   []broker.Settled
	receiving bool
	settling  bool
	ending    bool   // it stops
	gaveUp    []bool // by committer
}

func newWorld(seed uint64, broken func(*world), seen coverage) *world {
	m := &world{
		seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)), mem: memstore.New(), contents: map[contentKey]*content{},
		replayed: map[string]bool{}, reproposed: map[string]bool{}, seen: seen, trace: func(string, ...any) {}, moves: moves(), nested: nested(),
	}
	m.draw()
	m.publishLater()
	base := &mem{Store: m.mem, m: m}
	m.st = base
	if m.deferred {
		m.st = &memDeferred{base, &memstore.Deferred{Store: m.mem}}
	}
	if broken != nil {
		broken(m)
	}
	m.desk = letter.Desk[mtx]{Store: m.st}
	m.mem.Script(m.script)
	return m
}

// draw chooses a configuration.
func (m *world) draw() {
	r := m.rnd
	partitions := r.IntN(3)
	m.src = newSource(m, partitions)
	m.cfg = Config{
		Name: "model", Decoder: broker.DecoderFunc(m.decode), Horizon: time.Hour, Start: StartFirst,
		Retry:    retry.Policy{Immediate: []int{-1, 1, 2}[r.IntN(3)], Delays: []time.Duration{10 * time.Second, time.Minute}, Jitter: -1},
		MaxBatch: 3 + r.IntN(8), MaxCrashes: 1 + r.IntN(3), ReplayRevised: r.IntN(2) == 0,
	}
	if r.IntN(2) == 0 {
		m.cfg.Arbitrate = arbitrate.Policy{On: true, Missing: arbitrate.Missing(r.IntN(3)), Latest: r.IntN(4) == 0}
	}
	if partitions > 0 {
		if r.IntN(2) == 0 {
			m.cfg.Inbox = inbox.Position
		}
		if r.IntN(2) == 0 {
			m.cfg.Order, m.cfg.DeadHolds = OrderKey, r.IntN(2) == 0
			if r.IntN(4) == 0 {
				m.cfg.MaxHeld = int64(2 + r.IntN(4))
			}
		}
	}
	m.slots = 1 + r.IntN(2)
	m.deferred = r.IntN(4) == 0
	switch r.IntN(4) {
	case 0:
		m.work = Batch(m.handleAll)
	case 1:
		m.work = Prepare(m.prepare)
	default:
		m.work = Each(m.handle)
	}
}

func (m *world) chance(percent int) bool { return m.rnd.IntN(100) < percent }

// say adds a line to the trace, below the step that is running.
func (m *world) say(format string, args ...any) {
	if m.verbose {
		m.trace("%*s  %s", 2*len(m.stack), "", fmt.Sprintf(format, args...))
	}
}

func (m *world) violated(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	m.say("VIOLATION %s", s)
	if !slices.Contains(m.bad, s) {
		m.bad = append(m.bad, s)
	}
}

// run takes random steps, then heals everything, drains, and checks.
func (m *world) run() {
	m.start()
	m.start()
	for range m.rnd.IntN(len(m.unsent)) {
		m.publishOne()
	}
	m.assignSome()
	for range 15 + m.rnd.IntN(50) {
		m.tick()
		m.step(m.moves)
		m.finishRevocations()
		m.finishWorkers()
		if len(m.bad) > 0 {
			break
		}
	}
	m.heal()
	m.check()
	for _, r := range m.pending {
		r.cancel()
	}
	for _, w := range m.workers {
		w.stop()
		w.kill()
	}
}

// finishWorkers lets those leave whose committer gave up while others of
// their goroutines were at work.
func (m *world) finishWorkers() {
	for _, w := range m.alive() {
		if w.ending {
			w.leave(false)
		}
	}
}

// tick goes on to the next whole second: what the pipeline adds by chance to
// its pauses is smaller than that, so a schedule repeats exactly.
func (m *world) tick() {
	if past := time.Now().Nanosecond(); past > 0 {
		time.Sleep(time.Second - time.Duration(past))
	}
}

type move struct {
	name   string
	weight int
	// nested: may also happen while a committer is between transactions.
	nested bool
	do     func(*world) bool // false: not possible now
}

// step takes one step that is possible.
func (m *world) step(of []move) {
	total := 0
	for _, s := range of {
		total += s.weight
	}
	for range 10 {
		n := m.rnd.IntN(total)
		for _, s := range of {
			if n -= s.weight; n >= 0 {
				continue
			}
			if m.say("- %s", s.name); s.do(m) {
				m.seen[s.name]++
				return
			}
			break
		}
	}
}

// act runs fn as committer k of worker w; a crash ends the worker.
func (w *worker) act(k *committer[mtx], fn func()) {
	m := w.world
	depth := len(m.stack)
	m.stack = append(m.stack, k)
	defer func() {
		m.stack = m.stack[:depth]
		switch v := recover().(type) {
		case nil:
		case fault.Crash:
			w.died(v)
		default:
			panic(v)
		}
	}()
	fn()
	w.stillAlive()
}

// stillAlive ends a committer whose process died while it was interrupted.
func (w *worker) stillAlive() {
	if w.dead {
		panic(fault.Crash{Point: "elsewhere in the process"})
	}
}

// survive is deferred where a process dies that has no worker yet.
func (m *world) survive() {
	if v := recover(); v != nil {
		if _, ok := v.(fault.Crash); !ok {
			panic(v)
		}
	}
}

func (w *worker) died(v fault.Crash) {
	if w.dead {
		return
	}
	w.say("%s dies at %s", w.c.cfg.Worker, v.Point)
	w.dead = true
	w.crashes++
	w.seen["crash"]++
	w.kill()
	w.stop()
	how := semel.Crashed
	if w.chance(20) && !w.calm {
		how = semel.Orphaned
	}
	w.src.gone(w, how)
}

func (m *world) workerOf(k *committer[mtx]) *worker {
	for _, w := range m.workers {
		if slices.Contains(w.slots, k) {
			return w
		}
	}
	return nil
}

// hit is the armed fault hook.
func (m *world) hit(p fault.Point) {
	m.seen[string(p)]++
	if m.crashIn > 0 {
		if m.crashIn--; m.crashIn == 0 {
			panic(fault.Crash{Point: p})
		}
	}
	if len(m.stack) == 0 || m.calm {
		return
	}
	w := m.workerOf(m.stack[len(m.stack)-1])
	switch p {
	case fault.Opened, fault.Admitted, fault.Handled, fault.Parked, fault.Retaken:
		if m.chance(3) {
			m.takeAway(w)
		}
	default:
		m.interrupt(w, 12)
	}
}

// interrupt lets others go on while a committer is between transactions.
func (m *world) interrupt(w *worker, percent int) {
	if len(m.stack) < 3 && m.chance(percent) {
		m.seen["interrupted"]++
		for range 1 + m.rnd.IntN(4) {
			m.step(m.nested)
		}
	}
	if w != nil {
		w.stillAlive()
	}
}

// takeAway revokes or loses scopes while their batch is in a transaction.
func (m *world) takeAway(w *worker) {
	owned := m.src.ownedBy(w)
	if w == nil || len(owned) == 0 {
		return
	}
	p := owned[m.rnd.IntN(len(owned))]
	if m.chance(50) {
		m.seen["lost in a transaction"]++
		m.lose(p)
	} else if m.revoke(w, p) {
		m.seen["revoked in a transaction"]++
	}
}

// script is asked before every operation of the store.
func (m *world) script(s memstore.Step) error {
	if m.quiet {
		return nil
	}
	if m.asked++; m.asked > 1_000_000 {
		panic(fmt.Sprintf("seed %d goes on for ever", m.seed))
	}
	if m.down {
		if m.healIn--; m.healIn <= 0 {
			m.down = false
			m.mem.Heal()
		}
	}
	if m.crashOpIn > 0 {
		if m.crashOpIn--; m.crashOpIn == 0 {
			m.seen["crash in an operation"]++
			panic(fault.Crash{Point: fault.Point(s.Op)})
		}
	}
	if m.errorIn > 0 {
		if m.errorIn--; m.errorIn == 0 {
			m.seen["error "+m.errClass.String()]++
			m.say("%s fails: %s", s.Op, m.errClass)
			return memstore.Errorf(m.errClass, "%s fails for once", s.Op)
		}
	}
	return nil
}

// paused is told when a worker waits.
func (m *world) paused(err error) {
	if err == nil {
		return
	}
	m.say("paused: %v", err)
	var full *fullError
	if errors.As(err, &full) {
		m.seen["key full"]++
		m.makeRoom(full.key)
		return
	}

}

// makeRoom lets a person decide about what holds a key, or somebody else run
// its letters. If nobody can, the process is killed by whoever watches it.
func (m *world) makeRoom(key string) {
	for _, l := range m.letters() {
		if l.Message.Key == key && l.Number > 0 && forPerson(&l) {
			m.discard(l)
			return
		}
	}
	for _, w := range m.alive() {
		if w.takeLetters() {
			break
		}
	}
	k := m.stack[len(m.stack)-1]
	if w := m.workerOf(k); w.dead || k.slot > 0 && slices.Contains(m.stack, w.slots[0]) && m.chance(5) {
		panic(fault.Crash{Point: "a key that is full"})
	}
}

func (m *world) letters() []store.Letter {
	var ls []store.Letter
	m.peek(func() {
		ls, _ = m.mem.List(context.Background(), store.Query{Consumer: "model", Limit: 1000, Bodies: true})
	})
	return ls
}

// start brings up a process.
func (m *world) start() bool {
	defer m.survive()
	m.named++
	cfg := m.cfg
	cfg.Worker = fmt.Sprintf("w%d", m.named)
	w := &worker{world: m}
	w.conn = &conn{m.src, w}
	cfg.Observer = semel.Observer{Paused: m.paused}
	if m.verbose {
		cfg.Observer.Batch = func(b semel.Batch) { w.say("%s committed %+v", cfg.Worker, b) }
		cfg.Observer.Failed = func(f semel.Failure) {
			w.say("%s: %s failed (%d): %s %v %v", cfg.Worker, f.ID, f.Attempts, f.Verdict, f.Due, f.Err)
		}
		cfg.Observer.Scope = func(s semel.Scope, event string, err error) { w.say("%s: scope %s %s %v", cfg.Worker, s, event, err) }
	}
	c, err := New(cfg, w.conn, m.st, m.work)
	if err != nil {
		m.violated("new: %v", err)
		return false
	}
	if c.store.Enlist(context.Background(), c.worker(m.slots)) != nil {
		return false
	}
	c.out = make(chan settlement, 512)
	hard := context.Context(nil)
	hard, w.kill = context.WithCancel(context.Background())
	c.soft, c.stop = context.WithCancel(context.Background())
	w.c, w.stop = c, c.stop
	for i := range m.slots {
		w.slots = append(w.slots, newCommitter(c, i, hard))
		w.queues = append(w.queues, make(chan []item, 64))
		w.items, w.gaveUp = append(w.items, nil), append(w.gaveUp, false)
	}
	m.workers = append(m.workers, w)
	m.say("%s starts", cfg.Worker)
	return true
}

// free returns workers none of whose committers is running.
func (m *world) alive() (out []*worker) {
	for _, w := range m.workers {
		if !w.dead {
			out = append(out, w)
		}
	}
	return out
}

func (w *worker) idle() bool {
	return !slices.ContainsFunc(w.slots, func(k *committer[mtx]) bool { return slices.Contains(w.stack, k) })
}

// queued is what was received and not processed.
func (w *worker) queued() (n int) {
	for _, q := range w.queues {
		n += len(q)
	}
	return n
}

// receive is one turn of the intake.
func (w *worker) receive(n int) bool {
	if w.receiving || w.ending {
		return false
	}
	w.receiving = true
	defer func() { w.receiving = false }()
	ds := w.src.deliver(w, n)
	if len(ds) == 0 {
		return false
	}
	if w.verbose {
		for _, d := range ds {
			w.say("%s <- %s %s %s at %s, %d, returns %q", w.c.cfg.Worker, d.ID, d.Body, d.Key, d.Origin(), d.Takeover, d.Returns)
		}
	}
	w.hooks.received(w, ds)
	w.act(nil, func() { w.c.accept(ds, w.queues) })
	return true
}

// process is one turn of a committer over what has arrived.
func (w *worker) process(slot int) bool {
	k := w.slots[slot]
	if slices.Contains(w.stack, k) || len(w.queues[slot]) == 0 || w.ending || len(w.c.turn) > 0 { // it would wait for its turn
		return false
	}
	var err error
	w.act(k, func() {
		w.items[slot] = k.collect(w.items[slot][:0], <-w.queues[slot], w.queues[slot])
		err = k.process(w.items[slot])
	})
	w.failed(err, slot)
	return true
}

// takeLetters is one turn of the letters.
func (w *worker) takeLetters() bool {
	k := w.slots[0]
	if slices.Contains(w.stack, k) || w.ending {
		return false
	}
	var err error
	w.act(k, func() { _, err = k.letters() })
	w.failed(err, 0)
	return true
}

// failed ends a worker whose committer gave up.
func (w *worker) failed(err error, slot int) {
	if err != nil && !w.dead {
		w.gaveUp[slot] = true
		w.say("%s stops: %v", w.c.cfg.Worker, err)
		w.stop()
		w.ending = true
		w.leave(false)
	}
}

// report settles up to n batches.
func (w *worker) report(n int) bool {
	if w.settling {
		return false
	}
	w.settling = true
	defer func() { w.settling = false }()
	done := false
	for ; n > 0 && len(w.c.out) > 0 && !w.dead; n-- {
		done = true
		w.act(nil, func() { w.scratch = w.c.settle(<-w.c.out, w.scratch) })
		w.hooks.settled()
	}
	return done
}

// leave is the end of a process in good order. hard: it gives everything back
// at once.
func (w *worker) leave(hard bool) bool {
	if len(w.stack) > 0 {
		return false
	}
	if !w.idle() || w.dead || w.receiving || w.settling {
		return false
	}
	w.stop()
	w.ending = true
	if hard {
		w.kill()
	}
	for slot := range w.slots {
		w.finish(slot)
	}
	w.report(1 << 20)
	w.act(nil, func() { _ = w.c.retire(context.Background()) })
	if w.dead {
		return true
	}
	w.dead = true
	w.kill()
	w.src.gone(w, semel.Fresh)
	w.balanced()
	return true
}

// finish is the end of a committer's loop.
func (w *worker) finish(slot int) {
	k, q := w.slots[slot], w.queues[slot]
	for len(q) > 0 && !w.dead {
		w.act(k, func() {
			if w.gaveUp[slot] {
				k.giveUp(<-q, semel.Released)
				return
			}
			w.items[slot] = k.collect(w.items[slot][:0], <-q, q)
			w.gaveUp[slot] = k.process(w.items[slot]) != nil
		})
	}
}

// balanced checks the account of a process that ended without a crash.
func (w *worker) balanced() {
	if a := w.c.Account(); !a.Balanced() {
		w.violated("account of %s: %+v", w.c.cfg.Worker, a)
	}
	if !w.c.gate.empty() {
		w.violated("%s leaves %d messages in memory", w.c.cfg.Worker, w.c.gate.n)
	}
}

// revocation is a call of Revoked that waits for its scopes to drain.
type revocation struct {
	w      *worker
	p      *partition
	permit chan struct{} // to write to the store
	asks   bool          // for the permit
	done   bool
	cancel func()
	crash  fault.Crash
}

type permitKey struct{}

// revoke takes a scope away in good order. What it waits for is up to the
// committers; what it writes, it writes between two steps.
func (m *world) revoke(w *worker, p *partition) bool {
	if slices.ContainsFunc(m.pending, func(r *revocation) bool { return r.p == p }) {
		return false
	}
	r := &revocation{w: w, p: p, permit: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), permitKey{}, r))
	r.cancel = cancel
	p.paused = true
	m.pending = append(m.pending, r)
	go func() {
		defer func() {
			r.done = true
			switch v := recover().(type) {
			case nil:
			case fault.Crash:
				r.crash = v
			default:
				panic(v)
			}
		}()
		_ = w.c.scopes.Revoked(ctx, []semel.Scope{p.Scope})
	}()
	synctest.Wait()
	return true
}

// finishRevocations lets those write that have drained.
func (m *world) finishRevocations() {
	m.pending = slices.DeleteFunc(m.pending, func(r *revocation) bool {
		synctest.Wait()
		if r.w.dead {
			r.cancel()
		} else if r.asks {
			close(r.permit)
		}
		synctest.Wait()
		if !r.done {
			return false
		}
		r.cancel()
		if r.crash != (fault.Crash{}) {
			r.w.died(r.crash)
		} else if r.p.owner == r.w {
			m.src.free(r.p, semel.Fresh)
		}
		return true
	})
}

// lose takes a scope away and tells its owner afterwards.
func (m *world) lose(p *partition) {
	w := p.owner
	m.src.free(p, semel.Orphaned)
	w.c.scopes.Lost([]semel.Scope{p.Scope})
}

// mem is the store that workers see: it delays what a revocation writes until
// the world says so.
type mem struct {
	*memstore.Store
	m *world
}

func (s *mem) Leave(ctx context.Context, consumer string, f []store.Fence) error {
	if r, ok := ctx.Value(permitKey{}).(*revocation); ok {
		r.asks = true
		select {
		case <-r.permit:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Leave(ctx, consumer, f)
}

type memDeferred struct {
	*mem
	d *memstore.Deferred
}

func (s *memDeferred) Begin(tx mtx, i int) { s.d.Begin(tx, i) }

func (s *memDeferred) Flush(ctx context.Context, tx mtx, late func(int, error) bool) error {
	return s.d.Flush(ctx, tx, late)
}
