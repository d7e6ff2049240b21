//go:build !unix

package trap

// stopSelf ends the process: here nothing could continue it.
func stopSelf() { Kill() }
