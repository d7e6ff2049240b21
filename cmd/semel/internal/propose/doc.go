// Package propose looks at messages of a user and says what could be their id,
// their key and their version, and why; and why not something else.
//
// It reads hostile files: how much it looks at is bounded in messages, bytes,
// fields and time, and nothing of a value ever appears in what it says.
package propose
