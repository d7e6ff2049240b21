package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// hourly parks after the first failure, for an hour.
func hourly() retry.Policy {
	return retry.Policy{Immediate: -1, Delays: []time.Duration{time.Hour, time.Hour}, Jitter: -1}
}

// TestRedeliveryOfALetter is the table of what a redelivery means to a message
// that has a letter, all cells, with and without inbox rows.
func TestRedeliveryOfALetter(t *testing.T) {
	states := []store.State{store.StateRetry, store.StateHeld, store.StateDead, store.StateEdited, store.StateApproved, store.StateApplied, store.StateSuperseded, store.StateDuplicate, store.StateDiscarded}
	for _, strategy := range []inbox.Strategy{inbox.Table, inbox.Position} {
		for _, state := range states {
			for _, body := range []string{"same", "other"} {
				t.Run(fmt.Sprintf("%s/%s/%s", strategy, state, body), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { redeliver(t, strategy, state, body) })
				})
			}
		}
	}
}

// redeliver brings message "a" into a state, and delivers it again.
func redeliver(t *testing.T, strategy inbox.Strategy, state store.State, body string) {
	b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
	cfg := impatient()
	cfg.Inbox, cfg.Retry, cfg.Order = strategy, hourly(), consumer.OrderKey
	p := plans(map[string][]error{})
	bring(t, state, b, st, cfg, p)
	before := letterOf(t, st, "a")
	if before.State != state {
		t.Fatalf("the letter is %s", before.State)
	}
	effects := st.Rows()["effect/a"]
	b.Publish(0, semel.Message{ID: "a", Key: "k", Body: []byte(body)})
	a := run(t, cfg, b, st, p.work())

	after := letterOf(t, st, "a")
	if after.State != state || after.Version != before.Version {
		t.Errorf("the letter was %s version %d, is %s version %d", before.State, before.Version, after.State, after.Version)
	}
	if got := st.Rows()["effect/a"]; got != effects {
		t.Errorf("%s effects, then %s", effects, got)
	}
	rs, err := st.Revisions(t.Context(), "test", after.Ref)
	if err != nil {
		t.Fatal(err)
	}
	contested := conflicts(t, st)
	switch {
	case body == "same":
		counted := state.Open() || state == store.StateDiscarded // a closed letter is not asked where a row tells
		if a.Of[semel.Duplicate] != 1 || counted && after.Seen != before.Seen+1 || len(rs)+len(contested) > 0 {
			t.Errorf("account %+v, seen %d, %d proposals, %d conflicts; want a duplicate that was seen", a, after.Seen, len(rs), len(contested))
		}
	case state.Open():
		if a.Of[semel.Conflict] != 1 || len(rs) != 1 || string(rs[0].Message.Body) != "other" || len(contested) > 0 || after.Proposed != 1 {
			t.Errorf("account %+v, %d proposals, %d conflicts; want a proposal", a, len(rs), len(contested))
		}
	default:
		if a.Of[semel.Conflict] != 1 || len(rs) > 0 || len(contested) != 1 || contested[0].State != store.StateDead || contested[0].Reason != "conflict" {
			t.Errorf("account %+v, %d proposals, conflicts %+v; want a letter of its own", a, len(rs), contested)
		}
	}
	if strategy == inbox.Table {
		balanced(t, st)
	}
}

