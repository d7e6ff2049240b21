// Package packaging_test tests what is in the directory packaging, as far as it
// can be without an engine for containers and without systemd.
package packaging_test

import (
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// clone copies what a clone would have, and whatever else lies there, but
// nothing that is hidden or built.
func clone(t *testing.T) string {
	t.Helper()
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		switch {
		case rel == "bin" || rel == "dist" || rel != "." && e.Name()[0] == '.':
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		case !e.Type().IsRegular() || filepath.Ext(rel) == ".test":
			return nil
		}
		return copyFile(path, filepath.Join(dir, rel))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, info.Mode())
}

func run(t *testing.T, dir, path string, args ...string) string {
	t.Helper()
	e := rig.Run(t, rig.Command{Path: path, Args: args, Dir: dir})
	if e.Code != 0 {
		t.Fatalf("%s %s: %v", path, strings.Join(args, " "), e)
	}
	return e.Stdout
}

// TestDist makes a release for this platform, twice in different places: a
// static binary that knows its version, the licences of what is in it, and
// checksums that are right.
func TestDist(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	binary := "semel-v1.2.3-" + runtime.GOOS + "-" + runtime.GOARCH
	var sums string
	for range 2 {
		dir := clone(t)
		if out := run(t, dir, "make", "-s", "dist", "VERSION=v1.2.3", "PLATFORMS="+platform); !strings.Contains(out, "dist/"+binary) {
			t.Errorf("make dist says %q", out)
		}
		dist := filepath.Join(dir, "dist")
		checkSums(t, dist, binary, "LICENSES.txt")
		checkBinary(t, filepath.Join(dist, binary))
		checkLicenses(t, filepath.Join(dist, binary), read(t, filepath.Join(dist, "LICENSES.txt")))
		again := read(t, filepath.Join(dist, "SHA256SUMS"))
		if sums != "" && again != sums {
			t.Errorf("another place makes another release:\n%s\n%s", sums, again)
		}
		sums = again
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkSums(t *testing.T, dist string, files ...string) {
	t.Helper()
	want := map[string]string{}
	for _, name := range files {
		sum := sha256.Sum256([]byte(read(t, filepath.Join(dist, name))))
		want[name] = hex.EncodeToString(sum[:])
	}
	got := map[string]string{}
	for line := range strings.Lines(read(t, filepath.Join(dist, "SHA256SUMS"))) {
		if f := strings.Fields(line); len(f) == 2 {
			got[f[1]] = f[0]
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("checksums %v, want %v", got, want)
	}
	if entries, err := os.ReadDir(dist); err != nil || len(entries) != len(files)+1 {
		t.Errorf("dist holds %v, %v", entries, err)
	}
}

func checkBinary(t *testing.T, path string) {
	t.Helper()
	var version struct{ Version, Platform string }
	if err := json.Unmarshal([]byte(run(t, "", path, "version", "--json")), &version); err != nil {
		t.Fatal(err)
	}
	if version.Version != "v1.2.3" || version.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("it says it is %+v", version)
	}
	if runtime.GOOS != "linux" {
		return
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is not static: it has a segment of type %v", p.Type)
		}
	}
}

// checkLicenses wants a text for every module that the binary says is in it.
func checkLicenses(t *testing.T, binary, licenses string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range info.Deps {
		if strings.HasPrefix(m.Path, "github.com/semel-dev/") {
			continue
		}
		n++
		if !strings.Contains(licenses, "\n== "+m.Path+"@"+m.Version+": ") {
			t.Errorf("no licence of %s", m.Path)
		}
	}
	if n < 10 || !strings.Contains(licenses, "\n== Go: ") {
		t.Errorf("%d modules, and Go's own licence is there: %v", n, strings.Contains(licenses, "\n== Go: "))
	}
}

// TestUnit has systemd read the unit file where there is one.
func TestUnit(t *testing.T) {
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	unit := read(t, filepath.Join(root, "packaging", "semel@.service"))
	settings := map[string][]string{}
	for line := range strings.Lines(unit) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	for key, want := range map[string]string{
		"ExecStart":                "/usr/local/bin/semel run /etc/semel/%i.yaml",
		"User":                     "semel",
		"RestartPreventExitStatus": "1 4", // docs/operate/cli.md: the file is wrong; the account does not balance
		"NoNewPrivileges":          "yes",
		"ProtectSystem":            "strict",
	} {
		if got := settings[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd is not here; only the settings were read")
		return
	}
	verify(t, analyze, unit)
}

// verify puts a program that exists in the place of ours.
func verify(t *testing.T, analyze, unit string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel@orders.service")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit = strings.Replace(unit, "ExecStart=/usr/local/bin/semel ", fmt.Sprintf("ExecStart=%s ", self), 1)
	if err := os.WriteFile(path, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	e := rig.Run(t, rig.Command{Path: analyze, Args: []string{"verify", "--man=no", path}})
	if e.Code != 0 || strings.Contains(e.Stderr, path) || strings.Contains(e.Stderr, "semel@orders") {
		t.Errorf("systemd does not like the unit: %v", e)
	}
}
