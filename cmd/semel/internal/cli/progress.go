package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/observe"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const (
	liveEvery  = 200 * time.Millisecond // a terminal
	plainEvery = 5 * time.Second        // a pipe
	depthEvery = time.Second
	// toldDeaths is how many dead letters are told one by one; the rest is in
	// the count.
	toldDeaths = 5
)

// progress tells how a run goes: people by one line that changes on a terminal,
// everybody else by log records. It is safe for concurrent use.
type progress struct {
	name string
	log  *observe.Log // nil: a person looks on
	// asked: the records were asked for by name, so there has to be nothing
	// else between them.
	asked bool

	mu     sync.Mutex
	w      io.Writer
	width  int
	shown  bool // the live line is on the screen
	deaths int
	depth  broker.Depth
	sized  bool // depth is known
	// sizedAt is how much was decided when depth was counted.
	sizedAt int64
	pauses  int // of committers, at this moment
	last    semel.Account
	at      time.Time
	rate    float64
}

func newProgress(name string, w io.Writer, t telling) *progress {
	p := &progress{name: printable(name), w: w}
	width, live := terminal(w)
	if p.width = width; !live || t.log != "" {
		p.log, p.asked = t.records(name, w), t.log != ""
	}
	return p
}

// say prints a line of its own; the live line gives way.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "%s: %s\n", p.name, strings.ReplaceAll(printable(fmt.Sprintf(format, args...)), "\n", "\n  "))
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// reported is told what the source leaves alone.
func (p *progress) reported(what string, err error) {
	if p.log == nil {
		p.say("%s: %v", what, err)
		return
	}
	p.log.Say(slog.LevelWarn, "source", "the source reports", slog.String("file", line(what, 500)), observe.Error(err))
}

// heard is told of the first signal.
func (p *progress) heard(s os.Signal) {
	if p.log == nil {
		p.say("%v: finishing what is in hand; again to end at once", s)
		return
	}
	p.log.Say(slog.LevelInfo, "signal", "finishing what is in hand; another signal ends at once", slog.String("signal", s.String()))
}

// created is told that the database was not there before.
func (p *progress) created(l config.Location) {
	if p.log == nil {
		p.say("a new database: %v", l)
		return
	}
	p.log.Say(slog.LevelInfo, "created", "a new database", slog.String("store", line(l.String(), 500)))
}

// serving is told where metrics and health are.
func (p *progress) serving(at net.Addr) {
	level, note := slog.LevelInfo, "metrics and health"
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		level, note = slog.LevelWarn, "metrics and health, without a password for everybody who can reach this address"
	}
	if p.log == nil {
		p.say("%s: http://%v/metrics", note, at)
		return
	}
	p.log.Say(level, "serving", note, slog.String("url", fmt.Sprintf("http://%v/metrics", at)))
}

// unserved is told that nobody can ask any more. The run goes on.
func (p *progress) unserved(err error) {
	if p.log == nil {
		p.say("metrics and health are not served any more: %v", err)
		return
	}
	p.log.Say(slog.LevelError, "unserved", "metrics and health are not served any more", observe.Error(err))
}

// broke is told why the run ended; false: that is still to be said.
func (p *progress) broke(err error) (said bool) {
	if p.log != nil && p.asked {
		p.log.Say(slog.LevelError, "fault", "the run ended by a fault", observe.Error(err))
	}
	return p.log != nil && p.asked
}

func (p *progress) observer() semel.Observer {
	if p.log != nil {
		return p.log.Observer()
	}
	return semel.Observer{Failed: p.failed, Paused: p.pausedBy, Scope: p.scope, Unsettled: func(n int, err error) {
		p.say("%s not settled: %v; they come again and are found", counted(int64(n), "message"), err)
	}}
}

func (p *progress) failed(f semel.Failure) {
	if f.Verdict != semel.Dead {
		return
	}
	p.mu.Lock()
	p.deaths++
	n := p.deaths
	p.mu.Unlock()
	switch {
	case n < toldDeaths:
		p.say("dead letter: %s: %s", line(first(f.ID, f.Origin), 60), line(cause(f.Err.Error(), f.ID, f.Origin), 200))
	case n == toldDeaths:
		p.say("dead letter: %s: %s; more are counted only", line(first(f.ID, f.Origin), 60), line(cause(f.Err.Error(), f.ID, f.Origin), 200))
	}
}

