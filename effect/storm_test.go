package effect_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

// storm is a world in which processes die, calls are slow or lose their
// answers, and several workers want the same effects.
type storm struct {
	mu    sync.Mutex
	rand  *rand.Rand
	calm  bool
	reach map[fault.Point]int
	*remote
}

func (w *storm) chance(percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.rand.IntN(100) < percent
}

func (w *storm) hit(p fault.Point) {
	if w.chance(25) {
		w.mu.Lock()
		w.reach[p]++
		w.mu.Unlock()
		panic(fault.Crash{Point: p})
	}
}

func (w *storm) do(ctx context.Context, c effect.Call) ([]byte, error) {
	if w.chance(20) {
		return nil, effect.NotDone(errors.New("refused"))
	}
	if w.chance(20) {
		time.Sleep(9 * time.Second)
	}
	res, _ := w.remote.do(ctx, c)
	if w.chance(20) {
		return nil, errors.New("the answer is lost")
	}
	return res, nil
}

// worker tries all effects until each has an end, and starts again when it dies.
func (w *storm) worker(t *testing.T, s *memstore.Store, c effect.Config, keys []string) {
	once := func(key string) (end bool) {
		defer func() {
			if v := recover(); v != nil {
				if _, staged := v.(fault.Crash); !staged {
					panic(v)
				}
				end = false
			}
		}()
		_, err := guard(t, s.Connect(), c).Do(t.Context(), key, request, w.do)
		return err == nil || errors.Is(err, effect.ErrInDoubt)
	}
	for _, key := range keys {
		for i := 0; !once(key); i++ {
			if i > 200 {
				t.Errorf("%s has no end", key)
				return
			}
		}
	}
}

// TestStorm: whatever dies, what the policy promises holds for every key.
func TestStorm(t *testing.T) {
	reached := map[fault.Point]int{}
	for seed := range uint64(60) {
		for _, policy := range []effect.Policy{effect.Park, effect.Retry, effect.Ask} {
			t.Run(fmt.Sprint("policy", policy, "seed", seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memstore.Store) {
					w := &storm{rand: rand.New(rand.NewPCG(seed, uint64(policy))), reach: reached, remote: newRemote(policy == effect.Retry)}
					c := effect.Config{InDoubt: policy}
					if policy == effect.Ask {
						c.Query = w.query
					}
					defer fault.Arm(w.hit)()
					keys := []string{"a", "b", "c", "d"}
					var workers sync.WaitGroup
					for i := range 3 {
						mine := append(append([]string{}, keys[i:]...), keys[:i]...)
						workers.Go(func() { w.worker(t, s, c, mine) })
					}
					workers.Wait()
					for _, key := range keys {
						state := row(t, s, key)
						switch n := w.applied[key]; {
						case state.State == store.EffectDone && n == 1:
						case policy == effect.Park && state.InDoubt() && n <= 1:
						default:
							t.Errorf("%s: %s, and it happened %d times", key, state.State, n)
						}
					}
				})
			})
		}
	}
	for _, p := range fault.Effects() {
		if reached[p] == 0 {
			t.Errorf("nothing died at %s", p)
		}
	}
}
