package webhooks_test

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/examples/webhooks"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// updates returns what updated_at of every entity says, by id of the delivery.
func updates(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, d := range deliveries(t) {
		it, ok, err := webhooks.Read(d.Body)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			all[d.ID] = it.Updated
		}
	}
	return all
}

func instant(t *testing.T, s string) int64 {
	t.Helper()
	v, err := arbitrate.ParseTime(s)
	if err != nil {
		t.Fatal(err)
	}
	return v.N
}

var digits = regexp.MustCompile(`\d+`)

// TestD02Formats: the field has four formats, all of them are read, and
// comparing them as strings would be wrong.
func TestD02Formats(t *testing.T) {
	t.Parallel()
	all, formats := updates(t), map[string]int{}
	for _, s := range all {
		formats[digits.ReplaceAllString(s, "#")]++
		instant(t, s)
	}
	want := map[string]int{"#-#-#T#:#:#Z": 182, "#-#-#T#:#:#.#Z": 9, "#-#-#T#:#:#.#-#:#": 2, "#": 17}
	if !maps.Equal(formats, want) {
		t.Errorf("formats %v, want %v", formats, want)
	}
	if a, b := all["ghes31-015-installation-deleted"], all["ghes31-016-installation_repositories-added"]; a == b || instant(t, a) != instant(t, b) {
		t.Errorf("%s and %s: want two ways to say one second", a, b)
	}
	for s, want := range map[string]time.Time{
		"2021-04-28T22:32:50.000-04:00": time.Date(2021, 4, 29, 2, 32, 50, 0, time.UTC),
		"1525109899":                    time.Date(2018, 4, 30, 17, 38, 19, 0, time.UTC),
	} {
		if got := instant(t, s); got != want.UnixNano() {
			t.Errorf("%s is %v, want %v", s, time.Unix(0, got).UTC(), want)
		}
	}
	wantStringsWrong(t, slices.Sorted(maps.Values(all)))
}

// wantStringsWrong looks for times whose strings compare the other way round.
func wantStringsWrong(t *testing.T, all []string) {
	t.Helper()
	all = slices.Compact(all)
	wrong := 0
	for i, a := range all {
		for _, b := range all[i+1:] {
			if cmp.Compare(instant(t, a), instant(t, b)) >= 0 {
				wrong++
			}
		}
	}
	if wrong == 0 {
		t.Error("comparing as strings would be right: this data proves nothing")
	}
}

// TestD02WrongFormats: a pipeline that reads the versions in a wrong way says
// so, first for free and then by letters, and takes nothing for the newest.
func TestD02WrongFormats(t *testing.T) {
	t.Parallel()
	const updated = "(.pull_request // .issue // .discussion // .milestone // .installation).updated_at"
	for name, c := range map[string]struct {
		from, to string
		dead     int64
		says     string
	}{
		// Integers are read, and nothing is made of the times.
		"as integers": {"as: time", "as: integer", 193, "it is a time, which arbitrate.as: time reads"},
		// What one does to be able to compare strings.
		"without zones": {"version: " + updated, "version: " + updated + " | tostring | .[:19]", 193, "is a string that is not a time with a zone"},
		"misspelt":      {".installation).updated_at\n", ".installation).updatet_at\n", 210, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queue(t, c.from, c.to)
			deliver(t, q, webhooks.Inbox{Root: q.Root, Seed: 2})
			want := map[string]int64{"dead": c.dead, "filtered": 516}
			if got := foreseen(t, q); got["dead"] != want["dead"] || got["filtered"] != want["filtered"] {
				t.Errorf("--dry-run foresees %v, want %v", got, want)
			}
			s := q.Drain(3)
			if s.Dead != c.dead || s.Filtered != 516 || s.Applied+s.Superseded != 210-c.dead || !s.Balanced {
				t.Errorf("%+v, want %d dead letters of 210", s, c.dead)
			}
			if n := q.Int("SELECT COUNT(*) FROM items WHERE id NOT LIKE 'installation/%'"); n != 0 {
				t.Errorf("%d rows of messages without a version", n)
			}
			e := q.Run("letters list --limit 0 --json")
			if n := strings.Count(e.Stdout, c.says); e.Code != 0 || int64(n) < c.dead {
				t.Errorf("%d letters say %q, want %d: %v", n, c.says, c.dead, e)
			}
		})
	}
}

// foreseen returns the counts of a dry run.
func foreseen(t *testing.T, q *rig.Queue) map[string]int64 {
	t.Helper()
	e := q.Run("run --dry-run --json")
	lines := strings.Split(strings.TrimSpace(e.Stdout), "\n")
	var total struct{ Counts map[string]int64 }
	rig.Exit{Stdout: lines[len(lines)-1]}.JSON(t, &total)
	if e.Code != 0 || len(q.Files("inbox")) != 726 {
		t.Errorf("the dry run changed something, or failed: %v", e)
	}
	return total.Counts
}

// TestD02Strings: versions are never compared as strings; asking for it is
// refused before anything is taken.
func TestD02Strings(t *testing.T) {
	t.Parallel()
	q := queue(t, "as: time", "as: string")
	deliver(t, q, webhooks.Inbox{Root: q.Root, Key: pull})
	e := q.Run("run --once")
	if e.Code != 1 || !strings.Contains(e.Stderr, "arbitrate.as") || !strings.Contains(e.Stderr, "integer, time") {
		t.Errorf("want exit code 1, the key and what there is instead: %v", e)
	}
	if n := len(q.Files("inbox")); n != 39 {
		t.Errorf("%d files left in the inbox, want all 39", n)
	}
}
