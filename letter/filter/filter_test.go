package filter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter/filter"
	"github.com/semel-dev/semel/store"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func sample() *store.Letter {
	return &store.Letter{
		Ref: "k3qabc", Consumer: "c", State: store.StateDead, Class: store.System, Reason: "exhausted",
		Error: "handle: dial tcp: Connection Refused\nconnection refused", Cause: store.Cause{ID: "p7xabc"}, Origin: "in/a.json@1",
		Attempts: 5, Seen: 2, Created: now.Add(-2 * time.Hour), Updated: now.Add(-time.Hour), Failed: now.Add(-90 * time.Minute),
		Message: semel.Message{ID: "evt-1", Key: "a,b c", Type: "order.paid", Body: []byte(`{
			"order": {"total": 100.50, "big": 9007199254740993, "id": "17", "n": 17, "none": null, "yes": true, "odd name": {"é": "ü"}},
			"list": [1], "exp": 1e3, "neg": -0.10, "text": "Hello World"}`)},
	}
}

// TestMatch goes through the language, field by field.
func TestMatch(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, " \t\n ": true,
		"class=system": true, "class=format": false, "class=format,system": true, "class!=format": true, "class!=format,system": false,
		"state=dead": true, "state=open": true, "state=closed": false, "state=edited,dead": true, "state!=dead": false, "state!=closed": true,
		"reason=exhausted": true, "reason=exhaust": false, "reason~HAUST": true, "reason!~haust": false, "reason!=tie": true, `reason=""`: false, `reason!=""`: true,
		"error~refused": true, `error~"connection refused"`: true, "error~timeout": false, "error!~timeout": true, "error~refused,x": false,
		"type=order.paid": true, "type~PAID": true, "type=order": false,
		`key="a,b c"`: true, "key=a,b": false, `key=x,"a,b c"`: true, `key~"b c"`: true,
		"id=evt-1": true, "id!=evt-1": false, "id~evt": true, "origin~a.json": true,
		"group=p7x": true, "group=k3q": false, "group!=k3q": true, "ref=k3q": true, "ref=k3,x": true, "ref=x": false,
		"attempts=5": true, "attempts!=5": false, "attempts>4": true, "attempts>5": false, "attempts>=5": true, "attempts<5": false, "attempts<=5": true, "attempts=3,5": true, "seen=2": true,
		"age>1h": true, "age>2h": false, "age>=2h": true, "age<3h": true, "age>1h59m59s": true, "age<1d": true, "age<2w": true, "idle<=60m": true, "idle>1h": false,
		"created<2026-11-30": false, "created>2026-11-30": true, "changed<=2026-11-30T11:00:00Z": true, "changed<2026-11-30T12:00:00+01:00": false,
		"failed>2026-11-30T10:29Z": true, "failed<2026-11-30T10:30:00.001Z": true,
		".order.total>100": true, ".order.total=100.5": true, ".order.total=100.50": true, ".order.total=1005e-1": true, ".order.total>100.5": false, ".order.total!=1": true,
		".order.big=9007199254740993": true, ".order.big=9007199254740992": false, ".order.big>9007199254740992": true, ".order.big<9007199254740994": true,
		`.order.id="17"`: true, ".order.id=17": true, ".order.id=17.0": false, ".order.n=17": true, ".order.n=17.0": true, `.order.n="17"`: false,
		`.order.id>"16"`: true, `.order.id>16`: false, `.order.n>"16"`: false, ".exp=1000": true, ".neg=-0.1": true, ".neg<0": true,
		".order.none=null": true, ".order.gone=null": true, ".gone.deep=null": true, ".order.gone!=null": false, ".order.none!=null": false, ".order.yes=true": true, ".order.yes=false": false, `.order.yes="true"`: false,
		".order.gone>1": false, ".order.gone<1": false, ".order.gone=1": false, ".order.gone!=1": true, ".order.gone~x": false, ".order.gone!~x": true,
		`.order."odd name".é="ü"`: true, `.order."odd name"."é"~Ü`: true, ".text~world": true, `.text="Hello World"`: true, ".text=Hello": false,
		".list=1": false, ".list!=1": true, ".order.n~7": true, ".order.n=1,17": true, ".order=1": false,
		"class=system state=dead": true, "class=system and state=dead": true, "class=system AND state=edited": false, "class=system class=format": false,
		`.text="Hello\u0020World"`: true, `.text~"\""`: false,
		"  class=system\t.order.total>100\nage>1h  ": true,
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Match(sample(), now); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if f.String() != text {
			t.Errorf("%q came back as %q", text, f)
		}
	}
}

