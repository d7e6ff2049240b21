package semel

import "strings"

// Trait is a set of things that a source guarantees. Each dedup strategy
// requires some; a pair that does not fit is refused at start.
type Trait uint8

const (
	// StablePosition: a redelivered message has the position it had before.
	StablePosition Trait = 1 << iota
	// ExclusiveScope: a scope has one owner at a time, named by events.
	ExclusiveScope
	// InOrderPerScope: a scope hands over in growing position, without
	// skipping one that exists.
	InOrderPerScope
	// StableKeyPartition: the same key always lands in the same scope.
	StableKeyPartition
)

// Positions is what a fence needs from a source.
const Positions = StablePosition | ExclusiveScope | InOrderPerScope

var traitNames = [...]string{"stable position", "exclusive scope", "in order per scope", "stable key partition"}

// Has reports whether t contains all of u.
func (t Trait) Has(u Trait) bool { return t&u == u }

// String lists the traits, or "none".
func (t Trait) String() string {
	var names []string
	for i, n := range traitNames {
		if t&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
