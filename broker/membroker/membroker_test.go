package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
)

var all = broker.Budget{Messages: 1000, Bytes: 1 << 20}

func message(id string) semel.Message { return semel.Message{ID: id, Key: id, Body: []byte(id)} }

func messages(n int) []semel.Message {
	var ms []semel.Message
	for i := range n {
		ms = append(ms, message(strconv.Itoa(i)))
	}
	return ms
}

func receive(t *testing.T, r broker.Receiver) []semel.Delivery {
	t.Helper()
	ds, err := r.Receive(t.Context(), all)
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return ds
}

func ids(ds []semel.Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return out
}

func settle(t *testing.T, r broker.Receiver, ds []semel.Delivery, v broker.Verb) []broker.Settled {
	t.Helper()
	var s []broker.Settlement
	for _, d := range ds {
		s = append(s, broker.Settlement{Lease: d.Lease, Verb: v})
	}
	out := make([]broker.Settled, len(s))
	if err := r.Settle(t.Context(), s, out); err != nil {
		t.Fatalf("settle: %v", err)
	}
	return out
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// owner answers assignments with what it has decided, and notes the calls.
type owner struct {
	mu    sync.Mutex
	next  map[string]int64
	calls []string
	as    []broker.Assignment
	err   error
	// draining and asked, if set, are called by Revoked and Assigned.
	draining, asked func()
}

func (o *owner) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []semel.Offset
	for _, a := range as {
		o.calls = append(o.calls, "assigned "+a.Scope.String())
		out = append(out, semel.Offset{Lo: o.next[a.Scope.String()]})
		if o.next[a.Scope.String()] < 0 {
			out[len(out)-1] = broker.Stopped()
		}
	}
	o.as = append(o.as, as...)
	if o.asked != nil {
		o.asked()
		o.asked = nil
	}
	return out, o.err
}

func (o *owner) Revoked(_ context.Context, s []semel.Scope) error {
	if o.draining != nil {
		o.draining()
	}
	o.note("revoked", s)
	return nil
}

func (o *owner) Lost(s []semel.Scope) { o.note("lost", s) }

func (o *owner) note(what string, s []semel.Scope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sc := range s {
		o.calls = append(o.calls, what+" "+sc.String())
	}
}

// log returns the calls since it was last asked.
func (o *owner) log() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls
	o.calls = nil
	return c
}

func join(b *membroker.Broker) (*membroker.Receiver, *owner) {
	r, o := b.Receiver(), &owner{next: make(map[string]int64)}
	r.Bind(o)
	return r, o
}

func TestQueueSettlement(t *testing.T) {
	b := membroker.New(membroker.Config{Count: semel.TrustExact})
	b.Publish(0, messages(4)...)
	r := b.Receiver()
	ds := receive(t, r)
	want(t, "first", ids(ds), []string{"0", "1", "2", "3"})
	want(t, "ack", settle(t, r, ds[:1], broker.Ack), []broker.Settled{broker.Done})
	want(t, "again", settle(t, r, ds[:1], broker.Ack), []broker.Settled{broker.Stale})
	settle(t, r, ds[1:2], broker.Retry)
	settle(t, r, ds[2:3], broker.Release)
	want(t, "unsettled", b.Unsettled(), []string{"1", "2", "3"})
	depth, _ := r.Depth(t.Context())
	want(t, "depth", depth, broker.Depth{Waiting: 2, Claimed: 1})
	again := receive(t, r)
	want(t, "second", ids(again), []string{"2", "1"})
	want(t, "count of the released", again[0].Count.N, 1)
	want(t, "count of the retried", again[1].Count.N, 2)
	settle(t, r, append(again, ds[3]), broker.Ack)
	depth, _ = r.Depth(t.Context())
	want(t, "empty", depth.Empty(), true)
	want(t, "acks", []int{b.Acked("0"), b.Acked("3")}, []int{1, 1})
	want(t, "events", len(b.Events()), 6)
}

