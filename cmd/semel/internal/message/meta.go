package message

import (
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cloudevents"
)

// metaNames are the fields of $meta. There is no line number: a worker that
// goes on in the middle of a file would have to count from its beginning; the
// position, the byte where the line begins, names a line as well.
var metaNames = []string{"file", "position", "headers", "received", "event"}

// Headers that keep $meta with a message for its handler, which may run long
// after the delivery: a letter has no place in the source any more.
const (
	headerFile     = "semel-file"
	headerPosition = "semel-position"
	headerReceived = "semel-received"
)

// Meta is what is known of a message beside its body.
type Meta struct {
	header semel.Header
	// file, position and received come from the delivery where there is one.
	delivery *semel.Delivery
	raw      []byte
}

func metaOfDelivery(d *semel.Delivery) Meta {
	return Meta{header: d.Header, delivery: d, raw: d.Body}
}

func metaOfMessage(m *semel.Message) Meta { return Meta{header: m.Header, raw: m.Body} }

// get follows a path below $meta as jq would.
func (m Meta) get(path []string) (any, error) {
	v := m.field(path[0])
	for _, name := range path[1:] {
		o, ok := v.(map[string]any)
		switch {
		case v == nil:
			return nil, nil
		case !ok:
			return nil, fmt.Errorf("looks for a field in %s", describe(v))
		}
		v = o[name]
	}
	return v, nil
}

func (m Meta) object() map[string]any {
	o := make(map[string]any, len(metaNames))
	for _, name := range metaNames {
		o[name] = m.field(name)
	}
	return o
}

func (m Meta) field(name string) any {
	switch name {
	case "file":
		return m.text(headerFile)
	case "position":
		return m.count(headerPosition)
	case "received":
		return m.text(headerReceived)
	case "headers":
		return m.headers()
	case "event":
		return m.event()
	}
	return nil
}

// event has the attributes of a CloudEvent; nil: it is none.
func (m Meta) event() any {
	attrs := cloudevents.Attributes(m.header)
	if len(attrs) == 0 {
		return nil
	}
	o := make(map[string]any, len(attrs))
	for name, v := range attrs {
		o[name] = v
	}
	return o
}

// headers are the message's own, each name with its first value.
func (m Meta) headers() map[string]any {
	o := make(map[string]any, len(m.header))
	for _, f := range m.header {
		if _, ok := o[f.Name]; !ok {
			o[f.Name] = string(f.Value)
		}
	}
	return o
}

func (m Meta) text(header string) any {
	if v, ok := m.value(header); ok {
		return v
	}
	return nil
}

func (m Meta) count(header string) any {
	v, ok := m.value(header)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return nil
	}
	return n
}

// value prefers what was kept with the message: a delivery made of a letter
// has a place of its own that means nothing.
func (m Meta) value(header string) (string, bool) {
	if v, ok := m.header.Get(header); ok {
		return string(v), true
	}
	if m.delivery == nil {
		return "", false
	}
	return fromDelivery(m.delivery, header)
}

func fromDelivery(d *semel.Delivery, header string) (string, bool) {
	switch header {
	case headerFile:
		return d.Position.Scope.Name, true
	case headerPosition:
		return strconv.FormatInt(d.Position.Lo, 10), true
	case headerReceived:
		return time.Now().UTC().Format(time.RFC3339Nano), true
	}
	return "", false
}

// keep writes what the handler will need into the message's headers.
func keep(d *semel.Delivery) {
	for _, name := range []string{headerFile, headerPosition, headerReceived} {
		if _, ok := d.Header.Get(name); ok {
			continue
		}
		if v, ok := fromDelivery(d, name); ok {
			d.Header = append(d.Header[:len(d.Header):len(d.Header)], semel.Field{Name: name, Value: []byte(v)})
		}
	}
}
