package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/brokertest"
	"github.com/semel-dev/semel/broker/membroker"
)

// source is a membroker whose receivers are twisted.
func source(cfg membroker.Config, tw twist) brokertest.Harness {
	return brokertest.Harness{
		Patience: time.Minute,
		New: func(testing.TB) brokertest.Source {
			b := membroker.New(cfg)
			s := &shared{}
			return brokertest.Source{
				Open:    func(testing.TB) broker.Receiver { return &twisted{Receiver: b.Receiver(), twist: tw, shared: s} },
				Publish: func(_ testing.TB, ms ...semel.Message) { b.Publish(-1, ms...) },
				Kill: func(_ testing.TB, r broker.Receiver) {
					tr := r.(*twisted)
					tr.mu.Lock()
					tr.dead = true
					tr.mu.Unlock()
					if tw.onKill != nil {
						tw.onKill(tr)
					}
					b.Kill(tr.Receiver, semel.Crashed)
				},
			}
		},
		Wrap: func(t *testing.T, check func(*testing.T)) { synctest.Test(t, check) },
	}
}

var (
	queue      = membroker.Config{Count: semel.TrustExact}
	partitions = membroker.Config{Partitions: 3}
)

// TestSoundSources: the suite has nothing to say against sources in good order.
func TestSoundSources(t *testing.T) {
	for _, cfg := range []membroker.Config{queue, partitions, {Partitions: 2, Unordered: true, Reorder: 4}} {
		t.Run(fmt.Sprintf("%d partitions", cfg.Partitions), func(t *testing.T) {
			brokertest.Run(t, source(cfg, twist{}))
		})
	}
}

// twist is one way to be wrong.
type twist struct {
	caps    func(*broker.Capabilities)
	receive func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error)
	settle  func(r *twisted, s []broker.Settlement, out []broker.Settled) error
	onClose func(r *twisted)
	onKill  func(r *twisted)
	closed  error
	depth   *broker.Depth
	owner   func(r *twisted, o broker.Owner) broker.Owner
}

// shared is what the twisted receivers of one source have in common.
type shared struct {
	mu     sync.Mutex
	n      int
	handed []semel.Delivery
	owners []broker.Owner
}

type twisted struct {
	*membroker.Receiver
	twist
	*shared
	dead, ended bool
	mine        []semel.Delivery
}

func (r *twisted) Capabilities() broker.Capabilities {
	c := r.Receiver.Capabilities()
	if r.caps != nil {
		r.caps(&c)
	}
	return c
}

func (r *twisted) Bind(o broker.Owner) {
	r.mu.Lock()
	r.owners = append(r.owners, o)
	r.mu.Unlock()
	if r.owner != nil {
		o = r.owner(r, o)
	}
	r.Receiver.Bind(o)
}

func (r *twisted) Receive(ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if ended && r.closed != nil {
		return nil, r.closed
	}
	if r.receive != nil {
		return r.receive(r, ctx, b)
	}
	return r.plain(ctx, b)
}

// plain receives and remembers.
func (r *twisted) plain(ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
	ds, err := r.Receiver.Receive(ctx, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed = append(r.handed, ds...)
	r.mine = append(r.mine, ds...)
	return ds, err
}

// alter receives and changes what came.
func alter(fn func(r *twisted, ds []semel.Delivery) []semel.Delivery) func(*twisted, context.Context, broker.Budget) ([]semel.Delivery, error) {
	return func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		for {
			ds, err := r.plain(ctx, b)
			if err != nil {
				return nil, err
			}
			r.mu.Lock()
			ds = fn(r, ds)
			r.mu.Unlock()
			if len(ds) > 0 {
				return ds, nil
			}
		}
	}
}

func (r *twisted) Settle(ctx context.Context, s []broker.Settlement, out []broker.Settled) error {
	if r.settle != nil {
		return r.settle(r, s, out)
	}
	return r.Receiver.Settle(ctx, s, out)
}