// TestMatchWithout: a letter that lacks what is asked for.
func TestMatchWithout(t *testing.T) {
	for text, want := range map[string]bool{
		"failed<2030-01-01": false, "group=a": false, "group!=a": true, ".a=1": false, ".a=null": true, ".a!=1": true, "error~a": false, `error~""`: true, `key=""`: true,
	} {
		for _, body := range [][]byte{nil, {}, []byte("not JSON"), []byte("[1]"), []byte(`{"a":`), []byte("\ufeff{}")} {
			f, err := filter.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Match(&store.Letter{State: store.StateHeld, Message: semel.Message{Body: body}}, now); got != want {
				t.Errorf("%s with body %q: %v, want %v", text, body, got, want)
			}
		}
	}
	bom := &store.Letter{Message: semel.Message{Body: []byte("\ufeff{\"a\":1}")}}
	if f, err := filter.Parse(".a=1"); err != nil || !f.Match(bom, now) {
		t.Errorf("a byte order mark is in the way: %v", err)
	}
}

// TestErrors: what is wrong, where, and what would be right.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"klass=system":                "1: \"klass\" is not a field: did you mean class?",
		"class=system Stat=dead":      "14: \"Stat\" is not a field: did you mean state?",
		"colour=red":                  "fields are class, state, reason",
		"class=systme":                "7: \"systme\" does not go with class: did you mean system? A class is one of format, business, system",
		"state=dead,gone":             "12: \"gone\" does not go with state: a state is one of open, closed, dead",
		"class system":                "6: an operator is expected behind class: write class=VALUE, without blanks",
		"class = system":              "6: an operator is expected behind class",
		"class= state=dead":           "7: a value is missing behind class=",
		"class=":                      "7: a value is missing",
		"state=dead,":                 "12: a value is missing",
		"class~sys":                   "6: ~ does not go with class: it has = !=",
		"error=x":                     "6: = does not go with error: it has ~ !~",
		"age>soon":                    "5: \"soon\" does not go with age: a time span is needed, such as 90s",
		"age>1":                       "a time span is needed",
		"age>99999999999999999999w":   "a time span is needed",
		"age>999999999w":              "a time span is needed",
		"attempts>many":               "a whole number is needed",
		"created>yesterday":           "a time is needed, such as 2026-11-30",
		"group=K3Q":                   "letters a to z",
		`key="a`:                      "5: the text that begins here has no end: close it with \"",
		`key="a\x"`:                   `7: this is not an escape`,
		`key="a\ud800"`:               `this is not an escape`,
		`key="a"b`:                    "8: something follows the closing quote",
		"class=system or state=dead":  "14: there is no or: alternatives are separated by commas",
		"and class=system":            "1: \"and\" is not a field",
		".=1":                         "1: a name is missing behind the dot",
		".a..b=1":                     "3: a name is missing",
		".a[0]=1":                     "3: an operator is expected behind .a",
		"=x":                          "1: a field is expected",
		"\x1b=x":                      "1: a field is expected",
		strings.Repeat("id=a ", 101):  "there are too many terms",
		strings.Repeat("x", 16<<10+1): "at most 16384 are allowed",
	} {
		_, err := filter.Parse(text)
		var e *filter.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v\n want %s", text, err, want)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) == 3 && e.At < len(text) && e.Text != "" { // the mark is under the place
			mark := strings.IndexByte(lines[2], '^')
			if mark >= len(lines[1]) || lines[1][mark] != text[e.At] {
				t.Errorf("%.60q: the mark is at the wrong place:\n%v", text, err)
			}
		}
	}
}

// TestQuery: what an index can do is asked of the store, and only that.
func TestQuery(t *testing.T) {
	dead := []store.State{store.StateDead}
	for text, c := range map[string]struct {
		want  store.Query
		exact bool
	}{
		"":                             {store.Query{States: dead}, true},
		"class=system":                 {store.Query{States: dead, Class: store.System}, true},
		"class=system,format":          {store.Query{States: dead}, false},
		"class!=system":                {store.Query{States: dead}, false},
		"state=edited,dead":            {store.Query{States: []store.State{store.StateDead, store.StateEdited}}, true},
		"state!=closed state!=open":    {store.Query{States: []store.State{}}, false},
		"state=open state!=held,retry": {store.Query{States: []store.State{store.StateDead, store.StateEdited, store.StateApproved}}, true},
		"id=a key=b type=c reason=d":   {store.Query{States: dead, ID: "a", Key: "b", Type: "c", Reason: "d"}, true},
		"group=k3q ref=ab":             {store.Query{States: dead, Cause: "k3q", Ref: "ab"}, true},
		"id=a id=b":                    {store.Query{States: dead, ID: "a"}, false},
		"id=a id=a":                    {store.Query{States: dead, ID: "a"}, true},
		`id=""`:                        {store.Query{States: dead}, false},
		"id~a":                         {store.Query{States: dead}, false},
		"age>1h":                       {store.Query{States: dead}, false},
		"class=system .a=1":            {store.Query{States: dead, Class: store.System, Bodies: true}, false},
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.want.Consumer = "c"
		got, exact := f.Query("c", dead)
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) || exact != c.exact {
			t.Errorf("%s: %+v, exact %v", text, got, exact)
		}
	}
	var none *filter.Filter
	if q, exact := none.Query("c", dead); !exact || q.Consumer != "c" || !none.Match(sample(), now) || !none.Empty() || none.String() != "" {
		t.Errorf("no filter: %+v, %v", q, exact)
	}
}

