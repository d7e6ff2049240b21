package consumer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// bare is a source that has nothing but its capabilities.
type bare struct {
	broker.Receiver
	has broker.Capabilities
}

func (b bare) Capabilities() broker.Capabilities { return b.has }

// TestRefusals: what cannot work is refused at start, with the reason and what
// would work; all of it at once.
func TestRefusals(t *testing.T) {
	queue := membroker.New(membroker.Config{}).Receiver()
	partitions := membroker.New(membroker.Config{Partitions: 1}).Receiver()
	unordered := membroker.New(membroker.Config{Partitions: 1, Unordered: true}).Receiver()
	for name, c := range map[string]struct {
		src  broker.Receiver
		cfg  func(*consumer.Config)
		want []string
	}{
		"keep below the horizon": {queue, func(c *consumer.Config) { c.Keep, c.Horizon = time.Hour, 2*time.Hour }, []string{"keep is 1h0m0s", "applied again", "keep at least"}},
		"keep below horizon and retries": {queue, func(c *consumer.Config) {
			c.Keep, c.Horizon = 2*time.Hour, time.Hour+time.Minute
			c.Retry = retry.Policy{Delays: []time.Duration{time.Hour}, Jitter: -1}
		}, []string{"keep at least 2h1m0s"}},
		"no horizon":               {queue, func(c *consumer.Config) { c.Horizon = 0 }, []string{"cannot say how late", "horizon"}},
		"position on a queue":      {queue, func(c *consumer.Config) { c.Inbox = inbox.Position }, []string{"inbox position needs", "lost", "use table"}},
		"position without order":   {unordered, func(c *consumer.Config) { c.Inbox = inbox.Position }, []string{"inbox position needs", "use table"}},
		"order by key on a queue":  {queue, func(c *consumer.Config) { c.Order = consumer.OrderKey }, []string{"order by key needs", "exclusive"}},
		"scopes without ownership": {bare{has: broker.Capabilities{Name: "odd", Traits: semel.Positions}}, func(c *consumer.Config) { c.Drain = nil }, []string{"source odd", "does not tell who owns them"}},
		"drain without depth":      {bare{has: broker.Capabilities{Name: "odd"}}, func(*consumer.Config) {}, []string{"source odd", "empty"}},
		"everything": {queue, func(c *consumer.Config) {
			*c = consumer.Config{Name: strings.Repeat("n", 256), Inbox: 99, MaxBatch: -1, Keep: -1, HandlerTimeout: -1, Retry: retry.Policy{Delays: []time.Duration{-1}, Jitter: 2}}
		}, []string{"name has 256 bytes", "decoder is missing", "unknown inbox strategy", "MaxBatch is negative", "Keep is negative", "HandlerTimeout is negative", "delay 1", "jitter"}},
		"no name": {partitions, func(c *consumer.Config) { c.Name = "" }, []string{"name has 0 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			c.cfg(&cfg)
			_, err := consumer.New(cfg, c.src, store.Backend[tx](memstore.New()), consumer.Each(count))
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q:\n%v", w, err)
				}
			}
		})
	}
}

// TestAccepted: every strategy with every source it fits.
func TestAccepted(t *testing.T) {
	for kind, src := range sources {
		r := membroker.New(src).Receiver()
		for _, s := range inbox.All() {
			cfg := config()
			cfg.Inbox = s
			_, err := consumer.New(cfg, r, store.Backend[tx](memstore.New()), consumer.Each(count))
			if fits := inbox.Fit(s, r.Capabilities().Traits) == nil; fits != (err == nil) {
				t.Errorf("%s on %s: %v", s, kind, err)
			}
		}
	}
	cfg := config()
	cfg.Inbox, cfg.Horizon = inbox.UniqueKey, 0 // it remembers nothing that could be forgotten
	if _, err := consumer.New(cfg, membroker.New(membroker.Config{}).Receiver(), store.Backend[tx](memstore.New()), consumer.Each(count)); err != nil {
		t.Error(err)
	}
	if _, err := consumer.New(config(), membroker.New(membroker.Config{}).Receiver(), store.Backend[tx](memstore.New()), consumer.Work[tx]{}); err == nil || !strings.Contains(err.Error(), "work is missing") {
		t.Errorf("no work: %v", err)
	}
}

// TestNameIsTaken: two pipelines with one name would take each other's messages
// for repeats.
func TestNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
		cfg := config()
		cfg.Identity = map[string]string{"source": "orders"}
		run(t, cfg, b, st, consumer.Each(count))
		run(t, cfg, b, st, consumer.Each(count)) // itself again
		for fact, change := range map[string]func(*consumer.Config){
			"source": func(c *consumer.Config) { c.Identity = map[string]string{"source": "payments"} },
			"inbox":  func(c *consumer.Config) { c.Inbox = inbox.Position },
		} {
			other := cfg
			change(&other)
			c := start(t, other, b.Receiver(), st, consumer.Each(count))
			err := c.wait(t)
			var taken *store.TakenError
			if !errors.As(err, &taken) || taken.Fact != fact {
				t.Errorf("%s: %v", fact, err)
			}
		}
	})
}

// TestOtherStrategies: the handler's own constraint, and overwriting, under
// redelivery.
func TestOtherStrategies(t *testing.T) {
	for _, s := range []inbox.Strategy{inbox.UniqueKey, inbox.Upsert} {
		t.Run(s.String(), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st := memstore.New()
				cfg := config()
				cfg.Inbox = s
				b.Publish(-1, messages(50)...)
				b.Publish(-1, messages(50)[:10]...)
				a := run(t, cfg, b, st, consumer.Each(unique))
				if a.Of[semel.Applied] != 50 || a.Of[semel.Duplicate] != 10 {
					t.Errorf("account: %+v", a)
				}
				wantEffects(t, st, ids(messages(50))...)
			})
		})
	}
}
