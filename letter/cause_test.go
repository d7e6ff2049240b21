package letter_test

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
)

// TestNormal has texts as drivers, libraries and the runtime write them.
func TestNormal(t *testing.T) {
	for in, want := range map[string]string{
		// SQLite
		"constraint failed: UNIQUE constraint failed: orders.id (2067)":      "constraint failed: UNIQUE constraint failed: orders.id (<n>)",
		"constraint failed: CHECK constraint failed: n < 100 (275)":          "constraint failed: CHECK constraint failed: n < <n> (<n>)",
		"SQL logic error: no such column: amount (1)":                        "SQL logic error: no such column: amount (<n>)",
		"database is locked (5) (SQLITE_BUSY)":                               "database is locked (<n>) (SQLITE_BUSY)",
		`handle.sql, step 2: SQL logic error: near "FORM": syntax error (1)`: `handle.sql, step <n>: SQL logic error: near "…": syntax error (<n>)`,
		// PostgreSQL
		`ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505)`: `ERROR: duplicate key value violates unique constraint "…" (SQLSTATE <n>)`,
		// jq and JSON
		"message.id (.event.id) fails in jq: cannot iterate over: null": "message.id (.event.id) fails in jq: cannot iterate over: null",
		"not valid JSON at byte 118: a comma is expected":               "not valid JSON at byte <n>: a comma is expected",
		"invalid character '}' looking for beginning of value":          `invalid character "…" looking for beginning of value`,
		// JSON Schema: the place tells the cause
		"the body violates order.json at /items/3/price: a string is there, not number": "the body violates order.json at /items/<n>/price: a string is there, not number",
		"the body violates order.json at the top: missing cents, id":                    "the body violates order.json at the top: missing cents, id",
		// HTTP
		`Post "https://pay.example/charge/4711": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`: `Post "…": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
		`Get "http://10.1.2.3:8080/x?id=7": dial tcp 10.1.2.3:8080: connect: connection refused`:                             `Get "…": dial tcp <n>: connect: connection refused`,
		"dial tcp [::1]:5432: connect: connection refused":                                                                   "dial tcp [::<n>]:<n>: connect: connection refused",
		"gave up after 30s, 1.5s and 200ms":                                                                                  "gave up after <n>, <n> and <n>",
		"unexpected status 503 Service Unavailable":                                                                          "unexpected status <n> Service Unavailable",
		// Panics
		"handler panicked: runtime error: index out of range [5] with length 3":                       "handler panicked: runtime error: index out of range [<n>] with length <n>",
		"handler panicked: runtime error: invalid memory address or nil pointer dereference":          "handler panicked: runtime error: invalid memory address or nil pointer dereference",
		"handler panicked: interface conversion: interface {} is string, not float64 at 0xc000123456": "handler panicked: interface conversion: interface {} is string, not float<n> at <id>",
		// What differs from message to message
		"no stock for order 4711":                                  "no stock for order <n>",
		"no stock for evt-4711, order_12":                          "no stock for evt-<n>, order_<n>",
		"customer 6f1c2d3e-0a1b-4c5d-8e9f-001122334455 is unknown": "customer <id> is unknown",
		"customer 9a8b7c6d5e4f is unknown":                         "customer <id> is unknown",
		"token k3q9xz7p is unknown":                                "token <id> is unknown",
		"deadbeefdeadbeef is unknown":                              "<id> is unknown",
		"since 2026-11-30T22:33:01.123Z, until 2026-12-01":         "since <time>, until <time>",
		"at 2026-11-30 22:33:01+01:00: late":                       "at <time>: late",
		"open /var/spool/in/a-17.json: no such file or directory":  "open <path>: no such file or directory",
		`open C:\spool\a.json: denied`:                             "open <path>: denied",
		"open spool/in/a-17.json: no such file":                    "open <path>: no such file",
		"stat ./a: denied":                                         "stat <path>: denied",
		"either and/or both, n/a":                                  "either and/or both, n/a",
		"it doesn't work, isn't it":                                "it doesn't work, isn't it",
		`a 'quoted' and "one \" more" and ` + "`raw`":              `a "…" and "…" and "…"`,
		`an "open end`:                                             `an "open end`,
		"two\nlines\tand\x01  blanks":                              "two lines and\x01 blanks",
		"größe 12cm für Münze7":                                    "größe <n> für Münze<n>",
		"\xff":                                                     "�",
		"":                                                         "",
	} {
		if got := letter.Normal(in); got != want {
			t.Errorf("%q\n became %q\n want   %q", in, got, want)
		}
	}
}

// TestNormalIsStable: what is normal stays as it is but for its own marks, and
// any text has an end.
func FuzzNormal(f *testing.F) {
	for _, s := range []string{"a 1", `"a`, "at /a/1", "2026-01-01 00:00", "'", "a/b/c", "0x", "--", "é1", "1.2.3:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := letter.Normal(s)
		if strings.ContainsAny(n, "\n\t\r") {
			t.Errorf("%q became %q: more than one line", s, n)
		}
		if len(n) > 5*len(s)+8 {
			t.Errorf("%d bytes became %d", len(s), len(n))
		}
	})
}

