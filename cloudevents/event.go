package cloudevents

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/semel-dev/semel"
)

// Event is a CloudEvent.
type Event struct {
	// ID, Source and Type are required. Source is a URI reference; ID is
	// unique within it.
	ID, Source, Type string
	// Subject is what the event is about, in the context of Source. Empty:
	// not stated, as for the others below.
	Subject string
	// Time is when it happened. Zero: not stated.
	Time time.Time
	// DataContentType and DataSchema describe Data.
	DataContentType, DataSchema string
	// Extensions are all other attributes, in the text form that binary mode
	// gives them. nil: none.
	Extensions map[string]string
	// Data is the payload: JSON as it stands in the envelope if
	// DataContentType says so or is empty, otherwise the bytes of the text,
	// or what was encoded in base64. nil: the event has none.
	Data []byte
}

// PartitionKey is the extension in which a producer says which events belong
// together.
const PartitionKey = "partitionkey"

// MessageID is what identifies the event everywhere: the specification makes
// source and id together unique, not the id alone. It is the source, a space,
// and the id, which is unambiguous because a URI reference has no space; if
// that is longer than [semel.MaxIDBytes], it is "sha256:" and the digest of it.
func (e Event) MessageID() string { return within(e.Source, e.ID) }

// Key is the partition key if the producer gave one. Otherwise it is the
// source, a space, and the subject, which means something within its source
// only, as long forms are a digest as well; without a subject it is empty.
func (e Event) Key() string {
	key := e.Extensions[PartitionKey]
	switch {
	case key != "" && len(key) > semel.MaxIDBytes:
		return digest(key)
	case key != "":
		return key
	case e.Subject == "":
		return ""
	}
	return within(e.Source, e.Subject)
}

func within(source, name string) string {
	if s := source + " " + name; len(s) <= semel.MaxIDBytes {
		return s
	}
	return digest(source + " " + name)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Attribute returns the text form of the attribute name; false: it is not set.
func (e Event) Attribute(name string) (string, bool) {
	s := ""
	switch name {
	case "specversion":
		s = "1.0"
	case "id":
		s = e.ID
	case "source":
		s = e.Source
	case "type":
		s = e.Type
	case "subject":
		s = e.Subject
	case "datacontenttype":
		s = e.DataContentType
	case "dataschema":
		s = e.DataSchema
	case "time":
		if !e.Time.IsZero() {
			s = e.Time.Format(time.RFC3339Nano)
		}
	default:
		s = e.Extensions[name]
	}
	return s, s != ""
}

// Decode reads an event and makes a message of it: MessageID, Key, Type,
// Source and Time, with the data as its body and the attributes in headers
// named ce_id, ce_source and so on, whatever they were before, so that
// handlers see one form; [Attributes] reads them. It is a broker.DecoderFunc
// and safe for concurrent use.
func Decode(d *semel.Delivery) error {
	e, err := Parse(d.Header, d.Body)
	if err != nil {
		return err
	}
	d.ID, d.Key, d.Type, d.Source, d.Time = e.MessageID(), e.Key(), e.Type, e.Source, e.Time
	d.Body, d.Header = e.Data, e.header(d.Header)
	return nil
}

// header replaces what the headers say of an event.
func (e Event) header(old semel.Header) semel.Header {
	h := make(semel.Header, 0, len(old)+9)
	for _, f := range old {
		if _, _, ours := attributeOf(f.Name); !ours && !strings.EqualFold(f.Name, contentType) {
			h = append(h, f)
		}
	}
	add := func(header, name string) {
		if v, ok := e.Attribute(name); ok {
			h = append(h, semel.Field{Name: header, Value: []byte(v)})
		}
	}
	for _, name := range core[:len(core)-1] { // the last is the content type
		add("ce_"+name, name)
	}
	for _, name := range sorted(e.Extensions) {
		add("ce_"+name, name)
	}
	add(contentType, "datacontenttype")
	return h
}
