// Package broker is what a source of messages looks like to the pipeline.
//
// An adapter implements [Receiver], adds [Owned] where the source has
// partitions, and states its [Capabilities]. Package brokertest proves each of
// them against the real thing, so that a wrong claim fails a test before it
// loses a message.
package broker

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel"
)

// ErrClosed is returned by Receive after Close.
var ErrClosed = errors.New("receiver closed")

// Budget bounds one Receive. Bytes counts bodies; a single message larger
// than Bytes is still handed over, alone.
type Budget struct {
	Messages int
	Bytes    int64
}

// Receiver is a source. Receive and Settle may run at the same time, each from
// one goroutine.
type Receiver interface {
	// Receive blocks until there is at least one delivery, ctx ends (it then
	// returns ctx's error) or the source fails. It never returns deliveries
	// together with an error. A failing source is retried by the caller with
	// growing pauses; an error marked semel.ClassFault ends the run.
	Receive(ctx context.Context, b Budget) ([]semel.Delivery, error)
	// Settle tells the source what became of deliveries. out has the length
	// of s and receives one answer each. It returns an error only when
	// nothing can be said of any of them; the deliveries then come again,
	// which is harmless. Settling twice, or with a stale lease, is Stale and
	// changes nothing.
	Settle(ctx context.Context, s []Settlement, out []Settled) error
	// Capabilities is constant for the life of the receiver.
	Capabilities() Capabilities
	// Close gives back what is not settled and frees everything. It may be
	// called more than once.
	Close(ctx context.Context) error
}

// Settlement is the outcome of one delivery, told to the source.
type Settlement struct {
	Lease semel.Lease
	Verb  Verb
	// Delay asks for the redelivery of a Retry not before it has passed.
	Delay time.Duration
	// Letter and Why go with Reject: the reference of the dead letter, and
	// one line that says why, without body or secret.
	Letter, Why string
}

// Verb is what is asked of the source.
type Verb uint8

const (
	// Ack: decided; the source may forget it.
	Ack Verb = iota
	// Retry: hand it over again, and count the attempt.
	Retry
	// Release: hand it over again as if it had not been handed over.
	Release
	// Reject: decided as dead when it was taken in. Sources that can show
	// that to people (error/ of a directory) do; for all others it is Ack,
	// since the letter is in the database.
	Reject
)

// Settled is a source's answer to one Settlement.
type Settled uint8

const (
	// Done: the source confirmed it.
	Done Settled = iota
	// Stale: the lease is of an older generation, or was settled before.
	Stale
	// Unknown: the source did not answer; the delivery may come again.
	Unknown
	// Unsupported: the source has no such verb; nothing changed.
	Unsupported
)

// Owned is implemented by sources with exclusive scopes. Bind is called once,
// before the first Receive.
type Owned interface{ Bind(Owner) }

// Owner is the pipeline's side of ownership. The source calls it from inside
// Receive, Settle or a goroutine of its own, one call at a time.
type Owner interface {
	// Assigned is called before any delivery of these scopes. The answer
	// says, for each, where to start reading: the first offset not decided.
	// Stopped as an answer means: hand over nothing of this scope.
	// After an error none of them is owned: the source gives them back, and
	// if the error is semel.ClassFault it does not ask again by itself.
	Assigned(ctx context.Context, a []Assignment) ([]semel.Offset, error)
	// Revoked is called when scopes are about to be given up in good order
	// (rebalance, end of a file). When it returns, everything of them that
	// was handed over is decided and its settlement has been passed to
	// Settle, or it is given up; nothing of them is in a transaction. It may
	// also be called from inside Close. A
	// settlement that is still on its way may then find the lease Stale.
	Revoked(ctx context.Context, s []semel.Scope) error
	// Lost is called when scopes are gone already. Nothing of them will be
	// settled any more.
	Lost(s []semel.Scope)
}

// Stopped is the answer to an assignment of a scope that must not be read
// until a person has looked at it.
func Stopped() semel.Offset { return semel.Offset{Hi: -1, Lo: -1} }

// Fencer is implemented by sources that can find out whether a scope is still
// theirs. It is told when the database refused what comes from it: somebody
// else has taken the scope over, or took its epoch and died. The source calls
// Lost, and Assigned again if the scope turns out to be ours.
type Fencer interface{ Fenced(s []semel.Scope) }

// Assignment is a scope that the source says is ours now.
type Assignment struct {
	Scope semel.Scope
	// First and End bound what the source still has: the lowest offset it can
	// hand over and the one after its last. Bounded is false where the
	// source does not know.
	First, End semel.Offset
	Bounded    bool
	// Takeover tells how the previous owner left.
	Takeover semel.Takeover
}

// Depth is what a source still holds. A negative number means unknown.
type Depth struct {
	// Waiting can be handed over now. Claimed is held by some worker,
	// ourselves included. Settling is not complete yet (a file being
	// written).
	Waiting, Claimed, Settling int64
}

// Empty reports whether nothing is left anywhere.
func (d Depth) Empty() bool { return d == Depth{} }

// Measurer is implemented by sources that can say how much they hold. It is
// what lets a run end by itself.
type Measurer interface {
	Depth(ctx context.Context) (Depth, error)
}

// Capabilities are facts about a source. The conformance suite proves them,
// the pipeline refuses unfit pairs by them, the linter and the documentation
// print them.
type Capabilities struct {
	// Name identifies the adapter: "directory", "kafka", "memory".
	Name string
	// Traits say what positions and scopes can be relied on for.
	Traits semel.Trait
	// Ephemeral: scopes come and go by themselves (files), so a new one is
	// read from its beginning and a name may return as another incarnation.
	Ephemeral bool
	// Count is how far Delivery.Count can be trusted.
	Count semel.Trust
	// Cumulative: settling a delivery settles all before it in its scope.
	Cumulative bool
	// Retry, Release and Reject say which verbs the source honours;
	// Delay, whether Retry honours a delay.
	Retry, Release, Reject, Delay bool
	// Confirmed: Settle returns after the source confirmed.
	Confirmed bool
	// FencesStale: the source itself refuses a settlement by a former owner.
	FencesStale bool
	// Horizon is how late the source may deliver again; 0 means it cannot
	// be known and the pipeline has to state it.
	Horizon time.Duration
	// MaxBytes is the largest body; 0: no limit known.
	MaxBytes int64
}

// Decoder fills in what the body or the headers say of a message: id, key,
// version, type, time. It may replace Body by a decoded form. It returns
// semel.Invalid for what can never be handled and semel.ErrFiltered for what
// the pipeline does not want (ID must be set then as well). It is called once
// per delivery, from one goroutine at a time, and keeps nothing of d.
type Decoder interface {
	Decode(d *semel.Delivery) error
}

// DecoderFunc is a function used as a Decoder.
type DecoderFunc func(d *semel.Delivery) error

// Decode calls f(d).
func (f DecoderFunc) Decode(d *semel.Delivery) error { return f(d) }
