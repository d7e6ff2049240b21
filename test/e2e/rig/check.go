package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// The checker. It knows nothing of how a consumer works: it compares what was
// delivered with what is on disk. It serves semel and the broken consumers
// alike, which therefore write their effects and letters into tables of the
// same names:
//
//	effects(id, key, rev)           one row per effect, in the order of rowid
//	counter(n)                      counts effects
//	semel_letter(id, body, state)   parked messages

// Fate is what has to become of a message.
type Fate uint8

// Fates. A message that is Applied has exactly one effect, or none if the
// pipeline arbitrates and a newer one of its key was applied before.
const (
	Applied  Fate = iota
	Dead          // an open dead letter, and no effect
	Filtered      // nothing
)

// Message is one message that was delivered, once or several times.
type Message struct {
	ID, Key, Body string
	Rev           int64
	Fate          Fate
}

// Want is all that was delivered.
type Want struct {
	Messages []Message
	// Files are the contents of all files that were put into the inbox, and
	// Dead those that have to end in error/ (for lines: the dead lines).
	Files, Dead []string
	// Lines: files of lines all end in done/, dead lines in error/ besides.
	Lines bool
	// Torn: a process died. The copy of a dead line in error/ is written
	// after the commit and is not written later if the process dies in
	// between; the letter has the line.
	Torn bool
	// Versions: the pipeline arbitrates by Rev. Ordered: it keeps the order
	// of a key, which is that of Rev, and loses nothing for it.
	Versions, Ordered bool
}

// Add adds what w2 delivered.
func (w *Want) Add(w2 Want) {
	w.Messages = append(w.Messages, w2.Messages...)
	w.Files = append(w.Files, w2.Files...)
	w.Dead = append(w.Dead, w2.Dead...)
}

// State is what is on disk.
type State struct {
	Effects []Effect
	Counter int64
	Letters []Letter
	// Waiting are the names of files in inbox/ and processing/; Done and
	// Errors the contents of those in done/ and error/.
	Waiting      []string
	Done, Errors []string
}

// Effect is one row of effects.
type Effect struct {
	ID, Key string
	Rev     int64
}

// Letter is one row of semel_letter.
type Letter struct{ ID, Body, State string }

// Open reports whether it waits for something.
func (l Letter) Open() bool {
	return slices.Contains([]string{"retry", "held", "dead", "edited", "approved"}, l.State)
}

// Read reads the state in one snapshot of the database.
func (q *Queue) State() State {
	q.t.Helper()
	s, err := ReadState(q.Root, q.DB)
	if err != nil {
		q.t.Fatal(err)
	}
	return s
}

// ReadState reads the state of a queue and its database. A database that is
// not there, or has no tables yet, has no rows.
func ReadState(root, dbPath string) (State, error) {
	var s State
	err := s.readTables(dbPath)
	for _, stage := range []string{"inbox", "processing"} {
		files, e := filesBelow(filepath.Join(root, stage))
		err = errors.Join(err, e)
		for _, f := range files {
			s.Waiting = append(s.Waiting, stage+"/"+f)
		}
	}
	var e error
	s.Done, e = contents(filepath.Join(root, "done"))
	err = errors.Join(err, e)
	s.Errors, e = contents(filepath.Join(root, "error"))
	return s, errors.Join(err, e)
}

func (s *State) readTables(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := OpenDB(path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("BEGIN"); err != nil {
		return err
	}
	steps := map[string]func(scan func(...any) error) error{
		"SELECT id, key, rev FROM effects ORDER BY rowid": func(scan func(...any) error) error {
			var e Effect
			err := scan(&e.ID, &e.Key, &e.Rev)
			s.Effects = append(s.Effects, e)
			return err
		},
		"SELECT COALESCE(SUM(n), 0) FROM counter": func(scan func(...any) error) error { return scan(&s.Counter) },
		"SELECT CAST(id AS TEXT), CAST(COALESCE(body, '') AS TEXT), state FROM semel_letter": func(scan func(...any) error) error {
			var l Letter
			err := scan(&l.ID, &l.Body, &l.State)
			s.Letters = append(s.Letters, l)
			return err
		},
	}
	for query, each := range steps {
		if err := rows(db, each, query); err != nil && !strings.Contains(err.Error(), "no such table") {
			return err
		}
	}
	return nil
}

func contents(dir string) ([]string, error) {
	files, err := filesBelow(dir)
	if err != nil {
		return nil, err
	}
	all := make([]string, 0, len(files))
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			return nil, err
		}
		all = append(all, string(b))
	}
	return all, nil
}

