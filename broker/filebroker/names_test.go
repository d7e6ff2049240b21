package filebroker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
)

func TestNumbered(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		want string
	}{
		{"a.json", 0, "a.json"},
		{"a.json", 1, "a.1.json"},
		{"a", 12, "a.12"},
		{"a.ndjson.gz", 2, "a.2.ndjson.gz"},
		{".profile", 1, ".profile.1"},
		{"a.", 1, "a..1"},
		{"a.not really an extension at all", 1, "a.not really an extension at all.1"},
		{strings.Repeat("x", 255), 10, strings.Repeat("x", 252) + ".10"},
		{strings.Repeat("x", 250) + ".json", 10, strings.Repeat("x", 247) + ".10.json"},
	} {
		if got := numbered(c.name, c.n); got != c.want {
			t.Errorf("numbered(%q, %d) = %q, want %q", c.name, c.n, got, c.want)
		}
	}
}

func TestLineName(t *testing.T) {
	for name, want := range map[string]string{
		"a.ndjson":    "a.42.ndjson",
		"a.ndjson.gz": "a.42.ndjson",
		"a.gz":        "a.42",
		"a":           "a.42",
		".gz":         ".gz.42",
	} {
		if got := lineName(name, 42); got != want {
			t.Errorf("lineName(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestNextFree: any pattern of used numbers ends at a free one, after few
// questions where they are without gaps.
func TestNextFree(t *testing.T) {
	for used := range 200 {
		asked := 0
		got := nextFree(0, func(n int) bool { asked++; return n <= used })
		if got != used+1 {
			t.Fatalf("with 0 to %d used: %d", used, got)
		}
		if asked > 20 {
			t.Errorf("with 0 to %d used: %d questions", used, asked)
		}
	}
	odd := func(n int) bool { return n%2 == 1 }
	if got := nextFree(0, odd); odd(got) {
		t.Errorf("%d is used", got)
	}
}

func TestFit(t *testing.T) {
	long := strings.Repeat("x", 255)
	a, b := sidecarName(long), sidecarName(long[:254]+"y")
	if len(a) > maxName || len(b) > maxName || a == b || !isSidecar(a) {
		t.Errorf("sidecars %q and %q", a, b)
	}
	if got := sidecarName("a.json"); got != "a.json.semel.json" {
		t.Errorf("sidecar %q", got)
	}
}

func TestNameSurvivesJSON(t *testing.T) {
	for _, name := range []string{"a", "é🎈", "\xff\xfe", `{"bytes":"x"}`, ""} {
		b, err := json.Marshal(Name(name))
		if err != nil {
			t.Fatal(err)
		}
		var back Name
		if err := json.Unmarshal(b, &back); err != nil || string(back) != name {
			t.Errorf("%q became %s and then %q, %v", name, b, back, err)
		}
	}
}

func TestMoveNewReplacesNothing(t *testing.T) {
	for _, m := range []mover{{}, {linkOnly: true}} {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for _, p := range []string{a, b} {
			if err := os.WriteFile(p, []byte(p), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.moveNew(a, b); !os.IsExist(err) {
			t.Errorf("%+v: onto another: %v, want exists", m, err)
		}
		if err := m.moveNew(filepath.Join(dir, "none"), b+"2"); !os.IsNotExist(err) {
			t.Errorf("%+v: of nothing: %v, want not exists", m, err)
		}
		if err := m.moveNew(a, a+"2"); err != nil || exists(a) || !exists(a+"2") {
			t.Errorf("%+v: %v", m, err)
		}
		if got, _ := os.ReadFile(b); string(got) != b {
			t.Errorf("%+v: b holds %q", m, got)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	root := t.TempDir()
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"no root":      {Config{}, "root is missing"},
		"inbox":        {Config{Root: filepath.Join(root, "inbox")}, root},
		"inbox/":       {Config{Root: filepath.Join(root, "inbox") + "/"}, "is the inbox itself"},
		"unknown rule": {Config{Root: root, Complete: 9}, "unknown value"},
		"marker":       {Config{Root: root, MarkerSuffix: "ok"}, "begins with a dot"},
		"worker":       {Config{Root: root, Worker: "../x"}, "no slash"},
		"negative":     {Config{Root: root, Lease: -1}, "negative"},
		"missing root": {Config{Root: filepath.Join(root, "nowhere")}, "create it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open: %v, want it to say %q", err, c.says)
			}
		})
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Root: file}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("Open of a file: %v", err)
	}
	q, err := Open(t.Context(), Config{Root: filepath.Join(root, "new", "queue"), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	q.Close(t.Context())
}

func TestPointsAreDistinct(t *testing.T) {
	seen := map[fault.Point]bool{}
	for _, p := range append(fault.All(), Points()...) {
		if seen[p] {
			t.Errorf("point %s is there twice", p)
		}
		seen[p] = true
	}
}
