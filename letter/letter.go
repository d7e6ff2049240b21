// Package letter is the life of parked messages: which transitions exist, what
// a redelivery of a parked message means, and how a letter is named. The
// functions are pure; package consumer and the operators' [Desk] apply them by
// compare-and-set.
package letter

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Event is what happens to a letter.
type Event string

// Events of the pipeline, then those of people.
const (
	Applied    Event = "applied"
	Superseded Event = "superseded"
	Repeated   Event = "duplicate" // the handler found the fact there already
	Failed     Event = "failed"    // another attempt will follow
	Died       Event = "died"

	Replay  Event = "replay"
	Discard Event = "discard"
	Edit    Event = "edit"
	Approve Event = "approve"
)

// TransitionError says that an event does not fit the letter's state.
type TransitionError struct {
	State store.State
	Event Event
}

// Error names both.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("a letter in state %s cannot be %s", e.State, past[e.Event])
}

var past = map[Event]string{
	Applied: "applied", Superseded: "superseded", Repeated: "a duplicate", Failed: "retried",
	Died: "dead", Replay: "replayed", Discard: "discarded", Edit: "edited", Approve: "approved",
}

// Next is the state machine. Its error is a *TransitionError.
func Next(s store.State, e Event) (store.State, error) {
	switch s {
	case store.StateRetry, store.StateHeld:
		switch e {
		case Applied:
			return store.StateApplied, nil
		case Superseded:
			return store.StateSuperseded, nil
		case Repeated:
			return store.StateDuplicate, nil
		case Failed:
			return store.StateRetry, nil
		case Died:
			return store.StateDead, nil
		}
	case store.StateDead, store.StateEdited, store.StateApproved:
		switch e {
		case Replay:
			return store.StateRetry, nil
		case Discard:
			return store.StateDiscarded, nil
		case Edit:
			return store.StateEdited, nil
		case Approve:
			if s == store.StateEdited {
				return store.StateApproved, nil
			}
		}
	}
	return s, &TransitionError{s, e}
}

// Of returns the event by which a letter that was taken up ends in v.
func Of(v semel.Verdict) Event {
	switch v {
	case semel.Superseded:
		return Superseded
	case semel.Duplicate:
		return Repeated
	case semel.Parked:
		return Failed
	case semel.Dead:
		return Died
	}
	return Applied
}

// Reaction is what to do with a redelivery of a message that has a letter, or
// had one.
type Reaction uint8

const (
	// Note: ack, count it as seen. A duplicate.
	Note Reaction = iota
	// Propose: keep the new content beside the letter. A conflict.
	Propose
	// Contest: a letter of its own that can only be discarded or reissued.
	// A conflict.
	Contest
	// Again: a person gave it back: replay the letter as it is. A duplicate.
	Again
	// Revise: a person gave it back repaired: replay it with the new content.
	Revise
)

// Redelivered is the table of design §6. same: the content is the letter's
// (original or revised); returned: a person gave it back through the source;
// replay: content that comes back repaired is replayed, not only proposed. Of an
// edited letter the content that it had says nothing: the edit waits.
func Redelivered(s store.State, same, returned, replay bool) Reaction {
	_, err := Next(s, Replay)
	switch {
	case returned && s == store.StateDead && same:
		return Again
	case same:
		return Note
	case returned && err == nil && replay:
		return Revise
	case s.Open():
		return Propose
	}
	return Contest
}

// Ref names the letter of a message: derived from the consumer and the id with
// its content, or, for a message without id, from the place where it was found
// and its content (not every source can tell places apart). Writing a letter
// twice therefore meets itself.
func Ref(consumer, id string, f store.Fingerprint, origin string) string {
	h := sha256.New()
	if id != "" {
		fmt.Fprintf(h, "%q id %q %x", consumer, id, f)
	} else {
		fmt.Fprintf(h, "%q at %q %x", consumer, origin, f)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:10]))
}

// Reasons of letters whose message is at fault in its form: it did not decode,
// or the handler said so; and the source could make nothing of it, so that what
// there is may be a part of it.
const (
	Invalid   = "invalid"
	Malformed = "malformed"
)

// MaxErrorBytes bounds the stored error chain and the stored stack, each.
const MaxErrorBytes = 4096

// Chain writes an error and what it wraps, outermost first, one a line,
// leaving out links that only repeat the text of what they wrap.
func Chain(err error) string {
	var lines []string
	for last := ""; err != nil; err = errors.Unwrap(err) {
		if s := err.Error(); s != last {
			lines = append(lines, s)
			last = s
		}
	}
	return Clip(strings.Join(lines, "\n"))
}

// Clip bounds s to MaxErrorBytes, at a character.
func Clip(s string) string {
	if len(s) <= MaxErrorBytes {
		return s
	}
	return strings.ToValidUTF8(s[:MaxErrorBytes-len("…")], "") + "…"
}

// Recorded reports whether the inbox has a row that stands for the letter:
// letters without id have none, and that of a conflict belongs to the message
// it contests.
func Recorded(l *store.Letter) bool { return l.Message.ID != "" && !l.Conflict }

// BySource is who proposes content that the source delivers.
const BySource = "source"

// Notes that mark letters whose attempt was announced. Whoever meets one knows
// that the attempt did not come to an end: it then runs alone, and if it is met
// again after that, it is charged.
const (
	Started      = "started"
	StartedAlone = "started alone"
)

// CheckSaid refuses names and notes of people that the pipeline would take for
// its own.
func CheckSaid(by, note string) error {
	switch {
	case by == BySource:
		return fmt.Errorf("%q stands for what is sent again: a person needs another name", by)
	case note == Started || note == StartedAlone:
		return fmt.Errorf("the note %q marks attempts of the pipeline: say more", note)
	}
	return nil
}

// Unreadable is the note of proposed content that does not decode either. It
// is kept for people to see, and never replayed.
const Unreadable = "resent by the source; it cannot be read"

// Repair has a transition bring content that was read; a letter that could not
// be read says so, so that it is not read again. by names who read it. It
// reports whether the letter's place is behind a key that it does not have any
// more, which is to be released.
func Repair(m *store.Move, l *store.Letter, r store.Revised, by string) (release bool) {
	m.Revised = &r
	if release = l.Number > 0 && l.Message.Key != r.Message.Key; release {
		m.Number = 0
	}
	if Unread(l) { // what was wrong with it stays to be seen
		m.Class, m.Reason, m.Attempts = l.Class, "repaired", l.Attempts
		m.Attempt = store.Attempt{N: max(1, l.Attempts), Class: semel.ClassInvalid, Error: l.Error, Stack: l.Stack, Worker: by}
	}
	return release
}

// Unread reports whether the letter's message was never read: it has to be
// decoded before it can be tried. Without an id it never was.
func Unread(l *store.Letter) bool {
	return l.Message.ID == "" || l.Attempts == 0 && (l.Reason == Invalid || l.Reason == Malformed)
}