func TestQueueOriginsDiffer(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.PublishAs(0, semel.Delivery{Malformed: errors.New("cut off")}, semel.Delivery{Message: message("x"), Returns: "ref"})
	ds := receive(t, b.Receiver())
	if ds[0].Origin() == ds[1].Origin() || ds[0].Malformed == nil || ds[1].Returns != "ref" {
		t.Fatalf("got %+v", ds)
	}
}

func TestBudget(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Publish(0, semel.Message{ID: "big", Body: make([]byte, 100)})
	b.Publish(0, messages(5)...)
	r := b.Receiver()
	for _, step := range []struct {
		budget broker.Budget
		want   []string
	}{
		{broker.Budget{Messages: 10, Bytes: 50}, []string{"big"}},
		{broker.Budget{Messages: 2, Bytes: 50}, []string{"0", "1"}},
		{broker.Budget{Messages: 10, Bytes: 2}, []string{"2", "3"}},
	} {
		ds, err := r.Receive(t.Context(), step.budget)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "handed over", ids(ds), step.want)
	}
}

func TestReceiveWaitsDurably(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{})
		r := b.Receiver()
		start := time.Now()
		time.AfterFunc(time.Hour, func() { b.Publish(0, message("a")) })
		ds := receive(t, r)
		want(t, "waited", time.Since(start), time.Hour)
		out := make([]broker.Settled, 1)
		retry := []broker.Settlement{{Lease: ds[0].Lease, Verb: broker.Retry, Delay: time.Minute}}
		if err := r.Settle(t.Context(), retry, out); err != nil {
			t.Fatal(err)
		}
		receive(t, r)
		want(t, "waited", time.Since(start), time.Hour+time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ds, err := r.Receive(ctx, all); ds != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, %v", ds, err)
		}
		time.AfterFunc(time.Hour, func() { _ = r.Close(t.Context()) })
		if _, err := r.Receive(t.Context(), all); !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("after close: %v", err)
		}
	})
}

func TestPartitionsStartWhereTheOwnerSays(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 3})
	for p := range 3 {
		b.Publish(p, messages(4)...)
	}
	b.Skip(0, 5)
	b.Publish(0, message("far"))
	r, o := join(b)
	o.next["memory/0@1"] = 2
	o.next["memory/1@1"] = -1 // stopped
	o.next["memory/2@1"] = 4
	ds := receive(t, r)
	want(t, "handed over", ids(ds), []string{"2", "3", "far"})
	want(t, "position", ds[2].Position.Offset, semel.Offset{Lo: 9})
	want(t, "next", ds[2].Next, semel.Offset{Lo: 10})
	want(t, "bounds", o.as[0].End, semel.Offset{Lo: 10})
	want(t, "calls", o.log(), []string{"assigned memory/0@1", "assigned memory/1@1", "assigned memory/2@1"})
	want(t, "retry", settle(t, r, ds[:1], broker.Retry), []broker.Settled{broker.Unsupported})
	settle(t, r, ds, broker.Ack)
	depth, _ := r.Depth(t.Context())
	want(t, "depth", depth, broker.Depth{})
}

func TestBatchHasManyScopes(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 3})
	for p := range 3 {
		b.Publish(p, messages(4)...)
	}
	r, _ := join(b)
	ds, err := r.Receive(t.Context(), broker.Budget{Messages: 6, Bytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "interleaved", ids(ds), []string{"0", "0", "0", "1", "1", "1"})
}

func TestRevokeWaitsAndStopsHandingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Partitions: 1})
		b.Publish(0, messages(1)...)
		r, o := join(b)
		ds := receive(t, r)
		o.log()
		var answers []broker.Settled
		o.draining = func() {
			b.Publish(0, message("later"))
			time.Sleep(time.Second)
			answers = settle(t, r, ds, broker.Ack)
		}
		got := make(chan error)
		go func() {
			_, err := r.Receive(t.Context(), all)
			got <- err
		}()
		synctest.Wait()
		if err := b.Revoke(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
		want(t, "calls", o.log(), []string{"revoked memory/0@1"})
		want(t, "settled while draining", answers, []broker.Settled{broker.Done})
		want(t, "after", settle(t, r, ds, broker.Ack), []broker.Settled{broker.Stale})
		next, o2 := join(b)
		b.Assign(next, 0)
		o2.next["memory/0@1"] = 1
		want(t, "next owner", ids(receive(t, next)), []string{"later"})
		want(t, "takeover", o2.as[0].Takeover, semel.Fresh)
		_ = r.Close(t.Context())
		if err := <-got; !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("the revoked one received: %v", err)
		}
	})
}

