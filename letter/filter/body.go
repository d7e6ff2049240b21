package filter

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// ofBody compares the field of a body at path. op is not negated.
func (i *item) ofBody(body []byte, path []string, op string) bool {
	raw := lookup(body, path)
	switch op {
	case "~":
		s, ok := plain(raw)
		return ok && compareText(s, op, i.text)
	case "=":
		return i.equals(raw)
	}
	if want, ok := Decimal(i.text); ok && !i.quoted {
		have, ok := Decimal(string(raw))
		return ok && compared(have.Cmp(want), op)
	}
	s, ok := unquoted(raw)
	return ok && compared(strings.Compare(s, i.text), op)
}

// equals compares with what the value may mean: in quotes a string; without, a
// number, a string that reads the same, or one of null, true and false.
func (i *item) equals(raw []byte) bool {
	s, isText := unquoted(raw)
	switch {
	case isText:
		return s == i.text
	case i.quoted:
		return false
	case i.text == "null" || i.text == "true" || i.text == "false":
		return string(raw) == i.text
	}
	want, ok := Decimal(i.text)
	have, is := Decimal(string(raw))
	return ok && is && have.Cmp(want) == 0
}

// lookup returns the JSON text at path, null if it is not there or the body is
// not JSON.
func lookup(body []byte, path []string) []byte {
	raw := json.RawMessage(bytes.TrimPrefix(body, []byte("\ufeff")))
	for _, name := range path {
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil {
			return []byte("null")
		}
		raw = o[name]
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

func unquoted(raw []byte) (s string, ok bool) {
	return s, raw[0] == '"' && json.Unmarshal(raw, &s) == nil
}

// plain is the text of a string or a number.
func plain(raw []byte) (string, bool) {
	if s, ok := unquoted(raw); ok {
		return s, true
	}
	_, ok := Decimal(string(raw))
	return string(raw), ok
}

// Numbers beyond these are attacks on whoever does arithmetic with them; the
// reader of messages has the same limits.
const (
	maxDigits   = 1000
	maxExponent = 1000
)

// Decimal reads a JSON number exactly; ok is false for what is none, and for
// one that is too long to be meant.
func Decimal(s string) (n *big.Rat, ok bool) {
	if len(s) == 0 || len(s) > maxDigits || strings.Trim(s, "0123456789+-.eE") != "" || s[0] == '+' || s[0] == '.' {
		return nil, false
	}
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		if e, err := strconv.Atoi(s[at+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(s)
}
