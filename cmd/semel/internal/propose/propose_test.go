package propose

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/semel-dev/semel/examples/flights"
	"github.com/semel-dev/semel/examples/webhooks"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

const repository = "../../../../"

// study looks at a path.
func study(t *testing.T, path string) *Study {
	t.Helper()
	s, err := Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return NewStudy(s)
}

// write makes files in a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// first is what is proposed: "id, key, version as".
func proposed(st *Study) string {
	ids, _ := st.IDs()
	if len(ids) == 0 {
		return "nothing"
	}
	s := ids[0].Expr
	keys := st.Keys(ids[0].Expr)
	if len(keys) == 0 {
		return s
	}
	s += ", " + keys[0].Expr
	if versions, _ := st.Versions(keys[0].Expr); len(versions) > 0 {
		s += ", " + versions[0].Expr + " " + versions[0].As
	}
	return s
}

func wantReason(t *testing.T, not []Rejected, expr, why string) {
	t.Helper()
	for _, r := range not {
		if r.Expr == expr && strings.Contains(r.Why, why) {
			return
		}
	}
	t.Errorf("%s is not refused because %q: %+v", expr, why, not)
}

// TestFlights: the proposal is that of examples/flights/flights.yaml.
func TestFlights(t *testing.T) {
	const want = `.flight + "/" + (.seq | tostring), .flight, .seq integer`
	st := study(t, repository+"examples/flights/events.ndjson.gz")
	if got := proposed(st); got != want {
		t.Errorf("lines: proposed is\n%s, want\n%s", got, want)
	}
	if st.Sample.Format.Files != "lines" || !st.Sample.More || st.Messages() != MaxMessages {
		t.Errorf("%d messages, %v, more: %v", st.Messages(), st.Sample.Format, st.Sample.More)
	}
	ids, _ := st.IDs()
	if why := strings.Join(ids[0].Why, " "); !strings.Contains(why, "none of its parts is enough: .flight has 6") {
		t.Errorf("reasons: %s", why)
	}
	_, not := st.Versions(".flight")
	wantReason(t, not, ".at", "without a zone")

	dir := t.TempDir()
	if _, err := (flights.Inbox{Root: dir, Seed: 1, Again: 0.05}).Deliver(); err != nil {
		t.Fatal(err)
	}
	st = study(t, dir)
	if got := proposed(st); got != want {
		t.Errorf("files: proposed is\n%s, want\n%s", got, want)
	}
	versions, _ := st.Versions(".flight")
	if why := strings.Join(versions[0].Why, " "); !strings.Contains(why, "messages come after a newer one") {
		t.Errorf("the disorder is not told: %s", why)
	}
}

// TestEarthquakes: the proposal is that of the test of the binary.
func TestEarthquakes(t *testing.T) {
	st := study(t, repository+"test/inputs/earthquakes.ndjson.gz")
	if got, want := proposed(st), `.id + "/" + (.updated | tostring), .id, .updated integer`; got != want {
		t.Errorf("proposed is\n%s, want\n%s", got, want)
	}
	_, not := st.IDs()
	wantReason(t, not, ".updated", "time")
}

// TestWebhooks: a payload has no id, and the part of the file's name has one.
func TestWebhooks(t *testing.T) {
	dir := t.TempDir()
	if _, err := (webhooks.Inbox{Root: dir, Seed: 1, Again: 0.1}).Deliver(); err != nil {
		t.Fatal(err)
	}
	if got, want := proposed(study(t, dir)), `$meta.file | split(".")[1]`; got != want {
		t.Errorf("proposed is\n%s, want\n%s", got, want)
	}
}

// lines makes messages of a format with the number of the message.
func lines(n int, format func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(format(i) + "\n")
	}
	return b.String()
}

func uuid(i int) string { return fmt.Sprintf("9b1deb4d-3b7d-4bad-9bdd-%012x", i*7919) }

