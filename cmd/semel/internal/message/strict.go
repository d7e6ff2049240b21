package message

// Strict reports whether b is one JSON text that all readers understand alike:
// what a pipeline would take, without a byte order mark.
func Strict(b []byte) bool {
	s := scanner{maxDepth: DefaultMaxDepth}
	return s.scan(b, 0) == nil
}
