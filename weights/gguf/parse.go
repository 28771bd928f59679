package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tensor"
)

// Limits that no real file comes near; they keep messages short and recursion
// shallow.
const (
	maxKey       = 1<<16 - 1 // the specification's limit for keys
	maxName      = 1024      // GGML's own limit is 63
	maxDims      = 4         // GGML's
	maxNesting   = 4         // arrays of arrays
	minTensor    = 8 + 4 + 4 + 8
	minEntry     = 8 + 4 + 1
	defaultAlign = 32
)

// reader walks over a file's bytes. Its methods keep the first error and give
// zeros after it, so that callers check once per record.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// take gives the next n bytes, or nil at the end of the file.
func (r *reader) take(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n > r.left() {
		r.fail("the file ends within %s at byte %d: %d bytes wanted, %d left; it is truncated or damaged, fetch it again",
			what, r.pos, n, r.left())
		return nil
	}
	b := r.b[r.pos : r.pos+n]
	r.pos += n
	return b
}

func (r *reader) u32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a u64 that says how many things of at least size bytes follow;
// what the file cannot hold is an error before anything is allocated.
func (r *reader) count(size int, what string) int {
	at := r.pos
	n := r.u64(what)
	if r.err == nil && n > uint64(r.left()/size) {
		r.fail("%s at byte %d is %d, more than the %d bytes left can hold; the file is truncated or damaged, fetch it again",
			what, at, n, r.left())
		return 0
	}
	return int(n)
}

func (r *reader) str(what string, limit int) string {
	at := r.pos
	n := r.count(1, "the length of "+what)
	if n > limit {
		r.fail("the length of %s at byte %d is %d, expected at most %d; the file is damaged", what, at, n, limit)
	}
	return string(r.take(n, what))
}

