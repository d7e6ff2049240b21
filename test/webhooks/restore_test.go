package webhooks_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/examples/webhooks"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// TestRestored does what docs/operate/deploy.md says about an old backup:
// everything that was decided since comes back through the inbox, and the
// tables end as if nothing had happened.
func TestRestored(t *testing.T) {
	t.Parallel()
	q := queue(t)
	deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: 1, Key: "issue/444500041"})
	deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: 2, Key: "installation/5"})
	q.Deliver("1.early.json", "not JSON")
	if s := q.Drain(3); s.Dead != 1 {
		t.Fatalf("before the backup: %+v", s)
	}
	backup := filepath.Join(q.Dir, "backup.db")
	q.Exec("VACUUM INTO ?", backup)

	deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: 3})
	q.Deliver("2.late.json", "not JSON either")
	if s := q.Drain(3); s.Dead != 1 || !slices.Equal(table(q), readmeTable(t)) {
		t.Fatalf("before the restore: %+v", s)
	}

	restore(t, q, backup)
	if got := table(q); len(got) != 2 {
		t.Fatalf("the backup has %d rows, want 2", len(got))
	}
	back := sendBack(t, q, "done") + sendBack(t, q, "error")
	s := q.Drain(3)
	if got := table(q); !slices.Equal(got, readmeTable(t)) || !s.Balanced {
		t.Errorf("%+v, and the table is\n%s", s, strings.Join(got, "\n"))
	}
	// 51 before the backup and again after it, and the letter of before.
	if s.Received != int64(back) || s.Duplicates != 2*51+1 || s.Filtered != 516 || s.Applied+s.Superseded != 210-51 {
		t.Errorf("%d files came back: %+v", back, s)
	}
	if dead := q.Strings("SELECT origin FROM semel_letter ORDER BY origin"); len(dead) != 2 || !strings.HasPrefix(dead[0], "1.early") || !strings.HasPrefix(dead[1], "2.late") {
		t.Errorf("letters %q, want one each of before and after the backup", dead)
	}
}

// restore puts the backup in the place of the database.
func restore(t *testing.T, q *rig.Queue, backup string) {
	t.Helper()
	for _, name := range []string{q.DB, q.DB + "-wal", q.DB + "-shm"} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(backup, q.DB); err != nil {
		t.Fatal(err)
	}
}

// sendBack moves the files of a stage into the inbox and returns how many.
func sendBack(t *testing.T, q *rig.Queue, stage string) int {
	t.Helper()
	files := q.Files(stage)
	for _, name := range files {
		_ = os.Remove(q.Path(stage, name+".semel.json"))
		if err := os.Rename(q.Path(stage, name), q.Path("inbox", name)); err != nil {
			t.Fatal(err)
		}
	}
	return len(files)
}
