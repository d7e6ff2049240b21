package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestObjects: objects one a line or over several; what is broken costs only
// itself.
func TestObjects(t *testing.T) {
	huge := `{"a":"` + strings.Repeat("x", maxRecord) + `"}`
	for in, want := range map[string]string{
		"":                                     "",
		"\n \r\n\n":                            "",
		"{\"a\":1}\n{\"b\":2}":                 `1 {"a":1}|2 {"b":2}`,
		"\ufeff{\"a\":1}\n\ufeff{\"b\":2}":     "1 {\"a\":1}|2 \ufeff{\"b\":2}",
		"\xef\xbb":                             "1 \xef\xbb",
		"{\"a\":1}\r\n":                        `1 {"a":1}`,
		"\n{\n  \"a\": [\n 1 ]\n}\n{\"b\":2}":  `2 {   "a": [  1 ] }|6 {"b":2}`,
		"{\"a\": \"}{\\\" \"}\n{\"b\":2}\n":    `1 {"a": "}{\" "}|2 {"b":2}`,
		"{\"a\":\n{\"b\":2}\n":                 `1 ! it has no end: a line of letters export has to be whole|2 {"b":2}`,
		"{\"a\":\"\n{\"b\":2}":                 `1 ! it has no end: a line of letters export has to be whole|2 {"b":2}`,
		"{\"a\":1":                             `1 ! it has no end: a line of letters export has to be whole`,
		"17\nx\n{\"b\":2}":                     `1 17|2 x|3 {"b":2}`,
		"}}}\n{\"b\":2}":                       `1 }}}|2 {"b":2}`,
		huge + "\n{\"b\":2}\n":                 `1 ! it is longer|2 {"b":2}`,
		"{\"a\":\n" + huge[5:] + "\n{\"b\":2}": `1 ! it is longer|3 {"b":2}`,
	} {
		var got []string
		for r := newObjects(strings.NewReader(in)); ; {
			o, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(o.text), "\n", " "))
			if o.err != nil {
				text = "! " + o.err.Error()
			}
			got = append(got, fmt.Sprintf("%d %s", o.line, strings.TrimSuffix(text, fmt.Sprintf(" than %d bytes", maxRecord))))
		}
		if all := strings.Join(got, "|"); all != want {
			t.Errorf("%.60q: %q, want %q", in, all, want)
		}
	}
}

