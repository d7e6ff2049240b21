package inbox

// upsertFacts: nothing is remembered since doing it again changes nothing.
func upsertFacts() Facts {
	return Facts{
		Name:      "upsert",
		Record:    "none",
		Protects:  "everything, as far as the effect overwrites by id with the same content",
		Not:       "counters, appends, messages out of order (add versions)",
		Condition: "the effect is an overwrite that depends on nothing but the message",
		Cost:      "none",
	}
}
