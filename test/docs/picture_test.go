package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
)

// TestPicture: the picture is small, its text is text, it has both modes, and
// it shows every crash point of the pipeline.
func TestPicture(t *testing.T) {
	b, err := os.ReadFile(repository + "/docs/flow.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 30_000 {
		t.Errorf("%d bytes, at most 30,000", len(b))
	}
	var text []string
	for d := xml.NewDecoder(strings.NewReader(string(b))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok {
			text = append(text, strings.TrimSpace(string(c)))
		}
	}
	all := "\n" + strings.Join(text, "\n") + "\n"
	for _, p := range fault.All() {
		name, _, _ := strings.Cut(string(p), "-")
		if strings.HasPrefix(name, "C") && strings.Count(all, "\n"+name+"\n") != 2 {
			t.Errorf("%s should be in the picture and among what a restart finds", p)
		}
	}
	for _, word := range []string{"source", "receive", "decode", "admit", "handle", "record", "commit", "settle", "parked", "dead letter"} {
		if !strings.Contains(all, "\n"+word+"\n") {
			t.Errorf("the picture does not have %q", word)
		}
	}
	if !strings.Contains(string(b), "prefers-color-scheme: dark") {
		t.Error("the picture has one mode only")
	}
}

// TestCrashPoints: the page on crashes has every point of the pipeline.
func TestCrashPoints(t *testing.T) {
	page := read(t, repository+"/docs/explanation/failure-windows.md")
	for _, p := range append(fault.All(), fault.Effects()...) {
		if name, _, _ := strings.Cut(string(p), "-"); !strings.Contains(page, "**"+name+"**") {
			t.Errorf("the page does not say what a crash at %s leaves", p)
		}
	}
}
