package consumer

import (
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Careful mode: a process that died may have been killed by a message. Whoever
// takes its work over runs it in halves, each announced by a committed start,
// until a message that was started alone has taken a process down MaxCrashes
// times. The functions here are pure; the rows are store.Suspect.

// takeover is the suspicion against a unit whose holder vanished. known: s was
// on record; proven: the holder is dead for certain; most: the largest batch
// that may have been running.
func takeover(s store.Suspect, known, proven bool, most int) store.Suspect {
	switch {
	case !known:
		s.Limit, s.Left = max(1, most/2), int64(most)
	case s.Started == 1:
		s.Limit, s.Left = 1, 1
		if proven {
			s.Charged++
		}
	case s.Started > 1:
		s.Limit, s.Left = s.Started/2, int64(s.Started)
	}
	s.Started = 0
	return s
}

// start announces a batch of n that begins at the given offset.
func start(s store.Suspect, n int, at semel.Offset) store.Suspect {
	if n == 1 && s.At != at {
		s.At, s.Charged = at, 0
	}
	s.Started = n
	return s
}

// decided clears n messages of the suspicion. The result with Limit 0 means
// that nothing of it is left.
func decided(s store.Suspect, n int) store.Suspect {
	s.Started = 0
	if s.Left -= int64(n); s.Left <= 0 {
		return store.Suspect{Unit: s.Unit}
	}
	return s
}
