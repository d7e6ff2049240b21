package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// quiet is the least share of idle CPU at which a result is recorded.
const quiet = 0.85

// most is the largest share of CPU that others may use during a run that is
// recorded.
const most = 0.05

// ticks are the machine's CPU times since its start, in hundredths of seconds.
type ticks struct{ total, idle, waiting float64 }

func ticksNow() (ticks, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	return parseTicks(stat)
}

// parseTicks reads the first line of /proc/stat: user, nice, system, idle,
// waiting for a disk, and what was taken in other ways.
func parseTicks(stat []byte) (t ticks, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 9 || f[0] != "cpu" {
		return t, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var n [8]float64 // what follows is part of user time
	for i := range n {
		if n[i], err = strconv.ParseFloat(f[i+1], 64); err != nil {
			return t, err
		}
		t.total += n[i]
	}
	t.idle, t.waiting = n[3], n[4]
	return t, nil
}

// idleSince is the share of CPU that nobody used. A CPU that waits for a disk
// is not idle: somebody wants something of it.
func (t ticks) idleSince(before ticks) float64 {
	return (t.idle - before.idle) / (t.total - before.total)
}

// othersSince is the share of CPU that other processes used, if this one used
// own.
func (t ticks) othersSince(before ticks, own time.Duration) float64 {
	unused := t.idle + t.waiting - before.idle - before.waiting
	total := t.total - before.total
	return max(0, (total-unused-100*own.Seconds())/total)
}

// idle watches the machine for a while.
func idle(during time.Duration) (float64, error) {
	before, err := ticksNow()
	if err != nil {
		return 0, err
	}
	time.Sleep(during)
	after, err := ticksNow()
	return after.idleSince(before), err
}

// machine describes where the figures come from, one fact a line.
func machine(dir string, idleBefore float64) ([]string, error) {
	p50, p99, err := flush(dir, 400)
	if err != nil {
		return nil, err
	}
	return []string{
		"Date: " + time.Now().UTC().Format("2006-01-02") + ", revision " + revision(),
		fmt.Sprintf("CPU: %s, %d cores", cpuModel(), runtime.NumCPU()),
		"System: " + runtime.GOOS + " " + kernel() + ", file system " + fileSystem(dir),
		fmt.Sprintf("Disk: 8 KiB appended and flushed (fdatasync) in %d µs, 99 %% in %d µs", p50.Microseconds(), p99.Microseconds()),
		"Go: " + strings.TrimPrefix(runtime.Version(), "go") + ", " + strings.Join(modules(), ", "),
		fmt.Sprintf("Idle before the run: %.0f %%", 100*idleBefore),
	}, nil
}

func cpuModel() string { return lineValue("/proc/cpuinfo", "model name") }

func lineValue(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// fileSystem is the type of the mount that dir is on.
func fileSystem(dir string) string {
	abs, err := filepath.Abs(dir)
	mounts, readErr := os.ReadFile("/proc/mounts")
	if err != nil || readErr != nil {
		return "unknown"
	}
	return mountType(string(mounts), abs)
}

func mountType(mounts, path string) string {
	longest, kind := "", "unknown"
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < len(longest) {
			continue
		}
		if at := strings.TrimSuffix(f[1], "/"); path == at || strings.HasPrefix(path, at+"/") {
			longest, kind = f[1], f[2]
		}
	}
	return kind
}

// modules are the versions of the libraries that do the work.
func modules() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"unknown modules"}
	}
	var out []string
	for _, m := range info.Deps {
		if m.Path == "modernc.org/sqlite" || m.Path == "modernc.org/libc" {
			out = append(out, m.Path+" "+m.Version)
		}
	}
	return out
}

// revision is the commit that was measured, and whether files differ from it.
func revision() string {
	rev, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	r := strings.TrimSpace(string(rev))
	if status, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err != nil || len(status) > 0 {
		r += " with changes"
	}
	return r
}

// flush measures what a commit costs at least on the disk under dir.
func flush(dir string, n int) (p50, p99 time.Duration, err error) {
	f, err := os.CreateTemp(dir, "flush")
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory is removed as well
	defer f.Close()
	page := make([]byte, 8192)
	took := make([]time.Duration, 0, n)
	for range n {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, 0, err
		}
		if err := syncData(f); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[n/2], took[n*99/100], nil
}
