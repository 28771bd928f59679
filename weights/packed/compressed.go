package packed

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/tensor"
)

// compressed-tensors keeps, for w of [N, K],
//
//	weight_packed      i32[N, ⌈K·bits/32⌉]   codes one after another, plus half of their range
//	weight_scale       [N, G]
//	weight_zero_point  i32[⌈N·bits/32⌉, G]   packed down the rows, plus half of the range; absent where symmetric
//	weight_g_idx       i32[K]                the group of each column; optional
//	weight_shape       [N, K]
//
// where older versions put no code into two words: of 3, 5, 6 and 7 bits a word has ⌊32/bits⌋;
// or weight_packed u8[N, K/2] with e4m3 scales (nvfp4) or powers of two (mxfp4). Kinds that are not packed (int8 and
// fp8) have weight and weight_scale.

func compressed(s *Source, at, stem string) error {
	name := stem + ".weight_packed"
	typ, shape, err := s.need(name, 2, tensor.I32, tensor.U8)
	if err != nil {
		return err
	}
	if typ == tensor.U8 {
		if s.has(stem + ".weight_global_scale") {
			return nvfp4(s, stem, name, stem+".weight_global_scale", true)
		}
		return mxfp4Rows(s, stem)
	}
	for _, word := range []string{s.word(at + "format"), s.word(at + "sparsity_config.format")} {
		if strings.Contains(word, "marlin") || strings.Contains(word, "sparse") {
			return fmt.Errorf("config.json says format %q, which is not read; pack-quantized is", word)
		}
	}
	_, dims, err := s.need(stem+".weight_shape", 1, tensor.I64, tensor.I32)
	if err != nil || dims[0] != 2 {
		return fmt.Errorf("weight_shape is %v, expected two numbers (%v)", dims, err)
	}
	rows, cols, err := s.twoNumbers(stem + ".weight_shape")
	if err != nil {
		return err
	}
	if rows != shape[0] || cols < 1 || shape[1] < 1 || cols > 32*shape[1] {
		return fmt.Errorf("codes %v do not fit a matrix of [%d, %d]", shape, rows, cols)
	}
	p, err := s.packing(at, cols, shape[1])
	if err != nil {
		return fmt.Errorf("codes %v of a matrix of [%d, %d]: %w", shape, rows, cols, err)
	}
	bits := p.bits
	_, ss, err := s.need(stem+".weight_scale", 2, plainFloats...)
	if err != nil {
		return err
	}
	if ss[0] != rows && ss[0] != 1 || ss[1] < 1 || cols%ss[1] != 0 {
		return fmt.Errorf("scales %v do not fit a matrix of [%d, %d]", ss, rows, cols)
	}
	w := &integers{rows: rows, cols: cols, group: cols / ss[1]}
	load := func() error { return loadCompressed(s, stem, w, p, shape, ss) }
	s.addIntegers(stem, fmt.Sprintf("compressed-tensors int%d", bits), w, load, bits, name, stem+".weight_scale",
		stem+".weight_zero_point", stem+".weight_g_idx", stem+".weight_shape")
	return nil
}

// packing is how codes lie in words: bits each, and if whole none in two words.
type packing struct {
	bits  int
	whole bool
}

// words is the number of words that n codes take.
func (p packing) words(n int) int {
	if p.whole {
		return (n + 32/p.bits - 1) / (32 / p.bits)
	}
	return (n*p.bits + 31) / 32
}

// at gives the i-th code of words that lie stride apart.
func (p packing) at(words []uint32, stride, offset, i int) int {
	if p.whole {
		n := 32 / p.bits
		return int(words[offset+i/n*stride] >> (i % n * p.bits) & (1<<p.bits - 1))
	}
	return field(words, stride, offset, i*p.bits, p.bits)
}

// packing finds the packing by which n codes take so many words, among the bits that the configuration names.
func (s *Source) packing(at string, n, words int) (packing, error) {
	var named []int
	for _, key := range s.Keys() {
		key = strings.TrimPrefix(key, hfclass.Inside)
		if strings.HasPrefix(key, at) && strings.HasSuffix(key, ".weights.num_bits") {
			if bits, ok := s.number(key); ok && bits >= 2 && bits <= 8 {
				named = append(named, bits)
			}
		}
	}
	if len(named) == 0 {
		named = []int{4, 8}
	}
	for _, whole := range []bool{false, true} {
		for _, bits := range named {
			if p := (packing{bits, whole}); p.words(n) == words {
				return p, nil
			}
		}
	}
	return packing{}, fmt.Errorf("no code of %v bits fits", named)
}

