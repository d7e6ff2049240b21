//go:build unix

package filebroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// TestKilledWorkerIsReplacedAtOnce: the lock is free, so nobody waits for the
// lease.
func TestKilledWorkerIsReplacedAtOnce(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			d := newDir(t)
			d.put("a", fileOfKind(files, "1"))
			ch := start(t, plan{Root: d.root, Files: files, Hold: true, Lease: time.Hour})
			ch.until("holding")
			ch.signal(syscall.SIGKILL)
			ch.wait()

			p := newPositions()
			q := d.openKind(files, Config{Lease: time.Hour}, p)
			ds := d.receiveN(q, 1)
			how := ds[0].Takeover
			if files != Whole {
				how = p.kinds[0]
			}
			if how != semel.Crashed {
				t.Errorf("takeover %v, want crashed", how)
			}
			d.ack(q, ds...)
		})
	}
}

func (d *dir) openKind(files Files, cfg Config, p *positions) Queue {
	d.Helper()
	if cfg.Files = files; files != Whole {
		return d.openParts(cfg, p)
	}
	return d.open(cfg)
}

// fileOfKind holds one message, of a word.
func fileOfKind(files Files, word string) string {
	if files == Whole {
		return word + "\n"
	}
	return fileOfWords(files, []string{word}, true)
}

// TestStoppedWorkerIsReplaced: a process that is stopped keeps its lock, so
// the age of the lock file decides. When it goes on it settles nothing of
// what others have, and takes up new work.
func TestStoppedWorkerIsReplaced(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			d := newDir(t)
			d.put("a", fileOfKind(files, "1"))
			const lease = 300 * time.Millisecond
			ch := start(t, plan{Root: d.root, Files: files, Hold: true, Lease: lease})
			first := ch.until("worker")
			ch.until("holding")
			ch.signal(syscall.SIGSTOP)

			p := newPositions()
			q := d.openKind(files, Config{Lease: lease}, p)
			ds := d.receiveN(q, 1)
			how := ds[0].Takeover
			if files != Whole {
				how = p.kinds[0]
			}
			if how != semel.Orphaned {
				t.Errorf("takeover %v, want orphaned", how)
			}
			if dirs, _ := os.ReadDir(d.at("processing")); len(dirs) != 1 || dirs[0].Name() == strings.TrimPrefix(first, "worker ") {
				t.Errorf("processing holds %v, want only our own worker", dirs)
			}
			ch.signal(syscall.SIGCONT)
			ch.tell("go on")
			if files == Whole {
				if got := ch.until("settled"); got != fmt.Sprint("settled ", broker.Stale) {
					t.Errorf("the stopped worker: %s, want stale", got)
				}
			}
			// Two files: one for each, whoever is faster.
			d.put("b", fileOfKind(files, "2"))
			ch.until("got b")
			p.decide(ds...)
			d.ack(q, ds...)
			for depth := (broker.Depth{Claimed: 1}); !depth.Empty(); {
				d.idle(q)
				var err error
				if depth, err = q.Depth(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := ch.wait(); err != nil {
				t.Errorf("the stopped worker ended with %v; it said %q", err, ch.seen)
			}
			if files != Whole && !ch.said("lost a") {
				t.Errorf("the stopped worker was not told that it lost its file; it said %q", ch.seen)
			}
			d.want("done", "a", "b")
		})
	}
}

// lostLock makes the heartbeat believe that others took the claims.
func (d *dir) lostLock(q Queue) {
	d.Helper()
	if err := os.Remove(filepath.Join(coreOf(q).me.dir, lockName)); err != nil {
		d.Fatal(err)
	}
}

func TestLostWorkerRegistersAgain(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "1\n2\n")
	p := newPositions()
	q := d.openLines(Config{Lease: 6 * time.Millisecond}, p)
	ds := d.receiveN(q, 2)
	before := coreOf(q).me.dir
	d.lostLock(q)
	// Its own leftovers have no lock: it takes them over as anybody would.
	again := d.receiveN(q, 2)
	if coreOf(q).me.dir == before {
		t.Error("the worker did not register again")
	}
	for _, got := range d.settle(q, acks(ds)...) {
		if got != broker.Stale {
			t.Errorf("an old lease: %v, want stale", got)
		}
	}
	if want := "assigned a.ndjson,lost a.ndjson,assigned a.ndjson"; strings.Join(p.log, ",") != want {
		t.Errorf("the owner was told %q, want %q", p.log, want)
	}
	p.decide(again...)
	d.ack(q, again...)
	d.idle(q)
	d.want("done", "a.ndjson")
}

// TestTwoReapers: of two that take over the same dead worker, each claim goes
// to one.
func TestTwoReapers(t *testing.T) {
	d := newDir(t)
	dead := d.open(Config{})
	const n = 200
	for i := range n {
		d.put(fmt.Sprintf("f%03d", i), "x")
		d.receiveN(dead, 1) // a claim of its own
	}
	crash(dead)
	qs := []Queue{d.open(Config{}), d.open(Config{})}
	got := d.together(qs, n)
	if len(got) != n {
		t.Errorf("%d files were handed over, want %d", len(got), n)
	}
	d.want("processing")
}

