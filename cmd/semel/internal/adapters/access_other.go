//go:build !unix

package adapters

import "io/fs"

// writable cannot be asked here without trying it out.
func writable(string) error { return nil }

// linked reports whether a file has more than one name, which is not known
// here.
func linked(fs.FileInfo) bool { return false }