func loadCompressed(s *Source, stem string, w *integers, p packing, shape, ss tensor.Shape) error {
	codes, err := s.words(stem + ".weight_packed")
	if err != nil {
		return err
	}
	scales, err := s.floatsOf(stem + ".weight_scale")
	if err != nil {
		return err
	}
	if err := finite(scales, "weight_scale"); err != nil {
		return err
	}
	w.scale = func(r, g int) float32 { return scales[min(r, ss[0]-1)*ss[1]+g] }
	var zeros []uint32
	if s.has(stem + ".weight_zero_point") {
		_, zs, err := s.need(stem+".weight_zero_point", 2, tensor.I32)
		if err != nil {
			return err
		}
		if zs[0] != p.words(w.rows) || zs[1] != ss[1] {
			return fmt.Errorf("zero points %v do not fit scales %v", zs, ss)
		}
		if zeros, err = s.words(stem + ".weight_zero_point"); err != nil {
			return err
		}
	}
	if s.has(stem + ".weight_g_idx") {
		if _, is, err := s.need(stem+".weight_g_idx", 1, tensor.I32); err != nil || is[0] != w.cols {
			return fmt.Errorf("weight_g_idx has shape %v, expected [%d] (%v)", is, w.cols, err)
		}
		b, err := s.Source.Data(stem + ".weight_g_idx")
		if err != nil {
			return err
		}
		if w.index = tensor.View[int32](b); len(w.index) > 0 && w.index[0] < 0 {
			w.index = nil // -1: none
		}
		if err := w.ordered(ss[1]); err != nil {
			return err
		}
	}
	half := int16(1) << (p.bits - 1)
	w.nibbles = p.bits <= 4 && zeros == nil
	w.codes = func(from, to int, q []int16) {
		zero := make([]int16, ss[1])
		for r := from; r < to; r++ {
			for g := range zero {
				if zero[g] = half; zeros != nil {
					zero[g] = int16(p.at(zeros, ss[1], g, r))
				}
			}
			row := q[(r-from)*w.cols:][:w.cols]
			for k := range row {
				row[k] = int16(p.at(codes, 1, r*shape[1], k)) - zero[w.at(k)]
			}
		}
	}
	return nil
}

func (s *Source) twoNumbers(name string) (a, b int, err error) {
	typ, _, _ := s.Source.Lookup(name)
	data, err := s.Source.Data(name)
	if err != nil {
		return 0, 0, err
	}
	if typ == tensor.I64 {
		v := tensor.View[int64](data)
		if v[0] < 1 || v[1] < 1 || v[0] > 1<<31 || v[1] > 1<<31 {
			return 0, 0, fmt.Errorf("%s holds %v", name, v)
		}
		return int(v[0]), int(v[1]), nil
	}
	v := tensor.View[int32](data)
	return int(v[0]), int(v[1]), nil
}

// int8Rows reads weight i8[N, K] with weight_scale [N, 1], [1] or [N, G].
// In one piece: the sizes that are checked first are those that the closures count by.
func int8Rows(s *Source, stem string) error {
	name := stem + ".weight"
	_, shape, err := s.need(name, 2, tensor.I8)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".weight_scale", 0, plainFloats...)
	if err != nil {
		return err
	}
	rows, cols, groups := shape[0], shape[1], 1
	if len(ss) == 2 {
		groups = ss[1]
	}
	if n := ss.Elems(); len(ss) > 2 || n != 1 && n != rows*groups || groups < 1 || cols%groups != 0 {
		return fmt.Errorf("scales %v do not fit a matrix of %v", ss, shape)
	}
	one := ss.Elems() == 1
	kind := "int8"
	if s.method == "compressed-tensors" {
		kind = "compressed-tensors int8"
	}
	w := &integers{rows: rows, cols: cols, group: cols / groups}
	factors := groups == 1 && cols%32 == 0 && !stacked(name) && !s.has(stem+".weight_zero_point")
	if factors {
		f, err := s.floatsOf(stem + ".weight_scale")
		if err != nil {
			return err
		}
		s.addFactor(stem+".weight_scale", f)
	}
	load := func() error {
		scales, err := s.floatsOf(stem + ".weight_scale")
		if err != nil {
			return err
		}
		if err := finite(scales, "weight_scale"); err != nil {
			return err
		}
		b, err := s.Source.Data(name)
		if err != nil {
			return err
		}
		var zeros []int8
		if s.has(stem + ".weight_zero_point") {
			_, zs, err := s.need(stem+".weight_zero_point", 0, tensor.I8)
			if err != nil || zs.Elems() != len(scales) {
				return fmt.Errorf("zero points %v do not fit scales %v (%v)", zs, ss, err)
			}
			z, err := s.Source.Data(stem + ".weight_zero_point")
			if err != nil {
				return err
			}
			zeros = tensor.View[int8](z)
		}
		place := func(r, g int) int {
			if one {
				return 0
			}
			return r*groups + g
		}
		w.scale = func(r, g int) float32 {
			if factors {
				return 1
			}
			return scales[place(r, g)]
		}
		codes := tensor.View[int8](b)
		w.codes = func(from, to int, q []int16) {
			for r := from; r < to; r++ {
				row := q[(r-from)*cols:][:cols]
				for k := range row {
					row[k] = int16(codes[r*cols+k])
					if zeros != nil {
						row[k] -= int16(zeros[place(r, k/w.group)])
					}
				}
			}
		}
		return nil
	}
	s.addIntegers(stem, kind, w, load, 8, name, stem+".weight_scale", stem+".weight_zero_point")
	return nil
}
