package webhooks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/examples/webhooks"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// queue is a directory queue with the example's pipeline file, in which pairs
// of words are replaced.
func queue(t *testing.T, replace ...string) *rig.Queue {
	t.Helper()
	q := rig.NewQueue(t, "")
	text := read(t, "webhooks.yaml")
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(text, replace[i]) != 1 {
			t.Fatalf("webhooks.yaml has %q %d times", replace[i], strings.Count(text, replace[i]))
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	text = strings.ReplaceAll(text, "directory:.work/webhooks", "directory:"+q.Root)
	text = strings.ReplaceAll(text, "sqlite:.work/webhooks/webhooks.db", "sqlite:"+q.DB)
	if err := os.WriteFile(q.File, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return q
}

// read returns a file of the example.
func read(t *testing.T, name string) string {
	t.Helper()
	root, err := rig.Repository()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "examples", "webhooks", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func deliver(t *testing.T, q *rig.Queue, in webhooks.Inbox) webhooks.Delivered {
	t.Helper()
	d, err := in.Deliver()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// row is one of a Markdown table with the columns of the example.
var row = regexp.MustCompile(`(?m)^\| ([a-z_]+/\d+) \| (\d*) ?\| (\w*) ?\| (.*?) ?\| (\S+) \|$`)

// readmeTable is what the README says has to come out, as lines like those of
// webhooks.Item.
func readmeTable(t *testing.T) (lines []string) {
	t.Helper()
	for _, r := range row.FindAllStringSubmatch(read(t, "README.md"), -1) {
		n, _ := strconv.ParseInt(r[2], 10, 64)
		lines = append(lines, webhooks.Item{Key: r[1], Number: n, State: r[3], Title: r[4], Updated: r[5]}.String())
	}
	if len(lines) != 17 || !slices.IsSorted(lines) {
		t.Fatalf("the README has a table of %d lines, want 17, sorted", len(lines))
	}
	return lines
}

// table is what the pipeline wrote, in the same form.
func table(q *rig.Queue) []string {
	return q.Strings(`SELECT id || ' ' || COALESCE(number, '-') || ' "' || COALESCE(state, '') || '" "' || COALESCE(title, '') || '" ' || updated_at
		FROM items ORDER BY id`)
}

// TestExample runs the example as its README says, in two orders and a second
// time: what comes out is what the README says, and what the library makes of
// the same data.
func TestExample(t *testing.T) {
	t.Parallel()
	want := readmeTable(t)
	for seed := range uint64(2) {
		q := queue(t)
		d := deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: seed + 1, Again: 0.1})
		e := q.Run("run --once")
		if e.Code != 0 || !strings.Contains(e.Stdout+e.Stderr, "ties") {
			t.Errorf("want ties reported: %v", e)
		}
		if got := table(q); !slices.Equal(got, want) {
			t.Errorf("seed %d: the table is\n%s\nwant\n%s", seed+1, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if done := len(q.Files("done")); done != d.Files || d.Files != 798 {
			t.Errorf("%d files in done/ of %d, want 798", done, d.Files)
		}
		deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: seed + 11, Again: 1})
		s := q.Drain(0)
		if s.Received != 2*726 || s.Applied+s.Superseded != 0 || !s.Balanced || !slices.Equal(table(q), want) {
			t.Errorf("seed %d, again: %+v, want duplicates alone and the same table", seed+1, s)
		}
	}
}

// TestD01Binary: 78 files of one pull request, in orders of their own.
func TestD01Binary(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		q := queue(t)
		deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: seed, Again: 1, Key: pull})
		s := q.Drain(0)
		if s.Received != 78 || s.Applied+s.Duplicates+s.Superseded != 78 || s.Duplicates != 39 || !s.Balanced {
			t.Errorf("seed %d: %+v, want 78 applied, superseded or duplicates", seed, s)
		}
		if got := table(q); !slices.Equal(got, []string{pullEnd}) {
			t.Errorf("seed %d: it ends as %s", seed, got)
		}
	}
}

