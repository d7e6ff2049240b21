package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

type tx = *memstore.Tx

// world is a pipeline that is monitored.
type world struct {
	t   *testing.T
	b   *membroker.Broker
	r   *membroker.Receiver
	st  *memstore.Store
	mon *observe.Monitor
	c   *consumer.Consumer[tx]

	mu     sync.Mutex
	handle func() error // what the handler does

	cancel context.CancelFunc
	ended  chan error
}

func (w *world) handler(context.Context, tx, semel.Message) error {
	w.mu.Lock()
	fn := w.handle
	w.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn()
}

func (w *world) handling(fn func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handle = fn
}

// begin runs a pipeline of one partition, or with none assigned yet. It ends
// with the test.
func begin(t *testing.T, start consumer.Start, assigned bool) *world {
	return beginWith(t, start, assigned, func(*consumer.Config) {})
}

// beginWith is begin with another configuration.
func beginWith(t *testing.T, start consumer.Start, assigned bool, change func(*consumer.Config)) *world {
	w := &world{t: t, b: membroker.New(membroker.Config{Partitions: 1}), st: memstore.New(), mon: observe.NewMonitor(observe.Config{Pipeline: "p"}), ended: make(chan error, 1)}
	w.r = w.b.Receiver()
	if assigned {
		w.b.Assign(w.r, 0)
	} else {
		w.b.Assign(w.r)
	}
	cfg := consumer.Config{
		Name: "p", Horizon: time.Hour, Start: start, Observer: w.mon.Observer(),
		Decoder: broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
		Retry:   retry.Policy{Delays: []time.Duration{time.Second}},
	}
	change(&cfg)
	var err error
	if w.c, err = consumer.New(cfg, w.r, store.Backend[tx](w.st), consumer.Each(w.handler)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.mon.Watch(ctx, observe.Target{Account: w.c.Account, Depth: w.r.Depth,
		Status: func(ctx context.Context) (store.Status, error) { return w.st.Status(ctx, "p", false) }})
	go func() { w.ended <- w.c.Run(ctx) }()
	synctest.Wait()
	return w
}

// end stops the pipeline. Whether it could finish is not the test's business.
func (w *world) end() {
	w.cancel()
	<-w.ended
	w.r.Close(context.Background())
	synctest.Wait()
}

func (w *world) publish(ids ...string) {
	for _, id := range ids {
		w.b.Publish(0, semel.Message{ID: id})
	}
	synctest.Wait()
}

// health asks as an orchestrator does, and wants exactly these conditions, of
// those for which the process is not alive.
func (w *world) health(live string, ready ...observe.Condition) {
	w.t.Helper()
	w.ask("/livez", strings.Fields(live))
	var names []string
	for _, c := range ready {
		names = append(names, string(c))
	}
	w.ask("/readyz", names)
}

func (w *world) ask(path string, want []string) {
	w.t.Helper()
	a := httptest.NewRecorder()
	w.mon.Handler().ServeHTTP(a, httptest.NewRequest(http.MethodGet, path, nil))
	var body struct {
		Pipeline string
		OK       bool
		Reasons  []observe.Reason
	}
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil || body.Pipeline != "p" {
		w.t.Fatalf("%s: %v in %s", path, err, a.Body)
	}
	got := []string{}
	for _, r := range body.Reasons {
		got = append(got, string(r.Condition))
		if r.Detail == "" {
			w.t.Errorf("%s: nothing is said of %s", path, r.Condition)
		}
	}
	ok := len(want) == 0
	if !slices.Equal(got, append([]string{}, want...)) || body.OK != ok || a.Code != map[bool]int{true: 200, false: 503}[ok] {
		w.t.Errorf("%s: %d %s, want %q", path, a.Code, a.Body, want)
	}
}

// TestHealthFollowsTheRun: not ready before the first assignment, ready with
// it, not while it drains, not after its end.
func TestHealthFollowsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, false)
		w.health("", observe.Starting)
		w.b.Assign(w.r, 0)
		synctest.Wait()
		w.health("")
		release := make(chan struct{})
		w.handling(func() error { <-release; return nil })
		w.publish("a")
		w.cancel()
		synctest.Wait()
		w.health("", observe.Draining)
		close(release)
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		w.health("", observe.Ended)
		w.r.Close(context.Background())
	})
}

// TestHealthPaused: red while the store cannot be used.
func TestHealthPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		w.st.Break()
		w.publish("a")
		w.health("", observe.Paused)
		time.Sleep(30 * time.Second)
		w.health("", observe.Paused, observe.StoreUnreadable)
		w.st.Heal()
		time.Sleep(time.Minute)
		w.health("")
	})
}

// TestHealthOverlappingPauses: it is paused until the last of several
// committers goes on.
func TestHealthOverlappingPauses(t *testing.T) {
	mon := observe.NewMonitor(observe.Config{Pipeline: "p"})
	w := &world{t: t, mon: mon}
	o := mon.Observer()
	o.Phase(semel.Running)
	o.Paused(errors.New("disk full"))
	o.Paused(errors.New("disk full"))
	o.Paused(nil)
	w.health("", observe.Paused)
	o.Paused(nil)
	o.Paused(nil) // one too many changes nothing
	w.health("")
	o.Paused(errors.New("disk full"))
	w.health("", observe.Paused)
}

