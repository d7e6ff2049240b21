package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/test/e2e/rig"
)

// TestOneMessageKillsTheProcess has one message among 2,000 whose handler, or
// whose decoder, kills the process. A supervisor restarts it. Exactly that one message is set
// aside; the others are applied once.
func TestOneMessageKillsTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		flag  string
		lines bool
		files int
	}{
		"whole files":            {flag: "-deadly"},
		"one long file":          {flag: "-deadly", lines: true, files: 1},
		"many files":             {flag: "-deadly", lines: true, files: 40},
		"decoder, whole files":   {flag: "-unreadable"},
		"decoder, one long file": {flag: "-unreadable", lines: true, files: 1},
		"decoder, a dozen files": {flag: "-unreadable", lines: true, files: 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages, deadly = 2000, 1234
			q := rig.NewQueue(t, "")
			want := rig.Want{Lines: c.lines, Torn: true}
			var bodies []string
			for i := range messages {
				m := message{ID: fmt.Sprintf("m%04d", i), Key: fmt.Sprintf("k%d", i%100), Rev: int64(i)}
				fate := rig.Applied
				if i == deadly {
					fate = rig.Dead
				}
				bodies = append(bodies, m.body())
				want.Messages = append(want.Messages, rig.Message{ID: m.ID, Key: m.Key, Rev: m.Rev, Body: m.body(), Fate: fate})
			}
			want.Dead = []string{bodies[deadly]}
			want.Files = bodies
			if c.lines {
				want.Dead[0] += "\n"
				want.Files = nil
				for i := range c.files {
					part := bodies[i*messages/c.files : (i+1)*messages/c.files]
					want.Files = append(want.Files, strings.Join(part, "\n")+"\n")
				}
			}
			for i, body := range want.Files {
				q.Deliver(fmt.Sprintf("%04d.json", i), body)
			}
			cmd := rig.Command{
				Path: rig.Program(t, "test/e2e/worker"),
				Args: []string{"-root", q.Root, "-db", q.DB, c.flag, fmt.Sprintf("m%04d", deadly), fmt.Sprintf("-lines=%v", c.lines)},
			}
			deaths := restart(t, cmd)
			for _, bad := range want.Final(q.State()) {
				t.Error(bad)
			}
			reasons := q.Strings("SELECT reason || ' ' || class || ' ' || state FROM semel_letter")
			if len(reasons) != 1 || reasons[0] != "crash system dead" {
				t.Errorf("letters: %q, want one: crash system dead", reasons)
			}
			t.Logf("%d deaths", deaths)
			if deaths < 3 || deaths > maxDeaths {
				t.Errorf("the process died %d times: want at least 3, the lone starts, and at most %d", deaths, maxDeaths)
			}
		})
	}
}

// maxDeaths: one at full size, halving 2,000 down to one, three alone, and
// some to spare for what was redelivered in another order.
const maxDeaths = 25

// restart is a supervisor: it restarts the program until it ends by itself.
func restart(t *testing.T, c rig.Command) (deaths int) {
	t.Helper()
	for {
		e := rig.Run(t, c)
		switch {
		case e.Killed() && deaths <= maxDeaths:
			deaths++
		case e.Code == 0:
			return deaths
		default:
			t.Fatalf("after %d deaths: %v", deaths, e)
		}
	}
}
