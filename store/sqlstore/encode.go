package sqlstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// The types in this file scan columns into fields of row types.

// fingerprint scans 16 bytes.
type fingerprint store.Fingerprint

func (f *fingerprint) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(f) {
		return fmt.Errorf("sqlstore: a fingerprint has %d bytes, not %d", len(b), len(f))
	}
	copy(f[:], b)
	return nil
}

// hash scans a signed column into its unsigned bits.
type hash uint64

func (h *hash) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("sqlstore: a hash is a %T, not an integer", src)
	}
	*h = hash(n)
	return nil
}

// body scans bytes and keeps nil apart from empty.
type body []byte

func (b *body) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*b = nil
	case []byte:
		*b = append(make([]byte, 0, len(v)), v...)
	default:
		return fmt.Errorf("sqlstore: a body is a %T, not bytes", src)
	}
	return nil
}

// header scans what packHeader wrote.
type header semel.Header

func (h *header) Scan(src any) error {
	var b body
	if err := b.Scan(src); err != nil {
		return err
	}
	un, err := unpackHeader(b)
	*h = header(un)
	return err
}

// millis scans milliseconds since 1970; 0 is the zero time.
type millis time.Time

func (m *millis) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("sqlstore: a time is a %T, not an integer", src)
	}
	*m = millis{}
	if n != 0 {
		*m = millis(time.UnixMilli(n).UTC())
	}
	return nil
}

// packHeader writes a header as a count and, for each field, two strings with
// their lengths. A value's length is stored plus one; 0 means nil.
func packHeader(h semel.Header) []byte {
	if h == nil {
		return nil
	}
	b := binary.AppendUvarint([]byte{}, uint64(len(h)))
	for _, f := range h {
		b = binary.AppendUvarint(b, uint64(len(f.Name)))
		b = append(b, f.Name...)
		if f.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(f.Value))+1)
		b = append(b, f.Value...)
	}
	return b
}

var errHeader = errors.New("sqlstore: a stored header is damaged")

func unpackHeader(b []byte) (semel.Header, error) {
	if b == nil {
		return nil, nil
	}
	count, b, ok := number(b)
	if !ok || count > uint64(len(b)) {
		return nil, errHeader
	}
	h := make(semel.Header, count)
	for i := range h {
		var name, value []byte
		if name, b, ok = text(b, 0); !ok {
			return nil, errHeader
		}
		if value, b, ok = text(b, 1); !ok {
			return nil, errHeader
		}
		h[i] = semel.Field{Name: string(name), Value: value}
	}
	return h, nil
}

func number(b []byte) (uint64, []byte, bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 {
		return 0, b, false
	}
	return n, b[used:], true
}

// text cuts a string whose length is stored plus plus.
func text(b []byte, plus uint64) (s, rest []byte, ok bool) {
	n, b, ok := number(b)
	if !ok || n < plus {
		return nil, b, ok
	}
	n -= plus
	if n > uint64(len(b)) {
		return nil, b, false
	}
	return b[:n:n], b[n:], true
}
