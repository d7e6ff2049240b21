//go:build !unix

package main

import "time"

// cpuTime is not known here; ratios of it come out as NaN.
func cpuTime() time.Duration { return 0 }
