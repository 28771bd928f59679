package serve

import "syscall"

// mostFiles is how many files may be open.
func mostFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 900
	}
	return int(min(l.Cur, 1<<20))
}
