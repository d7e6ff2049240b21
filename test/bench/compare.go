package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// cost is what one slice took.
type cost struct {
	n         int // messages
	wall, cpu time.Duration
}

// per returns d per message in microseconds.
func (c cost) per(d time.Duration) float64 {
	return float64(d) / float64(time.Microsecond) / float64(c.n)
}

// measured runs fn over n messages. Garbage of what ran before is not charged.
func measured(n int, fn func() error) (cost, error) {
	runtime.GC()
	cpu, begin := cpuTime(), time.Now()
	err := fn()
	return cost{n: n, wall: time.Since(begin), cpu: cpuTime() - cpu}, err
}

// contender is one row of a comparison: the same work, done in some way.
type contender struct {
	name string
	// n messages make one slice.
	n int
	// slice handles messages from, from+1, … from+n-1.
	slice func(ctx context.Context, from, n int) error
}

// compare lets the contenders take turns and returns the costs of each, without
// the first round. The order is drawn anew for each round, from a fixed seed: a
// slice is the cheaper for its own predecessor, whose pages are still in the
// caches, and in an alternating order only the first and the last have that.
func compare(ctx context.Context, rounds int, cs []contender) ([][]cost, error) {
	costs := make([][]cost, len(cs))
	order := make([]int, len(cs))
	for i := range order {
		order[i] = i
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		draw.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			c := cs[i]
			var took cost
			var err error
			pprof.Do(ctx, pprof.Labels("row", c.name), func(ctx context.Context) {
				took, err = measured(c.n, func() error { return c.slice(ctx, round*c.n, c.n) })
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				costs[i] = append(costs[i], took)
			}
		}
	}
	return costs, nil
}

// spread is a median with the bounds of its 95 % interval.
type spread struct{ low, mid, high float64 }

func (s spread) String() string { return fmt.Sprintf("%.2f [%.2f, %.2f]", s.mid, s.low, s.high) }

// spreadOf returns the median of v and the interval between the two values of
// v that enclose the true median with at least 95 %, whatever the values are
// distributed like. Fewer than six values have no such bounds: then it is all
// of them.
func spreadOf(v []float64) spread {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	k := 0 // s[k] and s[n-1-k] still enclose it
	for outside(n, k+1) <= 0.05 {
		k++
	}
	return spread{s[k], (s[(n-1)/2] + s[n/2]) / 2, s[n-1-k]}
}

// outside is the probability that the median of the distribution is not
// between the values at k and n-1-k of n sorted ones: that at most k of n fall
// on one side.
func outside(n, k int) float64 {
	sum, choose := 0.0, 1.0
	for i := range k + 1 {
		sum += choose
		choose = choose * float64(n-i) / float64(i+1)
	}
	return 2 * sum / math.Pow(2, float64(n))
}

// over returns the ratios base/c of each round: above 1 means c is the faster.
func over(base, c []cost, of func(cost) float64) spread {
	r := make([]float64, len(c))
	for i := range c {
		r[i] = of(base[i]) / of(c[i])
	}
	return spreadOf(r)
}

func wallOf(c cost) float64 { return c.per(c.wall) }
func cpuOf(c cost) float64  { return c.per(c.cpu) }
func rateOf(c cost) float64 { return float64(c.n) / c.wall.Seconds() }

func each(cs []cost, of func(cost) float64) spread {
	v := make([]float64, len(cs))
	for i := range cs {
		v[i] = of(cs[i])
	}
	return spreadOf(v)
}
