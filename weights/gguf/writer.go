package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Writer writes a GGUF file of version 3 whose tensors are streamed. The file
// appears under its name when Close succeeds, whole or not at all.
type Writer struct {
	path    string
	tmp     *atomicfile.File // nil: closed or given up
	w       *bufio.Writer
	align   int
	tensors []Info
	sizes   []int
	cur     int // the tensor that is being written
	done    int // bytes of it that are written
	err     error
}

// Create starts a file beside path and writes its header: the metadata and
// the tensors' descriptions, in the given order. Alignment follows
// general.alignment where kvs has it. The caller then Writes the tensors'
// bytes in order, and ends with Close or Abort.
func Create(path string, kvs []KV, tensors []Info) (*Writer, error) {
	head, align, sizes, err := header(kvs, tensors)
	if err != nil {
		return nil, fmt.Errorf("gguf: writing %s: %w", path, err)
	}
	tmp, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return nil, fmt.Errorf("gguf: writing %s: %w", path, err)
	}
	w := &Writer{path: path, tmp: tmp, w: bufio.NewWriterSize(tmp, 1<<20), align: align, tensors: tensors, sizes: sizes}
	if _, err := w.w.Write(head); err != nil {
		return nil, errlist.Join(w.fail(err), w.Abort())
	}
	return w, nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("gguf: writing %s: %w", w.path, err)
	}
	return w.err
}

// Write appends bytes of the current tensor; when it is complete the next one
// becomes current. One call must not reach over a tensor's end.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if w.cur == len(w.tensors) {
		return 0, w.fail(fmt.Errorf("%d bytes after the last tensor", len(p)))
	}
	if left := w.sizes[w.cur] - w.done; len(p) > left {
		return 0, w.fail(fmt.Errorf("%d bytes for tensor %q, which takes %d more", len(p), w.tensors[w.cur].Name, left))
	}
	n, err := w.w.Write(p)
	w.done += n
	if err != nil {
		return n, w.fail(err)
	}
	if w.done == w.sizes[w.cur] {
		if _, err := w.w.Write(make([]byte, pad(w.done, w.align))); err != nil {
			return n, w.fail(err)
		}
		w.cur, w.done = w.cur+1, 0
	}
	return n, nil
}

// Fresh makes Close fail with fs.ErrExist where something came to be at the path meanwhile.
func (w *Writer) Fresh() { w.tmp.Fresh() }

// Close completes the file and gives it its name. Where bytes are missing or
// writing failed, nothing is left behind.
func (w *Writer) Close() error {
	if w.tmp == nil {
		return w.err
	}
	if w.err == nil && w.cur < len(w.tensors) {
		w.fail(fmt.Errorf("tensor %q has %d of its %d bytes", w.tensors[w.cur].Name, w.done, w.sizes[w.cur]))
	}
	if w.err == nil {
		w.check(w.w.Flush())
	}
	if w.err != nil {
		return errlist.Join(w.err, w.Abort())
	}
	w.check(w.tmp.Commit())
	w.tmp = nil
	return w.err
}

func (w *Writer) check(err error) {
	if err != nil {
		w.fail(err)
	}
}

// Abort removes the unfinished file; after Close it does nothing.
func (w *Writer) Abort() error {
	if w.tmp == nil {
		return nil
	}
	tmp := w.tmp
	w.tmp = nil
	return tmp.Discard()
}

func pad(n, align int) int { return (align - n%align) % align }

