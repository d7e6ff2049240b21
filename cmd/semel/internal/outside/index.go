package outside

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/searchstore"
)

// Index is a document in a search server for each message. It needs no guard:
// the document's id and version are one.
type Index struct {
	Config searchstore.Config
	// ID gives one value, the document's id; required.
	ID Values
	// Version gives one value; nil: the version of the message, if the index
	// has versions.
	Version Values
	// Document gives one value, a JSON object; nil: the body.
	Document Values
	// Deleted gives one value, whether the document is gone; nil: it is not.
	Deleted Values
}

// Limit is how long one batch may take: a few bulks, and the waits of an
// overloaded server.
func (s *Index) Limit() time.Duration {
	if s.Config.Timeout == 0 {
		return 2 * time.Minute
	}
	return 4 * s.Config.Timeout
}

// String says where documents go, without secrets.
func (s *Index) String() string { return "index " + s.Config.Index }

// Notes are what weakens an acknowledgement of the server; nil if it cannot be
// asked, which is told elsewhere.
func (s *Index) Notes(ctx context.Context) []string {
	x, err := searchstore.Open(ctx, s.Config)
	if err != nil {
		return nil
	}
	defer x.Close()
	return x.Notes()
}

// Write writes the documents of messages to an index; see searchstore.Write for
// its errors.
func (s *Index) Write(ctx context.Context, x *searchstore.Index, ms []semel.Message) error {
	docs := make([]searchstore.Document, 0, len(ms))
	of := make([]int, 0, len(ms))
	var all []error
	for i := range ms {
		d, err := s.document(&ms[i])
		if err != nil {
			all = append(all, semel.At(i, err))
			continue
		}
		docs, of = append(docs, d), append(of, i)
	}
	if err := x.Write(ctx, docs); !semel.EachAt(err, func(j int, err error) { all = append(all, semel.At(of[j], fmt.Errorf("%s: %w", s, err))) }) && err != nil {
		return err
	}
	return errors.Join(all...)
}

func (s *Index) document(m *semel.Message) (d searchstore.Document, err error) {
	id, err := value(s.ID, m)
	if err != nil {
		return d, err
	}
	switch v := id.(type) {
	case string:
		d.ID = v
	case int64:
		d.ID = strconv.FormatInt(v, 10)
	default:
		return d, semel.Invalidf("handle.index.id gives %s: it must be a string or a whole number", kind(id))
	}
	d.Version, d.Source = m.Version, m.Body
	if s.Version != nil {
		v, err := value(s.Version, m)
		if err != nil {
			return d, err
		}
		n, ok := v.(int64)
		if !ok {
			return d, semel.Invalidf("handle.index.version gives %s: it must be a whole number", kind(v))
		}
		d.Version = semel.Version{N: n, Set: true}
	}
	if s.Deleted != nil {
		v, err := value(s.Deleted, m)
		if err != nil {
			return d, err
		}
		deleted, ok := v.(bool)
		if !ok && v != nil {
			return d, semel.Invalidf("handle.index.deleted gives %s: it must be true or false", kind(v))
		}
		d.Deleted = deleted
	}
	if s.Document != nil && !d.Deleted {
		v, err := value(s.Document, m)
		if err != nil {
			return d, err
		}
		text, ok := v.(string)
		if !ok {
			return d, semel.Invalidf("handle.index.document gives %s: it must be an object", kind(v))
		}
		d.Source = []byte(text)
	}
	return d, nil
}

func value(from Values, m *semel.Message) (any, error) {
	v, err := from.Values(m, nil)
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// kind is a value without its content.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case string, []byte:
		return "text"
	case bool:
		return "true or false"
	}
	return "a number"
}