// bring makes a letter of message "a" in the given state.
func bring(t *testing.T, state store.State, b *membroker.Broker, st *memstore.Store, cfg consumer.Config, p *plan) {
	t.Helper()
	m := semel.Message{ID: "a", Key: "k", Body: []byte("same")}
	switch state {
	case store.StateHeld:
		p.errs["head"] = always(errNotNow)
		b.Publish(0, semel.Message{ID: "head", Key: "k"}, m)
		run(t, cfg, b, st, p.work())
		return
	case store.StateRetry:
		p.errs["a"] = always(errNotNow)
	case store.StateDead, store.StateEdited, store.StateApproved, store.StateDiscarded:
		p.errs["a"] = always(errNever)
	case store.StateApplied:
		p.errs["a"] = []error{errNotNow}
	case store.StateSuperseded:
		p.errs["a"] = append([]error{errNotNow}, always(semel.ErrSuperseded)...)
	case store.StateDuplicate:
		p.errs["a"] = append([]error{errNotNow}, always(semel.ErrDuplicate)...)
	}
	b.Publish(0, m)
	run(t, cfg, b, st, p.work())
	switch state {
	case store.StateEdited, store.StateApproved:
		for _, to := range []store.State{store.StateEdited, state} {
			moveTo(t, st, letterOf(t, st, "a"), to)
		}
	case store.StateDiscarded:
		discard(t, st, letterOf(t, st, "a").Ref)
	case store.StateApplied, store.StateSuperseded, store.StateDuplicate:
		time.Sleep(time.Hour)
		run(t, cfg, b, st, p.work())
	}
}

func moveTo(t *testing.T, st *memstore.Store, l store.Letter, to store.State) {
	t.Helper()
	if l.State == to {
		return
	}
	_, err := st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, x tx) error {
		missed, err := st.Move(ctx, x, "test", []store.Move{{Ref: l.Ref, Version: l.Version, To: to, Number: l.Number, By: "ann"}}, nil)
		if len(missed) > 0 {
			return errors.New("missed")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestConflict: the id is known, the content is not. The letter is written
// once, however often it comes, and can only be discarded.
func TestConflict(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		first, other := semel.Message{ID: "a", Key: "k", Body: []byte("1")}, semel.Message{ID: "a", Key: "k", Body: []byte("2")}
		b.Publish(-1, first)
		run(t, config(), b, st, consumer.Each(count))
		b.Publish(-1, other, first, other)
		a := run(t, config(), b, st, consumer.Each(count))
		if a.Of[semel.Conflict] != 1 || a.Of[semel.Duplicate] != 2 {
			t.Errorf("account: %+v", a)
		}
		b.Publish(-1, other)
		if a = run(t, config(), b, st, consumer.Each(count)); a.Of[semel.Duplicate] != 1 {
			t.Errorf("account: %+v", a)
		}
		ls := letters(t, st)
		if len(ls) != 1 || !ls[0].Conflict || ls[0].Seen != 2 || string(ls[0].Message.Body) != "2" {
			t.Fatalf("letters: %+v", ls)
		}
		done, err := letter.Desk[tx]{Store: st}.Replay(t.Context(), "test", letter.Targets(ls[0].Ref), "ann", "")
		if err != nil || done[0].Err == nil || !strings.Contains(done[0].Err.Error(), "discarded") {
			t.Errorf("replay of a conflict: %+v %v", done, err)
		}
		d := semel.Delivery{Message: other, Returns: ls[0].Ref}
		b.PublishAs(-1, d) // nor through the source
		run(t, config(), b, st, consumer.Each(count))
		wantEffects(t, st, "a")
		discard(t, st, ls[0].Ref)
		b.Publish(-1, other)
		if a = run(t, config(), b, st, consumer.Each(count)); a.Of[semel.Duplicate] != 1 {
			t.Errorf("account: %+v", a)
		}
		wantEffects(t, st, "a")
		balanced(t, st)
	})
}

// TestConflictInOneBatch: the content that was recorded before is the one that
// counts, whatever comes first in the batch.
func TestConflictInOneBatch(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		m := func(body string) semel.Message { return semel.Message{ID: "a", Key: "k", Body: []byte(body)} }
		b.Publish(-1, m("1"))
		run(t, config(), b, st, consumer.Each(count))
		b.Publish(-1, m("2"), m("1"), m("2"), m("3"))
		a := run(t, config(), b, st, consumer.Each(count))
		if a.Of[semel.Conflict] != 2 || a.Of[semel.Duplicate] != 2 {
			t.Errorf("account: %+v, want two conflicts and two duplicates", a)
		}
		if ls := conflicts(t, st); len(ls) != 2 || string(ls[0].Message.Body) == "1" || string(ls[1].Message.Body) == "1" {
			t.Errorf("conflicts: %+v", ls)
		}
	})
}

