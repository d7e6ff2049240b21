package observe_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
)

func exposition(t *testing.T, m *observe.Monitor) string {
	t.Helper()
	var b strings.Builder
	if err := m.WriteMetrics(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wantLines(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, text)
		}
	}
}

// TestMetricsOfARun are what became of the messages of a real run.
func TestMetricsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, consumer.StartFirst, true)
		defer w.end()
		w.publish("a", "b", "a")
		w.handling(func() error { return semel.Permanent(fmt.Errorf("no")) })
		w.b.Publish(0, semel.Message{ID: "c", Time: time.Now().Add(-time.Hour)})
		synctest.Wait()
		time.Sleep(10 * time.Second)
		text := exposition(t, w.mon)
		wantLines(t, text,
			"# TYPE semel_messages_decided_total counter",
			`semel_messages_received_total{pipeline="p"} 4`,
			`semel_messages_decided_total{pipeline="p",verdict="applied"} 2`,
			`semel_messages_decided_total{pipeline="p",verdict="duplicate"} 1`,
			`semel_messages_decided_total{pipeline="p",verdict="dead"} 1`,
			`semel_failures_total{pipeline="p",class="permanent"} 1`,
			`semel_dead_letters_total{pipeline="p",reason="permanent"} 1`,
			`semel_rollbacks_total{pipeline="p"} 1`,
			`semel_letters{pipeline="p",state="dead"} 1`,
			`semel_letters{pipeline="p",state="retry"} 0`,
			`semel_scopes{pipeline="p",state="assigned"} 1`,
			`semel_message_age_seconds_bucket{pipeline="p",le="900"} 0`,
			`semel_message_age_seconds_bucket{pipeline="p",le="21600"} 1`,
			`semel_message_age_seconds_count{pipeline="p"} 1`,
			`semel_source_messages{pipeline="p",stage="waiting"} 0`,
			`semel_ready{pipeline="p"} 1`,
			`semel_condition{pipeline="p",condition="paused"} 0`,
			`semel_transactions_open{pipeline="p"} 0`)
	})
}

// TestMetricsBeforeTheFirstLook: what was not seen has no samples, rather than
// zeros that look good.
func TestMetricsBeforeTheFirstLook(t *testing.T) {
	m := observe.NewMonitor(observe.Config{Pipeline: "new \"line\"\n\\"})
	text := exposition(t, m)
	wantLines(t, text, `semel_ready{pipeline="new \"line\"\n\\"} 0`, "# TYPE semel_letters gauge")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "semel_letters{") || strings.HasPrefix(line, "semel_source_messages{") || strings.HasPrefix(line, "semel_imbalances{") {
			t.Errorf("%q, and nothing was looked at", line)
		}
	}
}

// TestMetricsUnknownDepth: a source that does not know says nothing.
func TestMetricsUnknownDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observe.NewMonitor(observe.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		go m.Watch(ctx, observe.Target{Depth: func(context.Context) (broker.Depth, error) { return broker.Depth{Waiting: 7, Claimed: -1}, nil }})
		synctest.Wait()
		cancel()
		text := exposition(t, m)
		wantLines(t, text, `semel_source_messages{pipeline="",stage="waiting"} 7`)
		if strings.Contains(text, `stage="claimed"`) {
			t.Error("it tells a number that is not known")
		}
	})
}

// TestReasonsAreBounded: whatever comes as a reason, there are not endlessly
// many of them.
func TestReasonsAreBounded(t *testing.T) {
	m := observe.NewMonitor(observe.Config{})
	for i := range 1000 {
		m.Observer().Failed(semel.Failure{Verdict: semel.Dead, Reason: fmt.Sprint(i)})
	}
	text := exposition(t, m)
	if n := strings.Count(text, "semel_dead_letters_total{"); n != 33 {
		t.Errorf("%d reasons", n)
	}
	wantLines(t, text, `semel_dead_letters_total{pipeline="",reason="other"} 976`)
}

// TestServe: only three things are answered, only to GET, with little patience
// for large headers, and the listener is free afterwards.
func TestServe(t *testing.T) {
	m := observe.NewMonitor(observe.Config{Pipeline: "p"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- m.Serve(ctx, ln) }()
	at := "http://" + ln.Addr().String()
	for _, c := range []struct {
		method, path string
		header       int
		want         int
	}{
		{http.MethodGet, "/metrics", 0, 200}, {http.MethodGet, "/livez", 0, 200}, {http.MethodGet, "/readyz", 0, 503},
		{http.MethodPost, "/metrics", 0, 405}, {http.MethodGet, "/", 0, 404}, {http.MethodGet, "/debug/pprof/", 0, 404},
		{http.MethodGet, "/livez", 20_000, 431},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, at+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("x", c.header))
		a, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, a.StatusCode, c.want)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if again, err := net.Listen("tcp", ln.Addr().String()); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

// TestServeSlow: whoever opens a connection and says nothing is hung up on.
func TestServeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{c: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- observe.NewMonitor(observe.Config{}).Serve(ctx, ln) }()
		client := ln.dial()
		fmt.Fprint(client, "GET /livez HTTP/1.1\r\nHost: ")
		began := time.Now()
		if _, err := io.ReadAll(bufio.NewReader(client)); err != nil || time.Since(began) > 6*time.Second {
			t.Errorf("hung up after %v: %v", time.Since(began), err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	c    chan net.Conn
	done chan struct{}
}

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.c <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.c:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// BenchmarkScrape is what one answer costs.
func BenchmarkScrape(b *testing.B) {
	m := observe.NewMonitor(observe.Config{Pipeline: "orders"})
	b.ReportAllocs()
	for b.Loop() {
		if err := m.WriteMetrics(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
