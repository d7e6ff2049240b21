package trap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
)

func TestTrap(t *testing.T) {
	points := append(fault.All(), "F1-claimed")
	for spec, want := range map[string]string{"C9": "unknown point", "C1-received:0": "not a count", "C1-received:x": "not a count", "C1-received:1:1": "not a count"} {
		if _, err := Arm(func(n string) string { return map[string]string{faultVar: spec}[n] }, points); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	restore, err := Arm(func(string) string { return "" }, points)
	if err != nil {
		t.Fatal(err)
	}
	restore()

	path := filepath.Join(t.TempDir(), "log")
	restore, err = Arm(func(n string) string { return map[string]string{logVar: path}[n] }, points)
	if err != nil {
		t.Fatal(err)
	}
	fault.Hit(fault.Received)
	fault.Hit(fault.Received)
	fault.Hit("F1-claimed")
	restore()
	fault.Hit(fault.Decoded)
	if b, err := os.ReadFile(path); err != nil || string(b) != "C1-received\nF1-claimed\n" {
		t.Errorf("log %q, %v", b, err)
	}

	sprung := 0
	p := &trap{seen: map[fault.Point]bool{}, point: fault.Committed, left: 2, spring: func() { sprung++ }}
	for _, at := range []fault.Point{fault.Opened, fault.Committed, fault.Opened} {
		p.hit(at)
	}
	if sprung != 0 {
		t.Error("sprang too early")
	}
	p.hit(fault.Committed)
	p.hit(fault.Committed)
	if sprung != 1 {
		t.Errorf("sprang %d times", sprung)
	}
}
