package cpu

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// allocate maps anonymous memory, which is not counted by the garbage
// collector and is given back whole.
func allocate(bytes int) ([]byte, func([]byte) error, error) {
	data, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	if bytes >= hugeFrom {
		_ = unix.Madvise(data, unix.MADV_HUGEPAGE) // only advice: kernels without it refuse
	}
	return data, unix.Munmap, nil
}

// processorName reads the model's name, or says "CPU".
func processorName() string {
	if name := procField("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return "CPU"
}

// availableMemory is what the kernel thinks can be had without swapping,
// bounded by the control group; 0 where unknown.
func availableMemory() int {
	kb, _ := strconv.Atoi(strings.TrimSuffix(procField("/proc/meminfo", "MemAvailable"), " kB"))
	have := kb << 10
	read := func(name string) (int, bool) {
		b, err := os.ReadFile("/sys/fs/cgroup/" + name)
		n, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
		return n, err == nil && err2 == nil
	}
	limit, ok := read("memory.max")
	used, ok2 := read("memory.current")
	if ok && ok2 {
		if cache, err := strconv.Atoi(groupStat("file")); err == nil {
			used -= cache // page cache is given back under pressure
		}
		have = min(have, limit-used)
	}
	return max(have, 0)
}

func groupStat(key string) string {
	b, err := os.ReadFile("/sys/fs/cgroup/memory.stat")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == key {
			return value
		}
	}
	return ""
}

// procField finds "key : value" in a file of /proc.
func procField(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
