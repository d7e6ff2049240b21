package observe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/store"
)

// writing calls a function at the first write.
type writing func()

func (w writing) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// TestSlowReader: somebody who reads the metrics slowly keeps nobody waiting,
// least of all the pipeline.
func TestSlowReader(t *testing.T) {
	m := observe.NewMonitor(observe.Config{})
	err := m.WriteMetrics(writing(func() {
		told := make(chan struct{})
		go func() {
			m.Observer().Batch(semel.Batch{})
			close(told)
		}()
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Error("the pipeline waits for whoever reads the metrics")
		}
	}))
	if err != nil {
		t.Error(err)
	}
}

// TestPauseTellsNoMessage: an answer that everybody may read names no key and
// has nothing of what a handler put around the error of its database.
func TestPauseTellsNoMessage(t *testing.T) {
	driver := errors.New("connection refused")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"wrapped": {&semel.Error{Stage: "handle", Message: "o-17", Err: fmt.Errorf("order of anna@example.com: %w", driver)}, "connection refused"},
		"joined":  {errors.Join(errors.New("order of anna@example.com"), driver), "connection refused"},
		"nothing": {fmt.Errorf("order: %w", fmt.Errorf("%w", errors.Join(driver))), "connection refused"},
	} {
		m := observe.NewMonitor(observe.Config{})
		m.Observer().Phase(semel.Running)
		m.Observer().Paused(c.err)
		if rs := m.Health().Reasons; len(rs) != 1 || rs[0].Detail != c.want {
			t.Errorf("%s: %+v, want %q", name, rs, c.want)
		}
	}
}

// TestFullKeyIsNotNamed in the answer about a real pipeline that waits for it.
func TestFullKeyIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := beginWith(t, consumer.StartFirst, true, func(cfg *consumer.Config) { cfg.Order, cfg.MaxHeld = consumer.OrderKey, 1 })
		defer w.end()
		w.handling(func() error { return errors.New("not yet") })
		for i := range 3 {
			w.b.Publish(0, semel.Message{ID: fmt.Sprint(i), Key: "anna@example.com"})
		}
		synctest.Wait()
		rs := w.mon.Health().Reasons
		if len(rs) != 1 || rs[0].Condition != observe.Paused || rs[0].Detail != "a key has as many held messages as it may" {
			t.Errorf("%+v", rs)
		}
	})
}

// TestOutageIsNotWedged: while the store does not say what became of a commit,
// another start does not help.
func TestOutageIsNotWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, mon: observe.NewMonitor(observe.Config{Pipeline: "p"})}
		o := w.mon.Observer()
		o.Phase(semel.Running)
		_, end := o.Open(t.Context(), semel.Opening{})
		for range 120 { // consumer's resolve
			o.Paused(errors.New("connection refused"))
			time.Sleep(5 * time.Second)
			w.health("", observe.Paused)
			o.Paused(nil)
		}
		w.health("")
		time.Sleep(5 * time.Minute)
		w.health("wedged", observe.Wedged)
		end(semel.Batch{}, nil)
		w.health("")
	})
}

// TestStoreThatHangs: a look that gets no answer is given up and made known,
// and the next one is not long in coming.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observe.NewMonitor(observe.Config{Pipeline: "p"})
		m.Observer().Phase(semel.Running)
		w := &world{t: t, mon: m}
		ctx, cancel := context.WithCancel(t.Context())
		hangs := make(chan struct{})
		go m.Watch(ctx, observe.Target{Status: func(ctx context.Context) (store.Status, error) {
			select {
			case <-hangs:
				return store.Status{}, nil
			case <-ctx.Done():
				return store.Status{}, ctx.Err()
			}
		}})
		time.Sleep(2 * time.Minute)
		w.health("", observe.StoreUnreadable)
		close(hangs)
		time.Sleep(time.Minute)
		w.health("")
		cancel()
	})
}

// TestServeMany: connections are bounded; those that are too many are hung up
// on, and places become free.
func TestServeMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{c: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- observe.NewMonitor(observe.Config{}).Serve(ctx, ln) }()
		var idle []net.Conn
		for range 64 {
			idle = append(idle, ln.dial())
		}
		if n, err := ln.dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("one too many: %d, %v", n, err)
		}
		idle[0].Close()
		synctest.Wait()
		client := ln.dial()
		fmt.Fprint(client, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		if a, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil || a.StatusCode != http.StatusOK {
			t.Errorf("%+v, %v", a, err)
		} else {
			a.Body.Close()
		}
		for _, c := range append(idle, client) {
			c.Close()
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestFirstDeadLetter: every reason has a sample before there is a dead letter,
// or the first one would be no increase to anybody.
func TestFirstDeadLetter(t *testing.T) {
	text := exposition(t, observe.NewMonitor(observe.Config{}))
	for reason := range strings.FieldsSeq("conflict crash exhausted invalid malformed permanent tie") {
		wantLines(t, text, `semel_dead_letters_total{pipeline="",reason="`+reason+`"} 0`)
	}
	wantLines(t, text, `semel_dead_letters_total{pipeline="",reason="no version"} 0`)
}
