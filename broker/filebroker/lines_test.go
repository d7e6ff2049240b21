package filebroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// TestReaderAgainstSplit compares the reader, over chunks of every size, with
// splitting the whole content.
func TestReaderAgainstSplit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		content := randomLines(rnd)
		limit := int64(1 + rnd.IntN(12))
		start := startOf(rnd, content)
		src := io.Reader(bytes.NewReader(content[start:]))
		if rnd.IntN(2) == 0 {
			src = iotest.OneByteReader(src)
		}
		r := newReader(src, byLine{}, start, limit, 1+rnd.IntN(10))
		var got, want []string
		for {
			l, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rnd.IntN(3) == 0 {
				r.unread(l)
				l, _ = r.next()
			}
			got = append(got, fmt.Sprintf("%d-%d %v %q", l.start, l.next, l.bad != nil, l.body))
		}
		for at := start; at < int64(len(content)); {
			body, _, found := bytes.Cut(content[at:], []byte("\n"))
			next := at + int64(len(body))
			if found {
				next++
			}
			long := int64(len(body)) > limit
			if long {
				body = nil
			}
			if long || len(bytes.Trim(body, " \t\r")) > 0 {
				want = append(want, fmt.Sprintf("%d-%d %v %q", at, next, long, body))
			}
			at = next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("content %q, limit %d, start %d:\n got %q\nwant %q", content, limit, start, got, want)
		}
	}
}

func randomLines(rnd *rand.Rand) []byte {
	b := make([]byte, rnd.IntN(60))
	for i := range b {
		b[i] = "ab \t\r\n\n"[rnd.IntN(7)]
	}
	return b
}

// startOf picks the beginning of some line.
func startOf(rnd *rand.Rand, content []byte) int64 {
	starts := []int64{0, int64(len(content))}
	for i, c := range content {
		if c == '\n' {
			starts = append(starts, int64(i+1))
		}
	}
	return starts[rnd.IntN(len(starts))]
}

func TestReaderKeepsWhatItHandedOut(t *testing.T) {
	var want []string
	var content strings.Builder
	for i := range 5000 {
		s := fmt.Sprintf("line %d", i)
		want = append(want, s)
		content.WriteString(s + "\n")
	}
	r := newReader(strings.NewReader(content.String()), byLine{}, 0, 100, 64)
	var lines [][]byte
	for {
		l, err := r.next()
		if err != nil {
			break
		}
		lines = append(lines, l.body)
	}
	for i, b := range lines {
		if string(b) != want[i] {
			t.Fatalf("line %d is %q now, was %q", i, b, want[i])
		}
	}
}

func TestReaderStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	r := newReader(io.MultiReader(strings.NewReader("one\ntwo\nthr"), iotest.ErrReader(broken)), byLine{}, 0, 100, 4)
	for _, want := range []string{"one", "two"} {
		if l, err := r.next(); err != nil || string(l.body) != want {
			t.Fatalf("line %q, %v; want %q", l.body, err, want)
		}
	}
	if l, err := r.next(); !errors.Is(err, broken) || l.start != 8 {
		t.Errorf("at %d: %v; want the error at 8", l.start, err)
	}
	r = newReader(io.MultiReader(strings.NewReader("ok\nfar too long"), iotest.ErrReader(broken)), byLine{}, 0, 5, 4)
	r.next()
	if l, err := r.next(); !errors.Is(err, broken) || l.start != 3 {
		t.Errorf("inside a long line at %d: %v; want the error at 3", l.start, err)
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, zip := range []bool{false, true} {
		t.Run(fmt.Sprint(zip), func(t *testing.T) {
			d := newDir(t)
			body := "one\n" + long + "\nthree\n"
			if zip {
				body = string(zipped(t, []byte(body)))
			}
			d.put("a.ndjson.gz", body)
			p := newPositions()
			q := d.openLines(Config{MaxBytes: 100}, p)
			ds := d.receiveN(q, 3)
			if class, _ := semel.ClassOf(ds[1].Malformed); class != semel.ClassInvalid || ds[1].Body != nil {
				t.Errorf("malformed %v with %d bytes", ds[1].Malformed, len(ds[1].Body))
			}
			if string(ds[2].Body) != "three" || ds[2].Position.Lo != ds[1].Next.Lo {
				t.Errorf("after it %q at %v", ds[2].Body, ds[2].Position)
			}
			d.ack(q, ds[0], ds[2])
			d.settle(q, broker.Settlement{Lease: ds[1].Lease, Verb: broker.Reject, Letter: "L", Why: "long"})
			if b, _ := os.ReadFile(d.at("error", "a.4.ndjson")); string(b) != long+"\n" {
				t.Errorf("the copy has %d bytes, want %d", len(b), len(long)+1)
			}
			d.idle(q)
			d.want("done", "a.ndjson.gz")
		})
	}
}

