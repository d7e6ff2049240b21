package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
)

// template is a message of 200 bytes; its id is filled in.
const template = `{"id":"00000000000000000000000000000000","account":"NL17BANK0123456789","amount":"-12250.00","currency":"EUR",` +
	`"reference":"Invoice 2026-1147, second instalment, with our thanks","valued":"2026-11-30"}`

const idAt = len(`{"id":"`)

// idOf writes the id of message i: 32 hexadecimal digits in random order, as
// the usual UUIDs are, so that the index of a dedup table is hit everywhere.
func idOf(dst []byte, i int) {
	var b [16]byte
	for half := range 2 {
		x := mix(uint64(2*i + half))
		for j := range 8 {
			b[8*half+j] = byte(x >> (8 * j))
		}
	}
	hex.Encode(dst, b[:])
}

// mix is a bijection, so that different messages have different ids.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill makes message i for a membroker.Generator, as a broker hands it over:
// bytes.
func fill(i int, m *semel.Message) {
	m.ID = ""
	m.Body = append(m.Body[:0], template...)
	idOf(m.Body[idAt:idAt+32], i)
}

// fillOrdered is fill with ids that begin with the time, as UUIDs of version 7
// do: they arrive nearly in their own order.
func fillOrdered(i int, m *semel.Message) {
	fill(i, m)
	const perMilli = 200 // about the rate of the fastest row
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(1_795_000_000_000+i/perMilli)<<16)
	hex.Encode(m.Body[idAt:idAt+12], b[:6])
}

// decode is the decoder of both sides. It looks for the id and does not check
// the rest, because an expensive decoder would hide what dedup costs.
func decode(d *semel.Delivery) error {
	_, rest, found := bytes.Cut(d.Body, []byte(`"id":"`))
	id, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !closed {
		return semel.Invalid(errors.New("the body has no id"))
	}
	d.ID = string(id)
	return nil
}

// stream hands over the messages from, from+1, … to-1 of one partition. Its
// owner's answer is heard and not heeded: below it the messages are delivered
// again.
type stream struct {
	*membroker.Generator
	from int
}

func newStream(from, to int, fill func(int, *semel.Message)) stream {
	s := stream{membroker.NewGenerator(to, fill), from}
	s.Bind(nobody{})
	return s
}

// Bind puts the stream's own beginning in place of the owner's.
func (s stream) Bind(o broker.Owner) { s.Generator.Bind(rewound{o, s.from}) }

type rewound struct {
	broker.Owner
	from int
}

// Assigned asks the owner and begins where the stream does.
func (r rewound) Assigned(ctx context.Context, a []broker.Assignment) ([]semel.Offset, error) {
	if _, err := r.Owner.Assigned(ctx, a); err != nil {
		return nil, err
	}
	return []semel.Offset{{Lo: int64(r.from)}}, nil
}

// nobody owns what loops without a pipeline read.
type nobody struct{}

func (nobody) Assigned(context.Context, []broker.Assignment) ([]semel.Offset, error) { return nil, nil }
func (nobody) Revoked(context.Context, []semel.Scope) error                          { return nil }
func (nobody) Lost([]semel.Scope)                                                    {}

// unowned is a source without scopes and positions, as a work queue is.
type unowned struct{ broker.Receiver }

// Capabilities takes the traits away.
func (u unowned) Capabilities() broker.Capabilities {
	c := u.Receiver.Capabilities()
	c.Traits = 0
	return c
}
