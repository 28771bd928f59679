// Package golden reads golden files: inputs and what a model must make of
// them, from an independent implementation in float64. Files may be compressed
// by zstd.
package golden

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/safetensors"
)

// maxSize bounds what a compressed file may unpack to.
const maxSize = 4 << 30

// File is what a model must give.
type File struct {
	Input  [][]int32 // rows of Seq ids
	Seq    int
	Vocab  int
	Logits []float32 // [len(Input), Seq, Vocab]
	Prompt []int32   // of the greedy continuation
	Greedy []int32   // may be empty
}

// Open reads a safetensors file with input_ids [B, S], logits [B, S, V] and,
// where it has them, greedy_prompt [P] and greedy [G].
func Open(path string) (*File, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	src, err := safetensors.Parse(path, data)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	g := &File{}
	ids, shape, err := ints(src, "input_ids")
	if err != nil {
		return nil, err
	}
	if len(shape) != 2 || len(ids) == 0 {
		return nil, fmt.Errorf("%s: input_ids%v: two dimensions are expected, rows of ids", path, shape)
	}
	g.Seq = shape[1]
	for i := range shape[0] {
		g.Input = append(g.Input, ids[i*g.Seq:(i+1)*g.Seq])
	}
	t, shape, ok := src.Lookup("logits")
	if !ok || len(shape) != 3 || shape[0] != len(g.Input) || shape[1] != g.Seq || shape[2] == 0 || !t.IsFloat() {
		return nil, fmt.Errorf("%s: logits[%d, %d, V] of floats is expected, found %s%v", path, len(g.Input), g.Seq, t, shape)
	}
	raw, err := src.Data("logits")
	if err != nil {
		return nil, err
	}
	g.Vocab = shape[2]
	g.Logits = make([]float32, shape.Elems())
	if err := quant.Decode(t, g.Logits, raw); err != nil {
		return nil, fmt.Errorf("%s: logits: %w", path, err)
	}
	if _, _, ok := src.Lookup("greedy"); !ok {
		return g, nil
	}
	if g.Prompt, _, err = ints(src, "greedy_prompt"); err != nil {
		return nil, err
	}
	if len(g.Prompt) == 0 {
		return nil, fmt.Errorf("%s: greedy_prompt is empty", path)
	}
	g.Greedy, _, err = ints(src, "greedy")
	return g, err
}

// ints reads a tensor of i32 or i64.
func ints(src *safetensors.Source, name string) ([]int32, tensor.Shape, error) {
	t, shape, ok := src.Lookup(name)
	if !ok || t != tensor.I32 && t != tensor.I64 {
		return nil, nil, fmt.Errorf("%s: %s of i32 or i64 is expected, found %s%v", src.Path(), name, t, shape)
	}
	raw, err := src.Data(name)
	if err != nil {
		return nil, nil, err
	}
	if t == tensor.I32 {
		return append([]int32(nil), tensor.View[int32](raw)...), shape, nil
	}
	ids := make([]int32, shape.Elems())
	for i, v := range tensor.View[int64](raw) {
		if v < 0 || v > math.MaxInt32 {
			return nil, nil, fmt.Errorf("%s: %s holds %d, which is no id", src.Path(), name, v)
		}
		ids[i] = int32(v)
	}
	return ids, shape, nil
}

// Read reads a file, unpacking it where its name ends in .zst.
func Read(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".zst") {
		return io.ReadAll(f)
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderMaxMemory(maxSize))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer z.Close()
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Unpack copies a folder's files to another folder, unpacking those whose
// names end in .zst: a model that is kept compressed becomes one that can be mapped.
func Unpack(from, to string) error {
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := Read(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, strings.TrimSuffix(f.Name(), ".zst")), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
