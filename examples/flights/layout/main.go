// Command layout delivers the flights example's events to a directory queue,
// in random order and some of them twice. Running it again delivers
// everything again.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/examples/flights"
)

func main() {
	var in flights.Inbox
	flag.StringVar(&in.Root, "root", filepath.Join(".work", "flights"), "the queue's `directory`")
	flag.Uint64Var(&in.Seed, "seed", 1, "`number` that decides the order and what comes twice")
	flag.Float64Var(&in.Again, "again", 0.05, "`share` of the events delivered twice")
	flag.IntVar(&in.Lines, "lines", 0, "`number` of NDJSON files, every second one gzipped (0: one file per event)")
	flag.Parse()

	start := time.Now()
	d, err := in.Deliver()
	if err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
	// On stderr: with ARGS=--json, standard output belongs to the pipeline.
	fmt.Fprintf(os.Stderr, "%s: %d files with %d deliveries of %d events (%d of them twice); run %d, seed %d, %v\n",
		filepath.Join(in.Root, "inbox"), d.Files, d.Messages, d.Events, d.Messages-d.Events, d.Run, in.Seed,
		time.Since(start).Round(time.Millisecond))
}