// instead settles with another verb where the pipeline asks for v.
func instead(v, other broker.Verb) func(*twisted, []broker.Settlement, []broker.Settled) error {
	return func(r *twisted, s []broker.Settlement, out []broker.Settled) error {
		s = slices.Clone(s)
		for i := range s {
			if s[i].Verb == v {
				s[i].Verb = other
			}
		}
		return r.Receiver.Settle(context.Background(), s, out)
	}
}

func (r *twisted) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.ended && !r.dead
	r.ended = true
	r.mu.Unlock()
	if first && r.onClose != nil {
		r.onClose(r)
	}
	return r.Receiver.Close(ctx)
}

func (r *twisted) Depth(ctx context.Context) (broker.Depth, error) {
	if r.depth != nil {
		return *r.depth, nil
	}
	return r.Receiver.Depth(ctx)
}

// swallow acks what is held.
func swallow(r *twisted) {
	var s []broker.Settlement
	for _, d := range r.mine {
		s = append(s, broker.Settlement{Lease: d.Lease})
	}
	r.Receiver.Settle(context.Background(), s, make([]broker.Settled, len(s)))
}

// yes answers done to everything that the source refuses.
func yes(r *twisted, s []broker.Settlement, out []broker.Settled) error {
	r.Receiver.Settle(context.Background(), s, out)
	for i := range out {
		out[i] = broker.Done
	}
	return nil
}

// twoOwners asks both.
type twoOwners struct {
	broker.Owner
	r *twisted
}

// Assigned tells every owner of the source, as one that forgets to revoke.
func (o twoOwners) Assigned(ctx context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	o.r.mu.Lock()
	owners := slices.Clone(o.r.owners)
	o.r.mu.Unlock()
	for _, other := range owners {
		if other != o.Owner {
			other.Assigned(ctx, as)
		}
	}
	return o.Owner.Assigned(ctx, as)
}

type deafOwner struct{ broker.Owner }

func (deafOwner) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	return make([]semel.Offset, len(as)), nil
}

type backOwner struct{ broker.Owner }

// Assigned starts earlier than the pipeline said.
func (o backOwner) Assigned(ctx context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	at, err := o.Owner.Assigned(ctx, as)
	for i := range at {
		at[i].Lo = max(0, at[i].Lo-1)
	}
	return at, err
}

