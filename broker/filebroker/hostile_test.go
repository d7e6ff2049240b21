//go:build unix

package filebroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

func hostileNames() []string {
	return []string{
		strings.Repeat("n", 255),
		strings.Repeat("l", 250) + ".json",
		strings.Repeat("é", 125) + ".json",
		"with spaces and\ttab.json",
		`"quotes" 'and' $(more); rm -rf *`,
		"emoji 🎈.json",
		"line\nbreak",
		"not utf-8 \xff\xfe.json",
		"-rf",
		"!first",
		"%41",
		"no extension.",
		"a.b.c.d.ndjson.gz",
	}
}

// TestHostileNames: every name goes to done/ and through error/ and back.
func TestHostileNames(t *testing.T) {
	for i, name := range hostileNames() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if runtime.GOOS == "darwin" && strings.ContainsRune(name, '\xff') {
				t.Log("this file system has only valid names")
				return
			}
			d := newDir(t)
			q := d.open(Config{})
			d.put(name, "first")
			d.ack(q, d.receiveN(q, 1)...)
			d.want("done", name)
			d.put(name, "second")
			d.ack(q, d.receiveN(q, 1)...)
			if got := d.tree("done"); len(got) != 2 {
				t.Errorf("done holds %q, want two files", got)
			}
			d.put(name, "bad")
			d.rejectOne(q, "L1")
			if err := os.Rename(d.at("error", name), d.at("inbox", name)); err != nil {
				t.Fatal(err)
			}
			ds := d.receiveN(q, 1)
			if ds[0].Returns != "L1" || ds[0].Position.Scope.Name != name {
				t.Errorf("it returns %q as %q", ds[0].Returns, ds[0].Position.Scope.Name)
			}
			// A crash in the middle loses neither name nor meaning.
			crash(q)
			q = d.open(Config{linkOnly: true})
			if ds = d.receiveN(q, 1); ds[0].Returns != "L1" {
				t.Errorf("after a crash it returns %q", ds[0].Returns)
			}
			q.Close(t.Context())
			q = d.open(Config{})
			if ds = d.receiveN(q, 1); ds[0].Returns != "L1" {
				t.Errorf("after a close it returns %q", ds[0].Returns)
			}
			d.ack(q, ds...)
			d.want("error")
			d.want("processing")
		})
	}
}

func (d *dir) rejectOne(q Queue, letter string) semel.Delivery {
	d.Helper()
	ds := d.receiveN(q, 1)
	got := d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: letter, Why: "bad"})
	if got[0] != broker.Done {
		d.Fatalf("reject: %v, want done", got[0])
	}
	return ds[0]
}

// TestHostileNamesOfLines: a dead line of such a file comes back as itself.
func TestHostileNamesOfLines(t *testing.T) {
	for i, name := range hostileNames() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := newDir(t)
			p := newPositions()
			q := d.openLines(Config{}, p)
			d.put(name, "good\nbad\n")
			ds := d.receiveN(q, 2)
			p.decide(ds...)
			d.ack(q, ds[0])
			d.settle(q, broker.Settlement{Lease: ds[1].Lease, Verb: broker.Reject, Letter: "L2", Why: "bad"})
			d.idle(q)
			d.want("done", name)
			i := slices.IndexFunc(d.tree("error"), func(n string) bool { return !isSidecar(n) })
			if i < 0 {
				t.Fatalf("error holds %q, want the line", d.tree("error"))
			}
			copied := d.tree("error")[i]
			if err := os.Rename(d.at("error", copied), d.at("inbox", copied)); err != nil {
				t.Fatal(err)
			}
			ds = d.receiveN(q, 1)
			if ds[0].Returns != "L2" || string(ds[0].Body) != "bad" {
				t.Errorf("the line returns %q with %q", ds[0].Returns, ds[0].Body)
			}
			d.ack(q, ds...)
			d.idle(q)
			d.want("error")
			d.want("processing")
		})
	}
}

