//go:build unix

package filebroker

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/fault"
)

// crash is one way to die: the plans that lead to the point, each but the
// last of which dies, and then an ordinary worker.
type crashCase struct {
	name  string
	plans []plan
}

func crashes() []crashCase {
	var cs []crashCase
	add := func(name string, ps ...plan) { cs = append(cs, crashCase{name, ps}) }
	for _, files := range kinds() {
		kind := kindName(files)
		for nth := range 3 {
			for _, at := range []fault.Point{Claimed, Moved, Noted, Arrived} {
				if nth > 1 && (files != Whole || at == Noted || at == Arrived) {
					continue // there are two files of lines, and two bad messages
				}
				add(fmt.Sprint(kind, " ", at, " ", nth+1), plan{Files: files, DieAt: at, Nth: nth + 1})
			}
		}
		for nth := range 5 {
			if files == Whole || nth < 4 {
				add(fmt.Sprint(kind, " ", Linked, " ", nth+1), plan{Files: files, LinkOnly: true, DieAt: Linked, Nth: nth + 1})
			}
		}
		for nth := range 2 {
			add(fmt.Sprint(kind, " ", Returned, " ", nth+1), plan{Files: files, GiveBack: true, DieAt: Returned, Nth: nth + 1})
			add(fmt.Sprint(kind, " given back by link ", nth+1), plan{Files: files, LinkOnly: true, GiveBack: true, DieAt: Linked, Nth: nth + 1})
			add(fmt.Sprint(kind, " marked ", Returned, " ", nth+1), plan{Files: files, Complete: Marked, GiveBack: true, DieAt: Returned, Nth: nth + 1})
			add(fmt.Sprint(kind, " marked, given back by link ", nth+1), plan{Files: files, Complete: Marked, LinkOnly: true, GiveBack: true, DieAt: Linked, Nth: nth + 1})
			add(fmt.Sprint(kind, " ", Marker, " ", nth+1), plan{Files: files, Complete: Marked, DieAt: Marker, Nth: nth + 1})
			add(fmt.Sprint(kind, " marked ", Claimed, " ", nth+1), plan{Files: files, Complete: Marked, DieAt: Claimed, Nth: nth + 1})
		}
		add(fmt.Sprint(kind, " ", Taken), plan{Files: files, DieAt: Claimed, Nth: 2}, plan{Files: files, DieAt: Taken})
		add(fmt.Sprint(kind, " three in a row"), plan{Files: files, DieAt: Noted}, plan{Files: files, DieAt: Arrived}, plan{Files: files, DieAt: Moved})
		add(fmt.Sprint(kind, " ", Taken, " after ", Arrived), plan{Files: files, DieAt: Arrived}, plan{Files: files, DieAt: Taken})
	}
	for _, files := range []Files{Whole, CSV} {
		kind := kindName(files) + " summed "
		for _, at := range []fault.Point{Marker, Claimed, Moved, Noted, Arrived, Parted} {
			for nth := range 2 {
				add(fmt.Sprint(kind, at, " ", nth+1), plan{Files: files, Complete: Summed, DieAt: at, Nth: nth + 1})
			}
		}
		for nth := range 2 {
			add(fmt.Sprint(kind, Returned, " ", nth+1), plan{Files: files, Complete: Summed, GiveBack: true, DieAt: Returned, Nth: nth + 1})
			add(fmt.Sprint(kind, "given back by link ", nth+1), plan{Files: files, Complete: Summed, LinkOnly: true, GiveBack: true, DieAt: Linked, Nth: nth + 1})
			add(fmt.Sprint(kind, "link ", nth+1), plan{Files: files, Complete: Summed, LinkOnly: true, DieAt: Linked, Nth: nth + 1})
		}
		add(kind+"three in a row", plan{Files: files, Complete: Summed, DieAt: Claimed}, plan{Files: files, Complete: Summed, DieAt: Parted}, plan{Files: files, Complete: Summed, DieAt: Taken})
	}
	for _, f := range formats {
		add(fmt.Sprint(f.name, " ", Split), plan{Files: f.files, DieAt: Split})
		add(fmt.Sprint(f.name, " ", Split, " 2"), plan{Files: f.files, DieAt: Split, Nth: 2})
	}
	return cs
}