// TestTrustID: where the source encodes anew each time, the id is all there is.
func TestTrustID(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.TrustID = true
		b.Publish(-1, semel.Message{ID: "a", Body: []byte("1")}, semel.Message{ID: "a", Body: []byte("2")})
		a := run(t, cfg, b, st, consumer.Each(count))
		if a.Of[semel.Duplicate] != 1 || len(letters(t, st)) > 0 {
			t.Errorf("account: %+v", a)
		}
	})
}

// TestFiltered: what the pipeline does not want is recorded, acked, and asked
// about once per delivery.
func TestFiltered(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.Decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
			if d.Key == "k3" {
				return semel.ErrFiltered
			}
			return nil
		})
		b.Publish(-1, messages(70)...)
		b.Publish(-1, messages(70)[:7]...)
		a := run(t, cfg, b, st, consumer.Each(count))
		if a.Of[semel.Filtered] != 10 || a.Of[semel.Duplicate] != 7 || a.Of[semel.Applied] != 60 {
			t.Errorf("account: %+v", a)
		}
		tr, err := st.Trace(t.Context(), "test", "m0003", "")
		if err != nil || tr.Record == nil || tr.Record.Verdict != semel.Filtered {
			t.Errorf("record: %+v %v", tr.Record, err)
		}
		balanced(t, st)
	})
}

// TestUndecodable: a message without id becomes one letter, though it is
// delivered again and again, and is rejected at the source each time.
func TestUndecodable(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.PublishAs(-1,
			semel.Delivery{Message: semel.Message{Body: []byte("no id")}},
			semel.Delivery{Message: semel.Message{ID: "x", Body: []byte("{")}, Malformed: errors.New("truncated")},
			semel.Delivery{Message: semel.Message{ID: strings.Repeat("i", 256), Body: []byte("long")}},
			semel.Delivery{Message: semel.Message{ID: "y", Key: strings.Repeat("k", 256), Body: []byte("long key")}})
		b.DropAcks(4, broker.Done) // a queue delivers all again
		a := run(t, config(), b, st, consumer.Each(count))
		if a.Of[semel.Dead] != 4 || a.Of[semel.Applied] != 0 {
			t.Errorf("account: %+v", a)
		}
		ls := letters(t, st)
		if len(ls) != 4 {
			t.Fatalf("%d letters", len(ls))
		}
		for _, l := range ls {
			if l.State != store.StateDead || l.Class != store.Format || l.Origin == "" || len(l.Message.ID) > 255 {
				t.Errorf("letter: %+v", l)
			}
		}
		rejected := 0
		for _, e := range b.Events() {
			if e.Verb == broker.Reject && e.Letter != "" && e.Why != "" {
				rejected++
			}
		}
		if rejected < 4 {
			t.Errorf("%d rejected: %+v", rejected, b.Events())
		}
		wantEffects(t, st)
		balanced(t, st)
	})
}

