// Package membroker is a source in memory that can be told to misbehave. It
// comes as partitions with ownership or as a plain queue, and as a
// [Generator] that costs nearly nothing, for benchmarks.
//
// A [Broker] is the server; each worker connects with [Broker.Receiver]. What
// happens by chance is drawn from one seeded generator: driven from one
// goroutine, a run repeats exactly.
package membroker

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// Config says what kind of source it is and how it misbehaves. The zero value
// is a plain queue in good order.
type Config struct {
	// Name is the topic. Default "memory".
	Name string
	// Partitions is the number of scopes with ownership; 0 makes a queue.
	Partitions int
	// Unordered: partitions do not claim order, and repeat and reorder as
	// Duplicate and Reorder say. A new owner is handed what is not acked,
	// wherever it wants to start.
	Unordered bool
	// Count is how far the delivery count is to be trusted; TrustNone does
	// not count.
	Count semel.Trust
	// Horizon is what Capabilities say of late deliveries; the broker keeps
	// everything.
	Horizon time.Duration
	// Ephemeral is what Capabilities say of scopes.
	Ephemeral bool

	// Seed of everything that happens by chance.
	Seed uint64
	// Duplicate is the probability that a message is handed over once more.
	// Partitions that claim order store it twice instead, as after a
	// producer that repeats itself.
	Duplicate float64
	// Reorder is how far from the front the next message may be taken; it
	// has no effect on partitions that claim order.
	Reorder int
	// Delay is the longest time a message waits after it was published; each
	// draws its own. In partitions that claim order it also delays those
	// behind it.
	Delay time.Duration
	// DropAcks is the probability that a settlement is lost on its way and
	// answered with DropAnswer (default broker.Done). A queue delivers the
	// message again; a partition's committed offset stays behind.
	DropAcks   float64
	DropAnswer broker.Settled
	// Scribble overwrites a body when its delivery is settled, so that
	// whoever kept it is found out.
	Scribble bool
	// OnSettle is called for every settlement before it has an effect, from
	// the goroutine that settles. id is the published id, or the origin of
	// a message published without one.
	OnSettle func(id string, s broker.Settlement)
}

// Event is a settlement as the broker saw it.
type Event struct {
	// ID is the published id, or the origin of a message without one.
	ID string
	broker.Settlement
	// Answer is what the settling side was told; Lost: it had no effect.
	Answer broker.Settled
	Lost   bool
}

// Broker is the server. It is safe for concurrent use.
type Broker struct {
	cfg    Config
	traits semel.Trait

	mu         sync.Mutex
	rnd        *rand.Rand
	parts      []*partition
	queue      queue
	receivers  []*Receiver
	manual     bool // assignments are up to the test
	generation uint64
	tag        uint64
	waiting    chan struct{} // closed at the next change; nil: nobody waits
	events     []Event
	acks       map[string]int
	drops      []broker.Settled // answers of the next settlements, which are lost
}

// New returns an empty broker.
func New(cfg Config) *Broker {
	if cfg.Name == "" {
		cfg.Name = "memory"
	}
	b := &Broker{cfg: cfg, rnd: rand.New(rand.NewPCG(cfg.Seed, 1)), acks: make(map[string]int)}
	if cfg.Partitions > 0 {
		b.traits = semel.Positions | semel.StableKeyPartition
	}
	if cfg.Unordered {
		b.traits &^= semel.InOrderPerScope
	}
	for i := range cfg.Partitions {
		b.parts = append(b.parts, &partition{name: cfg.Name + "/" + strconv.Itoa(i), incarnation: 1})
	}
	return b
}

func (b *Broker) partitioned() bool { return len(b.parts) > 0 }

func (b *Broker) ordered() bool { return b.traits.Has(semel.InOrderPerScope) }

func (b *Broker) chance(p float64) bool { return p > 0 && b.rnd.Float64() < p }

// Publish stores messages. A queue ignores the partition; a negative one is
// chosen by the key. The broker keeps the bodies: do not change them.
func (b *Broker) Publish(partition int, ms ...semel.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ms {
		b.publish(partition, entry{Message: ms[i]})
	}
	b.notify()
}

