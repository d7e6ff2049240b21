package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func transactionTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"CommitsAllOrNothing": commitsAllOrNothing[Tx],
		"Panic":               func(s *suite[Tx]) { survives(s, func() { panic("handler") }) },
		"Goexit":              func(s *suite[Tx]) { survives(s, runtime.Goexit) },
		"CancelledBefore":     cancelledBefore[Tx],
		"CancelledDuring":     cancelledDuring[Tx],
		"UseAfterTheEnd":      useAfterTheEnd[Tx],
		"Isolation":           isolation[Tx],
		"SecondHandle":        secondHandle[Tx],
		"Classify":            classify[Tx],
		"ForeignCommit":       foreignCommit[Tx],
		"ForeignRollback":     foreignRollback[Tx],
	}
}

// everything writes a row of every kind.
func (s *suite[Tx]) everything(tx Tx) error {
	_, e1 := s.b.Claim(s.ctx, tx, consumer, []store.Record{{ID: "id", Verdict: semel.Applied}}, nil)
	e2 := s.b.Count(s.ctx, tx, consumer, []store.Tally{{Account: "applied", N: 1}})
	e3 := s.b.SetVersions(s.ctx, tx, consumer, []store.Versioned{{Key: "k", ID: "id"}})
	_, e4 := s.b.Park(s.ctx, tx, []store.Parking{parking("ref", store.StateDead)}, nil)
	_, e5 := s.b.Append(s.ctx, tx, consumer, "k", 1)
	e6 := s.b.Suspect(s.ctx, tx, consumer, []store.Suspect{{Unit: "u", Limit: 1}})
	return errors.Join(e1, e2, e3, e4, e5, e6, s.put(tx, "k", "v"))
}

// nothing expects that no trace of everything is left.
func (s *suite[Tx]) nothing() {
	s.Helper()
	s.value("k", "")
	tr, err := s.b.Trace(s.ctx, consumer, "id", "k")
	must(s, err)
	if tr.Record != nil || tr.Version != nil || len(tr.Letters) > 0 {
		s.Errorf("a rolled back transaction left %+v", tr)
	}
	st, err := s.b.Status(s.ctx, consumer, true)
	must(s, err)
	if len(st.Letters) > 0 || len(st.Holds) > 0 || len(st.Suspects) > 0 || len(st.Ledger) > 0 || len(st.Imbalances) > 0 {
		s.Errorf("a rolled back transaction left %+v", st)
	}
}

func commitsAllOrNothing[Tx any](s *suite[Tx]) {
	s.abort(s.everything)
	s.nothing()
	s.in(s.everything)
	s.value("k", "v")
	tr, err := s.b.Trace(s.ctx, consumer, "id", "k")
	must(s, err)
	if tr.Record == nil || tr.Record.Verdict != semel.Applied || tr.Version == nil {
		s.Errorf("a committed transaction left %+v", tr)
	}
	if !near(tr.At) {
		s.Errorf("the record's time is %v", tr.At)
	}
}

// survives has the handler leave without returning.
func survives[Tx any](s *suite[Tx], leave func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		_, _ = s.b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
			must(s, s.everything(tx))
			leave()
			return nil
		})
	}()
	<-done
	s.nothing()
	s.in(func(tx Tx) error { return s.put(tx, "after", "1") })
	s.value("after", "1")
}

func cancelledBefore[Tx any](s *suite[Tx]) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	out, err := s.b.InTx(ctx, store.Mark{}, func(ctx context.Context, tx Tx) error { return s.put(tx, "k", "v") })
	// A store may be done before it looks; if it fails, then with nothing written.
	if err != nil && (out != store.RolledBack || !errors.Is(err, context.Canceled)) {
		s.Errorf("outcome %d, error %v", out, err)
	}
	if out == store.RolledBack {
		s.value("k", "")
	}
}

func cancelledDuring[Tx any](s *suite[Tx]) {
	ctx, cancel := context.WithCancel(s.ctx)
	out, err := s.b.InTx(ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
		defer cancel()
		return s.put(tx, "k", "v")
	})
	if out != store.Committed || err != nil {
		s.Errorf("the commit was cancelled: outcome %d, error %v", out, err)
	}
	s.value("k", "v")
}

func useAfterTheEnd[Tx any](s *suite[Tx]) {
	var kept Tx
	s.in(func(tx Tx) error { kept = tx; return nil })
	if err := s.h.Put(s.ctx, kept, "late", "1"); err == nil {
		s.Error("a transaction could be written to after its end")
	}
	if _, err := s.b.Claim(s.ctx, kept, consumer, []store.Record{{ID: "late"}}, nil); err == nil {
		s.Error("an id could be claimed in a transaction that is over")
	}
	s.in(func(tx Tx) error { return s.put(tx, "next", "1") })
	s.value("late", "")
}

