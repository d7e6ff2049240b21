package message

// Check reports what makes a body unreadable for every pipeline that looks
// into it: an error of JSON, or nesting deeper than maxDepth (0: the default).
// It quotes nothing of the body.
func Check(body []byte, maxDepth int) error {
	if maxDepth == 0 {
		maxDepth = DefaultMaxDepth
	}
	s := scanner{maxDepth: maxDepth}
	return s.scan(Trim(body), 0)
}

// Trim returns a body without a byte order mark.
func Trim(b []byte) []byte { return trim(b) }
