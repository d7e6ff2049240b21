package inbox

import (
	"context"

	"github.com/semel-dev/semel/store"
)

// tableFacts: the classic inbox. The row is inserted first, so a second
// delivery on another connection waits for the first and then sees it; the
// insert-later form lets two handlers run (NServiceBus #6583).
func tableFacts() Facts {
	return Facts{
		Name:      "table",
		Record:    "one row per (consumer, id) with fingerprint and verdict",
		Protects:  "any repeat of an id while it is kept: redelivery, rebalance, a producer that published twice, a replay",
		Not:       "the same business fact under another id; repeats after the retention (keep)",
		Requires:  0,
		Condition: "ids are made by the producer or come from the body",
		Cost:      "one indexed row per message",
		Remembers: true,
	}
}

type table[Tx any] struct {
	consumer string
	store.Records[Tx]
}

func (t table[Tx]) Claim(ctx context.Context, tx Tx, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	return t.Records.Claim(ctx, tx, t.consumer, r, prior)
}

func (t table[Tx]) Amend(ctx context.Context, tx Tx, r []store.Record) error {
	if len(r) == 0 {
		return nil
	}
	return t.Records.Record(ctx, tx, t.consumer, r)
}
