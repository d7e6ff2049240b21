package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// kind is one way of running the pipeline that everything is killed in.
type kind struct {
	name string
	// lines: files of lines, plain and gzip; else single files.
	lines bool
	// inbox is the dedup strategy.
	inbox    string
	versions bool
	// order: later messages of a key wait behind one that failed.
	order bool
	// marker: files are complete when their .ok is there.
	marker bool
	// checksum: and when their .sha256 is there and fits.
	checksum bool
	// norename: as on a system without a rename that refuses to replace.
	norename bool
}

// repeats reports whether messages are delivered in other files again. The
// position of a line says nothing about another file.
func (k kind) repeats() bool { return k.inbox == "table" }

// pipeline is written so that everything done twice shows: the counter counts
// up, and the effects have no unique key.
func (k kind) pipeline() string {
	var b strings.Builder
	b.WriteString(`
name: crash
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, key TEXT NOT NULL, rev INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS counter (n INTEGER NOT NULL);
  INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
  CREATE TABLE IF NOT EXISTS amounts (amount INTEGER NOT NULL CHECK (amount >= 0));
message:
  id: .id
  key: .key
  filter: .skip != true
handle:
  sql:
    - UPDATE counter SET n = n + 1
    - INSERT INTO effects (id, key, rev) VALUES (:id, :key, :rev)
    - INSERT INTO amounts (amount) VALUES (:amount)
    - exec: UPDATE counter SET n = n WHERE :after = '' OR EXISTS (SELECT 1 FROM effects WHERE id = :after)
      none: stale
  with: {id: .id, key: .key, rev: .rev, amount: .amount, after: .after}
retry: {immediate: 1, delays: [80ms, 80ms, 80ms, 80ms, 80ms, 80ms, 80ms, 80ms]}
batch: 4
max_crashes: 100
keep: 30d
horizon: 7d
`)
	fmt.Fprintf(&b, "inbox: %s\n", k.inbox)
	if k.lines {
		b.WriteString("files: lines\n")
	}
	if k.versions {
		b.WriteString("arbitrate: {version: .rev, as: integer}\n")
	}
	if k.order {
		b.WriteString("order: key\n")
	}
	if k.marker {
		b.WriteString("complete: marker\n")
	}
	if k.checksum {
		b.WriteString("complete: checksum\n")
	}
	return b.String()
}

// message is what the pipelines of this package read.
type message struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Rev    int64  `json:"rev"`
	Amount int64  `json:"amount"`
	After  string `json:"after"`
	Skip   bool   `json:"skip,omitempty"`
}

func (m message) body() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers: cannot be
	}
	return string(b)
}

// wave is a small delivery with one of everything: good messages, of a few
// keys in random order, repeats, one that is filtered, one that refers to a
// later one, one that the database refuses, two that cannot be read.
type wave struct {
	want rig.Want
	// deliveries are bodies in order; those at the same index of bad are to
	// end in error/.
	deliveries []string
	dead       map[string]bool
}

// good is how many messages of a wave are ordinary.
const good = 8

