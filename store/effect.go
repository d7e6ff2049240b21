package store

import (
	"context"
	"time"
)

// EffectState is what is known of an effect outside of the database.
type EffectState string

const (
	// EffectIntended: somebody may be at it until the lease ends. After that,
	// nobody knows whether it happened: it is in doubt.
	EffectIntended EffectState = "intended"
	// EffectDone: it happened; the result is stored.
	EffectDone EffectState = "done"
	// EffectFailed: it is known not to have happened; it may be tried again.
	EffectFailed EffectState = "failed"
)

// Effect is the row of one effect outside of the database.
type Effect struct {
	// Key identifies the effect within its consumer, 1 to 255 bytes: the id of
	// the message that asks for it.
	Key string
	// Fingerprint is that of the request.
	Fingerprint Fingerprint
	State       EffectState
	// Token counts the changes of the row; it grows with each one. The token
	// of an intent is what its holder is fenced by.
	Token int64
	// Attempts counts intents.
	Attempts int
	// Holder made the last change.
	Holder string
	// Lease is what is left of the time for which an intent keeps others away,
	// by the database's clock; 0: it is over. It matters for EffectIntended.
	Lease time.Duration
	// Result is what the effect gave back; Size is how many bytes that were
	// before it was cut to what is stored.
	Result []byte
	Size   int64
	// Note says why it failed or is in doubt, or who settled it.
	Note string
	// Updated is when the row changed last, by the database's clock. Read only.
	Updated time.Time
}

// InDoubt reports whether nobody knows if it happened.
func (e *Effect) InDoubt() bool { return e.State == EffectIntended && e.Lease <= 0 }

// Effects keeps one row per (consumer, key). Each call is a transaction of its
// own, since none may be open while the effect is under way. Its methods are
// safe for concurrent use.
type Effects interface {
	// MoveEffect writes e where the token of the row is still from; 0: where
	// there is no row. The token is then from+1, whatever e says. It returns
	// the row as it is afterwards, moved or not; the zero Effect if there is
	// none. After an error it is not known whether the row moved.
	MoveEffect(ctx context.Context, consumer string, from int64, e Effect) (now Effect, moved bool, err error)
	// Effects returns rows in the order of their keys, as bytes.
	Effects(ctx context.Context, consumer string, q EffectQuery) ([]Effect, error)
}

// EffectQuery selects effects of one consumer.
type EffectQuery struct {
	// Key selects one effect; empty: those that are intended.
	Key string
	// After continues a listing behind this key.
	After string
	// Limit is how many are returned at most; 0 means 100.
	Limit int
}
