package filebroker

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// mount mounts a small file system at path. Only root can; as root a refusal
// is a failure, and as another user the caller checks what is left to check.
func mount(t *testing.T, path, size string) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("not root: nothing can be mounted, so this is not seen on a real file system")
		return false
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("semel-test", path, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(path, syscall.MNT_DETACH) })
	return true
}

// TestStageOnAnotherFileSystem: refused at start, with the remedy.
func TestStageOnAnotherFileSystem(t *testing.T) {
	for _, stage := range []string{inboxDir, processingDir, doneDir, errorDir} {
		t.Run(stage, func(t *testing.T) {
			d := newDir(t)
			if !mount(t, d.at(stage), "1m") {
				if hint := stepHint(syscall.EXDEV); !strings.Contains(hint, "one file system") {
					t.Errorf("hint %q", hint)
				}
				return
			}
			_, err := Open(t.Context(), Config{Root: d.root})
			if err == nil || !errors.Is(err, syscall.EXDEV) || !strings.Contains(err.Error(), "one file system") {
				t.Errorf("Open: %v, want EXDEV with the remedy", err)
			}
			for _, stage := range []string{inboxDir, processingDir, doneDir, errorDir} {
				d.want(stage)
			}
		})
	}
}

// TestReadOnly: a clear error at start.
func TestReadOnly(t *testing.T) {
	d := newDir(t)
	d.open(Config{}).Close(t.Context())
	if mount(t, d.root, "1m") {
		d.open(Config{}).Close(t.Context())
		if err := syscall.Mount("", d.root, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(d.at("inbox"), 0o555); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Root: d.root})
	var e *semel.Error
	if !errors.As(err, &e) || e.Hint == "" || !strings.Contains(e.Error(), d.root) {
		t.Errorf("Open: %v, want an error that names the directory and a remedy", err)
	}
}

// TestFullDisk: what cannot be written now is written later, and nothing is
// lost meanwhile.
func TestFullDisk(t *testing.T) {
	for _, files := range []Files{Whole, Lines} {
		t.Run([]string{"whole", "lines"}[files], func(t *testing.T) {
			d := newDir(t)
			if !mount(t, d.root, "1m") {
				t.Log("without a small file system there is nothing to fill; TestMissingStage shows the same path")
				return
			}
			if err := os.MkdirAll(d.at("inbox"), 0o777); err != nil {
				t.Fatal(err)
			}
			d.put("a", "bad\n")
			d.put("b", "good\n")
			rep, p := newReports(), newPositions()
			q := d.openKind(files, Config{Report: rep.add}, p)
			ds := d.receiveN(q, 2)
			d.fillDisk()
			reject := broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L1", Why: strings.Repeat("why ", 2000)}
			if got := d.settle(q, reject); got[0] != broker.Unknown {
				t.Errorf("reject on a full disk: %v, want unknown", got[0])
			}
			if !errors.Is(rep.of("a"), syscall.ENOSPC) {
				t.Errorf("reported %v, want ENOSPC", rep.of("a"))
			}
			if depth, err := q.Depth(t.Context()); err != nil || depth.Claimed == 0 {
				t.Errorf("depth %+v, %v; want the file still claimed", depth, err)
			}
			d.ack(q, ds[1]) // needs no space
			if err := os.Remove(d.at("ballast")); err != nil {
				t.Fatal(err)
			}
			p.decide(ds...)
			d.idle(q)
			if files == Whole {
				d.want("error", "a", "a.semel.json")
				d.want("done", "b")
			} else {
				d.want("error", "a.0", "a.0.semel.json")
				d.want("done", "a", "b")
			}
			d.want("processing")
			if got := d.settle(q, reject); got[0] != broker.Stale {
				t.Errorf("settled again: %v, want stale", got[0])
			}
		})
	}
}

// fillDisk leaves no free byte.
func (d *dir) fillDisk() {
	d.Helper()
	f, err := os.Create(d.at("ballast"))
	if err != nil {
		d.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(bytes.Repeat([]byte("x"), size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			d.Fatal(err)
		}
	}
}

// TestFullDiskHeartbeat: a worker on a full disk is not taken for dead.
func TestFullDiskHeartbeat(t *testing.T) {
	d := newDir(t)
	if !mount(t, d.root, "1m") {
		t.Log("needs a small file system")
	}
	q := d.open(Config{})
	if exists(d.at("..", "q")) && os.Geteuid() == 0 {
		d.fillDisk()
	}
	me := coreOf(q).me
	before, err := me.touch()
	if err != nil {
		t.Fatalf("touch on a full disk: %v", err)
	}
	after, err := me.touch()
	if err != nil || after.Before(before) {
		t.Errorf("touch: %v then %v, %v", before, after, err)
	}
}
