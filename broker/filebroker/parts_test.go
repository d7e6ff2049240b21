//go:build unix

package filebroker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// contentOf is a file of five messages, the third of which is large, and what
// they are.
func contentOf(files Files) (content string, want []string) {
	words := []string{"one", "two\\n", strings.Repeat("x", 3000), "four", "five"}
	switch files {
	case Array:
		for _, w := range words {
			want = append(want, `{"v": "`+w+`"}`)
		}
		return "\ufeff[ " + strings.Join(want, " ,\n") + " ]\n", want
	case CSV:
		for _, w := range words {
			want = append(want, `{"k":"`+w[:1]+`","v":"`+w+`"}`)
			content += w[:1] + `,"` + strings.ReplaceAll(w, `\n`, "\n") + "\"\r\n"
		}
		return "\ufeffk,v\r\n" + content + "\n", want
	}
	return strings.Join(words, "\n") + "\n", words
}

// TestPartsGoOnWhereTheyStopped: whoever takes a file over, in good order or
// after a crash, hands over what is left with the positions it had, plain or
// compressed.
func TestPartsGoOnWhereTheyStopped(t *testing.T) {
	for _, f := range formats {
		content, want := contentOf(f.files)
		var places []string
		for _, packed := range []bool{false, true} {
			body := content
			if packed {
				body = string(zipped(t, []byte(content)))
			}
			for decided := range len(want) + 1 {
				t.Run(fmt.Sprintf("%s packed %v after %d", f.name, packed, decided), func(t *testing.T) {
					d := newDir(t)
					d.put("a", body)
					p := newPositions()
					q := d.openParts(Config{Files: f.files}, p)
					ds := d.receiveN(q, len(want))
					if got := bodies(ds); !slices.Equal(got, want) {
						t.Fatalf("messages %q, want %q", got, want)
					}
					all := placesOf(ds)
					if places == nil {
						places = all
					}
					if !slices.Equal(all, places) {
						t.Errorf("positions %q, want %q as elsewhere", all, places)
					}
					p.decide(ds[:decided]...)
					d.ack(q, ds[:decided]...)
					if decided%2 == 0 {
						crash(q)
					} else if err := q.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					q = d.openParts(Config{Files: f.files}, p)
					if decided < len(want) {
						again := d.receiveN(q, len(want)-decided)
						if got := bodies(again); !slices.Equal(got, want[decided:]) || !slices.Equal(placesOf(again), all[decided:]) {
							t.Errorf("then %q at %q", got, placesOf(again))
						}
						d.ack(q, again...)
					}
					d.idle(q)
					d.want("done", "a")
				})
			}
		}
	}
}

func placesOf(ds []semel.Delivery) (all []string) {
	for _, d := range ds {
		all = append(all, fmt.Sprintf("%d-%d", d.Position.Lo, d.Next.Lo))
	}
	return all
}

// TestDeadPartsAreFiles: what is dead lies in error/ as a file of its format,
// which is the same message when it is moved back.
func TestDeadPartsAreFiles(t *testing.T) {
	for _, f := range formats {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s packed %v", f.name, packed), func(t *testing.T) {
				content, want := contentOf(f.files)
				if packed {
					content = string(zipped(t, []byte(content)))
				}
				d := newDir(t)
				d.put("a.x.gz", content)
				p := newPositions()
				q := d.openParts(Config{Files: f.files}, p)
				ds := d.receiveN(q, 5)
				var ss []broker.Settlement
				for i, x := range ds {
					ss = append(ss, broker.Settlement{Lease: x.Lease, Verb: broker.Reject, Letter: fmt.Sprint("L", i), Why: "bad"})
				}
				d.settle(q, ss...)
				p.decide(ds...)
				d.idle(q)
				for i, x := range ds {
					name := fmt.Sprintf("a.%d.x", x.Position.Lo)
					if err := os.Rename(d.at("error", name), d.at("inbox", name)); err != nil {
						t.Fatal(err)
					}
					again := d.receiveN(q, 1)[0]
					if string(again.Body) != want[i] || again.Returns != fmt.Sprint("L", i) {
						t.Errorf("%s came back as %q for %q, want %q", name, again.Body, again.Returns, want[i])
					}
					d.ack(q, again)
					d.idle(q)
				}
			})
		}
	}
}

// TestLongPartsAreCopiedWhole: what is too long to be a message is in error/
// with all its bytes.
func TestLongPartsAreCopiedWhole(t *testing.T) {
	for _, f := range formats {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s packed %v", f.name, packed), func(t *testing.T) {
				content, want := contentOf(f.files)
				body := content
				if packed {
					body = string(zipped(t, []byte(content)))
				}
				d := newDir(t)
				d.put("a", body)
				q := d.openParts(Config{Files: f.files, MaxBytes: 1000}, newPositions())
				ds := d.receiveN(q, 5)
				long := ds[2]
				if class, _ := semel.ClassOf(long.Malformed); class != semel.ClassInvalid || long.Body != nil || !strings.Contains(long.Malformed.Error(), "more than the 1000 allowed") {
					t.Errorf("malformed %v with %d bytes", long.Malformed, len(long.Body))
				}
				d.settle(q, broker.Settlement{Lease: long.Lease, Verb: broker.Reject, Letter: "L", Why: "long"})
				d.ack(q, append(ds[:2:2], ds[3:]...)...)
				d.idle(q)
				b, _ := os.ReadFile(d.at("error", fmt.Sprintf("a.%d", long.Position.Lo)))
				recs, _ := split(strings.NewReader(string(b)), Config{Files: f.files}, 1<<20, 512)
				if len(recs) != 1 || string(recs[0].body) != want[2] {
					t.Errorf("the copy is %.100q…, want a file with the message alone", b)
				}
				if !strings.Contains(string(b), content[long.Position.Lo:long.Next.Lo]) {
					t.Errorf("the copy has %d bytes and not those of the file", len(b))
				}
			})
		}
	}
}

