package chaos

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/test/e2e/rig"
)

var (
	seed = flag.Uint64("seed", 0, "use this seed again; 0: a new one")
	long = flag.Duration("for", 0, "how long faults happen; 0: a minute with -v, else 10 s")
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Sizes of a run, over both queues.
const (
	workers    = 3 // on each queue
	fullSize   = 20_000
	shortSize  = 4_000
	repeated   = 0.3 // of the messages come again
	perFile    = 50  // lines
	fullTime   = time.Minute
	shortTime  = 10 * time.Second
	drainLimit = 2 * time.Minute
)

// plan is what a run consists of.
type plan struct {
	seed     uint64
	duration time.Duration
	messages int
}

func newPlan() plan {
	p := plan{*seed, *long, fullSize}
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano())
	}
	switch {
	case p.duration > 0:
	case testing.Verbose():
		p.duration = fullTime
	default:
		p.duration = shortTime
	}
	if p.duration < fullTime {
		p.messages = shortSize
	}
	return p
}

func (p plan) replay() string {
	return fmt.Sprintf("go test -count 1 -v ./test/chaos -seed %d -for %v", p.seed, p.duration)
}

// TestChaos has three workers on a queue of whole files and three on a queue
// of lines, plain and gzip. While messages arrive, three in ten of them twice,
// workers are killed and replaced, stopped and continued at random.
func TestChaos(t *testing.T) {
	p := newPlan()
	t.Logf("seed %d; again: %s", p.seed, p.replay())
	defer func() {
		if t.Failed() {
			t.Logf("replay: %s", p.replay())
		}
	}()
	for _, lines := range []bool{false, true} {
		t.Run(map[bool]string{false: "files", true: "lines"}[lines], func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(p.seed, uint64(len(t.Name()))))
			q := rig.NewQueue(t, pipeline(lines))
			in := newInput(r, p.messages/2, lines)
			c := &crew{t: t, q: q, r: r}
			c.storm(p.duration, in)
			c.drain(p)
			check(t, q, in)
			t.Logf("%d messages, %d deliveries; %d kills, %d stops", len(in.want.Messages), in.deliveries, c.kills, c.stops)
			if c.kills < 3 || c.stops < 3 {
				t.Errorf("inconclusive: %d kills and %d stops are no storm", c.kills, c.stops)
			}
		})
	}
}

// pipeline counts, so that whatever is done twice shows. A lone start that a
// random kill hits is charged to an innocent message; so many in a row do not
// happen.
func pipeline(lines bool) string {
	text := `
name: chaos
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, key TEXT NOT NULL, rev INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS counter (n INTEGER NOT NULL);
  INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
  CREATE TABLE IF NOT EXISTS amounts (amount INTEGER NOT NULL CHECK (amount >= 0));
  CREATE INDEX IF NOT EXISTS effect ON effects (id)
message: {id: .id, key: .key}
handle:
  sql:
    - UPDATE counter SET n = n + 1
    - INSERT INTO effects (id, key, rev) VALUES (:id, :key, :rev)
    - INSERT INTO amounts (amount) VALUES (:amount)
    - exec: UPDATE counter SET n = n WHERE :after = '' OR EXISTS (SELECT 1 FROM effects WHERE id = :after)
      none: stale
  with: {id: .id, key: .key, rev: .rev, amount: .amount, after: .after}
retry: {delays: [200ms, 400ms, 800ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]}
batch: 200
max_crashes: 100
horizon: 7d
`
	if lines {
		text += "files: lines\n"
	}
	return text
}

// input is what arrives, file by file.
type input struct {
	want       rig.Want
	files      []string
	names      []string
	deliveries int
}

// newInput makes n messages and delivers three in ten of them again, all of it
// in random order. Of a hundred, one is refused or cannot be read, and two
// refer to a message that comes a little later, so that they fail at first.
func newInput(r *rand.Rand, n int, lines bool) *input {
	in := &input{want: rig.Want{Lines: lines, Torn: true}}
	order := shuffled(r, n)
	in.deliveries = len(order)
	first := make([]int, n)
	for at := len(order) - 1; at >= 0; at-- {
		first[order[at]] = at
	}
	for i := range n {
		m := rig.Message{ID: fmt.Sprintf("m%05d", i), Key: fmt.Sprintf("k%03d", r.IntN(500)), Rev: int64(i)}
		amount, after := 1, ""
		switch other := order[min(first[i]+1+r.IntN(perFile), len(order)-1)]; {
		case i%200 == 0:
			m.Fate, amount = rig.Dead, -1
		case i%200 == 1:
			m.Fate = rig.Dead
			m.Body = fmt.Sprintf(`{"id": "%s", "key": `, m.ID)
			m.ID = ""
		case i%50 == 2 && other%50 > 2:
			after = fmt.Sprintf("m%05d", other)
		}
		if m.Body == "" {
			m.Body = fmt.Sprintf(`{"id":%q,"key":%q,"rev":%d,"amount":%d,"after":%q}`, m.ID, m.Key, m.Rev, amount, after)
		}
		in.want.Messages = append(in.want.Messages, m)
	}
	size := 1
	if lines {
		size = perFile
	}
	for part := range slices.Chunk(order, size) {
		in.file(part, lines)
	}
	in.want.Files = in.files
	return in
}

