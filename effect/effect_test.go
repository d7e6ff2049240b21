package effect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// remote is the world outside: it applies what it is told, once a key if it
// honours keys.
type remote struct {
	honours bool
	mu      sync.Mutex
	applied map[string]int
	calls   []effect.Call
}

func newRemote(honours bool) *remote { return &remote{honours: honours, applied: map[string]int{}} }

func (r *remote) do(_ context.Context, c effect.Call) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	if r.applied[c.Key] == 0 || !r.honours {
		r.applied[c.Key]++
	}
	return fmt.Appendf(nil, "receipt of %s", c.Key), nil
}

// query is the remote's answer to the question whether something happened.
func (r *remote) query(_ context.Context, c effect.Call) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied[c.Key] > 0 {
		return []byte("found"), nil
	}
	return nil, effect.NotDone(errors.New("not found"))
}

func (r *remote) count(t *testing.T, key string, want int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied[key] != want {
		t.Errorf("%q happened %d times, want %d", key, r.applied[key], want)
	}
}

var request = effect.Print([]byte("POST"), []byte("body"))

func guard(t *testing.T, s store.Effects, c effect.Config) *effect.Guard {
	t.Helper()
	c.Name = "orders"
	g, err := effect.New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// bubble runs fn on a store in memory and in a time of its own.
func bubble(t *testing.T, fn func(*testing.T, *memstore.Store)) {
	synctest.Test(t, func(t *testing.T) { fn(t, memstore.New()) })
}

func row(t *testing.T, s *memstore.Store, key string) store.Effect {
	t.Helper()
	rows, err := s.Effects(t.Context(), "orders", store.EffectQuery{Key: key})
	if err != nil || len(rows) != 1 {
		t.Fatalf("row of %q: %+v, %v", key, rows, err)
	}
	return rows[0]
}

func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r, g := newRemote(false), guard(t, s, effect.Config{MaxResult: 7})
		for i := range 3 {
			res, err := g.Do(t.Context(), "a", request, r.do)
			if err != nil || string(res.Body) != "receipt" || res.Size != 12 || !res.Cut() || res.Stored != (i > 0) {
				t.Errorf("time %d: %+v %q, %v", i, res, res.Body, err)
			}
		}
		r.count(t, "a", 1)
		if c := r.calls[0]; c != (effect.Call{Key: "a", Token: 1, Attempt: 1}) {
			t.Errorf("the call: %+v", c)
		}
	})
}

// TestNotDone: what is known not to have happened is tried again, with a higher
// token, and keeps its marks.
func TestNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		g := guard(t, s, effect.Config{})
		refused := errors.New("connection refused")
		var calls []effect.Call
		fail := func(_ context.Context, c effect.Call) ([]byte, error) {
			calls = append(calls, c)
			return nil, effect.NotDone(semel.Permanent(refused))
		}
		for range 2 {
			_, err := g.Do(t.Context(), "a", request, fail)
			if class, marked := semel.ClassOf(err); !errors.Is(err, refused) || !marked || class != semel.ClassPermanent || errors.Is(err, effect.ErrInDoubt) {
				t.Errorf("%v", err)
			}
		}
		if calls[0].Attempt != 1 || calls[1].Attempt != 2 || calls[1].Token <= calls[0].Token {
			t.Errorf("calls %+v", calls)
		}
		r := newRemote(false)
		if _, err := g.Do(t.Context(), "a", effect.Print([]byte("edited")), r.do); err != nil {
			t.Errorf("another request, after the first is known not to have happened: %v", err)
		}
		r.count(t, "a", 1)
	})
}

// TestDoubt: a call ended without saying what became of it, and it had
// happened.
func TestDoubt(t *testing.T) {
	for name, policy := range map[string]effect.Policy{"park": effect.Park, "retry": effect.Retry, "ask": effect.Ask} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				r := newRemote(policy == effect.Retry)
				c := effect.Config{InDoubt: policy}
				if policy == effect.Ask {
					c.Query = r.query
				}
				g := guard(t, s, c)
				reset := errors.New("connection reset")
				_, err := g.Do(t.Context(), "a", request, func(ctx context.Context, c effect.Call) ([]byte, error) {
					_, _ = r.do(ctx, c)
					return nil, reset
				})
				if err == nil || errors.Is(err, effect.ErrInDoubt) != (policy == effect.Park) {
					t.Errorf("%v", err)
				}
				if class, _ := semel.ClassOf(err); (class == semel.ClassPermanent) != (policy == effect.Park) {
					t.Errorf("class %v: %v", class, err)
				}
				began := time.Now()
				res, err := g.Do(t.Context(), "a", request, r.do)
				if policy == effect.Park {
					var d *effect.DoubtError
					if !errors.As(err, &d) || d.LetterReason() != "in doubt" || !strings.Contains(d.Error(), reset.Error()) {
						t.Errorf("%v", err)
					}
				} else if err != nil || len(res.Body) == 0 {
					t.Errorf("%q, %v", res.Body, err)
				}
				if time.Since(began) > 0 {
					t.Error("it waited for a lease that nobody has")
				}
				r.count(t, "a", 1)
			})
		})
	}
}

