package message

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
)

// raw is an array or object as it stands in the body.
type raw string

// A value of an expression is nil, bool, string, []byte ($body), json.Number,
// int, float64 or *big.Int (results of arithmetic), raw, or, from jq, []any or
// map[string]any.

// describe names the type of a value for an error; the value stays out of it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null or missing"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []byte:
		return "bytes"
	case int, *big.Int:
		return "an integer"
	case float64:
		return "a number that is not an integer literal"
	case json.Number:
		if isInteger(string(v)) {
			return "an integer"
		}
		return "a number that is not an integer literal"
	case raw:
		if strings.HasPrefix(string(v), "[") {
			return "an array"
		}
		return "an object"
	case []any:
		return "an array"
	}
	return "an object"
}

// isInteger reports whether a JSON number is written without fraction and
// exponent. 1.0 and 1e3 are not integers here: a reader that takes them for
// floats would merge 9007199254740993 with its neighbour.
func isInteger(s string) bool { return !strings.ContainsAny(s, ".eE") }

// integer returns the canonical decimal form of an integer.
func integer(v any) (string, bool) {
	switch v := v.(type) {
	case int:
		return strconv.Itoa(v), true
	case *big.Int:
		return v.String(), true
	case json.Number:
		if !isInteger(string(v)) {
			return "", false
		}
		if v == "-0" {
			return "0", true
		}
		return string(v), true
	}
	return "", false
}

// name is an id or a key: a string or an integer of 1 to 255 bytes.
func name(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		if s, ok = integer(v); !ok {
			return "", fmt.Errorf("is %s: a string or an integer is needed", describe(v))
		}
	}
	if n := len(s); n == 0 || n > semel.MaxIDBytes {
		return "", fmt.Errorf("has %d bytes: 1 to %d are needed", n, semel.MaxIDBytes)
	}
	return s, nil
}

// label is a type: a string of any length that is sensible.
func label(v any) (string, error) {
	s, ok := v.(string)
	if !ok || len(s) > semel.MaxIDBytes {
		return "", fmt.Errorf("is %s: a string of at most %d bytes is needed", describe(v), semel.MaxIDBytes)
	}
	return s, nil
}

// number is the text of a version: a string or an integer.
func number(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	s, ok := integer(v)
	if !ok {
		return "", fmt.Errorf("is %s: an integer or a string is needed", describe(v))
	}
	return s, nil
}

// version reads a version or a time with one of the parsers of package
// arbitrate, whose errors quote the value.
func version(v any, parse func(string) (semel.Version, error), want string) (semel.Version, error) {
	s, err := number(v)
	if err != nil {
		return semel.Version{}, err
	}
	n, err := parse(s)
	if err != nil {
		return semel.Version{}, fmt.Errorf("is %s that is not %s", describe(v), want)
	}
	return n, nil
}

// tie is what decides between equal versions.
func tie(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	if s, ok := v.(string); ok {
		if len(s) > semel.MaxIDBytes {
			return "", fmt.Errorf("has %d bytes: at most %d are allowed", len(s), semel.MaxIDBytes)
		}
		return s, nil
	}
	n, err := version(v, arbitrate.ParseInteger, "an integer of at most 64 bits")
	if err != nil {
		return "", err
	}
	return arbitrate.TieInteger(n.N), nil
}

// when is the time of a message.
func when(v any) (time.Time, error) {
	if v == nil {
		return time.Time{}, nil
	}
	n, err := version(v, arbitrate.ParseTime, "a time with a zone (RFC 3339) nor a number since 1970")
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, n.N).UTC(), nil
}

// wanted is what a filter means in jq: everything but false and null is true.
func wanted(v any) bool { return v != nil && v != false }

// exactDigits is how many decimal digits a float64 keeps in all cases.
const exactDigits = 15

// Param makes a value of an expression one that a database driver takes:
// integers are int64, larger ones text; other numbers are float64 where that
// keeps every digit and text where it would not; arrays and objects are JSON
// text; $body is bytes.
func Param(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case *big.Int:
		return v.String()
	case json.Number:
		return numberParam(string(v))
	case raw:
		return string(v)
	case []any, map[string]any:
		b, err := gojq.Marshal(v)
		if err != nil {
			return nil // cannot be: it came out of jq
		}
		return string(b)
	}
	return v
}

func numberParam(s string) any {
	if isInteger(s) {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
		return s
	}
	if digits(s) > exactDigits {
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return f
}

// digits counts the decimal digits of a number's mantissa.
func digits(s string) int {
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == 'e' || c == 'E':
			return n
		case isDigit(c) && (c != '0' || n > 0):
			n++
		}
	}
	return n
}
