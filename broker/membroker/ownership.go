package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// ErrDisconnected is what Receive returns after Disconnect.
var ErrDisconnected = errors.New("the connection to the broker was closed")

// As long as none of Assign, Revoke and Lose was called, whoever receives gets
// every partition that nobody has. After that, assignments are the test's.

// Assign promises partitions to r, which is asked by its next Receive. A
// partition that another receiver has is taken from it without a word, as from
// a worker that stopped answering; Lose tells it later.
func (b *Broker) Assign(r *Receiver, partitions ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manual = true
	for _, i := range partitions {
		p := b.parts[i]
		if p.owner == r {
			continue
		}
		if old := p.owner; old != nil {
			if !p.pending {
				old.stolen = append(old.stolen, p.scope())
			}
			old.drop(p, semel.Orphaned)
		}
		p.promise(r)
	}
	b.notify()
}

func (p *partition) promise(r *Receiver) { p.owner, p.pending, p.refused = r, true, false }

// Revoke takes partitions from r in good order: nothing more of them is handed
// over, the owner is told and waited for, then they are free. Partitions that
// r does not have are left alone. It must not be called from what the owner
// waits for.
func (b *Broker) Revoke(ctx context.Context, r *Receiver, partitions ...int) error {
	if err := r.call(ctx); err != nil {
		return err
	}
	defer r.called()
	ps, scopes := b.pause(r, partitions)
	var err error
	if len(scopes) > 0 && r.owner != nil {
		err = r.owner.Revoked(ctx, scopes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range ps {
		if p.owner == r {
			r.drop(p, semel.Fresh)
		}
	}
	b.notify()
	return err
}

// pause stops handing over, and returns what r has and was told of.
func (b *Broker) pause(r *Receiver, partitions []int) (ps []*partition, told []semel.Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manual = true
	for _, i := range partitions {
		p := b.parts[i]
		if p.owner != r {
			continue
		}
		ps = append(ps, p)
		if !p.pending {
			p.paused = true
			told = append(told, p.scope())
		}
	}
	return ps, told
}

// Lose takes partitions from r that are gone already, or tells it of those
// that Assign gave to another. It returns when the owner was told.
func (b *Broker) Lose(r *Receiver, partitions ...int) {
	<-r.calls
	defer r.called()
	b.mu.Lock()
	b.manual = true
	var scopes []semel.Scope
	for _, i := range partitions {
		scopes = append(scopes, r.lose(b.parts[i], semel.Orphaned)...)
	}
	b.notify()
	b.mu.Unlock()
	if len(scopes) > 0 && r.owner != nil {
		r.owner.Lost(scopes)
	}
}

// lose takes p from r and returns the scopes of that name that r believes to
// have.
func (r *Receiver) lose(p *partition, how semel.Takeover) (scopes []semel.Scope) {
	if p.owner == r {
		if !p.pending {
			scopes = append(scopes, p.scope())
		}
		r.drop(p, how)
	}
	r.stolen = slices.DeleteFunc(r.stolen, func(s semel.Scope) bool {
		if s.Name == p.name {
			scopes = append(scopes, s)
		}
		return s.Name == p.name
	})
	return scopes
}

// Kill ends a worker without a word: its Receive returns broker.ErrClosed, its
// settlements are stale, and what it held goes to others with this takeover.
func (b *Broker) Kill(r *Receiver, how semel.Takeover) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.leave(how)
}

// Disconnect breaks r's connection: its next Receive, or the one that waits,
// tells the owner that everything is lost and returns an error. What was not
// settled comes again, under new leases, to r as soon as it receives again.
func (b *Broker) Disconnect(r *Receiver) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parts {
		if p.owner == r {
			r.owed = append(r.owed, r.lose(p, semel.Orphaned)...)
			p.promise(r)
		}
	}
	r.owed = append(r.owed, r.stolen...)
	r.stolen = nil
	r.requeue(semel.Fresh)
	b.generation++
	r.generation = b.generation
	r.faults = append(r.faults, ErrDisconnected)
	b.notify()
}

// FailReceive makes the next n Receives of r, or the one that waits, return
// err.
func (b *Broker) FailReceive(r *Receiver, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.faults = append(r.faults, slices.Repeat([]error{err}, n)...)
	b.notify()
}

// FailSettle makes the next n Settles of r return err and change nothing.
func (b *Broker) FailSettle(r *Receiver, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.refusals = append(r.refusals, slices.Repeat([]error{err}, n)...)
}

// Owner returns who has a partition, and whether it was asked already; nil:
// nobody.
func (b *Broker) Owner(partition int) (r *Receiver, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[partition]
	return p.owner, p.owner != nil && !p.pending
}

