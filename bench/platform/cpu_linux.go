package platform

import (
	"os"

	"golang.org/x/sys/unix"
)

// takeMemory maps memory of its own, on huge pages where the system has some: what
// address translation costs is another benchmark.
func takeMemory(bytes int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, max(bytes, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // only advice: kernels without it refuse
	return m, nil
}

func giveBack(m []byte) { _ = unix.Munmap(m) }

// pinThread holds the calling thread on one of the cores that the process may use, and
// gives what lets it go again. Where the system refuses, the thread stays free.
func pinThread(worker int) func() {
	var all, one unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() == 0 {
		return func() {}
	}
	left := worker % all.Count()
	for core := 0; core < 1024; core++ {
		if !all.IsSet(core) {
			continue
		}
		if left == 0 {
			one.Set(core)
			break
		}
		left--
	}
	if unix.SchedSetaffinity(0, &one) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetaffinity(0, &all) }
}
