//go:build unix

package propose

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSpecialFiles: pipes and links are left alone, like a source does.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), filepath.Join(dir, "pipe.json")); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("a pipe: %v", err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(t.Context(), dir); err != nil || len(s.Documents) > 0 || !strings.Contains(strings.Join(s.Notes, ""), "not regular files") {
		t.Errorf("a directory of links and pipes: %+v, %v", s, err)
	}
	if _, err := Read(t.Context(), filepath.Join(dir, "nowhere")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("nowhere: %v", err)
	}
}
