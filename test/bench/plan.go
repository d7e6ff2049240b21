package main

import "time"

// plan says how much is measured. Everything is a count of messages unless it
// says otherwise.
type plan struct {
	rounds int // of interleaved slices; the first is dropped
	batch  int // messages per transaction

	ladder int // per slice of the SQLite rows
	single int // per slice of the row with one transaction per message
	path   int // per slice of the toolkit path
	replay int // skipped per run

	runs  int // of what has no pair
	files int // in the directory of whole files
	lines int // in the file of lines

	idle time.Duration // for how long the machine is watched before
}

// full is what is recorded.
func full() plan {
	return plan{
		rounds: 16, batch: 1000,
		ladder: 150_000, single: 3_000, path: 1_000_000, replay: 1_000_000,
		runs: 5, files: 20_000, lines: 1_000_000,
		idle: 10 * time.Second,
	}
}

// scaled makes a plan shorter; it is for trying things out and for tests.
func (p plan) scaled(by float64) plan {
	for _, n := range []*int{&p.ladder, &p.single, &p.path, &p.replay, &p.files, &p.lines} {
		*n = max(50, int(float64(*n)*by))
	}
	return p
}