// together drains a queue by several receivers at once and counts how often
// each file was handed over.
func (d *dir) together(qs []Queue, n int) map[string]int {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[string]int{}
	for _, q := range qs {
		all.Go(func() {
			for {
				ds, err := q.Receive(ctx, broker.Budget{Messages: 7, Bytes: 1 << 20})
				if err != nil {
					return
				}
				mu.Lock()
				for _, x := range ds {
					got[x.Position.Scope.Name]++
				}
				if len(got) >= n {
					cancel()
				}
				mu.Unlock()
				d.settle(q, acks(ds)...)
			}
		})
	}
	all.Wait()
	for name, times := range got {
		if times != 1 {
			d.Errorf("%s was handed over %d times", name, times)
		}
	}
	return got
}

func TestWorkersShareWithoutRepeats(t *testing.T) {
	d := newDir(t)
	const n = 2000
	for i := range n {
		d.put(fmt.Sprintf("f%04d", i), "x")
	}
	if got := d.together([]Queue{d.open(Config{}), d.open(Config{}), d.open(Config{})}, n); len(got) != n {
		t.Errorf("%d files were handed over, want %d", len(got), n)
	}
	d.want("inbox")
	if len(d.tree("done")) != n {
		t.Errorf("done holds %d files, want %d", len(d.tree("done")), n)
	}
}

// TestTakenNameStaysBehind: at Close a file whose name is in inbox/ again is
// left for the next worker, as if it had been given back.
func TestTakenNameStaysBehind(t *testing.T) {
	d := newDir(t)
	d.put("a", "old")
	rep := newReports()
	q := d.open(Config{Report: rep.add})
	d.receiveN(q, 1)
	d.put("a", "new")
	q.Close(t.Context())
	if !errors.Is(rep.of("a"), ErrTaken) {
		t.Errorf("reported %v, want ErrTaken", rep.of("a"))
	}
	d.want("inbox", "a")
	q = d.open(Config{})
	ds := d.receiveN(q, 2)
	for _, x := range ds {
		if x.Takeover != semel.Fresh {
			t.Errorf("%q came with takeover %v, want fresh", x.Body, x.Takeover)
		}
	}
	d.ack(q, ds...)
	d.want("done", "a", "a.1")
	d.want("processing")
}

// TestCloseKeepsHowAClaimWasLeft: what was taken over from a crash and never
// looked at still says so to the next worker.
func TestCloseKeepsHowAClaimWasLeft(t *testing.T) {
	d := newDir(t)
	dead := d.open(Config{})
	for i := range 3 {
		d.put(fmt.Sprint(i), "x")
		d.receiveN(dead, 1)
	}
	crash(dead)
	q := d.open(Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := q.Receive(ctx, broker.Budget{Messages: 1}); err != nil {
		t.Fatal(err)
	}
	q.Close(ctx)
	q = d.open(Config{})
	how := map[semel.Takeover]int{}
	for _, x := range d.receiveN(q, 3) {
		how[x.Takeover]++
	}
	if how[semel.Crashed] != 2 || how[semel.Fresh] != 1 {
		t.Errorf("takeovers %v, want two crashed and one fresh", how)
	}
}

// TestSilentStarterIsSwept: a process that died while it registered leaves
// nothing for ever.
func TestSilentStarterIsSwept(t *testing.T) {
	d := newDir(t)
	if err := os.MkdirAll(d.at("processing", ".ghost-1"), 0o777); err != nil {
		t.Fatal(err)
	}
	d.write(d.at("processing", ".ghost-1", lockName), "")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.at("processing", ".ghost-1"), old, old); err != nil {
		t.Fatal(err)
	}
	// And one that died while it tried the file system.
	if err := os.MkdirAll(d.at("processing", "ghost-2"), 0o777); err != nil {
		t.Fatal(err)
	}
	d.write(d.at("processing", "ghost-2", lockName), "")
	d.write(d.at("inbox", probePrefix+"ghost-2"), "")
	d.idle(d.open(Config{}))
	for _, name := range []string{".ghost-1", "ghost-2"} {
		if exists(d.at("processing", name)) {
			t.Errorf("%s is still there", name)
		}
	}
	d.want("inbox")
}

// TestFencedScopeIsAskedForAgain: the database says that another owns the
// scope, the claim says that we do.
func TestFencedScopeIsAskedForAgain(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "1\n2\n3\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 3)
	p.decide(ds[0])
	d.ack(q, ds[0])
	d.settle(q, broker.Settlement{Lease: ds[2].Lease, Verb: broker.Release})
	q.(*lines).Fenced([]semel.Scope{ds[0].Position.Scope})
	again := d.receiveN(q, 2)
	if string(again[0].Body) != "2" {
		t.Errorf("after the fence %q, want 2 and 3", bodies(again))
	}
	if got := d.settle(q, acks(ds[1:2])...); got[0] != broker.Stale {
		t.Errorf("an old lease: %v, want stale", got[0])
	}
	if want := "assigned a.ndjson,lost a.ndjson,assigned a.ndjson"; strings.Join(p.log, ",") != want {
		t.Errorf("the owner was told %q, want %q", p.log, want)
	}
	p.decide(again...)
	d.ack(q, again...)
	d.idle(q)
	d.want("done", "a.ndjson")
	d.want("processing")
}