func TestStolenThenLost(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 2})
	b.Publish(0, messages(2)...)
	zombie, o := join(b)
	ds := receive(t, zombie)
	o.log()
	next, o2 := join(b)
	b.Assign(next, 0)
	want(t, "handed over again", ids(receive(t, next)), []string{"0", "1"})
	want(t, "takeover", o2.as[0].Takeover, semel.Orphaned)
	want(t, "zombie settles", settle(t, zombie, ds, broker.Ack), []broker.Settled{broker.Stale, broker.Stale})
	want(t, "not told", o.log(), []string(nil))
	b.Lose(zombie, 0)
	want(t, "told", o.log(), []string{"lost memory/0@1"})
	if who, asked := b.Owner(0); who != next || !asked {
		t.Fatal("the new owner lost it")
	}
}

func TestKillPassesOn(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 1})
	b.Publish(0, messages(3)...)
	dead, o := join(b)
	receive(t, dead)
	o.log()
	b.Kill(dead, semel.Crashed)
	if _, err := dead.Receive(t.Context(), all); !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("a dead worker received: %v", err)
	}
	next, o2 := join(b)
	o2.next["memory/0@1"] = 1
	want(t, "handed over", ids(receive(t, next)), []string{"1", "2"})
	want(t, "takeover", o2.as[0].Takeover, semel.Crashed)
	want(t, "no callback", o.log(), []string(nil))
}

func TestKillInQueue(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Publish(0, messages(3)...)
	dead, next := b.Receiver(), b.Receiver()
	receive(t, dead)
	b.Publish(0, message("new"))
	b.Kill(dead, semel.Crashed)
	ds := receive(t, next)
	want(t, "order", ids(ds), []string{"0", "1", "2", "new"})
	want(t, "takeover", []semel.Takeover{ds[2].Takeover, ds[3].Takeover}, []semel.Takeover{semel.Crashed, semel.Fresh})
}

func TestDisconnect(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		b := membroker.New(membroker.Config{})
		b.Publish(0, messages(2)...)
		r := b.Receiver()
		old := receive(t, r)
		b.Disconnect(r)
		want(t, "stale", settle(t, r, old, broker.Ack), []broker.Settled{broker.Stale, broker.Stale})
		if _, err := r.Receive(t.Context(), all); !errors.Is(err, membroker.ErrDisconnected) {
			t.Fatalf("got %v", err)
		}
		want(t, "again", ids(receive(t, r)), []string{"0", "1"})
	})
	t.Run("partitions", func(t *testing.T) {
		b := membroker.New(membroker.Config{Partitions: 1})
		b.Publish(0, messages(2)...)
		r, o := join(b)
		old := receive(t, r)
		b.Disconnect(r)
		want(t, "stale", settle(t, r, old[:1], broker.Ack), []broker.Settled{broker.Stale})
		if _, err := r.Receive(t.Context(), all); !errors.Is(err, membroker.ErrDisconnected) {
			t.Fatalf("got %v", err)
		}
		want(t, "again", ids(receive(t, r)), []string{"0", "1"})
		want(t, "calls", o.log(), []string{"assigned memory/0@1", "lost memory/0@1", "assigned memory/0@1"})
	})
}

func TestAssignmentRefused(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 1})
	b.Publish(0, messages(1)...)
	r, o := join(b)
	o.err = errors.New("store is away")
	for range 2 {
		if _, err := r.Receive(t.Context(), all); !errors.Is(err, o.err) {
			t.Fatalf("got %v", err)
		}
	}
	o.err = nil
	want(t, "in the end", ids(receive(t, r)), []string{"0"})
	want(t, "asked", len(o.log()), 3)
}

