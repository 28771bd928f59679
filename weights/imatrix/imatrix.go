// Package imatrix reads and writes importance matrices: for each matrix of a model the mean square of what it is
// multiplied with, column by column, by which quantisation weighs errors. Both of llama.cpp's forms are read: its own
// binary one (.dat) and GGUF files, which are written.
package imatrix

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/gguf"
)

// Matrix is that of one tensor, or of a stack of them: Sums has a row of Cols sums of squares for each, Counts how many
// rows of activations each has met.
type Matrix struct {
	Cols   int
	Sums   []float32
	Counts []float32
}

// Means gives the mean squares; of a matrix of a stack that met nothing they are ones.
func (m *Matrix) Means() []float32 {
	out := make([]float32, len(m.Sums))
	for i, v := range m.Sums {
		if n := m.Counts[i/m.Cols]; n > 0 {
			out[i] = v / n
		} else {
			out[i] = 1
		}
	}
	return out
}

// Matrices are those of a model by the names of its tensors.
type Matrices map[string]*Matrix

const (
	sums, counts = ".in_sum2", ".counts"
	maxEntries   = 1 << 20
)

// Read reads a file of either form.
func Read(path string) (Matrices, error) {
	b, err := plainfile.Read(path)
	if err != nil {
		return nil, err
	}
	var m Matrices
	if bytes.HasPrefix(b, []byte("GGUF")) {
		m, err = readGGUF(path)
	} else {
		m, err = parse(b)
	}
	if err == nil && len(m) == 0 {
		err = fmt.Errorf("it holds no matrices")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no importance matrix that can be read: %w", path, err)
	}
	return m, nil
}

// parse reads the binary form: a count, and for each tensor the name, the calls, the number of values and the values,
// means of squares times calls.
func parse(b []byte) (Matrices, error) {
	le := binary.LittleEndian
	number := func() (int, error) {
		if len(b) < 4 {
			return 0, fmt.Errorf("it ends in the middle of an entry")
		}
		n := int(int32(le.Uint32(b)))
		b = b[4:]
		return n, nil
	}
	n, err := number()
	if err != nil || n < 1 || n > maxEntries {
		return nil, fmt.Errorf("%d entries: neither GGUF nor llama.cpp's .dat", n)
	}
	m := Matrices{}
	for range n {
		size, err := number()
		if err != nil || size < 1 || size > 1<<12 || size > len(b) {
			return nil, fmt.Errorf("a name of %d bytes, %d are left", size, len(b))
		}
		name := string(b[:size])
		b = b[size:]
		calls, err := number()
		if err != nil {
			return nil, err
		}
		vals, err := number()
		if err != nil || vals < 1 || vals > len(b)/4 {
			return nil, fmt.Errorf("%q has %d values, %d bytes are left", name, vals, len(b))
		}
		x := &Matrix{Cols: vals, Sums: make([]float32, vals), Counts: []float32{float32(max(calls, 1))}}
		for i := range x.Sums {
			x.Sums[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
		if err := x.check(); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		m[name], b = x, b[4*vals:]
	}
	return m, nil
}

func (m *Matrix) check() error {
	for _, v := range slices.Concat(m.Sums, m.Counts) {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			return fmt.Errorf("it holds %g, a mean square is wanted", v)
		}
	}
	return nil
}

func readGGUF(path string) (Matrices, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	floats := func(name string) ([]float32, tensor.Shape, error) {
		t, shape, ok := f.Lookup(name)
		if !ok || t != tensor.F32 {
			return nil, nil, fmt.Errorf("no tensor %q of f32", name)
		}
		b, err := f.Data(name)
		return append([]float32(nil), tensor.View[float32](b)...), shape, err
	}
	m := Matrices{}
	for _, name := range f.Names() {
		of, ok := strings.CutSuffix(name, sums)
		if !ok {
			continue
		}
		x := &Matrix{}
		var shape tensor.Shape
		if x.Sums, shape, err = floats(name); err != nil {
			return nil, err
		}
		if x.Counts, _, err = floats(of + counts); err != nil {
			return nil, err
		}
		if x.Cols = shape.Last(); x.Cols < 1 || len(x.Sums) != x.Cols*len(x.Counts) {
			return nil, fmt.Errorf("%q has shape %v and %d counts", name, shape, len(x.Counts))
		}
		if err := x.check(); err != nil {
			return nil, fmt.Errorf("%q: %w", of, err)
		}
		m[of] = x
	}
	return m, nil
}

// Write writes a GGUF file; text says what the activations are from.
func (m Matrices) Write(path, text string, chunk, chunks int) error {
	kvs := []gguf.KV{{Key: "general.type", Value: "imatrix"}, {Key: "imatrix.datasets", Value: []string{text}},
		{Key: "imatrix.chunk_count", Value: uint32(chunks)}, {Key: "imatrix.chunk_size", Value: uint32(chunk)}}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	var infos []gguf.Info
	for _, name := range names {
		n := len(m[name].Counts)
		infos = append(infos, gguf.Info{Name: name + sums, Type: tensor.F32, Shape: tensor.Shape{n, m[name].Cols}},
			gguf.Info{Name: name + counts, Type: tensor.F32, Shape: tensor.Shape{n, 1}})
	}
	w, err := gguf.Create(path, kvs, infos)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, v := range [][]float32{m[name].Sums, m[name].Counts} {
			if _, err := w.Write(tensor.Bytes(v)); err != nil {
				os.Remove(path)
				return err
			}
		}
	}
	return w.Close()
}