func TestBrokenGzip(t *testing.T) {
	var content strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&content, "line %d %d\n", i, rand.Uint64())
	}
	whole := zipped(t, []byte(content.String()))
	damaged := slices.Clone(whole)
	damaged[len(damaged)/2] ^= 0xff
	for name, body := range map[string][]byte{
		"truncated":     whole[:len(whole)*2/3],
		"damaged":       damaged,
		"only a header": whole[:12],
		"half a header": whole[:5],
		"garbage after": append(slices.Clone(whole), "garbage"...),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.put("a.gz", string(body))
			d.put("b", "good\n")
			p := newPositions()
			q := d.openLines(Config{}, p)
			ds := d.untilBroken(q)
			last := ds[len(ds)-1]
			for i, x := range ds[:len(ds)-1] {
				// A damage shows where the stream stops making sense, at the
				// latest at its checksum: lines before may be damaged.
				if name != "damaged" && !strings.HasPrefix(content.String()[x.Position.Lo:], string(x.Body)+"\n") {
					t.Fatalf("line %d is %q, not what stands at %d", i, x.Body, x.Position.Lo)
				}
			}
			p.decide(ds...)
			d.ack(q, ds[:len(ds)-1]...)
			d.settle(q, broker.Settlement{Lease: last.Lease, Verb: broker.Reject, Letter: "L3", Why: "unreadable"})
			d.ack(q, d.receiveN(q, 1)...)
			d.idle(q)
			d.want("error", "a.gz", "a.gz.semel.json")
			d.want("done", "b")
			if s, err := readSidecar(d.at("error", "a.gz.semel.json")); err != nil || s.Letter != "L3" {
				t.Errorf("sidecar %+v, %v", s, err)
			}
		})
	}
}

// untilBroken receives up to the malformed rest of a file.
func (d *dir) untilBroken(q Queue) (all []semel.Delivery) {
	d.Helper()
	for len(all) == 0 || all[len(all)-1].Malformed == nil {
		ctx, cancel := context.WithTimeout(d.Context(), 10*time.Second)
		ds, err := q.Receive(ctx, broker.Budget{Messages: 1, Bytes: 1 << 20})
		cancel()
		if err != nil {
			d.Fatal(err)
		}
		all = append(all, ds...)
	}
	return all
}

// TestBrokenRestIsNotDecidedTwice: the rest has one letter, whoever finishes.
func TestBrokenRestIsNotDecidedTwice(t *testing.T) {
	d := newDir(t)
	whole := zipped(t, bytes.Repeat([]byte("a line of the file\n"), 1000))
	d.put("a.gz", string(whole[:len(whole)-12]))
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.untilBroken(q)
	p.decide(ds...)
	crash(q)
	q = d.openLines(Config{}, p)
	d.idle(q)
	d.want("error", "a.gz", "a.gz.semel.json")
	d.want("processing")
}

// TestSeveralGzipMembers: the offsets are those of the decompressed stream.
func TestSeveralGzipMembers(t *testing.T) {
	d := newDir(t)
	d.put("a", string(zipped(t, []byte("one\ntw")))+string(zipped(t, []byte("o\nthree\n"))))
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 3)
	if got := bodies(ds); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("lines %q", got)
	}
	p.decide(ds[:2]...)
	crash(q)
	q = d.openLines(Config{}, p)
	if again := d.receiveN(q, 1); string(again[0].Body) != "three" || again[0].Position != ds[2].Position {
		t.Errorf("after a crash %q at %v", again[0].Body, again[0].Position)
	}
}

// TestPositionBeyondTheFile: nothing is handed over, people see it.
func TestPositionBeyondTheFile(t *testing.T) {
	for _, body := range []string{"one\n", string(zipped(t, []byte("one\n")))} {
		d := newDir(t)
		d.put("a", body)
		p := &beyond{newPositions()}
		q := d.open(Config{Files: Lines})
		q.(broker.Owned).Bind(p)
		d.idle(q)
		d.want("error", "a", "a.semel.json")
	}
}

type beyond struct{ *positions }

func (b *beyond) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	at := make([]semel.Offset, len(as))
	for i := range at {
		at[i].Lo = 1000
	}
	return at, nil
}

