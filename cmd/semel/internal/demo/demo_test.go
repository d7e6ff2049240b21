package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestInput holds what makes both sides comparable and the incidents happen.
func TestInput(t *testing.T) {
	for _, inc := range incidents() {
		in := inc.input()
		if !reflect.DeepEqual(in, inc.input()) {
			t.Errorf("%s: another input every time", inc.name)
		}
		distinct := map[string]bool{}
		for _, body := range in.files {
			distinct[body] = true
		}
		if len(distinct) != in.messages || in.redelivered() < 10 {
			t.Errorf("%s: %d distinct bodies of %d files, said to be %d", inc.name, len(distinct), len(in.files), in.messages)
		}
		visits := 0
		for _, n := range inc.visits {
			visits += n
		}
		if visits >= len(in.files) || len(in.files) > 1000 {
			t.Errorf("%s: %d files, killed after %d: the kills would not all happen, or the order of names not be that of delivery", inc.name, len(in.files), visits)
		}
		for _, line := range append(append(inc.naive, inc.limit...), inc.remedy) {
			if utf8.RuneCountInString(line) > 68 {
				t.Errorf("%s: too long for 80 columns: %s", inc.name, line)
			}
		}
	}
}

// TestLateChanges: the input of A3 has as many messages behind a newer one of
// their order as it says, and as many that come again.
func TestLateChanges(t *testing.T) {
	in, newest, seen := changes(), map[string]int{}, map[string]bool{}
	late, again := 0, 0
	for _, body := range in.files {
		var c change
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatal(err)
		}
		switch {
		case seen[c.Event]:
			again++
		case c.Revision < newest[c.Order]:
			late++
		}
		seen[c.Event] = true
		newest[c.Order] = max(newest[c.Order], c.Revision)
	}
	if late != in.late || again != in.redelivered() || late == 0 || again == 0 {
		t.Errorf("%d late and %d again, said to be %d and %d", late, again, in.late, in.redelivered())
	}
}

func good() *Report {
	inc := a3()
	return &Report{Results: []*Result{{
		Incident: "A3", Title: inc.title, Counted: inc.counted, Broken: inc.broken, Messages: 300, Redelivered: 10, Late: 20, Kills: 4, Expected: 100,
		Naive: Side{Counted: 70, Wrong: 30, Kills: 4, ElapsedMS: 900},
		Semel: Side{Counted: 100, Kills: 4, ElapsedMS: 800, Account: &Account{Applied: 280, Superseded: 20, Duplicates: 14, Balanced: true}},
		inc:   &inc,
	}}}
}

// TestVerdict: every number that is wrong is noticed, and so is a naive
// consumer that was right.
func TestVerdict(t *testing.T) {
	if r := good(); true {
		r.conclude()
		if !r.Shown || len(r.Problems) != 0 {
			t.Fatalf("%q", r.Problems)
		}
	}
	for name, c := range map[string]struct {
		spoil func(*Result)
		want  string
	}{
		"semel counted too many": {func(r *Result) { r.Semel.Counted++ }, "semel is WRONG"},
		"semel counted too few":  {func(r *Result) { r.Semel.Counted-- }, "semel is WRONG"},
		"an entity is wrong":     {func(r *Result) { r.Semel.Wrong = 1 }, "semel is WRONG"},
		"semel left a file":      {func(r *Result) { r.Semel.Left = 1 }, "files left: 1"},
		"semel was spared":       {func(r *Result) { r.Semel.Kills = 3 }, "semel was killed 3 times instead of 4"},
		"naive was spared":       {func(r *Result) { r.Naive.Kills = 0 }, "naive was killed 0 times"},
		"nothing is superseded":  {func(r *Result) { r.Semel.Account.Superseded, r.Semel.Account.Applied = 0, 300 }, "account is WRONG"},
		"a message is missing":   {func(r *Result) { r.Semel.Account.Applied-- }, "account is WRONG"},
		"a letter waits":         {func(r *Result) { r.Semel.Account.Letters = 1 }, "account is WRONG"},
		"rows and ledger differ": {func(r *Result) { r.Semel.Account.Balanced = false }, "account is WRONG"},
		"no account":             {func(r *Result) { r.Semel.Account = nil }, "account is WRONG"},
		"the naive one is right": {func(r *Result) { r.Naive.Counted, r.Naive.Wrong = 100, 0 }, "nothing was shown"},
		"the naive one lost":     {func(r *Result) { r.Naive.Left = 1 }, "not fair"},
	} {
		r := good()
		c.spoil(r.Results[0])
		r.conclude()
		if r.Shown || !strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
			t.Errorf("%s: %t, %q, want %q", name, r.Shown, r.Problems, c.want)
		}
		var b bytes.Buffer
		if r.Results[0].Semel.Account != nil {
			r.Print(&b, false)
			if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), "semel is exact") {
				t.Errorf("%s: the text does not say %q:\n%s", name, c.want, &b)
			}
		}
	}
}

