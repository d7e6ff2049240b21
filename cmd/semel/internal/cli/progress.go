package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

const (
	liveEvery  = 200 * time.Millisecond // a terminal
	plainEvery = 5 * time.Second        // a pipe
	depthEvery = time.Second
	// toldDeaths is how many dead letters are told one by one; the rest is in
	// the count.
	toldDeaths = 5
)

// progress tells people how a run goes: one line that changes on a terminal,
// a line now and then in a pipe. It is safe for concurrent use.
type progress struct {
	name string
	live bool

	mu     sync.Mutex
	w      io.Writer
	width  int
	shown  bool // the live line is on the screen
	deaths int
	depth  broker.Depth
	sized  bool // depth is known
	paused bool
	last   semel.Account
	at     time.Time
	rate   float64
}

func newProgress(name string, w io.Writer) *progress {
	p := &progress{name: printable(name), w: w}
	p.width, p.live = terminal(w)
	return p
}

// say prints a line of its own; a live line gives way.
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
func (p *progress) reported(what string, err error) { p.say("%s: %v", what, err) }

func (p *progress) observer() semel.Observer {
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
	was := p.paused
	p.paused = err != nil
	p.mu.Unlock()
	switch {
	case err != nil && !was:
		p.say("paused, nothing is taken until the store works again: %v", err)
	case err == nil && was:
		p.say("the store works again")
	}
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
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clear()
	}
}

func (p *progress) show(ctx context.Context, account func() semel.Account) {
	every := plainEvery
	if p.live {
		every = liveEvery
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
		d, err := m.Depth(ctx)
		p.mu.Lock()
		p.depth, p.sized = d, err == nil
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
	text := p.text(a, elapsed)
	if !p.live {
		fmt.Fprintf(p.w, "%s: %s\n", p.name, text)
		return
	}
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

// pace smooths the rate over about two seconds on a terminal.
func (p *progress) pace(a semel.Account, now time.Time) {
	passed := now.Sub(p.at).Seconds()
	if passed <= 0 {
		return
	}
	rate := float64(a.Decided()-p.last.Decided()) / passed
	if p.live && p.last.Decided() > 0 {
		rate = p.rate + (rate-p.rate)*min(1, passed/2)
	}
	p.rate, p.last, p.at = rate, a, now
}

// text puts first what matters most, since a narrow terminal cuts the end.
func (p *progress) text(a semel.Account, elapsed time.Duration) string {
	parts := []string{thousands(a.Decided()) + " done", thousands(int64(p.rate)) + "/s"}
	if p.paused {
		parts[1] = "paused"
	}
	for _, v := range []semel.Verdict{semel.Dead, semel.Applied, semel.Duplicate, semel.Superseded, semel.Conflict, semel.Filtered, semel.Parked} {
		if n := a.Of[v]; n > 0 {
			parts = append(parts, v.String()+" "+thousands(n))
		}
	}
	if p.sized {
		parts = append(parts, thousands(p.depth.Waiting+p.depth.Claimed+p.depth.Settling)+" in the source")
	}
	return strings.Join(append(parts, span(elapsed.Truncate(100*time.Millisecond))), "  ")
}