func TestRecreateTruncateCut(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 1})
	b.Publish(0, messages(4)...)
	r, o := join(b)
	receive(t, r)
	b.Recreate(0)
	b.Publish(0, messages(6)...)
	b.Truncate(0, 2)
	b.Cut(0, 5)
	o.log()
	o.next["memory/0@2"] = 3
	want(t, "handed over", ids(receive(t, r)), []string{"3", "4"})
	want(t, "calls", o.log(), []string{"lost memory/0@1", "assigned memory/0@2"})
	a := o.as[len(o.as)-1]
	want(t, "bounds", []int64{a.First.Lo, a.End.Lo}, []int64{2, 5})
	b.Publish(0, message("x"))
	want(t, "offset after the cut", receive(t, r)[0].Position.Lo, int64(5))
}

func TestLostAcks(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Publish(0, messages(3)...)
	b.DropAcks(1, broker.Unknown)
	b.DropAcks(1, broker.Done)
	r := b.Receiver()
	want(t, "answers", settle(t, r, receive(t, r), broker.Ack), []broker.Settled{broker.Unknown, broker.Done, broker.Done})
	want(t, "again", ids(receive(t, r)), []string{"0", "1"})
	b.FailSettle(r, 1, errors.New("no route"))
	if err := r.Settle(t.Context(), make([]broker.Settlement, 1), make([]broker.Settled, 1)); err == nil {
		t.Fatal("settle did not fail")
	}
}

func TestRedeliver(t *testing.T) {
	for _, partitions := range []int{0, 2} {
		b := membroker.New(membroker.Config{Partitions: partitions})
		b.Publish(0, messages(1)...)
		r := b.Receiver()
		settle(t, r, receive(t, r), broker.Ack)
		if !b.Redeliver("0") || b.Redeliver("unknown") {
			t.Fatal("wrong answer")
		}
		want(t, "again", ids(receive(t, r)), []string{"0"})
	}
}

// drain acks everything until nothing is left, and returns the ids in order.
func drain(t *testing.T, r *membroker.Receiver) (order []string) {
	t.Helper()
	for {
		if d, err := r.Depth(t.Context()); err != nil || d.Empty() {
			return order
		}
		ds, err := r.Receive(t.Context(), broker.Budget{Messages: 7, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, ids(ds)...)
		settle(t, r, ds, broker.Ack)
	}
}

func TestChaosIsCompleteAndRepeats(t *testing.T) {
	for _, cfg := range []membroker.Config{
		{Duplicate: 0.3, Reorder: 5, DropAcks: 0.2, Delay: time.Minute, Scribble: true},
		{Partitions: 3, Unordered: true, Duplicate: 0.3, Reorder: 5, DropAcks: 0.2, Delay: time.Minute},
		{Partitions: 3, Duplicate: 0.3, DropAcks: 0.2, Delay: time.Minute},
	} {
		t.Run(fmt.Sprintf("%d partitions, unordered %v", cfg.Partitions, cfg.Unordered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := func(seed uint64) []string {
					cfg.Seed = seed
					b := membroker.New(cfg)
					b.Publish(-1, messages(200)...)
					return drain(t, b.Receiver())
				}
				first := run(1)
				want(t, "same seed", run(1), first)
				if slices.Equal(run(2), first) {
					t.Fatal("another seed gave the same run")
				}
				if len(first) <= 200 {
					t.Fatalf("%d deliveries: nothing was repeated", len(first))
				}
				seen := slices.Clone(first)
				slices.Sort(seen)
				want(t, "different messages", len(slices.Compact(seen)), 200)
			})
		})
	}
}

func TestOrderedPartitionsKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Partitions: 1, Duplicate: 0.3, Reorder: 5, Delay: time.Minute})
		b.Publish(0, messages(100)...)
		r := b.Receiver()
		last := int64(-1)
		for last < 99 {
			for _, d := range receive(t, r) {
				if d.Position.Lo != last+1 {
					t.Fatalf("offset %d after %d", d.Position.Lo, last)
				}
				last = d.Position.Lo
			}
		}
	})
}