// TestAsk: the answers to the question decide, and no answer decides nothing.
func TestAsk(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r := newRemote(false)
		var answer error
		g := guard(t, s, effect.Config{InDoubt: effect.Ask, Query: func(context.Context, effect.Call) ([]byte, error) { return []byte("found"), answer }})
		lost := func(context.Context, effect.Call) ([]byte, error) { return nil, errors.New("no answer") }
		if _, err := g.Do(t.Context(), "a", request, lost); err == nil {
			t.Error("no error")
		}
		answer = errors.New("the question has no answer either")
		for range 2 {
			if _, err := g.Do(t.Context(), "a", request, r.do); !errors.Is(err, answer) {
				t.Errorf("%v", err)
			}
		}
		r.count(t, "a", 0)
		answer = effect.NotDone(errors.New("not found"))
		if _, err := g.Do(t.Context(), "a", request, r.do); err != nil {
			t.Error(err)
		}
		r.count(t, "a", 1)
		answer = nil
		if _, err := g.Do(t.Context(), "b", request, lost); err == nil {
			t.Error("no error")
		}
		if res, err := g.Do(t.Context(), "b", request, r.do); err != nil || string(res.Body) != "found" {
			t.Errorf("%q, %v", res.Body, err)
		}
		r.count(t, "b", 0)
	})
}

// die runs Do in a process that dies at the n-th point p.
func die(p fault.Point, do func() error) (died bool) {
	restore := fault.Arm(func(at fault.Point) {
		if at == p {
			panic(fault.Crash{Point: at})
		}
	})
	defer restore()
	defer func() { died = recover() != nil }()
	_ = do()
	return false
}

// TestCrash dies at each point, and has another process go on.
func TestCrash(t *testing.T) {
	type outcome struct {
		applied int // by a receiver that ignores keys
		doubt   bool
	}
	for p, want := range map[fault.Point]map[effect.Policy]outcome{
		fault.Intended:    {effect.Park: {0, true}, effect.Retry: {1, false}, effect.Ask: {1, false}},
		fault.Called:      {effect.Park: {1, true}, effect.Retry: {2, false}, effect.Ask: {1, false}},
		fault.ResultKnown: {effect.Park: {1, false}, effect.Retry: {1, false}, effect.Ask: {1, false}},
	} {
		for policy, want := range want {
			t.Run(fmt.Sprint(p, policy), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memstore.Store) {
					r := newRemote(false)
					c := effect.Config{InDoubt: policy}
					if policy == effect.Ask {
						c.Query = r.query
					}
					if !die(p, func() error { _, err := guard(t, s, c).Do(t.Context(), "a", request, r.do); return err }) {
						t.Fatal("it did not die")
					}
					began := time.Now()
					_, err := guard(t, s.Connect(), c).Do(t.Context(), "a", request, r.do)
					if errors.Is(err, effect.ErrInDoubt) != want.doubt || !want.doubt && err != nil {
						t.Errorf("%v", err)
					}
					if waited := time.Since(began) >= 30*time.Second; waited != (p != fault.ResultKnown) {
						t.Errorf("it went on after %v", time.Since(began))
					}
					r.count(t, "a", want.applied)
				})
			})
		}
	}
}

