package cpu

import (
	"bufio"
	"os"
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
