package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/printable"
)

// Names of the fields of records. They do not change.
const (
	FieldPipeline  = "pipeline"
	FieldMessageID = "message_id" // where a message has none, its place in the source
	FieldOrigin    = "origin"     // the message's place in the source
	FieldScope     = "scope"
	FieldClass     = "class"
	FieldReason    = "reason"
	FieldAttempt   = "attempt"
	FieldError     = "error"
	FieldCount     = "count"
	// FieldSuppressed counts records of the same kind that were left out.
	FieldSuppressed = "suppressed"
)

// longest is how many characters of an error or an id are told.
const longest = 500

// LogConfig says what a Log writes. Zero values are the defaults.
type LogConfig struct {
	// Pipeline is the value of the field of that name. Empty: no field.
	Pipeline string
	// Most is how many records of one kind are written in a span of Every;
	// the others are counted, and the count is written when the span is over.
	// Defaults 10 and 10 s.
	Most  int
	Every time.Duration
}

// Log writes structured records, and of those that a hot path can bring about
// by the thousand only a sample with a count. It is safe for concurrent use.
type Log struct {
	to    *slog.Logger
	most  int
	every time.Duration

	mu     sync.Mutex
	kinds  map[string]*sample
	pauses int
}

// sample is what was written of one kind in the present span.
type sample struct {
	level      slog.Level
	message    string
	began      time.Time
	written    int
	suppressed int64
	timer      *time.Timer // not nil: it will tell of the suppressed
}

// NewLog returns a Log that writes to h.
func NewLog(h slog.Handler, cfg LogConfig) *Log {
	l := &Log{to: slog.New(h), most: cmp.Or(cfg.Most, 10), every: cmp.Or(cfg.Every, 10*time.Second), kinds: map[string]*sample{}}
	if cfg.Pipeline != "" {
		l.to = l.to.With(FieldPipeline, printable.Line(cfg.Pipeline, longest))
	}
	return l
}

// Observer returns what is to be told. Dead letters, pauses, lost scopes and
// missed settlements are warnings, stopped scopes are errors, parked messages
// are information, and attempts that are followed by another one at once are
// for debugging.
func (l *Log) Observer() semel.Observer {
	return semel.Observer{Failed: l.failed, Paused: l.paused, Scope: l.scope, Unsettled: l.unsettled, Phase: l.phase}
}

// Error is the field of an error, on one line.
func Error(err error) slog.Attr {
	return slog.String(FieldError, printable.Line(err.Error(), longest))
}

// Say writes a record, or only counts it if enough of its kind were written.
// The message should be the same for all records of a kind.
func (l *Log) Say(level slog.Level, kind, message string, fields ...slog.Attr) {
	if !l.to.Enabled(context.Background(), level) || !l.admit(level, kind, message) {
		return
	}
	l.to.LogAttrs(context.Background(), level, message, fields...)
}

// admit says whether a record is written, and counts it if not.
func (l *Log) admit(level slog.Level, kind, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.kinds[kind]
	if s == nil {
		s = &sample{}
		l.kinds[kind] = s
	}
	now := time.Now()
	if s.timer == nil && now.Sub(s.began) >= l.every {
		s.began, s.written = now, 0
	}
	if s.written < l.most {
		s.written++
		return true
	}
	s.suppressed++
	s.level, s.message = level, message
	if s.timer == nil {
		s.timer = time.AfterFunc(l.every-now.Sub(s.began), func() { l.tell(s) })
	}
	return false
}

// tell writes how many records were left out, and begins a new span.
func (l *Log) tell(s *sample) {
	l.mu.Lock()
	n, level, message := s.suppressed, s.level, s.message
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.suppressed, s.began = nil, 0, time.Time{}
	l.mu.Unlock()
	if n > 0 {
		l.to.LogAttrs(context.Background(), level, fmt.Sprintf("%s: and %d more like it", message, n), slog.Int64(FieldSuppressed, n))
	}
}

// Flush writes the counts that are outstanding. Call it at the end.
func (l *Log) Flush() {
	l.mu.Lock()
	open := make([]*sample, 0, len(l.kinds))
	for _, s := range l.kinds {
		open = append(open, s)
	}
	l.mu.Unlock()
	for _, s := range open {
		l.tell(s)
	}
}

func (l *Log) failed(f semel.Failure) {
	level, kind, message := slog.LevelDebug, "attempt", "attempt failed"
	switch f.Verdict {
	case semel.Dead:
		level, kind, message = slog.LevelWarn, "dead", "dead letter"
	case semel.Parked:
		level, kind, message = slog.LevelInfo, "parked", "parked, to be tried again"
	}
	if f.Panic {
		kind += " by panic"
	}
	if !l.to.Enabled(context.Background(), level) || !l.admit(level, kind, message) {
		return
	}
	fields := []slog.Attr{
		slog.String(FieldMessageID, printable.Line(cmp.Or(f.ID, f.Origin), longest)),
		slog.String(FieldOrigin, printable.Line(f.Origin, longest)),
		slog.String(FieldClass, f.Class.String()), slog.String(FieldReason, f.Reason), slog.Int(FieldAttempt, f.Attempts),
	}
	if f.Err != nil {
		fields = append(fields, Error(f.Err))
	}
	l.to.LogAttrs(context.Background(), level, message, fields...)
}

func (l *Log) paused(err error) {
	l.mu.Lock()
	before := l.pauses
	if err != nil {
		l.pauses++
	} else if l.pauses > 0 {
		l.pauses--
	}
	after := l.pauses
	l.mu.Unlock()
	switch {
	case before == 0 && after == 1:
		l.Say(slog.LevelWarn, "paused", "paused, nothing is taken until store and source work again", Error(err))
	case before == 1 && after == 0:
		l.Say(slog.LevelInfo, "resumed", "it works again")
	}
}

func (l *Log) scope(s semel.Scope, event string, err error) {
	name := slog.String(FieldScope, printable.Line(s.String(), longest))
	switch {
	case err == nil:
		l.Say(slog.LevelDebug, "scope "+event, "scope "+event, name)
	case event == "stopped":
		l.Say(slog.LevelError, "scope stopped", "scope stopped, nothing of it is read until somebody has looked at it", name, Error(err))
	default:
		l.Say(slog.LevelWarn, "scope "+event, "scope "+event, name, Error(err))
	}
}

func (l *Log) unsettled(n int, err error) {
	fields := []slog.Attr{slog.Int(FieldCount, n)}
	if err != nil {
		fields = append(fields, Error(err))
	}
	l.Say(slog.LevelWarn, "unsettled", "not settled; they come again and are found", fields...)
}

func (l *Log) phase(p semel.Phase) { l.Say(slog.LevelDebug, "phase", "phase: "+p.String()) }
