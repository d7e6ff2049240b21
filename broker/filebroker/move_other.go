//go:build !linux

package filebroker

// renameNew would rename old to new in one step unless new exists; here that
// takes link and unlink.
func renameNew(old, new string) error { return errNoNative }