// broken lists sources that are wrong, and the check that must say so.
var broken = []struct {
	name, check string
	cfg         membroker.Config
	twist       twist
}{
	{"loses one", "Delivers", queue, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		if r.n++; r.n == 2 {
			return ds[1:]
		}
		return ds
	})}},
	{"hands over again after the ack", "Delivers", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		if r.n++; r.n == 3 {
			return r.handed[:1], nil
		}
		return r.plain(ctx, b)
	}}},
	{"deliveries with an error", "Delivers", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		ds, err := r.plain(ctx, b)
		if err == nil {
			err = context.DeadlineExceeded
		}
		return ds, err
	}}},
	{"no answer", "Delivers", queue, twist{settle: func(*twisted, []broker.Settlement, []broker.Settled) error { return nil }}},
	{"too many", "Budget", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		b.Messages++
		return r.plain(ctx, b)
	}}},
	{"too many bytes", "Budget", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		b.Bytes *= 2
		return r.plain(ctx, b)
	}}},
	{"never hands over what is too large", "Budget", queue, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		return slices.DeleteFunc(ds, func(d semel.Delivery) bool { return len(d.Body) > 4000 })
	})}},
	{"deaf to its context", "CancelReturns", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
		defer cancel()
		return r.plain(ctx, b)
	}}},
	{"an error of its own at the end", "CancelReturns", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		ds, err := r.plain(ctx, b)
		if err != nil {
			err = errors.New("interrupted")
		}
		return ds, err
	}}},
	{"loses what is settled meanwhile", "ReceiveWhileSettling", queue, twist{settle: func(r *twisted, s []broker.Settlement, out []broker.Settled) error {
		err := r.Receiver.Settle(context.Background(), s, out)
		out[len(out)-1] = broker.Unknown
		return err
	}}},
	{"uses a buffer again", "BodiesLast", queue, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		for _, d := range r.handed[:len(r.handed)-len(ds)] {
			copy(d.Body, "used again")
		}
		return ds
	})}},
	{"settles twice", "SettleTwice", queue, twist{settle: yes}},
	{"settles anything", "UnknownLease", queue, twist{settle: yes}},
	{"another error after Close", "CloseTwice", queue, twist{closed: errors.New("gone")}},
	{"forgets at Close", "CloseGivesBack", queue, twist{onClose: swallow}},
	{"forgets at a crash", "KillGivesBack", queue, twist{onKill: swallow}},
	{"forgets partitions at a crash", "KillGivesBack", partitions, twist{owner: func(r *twisted, o broker.Owner) broker.Owner { return skippingOwner{o} }}},
	{"loses one of two receivers' messages", "TwoReceivers", queue, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		if r.n++; r.n == 3 {
			return nil
		}
		return ds
	})}},
	{"the same to two", "HeldByOne", queue, twist{receive: func(r *twisted, ctx context.Context, b broker.Budget) ([]semel.Delivery, error) {
		r.mu.Lock()
		if len(r.handed) > 0 && len(r.mine) == 0 {
			defer r.mu.Unlock()
			r.mine = append(r.mine, r.handed[0])
			return r.mine, nil
		}
		r.mu.Unlock()
		return r.plain(ctx, b)
	}}},
	{"always empty", "Depth", queue, twist{depth: &broker.Depth{}}},
	{"never empty", "Depth", queue, twist{depth: &broker.Depth{Claimed: 1}}},
	{"lies about Release", "Release", queue, twist{settle: instead(broker.Release, broker.Ack)}},
	{"counts a Release", "Release", queue, twist{settle: instead(broker.Release, broker.Retry)}},
	{"Release is there and not declared, and acks", "Release", queue, twist{caps: func(c *broker.Capabilities) { c.Release = false }, settle: instead(broker.Release, broker.Ack)}},
	{"lies about Retry", "Retry", queue, twist{settle: instead(broker.Retry, broker.Ack)}},
	{"does not count a Retry", "Retry", queue, twist{settle: instead(broker.Retry, broker.Release)}},
	{"declares Retry without having it", "Retry", partitions, twist{caps: func(c *broker.Capabilities) { c.Retry = true }}},
	{"ignores the delay", "Delay", queue, twist{settle: func(r *twisted, s []broker.Settlement, out []broker.Settled) error {
		s = slices.Clone(s)
		for i := range s {
			s[i].Delay = 0
		}
		return r.Receiver.Settle(context.Background(), s, out)
	}}},
	{"gives rejected ones again", "Reject", queue, twist{settle: instead(broker.Reject, broker.Release)}},
	{"counts from zero", "Count", queue, twist{receive: alter(func(_ *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Count.N--
		}
		return ds
	})}},
	{"does not count crashes", "Count", queue, twist{receive: alter(func(_ *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Count.N = 1
		}
		return ds
	})}},
	{"counts without saying so", "Count", queue, twist{caps: func(c *broker.Capabilities) { c.Count = semel.TrustNone }}},
	{"not cumulative", "Cumulative", queue, twist{caps: func(c *broker.Capabilities) { c.Cumulative = true }, receive: alter(func(_ *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Position = semel.Position{Scope: semel.Scope{Name: "memory"}, Offset: semel.Offset{Lo: int64(i)}}
		}
		return ds
	})}},
	{"confirms what is lost", "Confirmed", membroker.Config{DropAcks: 1}, twist{}},
	{"settles for a former owner", "FencesStale", queue, twist{settle: func(r *twisted, s []broker.Settlement, out []broker.Settled) error {
		if r.dead {
			clear(out)
			return nil
		}
		return r.Receiver.Settle(context.Background(), s, out)
	}}},
	{"moves at redelivery", "StablePosition", partitions, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		r.n += 100
		for i := range ds {
			ds[i].Position.Lo += int64(r.n)
			ds[i].Next.Lo += int64(r.n)
		}
		return ds
	})}},
	{"one place for all", "StablePosition", partitions, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Position.Lo = 0
		}
		return ds
	})}},
	{"exclusive without an owner", "ExclusiveScope", queue, twist{caps: func(c *broker.Capabilities) { c.Traits |= semel.ExclusiveScope }}},
	{"two owners", "ExclusiveScope", partitions, twist{owner: func(r *twisted, o broker.Owner) broker.Owner { return twoOwners{o, r} }}},
	{"hands over before it asks", "ExclusiveScope", partitions, twist{owner: func(r *twisted, o broker.Owner) broker.Owner { return deafOwner{o} }}},
	{"out of order", "InOrderPerScope", membroker.Config{Partitions: 1}, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		if n := len(ds); n > 3 {
			ds[1], ds[2] = ds[2], ds[1]
		}
		return ds
	})}},
	{"starts too early", "InOrderPerScope", partitions, twist{owner: func(r *twisted, o broker.Owner) broker.Owner { return backOwner{o} }}},
	{"does not go on", "InOrderPerScope", partitions, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Next = ds[i].Position.Offset
		}
		return ds
	})}},
	{"keys wander", "StableKeyPartition", partitions, twist{receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			r.n++
			ds[i].Position.Scope.Name = fmt.Sprintf("memory/%d", r.n%2)
		}
		return ds
	})}},
	{"scopes that stay", "Ephemeral", partitions, twist{caps: func(c *broker.Capabilities) { c.Ephemeral = true }}},
	{"cuts what is large", "MaxBytes", queue, twist{caps: func(c *broker.Capabilities) { c.MaxBytes = 1000 }, receive: alter(func(r *twisted, ds []semel.Delivery) []semel.Delivery {
		for i := range ds {
			ds[i].Body = ds[i].Body[:min(len(ds[i].Body), 999)]
		}
		return ds
	})}},
}

