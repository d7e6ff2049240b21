package observe

import (
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

// Snapshot is what a Monitor knows at one moment, for those that tell it on in
// another form.
type Snapshot struct {
	Account semel.Account
	// Assigned and Stopped count scopes.
	Assigned, Stopped int
	// Read is when Letters, HeldKeys and NextDue were read from the store; zero:
	// never yet.
	Read     time.Time
	Letters  map[store.State]int64
	HeldKeys int64
	NextDue  time.Time // of the earliest retry; zero: none
	// Depth is what the source holds, if Measured.
	Depth    broker.Depth
	Measured bool
	// Conditions has every condition, and whether it holds.
	Conditions map[Condition]bool
}

// Snapshot returns what is known now. It asks neither store nor source.
func (m *Monitor) Snapshot() Snapshot {
	health := m.Health()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{
		Assigned: len(m.scopes), Stopped: len(m.stopped),
		Read: m.sight.read, Letters: map[store.State]int64{}, HeldKeys: m.sight.status.HoldKeys, NextDue: m.sight.status.NextDue,
		Depth: m.sight.depth, Measured: m.sight.measured, Conditions: map[Condition]bool{},
	}
	if m.target.Account != nil {
		s.Account = m.target.Account()
	}
	for _, state := range openStates() {
		s.Letters[state] = m.sight.status.Letters[state]
	}
	for _, c := range conditions() {
		s.Conditions[c] = false
	}
	for _, r := range health.Reasons {
		s.Conditions[r.Condition] = true
	}
	return s
}

// openStates are those of letters that wait for something.
func openStates() []store.State {
	return []store.State{store.StateRetry, store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved}
}