func kinds() []Files { return []Files{Whole, Lines, Array, CSV} }

func kindName(f Files) string {
	return [...]string{Whole: "whole", Lines: "lines", Array: "array", CSV: "csv"}[f]
}

// TestCrashPoints kills a real process at every point and lets another one
// finish: nothing is lost, nothing is in two places, nothing is replaced.
func TestCrashPoints(t *testing.T) {
	reached := map[fault.Point]bool{}
	for _, c := range crashes() {
		t.Run(c.name, func(t *testing.T) {
			d := newDir(t)
			last := c.plans[len(c.plans)-1]
			want := d.fill(last)
			for _, p := range c.plans {
				if p.DieAt == Split {
					want.missing++
				}
			}
			for _, p := range c.plans {
				p.Root = d.root
				ch := start(t, p)
				if err := ch.wait(); !killed(err) {
					t.Fatalf("the worker ended with %v before it came to %s; it said %q", err, p.DieAt, ch.seen)
				}
				reached[p.DieAt] = true
			}
			ch := start(t, plan{Root: d.root, Files: last.Files, Complete: last.Complete})
			if err := ch.wait(); err != nil {
				t.Fatalf("the worker after the crash: %v; it said %q", err, ch.seen)
			}
			d.checkSums(&want)
			d.check(want, ch)
		})
	}
	for _, p := range Points() {
		if !reached[p] {
			t.Errorf("no process died at %s", p)
		}
	}
}

// expected is where everything must end.
type expected struct {
	done, error []string          // contents
	decided     []string          // bodies
	letters     map[string]string // content in error/: letter of its sidecar
	// missing is how many dead lines may have no copy in error/: the letter
	// is in the database, and a line that is decided does not come again.
	missing int
	sums    int // checksum sidecars
}

// fill writes a queue whose done/ and error/ hold files of the same names
// already, and one file that came back from error/.
func (d *dir) fill(p plan) expected {
	for _, stage := range []string{doneDir, errorDir} {
		if err := os.MkdirAll(d.at(stage), 0o777); err != nil {
			d.Fatal(err)
		}
	}
	ext := ".json"
	if p.Files != Whole {
		ext = "." + kindName(p.Files)
	}
	d.write(d.at("done", "a"+ext), "older a")
	d.write(d.at("error", "b"+ext), "older b")
	d.write(d.at("error", "c.semel.json"), "not a sidecar of ours, but it has the name")
	d.write(d.at("error", "back"+ext+sidecarSuffix), `{"file":"back`+ext+`","letter":"L9","why":"a person has seen it"}`)
	w := expected{done: []string{"older a"}, error: []string{"older b", "not a sidecar of ours, but it has the name"}}
	d.fillWhole(p, &w)
	d.fillParts(p, ext, &w)
	return w
}

func (d *dir) fillWhole(p plan, w *expected) {
	if p.Files != Whole {
		return
	}
	w.letters = map[string]string{"bad b": "letter of b.json", "bad d": "letter of d.json"}
	for name, body := range map[string]string{"a.json": "good a", "b.json": "bad b", "c.json": "good c", "d.json": "bad d", "back.json": "good again"} {
		d.arrive(p, name, body)
		w.sums += oneIf(p.Complete == Summed)
		w.decided = append(w.decided, body)
		if strings.HasPrefix(body, "bad") {
			w.error = append(w.error, body)
		} else {
			w.done = append(w.done, body)
		}
	}
}

