package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// channel is a receiver of notices, outside of everything semel can take back.
type channel struct {
	*httptest.Server
	honours bool // the key

	mu    sync.Mutex
	sent  map[string]int               // notices that people got, by key
	posts map[string]int               // requests
	how   func(key string, n int) what // what becomes of the n-th request of a key
	hold  chan struct{}
}

// what a channel does with a request.
type what uint8

const (
	answer what = iota
	die         // after it has sent the notice
	stall       // after it has sent the notice, until hold is closed
	refuse      // 503, and nothing is sent
)

func newChannel(t *testing.T, honours bool) *channel {
	c := &channel{honours: honours, sent: map[string]int{}, posts: map[string]int{}, hold: make(chan struct{}),
		how: func(string, int) what { return answer }}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() {
		close(c.hold)
		c.Close()
	})
	return c
}

func (c *channel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sent[strings.TrimPrefix(r.URL.Path, "/")] == 0 {
			http.NotFound(w, r)
		}
		return
	}
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil || r.Header.Get("Authorization") != "Bearer s3cret" || !bytes.Contains(body, []byte(`"to"`)) {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	switch c.take(key) {
	case die:
		panic(http.ErrAbortHandler)
	case stall:
		<-c.hold
	case refuse:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (c *channel) take(key string) what {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts[key]++
	do := c.how(key, c.posts[key])
	if do != refuse && (c.sent[key] == 0 || !c.honours) {
		c.sent[key]++
	}
	return do
}

// counts are how many notices people got for a key, and how many requests.
func (c *channel) counts(key string) (sent, posts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent[key], c.posts[key]
}

func notices(c *channel, policy string) string {
	if policy == "ask" {
		policy = "ask\n    ask: {url: '" + c.URL + "/{id}'}"
	}
	return `name: notices
source: directory:ROOT
store: sqlite:DB
setup: CREATE TABLE IF NOT EXISTS told (id TEXT NOT NULL PRIMARY KEY) STRICT
message: {id: .id}
handle:
  http:
    url: ` + c.URL + `
    headers: {Authorization: env:TOKEN}
    body: '{to: .to}'
    timeout: 500ms
    in_doubt: ` + policy + `
  sql: INSERT INTO told (id) VALUES (:id)
  with: {id: .id}
retry: {immediate: 0, delays: [100ms, 100ms, 100ms]}
horizon: 1d
`
}

const (
	token  = "TOKEN=Bearer s3cret"
	notice = `{"id": "n%d", "to": "ann"}`
)

func noticeQueue(t *testing.T, c *channel, policy string, n int) *rig.Queue {
	t.Helper()
	q := rig.NewQueue(t, notices(c, policy))
	for i := range n {
		q.Deliver(fmt.Sprintf("n%d.json", i), fmt.Sprintf(notice, i))
	}
	return q
}

// settled has a person look at the channel, say what is there, and replay.
func settled(t *testing.T, q *rig.Queue, c *channel) {
	t.Helper()
	for _, id := range q.Strings("SELECT CAST(key AS TEXT) FROM semel_effect WHERE state = 'intended'") {
		if reason := q.Strings("SELECT reason FROM semel_letter WHERE state = 'dead' AND CAST(id AS TEXT) = ?", id); len(reason) != 1 || reason[0] != "in doubt" {
			t.Errorf("letter of %s: %q", id, reason)
		}
		if e := q.Run("effects list", token); !strings.Contains(e.Stdout, id) || !strings.Contains(e.Stdout, "in doubt") {
			t.Errorf("effects list: %v", e)
		}
		found := "--did-not-happen"
		if sent, _ := c.counts(id); sent > 0 {
			found = "--happened"
		}
		if e := q.Run("effects settle "+id+" "+found+" --dry-run", token); e.Code != 0 {
			t.Errorf("%v", e)
		}
		if e := q.Run("effects settle "+id+" "+found+" --as jo", token); e.Code != 0 {
			t.Errorf("%v", e)
		}
		if e := q.Run("effects settle "+id+" "+found, token); e.Code != 3 {
			t.Errorf("settled twice: %v", e)
		}
		if e := q.Run("explain "+id, token); !strings.Contains(e.Stdout, "outside of the database: "+strings.ReplaceAll(found[2:], "-", " ")) {
			t.Errorf("%v", e)
		}
		if e := q.Run("letters replay id="+id+" --yes", token); e.Code != 0 {
			t.Errorf("%v", e)
		}
	}
	if e := q.Run("run --once", token); e.Code != 0 {
		t.Errorf("after everything is settled: %v", e)
	}
}

// TestEffectsKilled (A1): the process is killed between intent and call, between
// call and result, and after the result. Nobody gets two notices, and in the end
// everybody has one.
func TestEffectsKilled(t *testing.T) {
	for _, policy := range []string{"park", "retry", "ask"} {
		for _, p := range fault.Effects() {
			t.Run(policy+"/"+string(p), func(t *testing.T) {
				t.Parallel()
				c := newChannel(t, policy == "retry") // the others call one that ignores keys
				q := noticeQueue(t, c, policy, 4)
				if e := q.Run("run --once", token, "SEMEL_FAULT="+string(p)+":2"); !e.Killed() {
					t.Fatalf("it was not killed: %v", e)
				}
				want := 0
				if policy == "park" && p != fault.ResultKnown {
					want = 3
				}
				if e := q.Run("run --once", token); e.Code != want || strings.Contains(e.Stderr+e.Stdout, "s3cret") {
					t.Fatalf("want exit code %d: %v", want, e)
				}
				settled(t, q, c)
				for i := range 4 {
					key := fmt.Sprintf("n%d", i)
					if sent, posts := c.counts(key); sent != 1 || posts > 1 && policy != "retry" {
						t.Errorf("%s: %d notices, %d requests", key, sent, posts)
					}
				}
				if n := q.Int("SELECT COUNT(*) FROM told"); n != 4 {
					t.Errorf("%d are recorded", n)
				}
			})
		}
	}
}

// TestEffectsReceiver (A1): the receiver is slow, or dies after it has sent the
// notice. One that honours keys is tried again, one that can be asked is asked,
// and at any other nothing is repeated.
func TestEffectsReceiver(t *testing.T) {
	for _, policy := range []string{"park", "retry", "ask"} {
		for name, do := range map[string]what{"slow": stall, "dies": die, "refuses": refuse} {
			t.Run(policy+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := newChannel(t, policy == "retry")
				c.how = func(key string, n int) what {
					if key == "n1" && n == 1 {
						return do
					}
					return answer
				}
				q := noticeQueue(t, c, policy, 3)
				want := 0
				if policy == "park" {
					want = 3
				}
				if e := q.Run("run --once", token); e.Code != want {
					t.Fatalf("want exit code %d: %v", want, e)
				}
				if _, posts := c.counts("n1"); policy == "park" && posts != 1 {
					t.Errorf("%d requests for a notice that is in doubt", posts)
				}
				settled(t, q, c)
				for i := range 3 {
					if sent, _ := c.counts(fmt.Sprintf("n%d", i)); sent != 1 {
						t.Errorf("n%d: %d notices", i, sent)
					}
				}
			})
		}
	}
}

// stoppedInCall is a worker that is stopped in a call, and in nothing else: a
// purge beside the call may be in a transaction, and would keep SQLite's one lock
// for as long as the process stands.
func stoppedInCall(t *testing.T, honours bool, policy string, at fault.Point) (*channel, *rig.Queue, *rig.Process) {
	t.Helper()
	for range 10 {
		c := newChannel(t, honours)
		q := noticeQueue(t, c, policy, 1)
		first := q.Start("run", token, "SEMEL_FAULT="+string(at)+"=stop")
		rig.Until(t, "the first worker is stopped", first.Stopped)
		if q.Free() {
			return c, q, first
		}
		first.Kill()
	}
	t.Fatal("the worker was in a transaction ten times")
	return nil, nil, nil
}

// TestEffectsReassigned (A6): a worker is stopped in its call. Another one gets
// the same message, finds the intent, waits for its end, and takes over; the
// database is free meanwhile. The first one wakes up, and changes nothing.
func TestEffectsReassigned(t *testing.T) {
	for _, at := range []fault.Point{fault.Intended, fault.Called} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			c, q, first := stoppedInCall(t, true, "retry", at)
			q.Deliver("again.json", fmt.Sprintf(notice, 0))
			q.Deliver("other.json", fmt.Sprintf(notice, 1))
			second := q.Start("run", token)
			rig.Until(t, "the second worker is done", func() bool { return q.Int("SELECT COUNT(*) FROM told") == 2 })
			if !first.Stopped() {
				t.Fatal("the first worker was not stopped all the time")
			}
			held := q.Strings("SELECT CAST(holder AS TEXT) || token FROM semel_effect WHERE CAST(key AS TEXT) = 'n0'")
			first.Signal(syscall.SIGCONT)
			rig.Until(t, "the first worker is done as well", func() bool { return len(q.Files("done")) == 3 })
			for _, p := range []*rig.Process{first, second} {
				if e := p.Interrupt(); e.Code != 0 {
					t.Errorf("%v", e)
				}
			}
			for i := range 2 {
				if sent, _ := c.counts(fmt.Sprintf("n%d", i)); sent != 1 {
					t.Errorf("n%d: %d notices", i, sent)
				}
			}
			if now := q.Strings("SELECT CAST(holder AS TEXT) || token FROM semel_effect WHERE CAST(key AS TEXT) = 'n0'"); len(now) != 1 || now[0] != held[0] {
				t.Errorf("the result is that of %q, and was that of %q", now, held)
			}
		})
	}
}

