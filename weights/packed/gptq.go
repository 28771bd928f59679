package packed

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/tensor"
)

// GPTQ keeps, for x·wᵀ with w of [N, K],
//
//	qweight i32[K·bits/32, N]   codes of a column of w one after another, from the lowest bit on
//	qzeros  i32[G, N·bits/32]   zero points; less one, but for checkpoint_format gptq_v2
//	scales  [G, N]
//	g_idx   i32[K]              the group of each column; k/group_size where it is left out
//
// AWQ keeps qweight i32[K, N/8], qzeros i32[G, N/8] and scales [G, N]: eight rows of w in a word, of which nibble i is
// row 0, 2, 4, 6, 1, 3, 5, 7.

// gptq presents a matrix. In one piece: the sizes that are checked first are those that the closures count by.
func gptq(s *Source, stem string) error {
	at := s.config()
	bits, ok := s.number(at + "bits")
	if !ok || bits != 2 && bits != 3 && bits != 4 && bits != 8 {
		return fmt.Errorf("quantization_config has %d bits; gptq of 2, 3, 4 and 8 is read", bits)
	}
	_, shape, err := s.need(stem+".qweight", 2, tensor.I32)
	if err != nil {
		return err
	}
	rows, cols := shape[1], shape[0]*32/bits
	_, zs, err := s.need(stem+".qzeros", 2, tensor.I32)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".scales", 2, plainFloats...)
	if err != nil {
		return err
	}
	group, _ := s.number(at + "group_size")
	if group <= 0 {
		group = cols
	}
	groups := (cols + group - 1) / group
	if ss[0] != groups || ss[1] != rows || zs[0] != groups || zs[1]*32 < rows*bits || cols*bits != shape[0]*32 {
		return fmt.Errorf("gptq of %d bits in groups of %d: codes %v, zero points %v and scales %v do not fit", bits, group,
			shape, zs, ss)
	}
	add := 1
	if strings.Contains(s.word(at+"checkpoint_format"), "v2") {
		add = 0
	}
	w := &integers{rows: rows, cols: cols, group: group}
	load := func() error {
		codes, zeros, scales, err := s.codesOf(stem)
		if err != nil {
			return err
		}
		w.scale = func(n, g int) float32 { return scales[g*rows+n] }
		if s.has(stem + ".g_idx") {
			if _, is, err := s.need(stem+".g_idx", 1, tensor.I32); err != nil || is[0] != cols {
				return fmt.Errorf("g_idx has shape %v, expected [%d] (%v)", is, cols, err)
			}
			b, err := s.Source.Data(stem + ".g_idx")
			if err != nil {
				return err
			}
			w.index = tensor.View[int32](b)
			if err := w.ordered(groups); err != nil {
				return err
			}
		}
		middle := 0
		for g := range groups {
			for n := range rows {
				if field(zeros, 1, g*zs[1], n*bits, bits)+add == 8 {
					middle++
				}
			}
		}
		w.nibbles = bits == 4 && middle == groups*rows && (s.flag(at+"sym") || !stacked(stem+"."))
		w.codes = func(from, to int, q []int16) {
			zero := make([]int16, groups)
			for n := from; n < to; n++ {
				for g := range zero {
					zero[g] = int16(field(zeros, 1, g*zs[1], n*bits, bits) + add)
				}
				row := q[(n-from)*cols:][:cols]
				for k := range row {
					row[k] = int16(field(codes, rows, n, k*bits, bits)) - zero[w.at(k)]
				}
			}
		}
		return nil
	}
	s.addIntegers(stem, fmt.Sprintf("gptq int%d", bits), w, load, bits, stem+".qweight", stem+".qzeros", stem+".scales",
		stem+".g_idx")
	return nil
}

// addIntegers presents integers; load reads what choosing a type needs.
func (s *Source) addIntegers(stem, kind string, w *integers, load func() error, bits int, parts ...string) {
	m := &matrix{shape: tensor.Shape{w.rows, w.cols}, kind: kind, fill: w.fill}
	m.choose = func() (tensor.Type, error) {
		if err := load(); err != nil {
			return tensor.Invalid, err
		}
		t, err := w.choose()
		if t == tensor.Q8_0 && bits == 8 { // zero points may be anywhere
			q := make([]int16, w.cols)
			for n := range w.rows {
				w.codes(n, n+1, q)
				for _, c := range q {
					if c < -128 || c > 127 {
						return tensor.F16, err
					}
				}
			}
		}
		return t, err
	}
	s.add(stem+".weight", m, parts...)
}

// awqOrder says which of eight rows a nibble is.
var awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

func awq(s *Source, stem string) error {
	at := s.config()
	if bits, ok := s.number(at + "bits"); ok && bits != 4 {
		return fmt.Errorf("quantization_config has %d bits; awq of 4 is read", bits)
	}
	if v := s.word(at + "version"); v != "" && v != "gemm" && s.method == "awq" {
		return fmt.Errorf("quantization_config has version %q; awq of version gemm is read", v)
	}
	_, shape, err := s.need(stem+".qweight", 2, tensor.I32)
	if err != nil {
		return err
	}
	_, zs, err := s.need(stem+".qzeros", 2, tensor.I32)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".scales", 2, plainFloats...)
	if err != nil {
		return err
	}
	rows, cols := shape[1]*8, shape[0]
	group, _ := s.number(at + "group_size")
	if group <= 0 {
		group = cols
	}
	groups := (cols + group - 1) / group
	if ss[0] != groups || ss[1] != rows || zs[0] != groups || zs[1] != shape[1] {
		return fmt.Errorf("awq in groups of %d: codes %v, zero points %v and scales %v do not fit", group, shape, zs, ss)
	}
	var shift [8]int // of row n&7
	for i, r := range awqOrder {
		shift[r] = 4 * i
	}
	w := &integers{rows: rows, cols: cols, group: group}
	load := func() error {
		codes, zeros, scales, err := s.codesOf(stem)
		if err != nil {
			return err
		}
		w.scale = func(n, g int) float32 { return scales[g*rows+n] }
		w.nibbles = !stacked(stem + ".") // a stack has one type
		for _, z := range zeros {
			w.nibbles = w.nibbles && z == 0x88888888
		}
		w.codes = func(from, to int, q []int16) {
			for n := from; n < to; n++ {
				row, sh, word := q[(n-from)*cols:][:cols], shift[n&7], n>>3
				for k := range row {
					z := zeros[k/group*zs[1]+word] >> sh & 15
					row[k] = int16(codes[k*shape[1]+word]>>sh&15) - int16(z)
				}
			}
		}
		return nil
	}
	s.addIntegers(stem, "awq int4", w, load, 4, stem+".qweight", stem+".qzeros", stem+".scales")
	return nil
}
