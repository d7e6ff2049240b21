package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store/memstore"
)

// crowd is work outside of the transaction that lets go only when as many
// messages are under way as are wanted, and notes who met whom.
type crowd struct {
	mu    sync.Mutex
	want  int
	busy  map[string]int // messages under way, by key
	order map[string][]string
	most  int
	met   chan struct{} // closed when want are under way
	errs  map[string]error
	t     *testing.T
}

func newCrowd(t *testing.T, want int) *crowd {
	return &crowd{want: want, busy: map[string]int{}, order: map[string][]string{}, met: make(chan struct{}), errs: map[string]error{}, t: t}
}

func (c *crowd) prepare(ctx context.Context, m semel.Message) (func(context.Context, tx) error, error) {
	c.mu.Lock()
	c.busy[m.Key]++
	if c.busy[m.Key] > 1 && m.Key != "" {
		c.t.Errorf("two messages of key %q at once", m.Key)
	}
	all := 0
	for _, n := range c.busy {
		all += n
	}
	if c.most = max(c.most, all); c.most == c.want {
		select {
		case <-c.met:
		default:
			close(c.met)
		}
	}
	c.order[m.Key] = append(c.order[m.Key], m.ID)
	err := c.errs[m.ID]
	delete(c.errs, m.ID)
	c.mu.Unlock()
	<-c.met
	time.Sleep(time.Millisecond) // fake time: everybody has a turn
	c.mu.Lock()
	c.busy[m.Key]--
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t tx) error { return count(ctx, t, m) }, nil
}

func spread(n, keys int) (msgs []semel.Message) {
	for i := range n {
		key := ""
		if keys > 0 {
			key = fmt.Sprint("k", i%keys)
		}
		msgs = append(msgs, semel.Message{ID: fmt.Sprintf("%03d", i), Key: key, Body: []byte("{}")})
	}
	return msgs
}

// TestLanes: messages of different keys are prepared at the same time, those of
// one key after each other and in order, and each once.
func TestLanes(t *testing.T) {
	for _, keys := range []int{0, 200} {
		both(t, func(t *testing.T, b *membroker.Broker) {
			c, st := newCrowd(t, 8), memstore.New()
			cfg := config()
			cfg.Lanes, cfg.MaxCommitters = 8, 1
			msgs := spread(600, keys)
			b.Publish(0, msgs...)
			run(t, cfg, b, st, consumer.Prepare(c.prepare))
			wantEffects(t, st, ids(msgs)...)
			if c.most != 8 {
				t.Errorf("%d messages at once, want 8", c.most)
			}
			calls := 0
			for key, order := range c.order {
				if calls += len(order); key != "" && !slices.IsSorted(order) {
					t.Errorf("key %s: order %v", key, order)
				}
			}
			if calls != len(msgs) {
				t.Errorf("%d calls for %d messages", calls, len(msgs))
			}
			balanced(t, st)
		})
	}
}

// TestLanesFail: what fails ends its lane. What others had prepared is not
// prepared again.
func TestLanesFail(t *testing.T) {
	both(t, func(t *testing.T, b *membroker.Broker) {
		c, st := newCrowd(t, 4), memstore.New()
		cfg := config()
		cfg.Lanes, cfg.MaxCommitters = 4, 1
		msgs := spread(100, 20)
		for _, i := range []int{3, 47} {
			c.errs[msgs[i].ID] = errors.New("not now")
		}
		b.Publish(0, msgs...)
		run(t, cfg, b, st, consumer.Prepare(c.prepare))
		wantEffects(t, st, ids(msgs)...)
		calls := map[string]int{}
		for _, order := range c.order {
			for _, id := range order {
				calls[id]++
			}
		}
		for i, m := range msgs {
			want := 1
			if i == 3 || i == 47 {
				want = 2
			}
			if calls[m.ID] != want {
				t.Errorf("%s: %d calls, want %d", m.ID, calls[m.ID], want)
			}
		}
		balanced(t, st)
	})
}
