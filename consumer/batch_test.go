package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// apply is the set-based form of count.
func apply(ctx context.Context, t tx, ms []semel.Message) error {
	for _, m := range ms {
		if err := count(ctx, t, m); err != nil {
			return err
		}
	}
	return nil
}

func once() retry.Policy { return retry.Policy{Immediate: -1, Delays: []time.Duration{}} }

// TestBatchNamesMessages: errors and verdicts of a set-based handler concern
// the messages they name, however they are joined and wrapped.
func TestBatchNamesMessages(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(100)...)
		cfg := config()
		cfg.Retry = once()
		a := run(t, cfg, b, st, consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
			var errs []error
			for i, m := range ms {
				switch m.ID {
				case "m0010":
					errs = append(errs, fmt.Errorf("insert: %w", semel.At(i, errNever)))
				case "m0020":
					errs = append(errs, errors.Join(errors.Join(semel.At(i, semel.ErrDuplicate))))
				case "m0030":
					errs = append(errs, semel.At(i, fmt.Errorf("state: %w", semel.ErrSuperseded)))
				case "m0040":
					errs = append(errs, semel.At(i, errNotNow))
				default:
					if err := count(ctx, t, m); err != nil {
						return err
					}
				}
			}
			return errors.Join(errs...)
		}))
		if a.Of[semel.Dead] != 2 || a.Of[semel.Duplicate] != 1 || a.Of[semel.Superseded] != 1 || a.Of[semel.Applied] != 96 {
			t.Errorf("account: %+v", a)
		}
		for id, reason := range map[string]string{"m0010": "permanent", "m0040": "exhausted"} {
			if l := letterOf(t, st, id); l.Reason != reason {
				t.Errorf("letter of %s: %+v", id, l)
			}
		}
		balanced(t, st)
	})
}

// TestBatchErrorWithoutName: an error that names no message is bisected, also
// beside errors and verdicts that do name one.
func TestBatchErrorWithoutName(t *testing.T) {
	for name, bad := range map[string]func(verdicts []error) error{
		"alone":           func([]error) error { return errors.New("constraint violated") },
		"beside verdicts": func(vs []error) error { return errors.Join(append(vs, errors.New("constraint violated"))...) },
		"wrapped": func(vs []error) error {
			return fmt.Errorf("batch: %w", errors.Join(append(vs, errors.New("constraint violated"))...))
		},
		"panic":        func([]error) error { panic("constraint violated") },
		"out of range": func([]error) error { return semel.At(1000, semel.ErrDuplicate) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st, calls := memstore.New(), 0
				b.Publish(-1, messages(64)...)
				cfg := config()
				cfg.Retry = once()
				a := run(t, cfg, b, st, consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
					calls++
					var verdicts []error
					for i, m := range ms {
						if m.ID == "m0005" {
							verdicts = append(verdicts, semel.At(i, semel.ErrDuplicate))
						} else if err := count(ctx, t, m); err != nil {
							return err
						}
					}
					if slices.ContainsFunc(ms, func(m semel.Message) bool { return m.ID == "m0042" }) {
						return bad(verdicts)
					}
					return errors.Join(verdicts...)
				}))
				if a.Of[semel.Dead] != 1 || a.Of[semel.Duplicate] != 1 || a.Of[semel.Applied] != 62 {
					t.Errorf("account: %+v", a)
				}
				if name != "out of range" {
					if l := letterOf(t, st, "m0042"); l.State != store.StateDead || !strings.Contains(l.Error, "constraint violated") {
						t.Errorf("letter: %+v", l)
					}
				}
				if calls > 30 {
					t.Errorf("%d calls to find one in 64", calls)
				}
				balanced(t, st)
			})
		})
	}
}

// queueing makes a handler that queues its statement; what each does comes
// from fail.
func queueing(fail func(id string) error) func(context.Context, tx, semel.Message) error {
	return func(ctx context.Context, t tx, m semel.Message) error {
		t.Queue(func(t tx) error {
			if err := count(ctx, t, m); err != nil {
				return err
			}
			return fail(m.ID)
		})
		return nil
	}
}

