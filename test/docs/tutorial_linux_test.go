package docs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// TestTutorial does what the tutorial says, in a copy of the repository and on
// a terminal, and sees what it shows.
func TestTutorial(t *testing.T) {
	t.Parallel()
	dir := rig.Copy(t)
	lesson, err := parseLesson(read(t, repository+"/docs/tutorial/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(lesson.steps) < 20 {
		t.Fatalf("only %d steps found", len(lesson.steps))
	}
	lesson.take(startShell(t, dir), dir)
	wantRow(t, filepath.Join(dir, ".work/flights/flights.db"), "6580 arrived, 71 cancelled, 3 departed",
		"SELECT group_concat(n, ', ') FROM (SELECT count(*) || ' ' || status AS n FROM flights GROUP BY status ORDER BY status)")
	wantRow(t, filepath.Join(dir, ".work/orders.db"), "ann 625, bob 250",
		"SELECT group_concat(n, ', ') FROM (SELECT customer || ' ' || cents AS n FROM balance ORDER BY customer)")
}

// TestFirstPipeline does what the page about semel init says, and sees what it
// shows.
func TestFirstPipeline(t *testing.T) {
	t.Parallel()
	lesson, err := parseLesson(read(t, repository+"/docs/howto/first-pipeline.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(lesson.steps) < 6 {
		t.Fatalf("only %d steps found", len(lesson.steps))
	}
	dir := t.TempDir()
	sh := startShell(t, dir)
	sh.run("PATH=" + filepath.Dir(rig.Program(t, "cmd/semel")) + ":$PATH")
	lesson.take(sh, dir)
	wantRow(t, filepath.Join(dir, "events.db"), "o-0 3, o-1 2, o-2 2",
		"SELECT group_concat(n, ', ') FROM (SELECT order_id || ' ' || order_revision AS n FROM events ORDER BY order_id)")
}

// take does all steps in a directory.
func (l *lesson) take(sh *shell, dir string) {
	t := sh.t
	t.Helper()
	for _, s := range l.steps {
		if s.file != "" {
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.text), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		command, err := l.bound(s.text)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.compare(sh.run(command), s.want); err != nil {
			t.Fatalf("$ %s\n%v", command, err)
		}
	}
}

func wantRow(t *testing.T, file, want, query string) {
	t.Helper()
	db, err := rig.OpenDB(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got string
	if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
		t.Errorf("%s: %q (%v), want %q", filepath.Base(file), got, err, want)
	}
}

// shell runs commands one after the other, as a person types them. They write
// to a terminal: into a pipe programs write something else.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// endOfOutput is a line that no command prints.
const endOfOutput = "\x1e"

func startShell(t *testing.T, dir string) *shell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	c := exec.CommandContext(ctx, "sh")
	c.Dir = dir
	// A make around the test would have the tutorial's say where it works.
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") })
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	screen, tty := terminal(t)
	c.Stdout, c.Stderr = tty, tty
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	t.Cleanup(func() {
		in.Close()
		cancel()
		_ = c.Wait()
		screen.Close()
	})
	return &shell{t, in, bufio.NewReader(screen)}
}

// terminal returns the two ends of a terminal: what a person sees of it, and
// what programs write to.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(screen.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

// run returns what a command prints. The next one finds its exit code in $?.
func (s *shell) run(command string) string {
	s.t.Helper()
	quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
	fmt.Fprintf(s.in, "eval %s </dev/null; code=$?; printf '\\036\\n'; (exit $code)\n", quoted)
	var b strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		line = strings.ReplaceAll(line, "\r\n", "\n")
		if before, found := strings.CutSuffix(line, endOfOutput+"\n"); found {
			return b.String() + before
		}
		b.WriteString(line)
		if err != nil {
			s.t.Fatalf("$ %s\n%s\nthe shell ended: %v", command, b.String(), err)
		}
	}
}
