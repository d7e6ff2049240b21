package filebroker

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// formats are those with a splitter.
var formats = []struct {
	name  string
	files Files
}{{"lines", Lines}, {"array", Array}, {"csv", CSV}}

// pieces hands out a stream in pieces of random sizes.
type pieces struct {
	rest []byte
	rnd  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.rnd.IntN(7))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// split reads a whole stream: a text for every record, and how it ended.
func split(src io.Reader, cfg Config, limit int64, chunk int) (recs []record, end error) {
	r := newReader(src, cfg.withDefaults().splitter(), 0, limit, chunk)
	for {
		rec, err := r.next()
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec)
	}
}

func show(recs []record, end error) string {
	var b strings.Builder
	for _, r := range recs {
		fmt.Fprintf(&b, "%d-%d %q %v\n", r.start, r.next, r.body, r.bad)
	}
	return fmt.Sprint(b.String(), end)
}

// checkSplit: any way to cut the stream gives the same records; they lie one
// behind the other; what is between them is no part of any message.
func checkSplit(t *testing.T, cfg Config, content []byte, limit int64, seed uint64) {
	t.Helper()
	recs, end := split(bytes.NewReader(content), cfg, limit, 1<<16)
	want := show(recs, end)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, src := range []io.Reader{iotest.OneByteReader(bytes.NewReader(content)), &pieces{content, rnd}, iotest.DataErrReader(bytes.NewReader(content))} {
		if got := show(split(src, cfg, limit, 1+rnd.IntN(20))); got != want {
			t.Fatalf("content %q, limit %d, cut otherwise:\n got %s\nwant %s", content, limit, got, want)
		}
	}
	at := int64(0)
	for i, r := range recs {
		if r.start < at || r.next <= r.start || r.next > int64(len(content)) {
			t.Fatalf("content %q: record %d at %d-%d after %d", content, i, r.start, r.next, at)
		}
		if r.raw != nil && !bytes.Equal(r.raw, content[r.start:r.next]) {
			t.Fatalf("content %q: record %d is %q", content, i, r.raw)
		}
		if !isBetween(cfg.Files, content[at:r.start], i == 0) {
			t.Fatalf("content %q: %q before record %d is lost", content, content[at:r.start], i)
		}
		at = r.next
	}
	if errors.Is(end, io.EOF) && !isBetween(cfg.Files, content[at:], len(recs) == 0) {
		t.Fatalf("content %q: %q at the end is lost", content, content[at:])
	}
}

// isBetween: the bytes may stand where no record is.
func isBetween(files Files, b []byte, first bool) bool {
	switch files {
	case Array:
		return len(bytes.Trim(b, "[], \t\r\n\xef\xbb\xbf")) == 0
	case CSV:
		if first { // the header
			return true
		}
		return len(bytes.Trim(b, "\r\n")) == 0
	}
	return len(bytes.Trim(b, " \t\r\n")) == 0
}

func fuzzSplit(f *testing.F, files Files, seeds ...string) {
	for i, s := range seeds {
		f.Add([]byte(s), uint8(9+40*i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, content []byte, limit uint8, seed uint64) {
		checkSplit(t, Config{Files: files}, content, int64(limit)+1, seed)
	})
}

func FuzzLines(f *testing.F) { fuzzSplit(f, Lines, "a\nb\n\n c", "\r\n", "long long long\nx") }

func FuzzArray(f *testing.F) {
	fuzzSplit(f, Array, `[{"a":[1,"]\""]}, 2,"x" , null]`, "\ufeff [ ]\n", `[1 2]`, `[{"a":[}]`, `[1,]`, `[`, `[[[]],{}]x`, `["\\",tru{]`)
}

func FuzzCSV(f *testing.F) {
	fuzzSplit(f, CSV, "a,b\n1,2\n", "\ufeffa;b\r\n\"x\"\"y\n\",\"\"\r\n\n1,2,3", "a\n\"x\nno end", "a,a\n1,2", "a\nx\"y\n\"x\"y\n\"ok\"\r", "\n\n\xff\n")
}

// TestSplitHowever tries random streams of the bytes that mean something.
func TestSplitHowever(t *testing.T) {
	alphabets := map[Files]string{Lines: "ab \t\r\n\n", Array: `[]{},," \a1` + "\n", CSV: "ab,,\"\"\r\n\n"}
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			letters := alphabets[f.files]
			for range 4000 {
				b := make([]byte, rnd.IntN(40))
				for i := range b {
					b[i] = letters[rnd.IntN(len(letters))]
				}
				switch f.files {
				case Array:
					b = append([]byte("["), b...)
				case CSV:
					b = append([]byte("x,y\n"), b...)
				}
				checkSplit(t, Config{Files: f.files}, b, int64(1+rnd.IntN(30)), rnd.Uint64())
			}
		})
	}
}