// TestLetterIsFaithful: a letter has everything that was delivered, and why it
// died.
func TestLetterIsFaithful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 1, Scribble: true}), memstore.New()
		m := semel.Message{
			ID: "a", Key: "k", Type: "created", Source: "shop", Time: time.Unix(1e9, 5), Version: semel.Version{N: 7, Tie: "x", Set: true},
			Header: semel.Header{{Name: "h", Value: []byte("1")}, {Name: "h", Value: []byte{0, 0xFF}}}, Body: []byte("body\x00\xFF"),
		}
		cause := errors.New("unknown code 9")
		p := plans(map[string][]error{"a": always(fmt.Errorf("order: %w", semel.Permanent(fmt.Errorf("lookup: %w", cause))))})
		b.Publish(0, m)
		run(t, config(), b, st, p.work())
		l := letterOf(t, st, "a")
		if got := l.Message; got.Key != m.Key || got.Type != m.Type || got.Source != m.Source || !got.Time.Equal(m.Time) || got.Version != m.Version ||
			string(got.Body) != string(m.Body) || len(got.Header) != 2 || string(got.Header[1].Value) != "\x00\xFF" {
			t.Errorf("message: %+v", got)
		}
		if l.Class != store.Business || l.Reason != "permanent" || l.Attempts != 1 || l.Origin != "memory/0@1:0" {
			t.Errorf("letter: %+v", l)
		}
		for _, line := range []string{"handle: a: order: lookup: unknown code 9", "unknown code 9"} {
			if !slices.Contains(strings.Split(l.Error, "\n"), line) {
				t.Errorf("chain %q has no line %q", l.Error, line)
			}
		}
	})
}

// TestReplay: a replay runs by the one path for letters, under the same id, and
// its redelivery is a duplicate.
func TestReplay(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{"m0003": {errNever, errNever}})
		b.Publish(-1, messages(10)...)
		run(t, config(), b, st, p.work())
		for range 2 {
			replay(t, st, letterOf(t, st, "m0003").Ref)
			run(t, config(), b, st, p.work())
		}
		if l := letterOf(t, st, "m0003"); l.State != store.StateApplied || l.By == "" {
			t.Errorf("letter: %+v", l)
		}
		b.Redeliver("m0003")
		if a := run(t, config(), b, st, p.work()); a.Of[semel.Duplicate] != 1 {
			t.Errorf("account: %+v", a)
		}
		wantEffects(t, st, ids(messages(10))...)
		balanced(t, st)
	})
}

// TestReplayReadsAgain: a letter that could not be read is decoded when it is
// replayed; it never reaches the handler unread, and gets its id when it has one.
func TestReplayReadsAgain(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		mended := false
		cfg := config()
		cfg.Decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
			if !mended && d.ID != "ok" {
				return semel.Invalidf("a field is missing")
			}
			if d.ID == "" {
				d.ID, d.Key = "found", "k"
			}
			return nil
		})
		bodies := map[string]string{}
		work := consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			bodies[m.ID] = string(m.Body)
			return count(ctx, t, m)
		})
		b.Publish(-1, semel.Message{ID: "ok"}, semel.Message{ID: "known", Body: []byte("1")}, semel.Message{Body: []byte("2")})
		run(t, cfg, b, st, work)
		for _, fixed := range []bool{false, true} {
			for _, l := range letters(t, st) {
				replay(t, st, l.Ref)
			}
			mended = fixed
			run(t, cfg, b, st, work)
			for _, l := range letters(t, st) {
				if want := map[bool]store.State{false: store.StateDead, true: store.StateApplied}[fixed]; l.State != want {
					t.Errorf("letter %s %q is %s, want %s", l.Message.ID, l.Error, l.State, want)
				}
			}
		}
		wantEffects(t, st, "ok", "known", "found")
		if bodies["found"] != "2" || letterOf(t, st, "found").Message.Key != "k" {
			t.Errorf("bodies: %v", bodies)
		}
		b.Publish(-1, semel.Message{Body: []byte("2")})
		if a := run(t, cfg, b, st, work); a.Of[semel.Duplicate] != 1 {
			t.Errorf("account: %+v", a)
		}
		wantEffects(t, st, "ok", "known", "found")
		balanced(t, st)
	})
}

