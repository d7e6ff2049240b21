package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
)

const contentType = "content-type"

func invalid(format string, args ...any) error {
	return semel.Invalid(fmt.Errorf("not a CloudEvent: "+format, args...))
}

// Parse reads an event. The content type decides: application/cloudevents+json
// is structured mode; without a content type and without attributes in headers
// the body is taken for that too, as with sources that have no headers.
// Otherwise it is binary mode: attributes are headers that begin with ce- (HTTP
// and NATS, percent-encoded), ce_ (Kafka), cloudEvents: or cloudEvents_ (AMQP),
// in any case of letters. MQTT's attributes have no prefix and are not
// recognised. Batches and formats other than JSON are refused.
//
// Data shares memory with body where it can. Errors are semel.Invalid.
func Parse(h semel.Header, body []byte) (Event, error) {
	media, stated := mediaType(h)
	attrs, found, err := fromHeader(h)
	switch {
	case media == "application/cloudevents+json" || !stated && !found:
		return structured(body)
	case strings.HasPrefix(media, "application/cloudevents-batch"):
		return Event{}, invalid("it is a batch of events: send one a message, or write batches to files and read them with files: array")
	case strings.HasPrefix(media, "application/cloudevents"):
		return Event{}, invalid("its format is not JSON: of structured mode, application/cloudevents+json alone is read")
	case err != nil:
		return Event{}, err
	case !found:
		return Event{}, invalid("there are no attributes in headers, and the content type is not application/cloudevents+json")
	}
	if v, ok := header(h, contentType); ok {
		if !utf8.ValidString(v) {
			return Event{}, invalid("the content type is not UTF-8")
		}
		attrs["datacontenttype"] = v
	}
	e, err := build(attrs)
	e.Data = body
	return e, err
}

// header finds a field whatever the case of its name.
func header(h semel.Header, name string) (string, bool) {
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			return string(f.Value), true
		}
	}
	return "", false
}

func mediaType(h semel.Header) (media string, stated bool) {
	v, ok := header(h, contentType)
	return bareType(v), ok
}

// bareType is a media type without parameters.
func bareType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

func isJSON(contentType string) bool {
	media := bareType(contentType)
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// prefixes are those of headers with attributes; true: values are
// percent-encoded.
var prefixes = [...]struct {
	text    string
	encoded bool
}{{"ce-", true}, {"ce_", false}, {"cloudEvents:", false}, {"cloudEvents_", false}}

func attributeOf(header string) (name string, encoded, ok bool) {
	for _, p := range prefixes {
		if n := len(p.text); len(header) > n && strings.EqualFold(header[:n], p.text) {
			return strings.ToLower(header[n:]), p.encoded, true
		}
	}
	return "", false, false
}

// Attributes returns the attributes that are in headers, by their names, as far
// as they can be read. After Decode, it has all of the event.
func Attributes(h semel.Header) map[string]string {
	attrs, found, _ := fromHeader(h)
	if v, ok := header(h, contentType); ok && found {
		attrs["datacontenttype"] = v
	}
	return attrs
}

func fromHeader(h semel.Header) (attrs map[string]string, found bool, err error) {
	attrs = map[string]string{}
	for _, f := range h {
		name, encoded, ok := attributeOf(f.Name)
		if !ok {
			continue
		}
		found = true
		value := string(f.Value)
		if encoded {
			if value, err = unescaped(value); err != nil {
				return attrs, true, err
			}
		}
		switch _, again := attrs[name]; {
		case again:
			return attrs, true, invalid("an attribute is in the headers twice")
		case !utf8.ValidString(value):
			return attrs, true, invalid("the value of a header is not UTF-8")
		case name == "datacontenttype":
			return attrs, true, invalid("datacontenttype is a header of its own: the content type")
		}
		attrs[name] = value
	}
	return attrs, found, nil
}

// unescaped takes off double quotes, which early versions of the specification
// allowed, and then the percent-encoding, once.
func unescaped(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		var ok bool
		if s, ok = unquoted(s[1:]); !ok {
			return "", invalid("the value of a header begins with double quotes and does not end with them")
		}
	}
	s, err := url.PathUnescape(s)
	if err != nil {
		return "", invalid("the value of a header is not percent-encoded as it should be")
	}
	return s, nil
}

// unquoted reads a string of HTTP behind its first quote.
func unquoted(s string) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), i == len(s)-1
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// structured reads a JSON envelope.
func structured(body []byte) (Event, error) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	members, err := membersOf(body)
	if err != nil {
		return Event{}, invalid("%w", err)
	}
	data, data64 := members["data"], members["data_base64"]
	delete(members, "data")
	delete(members, "data_base64")
	attrs := map[string]string{}
	for name, raw := range members {
		text, set, err := textOf(raw, slices.Contains(core[:], name))
		if err != nil {
			return Event{}, invalid("the attribute %s: %w", named(name), err)
		}
		if set {
			attrs[name] = text
		}
	}
	e, err := build(attrs)
	if err == nil {
		e.Data, err = dataOf(data, data64, e.DataContentType)
	}
	return e, err
}