// TestDeferred: errors of queued statements arrive late, and concern the message
// whose handler queued them; so do verdicts.
func TestDeferred(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.NewDeferred()
		b.Publish(-1, messages(60)...)
		cfg := config()
		cfg.Retry = once()
		late := map[string]error{"m0010": errNever, "m0020": semel.ErrDuplicate, "m0030": semel.ErrSuperseded, "m0040": errNotNow}
		var asked []string
		a := run(t, cfg, b, store.Backend[tx](st), consumer.Each(func(ctx context.Context, t tx, m semel.Message) error {
			if err := queueing(func(id string) error { return late[id] })(ctx, t, m); err != nil {
				return err
			}
			if m.ID == "m0012" || m.ID == "m0045" { // flushes what earlier ones queued, and meets their errors
				asked = append(asked, m.ID)
				_, _, err := t.Lookup("effect/" + m.ID)
				return err
			}
			return nil
		}))
		if a.Of[semel.Dead] != 2 || a.Of[semel.Duplicate] != 1 || a.Of[semel.Superseded] != 1 || a.Of[semel.Applied] != 56 {
			t.Errorf("account: %+v", a)
		}
		if ls := letters(t, st); len(ls) != 2 || letterOf(t, st, "m0010").Reason != "permanent" || letterOf(t, st, "m0040").Reason != "exhausted" {
			t.Errorf("letters: %+v", ls)
		}
		if len(asked) == 0 {
			t.Error("nothing was asked for in between")
		}
		balanced(t, st)
	})
}

// TestDeferredPanics: a callback that panics does not take the process down.
func TestDeferredPanics(t *testing.T) {
	for name, work := range map[string]func(fail func(string) error) consumer.Work[tx]{
		"each": func(fail func(string) error) consumer.Work[tx] { return consumer.Each(queueing(fail)) },
		"batch": func(fail func(string) error) consumer.Work[tx] {
			return consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
				for _, m := range ms {
					if err := queueing(fail)(ctx, t, m); err != nil {
						return err
					}
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *membroker.Broker) {
				st := memstore.NewDeferred()
				b.Publish(-1, messages(32)...)
				cfg := config()
				cfg.Retry = once()
				a := run(t, cfg, b, store.Backend[tx](st), work(func(id string) error {
					if id == "m0017" {
						panic("oops")
					}
					return nil
				}))
				if a.Of[semel.Dead] != 1 || a.Of[semel.Applied] != 31 {
					t.Errorf("account: %+v", a)
				}
				if l := letterOf(t, st, "m0017"); !strings.Contains(l.Error, "oops") || !strings.Contains(l.Stack, "batch_test") {
					t.Errorf("letter: %+v", l)
				}
			})
		})
	}
}

// TestDeferredBatchVerdicts: a set-based handler that has verdicts is flushed
// like one that has none.
func TestDeferredBatchVerdicts(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.NewDeferred()
		b.Publish(-1, messages(20)...)
		a := run(t, config(), b, store.Backend[tx](st), consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
			var errs []error
			for i, m := range ms {
				if m.ID == "m0003" {
					errs = append(errs, semel.At(i, semel.ErrSuperseded))
					continue
				}
				t.Queue(func(t tx) error { return count(ctx, t, m) })
			}
			return errors.Join(errs...)
		}))
		if a.Of[semel.Superseded] != 1 || a.Of[semel.Applied] != 19 {
			t.Errorf("account: %+v", a)
		}
		if n := countPrefix(st.Rows(), "effect/"); n != 19 {
			t.Errorf("%d effects", n)
		}
	})
}

// TestBatchSeesOnlyWhatIsNew: set-based handlers get neither repeats nor what
// is parked, held, filtered or superseded.
func TestBatchSeesOnlyWhatIsNew(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		st := memstore.New()
		b.Publish(-1, messages(30)...)
		b.Publish(-1, messages(30)...)
		seen := map[string]int{}
		a := run(t, config(), b, st, consumer.Batch(func(ctx context.Context, t tx, ms []semel.Message) error {
			if len(ms) == 0 {
				return errors.New("called for nothing")
			}
			for _, m := range ms {
				seen[m.ID]++
			}
			return apply(ctx, t, ms)
		}))
		if a.Of[semel.Duplicate] != 30 || len(seen) != 30 {
			t.Errorf("account: %+v, %d seen", a, len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was seen %d times", id, n)
			}
		}
	})
}
