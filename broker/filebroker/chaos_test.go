//go:build unix

package filebroker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestChaos kills and stops three workers at random while they drain a queue.
func TestChaos(t *testing.T) {
	for _, files := range kinds() {
		t.Run(kindName(files), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			if s := os.Getenv("FILEBROKER_TEST_SEED"); s != "" {
				fmt.Sscan(s, &seed)
			}
			t.Logf("repeat with FILEBROKER_TEST_SEED=%d", seed)
			d := newDir(t)
			want := d.fillMany(files)
			c := &chaos{t: t, plan: plan{Root: d.root, Files: files, Lease: 250 * time.Millisecond}, rnd: rand.New(rand.NewPCG(seed, 1)), said: make(chan string)}
			for range 3 {
				c.hire()
			}
			c.rage()
			last := start(t, c.plan)
			if err := last.wait(); err != nil {
				t.Fatalf("the last worker: %v; it said %q", err, last.seen)
			}
			t.Logf("%d killed, %d stopped, %d times fenced", c.kills, c.stops, c.fenced)
			if c.kills == 0 || c.stops == 0 {
				t.Errorf("nobody was killed (%d) or stopped (%d)", c.kills, c.stops)
			}
			d.checkMany(files, want)
		})
	}
}

// fillMany writes 300 messages, every tenth of them bad, and returns them.
func (d *dir) fillMany(files Files) (want []string) {
	d.Helper()
	for i := range 300 {
		body := fmt.Sprintf("good %d", i)
		if i%10 == 0 {
			body = fmt.Sprintf("bad %d", i)
		}
		want = append(want, body)
	}
	for i, body := range want {
		if files == Whole {
			d.put(fmt.Sprintf("f%03d", i), body)
		} else if i%20 == 0 {
			d.put(fmt.Sprintf("f%03d", i), fileOfWords(files, want[i:i+20], true))
		}
	}
	return want
}

// checkMany: every message was decided, every file is in one place, every
// copy of a dead line is there once at most.
func (d *dir) checkMany(files Files, want []string) {
	d.Helper()
	d.want("inbox")
	d.want("processing")
	b, err := os.ReadFile(d.at("decided"))
	if err != nil {
		d.Fatal(err)
	}
	for _, body := range want {
		if files != Whole {
			body = wordBody(files, body)
		}
		if !strings.Contains(string(b), " "+body+"\n") {
			d.Errorf("%q was never decided", body)
		}
	}
	done, _ := d.contents("done")
	dead, letters := d.contents("error")
	places := map[string]int{}
	for _, content := range append(done, dead...) {
		for body := range strings.FieldsFuncSeq(content, func(r rune) bool { return strings.ContainsRune("\n[],\"", r) }) {
			places[strings.TrimSpace(body)]++
		}
	}
	for _, body := range want {
		// A dead line is in its file and, unless its worker died before it
		// was copied, in error/.
		most := 1
		if files != Whole && strings.HasPrefix(body, "bad") {
			most = 2
		}
		if n := places[body]; n < 1 || n > most {
			d.Errorf("%q is in %d places, want 1 to %d", body, n, most)
		}
	}
	if len(letters) != len(dead) {
		d.Errorf("%d files in error and %d sidecars", len(dead), len(letters))
	}
}

// chaos is three workers and what is done to them, paced by what they say.
type chaos struct {
	t      *testing.T
	plan   plan
	rnd    *rand.Rand
	said   chan string
	crew   []*child
	asleep []*child
	alive  int

	kills, stops, fenced int
}

func (c *chaos) hire() {
	ch := start(c.t, c.plan)
	c.crew = append(c.crew, ch)
	c.alive++
	go func() {
		for line := range ch.lines {
			c.said <- line
		}
		ch.cmd.Wait()
		c.said <- "ended"
	}()
}

// rage goes on until all workers have ended.
func (c *chaos) rage() {
	for c.alive > 0 {
		select {
		case line := <-c.said:
			c.hear(line)
		case <-time.After(400 * time.Millisecond): // the others wait for those who sleep
			c.wake()
		}
	}
}

func (c *chaos) hear(line string) {
	switch {
	case line == "ended":
		c.alive--
	case strings.HasPrefix(line, "fenced"):
		c.fenced++
	case c.rnd.IntN(25) == 0:
		c.strike()
	}
}

func (c *chaos) strike() {
	i := c.rnd.IntN(len(c.crew))
	ch := c.crew[i]
	switch what := c.rnd.IntN(3); {
	case what == 0 && c.kills < 25:
		if ch.cmd.Process.Signal(syscall.SIGKILL) == nil {
			c.kills++
		}
		c.crew = slices.Delete(c.crew, i, i+1)
		c.hire()
	case what == 1 && c.stops < 25:
		if ch.cmd.Process.Signal(syscall.SIGSTOP) == nil {
			c.stops++
			c.asleep = append(c.asleep, ch)
		}
	case len(c.asleep) > 1:
		c.wake()
	}
}

func (c *chaos) wake() {
	for _, ch := range c.asleep {
		ch.cmd.Process.Signal(syscall.SIGCONT)
	}
	c.asleep = nil
}
