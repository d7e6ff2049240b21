package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// frameEvery is how often bars are drawn anew.
const frameEvery = 100 * time.Millisecond

const (
	maxBar, minBar = 36, 5
	// besideBar is what the line needs for everything else.
	besideBar = 44
	// besideLine is its indentation, and the last column.
	besideLine = 5
)

// screen shows how far both sides of an incident are: bars that move on a
// terminal, a line for each that has ended in a pipe.
type screen struct {
	p      *play
	k      ink
	actors [2]*actor
	drawn  bool
}

func newScreen(p *play, actors [2]*actor) *screen {
	return &screen{p: p, k: ink(p.Color && p.Width > 0), actors: actors}
}

// show begins; the returned function ends it with the last state.
func (s *screen) show() (end func()) {
	s.headline()
	if s.p.Width == 0 {
		return func() {
			for _, a := range s.actors {
				fmt.Fprintf(s.p.Progress, "    %s\n", s.line(a))
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(frameEvery)
		defer t.Stop()
		for {
			s.draw()
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		s.draw()
		fmt.Fprintln(s.p.Progress)
	}
}

// headline says what both sides get.
func (s *screen) headline() {
	in, inc := &s.p.in, s.p.inc
	what := []string{fmt.Sprintf("%d messages, %d delivered again", in.messages, in.redelivered())}
	if in.late > 0 {
		what = append(what, fmt.Sprintf("%d late", in.late))
	}
	if n := len(in.slow); n > 0 {
		what = append(what, fmt.Sprintf("%d answered too late", n))
	}
	fmt.Fprintf(s.p.Progress, "%s\n    %s\n    killed %s\n",
		s.k.bold(strings.ToUpper(inc.name)+"  "+inc.title), strings.Join(what, ", "), inc.moment)
}

func (s *screen) draw() {
	var b strings.Builder
	if s.drawn {
		b.WriteString("\x1b[2A")
	}
	for _, a := range s.actors {
		fmt.Fprintf(&b, "\r\x1b[K    %s\n", s.line(a))
	}
	s.drawn = true
	fmt.Fprint(s.p.Progress, b.String())
}

// line is one side: how much of its files is done, and how often it died.
func (s *screen) line(a *actor) string {
	done, err := a.files("done")
	if err != nil {
		done = 0 // not made yet
	}
	of := len(s.p.in.files)
	text := fmt.Sprintf("%3d/%d  kill -9 ×%d", done, of, a.kills.Load())
	if took := time.Duration(a.took.Load()); took > 0 {
		text += "  " + seconds(took.Milliseconds())
	}
	if width := min(maxBar, s.p.Width-besideBar); width >= minBar {
		full := width * done / of
		text = strings.Repeat("█", full) + s.k.dim(strings.Repeat("░", width-full)) + "  " + text
	}
	text = a.name + "  " + text
	if most := s.p.Width - besideLine; most > 0 && s.p.Width < besideBar+minBar && utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) // a line that wraps is drawn in the wrong place
	}
	return text
}