// TestAssignmentFails: the file goes back, and is asked about again; after a
// fault it is left alone.
func TestAssignmentFails(t *testing.T) {
	d := newDir(t)
	d.put("a", "one\n")
	p := newPositions()
	p.fail = errors.New("the database is away")
	rep := newReports()
	q := d.openLines(Config{Report: rep.add}, p)
	if _, err := q.Receive(t.Context(), budget); !errors.Is(err, p.fail) {
		t.Errorf("Receive: %v, want the owner's error", err)
	}
	d.want("inbox", "a")
	p.mu.Lock()
	p.fail = semel.Fault(errors.New("no such table"))
	p.mu.Unlock()
	d.idle(q)
	d.want("inbox", "a")
	if !errors.Is(rep.of("a"), ErrStopped) || rep.count("a") != 1 {
		t.Errorf("reported %d times, last %v; want ErrStopped once", rep.count("a"), rep.of("a"))
	}
	if depth, _ := q.Depth(t.Context()); !depth.Empty() {
		t.Errorf("depth %+v, want empty: this process will not read it", depth)
	}
}

// TestStoppedScope: the owner says that a person has to look first.
func TestStoppedScope(t *testing.T) {
	d := newDir(t)
	d.put("a", "one\n")
	rep := newReports()
	q := d.open(Config{Files: Lines, Report: rep.add})
	q.(broker.Owned).Bind(stopper{newPositions()})
	d.idle(q)
	d.want("inbox", "a")
	if !errors.Is(rep.of("a"), ErrStopped) {
		t.Errorf("reported %v, want ErrStopped", rep.of("a"))
	}
}

type stopper struct{ *positions }

func (stopper) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	return slices.Repeat([]semel.Offset{broker.Stopped()}, len(as)), nil
}

// TestRevokeFails: the file waits in processing/ until the owner lets go.
func TestRevokeFails(t *testing.T) {
	d := newDir(t)
	d.put("a", "one\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 1)
	d.ack(q, ds...)
	p.mu.Lock()
	p.fail = errors.New("the database is away")
	p.mu.Unlock()
	if _, err := q.Receive(t.Context(), budget); !errors.Is(err, p.fail) {
		t.Errorf("Receive: %v, want the owner's error", err)
	}
	d.want("processing", "a")
	p.mu.Lock()
	p.fail = nil
	p.mu.Unlock()
	d.idle(q)
	d.want("done", "a")
}

// TestManySmallFiles: a budget is filled from many files, and MaxScopes holds.
func TestManySmallFiles(t *testing.T) {
	d := newDir(t)
	for i := range 50 {
		d.put(fmt.Sprintf("f%02d", i), fmt.Sprintf("a%d\nb%d\n", i, i))
	}
	p := newPositions()
	q := d.openLines(Config{MaxScopes: 20}, p)
	n := 0
	for n < 100 {
		ds := d.receive(q)
		if len(ds) > 40 {
			t.Errorf("%d lines at a time from 20 files of two", len(ds))
		}
		n += len(ds)
		p.decide(ds...)
		d.ack(q, ds...)
	}
	d.idle(q)
	if got := len(d.tree("done")); got != 50 {
		t.Errorf("done holds %d files, want 50", got)
	}
}

// TestRejectedLineIsCopiedOnce: the same line with the same letter, after a
// crash that forgot the position.
func TestRejectedLineIsCopiedOnce(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "bad\ngood\n")
	q := d.openLines(Config{}, newPositions())
	reject := func(letter string) {
		ds := d.receiveN(q, 2)
		got := d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: letter, Why: "bad"})
		if got[0] != broker.Done {
			t.Errorf("reject: %v", got[0])
		}
		crash(q)
		q = d.openLines(Config{}, newPositions())
	}
	reject("L1")
	reject("L1")
	d.want("error", "a.0.ndjson", "a.0.ndjson.semel.json")
	reject("L2") // another letter is another message
	d.want("error", "a.0.ndjson", "a.0.ndjson.semel.json", "a.0.1.ndjson", "a.0.1.ndjson.semel.json")
}

// TestWholeClaimsReadAsLines: the mode was changed between two runs.
func TestWholeClaimsReadAsLines(t *testing.T) {
	d := newDir(t)
	d.put("a", "1\n2\n")
	d.put("b", "3\n4\n")
	q := d.open(Config{})
	d.receiveN(q, 2)
	crash(q)
	p := newPositions()
	q = d.openLines(Config{}, p)
	ds := d.receiveN(q, 4)
	p.decide(ds...)
	d.ack(q, ds...)
	d.idle(q)
	d.want("done", "a", "b")
	d.want("processing")
}