// TestZombie: the first worker is stopped in its call until the second has
// taken over. Its late result changes nothing, and it learns what counts.
func TestZombie(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		wake, done := make(chan struct{}), make(chan error)
		var late effect.Result
		go func() {
			var err error
			late, err = guard(t, s, effect.Config{InDoubt: effect.Retry}).Do(t.Context(), "a", request, func(context.Context, effect.Call) ([]byte, error) {
				<-wake
				return []byte("zombie"), nil
			})
			done <- err
		}()
		synctest.Wait()
		var c effect.Call
		res, err := guard(t, s.Connect(), effect.Config{InDoubt: effect.Retry}).Do(t.Context(), "a", request, func(_ context.Context, got effect.Call) ([]byte, error) {
			c = got
			return []byte("heir"), nil
		})
		if err != nil || string(res.Body) != "heir" || c.Token <= 1 || c.Attempt != 2 {
			t.Errorf("the heir: %q, %v, call %+v", res.Body, err, c)
		}
		close(wake)
		if err := <-done; err != nil || string(late.Body) != "heir" || !late.Stored {
			t.Errorf("the zombie: %q, %v", late.Body, err)
		}
		if e := row(t, s, "a"); string(e.Result) != "heir" {
			t.Errorf("stored: %q", e.Result)
		}
	})
}

// TestBusy: the second worker waits for the first and gets its result; one that
// may not wait is told how long.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r := newRemote(false)
		first := make(chan error)
		go func() {
			_, err := guard(t, s, effect.Config{}).Do(t.Context(), "a", request, func(ctx context.Context, c effect.Call) ([]byte, error) {
				time.Sleep(5 * time.Second)
				return r.do(ctx, c)
			})
			first <- err
		}()
		synctest.Wait()
		_, err := guard(t, s, effect.Config{Wait: -1}).Do(t.Context(), "a", request, r.do)
		var busy *effect.BusyError
		if d, ok := semel.DelayOf(err); !errors.As(err, &busy) || busy.Left != 30*time.Second || !ok || d != busy.Left {
			t.Errorf("%v", err)
		}
		if _, err := guard(t, s, effect.Config{}).Do(t.Context(), "a", effect.Print([]byte("other")), r.do); !errors.Is(err, effect.ErrMismatch) {
			t.Errorf("another request under the same key: %v", err)
		}
		res, err := guard(t, s.Connect(), effect.Config{}).Do(t.Context(), "a", request, r.do)
		if err != nil || string(res.Body) != "receipt of a" || !res.Stored {
			t.Errorf("the second: %q, %v", res.Body, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		r.count(t, "a", 1)
	})
}

// TestMismatch: a key is bound to what happened, or may have, under it.
func TestMismatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r, g := newRemote(false), guard(t, s, effect.Config{InDoubt: effect.Retry})
		_, _ = g.Do(t.Context(), "done", request, r.do)
		_, _ = g.Do(t.Context(), "doubt", request, func(context.Context, effect.Call) ([]byte, error) { return nil, errors.New("?") })
		for key, state := range map[string]string{"done": "it has happened", "doubt": "it may have happened"} {
			_, err := g.Do(t.Context(), key, effect.Print([]byte("other")), r.do)
			if class, _ := semel.ClassOf(err); !errors.Is(err, effect.ErrMismatch) || class != semel.ClassPermanent || !strings.Contains(err.Error(), state) {
				t.Errorf("%s: %v", key, err)
			}
		}
		r.count(t, "done", 1)
		r.count(t, "doubt", 0)
	})
	if effect.Print([]byte("ab"), []byte("c")) == effect.Print([]byte("a"), []byte("bc")) {
		t.Error("parts run into each other")
	}
}

// TestLost: answers of the store are lost. Nothing is called twice for it, and
// nothing that is known is taken for a doubt.
func TestLost(t *testing.T) {
	for n := range 4 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				r, asked := newRemote(false), 0
				s.Script(func(step memstore.Step) error {
					if step.Op != memstore.OpMovedEffect {
						return nil
					}
					if asked++; asked == n+1 || asked == n+2 {
						return memstore.Errorf(semel.ClassInfrastructure, "commit: %w", memstore.ErrLost)
					}
					return nil
				})
				res, err := guard(t, s, effect.Config{}).Do(t.Context(), "a", request, r.do)
				if err != nil || string(res.Body) != "receipt of a" || res.Stored {
					t.Errorf("%+v, %v", res, err)
				}
				r.count(t, "a", 1)
				if e := row(t, s, "a"); e.State != store.EffectDone {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// TestDown: no intent, no call; no result, a doubt.
func TestDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r, g := newRemote(false), guard(t, s, effect.Config{})
		s.Break()
		if _, err := g.Do(t.Context(), "a", request, r.do); s.Classify(err) != semel.ClassInfrastructure {
			t.Errorf("%v", err)
		}
		r.count(t, "a", 0)
		s.Heal()
		_, err := g.Do(t.Context(), "a", request, func(ctx context.Context, c effect.Call) ([]byte, error) {
			s.Break()
			return r.do(ctx, c)
		})
		if s.Classify(err) != semel.ClassInfrastructure {
			t.Errorf("%v", err)
		}
		s.Heal()
		if _, err := g.Do(t.Context(), "a", request, r.do); !errors.Is(err, effect.ErrInDoubt) {
			t.Errorf("%v", err)
		}
		r.count(t, "a", 1)
	})
}

