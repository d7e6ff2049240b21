package propose

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/arbitrate"
)

// shape is what all values of a field look like.
type shape uint8

const (
	shapeWords shape = iota // text with spaces, or of any form
	shapeToken              // text without spaces
	shapeUUID
	shapeULID
	shapeHash
	shapeTime      // with a zone, or a number since 1970
	shapeLocalTime // without a zone
	shapeInteger
	shapeCounter // integers without gaps worth mentioning
	shapeNumber  // not all are integers
	shapeBool
	shapeMixed
)

func shapeOf(f *field) shape {
	switch f.kinds {
	case kindBool:
		return shapeBool
	case kindInteger:
		return f.integers()
	case kindNumber, kindNumber | kindInteger:
		return shapeNumber
	case kindText:
		return f.texts()
	case kindText | kindInteger:
		if f.all(isTime) {
			return shapeTime
		}
		return shapeToken
	}
	return shapeMixed
}

func (f *field) all(is func(string) bool) bool {
	return len(f.values) > 0 && !slices.ContainsFunc(f.values, func(s string) bool { return !is(s) })
}

func (f *field) texts() shape {
	for _, x := range []struct {
		is    func(string) bool
		shape shape
	}{
		{isUUID, shapeUUID}, {isULID, shapeULID}, {isTime, shapeTime}, {isLocalTime, shapeLocalTime},
		{isHash, shapeHash}, {isDigits, shapeInteger}, {isToken, shapeToken},
	} {
		if !f.all(x.is) {
			continue
		}
		if x.shape == shapeInteger {
			return f.integers()
		}
		return x.shape
	}
	return shapeWords
}

// integers tells times and counters from other numbers. The name of a field
// says more than its values: 1796070000 is a time, an order, or both.
func (f *field) integers() shape {
	words := wordsOf(f.name())
	switch {
	case f.all(isEpoch) && !namesThing(words):
		return shapeTime
	case f.dense():
		return shapeCounter
	}
	return shapeInteger
}

// dense reports integers that follow each other with hardly a gap.
func (f *field) dense() bool {
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range f.values {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return false
		}
		low, high = min(low, n), max(high, n)
	}
	return len(f.values) >= 3 && low >= 0 && high-low < 2*int64(len(f.values))
}

// name is the last part of the path.
func (f *field) name() string {
	if len(f.path) == 0 {
		return ""
	}
	return f.path[len(f.path)-1]
}

func isDigits(s string) bool {
	return s != "" && len(s) <= 40 && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func isToken(s string) bool {
	return s != "" && len(s) <= 255 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
}

func isUUID(s string) bool {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if !isHex(s[i]) {
				return false
			}
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// isULID reports 26 characters of Crockford's alphabet.
func isULID(s string) bool {
	if len(s) != 26 || s[0] > '7' {
		return false
	}
	return strings.IndexFunc(strings.ToUpper(s), func(r rune) bool {
		return !strings.ContainsRune("0123456789ABCDEFGHJKMNPQRSTVWXYZ", r)
	}) < 0
}

// isHash reports the hexadecimal form of a digest.
func isHash(s string) bool {
	switch len(s) {
	case 32, 40, 56, 64, 96, 128:
	default:
		return false
	}
	for i := range len(s) {
		if !isHex(s[i]) {
			return false
		}
	}
	return true
}

// isTime reports what arbitrate.as: time reads; numbers only where they are
// plausible as one.
func isTime(s string) bool {
	if isDigits(s) {
		return isEpoch(s)
	}
	_, err := arbitrate.ParseTime(s)
	return err == nil
}

// isEpoch reports a number that is a time between 2001 and 2065 in some unit.
func isEpoch(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	for unit := int64(1e9); err == nil && unit <= 1e18; unit *= 1000 {
		if n >= unit && n < 3*unit {
			return true
		}
	}
	return false
}

func isLocalTime(s string) bool {
	for _, layout := range [...]string{"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

// describe says the shape of values for people; "" if there is nothing to say.
func (f *field) describe() string {
	switch f.shape {
	case shapeUUID:
		return "looks like a UUID" + f.uuidVersion()
	case shapeULID:
		return "looks like a ULID"
	case shapeHash:
		return "looks like a hash"
	case shapeTime:
		return "is a time"
	case shapeLocalTime:
		return "is a time without a zone"
	case shapeCounter:
		return "counts up without gaps"
	case shapeNumber:
		return "has a fraction or an exponent"
	case shapeBool:
		return "is true or false"
	}
	return ""
}

// uuidVersion names the version that all values have.
func (f *field) uuidVersion() string {
	at := func(s string) byte { return strings.TrimPrefix(s, "{")[14] }
	v := at(f.values[0])
	if v < '1' || v > '8' || slices.ContainsFunc(f.values, func(s string) bool { return at(s) != v }) {
		return ""
	}
	return " of version " + string(v)
}
