// Package mmap gives the bytes of a file without reading them all: mapped
// where the system can, read otherwise.
package mmap

import (
	"fmt"

	"github.com/greta-project/greta/internal/plainfile"
)

// File is a whole file's bytes, read-only: writing to Data faults.
type File struct {
	Data []byte
	// unmap is nil where Data is ordinary memory or empty.
	unmap func([]byte) error
}

// Open maps the regular file at path. Its bytes are aligned to a page, or to 8
// where they were read. The file may be renamed or removed while it is open,
// but truncating it makes later reads fault, as with every mapping: see
// internal/mapped.
func Open(path string) (*File, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // a mapping outlives its descriptor
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return &File{}, nil
	}
	if int64(int(st.Size())) != st.Size() {
		return nil, fmt.Errorf("%s: %d bytes do not fit this machine's address space", path, st.Size())
	}
	return open(f, int(st.Size()))
}

// Close gives the mapping back; a second call does nothing.
func (f *File) Close() error {
	data := f.Data
	f.Data = nil
	if f.unmap == nil || data == nil {
		return nil
	}
	return f.unmap(data)
}
