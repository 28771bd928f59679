// Package gguf reads and writes GGUF, GGML's file of metadata and tensors,
// after https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: versions 2
// and 3, little-endian, in one file or split over several.
//
//	"GGUF" version:u32 tensors:u64 entries:u64
//	entries × (key:string type:u32 value)
//	tensors × (name:string dims:u32 dims×size:u64 type:u32 offset:u64)
//	padding to general.alignment (32), then the data; offsets count from here
//
// A string is its length as u64 and its bytes; an array is the type of its
// elements as u32, their number as u64, and the elements. Sizes are listed
// fastest-varying first.
package gguf

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/mmap"
)

// Info describes a tensor: its shape is slowest-varying first.
type Info struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
}

// entry is a tensor and where its bytes are.
type entry struct {
	Info
	part, off, size int
}

// File is an open GGUF file, or all files of a split one.
type File struct {
	path    string
	version uint32
	kvs     []KV
	kvIndex map[string]int
	tensors []entry
	byName  map[string]int
	names   []string
	parts   [][]byte
	maps    []*mmap.File
}

var _ weights.Source = (*File)(nil)

// Open maps the file at path and checks everything but the tensors' values:
// every size and offset lies within the file. Of a split file
// (NAME-00001-of-00003.gguf) any part may be named; all are opened.
func Open(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f, err := Parse(path, m.Data)
	if err != nil {
		return nil, errlist.Join(err, m.Close())
	}
	f.maps = []*mmap.File{m}
	count, _ := f.intMeta("split.count")
	if count <= 1 {
		return f, nil
	}
	whole, err := openSplit(path, f, int(min(count, maxParts+1)))
	if err != nil {
		return nil, errlist.Join(err, f.Close())
	}
	return whole, nil
}

// Parse reads a GGUF file from memory, as Open does from disk; path is for
// messages only. The File keeps b. The other parts of a split file are not
// looked for.
func Parse(path string, b []byte) (*File, error) {
	f, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", path, err)
	}
	f.path = path
	return f, nil
}

// Path is the path given to Open.
func (f *File) Path() string { return f.path }

// Format is "gguf".
func (f *File) Format() string { return "gguf" }

// Dialect is "gguf".
func (f *File) Dialect() string { return "gguf" }

// Version is the format's version, 2 or 3.
func (f *File) Version() int { return int(f.version) }

// KV lists the metadata with exact types, in the file's order. The caller
// must not change it.
func (f *File) KV() []KV { return f.kvs }

// Meta gives a value widened as weights.Source says; arrays of arrays are absent.
func (f *File) Meta(key string) (any, bool) {
	i, ok := f.kvIndex[key]
	if !ok {
		return nil, false
	}
	return widen(f.kvs[i].Value)
}

// Keys lists the metadata keys in the file's order.
func (f *File) Keys() []string {
	keys := make([]string, len(f.kvs))
	for i, kv := range f.kvs {
		keys[i] = kv.Key
	}
	return keys
}

// Names lists the tensors in the file's order.
func (f *File) Names() []string { return append([]string(nil), f.names...) }

// Lookup gives a tensor's type and shape, slowest-varying dimension first.
func (f *File) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	i, ok := f.byName[name]
	if !ok {
		return tensor.Invalid, nil, false
	}
	e := &f.tensors[i]
	return e.Type, append(tensor.Shape(nil), e.Shape...), true
}

// Data gives a tensor's bytes, mapped from the file, read-only, valid until Close.
func (f *File) Data(name string) ([]byte, error) {
	i, ok := f.byName[name]
	if !ok {
		return nil, fmt.Errorf("gguf: %s: no tensor %q among %d", f.path, name, len(f.tensors))
	}
	if f.parts == nil {
		return nil, fmt.Errorf("gguf: %s: read of %q after Close", f.path, name)
	}
	e := &f.tensors[i]
	return f.parts[e.part][e.off : e.off+e.size : e.off+e.size], nil
}

// Close unmaps the file; bytes from Data must not be used after it.
func (f *File) Close() error {
	f.parts = nil
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	f.maps = nil
	return errlist.Join(errs...)
}

func (f *File) intMeta(key string) (int64, bool) {
	v, _ := f.Meta(key)
	n, ok := v.(int64)
	return n, ok
}

// maxParts is what five digits in a part's name can say.
const maxParts = 99999

var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// openSplit opens the parts beside the one that is open already. The metadata
// is the first part's; llama.cpp's split tool puts it there alone.
func openSplit(path string, opened *File, count int) (_ *File, err error) {
	m := splitName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return nil, fmt.Errorf("gguf: %s: split.count says this is one of %d parts, but the name does not end in "+
			"-00001-of-%05d.gguf; give the parts back their names", path, count, count)
	}
	if n, _ := strconv.Atoi(m[3]); n != count {
		return nil, fmt.Errorf("gguf: %s: split.count is %d, but the name says %d parts", path, count, n)
	}
	whole := &File{path: path, byName: map[string]int{}}
	defer func() {
		if err != nil {
			for _, mm := range whole.maps {
				if len(opened.maps) == 0 || mm != opened.maps[0] { // that one is the caller's
					err = errlist.Join(err, mm.Close())
				}
			}
		}
	}()
	for i := range count {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count))
		part := opened
		if filepath.Base(name) != filepath.Base(path) {
			mm, err := mmap.Open(name)
			if err != nil {
				return nil, fmt.Errorf("gguf: part %d of %d of a split file: %w", i+1, count, err)
			}
			whole.maps = append(whole.maps, mm)
			if part, err = Parse(name, mm.Data); err != nil {
				return nil, err
			}
		} else {
			whole.maps = append(whole.maps, opened.maps...)
		}
		if no, ok := part.intMeta("split.no"); !ok || no != int64(i) {
			return nil, fmt.Errorf("gguf: %s: split.no is %d, expected %d; the parts are mixed up", name, no, i)
		}
		if i == 0 {
			whole.version, whole.kvs, whole.kvIndex = part.version, part.kvs, part.kvIndex
		}
		whole.parts = append(whole.parts, part.parts[0])
		for _, e := range part.tensors {
			if _, dup := whole.byName[e.Name]; dup {
				return nil, fmt.Errorf("gguf: %s: tensor %q is in an earlier part too", name, e.Name)
			}
			e.part = i
			whole.byName[e.Name] = len(whole.tensors)
			whole.tensors = append(whole.tensors, e)
			whole.names = append(whole.names, e.Name)
		}
	}
	if want, ok := whole.intMeta("split.tensors.count"); ok && want != int64(len(whole.tensors)) {
		return nil, fmt.Errorf("gguf: %s: split.tensors.count is %d, but the %d parts hold %d tensors", path, want, count,
			len(whole.tensors))
	}
	return whole, nil
}
