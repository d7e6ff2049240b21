package observe

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/printable"
)

// Condition is a reason for not being ready. The names do not change.
type Condition string

const (
	// Starting: not known to the store yet or, where the source has
	// partitions, without the first assignment.
	Starting Condition = "starting"
	// Draining: it was told to stop and finishes what it has.
	Draining Condition = "draining"
	// Ended: the run is over.
	Ended Condition = "ended"
	// Paused: store or source cannot be used, or a key has as many held
	// messages as it may.
	Paused Condition = "paused"
	// Stalled: transactions have been tried for Config.Stalled, and none has
	// committed.
	Stalled Condition = "stalled"
	// PanicLoop: the last Config.Panics attempts all ended in a panic, the last
	// one not longer ago than Config.Calm.
	PanicLoop Condition = "panic_loop"
	// Wedged: a transaction has been open for Config.Wedged, and nothing paused
	// meanwhile.
	Wedged Condition = "wedged"
	// ScopeStopped: a scope was stopped, and a person has to look at it.
	ScopeStopped Condition = "scope_stopped"
	// StoreUnreadable: the last look at the store failed.
	StoreUnreadable Condition = "store_unreadable"
	// Unbalanced: more was decided than received, or the ledger and the
	// letters differ.
	Unbalanced Condition = "unbalanced"
)

// conditions are all of them.
func conditions() []Condition {
	return []Condition{Starting, Draining, Ended, Paused, Stalled, PanicLoop, Wedged, ScopeStopped, StoreUnreadable, Unbalanced}
}

// Reason is one reason for not being ready, or not alive.
type Reason struct {
	Condition Condition `json:"condition"`
	// Scope is the one that is stopped.
	Scope string `json:"scope,omitempty"`
	// Detail is for people. It has nothing of a message, and no text of a
	// handler's error.
	Detail string `json:"detail"`
	// dead: it is a reason for not being alive, too.
	dead bool
}

// Health is how a pipeline is now.
type Health struct {
	// Live is false if only another start can help: a wedged transaction, or a
	// panic loop of more than one message.
	Live bool
	// Ready is false for any reason at all.
	Ready   bool
	Reasons []Reason
}

// mostScopes is how many stopped scopes are named.
const mostScopes = 20

// Health says how the pipeline is now.
func (m *Monitor) Health() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rs []Reason
	for _, ask := range []func(time.Time) []Reason{m.phased, m.held, m.looping, m.halted, m.seen} {
		rs = append(rs, ask(time.Now())...)
	}
	dead := func(r Reason) bool { return r.dead }
	return Health{Live: !slices.ContainsFunc(rs, dead), Ready: len(rs) == 0, Reasons: rs}
}

func (m *Monitor) phased(time.Time) []Reason {
	switch m.phase {
	case semel.Starting:
		return []Reason{{Condition: Starting, Detail: "it has not begun to take messages"}}
	case semel.Draining:
		return []Reason{{Condition: Draining, Detail: "it finishes what is in hand and takes nothing more"}}
	case semel.Ended:
		return []Reason{{Condition: Ended, Detail: "the run is over"}}
	}
	return nil
}

// held tells what keeps transactions from committing.
func (m *Monitor) held(now time.Time) (rs []Reason) {
	if m.pauses > 0 {
		rs = append(rs, Reason{Condition: Paused, Detail: bottom(m.pause)})
	}
	if !m.failing.IsZero() && now.Sub(m.failing) >= m.cfg.Stalled && m.trying() {
		rs = append(rs, Reason{Condition: Stalled, Detail: fmt.Sprintf("transactions have failed for %v, and none has committed", now.Sub(m.failing).Round(time.Second))})
	}
	oldest := now
	for _, since := range m.open {
		if since.Before(oldest) {
			oldest = since
		}
	}
	if oldest.Before(m.pausing) { // it waits for the store: another start would, too
		oldest = m.pausing
	}
	if age := now.Sub(oldest); age >= m.cfg.Wedged {
		rs = append(rs, Reason{Condition: Wedged, dead: true, Detail: fmt.Sprintf("a transaction has been open for %v: a handler does not end, or the store does not answer", age.Round(time.Second))})
	}
	return rs
}

// bottom is the text of the error that the others wrap; of several the last.
// What wraps it may name messages, or be a handler's.
func bottom(err error) string {
	for err != nil {
		var next error
		switch e := err.(type) { //nolint:errorlint // it walks the tree itself
		case interface{ Unwrap() error }:
			next = e.Unwrap()
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				next = all[len(all)-1]
			}
		}
		if next == nil {
			return printable.Line(err.Error(), longest)
		}
		err = next
	}
	return ""
}

func (m *Monitor) looping(now time.Time) []Reason {
	if m.panics < m.cfg.Panics || now.Sub(m.panicAt) > m.cfg.Calm {
		return nil
	}
	of := "of one message"
	if m.several {
		of = "of several messages"
	}
	return []Reason{{Condition: PanicLoop, dead: m.several, Detail: fmt.Sprintf("the last %d attempts, %s, ended in a panic; nothing was applied in between", m.panics, of)}}
}

func (m *Monitor) halted(time.Time) (rs []Reason) {
	for i, name := range slices.Sorted(maps.Keys(m.stopped)) {
		if i == mostScopes {
			return append(rs, Reason{Condition: ScopeStopped, Detail: fmt.Sprintf("and %d more", len(m.stopped)-i)})
		}
		rs = append(rs, Reason{Condition: ScopeStopped, Scope: printable.Line(name, longest), Detail: printable.Line(m.stopped[name], longest)})
	}
	return rs
}

// seen tells what is wrong in the store and in the account.
func (m *Monitor) seen(time.Time) (rs []Reason) {
	if err := m.sight.statusErr; err != nil {
		rs = append(rs, Reason{Condition: StoreUnreadable, Detail: bottom(err)})
	}
	for _, i := range m.sight.status.Imbalances {
		rs = append(rs, Reason{Condition: Unbalanced, Detail: printable.Line(fmt.Sprintf("%s: ledger %d, rows %d", i.Account, i.Ledger, i.Rows), longest)})
	}
	if m.target.Account == nil {
		return rs
	}
	a := m.target.Account()
	if decided, had := a.Decided(), a.Received+a.Taken; decided > had {
		rs = append(rs, Reason{Condition: Unbalanced, Detail: fmt.Sprintf("%d decided, %d received or taken up", decided, had)})
	}
	return rs
}
