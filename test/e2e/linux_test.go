//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// What only Linux offers a test: a second file system, one that is full.

// TestDirectoryOtherFileSystem: a stage on another file system is refused at
// start, since a move there is not atomic.
func TestDirectoryOtherFileSystem(t *testing.T) {
	t.Parallel()
	other := filepath.Join("/dev/shm", filepath.Base(filepath.Dir(t.TempDir())))
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	q := rig.NewQueue(t, plain)
	if err := os.Symlink(other, q.Path("done")); err != nil {
		t.Fatal(err)
	}
	q.Deliver("a.json", event("a"))
	e := q.Run("run --once")
	if e.Code != 1 && e.Code != 2 || !strings.Contains(e.Stderr, "one file system") || !strings.Contains(e.Stderr, "done") {
		t.Errorf("want it refused with the remedy: %v", e)
	}
	if files := q.Files("inbox"); len(files) != 1 {
		t.Errorf("inbox/ holds %q: something was taken", files)
	}
	if files, _ := os.ReadDir(other); len(files) > 0 {
		t.Errorf("the trial left %v behind", files)
	}
}

// insideVar marks the process that TestFullDisk starts in namespaces of its
// own, where it may mount.
const insideVar = "SEMEL_TEST_INSIDE"

// TestFullDisk fills small file systems under a running pipeline. It pauses,
// says why, gives no message up, and goes on when there is room.
func TestFullDisk(t *testing.T) {
	if os.Getenv(insideVar) == "" {
		inside(t)
		return
	}
	t.Run("database", fullDatabase)
	t.Run("queue", fullQueue)
	t.Run("queue at start", fullAtStart)
}

// inside runs the test itself again with namespaces of its own.
func inside(t *testing.T) {
	t.Helper()
	t.Parallel()
	semel := rig.Program(t, "cmd/semel")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	if err := mayMount(attr); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("root cannot mount a small file system here, and this test needs one: %v", err)
		}
		// TestNoSpace shows the database's part of it without a mount.
		t.Logf("this system lets nobody mount a small file system: %v", err)
		return
	}
	e := rig.Start(t, rig.Command{
		Path: self, Args: []string{"-test.run=^" + t.Name() + "$", "-test.v"}, Attr: attr,
		Env: []string{insideVar + "=1", rig.BuiltVar + "=" + filepath.Dir(semel)},
	}).WaitFor(2 * rig.Patience)
	if e.Code != 0 || !strings.Contains(e.Stdout, "--- PASS: TestFullDisk/queue") {
		t.Errorf("in a namespace of its own: %v", e)
	}
}

// mayMount tries namespaces and a mount in them.
func mayMount(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("mount", "-t", "tmpfs", "semel-test", os.TempDir())
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// TestNoSpace runs out of room in the database's files, pauses, says why, and
// ends when it is told to. With room again everything is applied once.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, strings.NewReplacer(
		"(id) VALUES (:id)", "(id, key) VALUES (:id, :pad)", "with: {id: .id}", "with: {id: .id, pad: .pad}", "horizon: 7d", "horizon: 7d\nbatch: 20").Replace(plain))
	q.Drain(0)
	const messages = 100
	for i := range messages {
		q.Deliver(fmt.Sprintf("%d.json", i), fmt.Sprintf(`{"id": "%d", "pad": %q}`, i, strings.Repeat("x", 20_000)))
	}
	p := rig.Start(t, confined(t, q.Semel("run --json"), "-nospace", "1000000"))
	rig.Until(t, "it pauses", func() bool { return strings.Contains(p.Stderr(), "paused") })
	e := p.Interrupt()
	if s := e.Summary(t); !strings.Contains(e.Stderr, "full") || s.Dead != 0 || s.Applied == messages {
		t.Errorf("want it told that the disk is full, and nothing given up: %v", e)
	}
	q.Drain(0)
	if n := q.Int("SELECT n FROM counter"); n != messages || q.Int("SELECT COUNT(DISTINCT id) FROM effects") != messages {
		t.Errorf("the counter says %d, want %d", n, messages)
	}
}

