// Package chaos kills and stops real processes at random while they share
// queues, and then checks that the effects are exact and the accounts balance.
//
// "make chaos" runs it for a minute; "go test" runs a short form. A failure
// prints the seed and the command that uses it again. Processes do not take
// turns as they are told, so the same seed makes the same input and the same
// plan of faults, not the same run.
package chaos