func TestProposals(t *testing.T) {
	for name, c := range map[string]struct{ messages, want string }{
		"event about an entity": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"event_id":%q,"order":{"id":"o-%d","revision":%d},"status":"paid"}`, uuid(i), i%10, i/10)
		}), ".event_id, .order.id, .order.revision integer"},
		"camel case, versions are times": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"eventId":%q,"orderId":"o-%d","updatedAt":"2024-01-01T00:%02d:00+02:00"}`, uuid(i), i%10, i)
		}), ".eventId, .orderId, .updatedAt time"},
		"times in two formats": {lines(40, func(i int) string {
			at := fmt.Sprintf(`"2024-01-01T00:%02d:00Z"`, i)
			if i%2 == 0 {
				at = fmt.Sprint(1704067200 + 60*i)
			}
			return fmt.Sprintf(`{"id":%q,"device":"d-%d","updated":%s}`, uuid(i), i%10, at)
		}), ".id, .device, .updated time"},
		"states of records": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"id":"c-%d","version":%d,"name":"n"}`, i, 1+i%3)
		}), `.id + "/" + (.version | tostring), .id, .version integer`},
		"states that repeat": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"id":"c-%d","version":%d,"name":"n %d"}`, i%10, i/10, i)
		}), `.id + "/" + (.version | tostring), .id, .version integer`},
		"named events are no states": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"id":"e-%d","event_type":"created","version":%d}`, i*31, 1+i%3)
		}), ".id"},
		"a separator that the parts do not have": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"sku":"a/%d","seq":%d,"x":%d}`, i%10, i/10, i%3)
		}), `.sku + "|" + (.seq | tostring), .sku, .seq integer`},
		"three parts": {lines(64, func(i int) string {
			return fmt.Sprintf(`{"site":"s%d","belt":"l%d","unit":%d,"note":"all of them %d"}`, i%4, i/4%4, i/16*5, i)
		}), `(.unit | tostring) + "/" + .site + "/" + .belt`},
		"weird names": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"event id":%q,"a.b":{"order\u0000id":"o%d","if":1}}`, uuid(i), i%7)
		}), `."event id", ."a.b"."order\u0000id"`},
		"only numbers of a log": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"offset":%d,"at":"2024-01-01T00:%02d:00Z"}`, i, i)
		}), `$meta.file + "/" + ($meta.position | tostring)`},
		"versions of something else": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"id":"x%d","schema_version":%d,"apiVersion":2}`, i*3, 1+i%2)
		}), ".id"},
		"CloudEvents": {lines(40, func(i int) string {
			return fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"/shop/%d","type":"paid","data":{"n":%d}}`, i/4, i%4, i)
		}), `.source + "|" + .id`},
		"one message": {`{"event_id":"x","order":{"id":1}}` + "\n", ".event_id, .order.id"},
		"a scalar":    {"\"a\"\n\"b\"\n\"c\"\n\"d\"\n\"e\"\n\"f\"\n", "."},
	} {
		t.Run(name, func(t *testing.T) {
			st := study(t, filepath.Join(write(t, map[string]string{"a.ndjson": c.messages}), "a.ndjson"))
			got := proposed(st)
			if got != c.want {
				t.Errorf("proposed is %s, want %s", got, c.want)
			}
		})
	}
}

// TestWhatIsNoID: each reason against an id is found and told.
func TestWhatIsNoID(t *testing.T) {
	st := study(t, write(t, map[string]string{"a.ndjson": lines(30, func(i int) string {
		id := ""
		if i > 3 {
			id = fmt.Sprintf(`"delivery_id":%q,`, uuid(i))
		}
		return fmt.Sprintf(`{%s"event_id":%d,"order_id":"o%d","id":%d.5,"at":"2024-01-01T00:%02d:00Z","offset":%d,"sha256":"%064x","title":"the words %d"}`, id, i+1, i%9, i, i, i*3, i, i)
	})}))
	ids, not := st.IDs()
	if ids[0].Expr != ".event_id" || len(ids[0].Warnings) != 1 || !strings.Contains(ids[0].Warnings[0], "counts up") {
		t.Errorf("a counter is taken without a warning: %+v", ids[0])
	}
	for _, c := range ids {
		if c.Expr != ".event_id" {
			t.Errorf("proposed as well: %+v", c)
		}
	}
	wantReason(t, not, ".order_id", "repeats 21 times with other content")
	wantReason(t, not, ".id", "fraction")
	wantReason(t, not, ".at", "time")
	wantReason(t, not, ".offset", "where a message stands")
	wantReason(t, not, ".sha256", "hash")
	for _, c := range []struct{ path, why string }{{".delivery_id", "absent in 4 of 30"}, {".title", "text"}} {
		for _, f := range st.fields {
			if f.expr == c.path && !strings.Contains(st.notID(f), c.why) {
				t.Errorf("%s: %q, want %q", c.path, st.notID(f), c.why)
			}
		}
	}
}