// TestObjectsTellFaults: a source that cannot be read is no end.
func TestObjectsTellFaults(t *testing.T) {
	broken := errors.New("input/output error")
	r := newObjects(io.MultiReader(strings.NewReader("{\"a\":1}\n"), &failing{broken}))
	if o, err := r.next(); err != nil || o.line != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := r.next(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestSameBody(t *testing.T) {
	for _, c := range []struct {
		have, imported string
		same           bool
	}{
		{`{"a":1}`, `{"a":1}`, true}, {"{\n \"a\" : 1 }", `{"a":1}`, true}, {`{"a":1.0}`, `{"a":1}`, true}, {`{"a":1e3}`, `{"a":1000}`, true},
		{`{"a":"\u00e9\/"}`, `{"a":"é/"}`, true}, {`-0`, `0`, true}, {"x", "x", true}, {"\xff", "\xff", true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false}, {`{"a":1}`, `{"a":"1"}`, false}, {`{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
		{`{"a":1}`, `{"a":1,"b":2}`, false}, {`[1,2]`, `[1]`, false}, {`null`, `false`, false}, {"x", "x ", false}, {`{"a":1,"a":2}`, `{"a":2}`, false}, {``, ` `, false},
		{`{"a":[]}`, `{"a":{}}`, false},
	} {
		if got := sameBody([]byte(c.have), []byte(c.imported)); got != c.same {
			t.Errorf("%s and %s: %v", c.have, c.imported, got)
		}
		if got := sameBody([]byte(c.imported), []byte(c.have)); got != c.same {
			t.Errorf("%s and %s: %v", c.imported, c.have, got)
		}
	}
	if sameBody(nil, []byte{}) || sameBody([]byte{}, nil) || !sameBody(nil, nil) {
		t.Error("a tombstone is taken for an empty body")
	}
}

func TestChanges(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":1}`, `{"a":2}`, ".a"}, {`{"a":{"b":[1,2]}}`, `{"a":{"b":[1,3]}}`, ".a.b[1]"}, {`{"a":1}`, `{"b":1}`, ".a, .b"}, {`1`, `2`, "."},
		{`{"a":1.0,"b":"x"}`, `{"a":1,"b":"y"}`, ".b"}, {`{"a":[1]}`, `{"a":[1,2]}`, ".a"}, {`{"a":[1]}`, `{"a":{"b":1}}`, ".a"}, {`{"a":null}`, `{"a":[]}`, ".a"},
		{`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, `{}`, "…"}, {`no`, `{}`, ""},
	} {
		if got := changes([]byte(c[0]), []byte(c[1])); got != c[2] && !(c[2] == "…" && strings.HasSuffix(got, ", …")) {
			t.Errorf("%s to %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestChainTellsOnce(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"decode: f@1: not JSON\nnot JSON": "decode: f@1: not JSON",
		"a: b: c\nb: c\nc":                "a: b: c",
		"sorry\nthe cause":                "sorry\nthe cause",
		"outer: b\nb\nunrelated\nrelated": "outer: b\nunrelated",
	} {
		if got := chain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestShellWord: a shell reads back what was written.
func TestShellWord(t *testing.T) {
	for _, w := range []string{"plain", "", "a b", "it's", `"$x" \ *`, "age>1h", "changed<=2026-11-30T10:00:00.123Z", "ü\n", "a/b-c_d.e=f,g@h+i%j", "!x", "~"} {
		out, err := exec.Command("/bin/sh", "-c", "printf '%s' "+shellWord(w)).Output()
		if err != nil || string(out) != w {
			t.Errorf("%q became %s, read back as %q, %v", w, shellWord(w), out, err)
		}
	}
}

func TestSteps(t *testing.T) {
	var w bytes.Buffer
	s := newSteps("ord\x1bers", &w)
	if s.live {
		t.Fatal("a buffer is not a terminal")
	}
	s.advance(100, 1000)
	s.at = time.Now().Add(-plainEvery)
	s.advance(200, 1000)
	s.advance(300, 1000)
	if got := w.String(); got != `ord\x1bers: 200 of 1,000 letters`+"\n" {
		t.Errorf("%q: want a line now and then", got)
	}
	w.Reset()
	s.live = true
	s.advance(400, 1000)
	s.say("hello")
	if got := w.String(); got != "\r\x1b[K"+`ord\x1bers  400 of 1,000 letters`+"\r\x1b[K"+`ord\x1bers: hello`+"\n" {
		t.Errorf("%q", got)
	}
}

// TestLettersOfOneCause shows what people see: the error once, the group
// everywhere, the plan, and both ways to say which letters.
func TestLettersOfOneCause(t *testing.T) {
	b := newBench(t, pipeline)
	for i := range 3 {
		b.deliver(fmt.Sprintf("r%d.json", i), fmt.Sprintf(`{"id":"r%d","key":"k","n":%d}`, i, 200+i))
	}
	b.deliver("bad.json", `{`)
	b.want(exitDead, "run FILE --once")
	out := b.want(exitDone, "letters groups FILE", "GROUP", "3     3      business  permanent", "1     1      format    invalid")
	group := strings.Fields(strings.Split(out, "\n")[1])[0]
	out = b.want(exitDone, "letters show FILE "+b.ref("class=format"), "group")
	if n := strings.Count(out, "not valid JSON"); n != 1 {
		t.Errorf("the error is told %d times:\n%s", n, out)
	}
	b.want(exitDone, "letters count FILE state=open", "total                4", "business, permanent  3")
	b.want(exitDone, "letters groups FILE .n>1000", "no letters that failed")
	b.want(exitDone, "letters list FILE id=r1", "r1")
	b.want(exitDone, "letters list FILE "+b.ref("id=r1")[:7], "r1")
	b.want(exitUsage, "letters replay FILE abc class=format", "exclude each other", "such as ref=abc")
	b.want(exitUsage, "letters replay FILE", "references, or a filter")
	b.want(exitUsage, "letters export FILE clss=x", "did you mean class?")
	b.want(exitDone, "letters discard FILE class=format state=closed --reason x --dry-run", "0 letters would be discarded\n")
	b.want(exitDone, "letters replay FILE group="+group+" --dry-run", "3 letters would be replayed (3 business, permanent)", "3  "+group+"  handle: constraint failed", "--expect ")
	b.want(exitUsage, "letters replay FILE group="+group+" --yes --expect aaaaaaaa", "the selection has changed")
	b.want(exitUsage, "letters import FILE a b", "one PATH at most")
	b.want(exitUsage, "letters import FILE "+b.dir+"/none", "no such file")
	b.want(exitUsage, "letters show FILE x --original", "goes with --body")
	b.want(exitUsage, "letters replay FILE class=business --yes --as source", "another name")
	b.want(exitUsage, "letters import FILE --note started", "say more")
	ref := b.ref("class=format")
	b.want(exitDone, "letters replay FILE "+ref+" "+ref[:8]+" --dry-run", "1 letter would be replayed")
	b.in = "{}\n"
	b.want(exitDead, "letters import FILE -", "line 1: refused: it has no ref and version", "0 proposed, 0 unchanged, 1 refused")
}

// ref is the reference of the one letter that a filter means.
func (b *bench) ref(filter string) string {
	b.t.Helper()
	var l letterJSON
	if err := json.Unmarshal([]byte(b.want(exitDone, "letters list FILE --json "+filter)), &l); err != nil {
		b.t.Fatal(err)
	}
	return l.Ref
}

// TestJSONOfLetters: the fields that docs/operate/cli.md promises are there.
func TestJSONOfLetters(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("r.json", `{"id":"r","key":"k","n":200}`)
	b.want(exitDead, "run FILE --once")
	b.in = strings.Replace(b.want(exitDone, "letters export FILE"), `"n":200`, `"n":20`, 1)
	ref := b.ref("id=r")
	common := "attempts class created error failed group id key origin reason ref seen state updated"
	for _, c := range []struct {
		line string
		want []string // fields of each line of output
	}{
		{"letters list FILE --json", []string{common}},
		{"letters groups FILE --json", []string{"class first group last open reason states text total"}},
		{"letters count FILE --json", []string{"reasons states total"}},
		{"letters export FILE", []string{"attempts class created error group id json key origin pipeline reason ref state version"}},
		{"letters discard FILE state=dead --reason x --dry-run --json", []string{"count groups refs selection verb"}},
		{"letters import FILE --json --dry-run", []string{"changed line ref result", "proposed refused replayed unchanged"}},
		{"letters import FILE --json --as ann", []string{"changed line ref result", "proposed refused replayed unchanged"}},
		{"letters show FILE --json " + ref, []string{"attempts body by class created error failed group id key origin proposed reason ref revisions seen state updated"}},
		{"letters replay FILE --json " + ref, []string{"ref result", "done left refused selection"}},
		{"letters show FILE --json " + ref, []string{"attempts body by class created due error failed group id key origin reason ref revised revisions seen state updated"}},
	} {
		var got []string
		for l := range strings.Lines(b.want(exitDone, c.line)) {
			var m map[string]json.RawMessage
			if err := json.Unmarshal([]byte(l), &m); err != nil {
				t.Fatalf("%s: %q: %v", c.line, l, err)
			}
			got = append(got, strings.Join(slices.Sorted(maps.Keys(m)), " "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n has  %q\n want %q", c.line, got, c.want)
		}
	}
	text, err := os.ReadFile("../../../../docs/operate/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields("group class reason text first last open total states reasons n header body body_base64 revisions ref result error selection done refused left resume verb count groups refs line changed unchanged proposed replayed") {
		if !strings.Contains(string(text), "`"+field+"`") && !strings.Contains(string(text), `"`+field+`"`) {
			t.Errorf("docs/operate/cli.md does not tell %s", field)
		}
	}
}
