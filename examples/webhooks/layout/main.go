// Command layout delivers the webhooks example's payloads to a directory queue,
// one file each, in random order and some of them twice. Running it again
// delivers everything again.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel/examples/webhooks"
)

func main() {
	var in webhooks.Inbox
	flag.StringVar(&in.Root, "root", filepath.Join(".work", "webhooks"), "the queue's `directory`")
	flag.Uint64Var(&in.Seed, "seed", 1, "`number` that decides the order and what comes twice")
	flag.Float64Var(&in.Again, "again", 0.1, "`share` of the payloads delivered twice")
	flag.StringVar(&in.Key, "key", "", "deliver only what is about this `entity`, such as pull_request/279147437")
	flag.Parse()

	d, err := in.Deliver()
	if err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "%s: %d files, %d of them a second time; seed %d\n",
		filepath.Join(in.Root, "inbox"), d.Files, d.Files-d.Deliveries, in.Seed)
}