func (p *progress) pausedBy(err error) {
	p.mu.Lock()
	before := p.pauses
	if err != nil {
		p.pauses++
	} else {
		p.pauses--
	}
	after := p.pauses
	p.mu.Unlock()
	switch {
	case before == 0 && after == 1:
		p.say("paused, nothing is taken until %s works again: %v", pausedFor(err), err)
	case before == 1 && after == 0:
		p.say("it works again")
	}
}

// pausedFor is what does not work: an error of the store is not marked.
func pausedFor(err error) string {
	if _, marked := semel.ClassOf(err); marked {
		return "what the handler needs"
	}
	return "the store"
}

// scope tells of scopes that were lost or stopped; those that come and go in
// good order are everyday life.
func (p *progress) scope(s semel.Scope, event string, err error) {
	if err != nil {
		p.say("%s %s: %v", s, event, err)
	}
}

// start shows progress until the returned function is called.
func (p *progress) start(account func() semel.Account, m broker.Measurer) (end func()) {
	p.at = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.show(ctx, account) })
	wg.Go(func() { p.measure(ctx, m) })
	return func() {
		cancel()
		wg.Wait()
		if p.log != nil {
			p.log.Flush()
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clear()
	}
}

func (p *progress) show(ctx context.Context, account func() semel.Account) {
	every := liveEvery
	if p.log != nil {
		every = plainEvery
	}
	began := time.Now()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			p.update(account(), now, now.Sub(began))
		}
	}
}

func (p *progress) measure(ctx context.Context, m broker.Measurer) {
	t := time.NewTicker(depthEvery)
	defer t.Stop()
	for {
		p.mu.Lock()
		decided := p.last.Decided()
		p.mu.Unlock()
		d, err := m.Depth(ctx)
		p.mu.Lock()
		p.depth, p.sized, p.sizedAt = d, err == nil, decided
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (p *progress) update(a semel.Account, now time.Time, elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pace(a, now)
	if p.log != nil {
		p.record(a)
		return
	}
	text := p.text(a, elapsed)
	if width, ok := terminal(p.w); ok {
		p.width = width
	}
	text = p.name + "  " + text
	if utf8.RuneCountInString(text) >= p.width {
		text = string([]rune(text)[:p.width-1])
	}
	fmt.Fprint(p.w, "\r\x1b[K"+text)
	p.shown = true
}

// record writes what the line on a terminal says. It is always written: every
// five seconds is no flood.
func (p *progress) record(a semel.Account) {
	fields := []slog.Attr{slog.Int64("done", a.Decided()), slog.Int64("per_second", int64(p.rate))}
	for v := semel.Applied; v <= semel.Dropped; v++ {
		if n := a.Of[v]; n > 0 {
			fields = append(fields, slog.Int64(v.String(), n))
		}
	}
	if p.sized {
		fields = append(fields, slog.Int64("in_source", p.left()))
	}
	p.log.Say(slog.LevelInfo, "progress", "progress", fields...)
}

// left is what the source holds: what it held when it was counted, without what
// was decided since.
func (p *progress) left() int64 {
	return max(0, p.depth.Waiting+p.depth.Claimed+p.depth.Settling-(p.last.Decided()-p.sizedAt))
}

// pace smooths the rate over about two seconds on a terminal.
func (p *progress) pace(a semel.Account, now time.Time) {
	passed := now.Sub(p.at).Seconds()
	if passed <= 0 {
		return
	}
	rate := float64(a.Decided()-p.last.Decided()) / passed
	if p.log == nil && p.last.Decided() > 0 {
		rate = p.rate + (rate-p.rate)*min(1, passed/2)
	}
	p.rate, p.last, p.at = rate, a, now
}

// text puts first what matters most, since a narrow terminal cuts the end.
func (p *progress) text(a semel.Account, elapsed time.Duration) string {
	parts := []string{thousands(a.Decided()) + " done", thousands(int64(p.rate)) + "/s"}
	if p.pauses > 0 {
		parts[1] = "paused"
	}
	for _, v := range []semel.Verdict{semel.Dead, semel.Applied, semel.Duplicate, semel.Superseded, semel.Conflict, semel.Filtered, semel.Parked} {
		if n := a.Of[v]; n > 0 {
			parts = append(parts, v.String()+" "+thousands(n))
		}
	}
	if p.sized {
		parts = append(parts, thousands(p.left())+" in the source")
	}
	return strings.Join(append(parts, span(elapsed.Truncate(100*time.Millisecond))), "  ")
}