// Scope returns the present scope of a partition.
func (b *Broker) Scope(partition int) semel.Scope {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parts[partition].scope()
}

// Committed returns the offset below which everything is acked.
func (b *Broker) Committed(partition int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parts[partition].committed
}

// Recreate deletes partition i and creates it again, empty, under another
// incarnation. Its owner loses it and is asked again.
func (b *Broker) Recreate(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[i]
	owner := p.owner
	if owner != nil {
		owner.owed = append(owner.owed, owner.lose(p, semel.Fresh)...)
	}
	*p = partition{name: p.name, incarnation: p.incarnation + 1}
	if owner != nil {
		p.promise(owner)
	}
	b.notify()
}

// Truncate drops what a partition has below offset, as retention does.
func (b *Broker) Truncate(partition int, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[partition]
	n := p.index(offset)
	p.log = p.log[n:]
	p.cursor = max(0, p.cursor-n)
	p.first, p.end, p.committed = max(p.first, offset), max(p.end, offset), max(p.committed, offset)
	p.forget()
}

// Cut drops what a partition has from offset on, as a failover to a replica
// that lags behind does. The next message gets this offset.
func (b *Broker) Cut(partition int, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[partition]
	p.log = p.log[:p.index(offset)]
	p.cursor = min(p.cursor, len(p.log))
	p.first, p.end, p.committed = min(p.first, offset), min(p.end, offset), min(p.committed, offset)
	p.forget()
}

// Skip leaves n offsets without a message, as markers and compaction do.
func (b *Broker) Skip(partition int, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[partition].end += n
}

// pending returns what r was promised, or may take since nobody has it.
func (r *Receiver) pending() (ps []*partition) {
	for _, p := range r.b.parts {
		if p.owner == r && p.pending || p.owner == nil && !r.b.manual && !p.refused {
			ps = append(ps, p)
		}
	}
	return ps
}

// accept asks the owner where to start with what r was promised.
func (r *Receiver) accept(ctx context.Context) error {
	if err := r.call(ctx); err != nil {
		return err
	}
	defer r.called()
	ps, as := r.promised()
	if len(ps) == 0 {
		return nil
	}
	starts, err := r.starts(ctx, ps, as)
	if err == nil && len(starts) != len(as) {
		err = fmt.Errorf("%d answers to %d assignments", len(starts), len(as))
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for i, p := range ps {
		if p.owner != r || !p.pending || p.scope() != as[i].Scope {
			r.slipped(as[i].Scope, err)
			continue
		}
		if err != nil {
			p.giveBack(err)
			continue
		}
		r.begin(p, starts[i])
	}
	if err != nil {
		return fmt.Errorf("assignment of %d partitions, %s first: %w", len(as), as[0].Scope, err)
	}
	return nil
}

func (r *Receiver) promised() (ps []*partition, as []broker.Assignment) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	ps = r.pending()
	for _, p := range ps {
		p.promise(r)
		as = append(as, p.assignment())
	}
	return ps, as
}

func (r *Receiver) starts(ctx context.Context, ps []*partition, as []broker.Assignment) ([]semel.Offset, error) {
	if r.owner != nil {
		return r.owner.Assigned(ctx, as)
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	var out []semel.Offset
	for _, p := range ps {
		out = append(out, semel.Offset{Lo: p.committed})
	}
	return out, nil
}

func (r *Receiver) begin(p *partition, start semel.Offset) {
	r.b.generation++
	p.lease, p.pending, p.left = r.b.generation, false, semel.Fresh
	switch p.stopped = start == broker.Stopped(); {
	case p.stopped:
	case r.b.ordered():
		p.seek(start)
	default:
		p.recall()
	}
}

// slipped notes a scope that went to another while its owner was being asked: the
// owner believes to have it until it is told.
func (r *Receiver) slipped(s semel.Scope, err error) {
	if err == nil {
		r.owed = append(r.owed, s)
	}
}

// giveBack leaves p to be asked for again, unless the set-up is wrong.
func (p *partition) giveBack(err error) {
	if c, _ := semel.ClassOf(err); c == semel.ClassFault {
		p.owner, p.pending, p.refused = nil, false, true
	}
}

// call waits for the right to call the owner.
func (r *Receiver) call(ctx context.Context) error {
	select {
	case <-r.calls:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Receiver) called() { r.calls <- struct{}{} }

// tellLost tells the owner what was lost meanwhile.
func (r *Receiver) tellLost(ctx context.Context) error {
	if err := r.call(ctx); err != nil {
		return err
	}
	defer r.called()
	r.b.mu.Lock()
	owed := r.owed
	r.owed = nil
	r.b.mu.Unlock()
	if len(owed) > 0 && r.owner != nil {
		r.owner.Lost(owed)
	}
	return nil
}
