package state_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/state"
)

func orders() state.Machine {
	return state.Machine{Table: "orders", ID: "id", State: "status", Start: "created", From: map[string][]string{
		"paid":      {"created"},
		"shipped":   {"paid"},
		"cancelled": {"created", "paid"},
	}}
}

func mover(t *testing.T, m state.Machine) *state.Mover {
	t.Helper()
	v, err := state.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStatements(t *testing.T) {
	m := orders()
	v := mover(t, m)
	m.From["cancelled"][0], m.From["lost"] = "lost", nil // New has copied it
	st, err := v.Update("cancelled")
	if want := "UPDATE orders SET status = ? WHERE id = ? AND status IN (?, ?)"; err != nil || st.Text != want || !slices.Equal(st.States, []string{"created", "paid"}) {
		t.Errorf("%q %v %v, want %q", st.Text, st.States, err, want)
	}
	if got, want := v.Read(), "SELECT status FROM orders WHERE id = ?"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	n := orders()
	n.Table, n.Numbered = "shop.orders", true
	v = mover(t, n)
	st, err = v.Update("cancelled")
	if want := "UPDATE shop.orders SET status = $1 WHERE id = $2 AND status IN ($3, $4)"; err != nil || st.Text != want {
		t.Errorf("%q %v, want %q", st.Text, err, want)
	}
	if got, want := v.Read(), "SELECT status FROM shop.orders WHERE id = $1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, to := range []string{"created", "returned", ""} {
		if _, err := v.Update(to); err == nil || !strings.Contains(err.Error(), "cancelled, paid, shipped") {
			t.Errorf("to %q: %v", to, err)
		} else if c, _ := semel.ClassOf(err); c != semel.ClassPermanent {
			t.Errorf("to %q: %v is %v", to, err, c)
		}
	}
}

// verdict writes down what Missed says.
func verdict(err error) string {
	var early *state.EarlyError
	c, _ := semel.ClassOf(err)
	switch {
	case errors.Is(err, semel.ErrSuperseded):
		return "superseded"
	case errors.Is(err, semel.ErrStale):
		return "stale"
	case errors.As(err, &early) && c == semel.ClassPermanent:
		return "early, dead"
	case errors.As(err, &early) && c == semel.ClassTransient:
		return "early"
	case c == semel.ClassPermanent:
		return "no path"
	}
	return "?"
}

// TestMissed has a line for each pair of states.
func TestMissed(t *testing.T) {
	want := map[string]map[string]string{
		"":          {"paid": "early", "shipped": "early", "cancelled": "early"},
		"created":   {"paid": "stale", "shipped": "early", "cancelled": "stale"},
		"paid":      {"paid": "superseded", "shipped": "stale", "cancelled": "stale"},
		"shipped":   {"paid": "superseded", "shipped": "superseded", "cancelled": "no path"},
		"cancelled": {"paid": "superseded", "shipped": "no path", "cancelled": "superseded"},
		"returned":  {"paid": "no path", "shipped": "no path", "cancelled": "no path"},
	}
	m := orders()
	retries := mover(t, m)
	m.Early = state.Dead
	dead := mover(t, m)
	for now, row := range want {
		for to, w := range row {
			if got := verdict(retries.Missed(now, to)); got != w {
				t.Errorf("%q to %q: %s, want %s", now, to, got, w)
			}
			if w == "early" {
				w = "early, dead"
			}
			if got := verdict(dead.Missed(now, to)); got != w {
				t.Errorf("%q to %q, Early: Dead: %s, want %s", now, to, got, w)
			}
		}
	}
}

// TestCycle: a machine that comes back to a state says so, and drops nothing
// there that may still count.
func TestCycle(t *testing.T) {
	m := state.Machine{Table: "t", ID: "id", State: "s", Start: "on", From: map[string][]string{
		"paused": {"on"}, "stopping": {"paused"}, "on": {"stopping"}, "closed": {"on"},
	}}
	v := mover(t, m)
	if got := v.Cycles(); !slices.Equal(got, []string{"on", "paused", "stopping"}) {
		t.Errorf("cycles: %v", got)
	}
	for _, c := range []struct{ now, to, want string }{
		{"stopping", "paused", "early"}, {"paused", "paused", "superseded"}, {"closed", "paused", "superseded"}, {"paused", "closed", "early"},
	} {
		if got := verdict(v.Missed(c.now, c.to)); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.now, c.to, got, c.want)
		}
	}
	if got := mover(t, orders()).Cycles(); len(got) > 0 {
		t.Errorf("cycles of a machine without: %v", got)
	}
}

func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*state.Machine){
		`Table "orders; DROP"`:                 func(m *state.Machine) { m.Table = "orders; DROP" },
		`ID ""`:                                func(m *state.Machine) { m.ID = "" },
		`State "a.b"`:                          func(m *state.Machine) { m.State = "a.b" },
		`Early is 7`:                           func(m *state.Machine) { m.Early = 7 },
		`Start is empty`:                       func(m *state.Machine) { m.Start = "" },
		`From is empty`:                        func(m *state.Machine) { m.From = nil },
		`"paid" has no state`:                  func(m *state.Machine) { m.From["paid"] = nil },
		`"paid" is entered from itself`:        func(m *state.Machine) { m.From["paid"] = []string{"created", "paid"} },
		`"paid" is entered from "payd", which`: func(m *state.Machine) { m.From["paid"] = []string{"payd"} },
		`from "created" twice`:                 func(m *state.Machine) { m.From["paid"] = []string{"created", "created"} },
		`"lost" cannot be reached`: func(m *state.Machine) {
			m.From["lost"], m.From["found"] = []string{"found"}, []string{"lost"}
		},
	} {
		m := orders()
		m.From = maps.Clone(m.From)
		change(&m)
		if _, err := state.New(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := state.New(state.Machine{}); err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("not all problems at once: %v", err)
	}
}
