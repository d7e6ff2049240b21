// Package inbox is the dedup axis: it finds out whether a message was decided
// before. Each strategy states what it protects against, what it does not,
// what it requires of the source, and what it costs; a pair that does not fit
// is refused at start.
//
// Dedup is independent of versions: package arbitrate decides between
// different messages about the same key, this package between deliveries of
// the same message.
package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// Strategy names a way of knowing what was decided. The zero value is Table.
type Strategy uint8

const (
	// Table keeps one row per message, in the handler's transaction. It
	// protects against any repeat of an id while it is kept, and not against
	// the same fact under another id. It requires nothing of the source, and
	// costs one indexed row per message.
	Table Strategy = iota
	// Position relies on the fence row, which is written anyway. It protects
	// against redelivery, rebalance and zombies, and not against a producer
	// that published twice. It requires stable positions, one owner per scope
	// and hand-over in order; it costs one row update per scope and batch.
	Position
	// UniqueKey relies on a unique key of the user's own table. It protects
	// against the same fact under new ids, too, and not the effects beside
	// that row. It requires that the handler tells a row it found there by
	// semel.ErrDuplicate, and costs nothing of its own.
	UniqueKey
	// Upsert relies on the effect being an overwrite by id. It protects as
	// far as doing it again changes nothing, which counters and appends do
	// not. It requires that of the handler, and costs nothing.
	Upsert

	strategies
)

// Facts say what a strategy does. The documentation's table is made of them.
type Facts struct {
	Name string
	// Record is what is stored per message.
	Record string
	// Protects and Not say against which repeats it does and does not help.
	Protects, Not string
	// Requires are traits the source must have; Condition is what the user
	// must see to.
	Requires  semel.Trait
	Condition string
	// Cost is relative to no dedup, measured; see docs/benchmarks.md.
	Cost string
	// Remembers: ids are kept for a time, so the retention has to outlast
	// the source's redelivery horizon.
	Remembers bool
}

// Facts returns what is known of s; the zero Facts for an unknown strategy.
func (s Strategy) Facts() Facts {
	switch s {
	case Table:
		return tableFacts()
	case Position:
		return positionFacts()
	case UniqueKey:
		return uniqueKeyFacts()
	case Upsert:
		return upsertFacts()
	}
	return Facts{}
}

// String returns the name used in pipeline files.
func (s Strategy) String() string { return s.Facts().Name }

// All returns every strategy.
func All() []Strategy {
	all := make([]Strategy, 0, strategies)
	for s := range strategies {
		all = append(all, s)
	}
	return all
}

// Parse returns the strategy with that name.
func Parse(name string) (Strategy, error) {
	var names []string
	for _, s := range All() {
		if s.String() == name {
			return s, nil
		}
		names = append(names, s.String())
	}
	return 0, fmt.Errorf("unknown inbox %q: one of %s", name, strings.Join(names, ", "))
}

// UnfitError says why a strategy cannot work with a source.
type UnfitError struct {
	Strategy Strategy
	Missing  semel.Trait
	Fit      []Strategy
}

// Error names what is missing and what would fit.
func (e *UnfitError) Error() string {
	var fit []string
	for _, s := range e.Fit {
		fit = append(fit, s.String())
	}
	return fmt.Sprintf("inbox %s needs a source with %s: without it a late message would be taken for a decided one and lost; use %s",
		e.Strategy, e.Missing, strings.Join(fit, ", "))
}

// Fit checks a strategy against what a source guarantees. The error, if any,
// is an *UnfitError.
func Fit(s Strategy, have semel.Trait) error {
	if have.Has(s.Facts().Requires) {
		return nil
	}
	e := &UnfitError{Strategy: s, Missing: s.Facts().Requires &^ have}
	for _, alt := range All() {
		if have.Has(alt.Facts().Requires) {
			e.Fit = append(e.Fit, alt)
		}
	}
	return e
}

// Dedup is a strategy at work for one consumer. It is used inside the
// transaction of a batch, by one goroutine at a time.
type Dedup[Tx any] interface {
	// Claim records messages as decided and appends those known before to
	// prior. r is sorted by id, without repeats.
	Claim(ctx context.Context, tx Tx, r []store.Record, prior []store.Prior) ([]store.Prior, error)
	// Amend corrects the verdict of records that exist.
	Amend(ctx context.Context, tx Tx, r []store.Record) error
}

// Open returns s at work on a store.
func Open[Tx any](s Strategy, consumer string, r store.Records[Tx]) Dedup[Tx] {
	if s.Facts().Remembers {
		return table[Tx]{consumer, r}
	}
	return unrecorded[Tx]{}
}

// unrecorded serves strategies whose knowledge is elsewhere: in the fence, in
// the user's own constraint, in the nature of the effect.
type unrecorded[Tx any] struct{}

func (unrecorded[Tx]) Claim(_ context.Context, _ Tx, _ []store.Record, p []store.Prior) ([]store.Prior, error) {
	return p, nil
}

func (unrecorded[Tx]) Amend(context.Context, Tx, []store.Record) error { return nil }
