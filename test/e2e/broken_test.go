package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// naive is a consumer of test/e2e/broken on a queue like those of semel.
func naive(t testing.TB, k kind, variant string) *subject {
	q := rig.NewQueue(t, k.pipeline())
	return newSubject(t, q, k, 1, func(at string) rig.Command {
		return rig.Command{
			Path: rig.Program(t, "test/e2e/broken"),
			Args: []string{"-root", q.Root, "-db", q.DB, "-variant", variant},
			Env:  []string{"SEMEL_FAULT=" + at},
		}
	})
}

// ordeal kills a subject at each point twice, restarts it, and returns what
// the checker says in the end.
func ordeal(t *testing.T, s *subject, points []fault.Point) []string {
	t.Helper()
	for _, p := range points {
		s.deliver()
		s.run(string(p))
		s.run(string(p) + ":3")
		if _, e := s.run(""); e.Code != 0 && e.Code != 3 {
			t.Fatalf("restarted after %s: %v", p, e)
		}
	}
	return s.want.Final(s.q.State())
}

// TestBrokenVariants puts consumers with one well-known mistake each through
// what semel goes through. The checker must find all of them, and nothing in
// the one that makes no mistake.
func TestBrokenVariants(t *testing.T) {
	for variant, want := range map[string]string{
		"sound":                 "",
		"ack-before-commit":     "lost: ",
		"no-inbox":              "effect twice: ",
		"record-after-commit":   "effect twice: ",
		"mark-before-work":      "lost: ",
		"letter-after-ack":      "lost: ",
		"parked-without-record": "effect twice: ",
	} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			s := naive(t, kind{inbox: "table"}, variant)
			if variant == "parked-without-record" {
				s.deliverParkedTwice()
			}
			wantVerdict(t, ordeal(t, s, fault.All()), want)
		})
	}
}

// wantVerdict compares what the checker says with what it has to find; "" is
// nothing.
func wantVerdict(t *testing.T, bad []string, want string) {
	t.Helper()
	found := false
	for _, b := range bad {
		found = found || want != "" && strings.HasPrefix(b, want)
	}
	if found != (want != "") || want == "" && len(bad) > 0 {
		t.Errorf("the checker says %q, want %q", bad, want)
	}
}

// deliverParkedTwice delivers a message that has to wait for another, the
// other, and the first again.
func (s *subject) deliverParkedTwice() {
	later := message{ID: "later", Key: "m", Rev: 1}
	early := message{ID: "early", Key: "a", Rev: 1, After: later.ID}
	for _, m := range []message{early, later} {
		s.want.Messages = append(s.want.Messages, rig.Message{ID: m.ID, Key: m.Key, Rev: m.Rev, Body: m.body()})
	}
	for i, m := range []message{early, later, early} {
		name := string(rune('1'+i)) + ".json"
		s.q.Deliver(name, m.body())
		s.want.Files = append(s.want.Files, m.body())
	}
}

// TestSemelInTheSameOrdeal is the other half of TestBrokenVariants: what the
// naive consumers fail in, and semel without what it has for it, too.
func TestSemelInTheSameOrdeal(t *testing.T) {
	for name, c := range map[string]struct {
		k    kind
		want string
		prep func(*subject)
	}{
		"as it is":         {k: kind{inbox: "table", versions: true}},
		"parked twice":     {k: kind{inbox: "table"}, prep: (*subject).deliverParkedTwice},
		"without inbox":    {k: kind{inbox: "upsert"}, want: "effect twice: ", prep: (*subject).deliverParkedTwice},
		"without versions": {k: kind{inbox: "table"}, want: "went backwards: ", prep: func(s *subject) { s.want.Versions = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := rig.NewQueue(t, c.k.pipeline())
			s := newSubject(t, q, c.k, 1, func(at string) rig.Command {
				return q.Semel("run --once --json --wait 5s", "SEMEL_FAULT="+at)
			})
			if c.prep != nil {
				c.prep(s)
			}
			wantVerdict(t, ordeal(t, s, fault.All()), c.want)
		})
	}
}

// TestTwoWorkersMeet stops a worker between its look at the message and its
// transaction, lets another one handle the same message meanwhile, and lets
// the first go on.
func TestTwoWorkersMeet(t *testing.T) {
	for variant, want := range map[string]string{"sound": "", "check-then-insert": "effect twice: "} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			k := kind{inbox: "table"}
			s := naive(t, k, variant)
			first := s.command(string(fault.Opened) + "=stop")
			if variant == "sound" {
				first = s.command(string(fault.Decoded) + "=stop")
			}
			second := s.command("")
			second.Args = append(second.Args, "-worker", "two")
			wantVerdict(t, s.meet(t, first, second), want)
		})
	}
	t.Run("semel", func(t *testing.T) {
		t.Parallel()
		k := kind{inbox: "table"}
		q := rig.NewQueue(t, k.pipeline())
		s := newSubject(t, q, k, 1, nil)
		body := s.same()
		// It waits for the lock that the test has, so it cannot be stopped in
		// the middle of a transaction, where it would stop everybody.
		h := hold(t, q, "run", func() { q.Deliver("1.json", body) })
		h.Signal(syscall.SIGSTOP)
		rig.Until(t, "the first worker stops", h.Stopped)
		h.exec("ROLLBACK")
		q.Deliver("2.json", body)
		other := q.Start("run --once")
		rig.Until(t, "the second worker is done", func() bool { return len(q.Files("done")) == 1 })
		h.Signal(syscall.SIGCONT)
		if e := other.Wait(); e.Code != 0 {
			t.Errorf("%v", e)
		}
		if e := h.Interrupt(); e.Code != 0 {
			t.Errorf("%v", e)
		}
		wantVerdict(t, s.want.Final(q.State()), "")
	})
}

// same is a message that is delivered to two workers.
func (s *subject) same() string {
	m := message{ID: "same", Key: "k", Rev: 1}
	s.want.Messages = append(s.want.Messages, rig.Message{ID: m.ID, Key: m.Key, Rev: 1, Body: m.body()})
	s.want.Files = []string{m.body(), m.body()}
	return m.body()
}

// meet delivers one message to a worker that stops with it, and once more to
// another one.
func (s *subject) meet(t *testing.T, first, second rig.Command) []string {
	t.Helper()
	body := s.same()
	s.q.Deliver("1.json", body)
	a := rig.Start(t, first)
	rig.Until(t, "the first worker stops", a.Stopped)
	s.q.Deliver("2.json", body)
	b := rig.Start(t, second)
	rig.Until(t, "the second worker is done", func() bool { return len(s.q.Files("done")) == 1 })
	a.Signal(syscall.SIGCONT)
	for _, p := range []*rig.Process{a, b} {
		if e := p.Wait(); e.Code != 0 {
			t.Fatalf("%v", e)
		}
	}
	return s.want.Final(s.q.State())
}
