package letter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

type desk = letter.Desk[*memstore.Tx]

// park writes dead letters with their inbox rows, as the pipeline does.
func park(t *testing.T, st *memstore.Store, ls ...store.Letter) {
	t.Helper()
	err := st.Enlist(t.Context(), store.Worker{Consumer: "c", Name: "w", Slots: 1, Identity: map[string]string{"inbox": "table"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		for _, l := range ls {
			l.Consumer = "c"
			if l.State == "" {
				l.State = store.StateDead
			}
			if l.Number > 0 {
				if _, err := st.Append(ctx, tx, "c", l.Message.Key, 1); err != nil {
					return err
				}
			}
			if _, err := st.Park(ctx, tx, []store.Parking{{Letter: l}}, nil); err != nil {
				return err
			}
			lines := []store.Tally{{Account: store.AccountOpened, N: 1}}
			if letter.Recorded(&l) {
				r := store.Record{ID: l.Message.ID, Verdict: semel.Parked, Hash: store.Hash("c", l.Message.ID)}
				if _, err := st.Claim(ctx, tx, "c", []store.Record{r}, nil); err != nil {
					return err
				}
				lines = append(lines, store.Tally{Account: semel.Parked.String(), N: 1, Sum: r.Hash})
			}
			if err := st.Count(ctx, tx, "c", lines); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func of(ref, id string) store.Letter {
	return store.Letter{Ref: ref, Message: semel.Message{ID: id, Key: "k", Body: []byte("1")}}
}

func find(t *testing.T, st *memstore.Store, ref string) store.Letter {
	t.Helper()
	ls, err := st.List(t.Context(), store.Query{Consumer: "c", Ref: ref, Bodies: true})
	if err != nil || len(ls) != 1 {
		t.Fatalf("letter %s: %+v %v", ref, ls, err)
	}
	return ls[0]
}

func balanced(t *testing.T, st *memstore.Store) {
	t.Helper()
	s, err := st.Status(t.Context(), "c", true)
	if err != nil || len(s.Imbalances) > 0 {
		t.Errorf("tables do not balance: %+v %v", s.Imbalances, err)
	}
}

// TestDecisions: each reference gets an answer of its own, in the order asked.
func TestDecisions(t *testing.T) {
	st := memstore.New()
	contested, waiting := of("b", "b"), of("c", "c")
	contested.Conflict, waiting.State = true, store.StateRetry
	park(t, st, of("a", "a"), contested, waiting)
	done, err := desk{Store: st}.Replay(t.Context(), "c", letter.Targets("zz", "c", "b", "a", "a"), "ann", "try again")
	if err != nil || len(done) != 5 {
		t.Fatalf("%+v %v", done, err)
	}
	var illegal *letter.TransitionError
	if !errors.Is(done[0].Err, letter.ErrNotFound) || !errors.As(done[1].Err, &illegal) ||
		!strings.Contains(fmt.Sprint(done[2].Err), "discarded") || done[3].Err != nil || !errors.Is(done[4].Err, letter.ErrMoved) {
		t.Errorf("%+v", done)
	}
	if l := find(t, st, "a"); l.State != store.StateRetry || l.By != "ann" || l.Note != "try again" {
		t.Errorf("%+v", l)
	}
	balanced(t, st)
}

func TestDiscardNeedsAReason(t *testing.T) {
	st := memstore.New()
	park(t, st, of("a", "a"))
	if _, err := (desk{Store: st}).Discard(t.Context(), "c", letter.Targets("a"), "ann", ""); err == nil {
		t.Error("it is discarded without one")
	}
}

// TestDiscardFreesAndBooks: the place behind the key, the inbox row and the
// ledger follow.
func TestDiscardFreesAndBooks(t *testing.T) {
	st := memstore.New()
	first, unread := of("a", "a"), of("b", "")
	first.Number = 1
	park(t, st, first, unread)
	done, err := desk{Store: st}.Discard(t.Context(), "c", letter.Targets("a", "b"), "ann", "no use")
	if err != nil || done[0].Err != nil || done[1].Err != nil {
		t.Fatalf("%+v %v", done, err)
	}
	s, err := st.Status(t.Context(), "c", true)
	if err != nil || s.HoldKeys != 0 || s.Letters[store.StateDiscarded] != 2 {
		t.Errorf("%+v %v", s, err)
	}
	if tr, err := st.Trace(t.Context(), "c", "a", ""); err != nil || tr.Record.Verdict != semel.Discarded {
		t.Errorf("%+v %v", tr.Record, err)
	}
	balanced(t, st)
}

// TestManyDecisions are made in steps; if the store fails in between, what was
// done is told, and asking again does the rest.
func TestManyDecisions(t *testing.T) {
	st := memstore.New()
	var refs []string
	for i := range 250 {
		ref := fmt.Sprintf("r%03d", i)
		park(t, st, of(ref, ref))
		refs = append(refs, ref)
	}
	n := 0
	st.Script(func(s memstore.Step) error {
		if s.Op == memstore.OpBegin {
			if n++; n == 3 {
				return memstore.Errorf(semel.ClassInfrastructure, "connection reset")
			}
		}
		return nil
	})
	done, err := desk{Store: st}.Replay(t.Context(), "c", letter.Targets(refs...), "ann", "")
	if err == nil || len(done) != 200 || !strings.Contains(err.Error(), "200 of 250") {
		t.Fatalf("%d done, %v", len(done), err)
	}
	st.Script(nil)
	done, err = desk{Store: st}.Replay(t.Context(), "c", letter.Targets(refs...), "ann", "")
	refused := 0
	for _, d := range done {
		if d.Err != nil {
			refused++
		}
	}
	if err != nil || refused != 200 {
		t.Errorf("%d refused, %v", refused, err)
	}
	if s, err := st.Status(t.Context(), "c", false); err != nil || s.Letters[store.StateRetry] != 250 {
		t.Errorf("%+v %v", s.Letters, err)
	}
}

// moving moves a letter between the desk's look and its decision.
type moving struct {
	*memstore.Store
	ref string
}

func (m moving) Find(ctx context.Context, tx *memstore.Tx, consumer string, ids, refs []string, out []store.Letter) ([]store.Letter, error) {
	out, err := m.Store.Find(ctx, tx, consumer, ids, refs, out)
	for _, l := range out {
		if l.Ref == m.ref {
			if _, err := m.Move(ctx, tx, consumer, []store.Move{{Ref: l.Ref, Version: l.Version, To: store.StateDead}}, nil); err != nil {
				return nil, err
			}
		}
	}
	return out, err
}

// TestSecondPerson: who comes second sees it, and nothing of the step is done.
func TestSecondPerson(t *testing.T) {
	st := memstore.New()
	park(t, st, of("a", "a"), of("b", "b"))
	_, err := desk{Store: moving{st, "b"}}.Discard(t.Context(), "c", letter.Targets("a", "b"), "ann", "no use")
	if !errors.Is(err, letter.ErrMoved) {
		t.Errorf("%v", err)
	}
	if l := find(t, st, "a"); l.State != store.StateDead {
		t.Errorf("%+v", l)
	}
	balanced(t, st)
}

// propose keeps content beside a letter.
func propose(t *testing.T, st *memstore.Store, ref, note string, m semel.Message) {
	t.Helper()
	_, err := st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		return st.Note(ctx, tx, "c", nil, []store.Revision{{Ref: ref, By: "source", Note: note, Message: m, Fingerprint: store.Print(&m)}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplayProposed: the last readable content is taken, a letter without id
// gets its id, a key it does not have any more is left.
func TestReplayProposed(t *testing.T) {
	st := memstore.New()
	numbered := of("d", "d")
	numbered.Number = 1
	park(t, st, of("a", "a"), of("b", ""), of("c", ""), numbered, of("e", "e"))
	propose(t, st, "a", "resent", semel.Message{ID: "a", Key: "k", Body: []byte("2")})
	propose(t, st, "a", letter.Unreadable, semel.Message{ID: "a", Body: []byte("3")})
	propose(t, st, "b", "resent", semel.Message{ID: "new", Body: []byte("2")})
	propose(t, st, "c", "resent", semel.Message{ID: "a", Body: []byte("2")})
	propose(t, st, "d", "resent", semel.Message{ID: "d", Key: "other", Body: []byte("2")})
	propose(t, st, "e", letter.Unreadable, semel.Message{ID: "e", Body: []byte("2")})
	done, err := desk{Store: st}.ReplayProposed(t.Context(), "c", letter.Targets("a", "b", "c", "d", "e"), "ann", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range []bool{true, true, false, true, false} {
		if (done[i].Err == nil) != ok {
			t.Errorf("%s: %v", done[i].Ref, done[i].Err)
		}
	}
	if l := find(t, st, "a"); l.State != store.StateRetry || string(l.Message.Body) != "2" || letter.Unread(&l) {
		t.Errorf("%+v", l)
	}
	if l := find(t, st, "b"); l.Message.ID != "new" {
		t.Errorf("%+v", l)
	}
	if l := find(t, st, "d"); l.Message.Key != "other" || l.Number != 0 {
		t.Errorf("%+v", l)
	}
	if s, err := st.Status(t.Context(), "c", true); err != nil || s.HoldKeys != 0 {
		t.Errorf("%+v %v", s.Holds, err)
	}
	balanced(t, st)
}

// TestDiscardAfterARevision: a message whose time was repaired is booked where
// its row is.
func TestDiscardAfterARevision(t *testing.T) {
	st := memstore.New()
	park(t, st, of("a", "a"))
	propose(t, st, "a", "resent", semel.Message{ID: "a", Body: []byte("2"), Time: time.Unix(10*86400, 0)})
	if done, err := (desk{Store: st}).ReplayProposed(t.Context(), "c", letter.Targets("a"), "ann", ""); err != nil || done[0].Err != nil {
		t.Fatal(done, err)
	}
	l := find(t, st, "a")
	_, err := st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx *memstore.Tx) error {
		_, err := st.Move(ctx, tx, "c", []store.Move{{Ref: "a", Version: l.Version, To: store.StateDead}}, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := (desk{Store: st}).Discard(t.Context(), "c", letter.Targets("a"), "ann", "no use"); err != nil || done[0].Err != nil {
		t.Fatal(done, err)
	}
	balanced(t, st)
}

// TestPropose: content is put beside a letter, takes effect when it is
// replayed, and leaves what was sent where it can be seen.
func TestPropose(t *testing.T) {
	st := memstore.New()
	contested, waiting := of("b", "b"), of("c", "c")
	contested.Conflict, waiting.State = true, store.StateRetry
	park(t, st, of("a", "a"), contested, waiting, of("d", "d"), of("e", "e"), of("f", ""))
	of := func(ref string, version int64, id, body string) letter.Proposal {
		return letter.Proposal{Target: letter.Target{Ref: ref, Version: version}, Message: semel.Message{ID: id, Key: "k", Body: []byte(body)}}
	}
	done, err := desk{Store: st}.Propose(t.Context(), "c", []letter.Proposal{
		of("a", 1, "a", "2"), of("b", 1, "b", "2"), of("c", 1, "c", "2"), of("d", 1, "other", "2"), of("e", 7, "e", "2"), of("f", 0, "f", "2"), of("g", 0, "g", ""),
	}, "ann", "typo")
	if err != nil {
		t.Fatal(err)
	}
	for i, says := range []string{"", "only be discarded", "cannot be edited", "another id", "changed meanwhile", "", "no such letter"} {
		if got := fmt.Sprint(done[i].Err); (done[i].Err == nil) != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: %s, want %q", done[i].Ref, got, says)
		}
	}
	l := find(t, st, "a")
	if l.State != store.StateEdited || string(l.Message.Body) != "1" || l.Version != done[0].Version || l.By != "ann" || l.Proposed != 1 {
		t.Errorf("%+v", l)
	}
	if l := find(t, st, "b"); l.State != store.StateDead || l.Proposed != 0 {
		t.Errorf("a letter that was refused: %+v", l)
	}
	// The edit is the letter's content now: a plain replay takes it, even if
	// the source has sent something else since.
	propose(t, st, "a", "resent", semel.Message{ID: "a", Key: "k", Body: []byte("3")})
	if done, err := (desk{Store: st}).Replay(t.Context(), "c", []letter.Target{{Ref: "a", Version: l.Version}, {Ref: "f"}}, "ann", ""); err != nil || done[0].Err != nil || done[1].Err != nil {
		t.Fatal(done, err)
	}
	if l := find(t, st, "a"); l.State != store.StateRetry || string(l.Message.Body) != "2" {
		t.Errorf("%+v", l)
	}
	if l := find(t, st, "f"); l.Message.ID != "f" {
		t.Errorf("%+v", l)
	}
	rs, err := st.Revisions(t.Context(), "c", "a")
	if err != nil || len(rs) != 3 || rs[0].N != 0 || string(rs[0].Message.Body) != "1" {
		t.Errorf("revisions %+v, %v", rs, err)
	}
	balanced(t, st)
}

// TestMoved: who decides about a letter as it was is told that it is not.
func TestMoved(t *testing.T) {
	st := memstore.New()
	park(t, st, of("a", "a"), of("b", "b"))
	done, err := desk{Store: st}.Discard(t.Context(), "c", []letter.Target{{Ref: "a", Version: 2}, {Ref: "b", Version: 1}}, "ann", "no use")
	if err != nil || !errors.Is(done[0].Err, letter.ErrMoved) || done[1].Err != nil {
		t.Errorf("%+v %v", done, err)
	}
	if l := find(t, st, "a"); l.State != store.StateDead {
		t.Errorf("%+v", l)
	}
	balanced(t, st)
}

// TestEditAndSourceAlike: a person's edit stays one when the source sends the
// same content, before it or after it; what a replay takes is what the person
// saw.
func TestEditAndSourceAlike(t *testing.T) {
	for name, steps := range map[string][]string{
		"the source first":            {"source 2", "ann 2"},
		"the source afterwards":       {"ann 2", "source 2"},
		"something else in between":   {"ann 2", "source 3", "source 2"},
		"an earlier edit":             {"ann 3", "source 2", "ann 2"},
		"an earlier edit of somebody": {"bob 2", "ann 3", "ann 2", "source 3"},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			park(t, st, of("a", "a"))
			for _, step := range steps {
				by, body, _ := strings.Cut(step, " ")
				m := semel.Message{ID: "a", Key: "k", Body: []byte(body)}
				if by == letter.BySource {
					propose(t, st, "a", "resent", m)
					continue
				}
				done, err := desk{Store: st}.Propose(t.Context(), "c", []letter.Proposal{{Target: letter.Target{Ref: "a"}, Message: m}}, by, "")
				if err != nil || done[0].Err != nil {
					t.Fatal(done, err)
				}
			}
			done, err := desk{Store: st}.Replay(t.Context(), "c", letter.Targets("a"), "ann", "")
			if err != nil || done[0].Err != nil {
				t.Fatal(done, err)
			}
			if l := find(t, st, "a"); string(l.Message.Body) != "2" {
				t.Errorf("it is tried with %s", l.Message.Body)
			}
		})
	}
}

// TestPeopleAreNotThePipeline: what only the pipeline says, it believes; a
// person's word must not be taken for it.
func TestPeopleAreNotThePipeline(t *testing.T) {
	st := memstore.New()
	park(t, st, of("a", "a"))
	edit := []letter.Proposal{{Target: letter.Target{Ref: "a"}, Message: semel.Message{ID: "a", Body: []byte("2")}}}
	for _, said := range [][2]string{{letter.BySource, ""}, {"ann", letter.Started}, {"ann", letter.StartedAlone}} {
		d := desk{Store: st}
		_, replayed := d.Replay(t.Context(), "c", letter.Targets("a"), said[0], said[1])
		_, proposed := d.Propose(t.Context(), "c", edit, said[0], said[1])
		_, discarded := d.Discard(t.Context(), "c", letter.Targets("a"), said[0], cmp.Or(said[1], "no use"))
		if replayed == nil || proposed == nil || discarded == nil {
			t.Errorf("%q: %v, %v, %v", said, replayed, proposed, discarded)
		}
	}
	if l := find(t, st, "a"); l.State != store.StateDead || l.Version != 1 {
		t.Errorf("%+v", l)
	}
}
