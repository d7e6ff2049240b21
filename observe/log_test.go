package observe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/observe"
)

// lines collects what a handler writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// records returns what was written since the last call.
func (l *lines) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	l.b.Reset()
	return all
}

func newLog(cfg observe.LogConfig) (*observe.Log, *lines) {
	var w lines
	return observe.NewLog(slog.NewJSONHandler(&w, &slog.HandlerOptions{Level: slog.LevelDebug}), cfg), &w
}

func dead(id string) semel.Failure {
	return semel.Failure{ID: id, Origin: "q:7", Attempts: 3, Class: semel.ClassTransient, Reason: "exhausted", Err: errors.New("no such customer"), Verdict: semel.Dead}
}

// TestLogSamples: of a kind only so many records are written in a span. The
// others are counted, and the count is told when the span is over, without
// anything else having to happen.
func TestLogSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(observe.LogConfig{Most: 3, Every: 10 * time.Second})
		o := l.Observer()
		for i := range 5000 {
			o.Failed(dead(fmt.Sprint(i)))
		}
		o.Unsettled(1, nil)
		if n := len(w.records(t)); n != 4 {
			t.Errorf("%d records, want 3 of one kind and 1 of another", n)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		rs := w.records(t)
		if len(rs) != 1 || rs[0]["msg"] != "dead letter: and 4997 more like it" || rs[0]["suppressed"] != 4997.0 {
			t.Errorf("%v, want one record with the count", rs)
		}
		for range 4 {
			o.Failed(dead("x"))
		}
		if n := len(w.records(t)); n != 3 {
			t.Errorf("%d records in a new span, want 3", n)
		}
		l.Flush()
		if rs := w.records(t); len(rs) != 1 || rs[0]["suppressed"] != 1.0 {
			t.Errorf("%v at the end, want the outstanding count", rs)
		}
		time.Sleep(time.Minute)
		if rs := w.records(t); len(rs) != 0 {
			t.Errorf("%v, and again", rs)
		}
	})
}

// TestLogFields: the names are fixed, ids and errors are written out on one
// line, and long ones are cut.
func TestLogFields(t *testing.T) {
	l, w := newLog(observe.LogConfig{Pipeline: "orders"})
	f := dead("a\x1b[31m\xff\n")
	f.Err = errors.New("line\nbreak\x07 " + strings.Repeat("x", 10_000))
	l.Observer().Failed(f)
	r := w.records(t)[0]
	for field, want := range map[string]any{
		"level": "WARN", "msg": "dead letter", "pipeline": "orders", "message_id": `a\x1b[31m\xff | `, "origin": "q:7",
		"class": "transient", "reason": "exhausted", "attempt": 3.0,
	} {
		if r[field] != want {
			t.Errorf("%s is %#v, want %#v", field, r[field], want)
		}
	}
	if text := r["error"].(string); !strings.HasPrefix(text, `line | break\a x`) || len(text) > 600 {
		t.Errorf("error is %.80q, %d bytes", text, len(text))
	}
}

// TestLogEvents: what is told of what.
func TestLogEvents(t *testing.T) {
	bad := errors.New("bad")
	s := semel.Scope{Name: "orders", Incarnation: "3"}
	for want, tell := range map[string]func(semel.Observer){
		"WARN paused":           func(o semel.Observer) { o.Paused(bad) },
		"ERROR scope stopped":   func(o semel.Observer) { o.Scope(s, "stopped", bad) },
		"WARN scope lost":       func(o semel.Observer) { o.Scope(s, "lost", bad) },
		"DEBUG scope assigned":  func(o semel.Observer) { o.Scope(s, "assigned", nil) },
		"WARN not settled":      func(o semel.Observer) { o.Unsettled(2, bad) },
		"DEBUG phase: draining": func(o semel.Observer) { o.Phase(semel.Draining) },
		"DEBUG attempt failed":  func(o semel.Observer) { o.Failed(semel.Failure{ID: "a", Err: bad}) },
		"INFO parked":           func(o semel.Observer) { o.Failed(semel.Failure{ID: "a", Err: bad, Verdict: semel.Parked}) },
		"WARN dead letter":      func(o semel.Observer) { o.Failed(semel.Failure{Origin: "q:1", Verdict: semel.Dead}) },
	} {
		l, w := newLog(observe.LogConfig{})
		tell(l.Observer())
		rs := w.records(t)
		if len(rs) != 1 || !strings.HasPrefix(fmt.Sprint(rs[0]["level"], " ", rs[0]["msg"]), want) {
			t.Errorf("%v, want %s", rs, want)
		}
	}
}

// TestLogPauses: overlapping pauses of several committers are one.
func TestLogPauses(t *testing.T) {
	l, w := newLog(observe.LogConfig{})
	o := l.Observer()
	for _, err := range []error{errors.New("disk full"), errors.New("disk full"), nil, errors.New("disk full"), nil, nil, nil} {
		o.Paused(err)
	}
	rs := w.records(t)
	if len(rs) != 2 || rs[0]["error"] != "disk full" || rs[1]["msg"] != "it works again" {
		t.Errorf("%v, want one pause and one end", rs)
	}
}

// TestLogLevel: what is below the level is neither written nor counted.
func TestLogLevel(t *testing.T) {
	var w lines
	l := observe.NewLog(slog.NewJSONHandler(&w, &slog.HandlerOptions{Level: slog.LevelError}), observe.LogConfig{Most: 1})
	for range 5 {
		l.Observer().Failed(dead("a"))
	}
	l.Flush()
	if rs := w.records(t); len(rs) != 0 {
		t.Errorf("%v", rs)
	}
}
