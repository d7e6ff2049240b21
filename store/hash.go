package store

import (
	"crypto/sha256"
	"time"

	"github.com/semel-dev/semel"
)

// Hash is a 64-bit hash of an id, keyed by the consumer's name. Sums of it let
// reconciliation compare sets of ids without reading them; it is never used to
// tell one message from another.
func Hash(consumer, id string) uint64 {
	h := mix(mix(0x243f6a8885a308d3, consumer), id)
	h ^= h >> 33 // MurmurHash3's finalizer: the last multiplication reaches only the high bits
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// mix takes s into h, eight bytes at a time, each by steps that can be undone:
// different words make different states. The length goes first, so that what
// ends here does not look as if the next string began earlier.
func mix(h uint64, s string) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h = (h ^ uint64(len(s))) * odd
	for ; len(s) > 8; s = s[8:] {
		h = (h ^ h>>32 ^ word(s[:8])) * odd
	}
	return (h ^ h>>32 ^ word(s)) * odd
}

// word is the number that the bytes of s, at most eight, spell; the first is
// the lowest, on every machine.
func word(s string) (w uint64) {
	if len(s) == 8 {
		return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	}
	for i := range len(s) {
		w |= uint64(s[i]) << (8 * i)
	}
	return w
}

// Bucket is the UTC day of t in days since 1970; 0 if t is zero or earlier.
func Bucket(t time.Time) int64 {
	if t.IsZero() || t.Unix() < 0 {
		return 0
	}
	return t.Unix() / 86400
}

// Print is the fingerprint of a message: a hash of its body, in which nil
// differs from empty. Headers are left out, since sources add to them.
func Print(m *semel.Message) Fingerprint {
	if m.Body == nil {
		return Fingerprint{1}
	}
	sum := sha256.Sum256(m.Body)
	return Fingerprint(sum[:16])
}
