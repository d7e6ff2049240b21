package inputs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEarthquakes(t *testing.T) {
	files, err := Earthquakes()
	if err != nil {
		t.Fatal(err)
	}
	status, ids, inversions := map[string]int{}, map[string]bool{}, 0
	var before int64
	for _, f := range files {
		var e struct {
			ID, Status string
			Updated    int64
		}
		if err := json.Unmarshal(f.Body, &e); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		ids[e.ID] = true
		status[e.Status]++
		if e.Updated > before && before > 0 {
			inversions++
		}
		before = e.Updated
	}
	if len(files) != 1707 || len(ids) != 1707 || status["automatic"] != 493 || status["reviewed"] != 1214 {
		t.Errorf("%d files, %d ids, %v; want 1707 of both, 493 automatic and 1214 reviewed", len(files), len(ids), status)
	}
	if inversions != 789 {
		t.Errorf("updated grows %d times although the feed goes back in time, want 789", inversions)
	}
}

func TestVulnerabilities(t *testing.T) {
	files, err := Vulnerabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4789 {
		t.Errorf("%d files, want 4789", len(files))
	}
	for _, f := range files {
		var e struct{ ID string }
		if err := json.Unmarshal(f.Body, &e); err != nil || e.ID != strings.TrimSuffix(f.Name, ".json") {
			t.Errorf("%s: id %q, error %v", f.Name, e.ID, err)
		}
	}
}

func TestDownloadRefusesOtherContent(t *testing.T) {
	if _, err := download(t.Context(), vulndb, "h1:other"); err == nil || !strings.Contains(err.Error(), "content") {
		t.Errorf("error is %v, want one about the content", err)
	}
	if _, err := download(t.Context(), "golang.org/x/vulndb@v0.0.0-20000101000000-000000000000", vulndbSum); err == nil {
		t.Error("a version that does not exist was downloaded")
	}
}

func TestDeliver(t *testing.T) {
	root := t.TempDir()
	want := []File{{"a.json", []byte("1")}, {"b.json", []byte("")}}
	if err := Deliver(root, want); err != nil {
		t.Fatal(err)
	}
	if err := Deliver(root, want[:1]); err != nil {
		t.Fatal("again:", err)
	}
	got, err := readDir(filepath.Join(root, "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d files, want %d", len(got), len(want))
	}
	for i, f := range got {
		if f.Name != want[i].Name || !bytes.Equal(f.Body, want[i].Body) {
			t.Errorf("file %d is %s with %q, want %s with %q", i, f.Name, f.Body, want[i].Name, want[i].Body)
		}
	}
	if err := Deliver(filepath.Join(root, "inbox", "a.json"), want); err == nil {
		t.Error("delivered below a file")
	} else if !os.IsNotExist(err) && !strings.Contains(err.Error(), "a.json") {
		t.Errorf("error %v does not name the place", err)
	}
}