func isolation[Tx any](s *suite[Tx]) {
	s.in(func(tx Tx) error {
		if err := s.everything(tx); err != nil {
			return err
		}
		s.nothing() // readers see what is committed
		return nil
	})
	s.value("k", "v")
}

func secondHandle[Tx any](s *suite[Tx]) {
	other := s.other()
	s.in(s.everything)
	tr, err := other.Trace(s.ctx, consumer, "id", "k")
	must(s, err)
	if tr.Record == nil || tr.Version == nil {
		s.Errorf("another handle does not see what is committed: %+v", tr)
	}
	if have, ok, err := s.h.Get(s.ctx, other, "k"); have != "v" || !ok || err != nil {
		s.Errorf("another handle reads %q, %v, %v", have, ok, err)
	}
}

func classify[Tx any](s *suite[Tx]) {
	for _, err := range []error{errAbort, semel.Permanent(errAbort), semel.Invalid(errAbort)} {
		if c := s.b.Classify(err); c != semel.ClassTransient {
			s.Errorf("an error that the store does not know is %v, not transient", c)
		}
	}
	if c := s.b.Classify(store.ErrEnded); c != semel.ClassFault {
		s.Errorf("ErrEnded is %v, not a fault", c)
	}
}

func foreignCommit[Tx any](s *suite[Tx]) {
	if s.h.Commit == nil {
		s.Log("a handler has no way to commit")
		return
	}
	claimed := s.b.Capabilities().FailsForeignCommit
	out, err := s.b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
		if err := s.everything(tx); err != nil {
			return err
		}
		_ = s.h.Commit(s.ctx, tx)
		_ = s.h.Put(s.ctx, tx, "k", "after") // by itself, if the transaction is over
		return nil
	})
	if out == store.Committed || !errors.Is(err, store.ErrEnded) {
		s.Errorf("a COMMIT in a handler gave outcome %d, error %v; want ErrEnded", out, err)
	}
	if c := s.b.Classify(err); c != semel.ClassFault {
		s.Errorf("it is of class %v, not a fault", c)
	}
	if claimed {
		s.nothing()
		return
	}
	_, stays, err := s.h.Get(s.ctx, s.b, "k")
	s.Logf("not declared: a COMMIT in a handler fails. What it wrote stays: %v, %v", stays, err)
}

func foreignRollback[Tx any](s *suite[Tx]) {
	if s.h.Rollback == nil {
		s.Log("a handler has no way to roll back")
		return
	}
	out, err := s.b.InTx(s.ctx, store.Mark{}, func(_ context.Context, tx Tx) error {
		if err := s.everything(tx); err != nil {
			return err
		}
		return s.h.Rollback(s.ctx, tx)
	})
	if out == store.Committed || !errors.Is(err, store.ErrEnded) {
		s.Errorf("a ROLLBACK in a handler gave outcome %d, error %v; want ErrEnded", out, err)
	}
	s.nothing()
	s.in(func(tx Tx) error { return s.put(tx, "next", "1") })
}

func capabilityTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Declared":   declared[Tx],
		"Committers": committers[Tx],
		"Durable":    durable[Tx],
	}
}

func declared[Tx any](s *suite[Tx]) {
	c := s.b.Capabilities()
	if c.Name == "" || c.Committers < 0 || c.MaxHold < 0 {
		s.Errorf("capabilities make no sense: %+v", c)
	}
	if again := s.b.Capabilities(); again != c {
		s.Errorf("capabilities are not constant: %+v, then %+v", c, again)
	}
	s.Logf("%+v", c)
}

// committers has two transactions meet inside, or proves that they do not.
func committers[Tx any](s *suite[Tx]) {
	claimed := s.b.Capabilities().Committers
	var inside, most atomic.Int32
	met := make(chan struct{})
	enter := func(tx Tx) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		if n == 2 {
			close(met)
		}
		if claimed == 1 {
			for range 100 {
				runtime.Gosched() // the other one is waiting to come in
			}
			return nil
		}
		select {
		case <-met:
		case <-time.After(10 * time.Second):
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.inOn(s.b, enter)
	}()
	s.in(enter)
	<-done
	if both := most.Load() == 2; both != (claimed != 1) {
		s.Errorf("Committers is %d, and two transactions ran at once: %v", claimed, both)
	}
}

// durable closes the store and opens it again. That a commit survives power
// loss is not for a test in one process to prove.
func durable[Tx any](s *suite[Tx]) {
	s.in(s.everything)
	must(s, s.b.Close(s.ctx))
	b := s.other()
	value, ok, err := s.h.Get(s.ctx, b, "k")
	kept := err == nil && ok && value == "v"
	if s.b.Capabilities().Durable && !kept {
		s.Errorf("declared durable, but after reopening the value is %q, %v, %v", value, ok, err)
	}
	if !s.b.Capabilities().Durable {
		s.Logf("not declared: durable. After reopening the value is there: %v", kept)
	}
}