// TestBrokenPartsAreOneLetter: what cannot be read on is one dead letter, also
// for who finishes after a crash, and the file lies in error/.
func TestBrokenPartsAreOneLetter(t *testing.T) {
	for name, tc := range map[string]struct {
		files        Files
		content, why string
		n            int
	}{
		"array":   {Array, `[1, 2, {"a": ]`, "2 elements before that were taken", 2},
		"at once": {Array, `{"a": 1}`, "does not begin with [", 0},
		"csv":     {CSV, "a,b\n1,2\n3,\"4\n5,6\n", "1 records before that were taken", 1},
		"header":  {CSV, "a,a\n1,2\n", "same name", 0},
		"gzip":    {CSV, string(zipped(t, []byte("a,b\n1,2\n3,4\n")))[:30], "records before that were taken", -1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.put("a", tc.content)
			p := newPositions()
			cfg := Config{Files: tc.files}
			q := d.openParts(cfg, p)
			ds := d.untilBroken(q)
			rest := ds[len(ds)-1]
			if tc.n >= 0 && len(ds) != tc.n+1 || !strings.Contains(rest.Malformed.Error(), tc.why) || rest.Body != nil {
				t.Errorf("%d messages, the last %v", len(ds), rest.Malformed)
			}
			p.decide(ds[:len(ds)-1]...)
			d.ack(q, ds[:len(ds)-1]...)
			crash(q)
			q = d.openParts(cfg, p)
			again := d.untilBroken(q)
			if len(again) != 1 || again[0].Position != rest.Position || again[0].Malformed.Error() != rest.Malformed.Error() {
				t.Errorf("after a crash %d messages, the last at %v: %v", len(again), again[0].Position, again[0].Malformed)
			}
			p.decide(again...)
			crash(q)
			q = d.openParts(cfg, p)
			d.idle(q)
			d.want("error", "a", "a.semel.json")
			if s, err := readSidecar(d.at("error", "a.semel.json")); err != nil || s.Why == "" {
				t.Errorf("sidecar %+v, %v", s, err)
			}
		})
	}
}

// TestAnotherFormatThanBefore: a position that is none in the new format.
func TestAnotherFormatThanBefore(t *testing.T) {
	d := newDir(t)
	d.put("a", "x,y\n\"1\n2\",3\n4,5\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 4)
	p.decide(ds[:2]...)
	crash(q)
	q = d.openParts(Config{Files: CSV}, p)
	d.idle(q)
	d.want("error", "a", "a.semel.json")
	if s, _ := readSidecar(d.at("error", "a.semel.json")); s.Why != errInside.Error() {
		t.Errorf("why: %s", s.Why)
	}
}

func TestDelimiters(t *testing.T) {
	for d, good := range map[byte]bool{',': true, ';': true, '\t': true, '|': true, '"': false, '\n': false, '\r': false, 'a': false, '0': false, 0x80: false, ' ': false} {
		if err := (Config{Root: "x", Delimiter: d}).Validate(); (err == nil) != good {
			t.Errorf("%q: %v", d, err)
		}
	}
}

// TestReadIsWhatAQueueHandsOver, without the queue.
func TestReadIsWhatAQueueHandsOver(t *testing.T) {
	for _, files := range kinds() {
		content, _ := contentOf(files)
		for name, body := range map[string]string{"plain": content, "gzip": string(zipped(t, []byte(content))), "cut": string(zipped(t, []byte(content))[:20]), "broken": content[:20]} {
			t.Run(kindName(files)+" "+name, func(t *testing.T) {
				d := newDir(t)
				d.put("a", body)
				cfg := Config{Files: files, MaxBytes: 1000}
				var want []string
				err := Read(t.Context(), cfg, d.at("inbox", "a"), func(x *semel.Delivery) error {
					want = append(want, fmt.Sprintf("%s %d %q %v", x.Position.Scope.Name, x.Position.Lo, x.Body, x.Malformed))
					return nil
				})
				if err != nil || len(want) == 0 {
					t.Fatalf("%d messages and %v", len(want), err)
				}
				var got []string
				for _, x := range d.receiveN(d.openKind(files, cfg, newPositions()), len(want)) {
					got = append(got, fmt.Sprintf("%s %d %q %v", x.Position.Scope.Name, x.Position.Lo, x.Body, x.Malformed))
				}
				if !slices.Equal(got, want) {
					t.Errorf("a queue hands over %q, Read %q", got, want)
				}
			})
		}
	}
}

// TestDeadRecordWithoutLetter: a record of another file is not taken for one
// that was copied.
func TestDeadRecordWithoutLetter(t *testing.T) {
	d := newDir(t)
	p := newPositions()
	q := d.openParts(Config{Files: Lines}, p)
	for _, body := range []string{"first\n", "other\n"} {
		d.put("a", body)
		ds := d.receiveN(q, 1)
		d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Why: "x"})
		p.decide(ds...)
		d.idle(q)
	}
	if got := d.tree("error"); len(got) != 4 {
		t.Errorf("error holds %q", got)
	}
}
