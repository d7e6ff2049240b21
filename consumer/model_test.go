package consumer

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel/fault"
)

// The model runs the pipeline's own code, without its goroutines, over a store
// in memory and a source whose every move is drawn from a seed: redeliveries,
// crashes at every point and every operation of the store, lost commits,
// revoked scopes, workers that come back from the dead, people who decide about
// letters. When everything is healed and drained, every message has to be in
// exactly one place.

var (
	variant   = flag.String("broken", "", "with -seed: make this mistake")
	first     = flag.Uint64("first", 1, "the first schedule of the model to run")
	seed      = flag.Uint64("seed", 0, "run this one schedule of the model and print its steps")
	schedules = flag.Int("schedules", 0, "how many schedules of the model to run; default 8,000, or SEMEL_MODEL_SCHEDULES")
)

func count(t *testing.T) uint64 {
	n := *schedules
	if s := os.Getenv("SEMEL_MODEL_SCHEDULES"); s != "" && n == 0 {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case n > 0:
		return uint64(n)
	case testing.Short():
		return 1000
	}
	return 8000
}

func TestModel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if *seed > 0 {
		synctest.Test(t, func(t *testing.T) {
			if bad := schedule(*seed, broken[*variant].make, coverage{}, true); len(bad) > 0 {
				t.Fatalf("seed %d:\n%s", *seed, strings.Join(bad, "\n"))
			}
		})
		return
	}
	seen := coverage{}
	for s, last := *first, *first+count(t)-1; s <= last && !t.Failed(); s += bubble {
		synctest.Test(t, func(t *testing.T) { schedulesFrom(t, s, min(s+bubble-1, last), seen) })
		runtime.GC() // a pool keeps its consumer until the next one, so the heap would only grow
	}
	seen.complete(t)
}

// bubble is how many schedules share one bubble of fake time. What a bubble
// has waited with is kept until it ends.
const bubble = 200

func schedulesFrom(t *testing.T, from, to uint64, seen coverage) {
	for s := from; s <= to; s++ {
		if bad := schedule(s, nil, seen, false); len(bad) > 0 {
			t.Errorf("seed %d: %s\nreplay: go test ./consumer -run TestModel -seed=%d", s, strings.Join(bad, "\n  "), s)
		}
	}
}

// coverage counts what happened in the run, by name.
type coverage map[string]int

// steps that every run has to take, besides those that are drawn.
var landmarks = []string{
	"crash", "crash in an operation", "commit unknown, committed", "commit unknown, rolled back", "store down",
	"error contention", "error infrastructure", "error transient", "error fault",
	"settlement lost", "fenced", "settlement stale", "interrupted", "taken over crashed", "taken over orphaned",
	"lost in a transaction", "revoked in a transaction", "stopped at once", "key full",
	"letter replayed", "letter edited", "letter discarded", "proposal replayed", "returned as it was", "returned revised",
	"plan transient", "plan permanent", "plan invalid", "plan panic", "plan stale", "plan duplicate",
	"plan superseded", "plan later", "plan killer", "plan deadly", "plan contention",
}

func (c coverage) complete(t *testing.T) {
	t.Helper()
	want := slices.Clone(landmarks)
	for _, p := range fault.All() {
		want = append(want, string(p))
	}
	for _, s := range moves() {
		want = append(want, s.name)
	}
	for _, name := range want {
		if c[name] == 0 {
			t.Errorf("never happened: %s", name)
		}
	}
	if testing.Verbose() {
		for _, name := range slices.Sorted(maps.Keys(c)) {
			t.Logf("%8d %s", c[name], name)
		}
	}
}

// TestModelFindsBrokenPipelines makes sure that green means something: each of
// these mistakes has to be found, by the right check.
func TestModelFindsBrokenPipelines(t *testing.T) {
	const bound = 30_000 // most are found in the first hundreds
	for name, v := range broken {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			found := ""
			for s := uint64(1); s <= bound && found == ""; s += bubble {
				synctest.Test(t, func(*testing.T) { found = finds(v.make, v.finds, s, s+bubble) })
				runtime.GC()
			}
			if found == "" {
				t.Errorf("%d schedules do not find it", bound)
			}
			t.Log(found)
		})
	}
}

// finds runs schedules until one ends with the violation.
func finds(sabotage func(*world), violation string, from, to uint64) string {
	for s := from; s < to; s++ {
		bad := schedule(s, sabotage, coverage{}, false)
		if slices.ContainsFunc(bad, func(b string) bool { return strings.Contains(b, violation) }) {
			return fmt.Sprintf("seed %d: %s", s, strings.Join(bad, "; "))
		}
	}
	return ""
}

// schedule runs one schedule and returns what it found wrong.
func schedule(seed uint64, sabotage func(*world), seen coverage, verbose bool) []string {
	w := newWorld(seed, sabotage, seen)
	if w.verbose = verbose; verbose {
		w.trace = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	w.say("%+v, %d partitions, deferred %v, %d slots", w.cfg, len(w.src.parts), w.deferred, w.slots)
	defer fault.Arm(w.hit)()
	w.run()
	return w.bad
}
