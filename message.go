package semel

import "time"

// MaxIDBytes bounds message ids and keys. Longer ones are refused, never
// truncated: two long ids that differ only at the end would become one.
const MaxIDBytes = 255

// Message is what a producer published. It keeps one ID for its whole life:
// redelivery, retry, dead letter, edit and replay never change it.
//
// A Message is immutable. Body and the header values belong to the source and
// are valid until the delivery is settled; copy what must live longer.
type Message struct {
	// ID identifies the business event, 1 to 255 bytes, compared as bytes.
	// It comes from the producer or from the body; broker-made ids, offsets,
	// timestamps and payload hashes are unfit, because a repeated publish
	// of the same event would get another one.
	ID string
	// Key names the entity the event is about; order and versions are per
	// key. Empty means the message has none.
	Key string
	// Type and Source are free labels in the sense of CloudEvents.
	Type, Source string
	// Time is when the event happened, by the producer's clock. Zero: unknown.
	Time time.Time
	// Version orders the events of one key; see package arbitrate.
	Version Version
	// Header is ordered, may repeat names, and keeps values as bytes.
	Header Header
	// Body is the payload. nil (a tombstone) differs from empty.
	Body []byte
}

// Version is the position of an event in the history of its key.
// The zero value means "no version", which differs from version 0.
type Version struct {
	// N grows with every change of the entity: a revision, a sequence
	// number, or a time in nanoseconds since 1970.
	N int64
	// Tie decides between different events with the same N; the larger one
	// wins, compared as bytes. Empty: none stated, equal versions are a tie
	// that a person must decide.
	Tie string
	// Set tells version 0 from no version.
	Set bool
}

// Header is an ordered list of fields.
type Header []Field

// Field is one header field.
type Field struct {
	Name  string
	Value []byte
}

// Get returns the first value of name and whether there is one.
func (h Header) Get(name string) ([]byte, bool) {
	for _, f := range h {
		if f.Name == name {
			return f.Value, true
		}
	}
	return nil, false
}