// TestEffectsReassignedOnce (A6) has a receiver that ignores the key, so that a
// second call would be a second notice. Who takes over asks, or leaves it to a
// person; the one that wakes up does not call any more.
func TestEffectsReassignedOnce(t *testing.T) {
	for _, c := range []struct {
		policy             string
		at                 fault.Point
		sent, told, parked int64
	}{
		{"ask", fault.Intended, 1, 2, 0},
		{"ask", fault.Called, 1, 2, 0},
		{"park", fault.Intended, 0, 1, 1},
		{"park", fault.Called, 1, 1, 1},
	} {
		t.Run(c.policy+" "+string(c.at), func(t *testing.T) {
			t.Parallel()
			ch, q, first := stoppedInCall(t, false, c.policy, c.at)
			q.Deliver("again.json", fmt.Sprintf(notice, 0))
			q.Deliver("other.json", fmt.Sprintf(notice, 1))
			second := q.Start("run", token)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(q.Strings("SELECT CAST(id AS TEXT) || ' ' || state || ' ' || error FROM semel_letter"),
						q.Strings("SELECT CAST(key AS TEXT) || ' ' || state || ' ' || token || ' ' || CAST(note AS TEXT) FROM semel_effect"))
				}
			})
			rig.Until(t, "the second worker is done", func() bool {
				return q.Int("SELECT COUNT(*) FROM told") == c.told && q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'dead'") == c.parked
			})
			if !first.Stopped() {
				t.Fatal("the first worker was not stopped all the time")
			}
			first.Signal(syscall.SIGCONT)
			rig.Until(t, "the first worker is done as well", func() bool { return len(q.Files("done"))+len(q.Files("error")) >= 3 })
			for _, p := range []*rig.Process{first, second} {
				p.Interrupt()
			}
			for i, want := range []int64{c.sent, 1} {
				if sent, _ := ch.counts(fmt.Sprintf("n%d", i)); int64(sent) != want {
					t.Errorf("n%d: %d notices, want %d", i, sent, want)
				}
			}
		})
	}
}

