package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// running is a consumer at work.
type running struct {
	*consumer.Consumer[tx]
	r      *membroker.Receiver
	cancel func()
	done   chan error
	events *events
}

// events are what observers are told.
type events struct {
	mu      sync.Mutex
	batches []semel.Batch
	failed  []semel.Failure
	paused  []string
	scopes  []string
}

func (e *events) observer() semel.Observer {
	add := func(fn func()) {
		e.mu.Lock()
		defer e.mu.Unlock()
		fn()
	}
	return semel.Observer{
		Batch:  func(b semel.Batch) { add(func() { e.batches = append(e.batches, b) }) },
		Failed: func(f semel.Failure) { add(func() { e.failed = append(e.failed, f) }) },
		Paused: func(err error) { add(func() { e.paused = append(e.paused, fmt.Sprint(err)) }) },
		Scope: func(s semel.Scope, event string, err error) {
			add(func() { e.scopes = append(e.scopes, fmt.Sprintf("%s %s: %v", s.Name, event, err)) })
		},
	}
}

// pauses are what was told of pauses, so far.
func (e *events) pauses() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.paused)
}

func (e *events) scope(parts ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.scopes, func(s string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
	})
}

// start runs a consumer until it is stopped, or ends by itself.
func start(t *testing.T, cfg consumer.Config, r *membroker.Receiver, st store.Backend[tx], w consumer.Work[tx]) *running {
	t.Helper()
	c := &running{r: r, done: make(chan error, 1), events: &events{}}
	cfg.Observer = c.events.observer()
	var err error
	if c.Consumer, err = consumer.New(cfg, r, st, w); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() { c.done <- c.Run(ctx) }()
	t.Cleanup(cancel)
	return c
}

// wait waits for the end and returns Run's error.
func (c *running) wait(t *testing.T) error {
	t.Helper()
	var err error
	select {
	case err = <-c.done:
	case <-time.After(patience):
		t.Errorf("it does not end: %+v, scopes %v, paused %v", c.Account(), c.events.scopes, c.events.paused)
		c.cancel()
		err = <-c.done
	}
	if e := c.r.Close(context.Background()); e != nil {
		t.Error(e)
	}
	if a := c.Account(); !a.Balanced() {
		t.Errorf("account does not balance: %+v", a)
	}
	return err
}

func (c *running) stop(t *testing.T) error {
	t.Helper()
	c.cancel()
	return c.wait(t)
}

func balanced(t *testing.T, st store.Reader) {
	t.Helper()
	s, err := st.Status(t.Context(), "test", true)
	if err != nil || len(s.Imbalances) > 0 {
		t.Errorf("tables do not balance: %v %v", s.Imbalances, err)
	}
	for _, h := range s.Holds {
		var behind int64
		for _, l := range letters(t, st) {
			if l.State.Open() && l.Number > 0 && l.Message.Key == h.Key {
				behind++
			}
		}
		if h.Size != behind {
			t.Errorf("hold of %s says %d, and %d letters are behind it", h.Key, h.Size, behind)
		}
	}
}

func letters(t *testing.T, st store.Reader) []store.Letter {
	t.Helper()
	ls, err := st.List(t.Context(), store.Query{Consumer: "test", Limit: 10000, Bodies: true})
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// letterOf returns the letter of an id that is not about a conflict.
func letterOf(t *testing.T, st store.Reader, id string) store.Letter {
	t.Helper()
	for _, l := range letters(t, st) {
		if l.Message.ID == id && !l.Conflict {
			return l
		}
	}
	t.Fatalf("no letter of %s", id)
	return store.Letter{}
}

func conflicts(t *testing.T, st store.Reader) (out []store.Letter) {
	t.Helper()
	for _, l := range letters(t, st) {
		if l.Conflict {
			out = append(out, l)
		}
	}
	return out
}

func decideOne(t *testing.T, done []letter.Done, err error) {
	t.Helper()
	if err != nil || len(done) != 1 || done[0].Err != nil {
		t.Fatalf("the decision failed: %+v %v", done, err)
	}
}

func replay(t *testing.T, st *memstore.Store, ref string) {
	t.Helper()
	done, err := letter.Desk[tx]{Store: st}.Replay(t.Context(), "test", letter.Targets(ref), "ann", "")
	decideOne(t, done, err)
}

func discard(t *testing.T, st *memstore.Store, ref string) {
	t.Helper()
	done, err := letter.Desk[tx]{Store: st}.Discard(t.Context(), "test", letter.Targets(ref), "ann", "no use")
	decideOne(t, done, err)
}

// plan is a handler that fails as told: by id, the errors of its first runs.
// What it does in the database and fails then has to disappear.
type plan struct {
	mu   sync.Mutex
	errs map[string][]error
	runs map[string]int
}

func plans(errs map[string][]error) *plan { return &plan{errs: errs, runs: map[string]int{}} }

// always is long enough for any policy.
func always(err error) []error { return slices.Repeat([]error{err}, 100) }

func (p *plan) handle(ctx context.Context, t tx, m semel.Message) error {
	if err := count(ctx, t, m); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.runs[m.ID]
	p.runs[m.ID]++
	if n < len(p.errs[m.ID]) {
		return p.errs[m.ID][n]
	}
	return nil
}

func (p *plan) work() consumer.Work[tx] { return consumer.Each(p.handle) }

func (p *plan) total() (n int) {
	for _, r := range p.runs {
		n += r
	}
	return n
}

var (
	errNotNow = errors.New("not now")
	errNever  = semel.Permanent(errors.New("unknown code"))
)

// counting counts the rows that are claimed.
type counting struct {
	*memstore.Store
	claimed int
}

func (s *counting) Claim(ctx context.Context, t tx, consumer string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	s.claimed += len(r)
	return s.Store.Claim(ctx, t, consumer, r, prior)
}

// parallel is a store that says any number of transactions is useful.
type parallel struct{ *memstore.Store }

func (p parallel) Capabilities() store.Capabilities {
	c := p.Store.Capabilities()
	c.Committers = 0
	return c
}

// noDrain is a consumer that runs until it is stopped.
func noDrain() consumer.Config {
	cfg := config()
	cfg.Drain = nil
	return cfg
}

// impatient ends without waiting for letters.
func impatient() consumer.Config {
	cfg := config()
	cfg.Drain = &consumer.Drain{Wait: -1}
	return cfg
}

// patience is how long a test waits for the end of a run, on the fake clock.
const patience = 6 * time.Hour
