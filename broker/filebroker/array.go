package filebroker

// maxNesting bounds how deep the elements of an array may be nested: the
// splitter keeps a byte for every bracket that is open.
const maxNesting = 10_000

// arrayState is what the splitter of arrays waits for.
type arrayState uint8

const (
	arrayOpen   arrayState = iota // the bracket that begins it
	arrayFirst                    // an element, or the end
	arrayValue                    // an element
	arrayScalar                   // the end of a number or a word
	arrayNested                   // the end of an object or an array
	arrayString                   // the end of a string, perhaps inside of those
	arrayEscape                   // the byte behind a backslash
	arrayAfter                    // a comma, or the end
	arrayClosed                   // nothing more
)

// byArray is the splitter of Array: a file is one JSON array and each of its
// elements is a message. Only what says where elements end is looked at; the
// rest of JSON is the decoder's.
type byArray struct {
	state  arrayState
	at     int64  // bytes seen
	marked int64  // of them, of a byte order mark
	open   []byte // brackets of the element that are not closed
}

func (s *byArray) step(b []byte) (n int, t token, err error) {
	if s.within() {
		n, t, err = s.element(b)
	} else {
		n, t, err = s.between(b)
	}
	s.at += int64(n)
	return n, t, err
}

// within: the bytes ahead belong to an element.
func (s *byArray) within() bool { return s.state >= arrayScalar && s.state <= arrayEscape }

// between goes to the first byte of the next element, and into it if it is the
// first byte of b.
func (s *byArray) between(b []byte) (int, token, error) {
	for i, c := range b {
		at := s.at + int64(i)
		switch {
		case isMark(c, at, s.marked):
			s.marked++
		case s.marked%int64(len(mark)) != 0: // half a mark
			return i, outside, s.unexpected(at)
		case isSpace(c):
		case s.state == arrayOpen && c == '[':
			s.state = arrayFirst
		case s.state == arrayAfter && c == ',':
			s.state = arrayValue
		case (s.state == arrayAfter || s.state == arrayFirst) && c == ']':
			s.state = arrayClosed
		case s.state != arrayFirst && s.state != arrayValue || !begins(c):
			return i, outside, s.unexpected(at)
		case i > 0:
			return i, outside, nil
		default:
			return s.enter(b)
		}
	}
	return len(b), outside, nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func begins(c byte) bool { return c == '{' || c == '[' || c == '"' || isScalar(c) }

// isScalar: the bytes of numbers, true, false and null. What else is made of
// them is an element too, which is not valid.
func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

func (s *byArray) unexpected(at int64) error {
	switch s.state {
	case arrayOpen:
		return brokenf("not a JSON array: it does not begin with [; values one a line are files: lines, one value a file is files: whole")
	case arrayClosed:
		return brokenf("byte %d: something follows after the array", at)
	case arrayAfter:
		return brokenf("byte %d: the array is broken: a comma or ] is expected", at)
	}
	return brokenf("byte %d: the array is broken: a value is expected", at)
}

// enter looks at an element from its first byte on.
func (s *byArray) enter(b []byte) (int, token, error) {
	switch c := b[0]; c {
	case '{', '[':
		s.state, s.open = arrayNested, append(s.open[:0], c)
	case '"':
		s.state, s.open = arrayString, s.open[:0]
	default:
		s.state = arrayScalar
	}
	s.at++
	n, t, err := s.element(b[1:])
	s.at--
	return n + 1, t, err
}

func (s *byArray) element(b []byte) (int, token, error) {
	for i, c := range b {
		switch s.state {
		case arrayScalar:
			if !isScalar(c) {
				return i, last, s.leave(c, s.at+int64(i))
			}
		case arrayEscape:
			s.state = arrayString
		case arrayString:
			s.text(c)
		default:
			if err := s.nested(c, s.at+int64(i)); err != nil {
				return i, inside, err
			}
		}
		if s.state == arrayAfter {
			return i + 1, last, nil
		}
	}
	return len(b), inside, nil
}

// leave ends a number or a word at the byte behind it.
func (s *byArray) leave(c byte, at int64) error {
	if s.state = arrayAfter; !isSpace(c) && c != ',' && c != ']' {
		return s.unexpected(at)
	}
	return nil
}

func (s *byArray) text(c byte) {
	switch {
	case c == '\\':
		s.state = arrayEscape
	case c == '"' && len(s.open) > 0:
		s.state = arrayNested
	case c == '"':
		s.state = arrayAfter
	}
}

func (s *byArray) nested(c byte, at int64) error {
	switch c {
	case '"':
		s.state = arrayString
	case '{', '[':
		if len(s.open) == maxNesting {
			return brokenf("byte %d: an element is nested deeper than %d", at, maxNesting)
		}
		s.open = append(s.open, c)
	case '}', ']':
		n := len(s.open) - 1
		if c-s.open[n] != 2 { // in ASCII, both pairs are two apart
			return brokenf("byte %d: the array is broken: %c closes what was opened with %c", at, c, s.open[n])
		}
		if s.open = s.open[:n]; n == 0 {
			s.state = arrayAfter
		}
	}
	return nil
}

func (s *byArray) end(bool) error {
	switch s.state {
	case arrayClosed:
		return nil
	case arrayOpen:
		return brokenf("not a JSON array: the file is empty")
	}
	return brokenf("the array has no end: the file stops at byte %d", s.at)
}

func (s *byArray) message(raw []byte) ([]byte, error) { return raw, nil }

func (s *byArray) around() (before, behind []byte) { return []byte("["), []byte("]\n") }
func (s *byArray) unit() string                    { return "element" }
