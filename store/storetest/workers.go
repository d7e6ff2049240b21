package storetest

import (
	"context"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func workerTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Enlist":   enlist[Tx],
		"Identity": identity[Tx],
		"Retire":   retire[Tx],
	}
}

func (s *suite[Tx]) enlist(name string, slots int) {
	s.Helper()
	must(s, s.b.Enlist(s.ctx, store.Worker{Consumer: consumer, Name: name, Slots: slots}))
}

func (s *suite[Tx]) workers() []store.Mark {
	s.Helper()
	st, err := s.b.Status(s.ctx, consumer, false)
	must(s, err)
	return st.Workers
}

// batch runs one batch with a mark.
func (s *suite[Tx]) batch(m store.Mark, fn func(tx Tx) error) (store.Outcome, error) {
	return s.b.InTx(s.ctx, m, func(_ context.Context, tx Tx) error { return fn(tx) })
}

func (s *suite[Tx]) idle(Tx) error { return nil }

func enlist[Tx any](s *suite[Tx]) {
	s.enlist(worker, 2)
	s.enlist("\x00\xff w2", 1)
	must(s, s.b.Enlist(s.ctx, store.Worker{Consumer: stranger, Name: worker, Slots: 1}))
	if _, err := s.batch(store.Mark{Consumer: consumer, Worker: worker, Slot: 1, Batch: 1}, s.idle); err != nil {
		s.Fatal(err)
	}
	equal(s, "workers", s.workers(), []store.Mark{
		{Consumer: consumer, Worker: "\x00\xff w2"},
		{Consumer: consumer, Worker: worker},
		{Consumer: consumer, Worker: worker, Slot: 1, Batch: 1},
	})
	s.enlist(worker, 2)
	if out, err := s.batch(store.Mark{Consumer: consumer, Worker: worker, Slot: 1, Batch: 1}, s.idle); err != nil || out != store.Committed {
		s.Errorf("a worker that enlisted again does not begin at batch 1: outcome %d, %v", out, err)
	}
}

func identity[Tx any](s *suite[Tx]) {
	w := store.Worker{Consumer: consumer, Name: worker, Slots: 1, Identity: map[string]string{"source": "a", "inbox": "table"}}
	must(s, s.b.Enlist(s.ctx, w))
	w.Name = "w2"
	must(s, s.b.Enlist(s.ctx, w))
	w.Name, w.Identity = "w3", map[string]string{"source": "b", "inbox": "table"}
	err := s.b.Enlist(s.ctx, w)
	var taken *store.TakenError
	if !errors.As(err, &taken) {
		s.Fatalf("another source under the same name: %v, want a *TakenError", err)
	}
	equal(s, "the error", *taken, store.TakenError{Consumer: consumer, Fact: "source", Have: "a", Want: "b"})
	if len(s.workers()) != 2 {
		s.Errorf("the refused worker has a mark: %+v", s.workers())
	}
	w.Identity = map[string]string{"source": "a", "order": "key"}
	must(s, s.b.Enlist(s.ctx, w)) // a fact that nobody stated before
	w.Consumer, w.Identity = stranger, map[string]string{"source": "b"}
	must(s, s.b.Enlist(s.ctx, w))
}

func retire[Tx any](s *suite[Tx]) {
	s.enlist(worker, 3)
	s.enlist("w2", 1)
	must(s, s.b.Retire(s.ctx, consumer, worker))
	must(s, s.b.Retire(s.ctx, consumer, worker))
	must(s, s.b.Retire(s.ctx, "nobody", worker))
	equal(s, "workers", s.workers(), []store.Mark{{Consumer: consumer, Worker: "w2"}})
}

func markTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Moves":          markMoves[Tx],
		"SomeoneElse":    markSomeoneElse[Tx],
		"NotEnlisted":    markNotEnlisted[Tx],
		"Resolve":        resolve[Tx],
		"ResolveWaits":   resolveWaits[Tx],
		"ResolveNothing": resolveNothing[Tx],
	}
}

func mark(batch int64) store.Mark {
	return store.Mark{Consumer: consumer, Worker: worker, Batch: batch}
}

