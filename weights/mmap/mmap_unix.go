//go:build unix

package mmap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func open(f *os.File, size int) (*File, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes: %w", f.Name(), size, err)
	}
	return &File{Data: b, unmap: unix.Munmap}, nil
}