// TestReplayMeetsItsTwin: a letter that gets an id when it is read again is not
// applied if that id was.
func TestReplayMeetsItsTwin(t *testing.T) {
	for body, want := range map[string]store.State{"2": store.StateDuplicate, "3": store.StateDead} {
		t.Run(string(want), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st, mended := memstore.New(), false
				cfg := config()
				cfg.Decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
					if d.ID == "" && !mended {
						return semel.Invalidf("no id")
					}
					d.ID = "twin"
					return nil
				})
				b.Publish(-1, semel.Message{Body: []byte(body)}, semel.Message{ID: "twin", Body: []byte("2")})
				run(t, cfg, b, st, consumer.Each(count))
				mended = true
				replay(t, st, letters(t, st)[0].Ref)
				run(t, cfg, b, st, consumer.Each(count))
				if ls := letters(t, st); len(ls) != 1 || ls[0].State != want {
					t.Errorf("letters: %+v", ls)
				}
				wantEffects(t, st, "twin")
				balanced(t, st)
			})
		})
	}
}

// TestMalformedIsNotReplayed: what the source could not make sense of may be a
// part of it only.
func TestMalformedIsNotReplayed(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.PublishAs(-1, semel.Delivery{Message: semel.Message{ID: "x", Body: []byte("half")}, Malformed: errors.New("the file has 1 TB")})
		run(t, config(), b, st, consumer.Each(count))
		replay(t, st, letterOf(t, st, "x").Ref)
		run(t, config(), b, st, consumer.Each(count))
		if l := letterOf(t, st, "x"); l.State != store.StateDead || l.Reason != letter.Malformed || !strings.Contains(l.Error, "repaired") {
			t.Errorf("letter: %+v", l)
		}
		wantEffects(t, st)
	})
}

// TestDiscard: a discarded message is gone for good, and everybody can see who
// did it.
func TestDiscard(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{"m0003": {errNever}})
		b.Publish(-1, messages(10)...)
		run(t, config(), b, st, p.work())
		discard(t, st, letterOf(t, st, "m0003").Ref)
		b.Redeliver("m0003")
		if a := run(t, config(), b, st, p.work()); a.Of[semel.Duplicate] != 1 {
			t.Errorf("account: %+v", a)
		}
		l := letterOf(t, st, "m0003")
		if l.State != store.StateDiscarded || l.By != "ann" || l.Note != "no use" {
			t.Errorf("letter: %+v", l)
		}
		if tr, err := st.Trace(t.Context(), "test", "m0003", ""); err != nil || tr.Record.Verdict != semel.Discarded {
			t.Errorf("record: %+v %v", tr.Record, err)
		}
		balanced(t, st)
	})
}

// TestReturned: what a person gives back through the source is replayed as it
// is; other content is proposed, or replayed where the pipeline says so.
func TestReturned(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		revised bool
		want    store.State
		effect  bool
	}{
		"again":   {"1", false, store.StateApplied, true},
		"propose": {"2", false, store.StateDead, false},
		"revise":  {"2", true, store.StateApplied, true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st, seen := memstore.New(), ""
				cfg := config()
				cfg.ReplayRevised = c.revised
				p := plans(map[string][]error{"a": {errNever}})
				work := consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
					seen = string(m.Body)
					return p.handle(ctx, t, m)
				})
				m := semel.Message{ID: "a", Key: "k", Body: []byte("1"), Time: time.Unix(86400, 0)}
				b.Publish(-1, m)
				run(t, cfg, b, st, work)
				l := letterOf(t, st, "a")
				m.Body, m.Time = []byte(c.body), time.Unix(10*86400, 0)
				b.PublishAs(-1, semel.Delivery{Message: m, Returns: l.Ref}, semel.Delivery{Message: m, Returns: l.Ref})
				run(t, cfg, b, st, work)
				if l = letterOf(t, st, "a"); l.State != c.want {
					t.Errorf("letter: %+v", l)
				}
				if c.effect {
					wantEffects(t, st, "a")
					if seen != c.body {
						t.Errorf("the handler got %q", seen)
					}
				}
				if name == "revise" { // both contents are its own now
					for _, body := range []string{"1", "2"} {
						m.Body = []byte(body)
						b.Publish(-1, m)
						if a := run(t, cfg, b, st, work); a.Of[semel.Duplicate] != 1 || len(conflicts(t, st)) > 0 {
							t.Errorf("account: %+v", a)
						}
					}
				}
				rs, err := st.Revisions(t.Context(), "test", l.Ref)
				want := map[string]string{"again": "", "propose": "1: 2", "revise": "0: 1"}[name]
				if got := contents(rs); err != nil || got != want {
					t.Errorf("revisions: %q, want %q, %v", got, want, err)
				}
				balanced(t, st)
			})
		})
	}
}