// parse reads all but the tensors' data.
func parse(b []byte) (*File, error) {
	r := &reader{b: b}
	magic := r.take(4, "the magic")
	if r.err != nil || string(magic) != "GGUF" {
		return nil, fmt.Errorf("not a GGUF file: it starts with %q, expected \"GGUF\"", b[:min(4, len(b))])
	}
	f := &File{parts: [][]byte{b}, version: r.u32("the version")}
	switch v := f.version; {
	case r.err != nil:
		return nil, r.err
	case v>>16 != 0 && v&0xffff == 0:
		return nil, fmt.Errorf("big-endian GGUF version %d; greta reads little-endian files only: fetch the little-endian "+
			"file, or convert this one with the gguf package's gguf_convert_endian", v>>24|v>>8&0xff00)
	case v == 1:
		return nil, fmt.Errorf("GGUF version 1, whose sizes have 32 bits, is not supported; fetch a newer file of this model")
	case v != 2 && v != 3:
		return nil, fmt.Errorf("GGUF version %d; expected 2 or 3", v)
	}
	tensors := r.count(minTensor, "the number of tensors")
	entries := r.count(minEntry, "the number of metadata entries")
	if err := f.readEntries(r, entries); err != nil {
		return nil, err
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	// Metadata took bytes since the count was checked.
	if r.err == nil && tensors > r.left()/minTensor {
		return nil, fmt.Errorf("%d tensors are announced, more than the %d bytes left can describe; the file is truncated "+
			"or damaged, fetch it again", tensors, r.left())
	}
	if err := f.readTensors(r, tensors, align); err != nil {
		return nil, err
	}
	return f, nil
}

// show makes a key from a damaged file fit for one line of a message.
func show(key string) string {
	q := strconv.Quote(key[:min(len(key), 100)])
	if len(q) == len(key)+2 {
		return key
	}
	return q
}

func (f *File) readEntries(r *reader, n int) error {
	f.kvIndex = make(map[string]int, n)
	for i := range n {
		key := r.str(fmt.Sprintf("the key of metadata entry %d", i), maxKey)
		shown := show(key)
		t := ValueType(r.u32("the type of " + shown))
		if r.err != nil {
			return r.err
		}
		if _, dup := f.kvIndex[key]; dup {
			return fmt.Errorf("metadata key %s appears twice; the file is damaged", shown)
		}
		v := r.value(t, shown, 0)
		if r.err != nil {
			return r.err
		}
		f.kvIndex[key] = len(f.kvs)
		f.kvs = append(f.kvs, KV{key, v})
	}
	return r.err
}

// value reads one metadata value; depth counts arrays around it.
func (r *reader) value(t ValueType, key string, depth int) any {
	le := binary.LittleEndian
	switch {
	case r.err != nil:
		return nil
	case t >= numValueTypes:
		r.fail("metadata %s has type %d; expected 0 to %d", key, t, numValueTypes-1)
		return nil
	case t == TypeString:
		return r.str("metadata "+key, math.MaxInt)
	case t == TypeArray:
		return r.array(key, depth+1)
	}
	b := r.take(minBytes[t], key)
	if b == nil {
		return nil
	}
	switch t {
	case TypeUint8:
		return b[0]
	case TypeInt8:
		return int8(b[0])
	case TypeUint16:
		return le.Uint16(b)
	case TypeInt16:
		return int16(le.Uint16(b))
	case TypeUint32:
		return le.Uint32(b)
	case TypeInt32:
		return int32(le.Uint32(b))
	case TypeFloat32:
		return math.Float32frombits(le.Uint32(b))
	case TypeBool:
		return r.bool(b[0], key)
	case TypeUint64:
		return le.Uint64(b)
	case TypeInt64:
		return int64(le.Uint64(b))
	}
	return math.Float64frombits(le.Uint64(b))
}

func (r *reader) bool(c byte, key string) bool {
	if c > 1 {
		r.fail("metadata %s is a bool of value %d; expected 0 or 1", key, c)
	}
	return c == 1
}

func (r *reader) array(key string, depth int) any {
	t := ValueType(r.u32("the element type of " + key))
	if r.err == nil && t >= numValueTypes {
		r.fail("metadata %s is an array of type %d; expected 0 to %d", key, t, numValueTypes-1)
	}
	if depth > maxNesting {
		r.fail("metadata %s has arrays nested deeper than %d", key, maxNesting)
	}
	if r.err != nil {
		return nil
	}
	n := r.count(minBytes[t], "the length of "+key)
	switch t {
	case TypeString:
		return r.strings(n, key)
	case TypeArray:
		all := make([]any, n)
		for i := range all {
			all[i] = r.array(key, depth+1)
		}
		return all
	}
	b := r.take(n*minBytes[t], key)
	le := binary.LittleEndian
	switch t {
	case TypeUint8:
		return elems(b, n, 1, func(b []byte) uint8 { return b[0] })
	case TypeInt8:
		return elems(b, n, 1, func(b []byte) int8 { return int8(b[0]) })
	case TypeUint16:
		return elems(b, n, 2, le.Uint16)
	case TypeInt16:
		return elems(b, n, 2, func(b []byte) int16 { return int16(le.Uint16(b)) })
	case TypeUint32:
		return elems(b, n, 4, le.Uint32)
	case TypeInt32:
		return elems(b, n, 4, func(b []byte) int32 { return int32(le.Uint32(b)) })
	case TypeFloat32:
		return elems(b, n, 4, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) })
	case TypeBool:
		return elems(b, n, 1, func(b []byte) bool { return r.bool(b[0], key) })
	case TypeUint64:
		return elems(b, n, 8, le.Uint64)
	case TypeInt64:
		return elems(b, n, 8, func(b []byte) int64 { return int64(le.Uint64(b)) })
	}
	return elems(b, n, 8, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) })
}

func elems[E any](b []byte, n, size int, get func([]byte) E) []E {
	if b == nil && n > 0 { // the reader has failed
		return nil
	}
	out := make([]E, n)
	for i := range out {
		out[i] = get(b[i*size:])
	}
	return out
}

// strings copies an array's text in one piece: vocabularies have 100,000s.
func (r *reader) strings(n int, key string) []string {
	start := r.pos
	for range n {
		r.take(r.count(1, "the length of a string of "+key), key)
	}
	if r.err != nil {
		return nil
	}
	text := string(r.b[start:r.pos])
	out := make([]string, n)
	pos := 0
	for i := range out {
		size := int(binary.LittleEndian.Uint64(r.b[start+pos:]))
		out[i] = text[pos+8 : pos+8+size]
		pos += 8 + size
	}
	return out
}

