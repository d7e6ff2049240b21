// Command bench measures what semel costs, as ratios to the loop that a person
// would write by hand.
//
//	go run ./test/bench
//
// It prints its tables and, if the machine was quiet, writes them into
// docs/benchmarks.md, which also says how they are made and how to read them.
//
// Reading order: main.go, plan.go (what is measured and how often), compare.go
// (interleaved slices and their ratios), then one file per group of rows:
// ladder.go with loop.go and pipeline.go, path.go, queue.go, replay.go.
package main
