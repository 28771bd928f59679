package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/memlimit"
)

// hugeFrom is the size from which memory is asked for in huge pages.
const hugeFrom = 4 << 20

// askFrom is the size from which the system is asked whether there is so much: it promises more than it has.
const askFrom = 16 << 20

// buffer is host memory: allocated, or someone else's that was mapped.
type buffer struct {
	data []byte
	use  backends.Use
	free func([]byte) error // nil: not ours
}

// Size is the number of bytes.
func (b *buffer) Size() int { return len(b.data) }

// Use is what the buffer is for.
func (b *buffer) Use() backends.Use { return b.use }

// Bytes gives the memory itself, which a loader may write.
func (b *buffer) Bytes() []byte { return b.data }

// Free gives the memory back.
func (b *buffer) Free() error {
	data, free := b.data, b.free
	b.data, b.free = nil, nil
	if free == nil || data == nil {
		return nil
	}
	return free(data)
}

// Alloc gives zeroed memory that starts on a page.
func (d *Device) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	if bytes == 0 {
		return &buffer{}, nil
	}
	if bytes >= askFrom {
		if have, by := d.FreeMemory(); have >= 0 && int64(bytes) > have {
			return nil, &backends.OutOfMemory{Need: int64(bytes), Have: have, What: use.String(), By: by}
		}
	}
	data, free, err := allocate(bytes)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of %v: %w", bytes, use, err)
	}
	return &buffer{data, use, free}, nil
}

// FreeMemory is what the system and the process's control groups leave.
func (d *Device) FreeMemory() (int64, string) {
	left := memlimit.Now()
	return left.Bytes, left.By
}

// Map uses memory as it is, such as a mapped file. Weights are only read.
func (d *Device) Map(data []byte) (backends.Buffer, error) {
	return &buffer{data: data, use: backends.Weights}, nil
}

// hostRange gives bytes [offset, offset+n) of a buffer of this device.
func hostRange(b backends.Buffer, offset, n int) ([]byte, error) {
	h, ok := b.(*buffer)
	if !ok {
		return nil, fmt.Errorf("a buffer of another device (%T)", b)
	}
	if offset < 0 || n < 0 || offset > len(h.data) || n > len(h.data)-offset {
		return nil, fmt.Errorf("bytes %d to %d of a buffer of %d", offset, offset+n, len(h.data))
	}
	return h.data[offset : offset+n : offset+n], nil
}
