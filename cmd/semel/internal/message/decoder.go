package message

import (
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/cloudevents"
)

// Defaults of Rules.
const (
	DefaultMaxBytes = 16 << 20
	DefaultMaxDepth = 100
)

// Rules say how to read the messages of a pipeline.
type Rules struct {
	// CloudEvents: messages are events; expressions see their data.
	CloudEvents bool
	// ID is required unless messages are CloudEvents; the others may be nil.
	ID, Key, Type, Time, Filter *Expr
	// Version and Tie feed the arbitration. VersionTime reads versions as
	// times, otherwise as integers.
	Version, Tie *Expr
	VersionTime  bool
	// Schema, if not nil, is what every body has to satisfy.
	Schema *Schema
	// MaxBytes and MaxDepth bound a body. 0 means the default.
	MaxBytes int64
	MaxDepth int
	// KeepMeta keeps $meta with the message, for a handler that asks for it. It
	// is kept in any case where an expression above asks: a letter is read again
	// long after its delivery.
	KeepMeta bool
}

// Decoder is a broker.Decoder made of expressions. It is not safe for
// concurrent use.
type Decoder struct {
	rules Rules
	view  *view
}

// NewDecoder returns a decoder.
func NewDecoder(r Rules) *Decoder {
	if r.MaxBytes == 0 {
		r.MaxBytes = DefaultMaxBytes
	}
	if r.MaxDepth == 0 {
		r.MaxDepth = DefaultMaxDepth
	}
	exprs := []*Expr{r.ID, r.Key, r.Type, r.Time, r.Filter, r.Version, r.Tie}
	r.KeepMeta = r.KeepMeta || slices.ContainsFunc(exprs, (*Expr).needsDelivery)
	p := newPlan(r.MaxDepth, exprs...)
	p.body = p.body || r.Schema != nil
	return &Decoder{r, p.view()}
}

// Decode fills in id, key, type, time and version. The id comes first, so that
// a message which is refused for another reason is still known by its id; the
// filter comes before everything that only wanted messages have to satisfy.
func (d *Decoder) Decode(m *semel.Delivery) error {
	if d.rules.KeepMeta { // first: what cannot be read now may be read later
		keep(m)
	}
	if n := int64(len(m.Body)); n > d.rules.MaxBytes {
		return semel.Invalidf("the body has %d bytes: at most %d are allowed (message.max_bytes)", n, d.rules.MaxBytes)
	}
	if d.rules.CloudEvents {
		if err := cloudevents.Decode(m); err != nil {
			return err
		}
	}
	if err := d.view.open(m.Body, metaOfDelivery(m)); err != nil {
		return semel.Invalid(err)
	}
	for _, step := range [...]func(*semel.Delivery) error{d.id, d.filter, d.schema, d.key, d.labels, d.version} {
		if err := step(m); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) id(m *semel.Delivery) error { return read(d.view, d.rules.ID, &m.ID, name) }

func (d *Decoder) filter(*semel.Delivery) error {
	if d.rules.Filter == nil {
		return nil
	}
	v, err := d.view.eval(d.rules.Filter)
	if err != nil {
		return explain(d.rules.Filter, err)
	}
	if !wanted(v) {
		return semel.ErrFiltered
	}
	return nil
}

func (d *Decoder) schema(*semel.Delivery) error {
	if d.rules.Schema == nil {
		return nil
	}
	return d.rules.Schema.check(d.view.json())
}

func (d *Decoder) key(m *semel.Delivery) error { return read(d.view, d.rules.Key, &m.Key, name) }

func (d *Decoder) labels(m *semel.Delivery) error {
	return errors.Join(
		read(d.view, d.rules.Type, &m.Type, label),
		read(d.view, d.rules.Time, &m.Time, when))
}

// version leaves it unset where the expression gives null: the arbitration
// has a policy for that.
func (d *Decoder) version(m *semel.Delivery) error {
	e := d.rules.Version
	if e == nil {
		return nil
	}
	v, err := d.view.eval(e)
	if err != nil {
		return explain(e, err)
	}
	if v == nil {
		return nil
	}
	parse, want := arbitrate.ParseInteger, "an integer of at most 64 bits"
	if d.rules.VersionTime {
		parse, want = arbitrate.ParseTime, "a time with a zone (RFC 3339) nor a number since 1970"
	}
	if m.Version, err = version(v, parse, want); err != nil {
		return explain(e, d.advise(v, err))
	}
	return read(d.view, d.rules.Tie, &m.Version.Tie, tie)
}

// advise adds the remedy where versions are times and are read as integers.
func (d *Decoder) advise(v any, err error) error {
	if _, notTime := version(v, arbitrate.ParseTime, ""); d.rules.VersionTime || notTime != nil {
		return err
	}
	return fmt.Errorf("%w; it is a time, which arbitrate.as: time reads", err)
}

// read evaluates e, if there is one, and stores what parse makes of it.
func read[T any](v *view, e *Expr, to *T, parse func(any) (T, error)) error {
	if e == nil {
		return nil
	}
	x, err := v.eval(e)
	if err == nil {
		*to, err = parse(x)
	}
	if err != nil {
		return explain(e, err)
	}
	return nil
}

// Describe says in a few words how messages are read, for --check.
func (r Rules) Describe() string {
	s := "CloudEvents"
	switch {
	case r.CloudEvents && r.ID != nil:
		s += ", id " + r.ID.Text
	case r.ID != nil:
		s = "id " + r.ID.Text
	}
	if r.Key != nil {
		s += ", key " + r.Key.Text
	}
	if r.Version != nil {
		s += ", version " + r.Version.Text
	}
	if r.Schema != nil {
		s += fmt.Sprintf(", schema %s", r.Schema.path)
	}
	return s
}