// TestArrayAgainstJSON: what package json finds in valid arrays, with white
// space of every kind, byte for byte.
func TestArrayAgainstJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		content := randomSpace(rnd) + "[" + randomSpace(rnd)
		n := rnd.IntN(5)
		for i := range n {
			if i > 0 {
				content += "," + randomSpace(rnd)
			}
			content += randomValue(rnd, 3) + randomSpace(rnd)
		}
		content += "]" + randomSpace(rnd)
		var want []json.RawMessage
		if err := json.Unmarshal([]byte(content), &want); err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		recs, end := split(strings.NewReader(content), Config{Files: Array}, 1<<20, 64)
		if !errors.Is(end, io.EOF) || len(recs) != len(want) {
			t.Fatalf("%q: %d elements and %v, want %d", content, len(recs), end, len(want))
		}
		for i := range recs {
			if !bytes.Equal(recs[i].body, want[i]) || recs[i].bad != nil {
				t.Fatalf("%q: element %d is %q, %v, want %q", content, i, recs[i].body, recs[i].bad, want[i])
			}
		}
	}
}

func randomSpace(rnd *rand.Rand) string {
	return strings.Repeat(" \t\r\n"[rnd.IntN(4):][:1], rnd.IntN(3))
}

func randomValue(rnd *rand.Rand, depth int) string {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rnd.IntN(kinds) {
	case 0:
		return []string{"1", "-2.5e+3", "0"}[rnd.IntN(3)]
	case 1:
		return []string{"true", "false", "null"}[rnd.IntN(3)]
	case 2:
		return []string{`"a"`, `""`, `"[,]"`, `"\""`, `"\\"`, `"é\u00e9}"`}[rnd.IntN(6)]
	case 3:
		return []string{"[]", "{}", "[ ]"}[rnd.IntN(3)]
	case 4:
		return "[" + randomSpace(rnd) + randomValue(rnd, depth-1) + "," + randomValue(rnd, depth-1) + "]"
	}
	return `{"k":` + randomValue(rnd, depth-1) + randomSpace(rnd) + `,"]":` + randomValue(rnd, depth-1) + "}"
}

// TestCSVAgainstCSV: what package csv reads, of records that it writes.
func TestCSVAgainstCSV(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		var content bytes.Buffer
		w := csv.NewWriter(&content)
		w.UseCRLF = rnd.IntN(2) == 0
		w.Comma = []rune(",;\t|")[rnd.IntN(4)]
		names := []string{"id", "a b", `q"uote`, "comma,", "é"}[:1+rnd.IntN(5)]
		rows := [][]string{names}
		for range rnd.IntN(6) {
			row := make([]string, len(names))
			for i := range row {
				// package csv makes CRLF of LF even within quotes, so there is none.
				row[i] = []string{"1", "", " x ", `say "hi"`, "a,b;c\td|e", "ünï", "\x00\x1f\\"}[rnd.IntN(7)]
			}
			if len(row) > 1 || row[0] != "" {
				rows = append(rows, row)
			}
		}
		if err := w.WriteAll(rows); err != nil {
			t.Fatal(err)
		}
		recs, end := split(&content, Config{Files: CSV, Delimiter: byte(w.Comma)}, 1<<20, 64)
		if !errors.Is(end, io.EOF) || len(recs) != len(rows)-1 {
			t.Fatalf("%q: %d records and %v", rows, len(recs), end)
		}
		for i, r := range recs {
			if r.bad != nil {
				t.Fatalf("%q: %v", rows, r.bad)
			}
			if got := inOrder(t, r.body); !slices.Equal(got, pairs(names, rows[i+1])) {
				t.Fatalf("record %q became %s", rows[i+1], r.body)
			}
		}
	}
}

