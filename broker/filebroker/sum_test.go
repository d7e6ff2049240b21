//go:build unix

package filebroker

import (
	"context"
	"crypto/md5" //nolint:gosec // as in the code
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

func TestParseSum(t *testing.T) {
	good := sha256Of("x")
	for text, ok := range map[string]bool{
		good: true, good + "\n": true, strings.ToUpper(good): true, "\ufeff" + good + "\r\n": true, good + "  a.json\n": true, good + " *a b.json\n": true,
		`\` + good + `  a\nb` + "\n": true, "SHA256 (a.json) = " + good + "\n": true, "SHA256 (a) = b) = " + good: true, good + "  another name": true,
		"": false, "\n": false, good[:63]: false, good + "0": false, good[:63] + "g": false, good + "\n" + good: false,
		"MD5 (a.json) = " + good: false, good[:32]: false, "a.json  " + good: false,
	} {
		got, err := sums[1].parse(text)
		if ok != (err == nil) || ok && got != good {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// summed opens a queue whose files settle as soon as they can.
func (d *dir) summed(cfg Config, p *positions) Queue {
	d.Helper()
	cfg.Complete = Summed
	if cfg.Scans == 0 {
		cfg.Scans, cfg.MinAge = 2, time.Millisecond
	}
	if cfg.Files != Whole {
		return d.openParts(cfg, p)
	}
	return d.open(cfg)
}

func TestSumsOfEveryKind(t *testing.T) {
	d := newDir(t)
	body := "content"
	for suffix, sum := range map[string]string{".sha256": sha256Of(body), ".sha512": fmt.Sprintf("%x", sha512.Sum512([]byte(body))), ".md5": fmt.Sprintf("%x", md5.Sum([]byte(body)))} { //nolint:gosec // as in the code
		d.put("f"+suffix[1:]+".json", body)
		d.put("f"+suffix[1:]+".json"+suffix, sum)
	}
	d.put("without", body)
	d.put("b.part", body)
	d.put("b.part.sha256", sha256Of(body))
	q := d.summed(Config{}, nil)
	d.ack(q, d.receiveN(q, 3)...)
	d.idle(q)
	d.want("done", "fmd5.json", "fmd5.json.md5", "fsha256.json", "fsha256.json.sha256", "fsha512.json", "fsha512.json.sha512")
	d.want("inbox", "b.part", "b.part.sha256", "without")
	d.want("processing")
	if depth, err := q.Depth(t.Context()); err != nil || !depth.Empty() {
		t.Errorf("depth %+v, %v: a file without a checksum is not in the queue", depth, err)
	}
}

// TestSeveralSums: the strongest counts, and the others come along.
func TestSeveralSums(t *testing.T) {
	d := newDir(t)
	d.put("a", "content")
	d.put("a.sha256", sha256Of("content"))
	d.put("a.md5", "nonsense")
	q := d.summed(Config{}, nil)
	d.ack(q, d.receiveN(q, 1)...)
	d.idle(q)
	d.want("done", "a", "a.md5", "a.sha256")
	d.want("inbox")
}

// TestWrongSum: a dead letter with both digests, and everything in error/.
func TestWrongSum(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			d := newDir(t)
			body := fileOfKind(files, "1")
			d.put("a", body)
			d.put("a.sha256", sha256Of("other"))
			p := newPositions()
			q := d.summed(Config{Files: files}, p)
			ds := d.receiveN(q, 1)
			bad := ds[0].Malformed
			if class, _ := semel.ClassOf(bad); class != semel.ClassInvalid || ds[0].Body != nil ||
				!strings.Contains(bad.Error(), sha256Of(body)) || !strings.Contains(bad.Error(), "a.sha256 says "+sha256Of("other")) {
				t.Errorf("malformed %v, body %q", bad, ds[0].Body)
			}
			p.decide(ds...)
			crash(q) // who takes over finds out for itself
			q = d.summed(Config{Files: files}, p)
			if files == Whole {
				if ds = d.receiveN(q, 1); ds[0].Malformed == nil || ds[0].Malformed.Error() != bad.Error() {
					t.Errorf("after a crash: %v, %q", ds[0].Malformed, ds[0].Body)
				}
				d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L", Why: bad.Error()})
			}
			d.idle(q)
			d.want("error", "a", "a.semel.json", "a.sha256")
			d.want("processing")
			if got, _ := os.ReadFile(d.at("error", "a")); string(got) != body {
				t.Errorf("the file is %q", got)
			}
		})
	}
}

// TestNotASum: a sidecar that is none is as wrong as one that does not fit.
func TestNotASum(t *testing.T) {
	d := newDir(t)
	d.put("a", "x")
	d.put("a.sha256", "")
	q := d.summed(Config{}, nil)
	if ds := d.receiveN(q, 1); ds[0].Malformed == nil || !strings.Contains(ds[0].Malformed.Error(), "a.sha256: no sha256 digest of 64") {
		t.Errorf("malformed %v", ds[0].Malformed)
	}
}

// look makes a pass over inbox/ and returns what may be claimed.
func look(t *testing.T, s *scanner) (names []string) {
	t.Helper()
	for {
		c, ok, err := s.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return names
		}
		names = append(names, fmt.Sprint(c.name, " ", c.sum.wrong == nil))
	}
}

// TestSumWaitsForItsFile: whichever comes first, and however slowly the file
// is written, it is taken when it fits and not condemned before it has settled.
func TestSumWaitsForItsFile(t *testing.T) {
	d := newDir(t)
	if err := os.MkdirAll(d.at("inbox"), 0o777); err != nil {
		t.Fatal(err)
	}
	s := newScanner(Config{Complete: Summed, Scans: 3, MinAge: time.Hour, Poll: 1}.withDefaults(), d.at("inbox"))
	d.write(d.at("inbox", "a.sha256"), sha256Of("12345"))
	for i := range 6 {
		if got := look(t, s); len(got) > 0 {
			t.Fatalf("%q after %d bytes", got, i)
		}
		d.write(d.at("inbox", "a"), "12345"[:min(i, 4)])
	}
	d.write(d.at("inbox", "a"), "12345")
	look(t, s)
	if got := look(t, s); len(got) != 1 || got[0] != "a true" {
		t.Errorf("complete: %q", got)
	}
	d.write(d.at("inbox", "b"), "12345")
	d.write(d.at("inbox", "b.sha256"), sha256Of("1234"))
	for range 5 {
		if got := look(t, s); len(got) > 1 {
			t.Errorf("%q: it does not fit, and may still be written", got)
		}
	}
	s.cfg.MinAge = 1
	if got := look(t, s); len(got) != 2 || got[1] != "b false" {
		t.Errorf("settled: %q", got)
	}
	d.write(d.at("inbox", "b.sha256"), sha256Of("12345"))
	look(t, s)
	if got := look(t, s); len(got) != 2 || got[1] != "b true" {
		t.Errorf("corrected: %q", got)
	}
}

// TestReplacedAfterItFitted: a file, or its checksum, that was replaced between
// the comparison and the claim goes back, and is looked at again.
func TestReplacedAfterItFitted(t *testing.T) {
	for name, replace := range map[string]func(d *dir){
		"file": func(d *dir) { d.put("a", "other") },
		"sum":  func(d *dir) { d.put("a.sha256", sha256Of("yet another")) },
		"both": func(d *dir) { d.put("a", "other"); d.put("a.sha256", sha256Of("other")) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.put("a", "first")
			d.put("a.sha256", sha256Of("first"))
			q := d.summed(Config{Scans: 3, MinAge: time.Hour}, nil)
			c := coreOf(q)
			cand, ok, err := c.scan.next(t.Context())
			if !ok || err != nil {
				t.Fatal(cand, ok, err)
			}
			c.scan.unread(cand)
			replace(d)
			if name == "both" {
				if ds := d.receiveN(q, 1); string(ds[0].Body) != "other" || ds[0].Malformed != nil {
					t.Errorf("%q, %v", ds[0].Body, ds[0].Malformed)
				}
				return
			}
			d.idle(q)
			d.want("inbox", "a", "a.sha256")
			d.want("processing")
		})
	}
}

// TestSumsAreGivenBack with their files, and released ones stay.
func TestSumsAreGivenBack(t *testing.T) {
	d := newDir(t)
	d.put("a", "x")
	d.put("a.sha256", sha256Of("x"))
	q := d.summed(Config{}, nil)
	d.receiveN(q, 1)
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want("inbox", "a", "a.sha256")
	d.want("processing")
	q = d.summed(Config{Done: Delete}, nil)
	d.ack(q, d.receiveN(q, 1)...)
	d.idle(q)
	for _, stage := range []string{"inbox", "processing", "done", "error"} {
		d.want(stage)
	}
}

// TestHostileSums: what is not a regular file is no checksum, nothing waits
// for a pipe, and a checksum without its file is left alone.
func TestHostileSums(t *testing.T) {
	d := newDir(t)
	d.put("a", "x")
	if err := syscall.Mkfifo(d.at("inbox", "a.sha256"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.put("b", "x")
	if err := os.Symlink("/dev/zero", d.at("inbox", "b.sha256")); err != nil {
		t.Fatal(err)
	}
	d.put("c.sha256", sha256Of("x"))
	d.put("d", "x")
	d.put("d.sha256", strings.Repeat("0", 1<<20))
	d.put("e", "x")
	if err := os.Mkdir(d.at("inbox", "e.sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	q := d.summed(Config{}, nil)
	ds := d.receiveN(q, 1)
	if ds[0].Position.Scope.Name != "d" || ds[0].Malformed == nil || len(ds[0].Malformed.Error()) > 200 {
		t.Errorf("%v: %v", ds[0].Position, ds[0].Malformed)
	}
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Why: "x"})
	d.idle(q)
	d.want("error", "d", "d.semel.json", "d.sha256")
}

// TestDigestCanBeStopped in the middle of a file.
func TestDigestCanBeStopped(t *testing.T) {
	d := newDir(t)
	d.put("a", "x")
	fi, err := os.Lstat(d.at("inbox", "a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sums[0].digest(ctx, d.at("inbox", "a"), identify(fi)); !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
	if _, err := sums[0].digest(t.Context(), d.at("inbox", "a"), identity{}); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

// TestSumThatCannotBeReadProvesNothing: who takes over a file whose checksum
// cannot be read does not take it for one that fits.
func TestSumThatCannotBeReadProvesNothing(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			d := newDir(t)
			body := fileOfKind(files, "1")
			d.put("a", body)
			d.put("a.sha256", sha256Of(body))
			p := newPositions()
			q := d.summed(Config{Files: files}, p)
			if ds := d.receiveN(q, 1); ds[0].Malformed != nil {
				t.Fatal(ds[0].Malformed)
			}
			side := filepath.Join(filepath.Dir(d.claimed(q, "a")), ".k2.a")
			if err := os.Remove(side); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("elsewhere", side); err != nil {
				t.Fatal(err)
			}
			crash(q)
			q = d.summed(Config{Files: files}, p)
			ds := d.receiveN(q, 1)
			if ds[0].Malformed == nil || !strings.Contains(ds[0].Malformed.Error(), "cannot be compared") {
				t.Errorf("malformed %v", ds[0].Malformed)
			}
		})
	}
}

// TestChangedAfterItsSumFitted: what is handed over is what was compared.
func TestChangedAfterItsSumFitted(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			d := newDir(t)
			body := fileOfKind(files, "1")
			d.put("a", body)
			d.put("a.sha256", sha256Of(body))
			p := newPositions()
			q := d.summed(Config{Files: files}, p)
			c := coreOf(q)
			f, err := c.claimNew(t.Context(), func(int64) bool { return true })
			if f == nil || err != nil {
				t.Fatal(f, err)
			}
			c.retire()
			c.todo = append(c.todo, f)
			d.write(f.path(), fileOfKind(files, "2"))
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(f.path(), later, later); err != nil {
				t.Fatal(err)
			}
			ds := d.receiveN(q, 1)
			if !errors.Is(ds[0].Malformed, ErrChanged) || ds[0].Body != nil {
				t.Errorf("%q, %v", ds[0].Body, ds[0].Malformed)
			}
		})
	}
}

// TestReplacedAndTaken: a file that was replaced after it fitted, and whose
// name is in inbox/ again, is left; what is claimed after it is not.
func TestReplacedAndTaken(t *testing.T) {
	d := newDir(t)
	d.put("a", "first")
	d.put("a.sha256", sha256Of("first"))
	d.put("b", "b")
	d.put("b.sha256", sha256Of("b"))
	q := d.summed(Config{}, nil)
	c := coreOf(q)
	cand, ok, err := c.scan.next(t.Context())
	if !ok || err != nil || cand.name != "a" {
		t.Fatal(cand, ok, err)
	}
	cl, err := c.freshClaim()
	if err != nil {
		t.Fatal(err)
	}
	d.put("a", "other")
	f, err := c.take(cl, cand)
	if err != nil || f.proven(cand.sum) {
		t.Fatal(err)
	}
	d.put("a", "third")
	c.giveBack(f)
	ds := d.receiveN(q, 1)
	if ds[0].Position.Scope.Name != "b" {
		t.Fatal(ds[0].Position)
	}
	crash(q)
	q = d.summed(Config{}, nil)
	for _, x := range d.receiveN(q, 2) {
		want := semel.Fresh
		if x.Position.Scope.Name == "b" {
			want = semel.Crashed
		}
		if x.Takeover != want {
			t.Errorf("%v: %v, want %v", x.Position, x.Takeover, want)
		}
	}
}

// TestSumsOfLongNames: where the name of a checksum just fits, it follows its
// file through all stages, also where another has its name.
func TestSumsOfLongNames(t *testing.T) {
	for _, k := range sums {
		d := newDir(t)
		name := strings.Repeat("x", maxName-len(k.suffix)-5) + ".json"
		h := k.hash()
		h.Write([]byte("content"))
		q := d.summed(Config{}, nil)
		for n := range 2 {
			d.put(name, "content")
			d.put(name+k.suffix, fmt.Sprintf("%x", h.Sum(nil)))
			ds := d.receiveN(q, 1)
			d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: fmt.Sprint("L", n), Why: "x"})
			d.idle(q)
		}
		second := numbered(name, 1)
		d.want("error", name, name+k.suffix, sidecarName(name), second, fit("", second, k.suffix), sidecarName(second))
		d.want("processing")
		d.want("inbox")
	}
}

// TestReadComparesSums, and does not give up where a file cannot be read.
func TestReadComparesSums(t *testing.T) {
	d := newDir(t)
	d.put("a", "x\n")
	d.put("a.sha256", sha256Of("y\n"))
	for _, files := range kinds() {
		var got []error
		err := Read(t.Context(), Config{Files: files, Complete: Summed}, d.at("inbox", "a"), func(x *semel.Delivery) error {
			got = append(got, x.Malformed)
			return nil
		})
		if err != nil || len(got) != 1 || got[0] == nil || !strings.Contains(got[0].Error(), "a.sha256 says") {
			t.Errorf("%s: %v, %v", kindName(files), got, err)
		}
	}
	if err := os.Symlink("a", d.at("inbox", "link")); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := Read(t.Context(), Config{}, d.at("inbox", "link"), func(x *semel.Delivery) error {
		if x.Malformed != nil {
			n++
		}
		return nil
	})
	if err != nil || n != 1 {
		t.Errorf("a link: %d, %v", n, err)
	}
}

// TestOtherSumsAfterACrash: a worker that died when it had claimed a file and
// the checksum that counts leaves the other one in inbox/, where it would count
// for the next file of that name.
func TestOtherSumsAfterACrash(t *testing.T) {
	for _, next := range []bool{false, true} {
		t.Run(fmt.Sprint("the next file is there ", next), func(t *testing.T) {
			d := newDir(t)
			d.put("a", "x")
			d.put("a.sha256", sha256Of("x"))
			d.put("a.md5", "of whichever is a")
			q := d.summed(Config{}, nil)
			c := coreOf(q)
			cl, err := c.freshClaim()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.takeSum(cl, "a", 1), c.claimRename(d.at("inbox", "a"), cl.dir+"/a")); err != nil {
				t.Fatal(err)
			}
			crash(q)
			if next {
				d.put("a", "y")
			}
			q = d.summed(Config{MinAge: time.Hour}, nil)
			ds := d.receiveN(q, 1)
			if string(ds[0].Body) != "x" || ds[0].Malformed != nil {
				t.Fatalf("%q, %v", ds[0].Body, ds[0].Malformed)
			}
			d.ack(q, ds...)
			if next {
				d.want("done", "a", "a.sha256")
				d.want("inbox", "a", "a.md5")
			} else {
				d.want("done", "a", "a.md5", "a.sha256")
				d.want("inbox")
			}
			d.want("processing")
		})
	}
}
