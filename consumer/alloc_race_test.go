//go:build race

package consumer_test

// mostBytes is larger here because the race detector has pools forget at random.
const mostBytes = 256