// skippingOwner starts after what was not decided.
type skippingOwner struct{ broker.Owner }

func (o skippingOwner) Assigned(ctx context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	at, err := o.Owner.Assigned(ctx, as)
	for i := range at {
		if at[i].Lo > 0 {
			at[i].Lo++
		}
	}
	return at, err
}

// TestBrokenSources: the suite finds every one of them.
func TestBrokenSources(t *testing.T) {
	found := map[string]bool{}
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			found[b.check] = true
			check := find(t, b.check)
			synctest.Test(t, func(t *testing.T) {
				wrong := record(t, check, source(b.cfg, b.twist))
				if len(wrong) == 0 {
					t.Errorf("check %s finds nothing wrong", b.check)
				}
				t.Logf("%s", strings.Join(wrong, "\n"))
			})
		})
	}
	for _, c := range brokertest.Checks() {
		if !found[c.Name] {
			t.Errorf("no broken source shows that check %s can fail", c.Name)
		}
	}
}

func find(t *testing.T, name string) brokertest.Check {
	t.Helper()
	cs := brokertest.Checks()
	i := slices.IndexFunc(cs, func(c brokertest.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %s", name)
	}
	return cs[i]
}

// recorder takes the place of a test that is expected to fail.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	wrong   []string
	cleanup []func()
}

func record(t *testing.T, c brokertest.Check, h brokertest.Harness) []string {
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer rec.clean()
		c.Run(rec, h)
	}()
	<-done
	return rec.wrong
}

func (r *recorder) clean() {
	for _, fn := range slices.Backward(r.cleanup) {
		fn()
	}
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, s)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(fn func())            { r.cleanup = append(r.cleanup, fn) }
func (r *recorder) Log(args ...any)              {}
func (r *recorder) Logf(f string, args ...any)   {}
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) FailNow()                     { r.note("failed"); runtime.Goexit() }
func (r *recorder) Fail()                        { r.note("failed") }