func TestScribble(t *testing.T) {
	b := membroker.New(membroker.Config{Scribble: true})
	b.Publish(0, message("abc"))
	r := b.Receiver()
	ds := receive(t, r)
	want(t, "before", string(ds[0].Body), "abc")
	settle(t, r, ds, broker.Release)
	if string(ds[0].Body) == "abc" {
		t.Fatal("the body is still there")
	}
	want(t, "again", string(receive(t, r)[0].Body), "abc")
}

func TestOnSettleComesFirst(t *testing.T) {
	var b *membroker.Broker
	var seen []string
	b = membroker.New(membroker.Config{OnSettle: func(id string, s broker.Settlement) {
		seen = append(seen, fmt.Sprintf("%s %d %d", id, s.Verb, b.Acked(id)))
	}})
	b.Publish(0, messages(2)...)
	r := b.Receiver()
	settle(t, r, receive(t, r), broker.Reject)
	want(t, "seen", seen, []string{"0 3 0", "1 3 0"})
}

func TestFailReceive(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Publish(0, messages(1)...)
	r := b.Receiver()
	boom := errors.New("boom")
	b.FailReceive(r, 2, boom)
	for range 2 {
		if ds, err := r.Receive(t.Context(), all); ds != nil || !errors.Is(err, boom) {
			t.Fatalf("got %v, %v", ds, err)
		}
	}
	want(t, "in the end", ids(receive(t, r)), []string{"0"})
}

func TestCommittedOffset(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 1})
	b.Publish(0, messages(4)...)
	r := b.Receiver()
	ds := receive(t, r)
	settle(t, r, ds[1:3], broker.Ack)
	want(t, "with a hole", b.Committed(0), 0)
	want(t, "unsettled", b.Unsettled(), []string{"0", "3"})
	settle(t, r, ds[:1], broker.Ack)
	want(t, "without", b.Committed(0), 3)
	_ = r.Close(t.Context())
	want(t, "a receiver without owner starts there", ids(receive(t, b.Receiver())), []string{"3"})
}

// TestStolenWhileAsked: the partition goes to another while its owner is being
// asked where to start.
func TestStolenWhileAsked(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 2})
	b.Publish(0, message("a"))
	b.Publish(1, message("b"))
	r, o := join(b)
	next, _ := join(b)
	o.asked = func() { b.Assign(next, 0) }
	want(t, "handed over", ids(receive(t, r)), []string{"b"})
	want(t, "to the other", ids(receive(t, next)), []string{"a"})
	b.Publish(1, message("c"))
	receive(t, r)
	want(t, "calls", o.log(), []string{"assigned memory/0@1", "assigned memory/1@1", "lost memory/0@1"})
}

func TestUnorderedPartitionsForgetWhatIsGone(t *testing.T) {
	b := membroker.New(membroker.Config{Partitions: 1, Unordered: true, Reorder: 10})
	b.Publish(0, messages(10)...)
	r := b.Receiver()
	if _, err := r.Receive(t.Context(), broker.Budget{Messages: 1, Bytes: 10}); err != nil {
		t.Fatal(err)
	}
	b.Truncate(0, 4)
	b.Cut(0, 6)
	for _, id := range ids(receive(t, r)) {
		if id != "4" && id != "5" {
			t.Errorf("%s was dropped and handed over", id)
		}
	}
}

func TestCapabilities(t *testing.T) {
	queue := membroker.New(membroker.Config{Horizon: time.Hour, Count: semel.TrustExact}).Receiver().Capabilities()
	want(t, "queue", []any{queue.Traits, queue.Retry, queue.Release, queue.Horizon, queue.Count}, []any{semel.Trait(0), true, true, time.Hour, semel.TrustExact})
	parts := membroker.New(membroker.Config{Partitions: 1}).Receiver().Capabilities()
	want(t, "partitions", []any{parts.Traits.Has(semel.Positions), parts.Retry}, []any{true, false})
	loose := membroker.New(membroker.Config{Partitions: 1, Unordered: true}).Receiver().Capabilities()
	want(t, "unordered", loose.Traits.Has(semel.InOrderPerScope), false)
}