func TestPrint(t *testing.T) {
	r := good()
	r.conclude()
	r.ElapsedMS = 1900
	var plain, coloured bytes.Buffer
	r.Print(&plain, false)
	r.Print(&coloured, true)
	want := `                                              expected       naive       semel
A3  orders in their last status                    100          70         100
    orders in an earlier status                      0          30           0
    killed by kill -9                                            4           4
    time                                                     0.9 s       0.8 s

A3  Status goes backwards
    naive  "paid", late or delivered again, came behind "cancelled" and
           overwrote it: the last to arrive won, not the newest.
    semel  arbitrate: {version: .revision, as: integer}   # older: superseded
           280 applied, 14 duplicates found, 20 superseded

semel is exact, the naive consumer is wrong; 1.9 s in all.
--keep leaves the queues, databases and pipeline files to look at.
`
	if plain.String() != want {
		t.Errorf("%s\nwant\n%s", &plain, want)
	}
	if s := coloured.String(); !strings.Contains(s, "\x1b[1;31m        30\x1b[0m") || !strings.Contains(s, "\x1b[32m       100\x1b[0m") {
		t.Errorf("wrong is red, right is green:\n%q", s)
	}
}

// TestWrongNumbersAreNoticed: with the protection taken out of the pipeline,
// real processes get it wrong, and the demonstration says so.
func TestWrongNumbersAreNoticed(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ line, without string }{
		"a2": {"batch:", "inbox: upsert\nbatch:"},
		"a3": {"arbitrate: {version: .revision, as: integer}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Options{Incidents: []string{name}, Program: self, Progress: io.Discard,
				pipeline: func(s string) string {
					if !strings.Contains(s, c.line) {
						t.Errorf("the pipeline has no %q", c.line)
					}
					return strings.Replace(s, c.line, c.without, 1)
				}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Shown || !strings.Contains(strings.Join(r.Problems, "\n"), "semel is WRONG") {
				t.Errorf("not noticed: %q, %+v", r.Problems, r.Results[0].Semel)
			}
			if x := r.Results[0]; x.Semel.Counted == x.Expected || x.Semel.Wrong == 0 || x.Semel.Kills != x.Kills {
				t.Errorf("the numbers are not those of what happened: %+v", x.Semel)
			}
		})
	}
}

// TestNothingIsLeft of a demonstration that fails or is interrupted.
func TestNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp) // Windows
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]struct {
		ctx     context.Context
		program string
	}{
		"interrupted":       {ended, self},
		"A1: ":              {t.Context(), filepath.Join(tmp, "nothing")},
		"no such consumer":  {t.Context(), self},
		"unknown incident ": {t.Context(), self},
	} {
		names := map[string][]string{"unknown incident ": {"a9"}}[want]
		if want == "no such consumer" {
			err = Consume(o.ctx, sideSemel, "a2", "")
		} else {
			_, err = Run(o.ctx, Options{Incidents: names, Program: o.program, Progress: io.Discard})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestReceiver holds what the receiver's documentation says.
func TestReceiver(t *testing.T) {
	notes := filepath.Join(t.TempDir(), notesName)
	r, err := receive(notes, map[string]bool{"slow": true})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: time.Minute}
	send := func(want, id, key, text string) {
		t.Helper()
		err := post(t.Context(), client, r.url, key, fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, text))
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	const ok = "<nil>"
	send(ok, "keyed", "k1", "a")
	send(ok, "keyed", "k1", "a")
	send("422", "keyed", "k1", "b")
	send(ok, "bare", "", "a")
	send(ok, "bare", "", "a")
	send("400", "", "", "a")
	send("400", "large", "", strings.Repeat("x", maxNotice))
	client.Timeout = patience
	send("Timeout", "slow", "k2", "a")
	client.Timeout = time.Minute
	send(ok, "slow", "k2", "a")
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	got, err := noted(notes)
	if want := map[string]string{"keyed": "1", "bare": "2", "slow": "1"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("delivered %v, %v; want %v", got, err, want)
	}
}

func TestScreen(t *testing.T) {
	inc := a2()
	var b bytes.Buffer
	p := &play{Options: Options{Progress: &b, Width: 80}, inc: &inc, in: input{files: make([]string, 4), messages: 4}, dir: t.TempDir()}
	actors := [2]*actor{{side: side{sideNaive, p.dir}}, {side: side{sideSemel, p.dir}}}
	done := filepath.Join(actors[1].queue(), "done")
	if err := os.MkdirAll(done, 0o755); err != nil {
		t.Fatal(err)
	}
	end := newScreen(p, actors).show()
	if err := os.WriteFile(filepath.Join(done, "1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	actors[1].kills.Add(2)
	actors[1].took.Store(int64(time.Second))
	end()
	last := b.String()[strings.LastIndex(b.String(), "\x1b[2A"):]
	want := "\x1b[2A\r\x1b[K    naive  " + strings.Repeat("░", 36) + "    0/4  kill -9 ×0\n" +
		"\r\x1b[K    semel  " + strings.Repeat("█", 9) + strings.Repeat("░", 27) + "    1/4  kill -9 ×2  1.0 s\n\n"
	if last != want {
		t.Errorf("%q\nwant\n%q", last, want)
	}
	p.Width = 24
	if line := newScreen(p, actors).line(actors[1]); line != "semel    1/4  kill " {
		t.Errorf("%q does not fit", line)
	}
	p.Width = 0
	b.Reset()
	newScreen(p, actors).show()()
	want = "A2  Counter too high\n    4 messages, 0 delivered again\n    killed after the commit, before the ack\n    naive    0/4  kill -9 ×0\n    semel    1/4  kill -9 ×2  1.0 s\n"
	if b.String() != want {
		t.Errorf("%q\nwant\n%q", b.String(), want)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"SEMEL_FAULT=C1-received", "PATH=/bin", "SEMEL_STORE=sqlite:mine.db"})
	if !reflect.DeepEqual(got, []string{"PATH=/bin"}) {
		t.Errorf("%q: a pipeline of the user's would be mixed in", got)
	}
}
