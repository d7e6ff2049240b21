package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/servers/servertest"
)

// build makes the program.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// call runs the program in a directory and returns what it printed, apart from
// progress, and its exit code.
func call(t *testing.T, path, dir string, args ...string) (out, progress string, code int) {
	t.Helper()
	cmd := exec.Command(path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func TestProgram(t *testing.T) {
	path, dir := build(t), t.TempDir()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "servers run"},
		{"list", 0, "PostgreSQL 18"},
		{"", 2, "run, up, down or list"},
		{"fly", 2, `no "fly"`},
		{"run redis", 2, "a command"},
		{"run oracle -- true", 2, "[mariadb mysql opensearch postgres postgres18 redis]"},
		{"run redis -- false", 1, "servers: redis: Redis"},
		{"run redis -- no-such-command", 1, "no-such-command"},
		{"run redis -- printenv SEMEL_TEST_SERVERS", 0, "/host/socket"},
		{"down", 0, "none are up"},
	} {
		out, progress, code := call(t, path, dir, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+progress, c.says) {
			t.Errorf("%q ended with %d, want %d and %q:\n%s%s", c.args, code, c.code, c.says, out, progress)
		}
	}
	if _, _, code := call(t, path, dir, "run", "redis", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("the command's exit code 7 became %d", code)
	}
}

// What "up" prints is taken by tests, until "down".
func TestUpAndDown(t *testing.T) {
	path, dir := build(t), t.TempDir()
	out, progress, code := call(t, path, dir, "up", "redis")
	t.Cleanup(func() { call(t, path, dir, "down") })
	value, ok := strings.CutPrefix(strings.TrimSpace(out), "export "+servertest.Redis.Env()+"='")
	if !ok || code != 0 || strings.Contains(value, "\n") {
		t.Fatalf("up: %d\n%s%s", code, out, progress)
	}
	t.Setenv(servertest.Redis.Env(), strings.TrimSuffix(value, "'"))
	t.Run("a test", func(t *testing.T) {
		if address := servertest.Redis.Database(t); !strings.HasPrefix(value, address[:strings.LastIndex(address, "/")]) {
			t.Errorf("a test got %s, up printed %s", address, value)
		}
	})
	_, data, _ := strings.Cut(strings.TrimSuffix(value, "'"), "#")
	if out, _, _ := call(t, path, dir, "list"); !strings.Contains(out, data) {
		t.Errorf("not listed:\n%s", out)
	}
	if _, progress, code := call(t, path, dir, "up", "redis"); code != 1 || !strings.Contains(progress, "down") {
		t.Errorf("a second up: %d, %s", code, progress)
	}
	if _, progress, code := call(t, path, dir, "down"); code != 0 {
		t.Errorf("down: %d, %s", code, progress)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", data, err)
	}
}
