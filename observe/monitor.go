package observe

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

// Config says what a Monitor takes for sick. Zero values are the defaults.
type Config struct {
	// Pipeline is the label of that name.
	Pipeline string
	// Panics is how many attempts in a row that ended in a panic, with nothing
	// applied in between, are a panic loop. Default 5.
	Panics int
	// Calm is how long after the last panic a loop is over. Default 1 minute.
	Calm time.Duration
	// Stalled is how long transactions may fail in a row without one that
	// commits. Default 15 s.
	Stalled time.Duration
	// Wedged is how long one transaction may take, with no pause meanwhile,
	// before the process counts as dead. It has to be longer than the consumer's HandlerTimeout. Default 5
	// minutes.
	Wedged time.Duration
	// Every is the shortest time between two looks at the store, which take at
	// most a twentieth of the time besides. Default 5 s.
	Every time.Duration
}

// Monitor keeps the metrics and the health of one pipeline in one process. It
// is safe for concurrent use.
type Monitor struct {
	cfg Config

	mu     sync.Mutex
	phase  semel.Phase
	target Target
	sight  sight
	totals totals

	pauses  int
	pause   error             // the last
	pausing time.Time         // when one last began or ended
	scopes  map[string]bool   // assigned
	stopped map[string]string // scopes that are stopped, and why

	opened  int64               // number of the last transaction opened
	open    map[int64]time.Time // transactions that are open, and since when
	failing time.Time           // when the first failed of those that failed in a row; zero: none
	failure time.Time           // when the last did

	panics  int       // attempts in a row
	panicAt time.Time // the last
	panicOf string    // the message of the last
	several bool      // they are of more than one message
}

// Target is where a Monitor looks for what observers are not told. Every field
// is optional.
type Target struct {
	// Account is that of the consumer.
	Account func() semel.Account
	// Status reads what the store says of the pipeline; see store.Reader.
	Status func(context.Context) (store.Status, error)
	// Depth is what the source holds; see broker.Measurer.
	Depth func(context.Context) (broker.Depth, error)
}

// sight is what was seen at the last look.
type sight struct {
	at        time.Time // zero: none yet
	status    store.Status
	statusErr error
	read      time.Time // when status was read without an error
	depth     broker.Depth
	measured  bool
}

// NewMonitor returns one that has seen nothing yet.
func NewMonitor(cfg Config) *Monitor {
	cfg.Panics = cmp.Or(cfg.Panics, 5)
	cfg.Calm = cmp.Or(cfg.Calm, time.Minute)
	cfg.Stalled = cmp.Or(cfg.Stalled, 15*time.Second)
	cfg.Wedged = cmp.Or(cfg.Wedged, 5*time.Minute)
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	return &Monitor{cfg: cfg, scopes: map[string]bool{}, stopped: map[string]string{}, open: map[int64]time.Time{}, totals: newTotals()}
}

// Observer returns what is to be told.
func (m *Monitor) Observer() semel.Observer {
	return semel.Observer{Batch: m.committed, Failed: m.failed, Paused: m.paused, Scope: m.scope, Unsettled: m.unsettled, Phase: m.entered, Open: m.opening}
}

// patience is how long one look may take.
const patience = time.Minute

// Watch looks at the target until ctx ends. What it asks for is given up then,
// and after a minute.
func (m *Monitor) Watch(ctx context.Context, t Target) {
	m.mu.Lock()
	m.target = t
	m.mu.Unlock()
	for {
		took, seen := m.look(ctx, t)
		if seen {
			took *= 20
		} // else it is not to stay unknown for long, whatever the failure took
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(m.cfg.Every, took)):
		}
	}
}

// look looks once and says how long that took, and whether the store answered.
func (m *Monitor) look(until context.Context, t Target) (took time.Duration, seen bool) {
	ctx, cancel := context.WithTimeout(until, patience)
	defer cancel()
	began := time.Now()
	var now sight
	if t.Status != nil {
		now.status, now.statusErr = t.Status(ctx)
	}
	if t.Depth != nil {
		depth, err := t.Depth(ctx)
		now.depth, now.measured = depth, err == nil
	}
	now.at = time.Now()
	if until.Err() != nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now.read = now.at
	if now.statusErr != nil {
		now.status, now.read = m.sight.status, m.sight.read // what was seen last
	}
	m.sight = now
	return now.at.Sub(began), now.statusErr == nil
}

func (m *Monitor) entered(p semel.Phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = max(m.phase, p)
}

func (m *Monitor) opening(ctx context.Context, _ semel.Opening) (context.Context, func(semel.Batch, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	n := m.opened
	m.open[n] = time.Now()
	return ctx, func(_ semel.Batch, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, n)
		if err == nil {
			m.failing = time.Time{}
			return
		}
		m.totals.rollbacks++
		if m.failing.IsZero() || !m.trying() {
			m.failing = time.Now()
		}
		m.failure = time.Now()
	}
}

// trying reports whether transactions have been tried lately. One that failed
// may be the last for a long time: its messages are somebody else's now.
func (m *Monitor) trying() bool {
	return len(m.open) > 0 || time.Since(m.failure) < m.cfg.Stalled
}

func (m *Monitor) committed(b semel.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.batch(b)
	if b.Of[semel.Applied] > 0 {
		m.panics = 0
	}
}

func (m *Monitor) failed(f semel.Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.failure(f)
	if !f.Panic {
		m.panics = 0
		return
	}
	name := cmp.Or(f.ID, f.Origin)
	m.several = m.panics > 0 && (m.several || m.panicOf != name)
	m.panics, m.panicAt, m.panicOf = m.panics+1, time.Now(), name
}

func (m *Monitor) paused(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pausing = time.Now()
	if err == nil {
		m.pauses = max(0, m.pauses-1)
		return
	}
	m.pauses++
	m.pause = err
}

func (m *Monitor) scope(s semel.Scope, event string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := s.String()
	delete(m.scopes, name)
	delete(m.stopped, name)
	switch {
	case event == "assigned":
		m.scopes[name] = true
	case event == "stopped" && err != nil:
		m.stopped[name] = err.Error()
	}
}

func (m *Monitor) unsettled(n int, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.unsettled += int64(n)
}