func (d *dir) fillParts(p plan, ext string, w *expected) {
	if p.Files == Whole {
		return
	}
	w.letters = map[string]string{}
	for name, words := range map[string][]string{"a": {"good 1", "bad 2", "", "good 3"}, "back": {"good 4", "bad 5", "good 6"}} {
		body := fileOfWords(p.Files, words, name == "a")
		d.arrive(p, name+ext, body)
		w.sums += oneIf(p.Complete == Summed)
		w.done = append(w.done, body)
		for _, word := range words {
			if word == "" {
				continue
			}
			w.decided = append(w.decided, wordBody(p.Files, word))
			if strings.HasPrefix(word, "bad") {
				dead := fileOfWords(p.Files, []string{word}, true)
				w.error = append(w.error, dead)
				w.letters[dead] = "letter of " + name + ext
			}
		}
	}
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// fileOfWords makes a file with a message for every word but the empty ones.
func fileOfWords(files Files, words []string, newline bool) (s string) {
	switch files {
	case Array:
		quoted := []string{}
		for _, w := range words {
			if w != "" {
				quoted = append(quoted, `"`+w+`"`)
			}
		}
		s = "[" + strings.Join(quoted, ", ") + "]"
	case CSV:
		s = "v\n" + strings.Join(words, "\n")
	default:
		s = strings.Join(words, "\n")
	}
	if newline {
		s += "\n"
	}
	return s
}

// wordBody is the message that a word becomes.
func wordBody(files Files, word string) string {
	return map[Files]string{Lines: word, Array: `"` + word + `"`, CSV: `{"v":"` + word + `"}`}[files]
}

func (d *dir) arrive(p plan, name, body string) {
	d.put(name, body)
	switch p.Complete {
	case Marked:
		d.put(name+".ok", "")
	case Summed:
		d.put(name+".sha256", sha256Of(body)+"  "+name+"\n")
	}
}

func sha256Of(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }

// checkSums: every checksum lies beside the file that it is of, under the name
// that the file has there; then they are forgotten.
func (d *dir) checkSums(w *expected) {
	d.Helper()
	n := 0
	for _, stage := range []string{"done", "error"} {
		for _, name := range d.tree(stage) {
			of, ok := strings.CutSuffix(name, ".sha256")
			if !ok {
				continue
			}
			n++
			sum, _ := os.ReadFile(d.at(stage, name))
			body, _ := os.ReadFile(d.at(stage, of))
			if !strings.HasPrefix(string(sum), sha256Of(string(body))) {
				d.Errorf("%s/%s is not of the file beside it", stage, name)
			}
			os.Remove(d.at(stage, name))
		}
	}
	if n != w.sums {
		d.Errorf("%d checksums arrived, want %d", n, w.sums)
	}
}

// check compares the directories with what must be there.
func (d *dir) check(w expected, ch *child) {
	d.Helper()
	d.want("inbox")
	d.want("processing")
	if left, _ := os.ReadDir(d.at("processing")); len(left) > 0 {
		d.Errorf("processing holds %v", left)
	}
	done, _ := d.contents("done")
	d.sameSet("done", done, w.done)
	found, letters := d.contents("error")
	if w.missing > 0 {
		w = w.without(found)
	}
	d.sameSet("error", found, w.error)
	if !maps.Equal(letters, w.letters) {
		d.Errorf("sidecars name %q, want %q", letters, w.letters)
	}
	b, err := os.ReadFile(d.at("decided"))
	if err != nil {
		d.Fatal(err)
	}
	for _, body := range w.decided {
		if !strings.Contains(string(b), " "+body+"\n") {
			d.Errorf("%q was never decided", body)
		}
	}
	if d.Failed() {
		d.Logf("the last worker said %q", ch.seen)
		d.Logf("decided: %q", b)
	}
}

// without forgets up to missing dead lines that were not found.
func (w expected) without(found []string) expected {
	w.letters = maps.Clone(w.letters)
	w.error = slices.DeleteFunc(slices.Clone(w.error), func(body string) bool {
		lost := w.missing > 0 && strings.Contains(body, "bad") && !slices.Contains(found, body)
		if lost {
			w.missing--
			delete(w.letters, body)
		}
		return lost
	})
	return w
}

// contents reads a stage: what the files hold, and the letters of those with
// a sidecar.
func (d *dir) contents(stage string) (found []string, letters map[string]string) {
	d.Helper()
	letters = map[string]string{}
	names := d.tree(stage)
	for _, name := range names {
		b, err := os.ReadFile(d.at(stage, name))
		if err != nil {
			d.Fatal(err)
		}
		s, err := readSidecar(d.at(stage, name))
		if err != nil || !isSidecar(name) {
			found = append(found, string(b))
			continue
		}
		beside, err := os.ReadFile(d.at(stage, string(s.File)))
		if err != nil {
			d.Errorf("sidecar %s: %v", name, err)
		}
		letters[string(beside)] = s.Letter
	}
	return found, letters
}

func (d *dir) sameSet(stage string, got, want []string) {
	d.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.Errorf("%s holds %q, want %q", stage, got, want)
	}
}