// TestQueryAgreesWithMatch: what a query selects is what matches.
func TestQueryAgreesWithMatch(t *testing.T) {
	for _, text := range []string{"class=system", "state=dead", "state!=dead", "state=closed", "reason=exhausted", "id=evt-1", "group=p7", "ref=zz", "type=order.paid", "key=x", `key="a,b c"`} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		q, _ := f.Query("c", store.States())
		l := sample()
		selected := slices.Contains(q.States, l.State) && (q.Class == "" || q.Class == l.Class) && (q.Reason == "" || q.Reason == l.Reason) &&
			(q.ID == "" || q.ID == l.Message.ID) && (q.Key == "" || q.Key == l.Message.Key) && (q.Type == "" || q.Type == l.Message.Type) &&
			strings.HasPrefix(l.Cause.ID, q.Cause) && strings.HasPrefix(l.Ref, q.Ref)
		if selected != f.Match(l, now) {
			t.Errorf("%s: selected %v", text, selected)
		}
	}
}

// TestAt: ages become times that mean the same letters, then and later.
func TestAt(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"class=system":                 "class=system",
		"age>1h":                       "created<2026-11-30T11:00:00Z",
		"id=a age>=1h idle<30m .age>1": "id=a created<=2026-11-30T11:00:00Z changed>2026-11-30T11:30:00Z .age>1",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		fixed, err := filter.Parse(f.At(now))
		if err != nil || fixed.String() != want {
			t.Errorf("%s: %s, %v", text, fixed, err)
			continue
		}
		for age := range 5 {
			l := sample()
			l.Message.ID, l.Created, l.Updated = "a", now.Add(-time.Duration(age)*30*time.Minute), now.Add(-time.Duration(age)*15*time.Minute)
			if f.Match(l, now) != fixed.Match(l, now.Add(time.Hour)) {
				t.Errorf("%s and %s differ about %v", text, fixed, l)
			}
		}
	}
}

func TestDecimal(t *testing.T) {
	for s, want := range map[string]string{
		"1": "1", "-1.50": "-3/2", "1e3": "1000", "1E-2": "1/100", "0": "0", "-0": "0",
		"": "", "x": "", "1/2": "", "0x10": "", "+1": "", ".5": "", "1e1001": "", "1e-1001": "", "1e99999999999999999999": "", "Inf": "", "1_000": "",
		strings.Repeat("9", 1001): "",
	} {
		n, ok := filter.Decimal(s)
		if ok != (want != "") || ok && n.RatString() != want {
			t.Errorf("%.20q: %v, %v, want %s", s, n, ok, want)
		}
	}
}

// FuzzParse: no text upsets the parser, every error points into the text and
// has a remedy, and what was parsed can be asked.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"class=system", `.a."b c">=1e3`, "state=dead,edited age>1h", `key="\u0041\n"`, "a", "..=", `."`, "and", "id=\xff", "error~\x00"} {
		f.Add(s, []byte(`{"a":{"b c":1000}}`))
	}
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		p, err := filter.Parse(text)
		if err != nil {
			var e *filter.Error
			if !errors.As(err, &e) || e.At < 0 || e.At > len(text) || e.Msg == "" || e.Remedy == "" || e.Error() == "" {
				t.Errorf("%q: %#v", text, err)
			}
			return
		}
		l := sample()
		l.Message.Body = body
		p.Match(l, now)
		p.Query("c", nil)
		again, err := filter.Parse(p.String())
		if err != nil || again.Match(l, now) != p.Match(l, now) {
			t.Errorf("%q cannot be read again: %v", text, err)
		}
		if both, err := filter.Parse(text + " " + text); err == nil && both.Match(l, now) != p.Match(l, now) {
			t.Errorf("%q twice is something else", text)
		}
	})
}