// TestRepeats: copies speak for an id, the same id with other content against
// it.
func TestRepeats(t *testing.T) {
	for body, want := range map[string]string{
		`{"code":"c%d","n":1}`: "repeats 10 times, each time with the same content",
	} {
		st := study(t, write(t, map[string]string{"a.ndjson": lines(40, func(i int) string { return fmt.Sprintf(body, i%30) })}))
		ids, _ := st.IDs()
		if ids[0].Expr != ".code" || !strings.Contains(strings.Join(ids[0].Why, " "), want) {
			t.Errorf("%s: %+v", body, ids)
		}
	}
	st := study(t, write(t, map[string]string{"a.ndjson": lines(40, func(i int) string { return fmt.Sprintf(`{"code":"c%d","word":"w%d"}`, i%30, i) })}))
	_, not := st.IDs()
	wantReason(t, not, ".code", "with other content")
}

func TestTies(t *testing.T) {
	text := lines(60, func(i int) string {
		return fmt.Sprintf(`{"event_id":%q,"order_id":"o%d","revision":%d}`, uuid(i), i%20, i/20)
	})
	for ties, proposed := range map[int]bool{0: true, 3: true, 30: false} {
		more := lines(ties, func(i int) string {
			return fmt.Sprintf(`{"event_id":%q,"order_id":"o%d","revision":0}`, uuid(1000+i), i%20)
		})
		st := study(t, write(t, map[string]string{"a.ndjson": text + more}))
		versions, not := st.Versions(".order_id")
		if got := st.Ties(".order_id", ".revision", "integer"); got != ties {
			t.Errorf("%d ties counted, want %d", got, ties)
		}
		switch {
		case !proposed:
			wantReason(t, not, ".revision", "does not order")
		case len(versions) != 1 || versions[0].Ties != ties || (len(versions[0].Warnings) > 0) != (ties > 0):
			t.Errorf("%d ties: %+v", ties, versions)
		}
	}
}

