package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Limits of one JSON text that no pipeline needs to exceed: numbers longer
// than this are attacks on whoever does arithmetic with them.
const (
	maxNumberBytes = 1000
	maxExponent    = 1000
)

// kind is the type of a JSON value.
type kind uint8

const (
	kindMissing kind = iota
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"missing", "null", "a boolean", "a number", "a string", "an array", "an object"}

func (k kind) String() string { return kindNames[k] }

// span says where a value stands in a body. broken means that the path to it
// led through a value of that kind, which has no fields.
type span struct {
	from, to int
	kind     kind
	broken   bool
}

// branch is a tree of wanted paths: the scanner walks it along with the body.
type branch struct {
	slot   int // index into scanner.found, -1: not itself wanted
	fields []field
}

type field struct {
	name string
	next *branch
}

func newBranch() *branch { return &branch{slot: -1} }

// add wants path and returns its slot; n is the number of slots so far.
func (b *branch) add(path []string, n *int) int {
	for _, name := range path {
		next := b.find(name)
		if next == nil {
			next = newBranch()
			b.fields = append(b.fields, field{name, next})
		}
		b = next
	}
	if b.slot < 0 {
		b.slot = *n
		*n++
	}
	return b.slot
}

func (b *branch) find(name string) *branch {
	for i := range b.fields {
		if b.fields[i].name == name {
			return b.fields[i].next
		}
	}
	return nil
}

// scanner checks a JSON text and notes where the wanted values are. It is
// reused from message to message.
type scanner struct {
	want     *branch
	maxDepth int

	b     []byte
	i     int
	depth int
	found []span
	keys  [][]byte // of the objects that are open, innermost last
}

// syntaxError says what is wrong and where, never what stands there.
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("not valid JSON at byte %d: %s", e.at, e.what)
}

func (s *scanner) fail(at int, what string) error { return &syntaxError{at, what} }

