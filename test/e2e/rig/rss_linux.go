package rig

import "syscall"

func maxRSS(ru *syscall.Rusage) int64 { return ru.Maxrss * 1024 }
