package cloudevents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// fields makes headers of names and values.
func fields(s ...string) (h semel.Header) {
	for i := 0; i < len(s); i += 2 {
		h = append(h, semel.Field{Name: s[i], Value: []byte(s[i+1])})
	}
	return h
}

// envelope is an event with more members, or others: a later one of a name
// replaces an earlier one.
func envelope(more string) string {
	members := map[string]json.RawMessage{}
	for _, s := range []string{`{"specversion":"1.0","id":"1","source":"/a","type":"t"}`, "{" + more + "}"} {
		if err := json.Unmarshal([]byte(s), &members); err != nil {
			panic(err)
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func base() Event { return Event{ID: "1", Source: "/a", Type: "t"} }

func TestStructured(t *testing.T) {
	at := time.Date(2018, 4, 5, 17, 31, 0, 123000000, time.UTC)
	for name, tc := range map[string]struct {
		body string
		want func(*Event)
	}{
		"least":           {envelope(``), func(*Event) {}},
		"byte order mark": {"\ufeff" + envelope(``), func(*Event) {}},
		"JSON":            {envelope(`"data": {"a" : 1.0} `), func(e *Event) { e.Data = []byte(`{"a":1.0}`) }},
		"null is data":    {envelope(`"data":null`), func(e *Event) { e.Data = []byte(`null`) }},
		"string is JSON":  {envelope(`"data":"x"`), func(e *Event) { e.Data = []byte(`"x"`) }},
		"JSON by name": {envelope(`"datacontenttype":"application/vnd.x+JSON; charset=utf-8","data":"x"`), func(e *Event) {
			e.DataContentType, e.Data = "application/vnd.x+JSON; charset=utf-8", []byte(`"x"`)
		}},
		"text":            {envelope(`"datacontenttype":"text/xml","data":"<a>\u00e9</a>"`), func(e *Event) { e.DataContentType, e.Data = "text/xml", []byte("<a>é</a>") }},
		"no text":         {envelope(`"datacontenttype":"text/xml","data":null`), func(e *Event) { e.DataContentType = "text/xml" }},
		"base64":          {envelope(`"data_base64":"AP8="`), func(e *Event) { e.Data = []byte{0, 255} }},
		"empty base64":    {envelope(`"data_base64":""`), func(e *Event) { e.Data = []byte{} }},
		"base64 is null":  {envelope(`"data_base64":null,"data":1`), func(e *Event) { e.Data = []byte("1") }},
		"optional ones":   {envelope(`"subject":"s/1","time":"2018-04-05T19:31:00.123+02:00","dataschema":"http://x/y"`), func(e *Event) { e.Subject, e.Time, e.DataSchema = "s/1", at, "http://x/y" }},
		"lower-case time": {envelope(`"time":"2018-04-05t17:31:00.123z"`), func(e *Event) { e.Time = at }},
		"null is not set": {envelope(`"subject":null,"time":null,"x":null`), func(*Event) {}},
		"extensions": {envelope(`"partitionkey":"p","n":-2147483648,"b":true,"e":""`), func(e *Event) {
			e.Extensions = map[string]string{"partitionkey": "p", "n": "-2147483648", "b": "true", "e": ""}
		}},
		"surrogate pair":   {envelope(`"subject":"\ud83d\ude00"`), func(e *Event) { e.Subject = "😀" }},
		"escaped escape":   {strings.Replace(envelope(``), `"1"`, `"\\ud800"`, 1), func(e *Event) { e.ID = `\ud800` }},
		"same key, deeper": {envelope(`"data":{"id":{"id":[{"id":1},{"id":2}]},"source":2}`), func(e *Event) { e.Data = []byte(`{"id":{"id":[{"id":1},{"id":2}]},"source":2}`) }},
	} {
		want := base()
		tc.want(&want)
		for _, h := range []semel.Header{nil, fields("Content-Type", "application/cloudevents+json; charset=UTF-8"), fields("content-type", "APPLICATION/CLOUDEVENTS+JSON", "ce-id", "ignored")} {
			got, err := Parse(h, []byte(tc.body))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{"", "the body is empty"},
		{" \n", "the body is empty"},
		{"[" + envelope("") + "]", "not a JSON object"},
		{"7", "not a JSON object"},
		{envelope("") + "x", "something follows"},
		{envelope("") + envelope(""), "something follows"},
		{envelope("")[:20], "not valid JSON"},
		{strings.Replace(envelope(""), ":", ";", 1), "not valid JSON at byte"},
		{"{\"id\":\"\xff\"}", "not UTF-8"},
		{`{"id":"1","source":"/a","type":"t"}`, "specversion is missing"},
		{envelope(`"specversion":null`), "specversion is missing"},
		{envelope(`"specversion":"0.3"`), "specversion is not 1.0"},
		{envelope(`"specversion":"1.0.2"`), "specversion is not 1.0"},
		{envelope(`"specversion":1.0`), "the attribute specversion: its value has to be a string"},
		{envelope(`"id":""`), "id is missing or empty"},
		{envelope(`"id":null`), "id is missing or empty"},
		{envelope(`"source":null`), "source is missing or empty"},
		{envelope(`"source":"a b"`), "source is not a URI reference"},
		{envelope(`"source":"a\nb"`), "source is not a URI reference"},
		{envelope(`"type":""`), "type is missing or empty"},
		{envelope(`"type":"` + strings.Repeat("x", 256) + `"`), "type has 256 bytes"},
		{envelope(`"subject":""`), "subject is empty"},
		{envelope(`"time":"2018-04-05"`), "time is not a time of RFC 3339"},
		{envelope(`"time":"2018-04-05T17:31:00"`), "time is not a time of RFC 3339"},
		{envelope(`"time":"2018-04-05T7:31:00Z"`), "time is not a time of RFC 3339"},
		{envelope(`"time":"2018-04-05T17:31:00,5Z"`), "time is not a time of RFC 3339"},
		{envelope(`"time":"9999-12-31T23:59:59-01:00"`), "time is not a time of RFC 3339"},
		{envelope(`"time":"0000-01-01T00:00:00+01:00"`), "time is not a time of RFC 3339"},
		{envelope(`"time":1522949460`), "the attribute time: its value has to be a string"},
		{envelope(`"id":1`), "the attribute id: its value has to be a string"},
		{envelope(`"source":true`), "the attribute source: its value has to be a string"},
		{envelope(`"type":7`), "the attribute type: its value has to be a string"},
		{envelope(`"subject":7`), "the attribute subject: its value has to be a string"},
		{envelope(`"id":"1\u0000"`), "the attribute id has a character that is not allowed"},
		{envelope(`"type":"a\nb"`), "the attribute type has a character that is not allowed"},
		{envelope(`"subject":"\u0085"`), "the attribute subject has a character that is not allowed"},
		{envelope(`"x":"\ufffe"`), "the attribute x has a character that is not allowed"},
		{envelope(`"x":"\ud83f\udfff"`), "the attribute x has a character that is not allowed"},
		{envelope(`"x":"\ufdd0"`), "the attribute x has a character that is not allowed"},
		{envelope(`"x":2147483648`), "the attribute x: its value has to be"},
		{envelope(`"x":-0`), "the attribute x: its value has to be"},
		{envelope(`"data":1,"data_base64":"AA=="`), "both data and data_base64"},
		{envelope(`"data":null,"data_base64":"AA=="`), "both data and data_base64"},
		{envelope(`"data_base64":"AA"`), "not base64"},
		{envelope(`"data_base64":"A-_="`), "not base64"},
		{envelope(`"data_base64":7`), "data_base64 is not a string"},
		{envelope(`"datacontenttype":"text/plain","data":{}`), "data is not a string"},
		{envelope(`"x":{}`), "the attribute x: its value has to be"},
		{envelope(`"x":[1]`), "the attribute x: its value has to be"},
		{envelope(`"x":1.5`), "the attribute x: its value has to be"},
		{envelope(`"x":1e3`), "the attribute x: its value has to be"},
		{envelope(`"x":123456789012`), "the attribute x: its value has to be"},
		{envelope(`"Id":"2"`), "a name that is none"},
		{envelope(`"trace_parent":"2"`), "a name that is none"},
		{envelope(`"":"2"`), "a name that is none"},
		{strings.Replace(envelope(""), "{", `{"id":"2",`, 1), "id is there twice"},
		{strings.Replace(envelope(""), "{", `{"\u0069d":"2",`, 1), "id is there twice"},
		{strings.Replace(envelope(`"data":1`), "{", `{"data":2,`, 1), "data is there twice"},
		{strings.Replace(envelope(""), "{", `{"data":{"a":[{"b":1,"b":2}]},`, 1), "a key twice"},
		{strings.Replace(envelope(""), `"1"`, `"\ud800"`, 1), "half a surrogate pair"},
		{strings.Replace(envelope(""), `"1"`, `"\ud800\u0041"`, 1), "half a surrogate pair"},
		{strings.Replace(envelope(""), `"1"`, `"\udc00\ud800"`, 1), "half a surrogate pair"},
	} {
		_, err := Parse(nil, []byte(tc.body))
		checkRefused(t, tc.body, err, tc.want)
	}
}

func checkRefused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if class, _ := semel.ClassOf(err); class != semel.ClassInvalid || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "not a CloudEvent: ") {
		t.Errorf("%.200s: %v, want %q as Invalid", what, err, want)
	}
}

func TestBinary(t *testing.T) {
	want := Event{ID: "1 %é", Source: "/a", Type: "t", Subject: "s", Time: time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC),
		DataContentType: "text/plain", Extensions: map[string]string{"x1": "y"}, Data: []byte("hello")}
	for prefix, id := range map[string]string{"ce-": "1%20%25%C3%A9", "Ce-": "1%20%25%c3%a9", "ce_": "1 %é", "cloudEvents:": "1 %é", "cloudEvents_": "1 %é"} {
		h := fields("host", "x", prefix+"specversion", "1.0", prefix+"id", id, prefix+"source", "/a", prefix+"type", "t",
			prefix+"subject", "s", prefix+"time", "2018-04-05T17:31:00Z", prefix+"x1", "y", "Content-Type", "text/plain")
		got, err := Parse(h, []byte("hello"))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", prefix, got, err)
		}
	}
	for value, want := range map[string]string{`"a b"`: "a b", `"a\"\\b"`: `a"\b`, `"a%20b"`: "a b", `""`: "", `a"b`: `a"b`, "%22a%22": `"a"`} {
		e, err := Parse(fields("ce-specversion", "1.0", "ce-id", "1", "ce-source", "/a", "ce-type", "t", "ce-x", value), nil)
		if err != nil || e.Extensions["x"] != want {
			t.Errorf("%s: %q, %v", value, e.Extensions["x"], err)
		}
	}
	good := []string{"ce_specversion", "1.0", "ce_id", "1", "ce_source", "/a", "ce_type", "t"}
	for _, tc := range []struct {
		more []string
		want string
	}{
		{[]string{"ce_id", "1"}, "twice"},
		{[]string{"ce-id", "2"}, "twice"},
		{[]string{"CE_ID", "2"}, "twice"},
		{[]string{"ce-x", "%zz"}, "percent"},
		{[]string{"ce-x", "%ff"}, "not UTF-8"},
		{[]string{"ce-x", `"`}, "quotes"},
		{[]string{"ce-x", `"a\"`}, "quotes"},
		{[]string{"ce-x", `"a"b"`}, "quotes"},
		{[]string{"ce-x", "a%00"}, "a character that is not allowed"},
		{[]string{"content-type", "text/\xff"}, "not UTF-8"},
		{[]string{"ce_x-y", "1"}, "a name that is none"},
		{[]string{"ce_data", "1"}, "data is no attribute"},
		{[]string{"ce_datacontenttype", "text/plain"}, "the content type"},
		{[]string{"content-type", "application/cloudevents-batch+json"}, "a batch"},
		{[]string{"content-type", "application/cloudevents+avro"}, "not JSON"},
		{[]string{"content-type", "application/cloudevents"}, "not JSON"},
		{[]string{"content-type", ""}, "datacontenttype is empty"},
	} {
		_, err := Parse(fields(append(good[:8:8], tc.more...)...), nil)
		checkRefused(t, fmt.Sprint(tc.more), err, tc.want)
	}
	_, err := Parse(fields(good[2:]...), nil)
	checkRefused(t, "without specversion", err, "specversion is missing")
	_, err = Parse(fields("content-type", "application/json"), []byte(envelope("")))
	checkRefused(t, "no event", err, "no attributes in headers")
}

