package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// What only Linux offers a test: a second file system, one that is full.

// TestDirectoryOtherFileSystem: a stage on another file system is refused at
// start, since a move there is not atomic.
func TestDirectoryOtherFileSystem(t *testing.T) {
	t.Parallel()
	other, err := os.MkdirTemp("/dev/shm", "semel-test-")
	if err != nil {
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
