package memstore_test

import (
	"context"
	"testing"

	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
	"github.com/semel-dev/semel/store/storetest"
)

// handle is what both kinds of connection have.
type handle interface {
	store.Backend[*memstore.Tx]
	Get(key string) (string, bool)
}

func harness(open func() handle, reopen func(store.Backend[*memstore.Tx]) handle) storetest.Harness[*memstore.Tx] {
	return storetest.Harness[*memstore.Tx]{
		New: func(*testing.T) store.Backend[*memstore.Tx] { return open() },
		Reopen: func(_ *testing.T, b store.Backend[*memstore.Tx]) store.Backend[*memstore.Tx] {
			return reopen(b)
		},
		Put: func(_ context.Context, tx *memstore.Tx, key, value string) error { return tx.Put(key, value) },
		Get: func(_ context.Context, b store.Backend[*memstore.Tx], key string) (string, bool, error) {
			v, ok := b.(handle).Get(key)
			return v, ok, nil
		},
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
	}
}

func TestConformance(t *testing.T) {
	t.Run("direct", func(t *testing.T) {
		storetest.Run(t, harness(
			func() handle { return memstore.New() },
			func(b store.Backend[*memstore.Tx]) handle { return b.(*memstore.Store).Connect() }))
	})
	t.Run("deferred", func(t *testing.T) {
		storetest.Run(t, harness(
			func() handle { return memstore.NewDeferred() },
			func(b store.Backend[*memstore.Tx]) handle { return b.(*memstore.Deferred).Connect() }))
	})
}
