//go:build !unix

package cli

// stopSelf ends the process: here nothing could continue it.
func stopSelf() { kill() }
