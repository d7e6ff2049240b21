package filebroker

import "github.com/semel-dev/semel/fault"

// Points at which a process may die while it moves a file.
const (
	Marker   fault.Point = "F0-marker"   // the marker is taken, its file is not
	Claimed  fault.Point = "F1-claimed"  // the file is in processing/, nothing is known of it
	Moved    fault.Point = "F2-moved"    // it is in done/ (or deleted), nobody was told
	Noted    fault.Point = "F3-noted"    // the sidecar of a dead file is prepared, the file not moved
	Arrived  fault.Point = "F4-arrived"  // the file is in error/, its sidecar is not
	Returned fault.Point = "F5-returned" // a claim was given back to inbox/
	Taken    fault.Point = "F6-taken"    // a dead worker's claim is ours, nothing handed over
	Linked   fault.Point = "F7-linked"   // a file has its old name and its new one
	Split    fault.Point = "F8-split"    // a dead line is copied, not in error/ yet
	Parted   fault.Point = "F9-parted"   // a file is in done/ or error/, its checksum is not
)

var points = [...]fault.Point{Marker, Claimed, Moved, Noted, Arrived, Returned, Taken, Linked, Split, Parted}

// Points lists the fault points of this package in order.
func Points() []fault.Point { return append([]fault.Point(nil), points[:]...) }