// TestDecodeMakesOneForm: both modes end as the same message, which says the
// same when it is read again.
func TestDecodeMakesOneForm(t *testing.T) {
	binary := semel.Delivery{Message: semel.Message{Body: []byte(`{"a":1}`), Header: fields("keep", "this", "ce-specversion", "1.0", "ce-id", "%C3%A9", "ce-source", "/a", "ce-type", "t", "ce-time", "2018-04-05T17:31:00Z", "ce-x", "1", "content-type", "application/json")}}
	structured := semel.Delivery{Message: semel.Message{Header: fields("keep", "this", "content-type", "application/cloudevents+json"),
		Body: []byte(`{"specversion":"1.0","id":"é","source":"/a","type":"t","time":"2018-04-05T17:31:00Z","x":1,"datacontenttype":"application/json","data":{"a":1}}`)}}
	for _, d := range []*semel.Delivery{&binary, &structured, &binary} {
		if err := Decode(d); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(binary, structured) {
		t.Errorf("binary     %+v\nstructured %+v", binary, structured)
	}
	if binary.ID != "/a é" || binary.Type != "t" || binary.Source != "/a" || binary.Time.IsZero() || string(binary.Body) != `{"a":1}` {
		t.Errorf("%+v", binary)
	}
	want := map[string]string{"specversion": "1.0", "id": "é", "source": "/a", "type": "t", "time": "2018-04-05T17:31:00Z", "x": "1", "datacontenttype": "application/json"}
	if got := Attributes(binary.Header); !maps.Equal(got, want) {
		t.Errorf("attributes %q, want %q", got, want)
	}
	if v, _ := binary.Header.Get("keep"); string(v) != "this" {
		t.Error("a header of the message is gone")
	}
}

func TestIDsAndKeys(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, tc := range []struct {
		e       Event
		id, key string
	}{
		{Event{Source: "/a", ID: "1"}, "/a 1", ""},
		{Event{Source: "/a", ID: "1 2", Subject: "s"}, "/a 1 2", "/a s"},
		{Event{Source: "/a", ID: "1", Subject: "s", Extensions: map[string]string{"partitionkey": "p"}}, "/a 1", "p"},
		{Event{Source: "/a", ID: long + "yz", Subject: ""}, "/a " + long + "yz", ""},
	} {
		if tc.e.MessageID() != tc.id || tc.e.Key() != tc.key {
			t.Errorf("%+v: %q, %q", tc.e, tc.e.MessageID(), tc.e.Key())
		}
	}
	seen := map[string]bool{}
	for _, e := range []Event{{Source: "/a", ID: long + "abc"}, {Source: "/a", ID: long + "abd"}, {Source: "/b", ID: long + "abc"}, {Source: long + long, ID: "1"}} {
		id := e.MessageID()
		if len(id) > semel.MaxIDBytes || strings.Contains(id, " ") || seen[id] {
			t.Errorf("long id %q", id)
		}
		seen[id] = true
		e.Extensions = map[string]string{"partitionkey": e.ID + e.Source}
		if k := e.Key(); len(k) > semel.MaxIDBytes && len(e.ID+e.Source) > 0 {
			t.Errorf("long key %q", k)
		}
	}
}

// FuzzParse: whatever is taken is an event by the letter, and stays the same
// when it is decoded, in whichever form.
func FuzzParse(f *testing.F) {
	f.Add([]byte(envelope(`"data":{"a":1},"x":true`)), "")
	f.Add([]byte(envelope(`"data_base64":"AA=="`)), "application/cloudevents+json")
	f.Add([]byte(`{"a":{"b":1,"b":2}}`), "text/plain")
	f.Add([]byte(envelope(`"subject":"\ud83d\ude00"`)), "")
	f.Fuzz(func(t *testing.T, body []byte, media string) {
		var h semel.Header
		if media != "" {
			h = fields("content-type", media)
		}
		before := bytes.Clone(body)
		d := semel.Delivery{Message: semel.Message{Header: h, Body: body}}
		err := Decode(&d)
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if class, _ := semel.ClassOf(err); class != semel.ClassInvalid {
				t.Fatalf("%v is not Invalid", err)
			}
			return
		}
		if !json.Valid(bytes.TrimPrefix(body, []byte("\ufeff"))) {
			t.Fatalf("%q was taken", body)
		}
		if len(d.ID) == 0 || len(d.ID) > semel.MaxIDBytes || len(d.Key) > semel.MaxIDBytes || d.Type == "" || d.Source == "" {
			t.Fatalf("%+v", d)
		}
		again := d
		if v, _ := header(d.Header, contentType); !strings.HasPrefix(bareType(v), "application/cloudevents") {
			if err := Decode(&again); err != nil || !reflect.DeepEqual(again.Message, d.Message) {
				t.Fatalf("decoded again: %v\n%+v\n%+v", err, again, d)
			}
		}
	})
}
