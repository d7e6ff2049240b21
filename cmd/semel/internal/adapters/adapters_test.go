package adapters

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// queue makes the files of a directory queue; names that end in a slash are
// directories.
func queue(t *testing.T, files map[string]string) *config.File {
	t.Helper()
	f := &config.File{Name: "p", Source: config.Location{Scheme: "directory", Path: t.TempDir()}}
	for name, body := range files {
		path := filepath.Join(f.Source.Path, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == path {
			continue
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func seen(t *testing.T, f *config.File, stage string) (found []string) {
	t.Helper()
	err := Look(f).Each(t.Context(), stage, func(place string, d *semel.Delivery) error {
		s := fmt.Sprintf("%s %s:%d %q", place, d.Position.Scope.Name, d.Position.Lo, d.Body)
		if d.Malformed != nil {
			s += " malformed"
		}
		found = append(found, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestOnlyMessagesAreSeen(t *testing.T) {
	f := queue(t, map[string]string{
		"inbox/a.json": "A", "inbox/.hidden": "x", "inbox/b.json.tmp": "x", "inbox/c.PART": "x", "inbox/d~": "x",
		"inbox/e.semel.json": "x", "inbox/sub/f.json": "x", "inbox/g": "", "inbox/h.json": "x", "inbox/big": strings.Repeat("x", 11),
	})
	f.Rules.MaxBytes = 10
	inbox := filepath.Join(f.Source.Path, "inbox")
	if err := os.Symlink("a.json", filepath.Join(inbox, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(inbox, "h.json"), filepath.Join(inbox, "i.json")); err != nil {
		t.Fatal(err)
	}
	want := []string{`inbox/a.json a.json:0 "A"`, `inbox/big big:0 "" malformed`, `inbox/g g:0 ""`}
	if got := seen(t, f, "inbox"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMarkersDecideWhereTheyAreTheRule(t *testing.T) {
	f := queue(t, map[string]string{"inbox/a": "A", "inbox/a.ok": "", "inbox/b": "B", "inbox/c.tmp": "C", "inbox/c.tmp.ok": ""})
	f.Complete = "marker"
	if got := seen(t, f, "inbox"); !slices.Equal(got, []string{`inbox/a a:0 "A"`, `inbox/c.tmp c.tmp:0 "C"`}) {
		t.Errorf("%q", got)
	}
}

func TestLinesPlainAndPacked(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte("1\n22\n"))
	w.Close()
	f := queue(t, map[string]string{"inbox/a": "1\n\n22\r\n333", "inbox/b.gz": z.String(), "inbox/c.gz": z.String()[:z.Len()-9], "inbox/d.gz": "\x1f\x8b\x08", "inbox/e": ""})
	f.Files = "lines"
	want := []string{
		`inbox/a:0 a:0 "1"`, `inbox/a:3 a:3 "22\r"`, `inbox/a:7 a:7 "333"`,
		`inbox/b.gz:0 b.gz:0 "1"`, `inbox/b.gz:2 b.gz:2 "22"`,
		`inbox/c.gz:0 c.gz:0 "1"`, `inbox/c.gz:2 c.gz:2 "22"`, `inbox/c.gz:5 c.gz:5 "" malformed`,
		`inbox/d.gz:0 d.gz:0 "" malformed`,
	}
	if got := seen(t, f, "inbox"); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func TestStages(t *testing.T) {
	f := queue(t, map[string]string{
		"inbox/a": "", "inbox/b": "", "inbox/.x": "", "inbox/y.tmp": "", "inbox/.semel-probe-1": "", "inbox/z.semel.json": "", "done/c": "", "error/d": "", "error/d.semel.json": "",
		"processing/w1/.lock": "", "processing/w1/1/e": "", "processing/w1/2.ab/f": "", "processing/w1/2.ab/.e.f": "", "processing/w2/.lock": "",
		"processing/.w3/.lock": "",
	})
	got, err := Look(f).Stages(t.Context())
	want := []Stage{{"inbox", "", 2}, {"settling", "", 2}, {"processing", "w1", 2}, {"processing", "w2", 0}, {"done", "", 1}, {"error", "", 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got := seen(t, f, "processing"); len(got) != 2 || !strings.HasPrefix(got[0], "processing/w1/1/e e:0") {
		t.Errorf("%q", got)
	}
}

func TestEachStops(t *testing.T) {
	f := queue(t, map[string]string{"inbox/a": "1\n2\n", "inbox/b": "3\n"})
	f.Files = "lines"
	stop, n := errors.New("stop"), 0
	if err := Look(f).Each(t.Context(), "inbox", func(string, *semel.Delivery) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d calls, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Look(f).Each(ctx, "inbox", func(string, *semel.Delivery) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCheckDirectory(t *testing.T) {
	f := queue(t, map[string]string{"inbox/": "", "done": "a file"})
	notes, err := Look(f).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "done: it is not a directory") || len(notes) != 1 {
		t.Errorf("%v, %v", notes, err)
	}
	f.Source.Path = filepath.Join(f.Source.Path, "inbox")
	if _, err = Look(f).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is the inbox itself") {
		t.Errorf("the inbox as root: %v", err)
	}
	f.Source.Path = filepath.Join(t.TempDir(), "none")
	if _, err = Look(f).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist (create it") {
		t.Errorf("no root: %v", err)
	}
	if c, ok := semel.ClassOf(err); !ok || c != semel.ClassFault {
		t.Errorf("no root is of class %v", c)
	}
}

func TestSQLitePlaces(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{"text": "hello, this is no database", "short": "SQLite", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"text": "not a SQLite database", "short": "not a SQLite database", "": "it is a directory", "no/x.db": "the directory " + filepath.Join(dir, "no") + " does not exist",
		"text/x.db": "not a directory", "empty": "", "new.db": "",
	} {
		st, err := OpenStore(t.Context(), config.Location{Scheme: "sqlite", Path: filepath.Join(dir, path)})
		if want == "" && err == nil {
			if err := st.Schema.Migrate(t.Context()); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if file, err := lookAtSQLite(filepath.Join(dir, path)); err != nil || !file.there || !file.wal {
				t.Errorf("%s: %+v, %v", path, file, err)
			}
			st.Close()
			continue
		}
		if want == "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestOptionsAreComplete: what the reader of files takes can be opened.
func TestOptionsAreComplete(t *testing.T) {
	o := Options()
	for scheme := range o.Sources {
		if s := sources()[scheme]; s.open == nil || s.look == nil {
			t.Errorf("source %s", scheme)
		}
	}
	for scheme, d := range o.Stores {
		if s := stores()[scheme]; s.open == nil || s.check == nil || s.exists == nil || s.statements == nil || d.Name != scheme {
			t.Errorf("store %s", scheme)
		}
	}
}