// contents are the numbers and bodies of revisions.
func contents(rs []store.Revision) string {
	var all []string
	for _, r := range rs {
		all = append(all, fmt.Sprintf("%d: %s", r.N, r.Message.Body))
	}
	return strings.Join(all, ", ")
}

// TestReturnedRepaired: an undecodable message that comes back repaired gets
// the id of its new form, once.
func TestReturnedRepaired(t *testing.T) {
	for _, replays := range []bool{true, false} {
		t.Run(fmt.Sprintf("replays %v", replays), func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st := memstore.New()
				cfg := config()
				cfg.ReplayRevised = replays
				b.Publish(-1, semel.Message{Body: []byte("broken")})
				run(t, cfg, b, st, consumer.Each(count))
				ref := letters(t, st)[0].Ref
				b.PublishAs(-1, semel.Delivery{Message: semel.Message{Body: []byte("still broken")}, Returns: ref})
				run(t, cfg, b, st, consumer.Each(count))
				if l := letters(t, st)[0]; l.State != store.StateDead || l.Proposed != 1 {
					t.Errorf("letter: %+v", l)
				}
				repaired := semel.Message{ID: "a", Key: "k", Body: []byte("repaired"), Time: time.Unix(86400, 0)}
				b.PublishAs(-1, semel.Delivery{Message: repaired, Returns: ref})
				run(t, cfg, b, st, consumer.Each(count))
				if !replays {
					wantEffects(t, st)
					return
				}
				wantEffects(t, st, "a")
				b.Publish(-1, repaired)
				if a := run(t, cfg, b, st, consumer.Each(count)); a.Of[semel.Duplicate] != 1 {
					t.Errorf("account: %+v", a)
				}
				wantEffects(t, st, "a")
				if ls := letters(t, st); len(ls) != 1 || ls[0].State != store.StateApplied || ls[0].Message.ID != "a" {
					t.Errorf("letters: %+v", ls)
				}
				balanced(t, st)
			})
		})
	}
}

// TestReasonIsForgotten: what a message met in a transaction that was rolled
// back does not stick to it.
func TestReasonIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{Partitions: 2}), memstore.New()
		b.Publish(0, semel.Message{ID: "a", Key: "good"})
		b.Publish(1, semel.Message{ID: "a", Key: "bad", Body: []byte("x")})
		r := b.Receiver()
		met := false
		st.Script(func(s memstore.Step) error { // the first loses its scope while both are in a transaction
			if s.Op != memstore.OpPark || met {
				return nil
			}
			met = true
			b.Lose(r, 0)
			return memstore.Errorf(semel.ClassContention, "deadlock")
		})
		cfg := noDrain()
		cfg.Decoder = broker.DecoderFunc(func(d *semel.Delivery) error {
			if d.Key == "bad" {
				return semel.Invalidf("a field is missing")
			}
			return nil
		})
		c := start(t, cfg, r, st, consumer.Each(count))
		time.Sleep(time.Minute)
		if err := c.stop(t); err != nil || !met {
			t.Error(met, err)
		}
		if l := letterOf(t, st, "a"); l.Reason != letter.Invalid || l.Conflict || strings.Contains(l.Error, "other content") {
			t.Errorf("letter: %+v", l)
		}
	})
}

