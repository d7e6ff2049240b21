package filebroker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
)

// A file that arrives is claimed, handed over, and moved when it is settled.
func ExampleOpen() {
	root, err := os.MkdirTemp("", "orders")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	ctx := context.Background()
	q, err := filebroker.Open(ctx, filebroker.Config{Root: root})
	if err != nil {
		panic(err)
	}
	defer q.Close(ctx)

	// A producer writes under a temporary name and renames.
	inbox := filepath.Join(root, "inbox")
	if err := os.WriteFile(filepath.Join(inbox, "1.json.tmp"), []byte(`{"id":"o-1"}`), 0o666); err != nil {
		panic(err)
	}
	if err := os.Rename(filepath.Join(inbox, "1.json.tmp"), filepath.Join(inbox, "1.json")); err != nil {
		panic(err)
	}

	ds, err := q.Receive(ctx, broker.Budget{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", ds[0].Body)
	out := make([]broker.Settled, 1)
	if err := q.Settle(ctx, []broker.Settlement{{Lease: ds[0].Lease, Verb: broker.Ack}}, out); err != nil {
		panic(err)
	}
	_, err = os.Stat(filepath.Join(root, "done", "1.json"))
	fmt.Println(out[0] == broker.Done, err)
	// Output:
	// {"id":"o-1"}
	// true <nil>
}