func newWave(r *rand.Rand, n int, k kind) wave {
	w := wave{dead: map[string]bool{}}
	id := func(s string) string { return fmt.Sprintf("w%03d-%s", n, s) }
	add := func(m message, f rig.Fate) string {
		body := m.body()
		w.want.Messages = append(w.want.Messages, rig.Message{ID: m.ID, Key: m.Key, Rev: m.Rev, Body: body, Fate: f})
		w.dead[body] = f == rig.Dead
		return body
	}
	var middle []string
	for i := range good {
		key := fmt.Sprintf("k%d", i%3)
		if k.order {
			key = id(fmt.Sprintf("k%d", i/4)) // of one file: order is within a file
		}
		middle = append(middle, add(message{ID: id(fmt.Sprint(i)), Key: key, Rev: int64(1000*n + i)}, rig.Applied))
	}
	middle = append(middle, add(message{ID: id("skip"), Key: "k0", Skip: true}, rig.Filtered))
	refused := add(message{ID: id("refused"), Key: id("refused"), Rev: 1, Amount: -1}, rig.Dead)
	middle = append(middle, refused)
	for _, body := range []string{
		fmt.Sprintf(`{"id": "%s", "key": "k0", "rev": `, id("truncated")),
		fmt.Sprintf(`{"id": 1.5, "key": "%s"}`, id("float")),
	} {
		w.want.Messages = append(w.want.Messages, rig.Message{Body: body, Fate: rig.Dead})
		w.dead[body] = true
		middle = append(middle, body)
	}
	if k.repeats() {
		middle = append(middle, middle[r.IntN(good)], middle[r.IntN(good)], middle[good], refused)
	}
	later := message{ID: id("later"), Key: "zz" + id("later"), Rev: 1}
	early := message{ID: id("early"), Key: "a" + id("early"), Rev: 1, After: later.ID}
	if k.order {
		early.Key = id("k0") // the others of the key wait for it
	} else {
		r.Shuffle(len(middle), func(i, j int) { middle[i], middle[j] = middle[j], middle[i] })
	}
	// First, so that the first batch to be committed has an effect.
	first := message{ID: id("first"), Key: "b" + id("first"), Rev: 1}
	w.deliveries = append(append([]string{add(first, rig.Applied), add(early, rig.Applied)}, middle...), add(later, rig.Applied))
	return w
}

// deliver puts the wave into the inbox and notes what that means for files.
func (w *wave) deliver(t testing.TB, q *rig.Queue, k kind, n int) {
	t.Helper()
	if !k.lines {
		for i, body := range w.deliveries {
			w.file(q, k, fmt.Sprintf("w%03d-%02d.json", n, i), body)
			if w.dead[body] {
				w.want.Dead = append(w.want.Dead, body)
			}
		}
		return
	}
	parts := [][]string{w.deliveries[:6], w.deliveries[6:10], w.deliveries[10:]}
	for i, part := range parts {
		text := strings.Join(part, "\n")
		newline := i != 1 // one file ends without
		if newline {
			text += "\n"
		}
		for j, body := range part {
			if !w.dead[body] {
				continue
			}
			if newline || j < len(part)-1 {
				body += "\n"
			}
			w.want.Dead = append(w.want.Dead, body)
		}
		name := fmt.Sprintf("w%03d-%d.ndjson", n, i)
		if i == 1 {
			name, text = name+".gz", compress(t, text)
		}
		w.file(q, k, name, text)
	}
}

func (w *wave) file(q *rig.Queue, k kind, name, body string) {
	q.Deliver(name, body)
	w.want.Files = append(w.want.Files, body)
	if k.marker {
		q.Deliver(name+".ok", "")
	}
	if k.checksum {
		q.Deliver(name+".sha256", sumOf(body, name))
	}
}

func compress(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// subject is a consumer that is put through waves and deaths.
type subject struct {
	t testing.TB
	q *rig.Queue
	k kind
	r *rand.Rand
	// command is a run that ends when nothing is left; fault is SEMEL_FAULT.
	command func(fault string) rig.Command
	want    rig.Want
	waves   int
	// killed counts deaths by point; since are those after the last check.
	killed map[string]int
	since  []string
}

func newSubject(t testing.TB, q *rig.Queue, k kind, seed uint64, command func(fault string) rig.Command) *subject {
	return &subject{t: t, q: q, k: k, r: rand.New(rand.NewPCG(seed, 0)), command: command,
		want: rig.Want{Lines: k.lines, Versions: k.versions, Ordered: k.order}, killed: map[string]int{}}
}

// deliver adds a wave.
func (s *subject) deliver() {
	s.t.Helper()
	s.waves++
	w := newWave(s.r, s.waves, s.k)
	w.deliver(s.t, s.q, s.k, s.waves)
	s.want.Add(w.want)
}

// run runs it once; at is where it is to die, or empty. It reports whether it
// died there.
func (s *subject) run(at string) (killed bool, e rig.Exit) {
	s.t.Helper()
	e = rig.Run(s.t, s.command(at))
	if e.Killed() {
		point, _, _ := strings.Cut(at, ":")
		s.killed[point]++
		s.since = append(s.since, at)
		s.want.Torn = true
	}
	return e.Killed(), e
}