// TestLate: a process that was stopped between its intent and its call does not
// call any more.
func TestLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		r := newRemote(false)
		stopped := true
		defer fault.Arm(func(p fault.Point) {
			if p == fault.Intended && stopped {
				stopped = false
				time.Sleep(31 * time.Second)
			}
		})()
		g := guard(t, s, effect.Config{})
		if _, err := g.Do(t.Context(), "a", request, r.do); err == nil || !effect.Known(err) {
			t.Errorf("%v", err)
		}
		r.count(t, "a", 0)
		if _, err := g.Do(t.Context(), "a", request, r.do); err != nil {
			t.Error(err)
		}
		r.count(t, "a", 1)
	})
}

// TestBounds: a call has its time, and a panic is no result.
func TestBounds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		g := guard(t, s, effect.Config{Timeout: time.Second})
		began := time.Now()
		_, err := g.Do(t.Context(), "slow", request, func(ctx context.Context, _ effect.Call) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if !errors.Is(err, effect.ErrInDoubt) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		_, err = g.Do(t.Context(), "panics", request, func(context.Context, effect.Call) ([]byte, error) { panic("oh\xff") })
		if !errors.Is(err, effect.ErrInDoubt) || !strings.Contains(err.Error(), "panicked: oh") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = g.Do(ctx, "cancelled", request, func(context.Context, effect.Call) ([]byte, error) {
			cancel()
			return []byte("all the same"), nil
		})
		if e := row(t, s, "cancelled"); err != nil || e.State != store.EffectDone {
			t.Errorf("a result that came with the end of its time: %+v, %v", e, err)
		}
		if _, err := g.Do(ctx, "never", request, newRemote(false).do); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// TestSettle: a person ends a doubt, either way, and nothing but a doubt.
func TestSettle(t *testing.T) {
	for _, happened := range []bool{true, false} {
		bubble(t, func(t *testing.T, s *memstore.Store) {
			r, g := newRemote(false), guard(t, s, effect.Config{})
			settle := func(key string) error { return effect.Settle(t.Context(), s, "orders", key, happened, "jo") }
			if err := settle("a"); !errors.Is(err, effect.ErrMoved) {
				t.Errorf("nothing is known: %v", err)
			}
			_, _ = g.Do(t.Context(), "a", request, func(context.Context, effect.Call) ([]byte, error) {
				if err := settle("a"); !errors.Is(err, effect.ErrMoved) {
					t.Errorf("it is under way: %v", err)
				}
				return nil, errors.New("?")
			})
			if open, err := g.Open(t.Context(), ""); err != nil || len(open) != 1 || !open[0].InDoubt() {
				t.Errorf("in doubt: %+v, %v", open, err)
			}
			if err := settle("a"); err != nil {
				t.Fatal(err)
			}
			if e := row(t, s, "a"); !strings.HasSuffix(e.Note, "says jo") {
				t.Errorf("note %q", e.Note)
			}
			if _, err := g.Do(t.Context(), "a", request, r.do); err != nil {
				t.Error(err)
			}
			want := 1
			if happened {
				want = 0
			}
			r.count(t, "a", want)
			if err := settle("a"); !errors.Is(err, effect.ErrMoved) {
				t.Errorf("it is known: %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	query := func(context.Context, effect.Call) ([]byte, error) { return nil, nil }
	for name, c := range map[string]effect.Config{
		"no name":         {},
		"long name":       {Name: strings.Repeat("n", 256)},
		"policy":          {Name: "n", InDoubt: 9},
		"ask nobody":      {Name: "n", InDoubt: effect.Ask},
		"query for what":  {Name: "n", Query: query},
		"negative":        {Name: "n", MaxResult: -1},
		"short lease":     {Name: "n", Timeout: 10 * time.Second, Lease: 19 * time.Second},
		"default timeout": {Name: "n", Lease: time.Second},
	} {
		if _, err := effect.New(memstore.New(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := effect.New(nil, effect.Config{Name: "n"}); err == nil {
		t.Error("no store: accepted")
	}
	for _, c := range []effect.Config{{Name: "n"}, {Name: "n", InDoubt: effect.Ask, Query: query}, {Name: "n", Lease: time.Minute, Timeout: 30 * time.Second}} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