// TestUnfitFilesStay: what is no ordinary file of one name is reported once
// and neither claimed nor waited for.
func TestUnfitFilesStay(t *testing.T) {
	d := newDir(t)
	d.write(d.at("outside"), "elsewhere")
	if err := os.Symlink(d.at("outside"), d.at("inbox", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.at("inbox", "dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(d.at("inbox", "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(d.at("outside"), d.at("inbox", "hard")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(d.at("inbox")) // the path of a socket has to be short
	l, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := map[string]error{"link": ErrNotRegular, "dir": ErrNotRegular, "pipe": ErrNotRegular, "socket": ErrNotRegular, "hard": ErrHardLink}
	if os.Geteuid() == 0 {
		d.mknod("device")
		want["device"] = ErrNotRegular
	} else {
		t.Log("not root: no device node is made")
	}
	d.put("good", "good")

	rep := newReports()
	q := d.open(Config{Report: rep.add})
	d.ack(q, d.receiveN(q, 1)...)
	d.idle(q)
	for name, why := range want {
		if !errors.Is(rep.of(name), why) || rep.count(name) != 1 {
			t.Errorf("%s was reported %d times, last %v; want %v once", name, rep.count(name), rep.of(name), why)
		}
		if !exists(d.at("inbox", name)) {
			t.Errorf("%s is gone from inbox", name)
		}
	}
	if depth, err := q.Depth(t.Context()); err != nil || !depth.Empty() {
		t.Errorf("depth %+v, %v; want empty: nothing of this will be handed over", depth, err)
	}
	// The second link removed, it is a file like any other.
	if err := os.Remove(d.at("outside")); err != nil {
		t.Fatal(err)
	}
	d.ack(q, d.receiveN(q, 1)...)
	d.want("done", "good", "hard")
}

func (d *dir) mknod(name string) {
	d.Helper()
	if err := mknod(d.at("inbox", name)); err != nil {
		d.Fatal(err)
	}
}

// TestSwappedForALink: a file replaced by a link between look and claim is
// not followed.
func TestSwappedForALink(t *testing.T) {
	d := newDir(t)
	d.write(d.at("secret"), "secret")
	d.put("a", "x")
	q := d.open(Config{})
	c := coreOf(q)
	cl, err := c.freshClaim()
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.take(cl, candidate{name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(f.path())
	if err := os.Symlink(d.at("secret"), f.path()); err != nil {
		t.Fatal(err)
	}
	c.todo = append(c.todo, f)
	ds := d.receiveN(q, 1)
	if ds[0].Malformed == nil || len(ds[0].Body) > 0 {
		t.Errorf("body %q, malformed %v; want malformed", ds[0].Body, ds[0].Malformed)
	}
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L", Why: "a link"})
	d.want("error", "a", "a.semel.json")
}

func TestTemporaryNamesAreIgnored(t *testing.T) {
	d := newDir(t)
	for _, name := range []string{".hidden", ".nfs0001", "a.tmp", "a.TMP", "b.part", "c.filepart", "d.swp", "e.crdownload", "f~", ".a.swp", "x.semel.json"} {
		d.put(name, "unfinished")
	}
	d.put("tmp", "a name like any other")
	q := d.open(Config{})
	ds := d.receiveN(q, 1)
	if ds[0].Position.Scope.Name != "tmp" {
		t.Errorf("got %q", ds[0].Position.Scope.Name)
	}
	d.ack(q, ds...)
	d.idle(q)
	if depth, _ := q.Depth(t.Context()); !depth.Empty() {
		t.Errorf("depth %+v, want empty: nothing else is in the queue yet", depth)
	}
}

func TestMarkedNeedsTheMarker(t *testing.T) {
	d := newDir(t)
	d.put("a", "1")
	d.put("b.tmp", "2") // with a marker, any name is complete
	d.put("b.tmp.fin", "")
	d.put("orphan.fin", "")
	q := d.open(Config{Complete: Marked, MarkerSuffix: ".fin"})
	ds := d.receiveN(q, 1)
	if string(ds[0].Body) != "2" {
		t.Fatalf("got %q, want 2", ds[0].Body)
	}
	d.idle(q)
	d.put("a.fin", "")
	ds = append(ds, d.receiveN(q, 1)...)
	d.want("inbox", "orphan.fin")
	d.ack(q, ds[0])
	q.Close(t.Context()) // gives a back, with its marker
	d.want("inbox", "a", "a.fin", "orphan.fin")
	q = d.open(Config{Complete: Marked, MarkerSuffix: ".fin"})
	d.ack(q, d.receiveN(q, 1)...)
	d.want("done", "a", "b.tmp")
	d.want("inbox", "orphan.fin")
	d.want("processing")
}

// TestMarkerWithoutItsFile: a marker that was taken for a file that vanished
// goes back.
func TestMarkerWithoutItsFile(t *testing.T) {
	d := newDir(t)
	d.put("a.ok", "")
	q := d.open(Config{Complete: Marked})
	c := coreOf(q)
	cl, err := c.freshClaim()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.take(cl, candidate{name: "a"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("take: %v, want not found", err)
	}
	d.want("inbox", "a.ok")
}

// TestDepthCountsWhatIsUnderWay: a file whose marker was taken is not empty
// space, neither is a sidecar that has to follow its file.
func TestDepthCountsWhatIsUnderWay(t *testing.T) {
	d := newDir(t)
	q := d.open(Config{Complete: Marked})
	for _, name := range []string{markerPrefix + "a", intentPrefix + "a", linePrefix + "4"} {
		dir := d.at("processing", "ghost", "1")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		d.write(d.at("processing", "ghost", lockName), "")
		d.put("a", "x") // without a marker
		d.write(dir+"/"+name, "")
		if depth, err := q.Depth(t.Context()); err != nil || depth != (broker.Depth{Claimed: 1}) {
			t.Errorf("%s: depth %+v, %v; want one claimed", name, depth, err)
		}
		if err := os.RemoveAll(d.at("processing", "ghost")); err != nil {
			t.Fatal(err)
		}
	}
	if depth, err := q.Depth(t.Context()); err != nil || !depth.Empty() {
		t.Errorf("depth %+v, %v; want empty", depth, err)
	}
}

// TestSettledRule walks through time without waiting for it.
func TestSettledRule(t *testing.T) {
	cfg := Config{Complete: Settled}.withDefaults() // 3 scans, 5 s, 250 ms between them
	s := newScanner(cfg, "inbox")
	at := time.Now()
	look := func(after time.Duration, id identity, want bool) {
		t.Helper()
		at = at.Add(after)
		if got := s.settled("f", id, at); got != want {
			t.Errorf("settled %v, want %v", got, want)
		}
	}
	old := identity{ino: 1, size: 10, mtime: at.Add(-time.Hour)}
	look(0, old, false) // an old modification time proves nothing
	look(time.Millisecond, old, false)
	look(time.Second, old, false)
	look(time.Second, old, false)
	look(2900*time.Millisecond, old, false) // seen often, 4.9 s old
	look(200*time.Millisecond, old, true)
	grown := identity{ino: 1, size: 11, mtime: old.mtime}
	look(time.Second, grown, false) // a new age begins
	look(10*time.Second, grown, false)
	look(10*time.Second, grown, true)
	replaced := identity{ino: 2, size: 11, mtime: old.mtime}
	look(time.Second, replaced, false)
	touched := identity{ino: 2, size: 11, mtime: at}
	look(10*time.Second, touched, false)
}

func TestSettledCountsAsSettling(t *testing.T) {
	d := newDir(t)
	d.put("a", "1")
	q := d.open(Config{Complete: Settled, MinAge: time.Hour})
	d.idle(q)
	if depth, err := q.Depth(t.Context()); err != nil || depth != (broker.Depth{Settling: 1}) {
		t.Errorf("depth %+v, %v; want one settling", depth, err)
	}
}

func TestSizes(t *testing.T) {
	d := newDir(t)
	rep := newReports()
	q := d.open(Config{MaxBytes: 1 << 20, Report: rep.add})
	big := string(bytes.Repeat([]byte("x"), 1<<20))
	d.put("0 empty", "")
	d.put("1 nul", "\x00\x00")
	d.put("2 limit", big)
	d.put("3 over", big+"x")
	d.put("4 huge", strings.Repeat("y", 10<<20))
	ds := d.receiveN(q, 5)
	for i, want := range []int{0, 2, 1 << 20} {
		if ds[i].Malformed != nil || ds[i].Body == nil || len(ds[i].Body) != want {
			t.Errorf("%s: %d bytes (nil %v), malformed %v", ds[i].Position.Scope.Name, len(ds[i].Body), ds[i].Body == nil, ds[i].Malformed)
		}
	}
	for _, x := range ds[3:] {
		if class, _ := semel.ClassOf(x.Malformed); class != semel.ClassInvalid || x.Body != nil {
			t.Errorf("%s: malformed %v with %d bytes, want invalid and none", x.Position.Scope.Name, x.Malformed, len(x.Body))
		}
		d.settle(q, broker.Settlement{Lease: x.Lease, Verb: broker.Reject, Letter: "L", Why: "too large"})
	}
	d.ack(q, ds[:3]...)
	d.want("error", "3 over", "3 over.semel.json", "4 huge", "4 huge.semel.json")
}

// TestChangedAfterClaim: what was decided stands, the file is shown to people.
func TestChangedAfterClaim(t *testing.T) {
	change := map[string]func(path string) error{
		"grown": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("more\n")
			return err
		},
		"touched": func(path string) error {
			return os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour))
		},
		"replaced": func(path string) error {
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+"2", []byte("ONE\nTWO\n"), 0o666); err != nil {
				return err
			}
			if err := os.Chtimes(path+"2", fi.ModTime(), fi.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+"2", path)
		},
	}
	for _, files := range []Files{Whole, Lines} {
		for how, fn := range change {
			t.Run(fmt.Sprint(files, how), func(t *testing.T) {
				d := newDir(t)
				d.put("a", "one\ntwo\n")
				rep, p := newReports(), newPositions()
				q := d.openKind(files, Config{Report: rep.add}, p)
				ds := d.receive(q)
				if err := fn(d.claimed(q, "a")); err != nil {
					t.Fatal(err)
				}
				p.decide(ds...)
				d.ack(q, ds...)
				if files == Lines {
					d.idle(q)
				}
				d.want("error", "a", "a.semel.json")
				d.want("done")
				d.want("processing")
				if s, err := readSidecar(d.at("error", "a.semel.json")); err != nil || s.Letter != "" || s.Why != ErrChanged.Error() {
					t.Errorf("sidecar %+v, %v", s, err)
				}
				if !errors.Is(rep.of("a"), ErrChanged) {
					t.Errorf("reported %v, want ErrChanged", rep.of("a"))
				}
				// It may come back, as a file that no letter is about.
				if err := os.Rename(d.at("error", "a"), d.at("inbox", "a")); err != nil {
					t.Fatal(err)
				}
				if ds := d.receive(q); ds[0].Returns != "" {
					t.Errorf("returns %q, want nothing", ds[0].Returns)
				}
			})
		}
	}
}

// claimed finds a claimed file of q.
func (d *dir) claimed(q Queue, name string) string {
	d.Helper()
	dirs, err := os.ReadDir(coreOf(q).me.dir)
	if err != nil {
		d.Fatal(err)
	}
	for _, cl := range dirs {
		if path := coreOf(q).me.dir + "/" + cl.Name() + "/" + name; exists(path) {
			return path
		}
	}
	d.Fatalf("%s is not claimed", name)
	return ""
}

// TestChangedDuringTakeover: the claim's name says what was claimed.
func TestChangedDuringTakeover(t *testing.T) {
	d := newDir(t)
	d.put("a", "one\ntwo\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 2)
	p.decide(ds[0])
	d.write(d.claimed(q, "a"), "three\nfour\nfive\n")
	crash(q)
	q = d.openLines(Config{}, p)
	d.idle(q)
	d.want("error", "a", "a.semel.json")
	if len(p.next) != 1 {
		t.Errorf("positions %v, want the one of the file as it was", p.next)
	}
}

// TestRemovedAfterClaim: a person deletes a claimed file.
func TestRemovedAfterClaim(t *testing.T) {
	for _, files := range []Files{Whole, Lines} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			d := newDir(t)
			d.put("a", "one\n")
			d.put("b", "two\n")
			rep, p := newReports(), newPositions()
			q := d.openKind(files, Config{Report: rep.add}, p)
			ds := d.receiveN(q, 2)
			if err := os.Remove(d.claimed(q, "a")); err != nil {
				t.Fatal(err)
			}
			p.decide(ds...)
			got := d.settle(q, acks(ds)...)
			if files == Whole && (got[0] != broker.Stale || got[1] != broker.Done) {
				t.Errorf("answers %v, want stale and done", got)
			}
			d.idle(q)
			if !errors.Is(rep.of("a"), ErrGone) {
				t.Errorf("reported %v, want ErrGone", rep.of("a"))
			}
			d.want("done", "b")
			d.want("processing")
			d.put("c", "three\n")
			d.ack(q, d.receiveN(q, 1)...)
		})
	}
}

// TestVanishedBeforeClaim: the name was read, the file is gone.
func TestVanishedBeforeClaim(t *testing.T) {
	d := newDir(t)
	for i := range 10 {
		d.put(fmt.Sprint(i), "x")
	}
	q := d.open(Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ds, err := q.Receive(ctx, broker.Budget{Messages: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := 3; i < 8; i++ {
		os.Remove(d.at("inbox", fmt.Sprint(i)))
	}
	ds = append(ds, d.receiveN(q, 2)...)
	d.ack(q, ds...)
	d.want("inbox")
}

// TestUnreadableFile: a dead letter with the reason; the rest flows. Root
// reads everything, so as root a worker of another user is started.
func TestUnreadableFile(t *testing.T) {
	for _, files := range []Files{Whole, Lines} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			d := newDir(t)
			d.put("a", "secret\n")
			d.put("b", "open\n")
			if err := os.Chmod(d.at("inbox", "a"), 0); err != nil {
				t.Fatal(err)
			}
			ch := startAs(t, d, plan{Root: d.root, Files: files})
			if err := ch.wait(); err != nil {
				t.Fatalf("the worker: %v; it said %q", err, ch.seen)
			}
			if !ch.said("malformed a") || ch.said("malformed b") {
				t.Errorf("it said %q, want only a to be malformed", ch.seen)
			}
			d.want("done", "b")
			d.want("error", "a", "a.semel.json")
		})
	}
}

// TestFileOfAnother: in a sticky inbox only the owner of a file may move it;
// it is reported, and the rest flows.
func TestFileOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: no file of another user can be made")
	}
	d := newDir(t)
	d.put("mine", "1")
	d.put("other", "2")
	ch := startAs(t, d, plan{Root: d.root, Hold: true})
	ch.until("holding")
	if os.Geteuid() == 0 {
		if err := os.Lchown(d.at("inbox"), 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.at("inbox"), 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		d.put("roots", "3")
		d.put("free", "4")
		if err := os.Lchown(d.at("inbox", "free"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		ch.tell("go on")
		ch.until("got free")
		if !ch.said(`report "roots"`) {
			ch.until(`report "roots"`)
		}
		d.want("inbox", "roots")
		if err := os.Lchown(d.at("inbox", "roots"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else {
		ch.tell("go on")
	}
	if err := ch.wait(); err != nil {
		t.Errorf("the worker: %v; it said %q", err, ch.seen)
	}
	d.want("inbox")
}

// startAs starts a worker that is not root.
func startAs(t *testing.T, d *dir, p plan) *child {
	t.Helper()
	if os.Geteuid() != 0 {
		return start(t, p)
	}
	const nobody = 65534
	open := func(path string) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(filepath.Dir(d.root))
	open(filepath.Dir(filepath.Dir(d.root)))
	err := filepath.Walk(d.root, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(filepath.Dir(d.root), "worker")
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(binary, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return startBinary(t, binary, p, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
}