// PublishAs is Publish for deliveries that are malformed or were given back by
// a person: Message, Malformed and Returns of each are kept.
func (b *Broker) PublishAs(partition int, ds ...semel.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ds {
		b.publish(partition, entry{Message: ds[i].Message, malformed: ds[i].Malformed, returns: ds[i].Returns})
	}
	b.notify()
}

func (b *Broker) publish(partition int, e entry) {
	if b.cfg.Delay > 0 {
		e.at = time.Now().Add(time.Duration(b.rnd.Int64N(int64(b.cfg.Delay))))
	}
	if !b.partitioned() {
		b.queue.add(b.cfg.Name, e)
		return
	}
	if partition < 0 {
		partition = b.byKey(e.Key)
	}
	p := b.parts[partition]
	p.add(e)
	if b.ordered() && b.chance(b.cfg.Duplicate) {
		p.add(e)
	}
}

func (b *Broker) byKey(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(b.parts)))
}

// notify wakes everyone who waits for something to change.
func (b *Broker) notify() {
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

func (b *Broker) changed() <-chan struct{} {
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

// Events returns every settlement so far, in order.
func (b *Broker) Events() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// Acked is how many times the message was acked or rejected, with effect.
func (b *Broker) Acked(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acks[id]
}

// Unsettled returns the ids of messages that were never acked or rejected with
// effect, in no order of importance: by partition and offset, or by age.
func (b *Broker) Unsettled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, p := range b.parts {
		for _, e := range p.log {
			if !e.acked {
				ids = append(ids, e.id)
			}
		}
	}
	for _, e := range b.queue.all {
		if !e.acked {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// DropAcks makes the next n settlements be lost on their way; each is answered
// with answer.
func (b *Broker) DropAcks(n int, answer broker.Settled) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		b.drops = append(b.drops, answer)
	}
}

// Redeliver hands a message over once more, whatever became of it: a queue
// delivers another copy, a partition has it published again at its end. It
// returns false if there is no such message.
func (b *Broker) Redeliver(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.notify()
	is := func(e *entry) bool { return e.id == id }
	if i := slices.IndexFunc(b.queue.all, is); i >= 0 {
		b.queue.ready = append(b.queue.ready, b.queue.all[i])
		return true
	}
	for _, p := range b.parts {
		if i := slices.IndexFunc(p.log, is); i >= 0 {
			again := *p.log[i]
			again.at, again.count, again.acked = time.Time{}, 0, false
			p.add(again)
			return true
		}
	}
	return false
}

// lost decides whether a settlement gets lost, and what is answered then.
func (b *Broker) lost() (answer broker.Settled, lost bool) {
	if len(b.drops) > 0 {
		answer, b.drops = b.drops[0], b.drops[1:]
		return answer, true
	}
	return b.cfg.DropAnswer, b.chance(b.cfg.DropAcks)
}

// settled notes a settlement.
func (b *Broker) settled(e *entry, s broker.Settlement, answer broker.Settled, lost bool) {
	b.events = append(b.events, Event{e.id, s, answer, lost})
	if decides(s.Verb) && answer == broker.Done && !lost {
		e.acked = true
		b.acks[e.id]++
	}
}

func decides(v broker.Verb) bool { return v == broker.Ack || v == broker.Reject }

// entry is a published message.
type entry struct {
	semel.Message
	id        string // published, or the origin
	pos       semel.Position
	at        time.Time // not before
	count     int       // hand-overs
	acked     bool
	left      semel.Takeover // how its last holder went
	malformed error
	returns   string
}

// place gives the entry its position, and a name if it has no id.
func (e *entry) place(p semel.Position) {
	e.pos = p
	if e.id = e.ID; e.id == "" {
		e.id = p.String()
	}
}

// queue is a source without scopes.
type queue struct {
	all   []*entry
	ready []*entry // an entry may be there more than once
}

// add appends a message. Each has a scope name of its own, so that origins
// differ.
func (q *queue) add(name string, e entry) {
	e.place(semel.Position{Scope: semel.Scope{Name: name + "/" + strconv.Itoa(len(q.all))}})
	q.all = append(q.all, &e)
	q.ready = append(q.ready, &e)
}

// putBack makes entries the next to be handed over.
func (q *queue) putBack(es []*entry) {
	if len(es) > 0 {
		q.ready = append(es, q.ready...)
	}
}
