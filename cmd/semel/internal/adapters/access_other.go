//go:build !unix

package adapters

import "io/fs"

// writable cannot be asked here without trying it out.
func writable(string) error { return nil }

// links is how many names a file has, which is not known here.
func links(fs.FileInfo) uint64 { return 1 }