// TestHealthStalled: a store that refuses every transaction without being down
// (a lock that somebody keeps) is noticed after a while.
func TestHealthStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		w.st.Script(func(s memstore.Step) error {
			if s.Op == memstore.OpBegin {
				time.Sleep(time.Second)
				return memstore.Errorf(semel.ClassContention, "locked")
			}
			return nil
		})
		w.publish("a")
		time.Sleep(15 * time.Second)
		w.health("")
		time.Sleep(5 * time.Second)
		w.health("", observe.Stalled)
		w.st.Script(nil)
		time.Sleep(2 * time.Second)
		w.health("")
	})
}

// TestHealthAfterAFailure: a transaction that failed and was not tried again,
// because its scope is another worker's now, does not keep it red.
func TestHealthAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mon := observe.NewMonitor(observe.Config{Pipeline: "p"})
		w := &world{t: t, mon: mon}
		o := mon.Observer()
		o.Phase(semel.Running)
		fail := func() {
			_, end := o.Open(t.Context(), semel.Opening{})
			end(semel.Batch{}, errors.New("lost"))
		}
		for range 3 {
			fail()
			time.Sleep(20 * time.Second)
			w.health("")
			time.Sleep(time.Hour)
		}
		for range 4 {
			fail()
			time.Sleep(5 * time.Second)
		}
		w.health("", observe.Stalled)
		_, end := o.Open(t.Context(), semel.Opening{})
		time.Sleep(time.Minute)
		w.health("", observe.Stalled)
		end(semel.Batch{}, nil)
		w.health("")
	})
}

// TestHealthPanicLoop: attempts that panic one after the other make it not
// ready, and not alive if they are of several messages. One that is applied
// ends the loop.
func TestHealthPanicLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		w.handling(func() error { panic("secret of a customer") })
		w.publish("a", "b")
		w.health("") // two attempts each
		time.Sleep(time.Second)
		w.publish("c")
		w.health("panic_loop", observe.PanicLoop)
		for _, r := range w.mon.Health().Reasons {
			if strings.Contains(r.Detail, "secret") {
				t.Errorf("%q tells what a handler said", r.Detail)
			}
		}
		w.handling(nil)
		w.publish("d")
		w.health("")
	})
}

// TestHealthOnePoisonedMessage that panics is no reason for another start: it
// becomes a dead letter. The answer is green when that has calmed down.
func TestHealthOnePoisonedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		w.handling(func() error { panic("oh") })
		for range 5 { // it is published again and again; each time a new one
			w.mon.Observer().Failed(semel.Failure{ID: "poison", Panic: true})
		}
		w.health("", observe.PanicLoop)
		time.Sleep(61 * time.Second)
		w.health("")
		w.mon.Observer().Failed(semel.Failure{ID: "poison", Panic: true})
		w.health("", observe.PanicLoop)
		w.mon.Observer().Failed(semel.Failure{ID: "other", Err: errors.New("no panic")})
		w.health("")
	})
}

// TestHealthWedged: a handler that does not end, and does not heed its context.
func TestHealthWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		release := make(chan struct{})
		w.handling(func() error { <-release; return nil })
		w.publish("a")
		time.Sleep(4 * time.Minute)
		w.health("")
		time.Sleep(2 * time.Minute)
		w.health("wedged", observe.Wedged)
		close(release)
		synctest.Wait()
		w.health("")
	})
}

// TestHealthStoppedScope: red with its name and why, until it is read, or
// somebody else's.
func TestHealthStoppedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartRefuse, true)
		defer w.end()
		w.health("", observe.ScopeStopped)
		r := w.mon.Health().Reasons[0]
		if !strings.HasPrefix(r.Scope, "memory/0") || !strings.Contains(r.Detail, "no position is recorded") {
			t.Errorf("%+v", r)
		}
		if err := w.b.Revoke(t.Context(), w.r, 0); err != nil {
			t.Error(err)
		}
		w.health("")
	})
}

// TestHealthAccount: red if ledger and letters differ, or if more was decided
// than received, until that is mended.
func TestHealthAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var status store.Status
		var account semel.Account
		mon := observe.NewMonitor(observe.Config{Pipeline: "p"})
		w := &world{t: t, mon: mon}
		mon.Observer().Phase(semel.Running)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go mon.Watch(ctx, observe.Target{
			Account: func() semel.Account { mu.Lock(); defer mu.Unlock(); return account },
			Status:  func(context.Context) (store.Status, error) { mu.Lock(); defer mu.Unlock(); return status, nil },
		})
		set := func(fn func()) {
			mu.Lock()
			fn()
			mu.Unlock()
			time.Sleep(6 * time.Second)
		}
		synctest.Wait()
		w.health("")
		set(func() { status.Imbalances = []store.Imbalance{{Account: "letters", Ledger: 3, Rows: 2}} })
		w.health("", observe.Unbalanced)
		set(func() { status.Imbalances = nil })
		w.health("")
		set(func() { account.Of[semel.Applied] = 1 })
		w.health("", observe.Unbalanced)
		set(func() { account.Received = 1 })
		w.health("")
	})
}

// TestHealthOfManyScopes names only some of them.
func TestHealthOfManyScopes(t *testing.T) {
	mon := observe.NewMonitor(observe.Config{})
	o := mon.Observer()
	o.Phase(semel.Running)
	for i := range 100 {
		o.Scope(semel.Scope{Name: fmt.Sprintf("s%02d\x1b", i)}, "stopped", errors.New("gone"))
	}
	rs := mon.Health().Reasons
	if len(rs) != 21 || rs[0].Scope != `s00\x1b` || rs[20].Detail != "and 80 more" {
		t.Errorf("%d reasons: %+v", len(rs), rs)
	}
}