func (f *File) alignment() (int, error) {
	if _, ok := f.kvIndex["general.alignment"]; !ok {
		return defaultAlign, nil
	}
	v, ok := f.intMeta("general.alignment")
	if !ok || v < 8 || v&(v-1) != 0 || v > 1<<30 {
		raw := f.kvs[f.kvIndex["general.alignment"]].Value
		return 0, fmt.Errorf("general.alignment is %v; expected a power of two from 8 on", raw)
	}
	return int(v), nil
}

func (f *File) readTensors(r *reader, n, align int) error {
	f.tensors = make([]entry, 0, n)
	f.byName = make(map[string]int, n)
	offsets := make([]uint64, n)
	for i := range n {
		e, off, err := r.tensor(i)
		if err != nil {
			return err
		}
		if _, dup := f.byName[e.Name]; dup {
			return fmt.Errorf("tensor %q is listed twice; the file is damaged", e.Name)
		}
		if off%uint64(align) != 0 {
			return fmt.Errorf("tensor %q starts at offset %d, which is not a multiple of the alignment %d; the file is damaged",
				e.Name, off, align)
		}
		offsets[i] = off
		f.byName[e.Name] = i
		f.tensors = append(f.tensors, e)
		f.names = append(f.names, e.Name)
	}
	// A file whose tensors are all empty may end before the padding does.
	data := min(len(r.b), (r.pos+align-1)&^(align-1))
	for i := range f.tensors {
		e := &f.tensors[i]
		have := len(r.b) - data
		if e.size > have || offsets[i] > uint64(have-e.size) {
			return fmt.Errorf("tensor %q (%s %v) needs %d bytes from offset %d on, but the file's data ends at %d; it is "+
				"truncated or damaged, fetch it again", e.Name, e.Type, e.Shape, e.size, offsets[i], have)
		}
		e.off = data + int(offsets[i])
	}
	return f.checkOverlap()
}

// checkOverlap finds damaged offsets that lie within the file.
func (f *File) checkOverlap() error {
	order := make([]*entry, len(f.tensors))
	for i := range f.tensors {
		order[i] = &f.tensors[i]
	}
	sorting.Sort(order, func(a, b *entry) int { return cmp.Compare(a.off, b.off) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.off+a.size > b.off {
			return fmt.Errorf("tensors %q and %q overlap from byte %d on; the file is damaged", a.Name, b.Name, b.off)
		}
	}
	return nil
}

// tensor reads one description; the offset still counts from the data's start.
func (r *reader) tensor(i int) (e entry, off uint64, err error) {
	e.Name = r.str(fmt.Sprintf("the name of tensor %d", i), maxName)
	shown := show(e.Name)
	dims := r.u32("the dimensions of tensor " + shown)
	if r.err == nil && dims > maxDims {
		return e, 0, fmt.Errorf("tensor %q has %d dimensions; expected at most %d", e.Name, dims, maxDims)
	}
	if r.err != nil {
		return e, 0, r.err
	}
	e.Shape = make(tensor.Shape, dims)
	for d := range e.Shape {
		n := r.u64("the sizes of tensor " + shown)
		if r.err == nil && n > math.MaxInt {
			return e, 0, fmt.Errorf("tensor %q has a size of %d in dimension %d; expected less than 2^63", e.Name, n, d)
		}
		e.Shape[len(e.Shape)-1-d] = int(n)
	}
	id := r.u32("the type of tensor " + shown)
	off = r.u64("the offset of tensor " + shown)
	if r.err != nil {
		return e, 0, r.err
	}
	if e.Type, err = TypeOf(id); err != nil {
		return e, 0, fmt.Errorf("tensor %q: %w; fetch the model in another format, such as q4_K_M, q8_0 or f16", e.Name, err)
	}
	if e.size, err = e.Shape.Bytes(e.Type); err != nil {
		return e, 0, fmt.Errorf("tensor %q: %w", e.Name, err)
	}
	return e, off, nil
}