type coded struct{ code int }

func (coded) Error() string { return "failed" }
func (c coded) Code() int   { return c.code }

type stated struct{ state string }

func (stated) Error() string      { return "failed" }
func (s stated) SQLState() string { return s.state }

func TestKind(t *testing.T) {
	path := &os.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}
	for want, err := range map[string]error{
		"":                         semel.Permanent(fmt.Errorf("a: %w", errors.New("b"))),
		"letter_test.coded 7":      fmt.Errorf("x: %w", semel.Permanent(coded{7})),
		"letter_test.stated 23505": &semel.Error{Stage: "handle", Err: stated{"23505"}},
		"syscall.Errno":            fmt.Errorf("x: %w", path),
		"letter_test.coded 1":      errors.Join(coded{1}, coded{2}),
	} {
		if got := letter.Kind(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if letter.Kind(nil) != "" {
		t.Error("nil has a kind")
	}
}

// stack is one as a panic in a handler leaves it.
const stack = `goroutine 41 [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:26 +0x64
github.com/semel-dev/semel/consumer.recovered(0x1400012f9c8)
	/src/consumer/batch.go:267 +0xa8
panic({0x1024a5e80?, 0x14000116018?})
	/usr/local/go/src/runtime/panic.go:783 +0x120
strings.Repeat({0x1, 0x2}, 0xffff)
	/usr/local/go/src/strings/strings.go:600 +0x3c
shop.example/orders.(*Book).add(0x14000112008, {0x1, 0x2})
	/src/orders/book.go:LINE +0x3c
shop.example/orders.Handle.func1(...)
	/src/orders/handle.go:17
main.handle({0x1, 0x2})
	/src/main.go:9 +0x40
main.deeper()
	/src/main.go:99 +0x40
github.com/semel-dev/semel/consumer.(*batch[...]).call(0x14000158240)
	/src/consumer/batch.go:254 +0x1b4
created by github.com/semel-dev/semel/consumer.(*Consumer[...]).Run in goroutine 1
	/src/consumer/consumer.go:99 +0x1b4
`

func TestFrames(t *testing.T) {
	want := []string{"shop.example/orders.(*Book).add", "shop.example/orders.Handle.func1", "main.handle"}
	if got := letter.Frames(stack); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := letter.Frames(string(debug.Stack())); len(got) != 1 || !strings.HasSuffix(got[0], "TestFrames") {
		t.Errorf("of this test: %q", got)
	}
	if got := letter.Frames(""); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// TestCauseOf: what makes a group, and what does not tell groups apart.
func TestCauseOf(t *testing.T) {
	failure := func(id, text string) error {
		return &semel.Error{Stage: "handle", Message: id, Err: errors.New(text)}
	}
	one := letter.CauseOf(store.System, "exhausted", failure("order-one", "no stock for 17"), stack)
	if one.Text != "handle: no stock for <n>" || len(one.ID) != 8 {
		t.Errorf("%+v", one)
	}
	for name, c := range map[string]struct {
		cause store.Cause
		same  bool
	}{
		"another message": {letter.CauseOf(store.System, "exhausted", failure("two", "no stock for 4711"), stack), true},
		"another line":    {letter.CauseOf(store.System, "exhausted", failure("two", "no stock for 1"), strings.ReplaceAll(stack, ":LINE", ":18")), true},
		"another class":   {letter.CauseOf(store.Business, "exhausted", failure("two", "no stock for 1"), stack), false},
		"another reason":  {letter.CauseOf(store.System, "failed", failure("two", "no stock for 1"), stack), false},
		"another text":    {letter.CauseOf(store.System, "exhausted", failure("two", "no money for 1"), stack), false},
		"another place":   {letter.CauseOf(store.System, "exhausted", failure("two", "no stock for 1"), strings.ReplaceAll(stack, "add", "del")), false},
		"another kind":    {letter.CauseOf(store.System, "exhausted", &semel.Error{Stage: "handle", Message: "x", Err: fmt.Errorf("no stock for 1%w", coded{1})}, stack), false},
	} {
		if (c.cause.ID == one.ID) != c.same {
			t.Errorf("%s: the same group: %v", name, !c.same)
		}
	}
	codes := func(n int) string { return letter.CauseOf(store.System, "failed", coded{n}, "").ID }
	if codes(1) == codes(2) {
		t.Error("codes do not tell groups apart")
	}
	if c := letter.CauseOf(store.Business, "tie", nil, ""); c.ID == "" || c.Text != "" {
		t.Errorf("without an error: %+v", c)
	}
}
