package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// steps tells how far a bulk action is: one line that changes on a terminal, a
// line now and then elsewhere. One goroutine uses it.
type steps struct {
	name  string
	w     io.Writer
	live  bool
	shown bool // the live line is on the screen
	at    time.Time
}

func newSteps(name string, w io.Writer) *steps {
	_, live := terminal(w)
	return &steps{name: printable(name), w: w, live: live, at: time.Now()}
}

// say prints a line of its own.
func (s *steps) say(format string, args ...any) {
	s.end()
	fmt.Fprintf(s.w, "%s: %s\n", s.name, strings.ReplaceAll(printable(fmt.Sprintf(format, args...)), "\n", "\n  "))
}

// advance tells how many letters are done.
func (s *steps) advance(done, total int) {
	text := fmt.Sprintf("%s of %s letters", thousands(int64(done)), thousands(int64(total)))
	switch now := time.Now(); {
	case s.live:
		fmt.Fprint(s.w, "\r\x1b[K"+s.name+"  "+text)
		s.shown = true
	case now.Sub(s.at) >= plainEvery && done < total:
		fmt.Fprintf(s.w, "%s: %s\n", s.name, text)
		s.at = now
	}
}

// end takes the live line away.
func (s *steps) end() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