// membersOf splits an object. Numbers and strings are checked by package json,
// which takes more than it should of the rest.
func membersOf(body []byte) (map[string]json.RawMessage, error) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errors.New("the body is empty")
	case !utf8.Valid(body):
		return nil, errors.New("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the body is not a JSON object")
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, syntax(err)
		}
		name, _ := key.(string)
		if _, again := members[name]; again {
			return nil, fmt.Errorf("%s is there twice", named(name))
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, syntax(err)
		}
		members[name] = raw
	}
	if _, err := d.Token(); err != nil {
		return nil, syntax(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows after the object")
	}
	return members, unambiguous(body)
}

// syntax drops what package json quotes.
func syntax(err error) error {
	var s *json.SyntaxError
	if errors.As(err, &s) {
		return fmt.Errorf("not valid JSON at byte %d", s.Offset)
	}
	return errors.New("not valid JSON: it ends early")
}

// named quotes the name of an attribute if it is one: names that are none may
// be anything.
func named(name string) string {
	if isName(name) || name == "data_base64" {
		return name
	}
	return "with a name that is none"
}

// isName: lower-case letters and digits of ASCII. The specification asks for
// at most 20; a longer one is no danger.
func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= semel.MaxIDBytes
}

// textOf is the text form of an attribute; null means that it is not set. The
// attributes of the specification are strings: of the number 1 and the text "1"
// as ids another reader makes two.
func textOf(raw json.RawMessage, core bool) (text string, set bool, err error) {
	switch c := raw[0]; {
	case c == 'n':
		return "", false, nil
	case c == '"':
		err = json.Unmarshal(raw, &text)
		return text, true, err
	case core:
		return "", false, errors.New("its value has to be a string")
	case c == 't' || c == 'f':
		return string(raw), true, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if text = strconv.FormatInt(n, 10); err != nil || text != string(raw) {
		return "", false, errors.New("its value has to be a string, a boolean or an integer of 32 bits")
	}
	return text, true, nil
}

// core are the attributes of the specification. Every event has the first four.
var core = [...]string{"specversion", "id", "source", "type", "subject", "time", "dataschema", "datacontenttype"}

// build makes an event of its attributes.
func build(attrs map[string]string) (e Event, err error) {
	if v, ok := attrs["specversion"]; !ok {
		return e, invalid("the attribute specversion is missing")
	} else if v != "1.0" {
		return e, invalid("its specversion is not 1.0, the one that is read")
	}
	for _, name := range core[1:4] {
		if attrs[name] == "" {
			return e, invalid("the attribute %s is missing or empty", name)
		}
	}
	e = Event{ID: attrs["id"], Source: attrs["source"], Type: attrs["type"]}
	switch {
	case strings.ContainsFunc(e.Source, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return e, invalid("the attribute source is not a URI reference: it has a space or a control character")
	case len(e.Type) > semel.MaxIDBytes:
		return e, invalid("the attribute type has %d bytes: at most %d are allowed", len(e.Type), semel.MaxIDBytes)
	}
	for name, value := range attrs {
		switch {
		case !isName(name):
			return e, invalid("an attribute has a name that is none: lower-case letters and digits alone")
		case strings.ContainsFunc(value, isDisallowed):
			return e, invalid("the attribute %s has a character that is not allowed: a control character, or one that is none", name)
		}
		if err := e.set(name, value); err != nil {
			return e, err
		}
	}
	return e, nil
}

// isDisallowed reports what the specification keeps out of strings: control
// characters, and code points that are no characters.
func isDisallowed(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe
}

func (e *Event) set(name, value string) (err error) {
	switch name {
	case "specversion", "id", "source", "type":
		return nil
	case "data":
		return invalid("data is no attribute")
	case "subject":
		e.Subject = value
	case "datacontenttype":
		e.DataContentType = value
	case "dataschema":
		e.DataSchema = value
	case "time":
		if e.Time, err = timeOf(strings.ToUpper(value)); err != nil {
			return invalid("the attribute time is not a time of RFC 3339")
		}
		return nil
	default:
		if e.Extensions == nil {
			e.Extensions = map[string]string{}
		}
		e.Extensions[name] = value
	}
	if _, extension := e.Extensions[name]; value == "" && !extension {
		return invalid("the attribute %s is empty: leave it out instead", name)
	}
	return nil
}

// timeOf is stricter than package time, which takes an hour of one digit and a
// comma for the point, and can write what it reads: years have four digits.
func timeOf(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	t = t.UTC()
	if err == nil && (s[13] != ':' || strings.Contains(s, ",") || t.Year() < 0 || t.Year() > 9999) {
		err = errors.New("not as RFC 3339 writes it")
	}
	return t, err
}

// dataOf finds the payload; null means that there is none, unless it is JSON.
func dataOf(data, data64 json.RawMessage, contentType string) ([]byte, error) {
	if string(data64) == "null" {
		data64 = nil
	}
	switch {
	case data != nil && data64 != nil:
		return nil, invalid("both data and data_base64 are there: which is it?")
	case data64 != nil:
		return decoded(data64)
	case data == nil || isJSON(contentType):
		return data, nil
	case string(data) == "null":
		return nil, nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return nil, invalid("datacontenttype is not JSON, and data is not a string")
	}
	return []byte(text), nil
}

func decoded(raw json.RawMessage) ([]byte, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, invalid("data_base64 is not a string")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, invalid("data_base64 is not base64")
	}
	return b, nil
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
