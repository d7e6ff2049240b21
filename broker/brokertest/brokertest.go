// Package brokertest proves that a source of messages is what its
// Capabilities say. An adapter's own test calls [Run] against the real thing.
//
// Every capability that is declared has a check that fails when the claim is
// false. What is not declared is tried as well and reported with Log, so that
// a source which can do more than it says is noticed.
package brokertest

import (
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

// Harness makes sources for the checks.
type Harness struct {
	// New makes a fresh, empty source in good order. Every check gets its
	// own. What it holds is freed with tb.Cleanup.
	New func(tb testing.TB) Source
	// Patience is how long the suite waits for what must happen. Default
	// 10 s.
	Patience time.Duration
	// Quiet is how long it waits to see that something does not happen: a
	// message that stays settled, or is held by another. It must be longer
	// than the source takes to hand over what is there. Default 200 ms.
	Quiet time.Duration
	// Wrap runs a check inside something else, for example synctest.Test for
	// a source without real input and output. Default: it is called directly.
	Wrap func(t *testing.T, check func(t *testing.T))
}

// Source is one source under test.
type Source struct {
	// Open connects another receiver to it. The suite binds an owner where
	// the receiver is broker.Owned, and closes the receiver.
	Open func(tb testing.TB) broker.Receiver
	// Publish returns when the source has the messages. Their bodies are
	// different, not empty, of one line and in UTF-8; sources that carry
	// keys have to keep Key.
	Publish func(tb testing.TB, ms ...semel.Message)
	// Kill ends a receiver as the death of its process would: nothing is
	// given back in good order. nil: it cannot be done, and the checks that
	// need it close the receiver instead and say so.
	Kill func(tb testing.TB, r broker.Receiver)
}

// Check is one check of the suite.
type Check struct {
	Name string
	Run  func(tb testing.TB, h Harness)
}

// Run runs all checks as subtests.
func Run(t *testing.T, h Harness) {
	wrap := h.Wrap
	if wrap == nil {
		wrap = func(t *testing.T, check func(*testing.T)) { check(t) }
	}
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			wrap(t, func(t *testing.T) { c.Run(t, h) })
		})
	}
}

// Checks lists the suite, for those who want to run a part of it.
func Checks() []Check {
	var cs []Check
	for _, c := range []struct {
		name string
		fn   func(*env)
	}{
		{"Delivers", delivers},
		{"Budget", budgetKept},
		{"CancelReturns", cancelReturns},
		{"ReceiveWhileSettling", receiveWhileSettling},
		{"BodiesLast", bodiesLast},
		{"SettleTwice", settleTwice},
		{"UnknownLease", unknownLease},
		{"CloseTwice", closeTwice},
		{"CloseGivesBack", closeGivesBack},
		{"KillGivesBack", killGivesBack},
		{"TwoReceivers", twoReceivers},
		{"HeldByOne", heldByOne},
		{"Depth", depthReachesZero},
		{"Release", release},
		{"Retry", retryVerb},
		{"Delay", delay},
		{"Reject", reject},
		{"Count", count},
		{"Cumulative", cumulative},
		{"Confirmed", confirmed},
		{"FencesStale", fencesStale},
		{"StablePosition", stablePosition},
		{"ExclusiveScope", exclusiveScope},
		{"InOrderPerScope", inOrderPerScope},
		{"StableKeyPartition", stableKeyPartition},
		{"Ephemeral", ephemeral},
		{"MaxBytes", maxBytes},
	} {
		cs = append(cs, Check{c.name, func(tb testing.TB, h Harness) {
			tb.Helper()
			e := newEnv(tb, h)
			c.fn(e)
			e.fences.report(tb)
		}})
	}
	return cs
}