// shuffled is the numbers below n, some of them twice. What cannot be read has
// no id, so it does not come again.
func shuffled(r *rand.Rand, n int) []int {
	var order []int
	for i := range n {
		order = append(order, i)
		if i%200 != 1 && r.Float64() < repeated {
			order = append(order, i)
		}
	}
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

func (in *input) file(part []int, lines bool) {
	end := ""
	if lines {
		end = "\n"
	}
	name, text := fmt.Sprintf("%05d", len(in.files)), ""
	for _, i := range part {
		m := in.want.Messages[i]
		text += m.Body + end
		if m.Fate == rig.Dead {
			in.want.Dead = append(in.want.Dead, m.Body+end)
		}
	}
	switch {
	case !lines:
		name += ".json"
	case len(in.files)%2 == 0:
		name += ".ndjson"
	default:
		name, text = name+".ndjson.gz", compress(text)
	}
	in.names, in.files = append(in.names, name), append(in.files, text)
}

func compress(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text)) // to memory: cannot fail
	z.Close()
	return b.String()
}

// crew are the workers of one queue.
type crew struct {
	t            *testing.T
	q            *rig.Queue
	r            *rand.Rand
	ps           []*rig.Process
	stopped      *rig.Process
	kills, stops int
}

// storm delivers the input over the time and lets faults happen meanwhile. A
// stopped process may hold the database's lock and stop everybody, so only one
// is stopped at a time, and not for long.
func (c *crew) storm(duration time.Duration, in *input) {
	for range workers {
		c.ps = append(c.ps, c.q.Start("run"))
	}
	began, fed := time.Now(), 0
	for {
		gone := time.Since(began)
		upTo := min(len(in.files), int(float64(len(in.files))*gone.Seconds()/duration.Seconds())+1)
		for ; fed < upTo; fed++ {
			c.q.Deliver(in.names[fed], in.files[fed])
		}
		if gone >= duration && fed == len(in.files) {
			break
		}
		c.fault()
		c.pause(time.Duration(20+c.r.IntN(280)) * time.Millisecond)
	}
	c.goOn()
}

// fault does one bad thing, or ends one.
func (c *crew) fault() {
	i := c.r.IntN(len(c.ps))
	switch c.r.IntN(4) {
	case 0:
		if c.ps[i] == c.stopped {
			c.stopped = nil
		}
		if e := c.ps[i].Kill(); !e.Killed() {
			c.t.Errorf("a worker ended by itself: %v", e)
		}
		c.kills++
		c.ps[i] = c.q.Start("run")
	case 1:
		if c.stopped == nil {
			c.ps[i].Signal(syscall.SIGSTOP)
			c.stopped = c.ps[i]
			c.stops++
		}
	case 2:
		c.goOn()
	}
}

func (c *crew) goOn() {
	if c.stopped != nil {
		c.stopped.Signal(syscall.SIGCONT)
		c.stopped = nil
	}
}

// pause is the time between faults; it ends early if a worker ends by itself.
func (c *crew) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ps[0].Ended():
	case <-c.ps[1].Ended():
	case <-c.ps[2].Ended():
	}
}

// drain ends the crew in good order and lets one run do the rest. A run that
// does not come to an end says nothing about right or wrong.
func (c *crew) drain(p plan) {
	c.t.Helper()
	for _, w := range c.ps {
		if e := w.Interrupt(); e.Code != 0 {
			c.t.Errorf("a worker that was asked to end: %v", e)
		}
	}
	last := c.q.Start("run --once --json --wait 10s")
	select {
	case <-last.Ended():
	case <-time.After(drainLimit):
		c.t.Fatalf("inconclusive: not drained within %v\n%s\nreplay: %s", drainLimit, last.Stderr(), p.replay())
	}
	e := last.Wait()
	if e.Code != 3 || !e.Summary(c.t).Balanced {
		c.t.Errorf("the last run: want dead letters and a balanced account: %v", e)
	}
}

func check(t *testing.T, q *rig.Queue, in *input) {
	t.Helper()
	for i, bad := range in.want.Final(q.State()) {
		if i == 20 {
			t.Error("…")
			break
		}
		t.Error(bad)
	}
	var s struct {
		Balanced   bool
		Imbalances []any
	}
	if q.Run("status --rows --json").JSON(t, &s); !s.Balanced {
		t.Errorf("the account in the tables does not balance: %v", s.Imbalances)
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'applied'"); n < int64(len(in.want.Messages)/500) {
		t.Errorf("%d letters were applied: parked messages were hardly tried", n)
	}
	left, err := os.ReadDir(q.Path("processing"))
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		// Killed while it registered: hidden, empty, swept after the lease.
		if e.Name()[0] != '.' {
			t.Errorf("processing/ holds %s", e.Name())
		}
	}
}

// TestChaosIsSeen: the same storm over a pipeline without an inbox must be
// flagged, or the silence of the checker would mean nothing.
func TestChaosIsSeen(t *testing.T) {
	t.Parallel()
	p := plan{seed: 1, duration: 3 * time.Second, messages: 600}
	r := rand.New(rand.NewPCG(p.seed, 0))
	q := rig.NewQueue(t, pipeline(false)+"inbox: upsert\n")
	in := newInput(r, p.messages, false)
	c := &crew{t: t, q: q, r: r}
	c.storm(p.duration, in)
	c.drain(p)
	twice := 0
	for _, bad := range in.want.Final(q.State()) {
		if strings.HasPrefix(bad, "effect twice: ") {
			twice++
		}
	}
	if twice < p.messages/10 {
		t.Errorf("%d effects twice were found, want about three in ten", twice)
	}
}
