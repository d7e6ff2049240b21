package sqlstore

import (
	"bytes"
	"database/sql"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
)

func TestText(t *testing.T) {
	d := Dialect{Now: "NOW()", Lock: " FOR UPDATE"}
	const portable = "SELECT a FROM t WHERE b = ? AND c < {now} AND d = ?{lock}"
	if s := d.text(portable); s != "SELECT a FROM t WHERE b = ? AND c < NOW() AND d = ? FOR UPDATE" {
		t.Error(s)
	}
	d.Numbered, d.Rewrite = true, strings.ToLower
	if s := d.text(portable); s != "select a from t where b = $1 and c < now() and d = $2 for update" {
		t.Error(s)
	}
}

// TestPortable keeps the statements within what text understands: a question
// mark or a brace in a literal would be taken for a parameter or a word.
func TestPortable(t *testing.T) {
	for _, st := range slices.Concat(SQLite().Migrations...) {
		if strings.ContainsAny(st, "?{}") {
			t.Errorf("a migration has a parameter: %s", st)
		}
	}
}

func TestHeader(t *testing.T) {
	for _, h := range []semel.Header{
		nil, {}, {{}}, {{Name: "a", Value: []byte{}}}, {{Name: "a"}, {Name: "a", Value: []byte("\x00")}},
		{{Name: strings.Repeat("n", 300), Value: bytes.Repeat([]byte{0xff}, 70_000)}},
	} {
		packed := packHeader(h)
		got, err := unpackHeader(packed)
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%v came back as %v, %v", h, got, err)
		}
		for i := range min(len(packed), 400) {
			if got, err := unpackHeader(packed[:i:i]); err == nil && reflect.DeepEqual(got, h) {
				t.Errorf("%d of %d bytes were taken for the whole header", i, len(packed))
			}
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{}, "a", []byte("b"))
	f.Add([]byte{2, 1, 'a', 0}, "", []byte(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, "x", []byte{0})
	f.Fuzz(func(t *testing.T, damaged []byte, name string, value []byte) {
		h := semel.Header{{Name: name, Value: value}, {Name: name}, {Value: value}}
		got, err := unpackHeader(packHeader(h))
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%v came back as %v, %v", h, got, err)
		}
		if h, err := unpackHeader(damaged); err == nil { // must not panic
			if again, err := unpackHeader(packHeader(h)); err != nil || !reflect.DeepEqual(again, h) {
				t.Errorf("%v came back as %v, %v", h, again, err)
			}
		}
	})
}

func TestAfter(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"a": []byte("b"), "ab": []byte("ac"), "a\xff": []byte("b"), "a\xff\xff": []byte("b"), "\xff\xff": nil, "": nil, "\x00": {1},
	} {
		if got := after(prefix); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("after %q comes %q, want %q", prefix, got, want)
		}
	}
}

// TestScanRefuses has columns of types that a damaged or foreign table may
// bring.
func TestScanRefuses(t *testing.T) {
	for _, c := range []struct {
		into sql.Scanner
		from any
	}{
		{new(fingerprint), []byte("short")}, {new(fingerprint), nil}, {new(fingerprint), int64(1)},
		{new(hash), nil}, {new(hash), "1"}, {new(body), "text"}, {new(header), int64(1)}, {new(header), []byte{9, 9}},
		{new(millis), nil}, {new(millis), "now"},
	} {
		if err := c.into.Scan(c.from); err == nil {
			t.Errorf("%T took a %T", c.into, c.from)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{}, {DB: &sql.DB{}}, {DB: &sql.DB{}, Dialect: SQLite()}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
