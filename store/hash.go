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
	h := fnv(fnv(14695981039346656037, consumer)*31+1, id)
	h ^= h >> 33 // finalizer: FNV alone leaves the high bits of short ids alike
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
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