func markMoves[Tx any](s *suite[Tx]) {
	s.enlist(worker, 1)
	for batch := range int64(3) {
		failing := func(tx Tx) error { return errors.Join(s.put(tx, "k", "v"), errAbort) }
		if out, err := s.batch(mark(batch+1), failing); out != store.RolledBack || !errors.Is(err, errAbort) {
			s.Fatalf("outcome %d, error %v", out, err)
		}
		if out, err := s.batch(mark(batch+1), s.idle); out != store.Committed || err != nil {
			s.Fatalf("batch %d after it was rolled back: outcome %d, error %v", batch+1, out, err)
		}
	}
	s.value("k", "")
	equal(s, "workers", s.workers(), []store.Mark{mark(3)})
}

// refused expects an error of class fault, and the function not called.
func refused[Tx any](s *suite[Tx], m store.Mark) {
	s.Helper()
	called := false
	out, err := s.batch(m, func(Tx) error { called = true; return nil })
	if err == nil || out != store.RolledBack || s.b.Classify(err) != semel.ClassFault {
		s.Errorf("mark %+v: outcome %d, error %v; want a fault", m, out, err)
	}
	if called {
		s.Errorf("mark %+v: the function was called under a mark that is not ours", m)
	}
}

func markSomeoneElse[Tx any](s *suite[Tx]) {
	s.enlist(worker, 1)
	refused(s, mark(2))
	refused(s, mark(0))
	if _, err := s.batch(mark(1), s.idle); err != nil {
		s.Fatal(err)
	}
	refused(s, mark(1))
	refused(s, mark(3))
}

func markNotEnlisted[Tx any](s *suite[Tx]) {
	refused(s, mark(1))
	s.enlist(worker, 1)
	refused(s, store.Mark{Consumer: consumer, Worker: worker, Slot: 1, Batch: 1})
	refused(s, store.Mark{Consumer: stranger, Worker: worker, Batch: 1})
	must(s, s.b.Retire(s.ctx, consumer, worker))
	refused(s, mark(1))
}

func (s *suite[Tx]) resolved(b store.Backend[Tx], m store.Mark, want store.Outcome) {
	s.Helper()
	out, err := b.Resolve(s.ctx, m)
	if out != want || err != nil {
		s.Errorf("batch %d resolved to %d, error %v; want %d", m.Batch, out, err, want)
	}
}

func resolve[Tx any](s *suite[Tx]) {
	s.enlist(worker, 1)
	s.resolved(s.b, mark(1), store.RolledBack)
	_, _ = s.batch(mark(1), func(Tx) error { return errAbort })
	s.resolved(s.b, mark(1), store.RolledBack)
	if _, err := s.batch(mark(1), s.idle); err != nil {
		s.Fatal(err)
	}
	s.resolved(s.b, mark(1), store.Committed)
	s.resolved(s.other(), mark(1), store.Committed)
	s.resolved(s.b, mark(2), store.RolledBack)
}

// resolveWaits asks for the outcome while the transaction runs, from another
// process: a read that does not wait would take it for rolled back.
func resolveWaits[Tx any](s *suite[Tx]) {
	s.enlist(worker, 1)
	other := s.other()
	inside, asked, answer := make(chan struct{}), make(chan struct{}), make(chan store.Outcome)
	go func() {
		<-inside
		close(asked)
		out, err := other.Resolve(s.ctx, mark(1))
		if err != nil {
			s.Errorf("Resolve: %v", err)
		}
		answer <- out
	}()
	_, err := s.batch(mark(1), func(tx Tx) error {
		close(inside)
		<-asked
		return s.put(tx, "k", "v")
	})
	out := <-answer
	if err != nil || out != store.Committed {
		s.Errorf("a batch in flight that then committed (error %v) resolved to %d", err, out)
	}
}

func resolveNothing[Tx any](s *suite[Tx]) {
	if out, err := s.b.Resolve(s.ctx, mark(1)); out != store.Unknown || err == nil {
		s.Errorf("a mark that is not there resolved to %d, error %v; want unknown and an error", out, err)
	}
	s.enlist(worker, 1)
	if out, err := s.b.Resolve(s.ctx, mark(7)); out != store.Unknown || err == nil {
		s.Errorf("a mark far behind resolved to %d, error %v; want unknown and an error", out, err)
	}
}
