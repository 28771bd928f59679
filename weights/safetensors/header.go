package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tensor"
)

const (
	maxHeader = 100_000_000 // the reference implementation's limit
	maxDims   = 32
	maxName   = 1 << 12
)

// dtypes are the element types as the format names them.
var dtypes = map[string]tensor.Type{
	"F64": tensor.F64, "F32": tensor.F32, "F16": tensor.F16, "BF16": tensor.BF16,
	"F8_E4M3": tensor.F8E4M3, "F8_E5M2": tensor.F8E5M2, "F8_E4M3FNUZ": tensor.F8E4M3FNUZ, "F8_E5M2FNUZ": tensor.F8E5M2FNUZ,
	"I64": tensor.I64, "I32": tensor.I32, "I16": tensor.I16, "I8": tensor.I8, "U8": tensor.U8, "BOOL": tensor.Bool,
}

// entry is a tensor and the place of its bytes in the file.
type entry struct {
	name  string
	typ   tensor.Type // Invalid: of a dtype that is not known
	dtype string
	shape tensor.Shape
	off   int
	size  int
}

// parse reads a file's header and checks every place against the file's size.
// It gives the tensors in the header's order.
func parse(b []byte) ([]entry, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("%d bytes; expected 8 for the header's length at least: not a safetensors file", len(b))
	}
	size := binary.LittleEndian.Uint64(b)
	switch {
	case size > maxHeader:
		return nil, fmt.Errorf("a header of %d bytes; expected at most %d: not a safetensors file, or damaged", size,
			maxHeader)
	case size > uint64(len(b)-8):
		return nil, fmt.Errorf("a header of %d bytes, but %d follow; the file is truncated or damaged, fetch it again", size,
			len(b)-8)
	}
	head, data := b[8:8+size], b[8+size:]
	if !utf8.Valid(head) {
		return nil, errors.New("the header is not UTF-8; the file is damaged, fetch it again")
	}
	entries, err := parseHeader(head, len(data))
	if err != nil {
		return nil, err
	}
	order := make([]*entry, len(entries))
	for i := range entries {
		entries[i].off += 8 + int(size)
		order[i] = &entries[i]
	}
	sorting.Sort(order, func(a, b *entry) int { return cmp.Compare(a.off, b.off) })
	var last *entry // the latest that has bytes
	for _, e := range order {
		if e.size == 0 {
			continue
		}
		if last != nil && last.off+last.size > e.off {
			return nil, fmt.Errorf("tensors %q and %q overlap; the file is damaged", last.name, e.name)
		}
		last = e
	}
	return entries, nil
}

// parseHeader reads the JSON object of tensors; have is the size of the data.
func parseHeader(head []byte, have int) ([]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, headerError(dec, err, "expected a JSON object")
	}
	var entries []entry
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, headerError(dec, err, "expected a tensor's name")
		}
		if name == "__metadata__" {
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				return nil, headerError(dec, err, "expected __metadata__'s value")
			}
			continue
		}
		if name == "" || len(name) > maxName {
			return nil, fmt.Errorf("a tensor's name has %d bytes; expected 1 to %d", len(name), maxName)
		}
		if seen[name] {
			return nil, fmt.Errorf("tensor %q is listed twice; the file is damaged", name)
		}
		seen[name] = true
		var raw struct {
			Dtype   *string  `json:"dtype"`
			Shape   *[]int64 `json:"shape"`
			Offsets []int64  `json:"data_offsets"`
		}
		if err := dec.Decode(&raw); err != nil {
			return nil, headerError(dec, err, fmt.Sprintf("reading tensor %q", name))
		}
		if raw.Dtype == nil || raw.Shape == nil || len(raw.Offsets) != 2 {
			return nil, fmt.Errorf("tensor %q: expected dtype, shape and two data_offsets", name)
		}
		e, err := check(name, *raw.Dtype, *raw.Shape, raw.Offsets[0], raw.Offsets[1], have)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if _, err := dec.Token(); err != nil {
		return nil, headerError(dec, err, "expected the end of the header's object")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, headerError(dec, nil, "expected only spaces after the header's object")
	}
	return entries, nil
}

func headerError(dec *json.Decoder, err error, what string) error {
	if err == nil {
		return fmt.Errorf("header, byte %d: %s; the file is damaged, fetch it again", dec.InputOffset(), what)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("header, byte %d: %s: %w; the file is damaged, fetch it again", dec.InputOffset(), what, err)
}

func check(name, dtype string, sizes []int64, begin, end int64, have int) (e entry, err error) {
	typ := dtypes[dtype] // Invalid where it is not known: an error where the tensor is read
	if len(sizes) > maxDims {
		return e, fmt.Errorf("tensor %q has %d dimensions; expected at most %d", name, len(sizes), maxDims)
	}
	shape := make(tensor.Shape, len(sizes))
	for i, n := range sizes {
		if int64(int(n)) != n {
			return e, fmt.Errorf("tensor %q: a size of %d does not fit this machine", name, n)
		}
		shape[i] = int(n)
	}
	size := int(end - begin)
	if typ != tensor.Invalid {
		if size, err = shape.Bytes(typ); err != nil {
			return e, fmt.Errorf("tensor %q: %w", name, err)
		}
	} else if dtype == "" || shape.Elems() > 0 && size == 0 {
		return e, fmt.Errorf("tensor %q has dtype %q and %d bytes", name, dtype, size)
	}
	switch {
	case begin < 0 || end < begin:
		return e, fmt.Errorf("tensor %q has data_offsets [%d, %d]; expected 0 ≤ begin ≤ end", name, begin, end)
	case end > int64(have):
		return e, fmt.Errorf("tensor %q ends at byte %d of the data, but the file has %d; it is truncated or damaged, "+
			"fetch it again", name, end, have)
	case end-begin != int64(size):
		return e, fmt.Errorf("tensor %q has %d bytes by its data_offsets, but %s %v takes %d; the file is damaged", name,
			end-begin, dtype, shape, size)
	}
	return entry{name: name, typ: typ, dtype: dtype, shape: shape, off: int(begin), size: size}, nil
}