// header lays the file out: its bytes before the data, the alignment, and the
// size of each tensor.
func header(kvs []KV, tensors []Info) (head []byte, align int, sizes []int, err error) {
	f := &File{kvIndex: map[string]int{}}
	le := binary.LittleEndian
	head = append(head, "GGUF"...)
	head = le.AppendUint32(head, 3)
	head = le.AppendUint64(head, uint64(len(tensors)))
	head = le.AppendUint64(head, uint64(len(kvs)))
	for _, kv := range kvs {
		if _, dup := f.kvIndex[kv.Key]; dup || kv.Key == "" || len(kv.Key) > maxKey {
			return nil, 0, nil, fmt.Errorf("metadata key %s is empty, too long, or given twice", show(kv.Key))
		}
		f.kvIndex[kv.Key] = len(f.kvs)
		f.kvs = append(f.kvs, kv)
		head = appendString(head, kv.Key)
		if head, err = appendValue(head, kv.Value, true); err != nil {
			return nil, 0, nil, fmt.Errorf("metadata %s: %w", show(kv.Key), err)
		}
	}
	if align, err = f.alignment(); err != nil {
		return nil, 0, nil, err
	}
	seen := map[string]bool{}
	off := 0
	for _, t := range tensors {
		size, err := checkInfo(t)
		switch {
		case err != nil:
			return nil, 0, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		case seen[t.Name]:
			return nil, 0, nil, fmt.Errorf("tensor %q is given twice", t.Name)
		case off > math.MaxInt-size-align:
			return nil, 0, nil, fmt.Errorf("tensor %q: the file's size overflows", t.Name)
		}
		seen[t.Name] = true
		head = appendString(head, t.Name)
		head = le.AppendUint32(head, uint32(len(t.Shape)))
		for d := len(t.Shape) - 1; d >= 0; d-- {
			head = le.AppendUint64(head, uint64(t.Shape[d]))
		}
		id, _ := TypeID(t.Type)
		head = le.AppendUint32(head, id)
		head = le.AppendUint64(head, uint64(off))
		sizes = append(sizes, size)
		off += size + pad(size, align)
	}
	return append(head, make([]byte, pad(len(head), align))...), align, sizes, nil
}

// checkInfo refuses what a reader of the file would refuse.
func checkInfo(t Info) (size int, err error) {
	if t.Name == "" || len(t.Name) > maxName {
		return 0, fmt.Errorf("the name has %d bytes; expected 1 to %d", len(t.Name), maxName)
	}
	if _, ok := TypeID(t.Type); !ok {
		return 0, fmt.Errorf("GGUF has no type for %s; convert it to f16 or f32", t.Type)
	}
	if len(t.Shape) > maxDims {
		return 0, fmt.Errorf("shape %v has %d dimensions; expected at most %d", t.Shape, len(t.Shape), maxDims)
	}
	for _, n := range t.Shape {
		if n < 1 {
			return 0, fmt.Errorf("shape %v has a size below 1", t.Shape)
		}
	}
	return tensor.Shape(t.Shape).Bytes(t.Type)
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends a value, after its type where typed says so: elements of
// an array go without.
func appendValue(b []byte, v any, typed bool) (_ []byte, err error) {
	le := binary.LittleEndian
	typ, elem, ok := typeOf(v)
	if !ok {
		return nil, fmt.Errorf("values of type %T have no form in GGUF", v)
	}
	if typed {
		b = le.AppendUint32(b, uint32(typ))
	}
	switch v := v.(type) {
	case string:
		return appendString(b, v), nil
	case []string:
		b = appendArray(b, elem, len(v))
		for _, s := range v {
			b = appendString(b, s)
		}
		return b, nil
	case []any:
		b = appendArray(b, elem, len(v))
		for _, e := range v {
			if t, _, _ := typeOf(e); t != TypeArray {
				return nil, fmt.Errorf("an array of arrays holds a %T", e)
			}
			if b, err = appendValue(b, e, false); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	if typ == TypeArray {
		n, _ := binary.Append(nil, le, v) // fixed sizes only: cannot fail
		return append(appendArray(b, elem, len(n)/minBytes[elem]), n...), nil
	}
	return binary.Append(b, le, v)
}

func appendArray(b []byte, elem ValueType, n int) []byte {
	le := binary.LittleEndian
	return le.AppendUint64(le.AppendUint32(b, uint32(elem)), uint64(n))
}