// inOrder returns names and values of an object of strings as they stand.
func inOrder(t testing.TB, body []byte) (all []string) {
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if s, ok := tok.(string); ok {
			all = append(all, s)
		}
	}
}

func pairs(names, values []string) (all []string) {
	for i := range names {
		all = append(all, names[i], values[i])
	}
	return all
}

// TestMalformedCSV: a record that cannot be used is one, wherever its line
// ends; what makes the rest unreadable says how many were taken before.
func TestMalformedCSV(t *testing.T) {
	const long = "ab,cd\n1,2\n"
	for _, tc := range []struct{ content, want string }{
		{"a,b\n1,2\n", `{"a":"1","b":"2"}`},
		{"a,b\n1,2", `{"a":"1","b":"2"}`},
		{"\ufeff\"a\",b\r\n1,\"2\r\n3\"\r\n", `{"a":"1","b":"2\r\n3"}`},
		{"a,b\n\n\r\n1,2\n\n", `{"a":"1","b":"2"}`},
		{"a\n\"\"\n", `{"a":""}`},
		{"a,b\n,\n", `{"a":"","b":""}`},
		{"a,b\n1\n3,4\n", `line 2: 1 fields, and the header has 2|{"a":"3","b":"4"}`},
		{"a,b\n1,2,3\n3,4\n", `line 2: 3 fields, and the header has 2|{"a":"3","b":"4"}`},
		{"a,b\n1,x\"y\n3,4\n", `line 2: field 2: a quote in a field|{"a":"3","b":"4"}`},
		{"a,b\n\"x\"y,2\n3,4\n", `line 2: field 1: something follows the quote|{"a":"3","b":"4"}`},
		{"a,b\n\"x\"y\",2\n3,4\n", `line 2: field 1: something follows the quote|{"a":"3","b":"4"}`},
		{"a,b\n\"x\n\ny\",2,3\n3,4\n5\n", `line 2: 3 fields|{"a":"3","b":"4"}|line 6: 1 fields`},
		{"a,b\n1\r2,3\n4,5\n", `line 2: field 1: a carriage return|{"a":"4","b":"5"}`},
		{"a,b\n\xff,2\n4,5\n", `line 2: field 1: not UTF-8|{"a":"4","b":"5"}`},
		{"a,b\n" + strings.Repeat("x", 100) + ",2\n4,5\n", `the record has 102 bytes, more than the 60 allowed|{"a":"4","b":"5"}`},
		{"name_of_thirty_bytes_and_more__,b_b_b_b_b\n1234567890,2\n", `the record has 64 bytes, more than the 60 allowed`},
		{long + "1,\"2\n3,4\n", `{"ab":"1","cd":"2"}|!line 3: a quoted field begins there and has no end; 1 records before that were taken`},
		{"", `!there is no line with the names of the columns`},
		{"\n\r\n", `!there is no line with the names of the columns`},
		{"a,b,a\n1,2,3\n", `!line 1: columns 1 and 3 of the header have the same name; 0 records`},
		{"\na,,b\n1,2,3\n", `!line 2: column 2 of the header has no name`},
		{"a,\"b\"x\n1,2\n", `!line 1: the header: field 2: something follows`},
		{"\xff\xfea\x00\n", `!line 1: the header: field 1: not UTF-8`},
		{strings.Repeat("x", 100), `!line 1: the header is too long`},
		{"\"x\n", `!line 1: a quoted field begins there and has no end; 0 records`},
	} {
		checkMalformed(t, Config{Files: CSV}, tc.content, tc.want)
	}
}

