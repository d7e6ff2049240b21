package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

func compile(t testing.TB, name, text string) *Expr {
	t.Helper()
	if text == "" {
		return nil
	}
	e, err := Compile(name, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func decode(t *testing.T, r Rules, body string) (semel.Delivery, error) {
	t.Helper()
	d := semel.Delivery{Message: semel.Message{Body: []byte(body)}}
	d.Position.Scope.Name = "a file.json"
	d.Position.Lo = 7
	err := NewDecoder(r).Decode(&d)
	return d, err
}

func TestIDsAreStringsOrIntegers(t *testing.T) {
	long := strings.Repeat("x", semel.MaxIDBytes)
	for _, tc := range []struct{ expr, body, want, fails string }{
		{".id", `{"id":"a"}`, "a", ""},
		{".id", `{"id":17}`, "17", ""},
		{".id", `{"id":-17}`, "-17", ""},
		{".id", `{"id":-0}`, "0", ""},
		{".id", `{"id":9007199254740993}`, "9007199254740993", ""},
		{".id", `{"id":123456789012345678901234567890}`, "123456789012345678901234567890", ""},
		{".id", `{"id":"\u0041\ud83d\ude00"}`, "A😀", ""},
		{".id", `{"id":"a\u0000b"}`, "a\x00b", ""},
		{".id", `{"id":"` + long + `"}`, long, ""},
		{".id", `{"id":"` + long + `x"}`, "", "256 bytes"},
		{".id", `{"id":""}`, "", "0 bytes"},
		{".id", `{"id":1.0}`, "", "not an integer literal"},
		{".id", `{"id":1e3}`, "", "not an integer literal"},
		{".id", `{"id":9007199254740993.0}`, "", "not an integer literal"},
		{".id", `{"id":null}`, "", "null or missing"},
		{".id", `{}`, "", "null or missing"},
		{".id", `{"id":true}`, "", "a boolean"},
		{".id", `{"id":[1]}`, "", "an array"},
		{".id", `{"id":{"secret":1}}`, "", "an object"},
		{".a.id", `{"a":null}`, "", "null or missing"},
		{".a.id", `{"a":"secret"}`, "", "looks for a field in a string"},
		{".a.b.id", `{"a":[1]}`, "", "looks for a field in an array"},
		{`.["a b"]."c"`, `{"a b":{"c":"x"}}`, "x", ""},
		{`.a["b"]`, `{"a":{"b":"x"}}`, "x", ""},
		{`.a."k\u0065y"`, `{"a":{"k\u0065y":"x"}}`, "x", ""},
		// through jq
		{".id | .", `{"id":9007199254740993}`, "9007199254740993", ""},
		{".id | .", `{"id":123456789012345678901234567890}`, "123456789012345678901234567890", ""},
		{".id | .", `{"id":9007199254740993.0}`, "", "not an integer literal"},
		{".id | .", `{"id":1e3}`, "", "not an integer literal"},
		{".n + 1", `{"n":9007199254740993}`, "9007199254740994", ""},
		{`"\(.a)/\(.b)"`, `{"a":"x","b":9007199254740993}`, "x/9007199254740993", ""},
		{".a[]", `{"a":["x","y"]}`, "", "more than one value"},
		{".a[]", `{"a":[]}`, "", "gives no value"},
		{".a | error", `{"a":"secret"}`, "", "its own call of error"},
		{".a | .b | .c", `{"a":"secret"}`, "", "expected an object but got: string"},
		{"$meta.file", `{}`, "a file.json", ""},
		{"$meta.position", `{}`, "7", ""},
		{`$meta.file | split(".")[0]`, `not json`, "a file", ""},
		{`"\($meta.file)-\($meta.position)"`, `not json`, "a file.json-7", ""},
		{"$meta.file", "not json either", "a file.json", ""},
		{"$meta.headers.line", `{}`, "", "null or missing"},
		{"$body", `abc`, "", "is bytes"},
		{`$body | @base64`, `abc`, "YWJj", ""},
	} {
		d, err := decode(t, Rules{ID: compile(t, "message.id", tc.expr)}, tc.body)
		check(t, fmt.Sprintf("%s over %.60s", tc.expr, tc.body), err, tc.fails)
		if d.ID != tc.want {
			t.Errorf("%s over %.60s: id %q, want %q", tc.expr, tc.body, d.ID, tc.want)
		}
	}
}

// check wants err to be Invalid, to contain part, and to quote nothing.
func check(t *testing.T, what string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err == nil:
		return
	case part == "" || err == nil:
		t.Errorf("%s: error %v, want one with %q", what, err, part)
		return
	}
	if c, ok := semel.ClassOf(err); !ok || c != semel.ClassInvalid {
		t.Errorf("%s: %v is of class %v", what, err, c)
	}
	if !strings.Contains(err.Error(), part) {
		t.Errorf("%s: error %q does not say %q", what, err, part)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: error %q quotes the body", what, err)
	}
}

func TestHostileBodies(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	var wide strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&wide, `"k%d":%d,`, i, i)
	}
	for _, tc := range []struct{ what, body, fails string }{
		{"empty", "", "the body is empty"},
		{"spaces", " \n", "the body is empty"},
		{"truncated object", `{"id":"a"`, "a comma or the end of the object"},
		{"truncated string", `{"id":"a`, "has no end"},
		{"truncated escape", `{"id":"a\`, "ends early"},
		{"truncated value", `{"id":`, "ends early"},
		{"invalid UTF-8", "{\"id\":\"a\xff\"}", "byte 8: invalid UTF-8"},
		{"overlong UTF-8", "{\"id\":\"\xc0\x80\"}", "invalid UTF-8"},
		{"surrogate in UTF-8", "{\"id\":\"\xed\xa0\x80\"}", "invalid UTF-8"},
		{"half a pair", `{"id":"\ud800"}`, "half a surrogate pair"},
		{"other half", `{"id":"\udc00"}`, "half a surrogate pair"},
		{"two first halves", `{"id":"\ud800\ud800"}`, "half a surrogate pair"},
		{"NUL outside", "\x00{}", "a value is expected"},
		{"NUL inside", "{\"id\":\"a\x00\"}", "control character"},
		{"key twice", `{"id":"a","id":"b"}`, "twice"},
		{"key twice, written differently", `{"id":"a","\u0069d":"b"}`, "twice"},
		{"key twice, deep inside", `{"id":"a","x":[{"y":1,"y":1}]}`, "twice"},
		{"key twice, far apart", `{"id":"a",` + wide.String() + `"k5":0}`, "twice"},
		{"10,000 arrays", `{"id":"a","x":` + deep(10_000) + `}`, "nested deeper than 100"},
		{"a million arrays", strings.Repeat("[", 1_000_000), "nested deeper than 100"},
		{"trailing", `{"id":"a"} {}`, "something follows"},
		{"trailing comma", `{"id":"a",}`, "a key in double quotes"},
		{"trailing comma in array", `[1,]`, "a value is expected"},
		{"no comma", `{"id":"a" "b":1}`, "a comma"},
		{"no colon", `{"id" 1}`, "a colon"},
		{"single quotes", `{'id':1}`, "a key in double quotes"},
		{"NaN", `{"id":NaN}`, "a value is expected"},
		{"leading zero", `{"id":01}`, "leading zero"},
		{"plus", `{"id":+1}`, "a value is expected"},
		{"bare point", `{"id":1.}`, "a digit"},
		{"bare minus", `{"id":-}`, "a digit"},
		{"huge exponent", `{"id":"a","x":1e999999999}`, "an exponent above"},
		{"huge number", `{"id":"a","x":` + strings.Repeat("9", 5000) + `}`, "digits"},
		{"10 MB", `{"id":"a","x":"` + strings.Repeat("y", 10<<20) + `"}`, ""},
		{"17 MB", `{"id":"a","x":"` + strings.Repeat("y", 17<<20) + `"}`, "at most 16777216 are allowed"},
		{"byte order mark", "\xef\xbb\xbf" + `{"id":"a"}`, ""},
		{"deep enough", `{"id":"a","x":` + deep(99) + `}`, ""},
		{"odd escapes", `{"id":"a","x":"\"\\\/\b\f\n\r\t"}`, ""},
		{"wide", `{"id":"a",` + wide.String() + `"z":0}`, ""},
	} {
		for _, expr := range []string{".id", ".id | ."} {
			d, err := decode(t, Rules{ID: compile(t, "message.id", expr)}, tc.body)
			check(t, tc.what, err, tc.fails)
			if err == nil && d.ID != "a" {
				t.Errorf("%s with %s: id %q", tc.what, expr, d.ID)
			}
		}
	}
}

func TestEmptyBodyErrorQuotesNothing(t *testing.T) {
	_, err := decode(t, Rules{ID: compile(t, "message.id", ".x.y | tonumber")}, `{"x":{"y":"secret"}}`)
	check(t, "tonumber", err, "message.id (.x.y | tonumber) fails in jq")
}

func TestVersions(t *testing.T) {
	for _, tc := range []struct {
		expr, tie, body string
		time            bool
		want            semel.Version
		fails           string
	}{
		{".v", "", `{"id":"a","v":0}`, false, semel.Version{Set: true}, ""},
		{".v", "", `{"id":"a","v":"12"}`, false, semel.Version{N: 12, Set: true}, ""},
		{".v", "", `{"id":"a","v":null}`, false, semel.Version{}, ""},
		{".v", "", `{"id":"a"}`, false, semel.Version{}, ""},
		{".v", "", `{"id":"a","v":1.0}`, false, semel.Version{}, "not an integer literal"},
		{".v", "", `{"id":"a","v":"secret"}`, false, semel.Version{}, "is a string that is not an integer"},
		{".v", "", `{"id":"a","v":9223372036854775808}`, false, semel.Version{}, "is an integer that is not an integer of at most 64 bits"},
		{".v", "", `{"id":"a","v":"2013-08-16T00:00:00Z"}`, false, semel.Version{}, "it is a time, which arbitrate.as: time reads"},
		{".v", "", `{"id":"a","v":"2013-08-16T00:00:00Z"}`, true, semel.Version{N: 1376611200e9, Set: true}, ""},
		{".v", "", `{"id":"a","v":1376611200}`, true, semel.Version{N: 1376611200e9, Set: true}, ""},
		{".v", "", `{"id":"a","v":"2013-08-16"}`, true, semel.Version{}, "not a time with a zone"},
		{".v", ".t", `{"id":"a","v":1,"t":"b"}`, false, semel.Version{N: 1, Tie: "b", Set: true}, ""},
		{".v", ".t", `{"id":"a","v":1,"t":5}`, false, semel.Version{N: 1, Tie: "#09223372036854775813", Set: true}, ""},
		{".v", ".t", `{"id":"a","v":1}`, false, semel.Version{N: 1, Set: true}, ""},
		{".v", ".t", `{"id":"a","v":1,"t":1.5}`, false, semel.Version{}, "not an integer literal"},
	} {
		r := Rules{ID: compile(t, "message.id", ".id"), Version: compile(t, "arbitrate.version", tc.expr), VersionTime: tc.time, Tie: compile(t, "arbitrate.tie", tc.tie)}
		d, err := decode(t, r, tc.body)
		check(t, tc.body, err, tc.fails)
		if err == nil && d.Version != tc.want {
			t.Errorf("%s: version %+v, want %+v", tc.body, d.Version, tc.want)
		}
	}
}

func TestFilterComesAfterTheIDAndBeforeTheRest(t *testing.T) {
	r := Rules{ID: compile(t, "message.id", ".id"), Key: compile(t, "message.key", ".key"), Filter: compile(t, "message.filter", ".test | not")}
	d, err := decode(t, r, `{"id":"a","test":true}`)
	if !errors.Is(err, semel.ErrFiltered) || d.ID != "a" {
		t.Errorf("filtered: id %q, error %v", d.ID, err)
	}
	if d, err = decode(t, r, `{"id":"a","key":"k"}`); err != nil || d.Key != "k" {
		t.Errorf("wanted: key %q, error %v", d.Key, err)
	}
	_, err = decode(t, r, `{"id":"a"}`)
	check(t, "wanted without key", err, "message.key (.key) is null or missing")
	if _, err = decode(t, r, `{"test":true}`); errors.Is(err, semel.ErrFiltered) {
		t.Error("filtered although it has no id to record that under")
	}
}

func TestTypeAndTime(t *testing.T) {
	r := Rules{ID: compile(t, "message.id", ".id"), Type: compile(t, "message.type", ".t"), Time: compile(t, "message.time", ".at")}
	d, err := decode(t, r, `{"id":"a","t":"order.paid","at":"2013-08-16T02:00:00+02:00"}`)
	if err != nil || d.Type != "order.paid" || d.Time.Format("2006-01-02T15:04:05Z07:00") != "2013-08-16T00:00:00Z" {
		t.Errorf("type %q, time %v, error %v", d.Type, d.Time, err)
	}
	if d, err = decode(t, r, `{"id":"a","t":"x"}`); err != nil || !d.Time.IsZero() {
		t.Errorf("without time: %v, error %v", d.Time, err)
	}
	_, err = decode(t, r, `{"id":"a","t":7}`)
	check(t, "type", err, "message.type (.t) is an integer")
}

func TestSchema(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "part.json", `{"type":"object","required":["n"],"properties":{"n":{"type":"integer","maximum":9007199254740993}}}`)
	write(t, dir, "s.json", `{"type":"object","properties":{"at":{"format":"date-time"},"p":{"$ref":"part.json"},"kind":{"enum":["a","b"]}},"additionalProperties":true}`)
	s, err := LoadSchema(filepath.Join(dir, "s.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ body, fails string }{
		{`{"id":"a","p":{"n":1}}`, ""},
		{`{"id":"a","p":{}}`, "violates s.json at /p: missing n"},
		{`{"id":"a","p":{"n":"secret"}}`, "at /p/n: string is there, not integer"},
		{`{"id":"a","p":{"n":9007199254740994}}`, "at /p/n: rule maximum"},
		{`{"id":"a","p":{"n":9007199254740993}}`, ""},
		{`{"id":"a","p":{"n":1e1000}}`, "rule maximum"},
		{`{"id":"a","kind":"secret"}`, "at /kind: rule enum"},
		{`{"id":"a","at":"secret"}`, "not of format date-time"},
	} {
		d, err := decode(t, Rules{ID: compile(t, "message.id", ".id"), Schema: s}, tc.body)
		check(t, tc.body, err, tc.fails)
		if d.ID != "a" {
			t.Errorf("%s: a message that violates the schema should still have its id", tc.body)
		}
	}
}

// TestSchemaQuotesNoKeys: names that the message chose may be anything.
func TestSchemaQuotesNoKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s.json", `{"properties":{"by":{"additionalProperties":{"items":{"type":"integer"}}}}}`)
	s, err := LoadSchema(filepath.Join(dir, "s.json"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"mary": "/by/mary/1:", "mary@example.com": "/by/*/1:", `\u001b[2J`: "/by/*/1:", strings.Repeat("x", 100_000): "/by/*/1:"} {
		_, err := decode(t, Rules{ID: compile(t, "message.id", ".id"), Schema: s}, `{"id":"a","by":{"`+key+`":[1,"x"]}}`)
		check(t, key[:4], err, "violates s.json at "+want)
		if len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestSchemasThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	for body, want := range map[string]string{
		`{"$ref":"https://example.com/s.json"}`: "read from files only",
		`{"$ref":"missing.json"}`:               "no such file",
		`{"type":"nonsense"}`:                   "not a JSON Schema",
		`{`:                                     "EOF",
	} {
		write(t, dir, "s.json", body)
		if _, err := LoadSchema(filepath.Join(dir, "s.json")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", body, err, want)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRefusedExpressions(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		at         int
	}{
		{"", "empty", 0},
		{".a |", "ends early", 4},
		{".a | )", `from ")"`, 5},
		{".a[", "ends early", 3},
		{"now", "differs at every delivery", 0},
		{".a | env.HOME", "reads the environment", 5},
		{"$ENV.HOME", "reads the environment", 0},
		{"input", "other messages", 0},
		{"[.a, (.b | debug)]", "terminal", 11},
		{`import "a" as a; .`, "modules", 0},
		{"foo", "function not defined: foo/0", 0},
		{"$x", "variable not defined: $x", 0},
		{"$meta.fil", `$meta has no "fil": it has file, position, headers, received`, 0},
	} {
		_, err := Compile("x", tc.text)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, tc.want) || e.At != tc.at {
			t.Errorf("%q: error %+v, want %q at %d", tc.text, err, tc.want, tc.at)
		}
	}
}

func TestLoopsEnd(t *testing.T) {
	for _, loop := range []string{"[.id | recurse(.)] | length", "last(repeat(.id))", "def f: f; f"} {
		e := compile(t, "message.id", loop)
		p := newPlan(10, e)
		p.budget = 20 * time.Millisecond
		v := p.view()
		if err := v.open([]byte(`{"id":"a"}`), Meta{}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.eval(e); err == nil || !strings.Contains(err.Error(), "does not end within") {
			t.Errorf("%s: error %v", loop, err)
		}
	}
}

func TestParams(t *testing.T) {
	exprs := []string{".s", ".i", ".big", ".f", ".long", ".b", ".n", ".o", ".a", ".missing", "$body", "$meta.file", "$meta.headers.trace", ".o | .x", "{z: .i, y: 1.5}", ".i + 1", ".f * 2"}
	var compiled []*Expr
	for _, x := range exprs {
		compiled = append(compiled, compile(t, "handle.with", x))
	}
	body := `{"s":"x","i":9007199254740993,"big":12345678901234567890,"f":12.5,"long":0.12345678901234567890,"b":true,"n":null,"o":{"x": 1},"a":[1, 2]}`
	d := semel.Delivery{Message: semel.Message{Body: []byte(body), Header: semel.Header{{Name: "trace", Value: []byte("t1")}}}}
	d.Position.Scope.Name = "f.json"
	if err := NewDecoder(Rules{ID: compile(t, "message.id", ".s"), KeepMeta: true}).Decode(&d); err != nil {
		t.Fatal(err)
	}
	p := NewParams(0, compiled...)
	if !p.NeedsMeta() {
		t.Error("the use of $meta is not noticed")
	}
	got, err := p.Values(&d.Message, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"x", int64(9007199254740993), "12345678901234567890", 12.5, "0.12345678901234567890", true, nil, `{"x": 1}`, "[1, 2]", nil,
		[]byte(body), "f.json", "t1", int64(1), `{"y":1.5,"z":9007199254740993}`, int64(9007199254740994), 25.0}
	for i := range want {
		if fmt.Sprintf("%T %v", got[i], got[i]) != fmt.Sprintf("%T %v", want[i], want[i]) {
			t.Errorf("%s: %T %v, want %T %v", exprs[i], got[i], got[i], want[i], want[i])
		}
	}
	if _, err := p.Values(&semel.Message{Body: []byte("{")}, nil); err == nil {
		t.Error("a body that is not JSON gives values")
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":{"b":[1,2.5e3,"x\u0041",true,null]}}`, `[]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, "\xef\xbb\xbf1"} {
		f.Add([]byte(s))
	}
	e := compile(f, "x", ".a.b")
	f.Fuzz(func(t *testing.T, b []byte) {
		v := newPlan(50, e).view()
		if v.open(b, Meta{raw: b}) != nil {
			return
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(trim(b)))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("the scanner takes what encoding/json refuses: %q: %v", b, err)
		}
		if got := v.json(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: tree %#v, encoding/json makes %#v", b, got, want)
		}
		fast, err := v.eval(e)
		slow := compile(t, "x", ".a.b | .")
		slowView := newPlan(50, slow).view()
		if err := slowView.open(b, Meta{raw: b}); err != nil {
			t.Fatal(err)
		}
		said, slowErr := slowView.eval(slow)
		if (err == nil) != (slowErr == nil) {
			t.Fatalf("%q: path says %v, %v; jq says %v, %v", b, fast, err, said, slowErr)
		}
		if s, ok := said.(string); ok && fast != s {
			t.Fatalf("%q: path says %q, jq says %q", b, fast, s)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"flight":"2013-08-16-UA-236-JFK","status":"departed","at":"2013-08-16T06:30","seq":2,"order":{"id":"o-1","lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}}`)
	for _, tc := range []struct{ name, id string }{{"path", ".flight"}, {"jq", `.flight + "/" + (.seq | tostring)`}} {
		b.Run(tc.name, func(b *testing.B) {
			d := NewDecoder(Rules{ID: compile(b, "id", tc.id), Key: compile(b, "key", ".order.id"), Version: compile(b, "v", ".seq")})
			b.ReportAllocs()
			for b.Loop() {
				m := semel.Delivery{Message: semel.Message{Body: body}}
				if err := d.Decode(&m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("params", func(b *testing.B) {
		p := NewParams(0, compile(b, "a", ".flight"), compile(b, "b", ".status"), compile(b, "c", ".at"), compile(b, "d", ".seq"))
		m := semel.Message{Body: body}
		var out []any
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if out, err = p.Values(&m, out[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestCloudEvents: expressions see the data, $meta.event the attributes, and
// what is not said in expressions is the event's.
func TestCloudEvents(t *testing.T) {
	const envelope = `{"specversion":"1.0","id":"7","source":"/orders","type":"paid","subject":"o-1","time":"2026-01-02T03:04:05Z","sequence":3,"data":{"n":1,"b":"x"}}`
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		r    Rules
		body string
		want semel.Message
		why  string
	}{
		{Rules{}, envelope, semel.Message{ID: "/orders 7", Key: "/orders o-1", Type: "paid", Source: "/orders", Time: at}, ""},
		{Rules{ID: compile(t, "message.id", ".b"), Key: compile(t, "message.key", "$meta.event.subject"), Type: compile(t, "message.type", `$meta.event.type + "!"`),
			Version: compile(t, "arbitrate.version", "$meta.event.sequence")}, envelope,
			semel.Message{ID: "x", Key: "o-1", Type: "paid!", Source: "/orders", Time: at, Version: semel.Version{N: 3, Set: true}}, ""},
		{Rules{Filter: compile(t, "message.filter", ".n == 2")}, envelope, semel.Message{ID: "/orders 7"}, semel.ErrFiltered.Error()},
		{Rules{}, `{"specversion":"1.0","id":"7","source":"/orders","type":"paid","data":1,"data_base64":""}`, semel.Message{}, "both data and data_base64"},
		{Rules{Key: compile(t, "message.key", ".k")}, `{"specversion":"1.0","id":"7","source":"/orders","type":"paid"}`, semel.Message{}, "the body is empty"},
		{Rules{}, `{"specversion":"1.0","id":"7","source":"/orders","type":"paid","data_base64":"/w=="}`, semel.Message{ID: "/orders 7", Type: "paid", Source: "/orders"}, ""},
		{Rules{Key: compile(t, "message.key", ".k")}, `{"specversion":"1.0","id":"7","source":"/orders","type":"paid","data_base64":"/w=="}`, semel.Message{}, "invalid UTF-8"},
		{Rules{MaxBytes: 10}, envelope, semel.Message{}, "at most 10 are allowed"},
	} {
		tc.r.CloudEvents = true
		d, err := decode(t, tc.r, tc.body)
		if tc.why != "" {
			if err == nil || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("%s: %v, want %q", tc.body, err, tc.why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.body, err)
		}
		p := NewParams(0, compile(t, "handle.with.e", "$meta.event.id"), compile(t, "handle.with.b", "$body"))
		if v, err := p.Values(&d.Message, nil); err != nil || v[0] != "7" || !bytes.Equal(v[1].([]byte), d.Body) {
			t.Errorf("the handler sees %v, %v", v, err)
		}
		d.Header, d.Body = nil, nil
		if !reflect.DeepEqual(d.Message, tc.want) {
			t.Errorf("%+v, want %+v", d.Message, tc.want)
		}
	}
}
