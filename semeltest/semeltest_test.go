package semeltest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

func check(work consumer.Work[*memstore.Tx], effects func() any) semeltest.Check[*memstore.Tx] {
	var ms []semel.Message
	for i := range 200 {
		ms = append(ms, semel.Message{ID: fmt.Sprint("m", i), Key: fmt.Sprint("k", i%5), Body: []byte("x")})
	}
	return semeltest.Check[*memstore.Tx]{
		Open:     func(testing.TB) store.Backend[*memstore.Tx] { return memstore.New() },
		Work:     work,
		Messages: ms,
		Effects: func(_ testing.TB, s store.Backend[*memstore.Tx]) any {
			if effects != nil {
				return effects()
			}
			return s.(*memstore.Store).Rows()
		},
	}
}

func TestOncePasses(t *testing.T) {
	r := semeltest.Once(t, check(consumer.Each(func(_ context.Context, tx *memstore.Tx, m semel.Message) error {
		return tx.Add(m.Key, 1)
	}), nil))
	if r.Redone == 0 || r.Account.Of[semel.Duplicate] == 0 {
		t.Errorf("the run was not hostile: %+v", r)
	}
}

// TestOnceFinds shows that a handler which counts outside the transaction is
// found out.
func TestOnceFinds(t *testing.T) {
	var n int
	spy := &spy{TB: t}
	semeltest.Once(spy, check(consumer.Each(func(context.Context, *memstore.Tx, semel.Message) error {
		n++
		return nil
	}), func() any { m := n; n = 0; return m }))
	if !spy.failed {
		t.Error("an effect outside the transaction was not noticed")
	}
}

type spy struct {
	testing.TB
	failed bool
}

func (s *spy) Errorf(string, ...any) { s.failed = true }