func TestBrokenArrays(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{"[]", ""},
		{"\ufeff\n[ 1 , {}\n]\r\n", `1|{}`},
		{`[{a:1},tru,{}]`, `{a:1}|tru|{}`}, // the decoder's to refuse
		{`["` + strings.Repeat("x", 100) + `",2]`, `the element has 102 bytes, more than the 60 allowed|2`},
		{`[1,{"a":[}]`, `1|!byte 9: the array is broken: } closes what was opened with [; 1 elements before that were taken`},
		{`[1 2]`, `1|!byte 3: the array is broken: a comma or ] is expected; 1 elements`},
		{`[1,]`, `1|!byte 3: the array is broken: a value is expected`},
		{`[,1]`, `!byte 1: the array is broken: a value is expected; 0 elements`},
		{`[1,'a']`, `1|!byte 3: the array is broken: a value is expected`},
		{`[1{}]`, `!byte 2: the array is broken: a comma or ] is expected`},
		{`[1,{"a":`, `1|!the array has no end: the file stops at byte 8; 1 elements`},
		{`[1,"a`, `1|!the array has no end`},
		{`[1,2`, `1|!the array has no end`},
		{`[1`, `!the array has no end`},
		{`[1]x`, `1|!byte 3: something follows after the array; 1 elements`},
		{"[1]\n[2]\n", `1|!byte 4: something follows after the array`},
		{`{"a":1}`, `!not a JSON array: it does not begin with [`},
		{" \xbb[]", `!not a JSON array: it does not begin with [`},
		{"\xef\xbb[]", `!not a JSON array: it does not begin with [`},
		{" \n", `!not a JSON array: the file is empty`},
		{"", `!not a JSON array: the file is empty`},
		{"[" + strings.Repeat("[", 20_000), `!byte 10001: an element is nested deeper than 10000`},
	} {
		checkMalformed(t, Config{Files: Array}, tc.content, tc.want)
	}
}

// checkMalformed compares with want: bodies and errors of records, and what
// ends the stream behind an exclamation mark.
func checkMalformed(t *testing.T, cfg Config, content, want string) {
	t.Helper()
	recs, end := split(strings.NewReader(content), cfg, 60, 16)
	var got []string
	for _, r := range recs {
		if r.bad != nil {
			got = append(got, r.bad.Error())
		} else {
			got = append(got, string(r.body))
		}
	}
	if !errors.Is(end, io.EOF) {
		got = append(got, "!"+end.Error())
	}
	var wants []string
	if want != "" {
		wants = strings.Split(want, "|")
	}
	if !slices.EqualFunc(got, wants, strings.HasPrefix) {
		t.Errorf("%.80q:\n got %q\nwant %q", content, got, wants)
	}
	checkSplit(t, cfg, []byte(content), 60, 1)
}

// TestMemoryIsBounded: a stream without end of one record, and one of records
// that are all refused, keep nothing.
func TestMemoryIsBounded(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			head := map[Files]string{Lines: "", Array: `["`, CSV: "a\n\""}[f.files]
			src := io.MultiReader(strings.NewReader(head), io.LimitReader(endless{}, 64<<20), iotest.ErrReader(errors.New("stop")))
			r := newReader(src, Config{Files: f.files}.withDefaults().splitter(), 0, 1000, 4096)
			n := testing.AllocsPerRun(1, func() { r.next() })
			if n > 50 {
				t.Errorf("%v allocations for one record that is not kept", n)
			}
			if len(r.buf)+len(r.tail) > 1<<20 {
				t.Errorf("%d bytes are kept", len(r.buf)+len(r.tail))
			}
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
