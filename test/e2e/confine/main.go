// Command confine runs a program under a kernel that can do less:
//
//	-norename     no rename that refuses to replace a file (renameat2), as on
//	              old kernels and some network file systems
//	-nospace N    no room in any file at or beyond byte N (Linux only)
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

func main() {
	norename := flag.Bool("norename", false, "")
	nospace := flag.Uint("nospace", 0, "")
	flag.Parse()
	runtime.LockOSThread() // filters are the thread's, and exec keeps them
	err := confine(*norename, uint32(*nospace))
	if err == nil {
		err = syscall.Exec(flag.Arg(0), flag.Args(), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "confine:", err)
	os.Exit(1)
}
