//go:build unix

package mmap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/internal/mapped"
)

func open(f *os.File, size int) (*File, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes: %w", f.Name(), size, err)
	}
	mapped.Add(b, f.Name())
	return &File{Data: b, unmap: func(b []byte) error {
		mapped.Remove(b)
		return unix.Munmap(b)
	}}, nil
}