// TestReturnedTwice: two repairs in one batch; neither is forgotten.
func TestReturnedTwice(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		cfg := config()
		cfg.ReplayRevised = true
		p := plans(map[string][]error{"a": {errNever}})
		b.Publish(-1, semel.Message{ID: "a", Key: "k", Body: []byte("1")})
		run(t, cfg, b, st, p.work())
		ref := letterOf(t, st, "a").Ref
		for _, body := range []string{"2", "3"} {
			b.PublishAs(-1, semel.Delivery{Message: semel.Message{ID: "a", Key: "k", Body: []byte(body)}, Returns: ref})
		}
		a := run(t, cfg, b, st, p.work())
		if a.Of[semel.Conflict] != 1 || a.Of[semel.Applied] != 1 {
			t.Errorf("account: %+v", a)
		}
		l := letterOf(t, st, "a")
		rs, err := st.Revisions(t.Context(), "test", ref)
		if err != nil || string(l.Message.Body) != "2" || len(rs) != 2 || string(rs[1].Message.Body) != "3" || rs[0].N != 0 {
			t.Errorf("letter %+v, revisions %+v, %v", l, rs, err)
		}
		wantEffects(t, st, "a")
	})
}

// TestReturnedAfterAnEdit: a message that is given back as it was says nothing
// about the edit that its letter has meanwhile: nothing is tried until somebody
// replays that.
func TestReturnedAfterAnEdit(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		p := plans(map[string][]error{"a": {errNever}})
		m := semel.Message{ID: "a", Key: "k", Body: []byte("1")}
		b.Publish(-1, m)
		run(t, config(), b, st, p.work())
		ref := letterOf(t, st, "a").Ref
		edit := letter.Proposal{Target: letter.Target{Ref: ref}, Message: semel.Message{ID: "a", Key: "k", Body: []byte("2")}}
		desk := letter.Desk[tx]{Store: st}
		if done, err := desk.Propose(t.Context(), "test", []letter.Proposal{edit}, "ann", ""); err != nil || done[0].Err != nil {
			t.Fatal(done, err)
		}
		b.PublishAs(-1, semel.Delivery{Message: m, Returns: ref})
		run(t, config(), b, st, p.work())
		if l := letterOf(t, st, "a"); l.State != store.StateEdited || l.Seen != 1 {
			t.Fatalf("after it was given back: %+v", l)
		}
		if done, err := desk.Replay(t.Context(), "test", letter.Targets(ref), "ann", ""); err != nil || done[0].Err != nil {
			t.Fatal(done, err)
		}
		run(t, config(), b, st, p.work())
		if l := letterOf(t, st, "a"); l.State != store.StateApplied || string(l.Message.Body) != "2" {
			t.Errorf("after the replay: %+v", l)
		}
		wantEffects(t, st, "a")
	})
}

// TestLettersAfterADeath: letters that were about to run together when the
// process died run alone, and only one that was alone is charged, for good.
func TestLettersAfterADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := membroker.New(membroker.Config{}), memstore.New()
		p := plans(map[string][]error{})
		for _, m := range messages(5) {
			p.errs[m.ID] = []error{errNotNow}
		}
		b.Publish(-1, messages(5)...)
		cfg := impatient()
		cfg.Retry = retry.Policy{Immediate: -1, Delays: []time.Duration{time.Minute, time.Minute}, Jitter: -1}
		run(t, cfg, b, st, p.work())
		notes := []string{"started", "started alone", "started alone"}
		for i, l := range letters(t, st) {
			if i < len(notes) { // as if a process had died then
				_, err := st.InTx(t.Context(), store.Mark{}, func(ctx context.Context, x tx) error {
					_, err := st.Move(ctx, x, "test", []store.Move{{Ref: l.Ref, Version: l.Version, To: store.StateRetry, Delay: time.Minute, By: "dead", Note: notes[i]}}, nil)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		run(t, config(), b, st, p.work())
		wantEffects(t, st, ids(messages(5))...)
		charged := 0
		for _, l := range letters(t, st) {
			if l.Attempts == 2 && strings.Contains(l.Error, "died") {
				charged++
			} else if l.Attempts != 1 {
				t.Errorf("letter: %+v", l)
			}
		}
		if charged != 2 {
			t.Errorf("%d charged", charged)
		}
	})
}
