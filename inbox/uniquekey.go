package inbox

// uniqueKeyFacts: the user's own constraint decides, and the handler tells by
// returning semel.ErrDuplicate.
func uniqueKeyFacts() Facts {
	return Facts{
		Name:      "unique-key",
		Record:    "none: a unique key of the business table",
		Protects:  "any repeat of the business fact, under new ids too, for as long as the row lives",
		Not:       "effects beside that row, unless they run only when it was new",
		Condition: "the handler inserts with ON CONFLICT DO NOTHING and returns ErrDuplicate for no row (`none: duplicate`)",
		Cost:      "that of the effect",
	}
}
