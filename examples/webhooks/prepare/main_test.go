package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/semel-dev/semel/examples/webhooks"
)

// write makes an archive like npm's.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, body := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tgz")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrepare(t *testing.T) {
	archive := write(t, map[string]string{
		"package/package.json": `{"name": "not a list"}`,
		"package/ghes-31/index.json": `[
			{"name": "ping", "examples": [{"zen": "<b> & 1.0", "mail": "b@mail.example.org"}, {"zen": "<b> & 1.0", "mail": "c@mail.example.org"}]}]`,
		"package/api.github.com/index.json": `[
			{"name": "issues", "examples": [{"action": "opened",  "id": 9007199254740993}]},
			{"name": "ping", "examples": [{"zen": "<b> & 1.0",
			  "mail": "b@mail.example.org"}, {"url": "git@github.com:a/b.git"}]}]`,
	})
	out := filepath.Join(t.TempDir(), "out.gz")
	if err := run(archive, out); err != nil {
		t.Fatal(err)
	}
	got := lines(t, out)
	want := []webhooks.Payload{
		{IDs: []string{"api-001-issues-opened"}, Body: json.RawMessage(`{"action":"opened","id":9007199254740993}`)},
		{IDs: []string{"api-002-ping", "ghes31-001-ping"}, Body: json.RawMessage(`{"zen":"<b> & 1.0","mail":"person1@example.com"}`)},
		{IDs: []string{"api-003-ping"}, Body: json.RawMessage(`{"url":"git@github.com:a/b.git"}`)},
		{IDs: []string{"ghes31-002-ping"}, Body: json.RawMessage(`{"zen":"<b> & 1.0","mail":"person2@example.com"}`)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("made %s\nwant %s", got, want)
	}
}

func lines(t *testing.T, path string) (all []webhooks.Payload) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); d.More(); {
		var p webhooks.Payload
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestPrepareRefuses(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"no index.json": {"package/package.json": "{}"},
		"ghes-31":       {"package/ghes-31/index.json": `{"name": "ping"}`},
	} {
		out := filepath.Join(t.TempDir(), "out.gz")
		if err := run(write(t, files), out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("it wrote a file all the same")
		}
	}
	if err := run(filepath.Join(t.TempDir(), "none.tgz"), "out.gz"); err == nil {
		t.Error("an archive that does not exist was read")
	}
}
