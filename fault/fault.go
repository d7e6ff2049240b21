// Package fault names the points at which a process may die, and lets a test
// stand there. Everything that moves a message from one safe place to another
// calls [Hit] between the two, so that every crash a user can meet has a name,
// and a test that kills a process at it.
package fault

import "sync/atomic"

// Point names a gap between two steps. The names are stable: tests, the
// verifier and the documentation use them.
type Point string

// Points of one batch through the pipeline, in order. The process dies right
// after the step.
const (
	Received  Point = "C1-received"  // deliveries are in memory
	Decoded   Point = "C2-decoded"   // id, key and version are known
	Opened    Point = "C3-opened"    // transaction open, mark and fences written
	Admitted  Point = "C4-admitted"  // inbox rows, letters, versions written
	Handled   Point = "C5-handled"   // handlers ran, nothing is committed
	Committed Point = "C6-committed" // committed, the process does not know
	Settling  Point = "C7-settling"  // known to be committed, not settled
)

// Points of letters.
const (
	Parked  Point = "D1-parked"  // letter written, transaction not committed
	Stored  Point = "D2-stored"  // letter committed, delivery not settled
	Retaken Point = "D3-retaken" // due letter taken up, not committed
)

// Points of careful mode.
const (
	Started Point = "S1-started" // start of a lone message committed, handler not run
)

// Points of an effect outside of the database, in order.
const (
	Intended    Point = "E1-intended"     // the intent is committed, nothing is called
	Called      Point = "E2-called"       // the call is over, its result is nowhere but in memory
	ResultKnown Point = "E3-result-known" // the result is committed, the caller does not know
)

// Effects returns the points of package effect.
func Effects() []Point { return []Point{Intended, Called, ResultKnown} }

// all is in the order of the pipeline.
var all = [...]Point{Received, Decoded, Opened, Admitted, Handled, Committed, Settling, Parked, Stored, Retaken, Started}

// All returns the pipeline's points. Adapters add theirs to their own lists.
func All() []Point { return append([]Point(nil), all[:]...) }

var hook atomic.Pointer[func(Point)]

// Hit calls the armed hook, if there is one. Unarmed it costs one atomic load.
func Hit(p Point) {
	if h := hook.Load(); h != nil {
		(*h)(p)
	}
}

// Arm installs h for the whole process and returns a function that restores
// what was there before. h may kill the process, block, or panic; it must be
// safe for concurrent use.
func Arm(h func(Point)) (restore func()) {
	old := hook.Swap(&h)
	return func() { hook.Store(old) }
}
