package semel

// Verdict is what became of one delivery or of one letter taken up again.
type Verdict uint8

const (
	// Undecided: not decided yet; never counted.
	Undecided Verdict = iota
	// Applied: the effect is committed.
	Applied
	// Duplicate: an earlier delivery with the same id and content decided it.
	Duplicate
	// Superseded: a newer version of the same key was applied before.
	Superseded
	// Conflict: the id is known with other content.
	Conflict
	// Filtered: a stated rule of the pipeline dropped it.
	Filtered
	// Dead: stored as a dead letter.
	Dead
	// Parked: stored to be tried again, or held behind its key.
	Parked
	// Released: given back to the source unhandled.
	Released
	// Dropped: ownership was lost; its next owner decides.
	Dropped
	// Discarded: a named person dropped it with a reason. Letters only.
	Discarded

	verdicts // number of verdicts
)

var verdictNames = [verdicts]string{
	"undecided", "applied", "duplicate", "superseded", "conflict", "filtered",
	"dead", "parked", "released", "dropped", "discarded",
}

// String returns the verdict's lower-case name, as used in JSON and in tables.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// ParseVerdict is the inverse of String; ok is false for other names.
func ParseVerdict(s string) (v Verdict, ok bool) {
	for i, n := range verdictNames {
		if n == s {
			return Verdict(i), true
		}
	}
	return Undecided, false
}

// Account counts what one process received and what became of it.
type Account struct {
	// Received counts deliveries handed over by the source; Taken counts
	// letters taken up again (due retries, released holds, replays).
	Received, Taken int64
	// Of counts outcomes by verdict.
	Of [verdicts]int64
	// Ties counts equal versions with different content that a tie-break
	// decided; they are also counted under their verdict.
	Ties int64
}

// Count adds n outcomes of v.
func (a *Account) Count(v Verdict, n int64) { a.Of[v] += n }

// Add adds b to a.
func (a *Account) Add(b Account) {
	a.Received += b.Received
	a.Taken += b.Taken
	a.Ties += b.Ties
	for i := range a.Of {
		a.Of[i] += b.Of[i]
	}
}

// Decided is the sum of all outcomes.
func (a *Account) Decided() int64 {
	var n int64
	for _, c := range a.Of[Applied:] {
		n += c
	}
	return n
}

// Balanced reports whether everything received or taken has one outcome.
// Between batches of a running process it may be false for a moment.
func (a *Account) Balanced() bool { return a.Received+a.Taken == a.Decided() }
