package inbox

import "github.com/semel-dev/semel"

// positionFacts: the fence row, which every batch of a source with scopes
// writes anyway, is the whole record.
func positionFacts() Facts {
	return Facts{
		Name:      "position",
		Record:    "none of its own: the fence row of the scope",
		Protects:  "redelivery, rebalance, a replay of the log, a zombie worker",
		Not:       "a producer that published twice; the same file delivered again under another name or inode",
		Requires:  semel.Positions,
		Condition: "the producer does not repeat itself, or repeats do no harm",
		Cost:      "one row update per scope and batch",
	}
}
