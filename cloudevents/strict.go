package cloudevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// unambiguous refuses what package json takes of a valid text and other
// readers take otherwise.
func unambiguous(b []byte) error {
	if err := surrogates(b); err != nil {
		return err
	}
	return onceEach(b)
}

// surrogates looks for halves of pairs: package json makes the same character
// of all of them, so that two ids would become one. Outside of strings a valid
// text has no backslash.
func surrogates(b []byte) error {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return nil
		}
		b = b[i:]
		switch r := unit(b); {
		case r >= 0xD800 && r <= 0xDBFF:
			if low := unit(b[6:]); low < 0xDC00 || low > 0xDFFF {
				return errors.New("half a surrogate pair")
			}
			b = b[12:]
		case r >= 0xDC00 && r <= 0xDFFF:
			return errors.New("half a surrogate pair")
		default:
			b = b[2:]
		}
	}
}

// unit is the \uXXXX at the beginning of b, or 0.
func unit(b []byte) uint64 {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return r
}

// onceEach refuses an object at any depth with a key twice.
func onceEach(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var open []map[string]struct{} // nil: an array
	key := false                   // the next token is a key or the end
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return syntax(err)
		}
		if delim, ok := t.(json.Delim); ok {
			switch delim {
			case '{':
				open = append(open, map[string]struct{}{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			key = len(open) > 0 && open[len(open)-1] != nil
			continue
		}
		keys := map[string]struct{}(nil)
		if len(open) > 0 {
			keys = open[len(open)-1]
		}
		if name, ok := t.(string); ok && key {
			if _, again := keys[name]; again {
				return errors.New("an object has a key twice")
			}
			keys[name] = struct{}{}
			key = false
			continue
		}
		key = keys != nil
	}
}
