package consumer

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/retry"
)

// Order says what happens to later messages of a key while one is parked.
type Order uint8

const (
	// OrderNone: they go on.
	OrderNone Order = iota
	// OrderKey: they are held behind it, in order. Needs exclusive scopes.
	OrderKey
)

// Config says how to consume. The zero value of every field but Name and
// Decoder is a documented default.
type Config struct {
	// Name is the consumer's stable name: with the id it is the key of
	// everything remembered. 1 to 255 bytes. Renaming a consumer makes it
	// forget.
	Name string
	// Decoder extracts id, key and version. Required.
	Decoder broker.Decoder
	// Inbox is how repeats are found. Default inbox.Table.
	Inbox inbox.Strategy
	// TrustID takes the id alone as identity: a known id is a duplicate
	// whatever its content. For sources that encode anew at each delivery.
	TrustID bool
	// Arbitrate decides between versions of a key. Default off.
	Arbitrate arbitrate.Policy
	// Retry is the schedule of failed messages. Default retry.Policy{}.
	Retry retry.Policy
	// Order keeps messages of a key behind a parked one. Default OrderNone.
	Order Order
	// DeadHolds makes a dead letter go on holding its key until a person
	// decides. Default: the key is released when its head dies.
	DeadHolds bool
	// MaxHeld bounds the letters behind one key. Beyond it intake waits; it
	// never drops. Default 1,000.
	MaxHeld int64
	// Keep is how long ids are remembered after their last change. Default
	// 30 days. It must cover the retries and the source's Horizon.
	Keep time.Duration
	// Horizon is how late the source may deliver again. Default: what the
	// source's capabilities say; a strategy that remembers ids is refused
	// if neither says it.
	Horizon time.Duration
	// ReplayRevised replays a message that comes back repaired through the
	// source. Default: its new content is only proposed.
	ReplayRevised bool
	// MaxBatch and MaxBytes bound a batch. Defaults 2,000 messages, 16 MiB.
	// Twice that may be in memory.
	MaxBatch int
	MaxBytes int64
	// MaxCommitters bounds transactions at the same time. Default: what the
	// store can use, at most 4.
	MaxCommitters int
	// MaxCrashes is how many times a message may kill the process while it
	// runs alone before it is set aside. Default 3.
	MaxCrashes int
	// Lanes is how many messages of a batch Prepare works on at the same time.
	// Those of one key follow one another, in order; those without a key follow
	// no order. Default 1: one after the other.
	Lanes int
	// HandlerTimeout bounds the handlers of one batch, and what is prepared for
	// each message. A handler that honours its context fails with a transient error. Default 30 s.
	HandlerTimeout time.Duration
	// DrainTimeout bounds the end of Run: after it, handlers still running
	// are cancelled. Default 20 s.
	DrainTimeout time.Duration
	// Start says where to begin a scope that has no position yet. Default
	// StartRefuse; scopes that come and go (files) are read from their
	// beginning all the same.
	Start Start
	// Drain makes Run return by itself. nil: it runs until cancelled.
	Drain *Drain
	// Identity are facts that must be the same for all pipelines with this
	// Name ("source"). The inbox strategy is added.
	Identity map[string]string
	// Worker names this process in the store. Default: host, pid and a
	// random part. It must not be reused.
	Worker string
	// Observer is told what happens.
	Observer semel.Observer
}

// Start says where to begin a scope without a recorded position.
type Start uint8

const (
	// StartRefuse: stop the scope and say so. The default.
	StartRefuse Start = iota
	// StartFirst: at the first message the source still has.
	StartFirst
	// StartEnd: after the last one; what is there now is never handled.
	StartEnd
)

// Drain says when a run that ends by itself is done: the source is empty,
// nothing is in flight anywhere, and no retry is due within Wait.
type Drain struct {
	// Wait is how long to wait for parked messages. Default (0): the
	// policy's longest delay. Negative: do not wait.
	Wait time.Duration
}

func (c Config) withDefaults() Config {
	c.Keep = cmp.Or(c.Keep, 30*24*time.Hour)
	c.MaxBatch = cmp.Or(c.MaxBatch, 2000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<20)
	c.MaxHeld = cmp.Or(c.MaxHeld, 1000)
	c.MaxCommitters = cmp.Or(c.MaxCommitters, 4)
	c.MaxCrashes = cmp.Or(c.MaxCrashes, 3)
	c.Lanes = cmp.Or(c.Lanes, 1)
	c.HandlerTimeout = cmp.Or(c.HandlerTimeout, 30*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 20*time.Second)
	if c.Worker == "" {
		host, _ := os.Hostname()
		c.Worker = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
	}
	if c.Drain != nil && c.Drain.Wait == 0 {
		c.Drain = &Drain{Wait: c.Retry.Longest()}
	}
	return c
}

// Validate returns all problems of the configuration by itself, at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(c.Name); n < 1 || n > semel.MaxIDBytes {
		bad("name has %d bytes: must be 1 to %d", n, semel.MaxIDBytes)
	}
	if c.Decoder == nil {
		bad("decoder is missing: it says where the id of a message is")
	}
	if c.Inbox.String() == "" {
		bad("unknown inbox strategy %d", c.Inbox)
	}
	if err := c.Retry.Validate(); err != nil {
		bad("retry: %w", err)
	}
	for _, p := range []struct {
		name string
		n    int64
	}{{"MaxBatch", int64(c.MaxBatch)}, {"MaxBytes", c.MaxBytes}, {"MaxHeld", c.MaxHeld}, {"MaxCommitters", int64(c.MaxCommitters)}, {"MaxCrashes", int64(c.MaxCrashes)}, {"Lanes", int64(c.Lanes)}, {"Keep", int64(c.Keep)}, {"Horizon", int64(c.Horizon)}, {"HandlerTimeout", int64(c.HandlerTimeout)}, {"DrainTimeout", int64(c.DrainTimeout)}} {
		if p.n < 0 {
			bad("%s is negative", p.name)
		}
	}
	return errors.Join(errs...)
}

// fit checks the configuration against the source.
func (c Config) fit(src broker.Receiver) error {
	var errs []error
	b := src.Capabilities()
	if err := inbox.Fit(c.Inbox, b.Traits); err != nil {
		errs = append(errs, fmt.Errorf("source %s: %w", b.Name, err))
	}
	if _, ok := src.(broker.Owned); b.Traits.Has(semel.ExclusiveScope) && !ok {
		errs = append(errs, fmt.Errorf("source %s claims exclusive scopes and does not tell who owns them", b.Name))
	}
	if c.Order == OrderKey && !b.Traits.Has(semel.ExclusiveScope) {
		errs = append(errs, fmt.Errorf("order by key needs a source with exclusive scopes, and %s has %s: two workers could hold messages of one key at the same time", b.Name, b.Traits))
	}
	if c.Inbox.Facts().Remembers {
		errs = append(errs, c.fitRetention(b))
	}
	return errors.Join(errs...)
}

func (c Config) fitRetention(b broker.Capabilities) error {
	horizon := c.Horizon
	if horizon == 0 {
		horizon = b.Horizon
	}
	if horizon == 0 {
		return fmt.Errorf("source %s cannot say how late it may deliver again: state it as horizon, so that ids are kept long enough", b.Name)
	}
	if need := horizon + c.Retry.Span(); c.Keep < need {
		return fmt.Errorf("keep is %v, but the source may deliver again for %v and retries take %v: after keep a repeat would be applied again; keep at least %v", c.Keep, horizon, c.Retry.Span(), need)
	}
	return nil
}
