package semel

import (
	"cmp"
	"strconv"
)

// Delivery is one hand-over of a message by a source.
type Delivery struct {
	Message

	// Position says where in the source the message stands. Sources without
	// positions name whatever they have (queue, file, broker id), so that
	// Origin tells people where a message came from, and one message from
	// another as far as the source can.
	Position Position
	// Next is the offset at which the scope continues after this delivery.
	// It is meaningful only where the source has StablePosition.
	Next Offset
	// Count is how often the source has handed the message over.
	Count Count
	// Lease is what a settlement must quote.
	Lease Lease
	// Takeover tells that an earlier holder of this delivery vanished. It is
	// set by sources without exclusive scopes; the others say it once per
	// scope when they assign it.
	Takeover Takeover
	// Returns names the dead letter that a person gave back to the source
	// for another try (a file moved from error/ into inbox/). Empty: none.
	Returns string
	// Malformed, when not nil, says that the source could read the message
	// but not make sense of it (a truncated line, a size over the limit). It
	// becomes a dead letter without being decoded.
	Malformed error
}

// Origin names the place of the delivery in its source, for people and for
// letters of messages that have no id: scope, incarnation and offset.
func (d *Delivery) Origin() string { return d.Position.String() }

// Position is a place in a source.
type Position struct {
	Scope Scope
	Offset
}

// String returns "name@incarnation:hi.lo" without the parts that are empty.
func (p Position) String() string {
	s := p.Scope.String()
	if p.Hi != 0 {
		return s + ":" + strconv.FormatInt(p.Hi, 10) + "." + strconv.FormatInt(p.Lo, 10)
	}
	return s + ":" + strconv.FormatInt(p.Lo, 10)
}

// Scope is an ordered part of a source: a topic partition, a stream, a file.
// Incarnation changes when the name is reused for other content (a topic
// recreated, a file replaced); positions of another incarnation mean nothing.
type Scope struct{ Name, Incarnation string }

// String returns "name@incarnation", or the name alone.
func (s Scope) String() string {
	if s.Incarnation == "" {
		return s.Name
	}
	return s.Name + "@" + s.Incarnation
}

// Compare orders scopes by name, then incarnation, as bytes. Rows of scopes
// are always locked in this order.
func (s Scope) Compare(t Scope) int {
	return cmp.Or(cmp.Compare(s.Name, t.Name), cmp.Compare(s.Incarnation, t.Incarnation))
}

// Offset is an ordered pair: most sources use Lo alone; Hi serves those with
// two-part positions such as (ledger, entry).
type Offset struct{ Hi, Lo int64 }

// Compare returns -1, 0 or +1.
func (o Offset) Compare(p Offset) int {
	return cmp.Or(cmp.Compare(o.Hi, p.Hi), cmp.Compare(o.Lo, p.Lo))
}

// Count is a source's delivery counter. N counts from 1; 0 means unknown.
type Count struct {
	N     int
	Trust Trust
}

// Trust says how far a delivery count can be believed.
type Trust uint8

const (
	// TrustNone: the source does not count.
	TrustNone Trust = iota
	// TrustVolatile: counted in memory, lost on failover.
	TrustVolatile
	// TrustApproximate: may be off by a few.
	TrustApproximate
	// TrustExact: durable and exact.
	TrustExact
)

// Lease binds a delivery to the connection or claim it came from. A settlement
// that quotes an older generation is dropped by the adapter: tags restart at 1
// after a reconnect, and a late ack would otherwise settle a different message.
type Lease struct{ Generation, Tag uint64 }

// Takeover says how work came to its present holder.
type Takeover uint8

const (
	// Fresh: nobody held it before, or the holder gave it back in good order.
	Fresh Takeover = iota
	// Orphaned: an earlier holder stopped answering; it may still be alive.
	Orphaned
	// Crashed: an earlier holder is proven dead (its lock is free, its
	// session gone). Only this charges the message that was running.
	Crashed
)