// Safety returns what must not be at any time, whoever was killed before.
func (w Want) Safety(s State) []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	known := map[string]Message{}
	for _, m := range w.Messages {
		known[m.ID] = m
	}
	times, newest := map[string]int{}, map[string]int64{}
	for _, e := range s.Effects {
		if times[e.ID]++; times[e.ID] == 2 {
			say("effect twice: %s", e.ID)
		}
		if m, ok := known[e.ID]; !ok || m.Fate != Applied {
			say("an effect that must not be: %s", e.ID)
		}
		if last, ok := newest[e.Key]; (w.Versions || w.Ordered) && ok && e.Rev <= last {
			say("went backwards: %s has revision %d after %d of key %s", e.ID, e.Rev, last, e.Key)
		}
		newest[e.Key] = e.Rev
	}
	if int(s.Counter) != len(s.Effects) {
		say("the counter says %d, there are %d effects", s.Counter, len(s.Effects))
	}
	letters := map[string]int{}
	for _, l := range s.Letters {
		if letters[l.Body]++; letters[l.Body] == 2 {
			say("letter twice: id %q, %d bytes", l.ID, len(l.Body))
		}
	}
	return bad
}

// Final returns what is wrong when everything was drained: Safety, and that
// nothing is lost.
func (w Want) Final(s State) []string {
	bad := w.Safety(s)
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	effects := map[string]bool{}
	for _, e := range s.Effects {
		effects[e.ID] = true
	}
	dead, open := map[string]bool{}, 0
	for _, l := range s.Letters {
		if l.Open() {
			open++
			dead[l.Body] = l.State == "dead"
		}
	}
	buried := 0
	for _, m := range w.Messages {
		switch {
		case m.Fate == Applied && !effects[m.ID] && (!w.Versions || w.isNewest(m)):
			say("lost: %s (key %s, revision %d)", m.ID, m.Key, m.Rev)
		case m.Fate == Dead:
			buried++
			if !dead[m.Body] {
				say("lost: no dead letter for id %q, %d bytes", m.ID, len(m.Body))
			}
		}
	}
	if open != buried {
		say("%d open letters, want %d", open, buried)
	}
	return append(bad, w.files(s)...)
}

func (w Want) isNewest(m Message) bool {
	for _, o := range w.Messages {
		if o.Key == m.Key && o.Rev > m.Rev && o.Fate == Applied {
			return false
		}
	}
	return true
}

// files compares the stages with what was delivered: every file is kept,
// byte for byte, in the one place where it belongs.
func (w Want) files(s State) []string {
	var bad []string
	if len(s.Waiting) > 0 {
		bad = append(bad, fmt.Sprintf("not finished: %d files, such as %s", len(s.Waiting), s.Waiting[0]))
	}
	done := slices.Clone(w.Files)
	if !w.Lines {
		done = without(done, w.Dead)
	}
	bad = append(bad, differences("done", s.Done, done)...)
	want := w.Dead
	if w.Lines && w.Torn {
		want = without(slices.Clone(w.Dead), without(slices.Clone(w.Dead), s.Errors))
	}
	return append(bad, differences("error", s.Errors, want)...)
}

// without takes every element of b out of a, once.
func without(a, b []string) []string {
	n := map[string]int{}
	for _, x := range b {
		n[x]++
	}
	return slices.DeleteFunc(a, func(x string) bool {
		n[x]--
		return n[x] >= 0
	})
}

// differences compares two bags of contents.
func differences(stage string, got, want []string) []string {
	extra, missing := without(slices.Clone(got), want), without(slices.Clone(want), got)
	var bad []string
	for _, side := range []struct {
		what string
		all  []string
	}{{"too many in", extra}, {"missing in", missing}} {
		sort.Strings(side.all)
		for i, c := range side.all {
			if i == 3 {
				bad = append(bad, fmt.Sprintf("%s %s/: %d more", side.what, stage, len(side.all)-i))
				break
			}
			bad = append(bad, fmt.Sprintf("%s %s/: %.80q", side.what, stage, c))
		}
	}
	return bad
}
