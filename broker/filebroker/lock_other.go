//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filebroker

import "os"

// tryLock cannot prove anything here: only the age of the lock file counts.
func tryLock(*os.File) error { return errNoLocks }

// lockSurvivesMove: a directory can be renamed while a file in it is open.
const lockSurvivesMove = false