// TestEffectsExec: a program instead of a receiver, killed with the process that
// called it.
func TestEffectsExec(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, `name: mails
source: directory:ROOT
store: sqlite:DB
message: {id: .id}
handle:
  exec:
    argv: [/bin/sh, -c, 'cat >> "$LOG"; echo " $SEMEL_ID" >> "$LOG"']
    env: {LOG: env:MAIL_LOG}
    body: .to
    timeout: 500ms
horizon: 1d
`)
	log := filepath.Join(q.Dir, "log")
	for i := range 3 {
		q.Deliver(fmt.Sprintf("n%d.json", i), fmt.Sprintf(notice, i))
	}
	env := "MAIL_LOG=" + log
	if e := q.Run("run --check", env); e.Code != 0 || !strings.Contains(e.Stdout, "exec /bin/sh") {
		t.Errorf("%v", e)
	}
	if e := q.Run("run --once", env, "SEMEL_FAULT=E2-called:2"); !e.Killed() {
		t.Fatalf("%v", e)
	}
	if e := q.Run("run --once", env); e.Code != 3 {
		t.Errorf("%v", e)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if n := strings.Count(string(b), fmt.Sprintf("ann n%d\n", i)); n != 1 {
			t.Errorf("n%d: %d mails:\n%s", i, n, b)
		}
	}
}

// TestEffectsAtOnce: the receiver answers nobody until as many have asked at the
// same time as concurrency says; one call after the other would wait for ever.
func TestEffectsAtOnce(t *testing.T) {
	const at, all = 4, 12
	var mu sync.Mutex
	waiting, calls, most := 0, map[string]int{}, 0
	crowd, meet := make(chan struct{}), sync.Once{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.Header.Get("Idempotency-Key")]++
		waiting++
		if most = max(most, waiting); waiting == at {
			meet.Do(func() { close(crowd) })
		}
		mu.Unlock()
		select {
		case <-crowd:
		case <-r.Context().Done():
		}
		mu.Lock()
		waiting--
		mu.Unlock()
	}))
	defer s.Close()
	q := rig.NewQueue(t, `name: crowd
source: directory:ROOT
store: sqlite:DB
message: {id: .id}
handle:
  http: {url: '`+s.URL+`', timeout: 20s, concurrency: 4}
horizon: 1h
`)
	for i := range all {
		q.Deliver(fmt.Sprintf("%02d.json", i), fmt.Sprintf(`{"id":"%d"}`, i))
	}
	if e := q.Run("run --once --json"); e.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", e.Code, e.Stdout, e.Stderr)
	}
	mu.Lock()
	defer mu.Unlock()
	if most != at || len(calls) != all {
		t.Errorf("%d calls at once, %d messages", most, len(calls))
	}
	for id, n := range calls {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}
