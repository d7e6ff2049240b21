package filebroker

import (
	"bytes"
	"unicode/utf8"

	"github.com/semel-dev/semel"
)

// maxHeader bounds the line with the names: each of them is repeated in every
// message.
const maxHeader = 64 << 10

// csvState is where in a record of CSV the splitter is.
type csvState uint8

const (
	csvField  csvState = iota // at the beginning of a field
	csvPlain                  // in a field without quotes
	csvQuoted                 // between quotes
	csvQuote                  // behind a quote that ends them, or is half of ""
)

// byCSV is the splitter of CSV (RFC 4180): the first record has the names, and
// every other becomes a JSON object of strings.
type byCSV struct {
	delim byte

	state csvState
	at    int64 // bytes seen
	mark  int64 // of them, of a byte order mark
	line  int64 // of the byte ahead, from 1
	begin int64 // line in which the record begins
	quote int64 // line of the last opening quote

	header []byte   // as it stands in the file
	keys   [][]byte // `{"a":`, `,"b":`, …
	size   int      // of all keys
	free   []byte   // memory for bodies
}

func newCSV(delim byte) *byCSV { return &byCSV{delim: delim, line: 1, begin: 1} }

func (s *byCSV) step(b []byte) (int, token, error) {
	for i, c := range b {
		if s.at++; isMark(c, s.at-1, s.mark) {
			s.mark++
			continue
		}
		s.look(c)
		if c != '\n' {
			continue
		}
		s.line++
		if s.state != csvQuoted {
			s.state = csvField
			return i + 1, last, nil
		}
	}
	return len(b), inside, nil
}

func (s *byCSV) look(c byte) {
	switch {
	case s.state == csvQuoted:
		if c == '"' {
			s.state = csvQuote
		}
	case c == '"' && s.state != csvPlain:
		if s.state == csvField {
			s.quote = s.line
		}
		s.state = csvQuoted
	case c == s.delim:
		s.state = csvField
	default:
		s.state = csvPlain
	}
}

func (s *byCSV) end(pending bool) error {
	switch {
	case pending && s.state == csvQuoted:
		return brokenf("line %d: a quoted field begins there and has no end", s.quote)
	case !pending && s.keys == nil:
		return brokenf("there is no line with the names of the columns: CSV begins with one")
	}
	return nil
}

func (s *byCSV) message(raw []byte) ([]byte, error) {
	line := s.begin
	s.begin = s.line
	text := bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	switch {
	case s.keys == nil:
		return nil, s.names(raw, text, line)
	case raw == nil:
		return nil, nil
	case len(text) == 0:
		return nil, errNone
	}
	body, err := s.object(text)
	if err != nil {
		return nil, semel.Invalidf("line %d: %w", line, err)
	}
	return body, nil
}

// object makes the body. Bodies are cut from larger pieces of memory, which
// are never reused.
func (s *byCSV) object(text []byte) ([]byte, error) {
	if need := s.size + len(text) + 2*len(s.keys) + 2; cap(s.free) < need {
		s.free = make([]byte, 0, max(need, min(maxChunk, 64*need)))
	}
	b := s.free[:0]
	n, err := s.fields(text, func(n int, field []byte) {
		if n < len(s.keys) {
			b = appendText(append(b, s.keys[n]...), field)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case n != len(s.keys):
		return nil, semel.Invalidf("%d fields, and the header has %d", n, len(s.keys))
	}
	b = append(b, '}')
	s.free = b[len(b):cap(b)]
	return b[:len(b):len(b)], nil
}

// fields calls fn for every field and returns how many there are.
func (s *byCSV) fields(text []byte, fn func(n int, field []byte)) (n int, err error) {
	for ; ; n++ {
		field, rest := s.field(text)
		if field, err = unquoteField(field); err != nil {
			return n, semel.Invalidf("field %d: %w", n+1, err)
		}
		fn(n, field)
		if len(rest) == 0 {
			return n + 1, nil
		}
		text = rest[1:]
	}
}

// field returns what stands before the next delimiter outside of quotes; rest
// begins with that, or is empty.
func (s *byCSV) field(text []byte) (field, rest []byte) {
	at := byCSV{delim: s.delim}
	for i, c := range text {
		if at.look(c); at.state == csvField {
			return text[:i], text[i:]
		}
	}
	return text, nil
}

func unquoteField(b []byte) ([]byte, error) {
	switch {
	case !utf8.Valid(b):
		return nil, semel.Invalidf("not UTF-8: convert the file, such as with iconv")
	case len(b) == 0 || b[0] != '"':
		return b, plainField(b)
	}
	end := len(b) - 1
	text := bytes.ReplaceAll(b[1:max(end, 1)], []byte(`""`), nil)
	if end == 0 || b[end] != '"' || bytes.IndexByte(text, '"') >= 0 {
		return nil, semel.Invalidf("something follows the quote that ends it: a quote within a quoted field is written twice")
	}
	return bytes.ReplaceAll(b[1:end], []byte(`""`), []byte(`"`)), nil
}

func plainField(b []byte) error {
	switch {
	case bytes.IndexByte(b, '"') >= 0:
		return semel.Invalidf("a quote in a field that does not begin with one: put the field between quotes, and write the quote twice")
	case bytes.IndexByte(b, '\r') >= 0:
		return semel.Invalidf("a carriage return without a newline: lines end with LF or CRLF, and others belong between quotes")
	}
	return nil
}

// names reads the header.
func (s *byCSV) names(raw, text []byte, line int64) error {
	text = bytes.TrimPrefix(text, []byte(mark))
	switch {
	case raw == nil || len(text) > maxHeader:
		return brokenf("line %d: the header is too long: at most %d bytes, and no more than a message", line, maxHeader)
	case len(text) == 0:
		return errNone
	}
	seen := map[string]int{}
	var bad error
	_, err := s.fields(text, func(n int, name []byte) {
		before, again := seen[string(name)]
		switch {
		case bad != nil:
		case len(name) == 0:
			bad = brokenf("line %d: column %d of the header has no name", line, n+1)
		case again:
			bad = brokenf("line %d: columns %d and %d of the header have the same name", line, before+1, n+1)
		}
		seen[string(name)] = n
		s.addKey(name)
	})
	if err != nil {
		bad = brokenf("line %d: the header: %w", line, err)
	}
	if bad != nil {
		s.keys = nil
		return bad
	}
	s.header = bytes.Clone(raw)
	if !bytes.HasSuffix(raw, []byte("\n")) {
		s.header = append(s.header, '\n')
	}
	return errNone
}

func (s *byCSV) addKey(name []byte) {
	key := []byte{','}
	if len(s.keys) == 0 {
		key[0] = '{'
	}
	key = append(appendText(key, name), ':')
	s.keys = append(s.keys, key)
	s.size += len(key)
}

func (s *byCSV) around() (before, behind []byte) { return s.header, nil }
func (s *byCSV) unit() string                    { return "record" }

// appendText appends a JSON string with the shortest escapes.
func appendText(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, text[from:]...), '"')
}
