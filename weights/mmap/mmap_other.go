//go:build !unix

package mmap

import (
	"fmt"
	"io"
	"os"
)

func open(f *os.File, size int) (*File, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: reading %d bytes: %w", f.Name(), size, err)
	}
	return &File{Data: b}, nil
}