// small mounts a small file system and returns where.
func small(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("semel-test", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ballast fills the file system of dir up: with bytes, so that room bytes are
// left, and returns what takes it away.
func ballast(t *testing.T, dir string, room int64) (drop func()) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ballast")
	if err := os.WriteFile(path, make([]byte, int64(st.Bavail)*st.Bsize-room), 0o644); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func fullDatabase(t *testing.T) {
	q := rig.NewQueue(t, "")
	disk := small(t, "size=32m")
	q.DB = filepath.Join(disk, "semel.db")
	q.Describe(strings.NewReplacer(
		"(id) VALUES (:id)", "(id, key) VALUES (:id, :pad)", "with: {id: .id}", "with: {id: .id, pad: .pad}", "horizon: 7d", "horizon: 7d\nbatch: 20").Replace(plain))
	q.Drain(0)
	drop := ballast(t, disk, 1<<20)
	const messages = 200
	for i := range messages {
		q.Deliver(fmt.Sprintf("%d.json", i), fmt.Sprintf(`{"id": "%d", "pad": %q}`, i, strings.Repeat("x", 20_000)))
	}
	p := q.Start("run --json --http 127.0.0.1:0")
	rig.Until(t, "it pauses", func() bool { return strings.Contains(p.Stderr(), "paused") })
	rig.Until(t, "it is not ready", func() bool { return slices.Contains(p.Site().Conditions("/readyz"), "paused") })
	if s := p.Stderr(); !strings.Contains(s, "full") {
		t.Errorf("it does not say why: %s", s)
	}
	some := q.Int("SELECT n FROM counter")
	if some == messages {
		t.Error("everything found room: the test proves nothing")
	}
	drop()
	rig.Until(t, "everything is applied", func() bool { return q.Int("SELECT n FROM counter") == messages })
	p.Site().UntilConditions()
	e := p.Interrupt()
	// One that alone finds no room where a smaller transaction does may be
	// parked; none is given up.
	if s := e.Summary(t); e.Code != 0 || s.Applied != messages || s.Parked > 1 || s.Dead != 0 || !s.Balanced {
		t.Errorf("want all applied and none dead: %v", e)
	}
	if !strings.Contains(e.Stderr, "works again") {
		t.Errorf("it does not say that it goes on: %v", e)
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_letter WHERE open = 1") + int64(len(q.Files("inbox"))+len(q.Files("processing"))); n != 0 {
		t.Errorf("%d letters or unfinished files", n)
	}
	if n := q.Int("SELECT COUNT(DISTINCT id) FROM effects"); n != messages {
		t.Errorf("%d effects", n)
	}
}

// fillers take the last names of a file system.
type fillers struct {
	t   *testing.T
	dir string
	all []string
}

func (f *fillers) fill() {
	f.t.Helper()
	for {
		path := filepath.Join(f.dir, fmt.Sprintf("filler-%d", len(f.all)))
		err := os.WriteFile(path, nil, 0o644)
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		f.all = append(f.all, path)
	}
}

func (f *fillers) drop(n int) {
	f.t.Helper()
	for range n {
		if err := os.Remove(f.all[len(f.all)-1]); err != nil {
			f.t.Fatal(err)
		}
		f.all = f.all[:len(f.all)-1]
	}
}

// fullQueue has no room for new names: first a claim cannot be made, then
// sidecars cannot be written. Nothing is lost, nothing is done twice.
func fullQueue(t *testing.T) {
	disk := small(t, "nr_inodes=80")
	q := rig.NewQueue(t, "")
	q.Root = filepath.Join(disk, "q")
	if err := os.MkdirAll(q.Path("inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	q.Describe(plain)
	p := q.Start("run --json")
	rig.Until(t, "it works", func() bool { return workers(q) == 1 })
	p.Signal(syscall.SIGSTOP)
	rig.Until(t, "it is stopped", p.Stopped)
	for i := range 5 {
		q.Deliver(fmt.Sprintf("good-%d.json", i), event(fmt.Sprint(i)))
		q.Deliver(fmt.Sprintf("bad-%d.json", i), fmt.Sprintf(`{"id": %d.5}`, i))
	}
	f := &fillers{t: t, dir: disk}
	f.fill()
	p.Signal(syscall.SIGCONT)
	rig.Until(t, "it says that there is no room", func() bool { return strings.Contains(p.Stderr(), "no space left") })
	f.drop(1) // room for a claim
	rig.Until(t, "the good ones are done", func() bool { return len(q.Files("done")) == 5 })
	rig.Until(t, "the bad ones are letters", func() bool { return q.Int("SELECT COUNT(*) FROM semel_letter") == 5 })
	if files := q.Files("error"); len(files) != 0 {
		t.Errorf("error/ holds %q without room for a sidecar", files)
	}
	f.drop(len(f.all))
	rig.Until(t, "the bad ones are in error/", func() bool { return len(q.Files("error")) == 5 && len(q.Files("processing")) == 0 })
	if e := p.Interrupt(); e.Code != 0 || !e.Summary(t).Balanced {
		t.Errorf("%v", e)
	}
	side, err := filepath.Glob(q.Path("error", "*.semel.json"))
	if err != nil || len(side) != 5 {
		t.Errorf("sidecars %q, %v, want five", side, err)
	}
	for _, name := range side {
		if b, err := os.ReadFile(name); err != nil || !json.Valid(b) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if n := q.Int("SELECT n FROM counter"); n != 5 || q.Int("SELECT COUNT(*) FROM semel_letter") != 5 {
		t.Errorf("the counter says %d, want 5", n)
	}
}

// fullAtStart has not even room to begin.
func fullAtStart(t *testing.T) {
	disk := small(t, "nr_inodes=40")
	q := rig.NewQueue(t, "")
	q.Root = filepath.Join(disk, "q")
	if err := os.MkdirAll(q.Path("inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	q.Describe(plain)
	q.Deliver("a.json", event("a"))
	f := &fillers{t: t, dir: disk}
	f.fill()
	if e := q.Run("run --once"); e.Code != 2 || !strings.Contains(e.Stderr, "no space left") {
		t.Errorf("want a fault that says why: %v", e)
	}
	f.drop(len(f.all))
	q.Drain(0)
	if n := q.Int("SELECT n FROM counter"); n != 1 {
		t.Errorf("the counter says %d", n)
	}
}
