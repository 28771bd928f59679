package environ

import "golang.org/x/sys/unix"

// affinity counts the processors that this process may run on; 0 where that is not known.
func affinity() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(unix.Getpid(), &set) != nil {
		return 0
	}
	return set.Count()
}

// cpuSeconds is the processors' time that this process and the children that it waited for have used.
func cpuSeconds() (s float64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			s += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return s
}
