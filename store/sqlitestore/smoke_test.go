package sqlitestore

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "a?b#c%20.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Enlist(ctx, store.Worker{Consumer: "c", Name: "w", Slots: 1, Identity: map[string]string{"inbox": "table"}}); err != nil {
		t.Fatal(err)
	}
	out, err := s.InTx(ctx, store.Mark{Consumer: "c", Worker: "w", Batch: 1}, func(ctx context.Context, tx sqlstore.Tx) error {
		p, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "a", Verdict: semel.Applied, Hash: 1 << 63}}, nil)
		if err != nil {
			return err
		}
		t.Log(p)
		_, err = s.Park(ctx, tx, []store.Parking{{Letter: store.Letter{Consumer: "c", Ref: "r", State: store.StateRetry, Message: semel.Message{ID: "x", Body: []byte{}, Time: time.Now()}}, Attempt: store.Attempt{N: 1}}}, nil)
		if err != nil {
			return err
		}
		if err := s.Note(ctx, tx, "c", []string{"r"}, []store.Revision{{Ref: "r"}}); err != nil {
			return err
		}
		_, err = s.Find(ctx, tx, "c", []string{"x"}, []string{"r"}, nil)
		return err
	})
	if out != store.Committed || err != nil {
		t.Fatal(out, err)
	}
	d, next, err := s.Due(ctx, "c", 10, 1000)
	t.Logf("%+v %v %v", d, next, err)
	st, err := s.Status(ctx, "c", true)
	t.Logf("%+v %v", st, err)
	p, err := s.Purge(ctx, store.Purge{Consumer: "c"})
	t.Logf("%+v %v", p, err)
	tr, err := s.Trace(ctx, "c", "x", "")
	t.Logf("%+v %v", tr, err)
	l, err := s.List(ctx, store.Query{})
	t.Logf("%+v %v", l, err)
	o, err := s.Resolve(ctx, store.Mark{Consumer: "c", Worker: "w", Batch: 1})
	if o != store.Committed || err != nil {
		t.Fatal(o, err)
	}
	out, err = s.InTx(ctx, store.Mark{Consumer: "c", Worker: "w", Batch: 2}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "COMMIT")
		return err
	})
	t.Log(out, err, s.Classify(err))
	out, err = s.InTx(ctx, store.Mark{Consumer: "c", Worker: "w", Batch: 2}, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "ROLLBACK")
		return err
	})
	t.Log(out, err, s.Classify(err))
}
