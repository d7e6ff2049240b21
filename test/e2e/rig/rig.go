// Package rig builds, runs, stops and kills real processes for the tests of
// the binary, and reads from disk what they did.
//
// Nothing in it waits for a fixed time: it waits for a process to end, or
// until something is seen, and gives up at a deadline.
package rig

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// built are the programs of this test process, each built once.
var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// Main runs the tests of a package and removes what was built for them. More
// tests than usual run at the same time: they wait for disks and for delays
// much more than they compute.
func Main(m *testing.M) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := f.Value.Set(strconv.Itoa(4 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	defer func() {
		built.Lock()
		defer built.Unlock()
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
	}()
	return m.Run()
}

// BuiltVar is an environment variable that names a directory with programs
// that are built already, for a test that runs itself in another namespace.
const BuiltVar = "SEMEL_TEST_BUILT"

// Program returns the path of the program built from a package of this
// repository, such as "cmd/semel".
func Program(t testing.TB, pkg string) string {
	t.Helper()
	path, err := program(pkg)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func program(pkg string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path, nil
	}
	if dir := os.Getenv(BuiltVar); dir != "" {
		return filepath.Join(dir, filepath.Base(pkg)), nil
	}
	root, err := Repository()
	if err != nil {
		return "", err
	}
	if built.dir == "" {
		if built.dir, err = os.MkdirTemp("", "semel-test-"); err != nil {
			return "", err
		}
		built.paths = map[string]string{}
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path, nil
}

// Repository returns the root of the repository that the test is part of.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no go.work above the working directory")
}

// Copy returns a directory of the test with what a clone would have, and
// whatever else lies in the repository, but nothing that is hidden or built.
func Copy(t testing.TB) string {
	t.Helper()
	root, err := Repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := copyTree(root, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyTree(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name()[0] == '.' || e.Name() == "bin" || e.Name() == "dist" {
			continue
		}
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = os.Mkdir(dst, 0o755)
			if err == nil {
				err = copyTree(src, dst)
			}
		} else if e.Type().IsRegular() {
			err = copyFile(src, dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