// scan checks b as a whole. Afterwards found holds a span for every slot; they
// are relative to b.
func (s *scanner) scan(b []byte, slots int) error {
	s.b, s.i, s.depth, s.keys = b, 0, 0, s.keys[:0]
	s.found = append(s.found[:0], make([]span, slots)...)
	if at := invalidUTF8(b); at >= 0 {
		return s.fail(at, "invalid UTF-8")
	}
	s.space()
	if s.i == len(b) {
		return s.fail(s.i, "the body is empty")
	}
	if err := s.value(s.want); err != nil {
		return err
	}
	if s.space(); s.i != len(b) {
		return s.fail(s.i, "something follows after the value")
	}
	return nil
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// value reads one value; w may be nil.
func (s *scanner) value(w *branch) error {
	from := s.i
	k, err := s.token(w)
	if err != nil || w == nil {
		return err
	}
	if w.slot >= 0 {
		s.found[w.slot] = span{from: from, to: s.i, kind: k}
	}
	if k != kindObject && k != kindNull {
		s.breakOff(w, k)
	}
	return nil
}

// breakOff marks everything wanted below a value that has no fields.
func (s *scanner) breakOff(w *branch, k kind) {
	for _, f := range w.fields {
		if f.next.slot >= 0 {
			s.found[f.next.slot] = span{kind: k, broken: true}
		}
		s.breakOff(f.next, k)
	}
}

func (s *scanner) token(w *branch) (kind, error) {
	if s.i == len(s.b) {
		return 0, s.fail(s.i, "the text ends early")
	}
	switch c := s.b[s.i]; c {
	case '{':
		return kindObject, s.nested(w, (*scanner).object)
	case '[':
		return kindArray, s.nested(w, (*scanner).array)
	case '"':
		_, err := s.text()
		return kindString, err
	case 't':
		return kindBool, s.word("true")
	case 'f':
		return kindBool, s.word("false")
	case 'n':
		return kindNull, s.word("null")
	default:
		if c == '-' || isDigit(c) {
			return kindNumber, s.number()
		}
		return 0, s.fail(s.i, "a value is expected")
	}
}

// nested guards the depth: the scanner recurses, so the limit protects the
// stack as well as everybody behind it.
func (s *scanner) nested(w *branch, read func(*scanner, *branch) error) error {
	if s.depth++; s.depth > s.maxDepth {
		return s.fail(s.i, fmt.Sprintf("nested deeper than %d", s.maxDepth))
	}
	s.i++
	err := read(s, w)
	s.depth--
	return err
}

func (s *scanner) object(w *branch) error {
	first := len(s.keys)
	var seen map[string]struct{} // instead of keys, once there are many
	for s.space(); !s.take('}'); s.space() {
		if len(s.keys) > first || seen != nil {
			if !s.take(',') {
				return s.fail(s.i, "a comma or the end of the object is expected")
			}
			s.space()
		}
		at := s.i
		key, err := s.key()
		if err != nil {
			return err
		}
		if seen, err = s.unique(first, key, seen, at); err != nil {
			return err
		}
		var next *branch
		if w != nil {
			next = w.find(string(key))
		}
		if err := s.value(next); err != nil {
			return err
		}
	}
	s.keys = s.keys[:first]
	return nil
}

// manyKeys is where comparing every key with all before it would be slower
// than a map, and an attack.
const manyKeys = 24

// unique refuses a second key of one name: some readers take the first, some
// the last.
func (s *scanner) unique(first int, key []byte, seen map[string]struct{}, at int) (map[string]struct{}, error) {
	if seen == nil {
		for _, k := range s.keys[first:] {
			if bytes.Equal(k, key) {
				return nil, s.fail(at, "the object has this key twice")
			}
		}
		if s.keys = append(s.keys, key); len(s.keys)-first < manyKeys {
			return nil, nil
		}
		seen = make(map[string]struct{}, 2*manyKeys)
		for _, k := range s.keys[first:] {
			seen[string(k)] = struct{}{}
		}
		return seen, nil
	}
	if _, ok := seen[string(key)]; ok {
		return nil, s.fail(at, "the object has this key twice")
	}
	seen[string(key)] = struct{}{}
	return seen, nil
}

func (s *scanner) key() ([]byte, error) {
	if s.i == len(s.b) || s.b[s.i] != '"' {
		return nil, s.fail(s.i, "a key in double quotes is expected")
	}
	from := s.i
	escaped, err := s.text()
	if err != nil {
		return nil, err
	}
	key := s.b[from+1 : s.i-1]
	if escaped {
		key = []byte(unquote(s.b[from:s.i]))
	}
	if s.space(); !s.take(':') {
		return nil, s.fail(s.i, "a colon is expected")
	}
	s.space()
	return key, nil
}

func (s *scanner) array(*branch) error {
	for first := true; ; first = false {
		if s.space(); s.take(']') {
			return nil
		}
		if !first {
			if !s.take(',') {
				return s.fail(s.i, "a comma or the end of the array is expected")
			}
			s.space()
		}
		if err := s.value(nil); err != nil {
			return err
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return s.fail(s.i, "a value is expected")
	}
	s.i += len(w)
	return nil
}

// text reads a string and reports whether it has escapes.
func (s *scanner) text() (escaped bool, err error) {
	from := s.i
	for s.i++; s.i < len(s.b); {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		case c < ' ':
			return false, s.fail(s.i, "a control character in a string has to be escaped")
		default:
			s.i++
		}
	}
	return false, s.fail(from, "the string that starts here has no end")
}

func (s *scanner) escape() error {
	at := s.i
	if s.i++; s.i == len(s.b) {
		return s.fail(at, "the text ends early")
	}
	c := s.b[s.i]
	s.i++
	if c != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), c) < 0 {
			return s.fail(at, "unknown escape")
		}
		return nil
	}
	switch r := s.hex(); {
	case r < 0:
		return s.fail(at, `\u needs four hexadecimal digits`)
	case r >= 0xDC00 && r <= 0xDFFF:
		return s.fail(at, "half a surrogate pair")
	case r >= 0xD800 && r <= 0xDBFF:
		// Alone it has no meaning, and readers that replace it would make
		// different ids equal.
		if !s.take('\\') || !s.take('u') {
			return s.fail(at, "half a surrogate pair")
		}
		if r := s.hex(); r < 0xDC00 || r > 0xDFFF {
			return s.fail(at, "half a surrogate pair")
		}
	}
	return nil
}

func (s *scanner) hex() rune {
	if len(s.b)-s.i < 4 {
		return -1
	}
	var r rune
	for _, c := range s.b[s.i : s.i+4] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	s.i += 4
	return r
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (s *scanner) number() error {
	from := s.i
	s.take('-')
	if !s.take('0') && !s.digits() {
		return s.fail(s.i, "a digit is expected")
	}
	if s.i < len(s.b) && isDigit(s.b[s.i]) {
		return s.fail(from, "a number with a leading zero")
	}
	if s.take('.') && !s.digits() {
		return s.fail(s.i, "a digit is expected")
	}
	if err := s.exponent(); err != nil {
		return err
	}
	if s.i-from > maxNumberBytes {
		return s.fail(from, fmt.Sprintf("a number of more than %d digits", maxNumberBytes))
	}
	return nil
}

func (s *scanner) exponent() error {
	if !s.take('e') && !s.take('E') {
		return nil
	}
	if !s.take('+') {
		s.take('-')
	}
	from := s.i
	if !s.digits() {
		return s.fail(s.i, "a digit is expected")
	}
	n := 0
	for _, c := range s.b[from:s.i] {
		if n = 10*n + int(c-'0'); n > maxExponent {
			return s.fail(from, fmt.Sprintf("an exponent above %d", maxExponent))
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	return s.i > from
}

// unquote returns the text of a JSON string that was checked before.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return "" // cannot be: the scanner took it
	}
	return s
}

// mark is what some programs put at the beginning of UTF-8 files; RFC 8259
// lets readers skip it.
var mark = []byte("\xef\xbb\xbf")

// trim returns a body without a byte order mark.
func trim(b []byte) []byte { return bytes.TrimPrefix(b, mark) }