// TestKilled: a kill -9 in the middle changes neither table nor account.
func TestKilled(t *testing.T) {
	t.Parallel()
	q := queue(t)
	deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: 5, Again: 0.5})
	for _, point := range []string{"C5-handled", "C6-committed"} {
		if e := q.Run("run --once", "SEMEL_FAULT="+point); !e.Killed() {
			t.Fatalf("it did not die at %s: %v", point, e)
		}
	}
	s := q.Drain(0)
	if got := table(q); !slices.Equal(got, readmeTable(t)) || !s.Balanced {
		t.Errorf("after two deaths: %+v, and the table is\n%s", s, strings.Join(got, "\n"))
	}
	verdicts := q.Int("SELECT COUNT(*) FROM semel_inbox WHERE verdict IN (?, ?)", semel.Applied, semel.Superseded)
	if n := q.Int("SELECT COUNT(*) FROM semel_inbox"); n != 726 || verdicts != 210 {
		t.Errorf("%d records, %d of them applied or superseded; want 726 and 210", n, verdicts)
	}
}

// TestMissing: an event without the time it needs is never taken for the
// newest, and each policy does what it is called.
func TestMissing(t *testing.T) {
	t.Parallel()
	closed := about(t, pull, 39)[3]
	timeless := strings.Replace(string(closed.Body), `"updated_at":"2019-05-15T15:21:18Z",`, "", 1)
	if len(timeless) == len(closed.Body) || !strings.Contains(closed.ID, "closed") {
		t.Fatalf("%s has no time to take away", closed.ID)
	}
	for policy, want := range map[string]struct {
		code  int
		state string
		says  func(rig.Summary) bool
	}{
		"dead":       {3, "open", func(s rig.Summary) bool { return s.Dead == 1 }},
		"superseded": {0, "open", func(s rig.Summary) bool { return s.Superseded == 1 }},
		"apply":      {0, "closed", func(s rig.Summary) bool { return s.Applied == 1 }},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			q := queue(t, "missing: dead", "missing: "+policy, "updated_at | tostring", `updated_at // "never" | tostring`)
			q.Deliver("1.first.json", string(about(t, pull, 39)[0].Body))
			q.Drain(0)
			q.Deliver("2.timeless.json", timeless)
			if s := q.Drain(want.code); !want.says(s) || s.Received != 1 {
				t.Errorf("%+v", s)
			}
			if got := q.Strings("SELECT state FROM items"); !slices.Equal(got, []string{want.state}) {
				t.Errorf("the state is %s, want %s", got, want.state)
			}
			if policy == "dead" {
				wantMissing(t, q)
			}
		})
	}
}

func wantMissing(t *testing.T, q *rig.Queue) {
	t.Helper()
	var l struct{ ID, Key, Error string }
	q.Run("letters list --json").JSON(t, &l)
	if l.ID != "timeless" || l.Key != pull || !strings.Contains(l.Error, "version") {
		t.Errorf("the letter says %+v", l)
	}
}

// TestState: the two events of issue 444500041 that say no state lose every
// tie, and leave NULL where there is nothing else.
func TestState(t *testing.T) {
	t.Parallel()
	q := queue(t)
	var others []webhooks.Delivery
	for _, d := range about(t, "issue/444500041", 33) {
		it, _, err := webhooks.Read(d.Body)
		switch {
		case err != nil:
			t.Fatal(err)
		case it.State == "":
			q.Deliver(fmt.Sprintf("1.%s.json", d.ID), string(d.Body))
		case it.Updated == "2019-05-15T15:20:18Z":
			others = append(others, d)
		}
	}
	if s := q.Drain(0); s.Received != 2 || q.Int("SELECT COUNT(*) FROM items WHERE state IS NULL") != 1 {
		t.Errorf("%+v, want a row without state", s)
	}
	for _, d := range others {
		q.Deliver(fmt.Sprintf("2.%s.json", d.ID), string(d.Body))
	}
	if s := q.Drain(0); s.Received != 12 || q.Int("SELECT COUNT(*) FROM items WHERE state = 'open'") != 1 {
		t.Errorf("%+v, want the state of one of the 12 others of that second", s)
	}
}
