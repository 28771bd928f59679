package packed

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// inParallel divides rows among the cores, in runs of sixteen.
func inParallel(rows int, do func(from, to int) error) error {
	workers := max(1, min(runtime.GOMAXPROCS(0), rows/16))
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			mapped.Watch()
			defer mapped.Recover()
			from, to := (w*rows/workers)&^15, ((w+1)*rows/workers)&^15
			if w == workers-1 {
				to = rows
			}
			for ; from < to && errs[w] == nil; from += 16 {
				errs[w] = do(from, min(from+16, to))
			}
		})
	}
	wg.Wait()
	return errlist.Join(errs...)
}

// integers are a matrix w[n, k] = code[n, k]·scale[n, group of k].
type integers struct {
	rows, cols int
	group      int     // columns that share a scale
	index      []int32 // the group of each column, where it is not k/group
	nibbles    bool    // all codes are in -8 … 7
	// codes gives rows [from, to), zero points taken off.
	codes func(from, to int, q []int16)
	scale func(n, g int) float32
}

func (w *integers) groups() int { return (w.cols + w.group - 1) / w.group }

// at is the group of a column.
func (w *integers) at(k int) int {
	if w.index != nil {
		return int(w.index[k])
	}
	return k / w.group
}

// ordered drops an index that says nothing, and checks one that says something.
func (w *integers) ordered(groups int) error {
	same := true
	for k, g := range w.index {
		if g < 0 || int(g) >= groups {
			return fmt.Errorf("g_idx names group %d of %d", g, groups)
		}
		same = same && int(g) == k/w.group
	}
	if same {
		w.index = nil
	}
	return nil
}

// choose takes blocks of 32 where they hold the numbers exactly.
func (w *integers) choose() (tensor.Type, error) {
	exact := true
	for n := 0; n < w.rows && exact; n++ {
		for g := range w.groups() {
			v := w.scale(n, g)
			if back := tensor.F16ToF32(tensor.F32ToF16(v)); back != v {
				exact = false
				break
			}
		}
	}
	switch {
	case !exact:
		return tensor.F32, nil
	case w.index != nil || w.group%32 != 0 || w.cols%32 != 0:
		return tensor.F16, nil
	case w.nibbles:
		return tensor.Q4_0, nil
	}
	return tensor.Q8_0, nil
}

// fill writes rows as one of the types that choose gives.
func (w *integers) fill(t tensor.Type, dst []byte, from, to int) error {
	q := make([]int16, (to-from)*w.cols)
	w.codes(from, to, q)
	vals := make([]float32, w.cols)
	for n := from; n < to; n++ {
		row := q[(n-from)*w.cols:][:w.cols]
		out := dst[(n-from)*t.RowBytes(w.cols):]
		switch t {
		case tensor.Q4_0:
			for b := 0; b < len(row); b += 32 {
				block, c := out[b/32*18:][:18], row[b:b+32]
				binary.LittleEndian.PutUint16(block, tensor.F32ToF16(w.scale(n, b/w.group)))
				for j := range 16 {
					block[2+j] = byte(c[j]+8)&15 | byte(c[j+16]+8)<<4
				}
			}
		case tensor.Q8_0:
			for b := 0; b < len(row); b += 32 {
				block := out[b/32*34:][:34]
				binary.LittleEndian.PutUint16(block, tensor.F32ToF16(w.scale(n, b/w.group)))
				for j, c := range row[b : b+32] {
					if c < -128 || c > 127 {
						return fmt.Errorf("row %d has the code %d, which eight bits do not hold", n, c)
					}
					block[2+j] = byte(int8(c))
				}
			}
		default:
			for k, c := range row {
				vals[k] = float32(c) * w.scale(n, w.at(k))
			}
			if err := quant.Encode(t, out, vals, len(vals)); err != nil {
				return err
			}
		}
	}
	return nil
}

// floatsOf reads a tensor of plain floats, or of powers of two in a byte (e8m0).
func (s *Source) floatsOf(name string) ([]float32, error) {
	t, shape, _ := s.Source.Lookup(name)
	b, err := s.Source.Data(name)
	if err != nil {
		return nil, err
	}
	v := make([]float32, shape.Elems())
	if t == tensor.U8 {
		for i := range v {
			v[i] = float32(math.Ldexp(1, int(b[i])-127))
		}
		return v, nil
	}
	return v, quant.Decode(t, v, b)
}

// words reads a tensor of 32-bit integers.
func (s *Source) words(name string) ([]uint32, error) {
	b, err := s.Source.Data(name)
	return tensor.View[uint32](b), err
}

// field gives bits of a stream of words at i·stride.
func field(words []uint32, stride, offset, bit, bits int) int {
	at := offset + bit/32*stride
	v := uint64(words[at])
	if bit%32+bits > 32 {
		v |= uint64(words[at+stride]) << 32
	}
	return int(v >> (bit % 32) & (1<<bits - 1))
}

var plainFloats = []tensor.Type{tensor.F16, tensor.BF16, tensor.F32}

func finite(v []float32, name string) error {
	for i, x := range v {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s has %g at place %d: the checkpoint is damaged", name, x, i)
		}
	}
	return nil
}

// codesOf reads a matrix's packed codes and zero points, and its scales, which must be finite.
func (s *Source) codesOf(stem string) (codes, zeros []uint32, scales []float32, err error) {
	if codes, err = s.words(stem + ".qweight"); err != nil {
		return nil, nil, nil, err
	}
	if zeros, err = s.words(stem + ".qzeros"); err != nil {
		return nil, nil, nil, err
	}
	if scales, err = s.floatsOf(stem + ".scales"); err != nil {
		return nil, nil, nil, err
	}
	return codes, zeros, scales, finite(scales, "scales")
}
