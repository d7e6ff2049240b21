// Package retry says when a failed message is tried again.
package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy is a graded schedule: some attempts at once, then growing delays,
// then the dead letters. Retry in one layer only: a client library that retries
// three times under a policy of four attempts makes twelve calls.
//
// The zero value is one immediate attempt and delays of 1 s, 10 s and 1 min:
// five attempts in all.
type Policy struct {
	// Immediate is how many further attempts follow the first failure at
	// once. Zero means the default, 1; negative means none.
	Immediate int
	// Delays are the pauses before each later attempt. nil means the
	// default; empty means none: dead after the immediate attempts.
	Delays []time.Duration
	// Jitter spreads each delay d over [d, d+Jitter×d). Zero means the
	// default, 0.2; negative means none. At most 1.
	Jitter float64
}

var defaultDelays = []time.Duration{time.Second, 10 * time.Second, time.Minute}

// MaxDelay bounds a single delay, stated or asked for by a handler.
const MaxDelay = 30 * 24 * time.Hour

// Attempts is the total number of attempts before a message is dead.
func (p Policy) Attempts() int { return 1 + p.immediate() + len(p.delays()) }

// Longest is the largest delay that the policy can produce, jitter included.
func (p Policy) Longest() time.Duration {
	var d time.Duration
	for _, x := range p.delays() {
		d = max(d, x)
	}
	return d + time.Duration(p.jitter()*float64(d))
}

// Span is the sum of all delays at their longest: how long a message may stay
// parked by the policy alone.
func (p Policy) Span() time.Duration {
	var d time.Duration
	for _, x := range p.delays() {
		d += x + time.Duration(p.jitter()*float64(x))
	}
	return d
}

// Next says what follows after the attempts-th failed attempt (from 1): now
// (another attempt at once), a delay, or dead.
func (p Policy) Next(attempts int) (now bool, delay time.Duration, dead bool) {
	if attempts <= p.immediate() {
		return true, 0, false
	}
	i := attempts - p.immediate() - 1
	if i >= len(p.delays()) {
		return false, 0, true
	}
	d := p.delays()[i]
	return false, d + time.Duration(p.jitter()*rand.Float64()*float64(d)), false
}

// Validate returns all problems at once.
func (p Policy) Validate() error {
	var errs []error
	for i, d := range p.delays() {
		if d <= 0 || d > MaxDelay {
			errs = append(errs, fmt.Errorf("delay %d is %v: must be above zero and at most %v", i+1, d, MaxDelay))
		}
	}
	if p.Jitter > 1 {
		errs = append(errs, fmt.Errorf("jitter is %v: must be at most 1", p.Jitter))
	}
	return errors.Join(errs...)
}

func (p Policy) immediate() int {
	switch {
	case p.Immediate == 0:
		return 1
	case p.Immediate < 0:
		return 0
	}
	return p.Immediate
}

func (p Policy) delays() []time.Duration {
	if p.Delays == nil {
		return defaultDelays
	}
	return p.Delays
}

func (p Policy) jitter() float64 {
	switch {
	case p.Jitter == 0:
		return 0.2
	case p.Jitter < 0:
		return 0
	}
	return p.Jitter
}