// TestFormats: how files hold messages is found out.
func TestFormats(t *testing.T) {
	pack := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		file, body string
		n          int
		format     string
	}{
		"a message":            {"a.json", `{"a":1}`, 1, "whole"},
		"over several lines":   {"a.json", "{\n \"a\":1}\n", 1, "whole"},
		"lines":                {"a.json", "{\"a\":1}\n\n{\"a\":2}\n", 2, "lines"},
		"one line":             {"a.ndjson", "{\"a\":1}\n", 1, "lines"},
		"lines, one is broken": {"a.jsonl", "{\n{\"a\":2}\n", 2, "lines"},
		"gzip of lines":        {"a.gz", pack("{\"a\":1}\n{\"a\":2}\n"), 2, "lines"},
		"gzip of one line":     {"a.json.gz", pack("{\"a\":1}"), 1, "lines"},
		"an array":             {"a.json", `[{"a":1},{"a":2},{"a":3}]`, 3, "array"},
		"an array over lines":  {"a.json", "[\n{\"a\":1},\n{\"a\":2}\n]", 2, "array"},
		"lines of arrays":      {"a.json", "[{\"a\":1}]\n[{\"a\":1}]\n", 2, "lines"},
		"gzip of an array":     {"a.gz", pack(`[{"a":1},{"a":2}]`), 2, "array"},
		"numbers":              {"a.json", "[1,2]", 1, "whole"},
		"CSV":                  {"a.csv", "a;b,c;d\n1;2;3\n4;5;6\n", 2, "csv ;"},
		"TSV":                  {"a.tsv", "a\tb\n1\t2\n", 1, "csv \t"},
		"gzip of CSV":          {"a.csv.gz", pack("a,b\n1,2\n"), 1, "csv ,"},
		"a mark":               {"a.json", "\xef\xbb\xbf{\"a\":1}", 1, "whole"},
	} {
		s, err := Read(t.Context(), filepath.Join(write(t, map[string]string{c.file: c.body}), c.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.TrimRight(s.Format.Files+" "+string(rune(s.Format.Delimiter)), " \x00"); len(s.Documents) != c.n || got != c.format || len(s.Notes) > 0 {
			t.Errorf("%s: %d documents, %q, notes %q", name, len(s.Documents), got, s.Notes)
		}
	}
}

// TestHostile: nothing of what can be in a directory stops or fills the
// machine, and each has a reason that does not quote it.
func TestHostile(t *testing.T) {
	for name, body := range map[string]string{
		"empty":          "",
		"truncated":      `{"secret":`,
		"deep":           strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		"not UTF-8":      "{\"secret\":\"\xff\"}",
		"key twice":      `{"secret":1,"secret":2}`,
		"binary":         "\x00\x01\x7fELF secret",
		"too large":      `{"secret":"` + strings.Repeat("x", message.DefaultMaxBytes) + `"}`,
		"endless number": strings.Repeat("9", 100_000),
		"broken gzip":    "\x1f\x8b\x08secret",
	} {
		dir := write(t, map[string]string{"x": body})
		s, err := Read(t.Context(), dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Documents) != 1 || s.Documents[0].Problem == nil || strings.Contains(s.Documents[0].Problem.Error(), "secret") {
			t.Errorf("%s: %d documents, %v", name, len(s.Documents), s.Documents[0].Problem)
		}
		if st := NewStudy(s); proposed(st) != "nothing" || len(st.Columns()) > 0 {
			t.Errorf("%s: something is proposed", name)
		}
	}
	for name, body := range map[string]string{
		"a line of 10 MB": `{"id":"a","t":"` + strings.Repeat("x", 10_000_000) + `"}`,
		"many fields":     "{" + strings.TrimSuffix(lines(20_000, func(i int) string { return fmt.Sprintf(`"updated_%d":%d,`, i, i) }), ",\n") + `,"id":1}`,
		"many nested":     strings.Repeat(`{"id":`, 99) + "1" + strings.Repeat("}", 99),
	} {
		st := study(t, write(t, map[string]string{"x.json": body}))
		if st.Messages() != 1 || len(st.fields) > maxFields || len(st.places) > maxPlaces {
			t.Errorf("%s: %d messages, %d fields, %d places", name, st.Messages(), len(st.fields), len(st.places))
		}
	}
}

// TestTypesThatDiffer: a path that leads elsewhere in some message is no field.
func TestTypesThatDiffer(t *testing.T) {
	st := study(t, write(t, map[string]string{"a.ndjson": `{"id":"a","order":{"id":1},"n":1,"mixed":1,"gone":null}
{"id":"b","order":"o2","n":[1],"mixed":"x","gone":null}
{"id":"c","order":null,"n":null,"mixed":true}
`}))
	var found []string
	for _, c := range st.Columns() {
		found = append(found, fmt.Sprintf("%s:%d", c.Expr, c.Type))
	}
	if got, want := strings.Join(found, " "), fmt.Sprintf(".id:%d .mixed:%d", TypeText, TypeAny); got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
}

func TestPathIsJQ(t *testing.T) {
	for _, name := range []string{"a", "", "a b", "a.b", `a"b`, `a\b`, `\(.x)`, "a\x00b", "a\nb", "名前", "🎈", "\u202eabc", "if", "and", "0a", "$__loc__", "'", "\x7f", "nan"} {
		for _, path := range [][]string{{name}, {"x", name}, {name, name}} {
			e, err := message.Compile("x", Path(path))
			if err != nil {
				t.Errorf("%q: %s: %v", path, Path(path), err)
				continue
			}
			if strings.ContainsFunc(Path(path), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q does not print", Path(path))
			}
			body, want := "1", "1"
			for i := len(path) - 1; i >= 0; i-- {
				body = fmt.Sprintf(`{%s:%s}`, Quote(path[i]), body)
			}
			d := (&Document{Body: []byte(body)}).Delivery()
			if err := message.NewDecoder(message.Rules{ID: e}).Decode(d); err != nil || d.ID != want {
				t.Errorf("%s of %s is %q, %v", Path(path), body, d.ID, err)
			}
		}
	}
}

func TestPick(t *testing.T) {
	all := make([]string, 1000)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	got := pick(all, 10)
	if fmt.Sprint(got) != "[0 1 2 3 4 5 204 403 602 801]" {
		t.Error(got)
	}
}
