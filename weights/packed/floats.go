package packed

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// Kinds whose codes are floats: mxfp4, nvfp4, fp8 with block scales, bitsandbytes.

// mxfp4Stack reads X_blocks u8[…, N, K/32, 16] and X_scales u8[…, N, K/32], element 2i in the low nibble of byte i.
func mxfp4Stack(s *Source, stem string) error {
	_, shape, err := s.need(stem+"_blocks", 0, tensor.U8)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+"_scales", 0, tensor.U8)
	if err != nil {
		return err
	}
	n := len(shape)
	if n < 3 || shape[n-1] != 16 || !shape[:n-1].Equal(ss) {
		return fmt.Errorf("blocks %v and scales %v do not fit: expected […, 16] and […]", shape, ss)
	}
	whole := append(append(tensor.Shape(nil), shape[:n-2]...), 32*shape[n-2])
	s.addMXFP4(stem+"_blocks", whole, stem+"_blocks", stem+"_scales")
	return nil
}

// mxfp4Rows reads weight_packed u8[N, K/2] and weight_scale u8[N, K/32].
func mxfp4Rows(s *Source, stem string) error {
	_, shape, err := s.need(stem+".weight_packed", 2, tensor.U8)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".weight_scale", 2, tensor.U8)
	if err != nil {
		return err
	}
	if shape[1]%16 != 0 || ss[0] != shape[0] || ss[1] != shape[1]/16 {
		return fmt.Errorf("codes %v and scales %v do not fit mxfp4", shape, ss)
	}
	s.addMXFP4(stem+".weight", tensor.Shape{shape[0], 2 * shape[1]}, stem+".weight_packed", stem+".weight_scale")
	return nil
}

func (s *Source) addMXFP4(name string, shape tensor.Shape, codes, scales string) {
	m := &matrix{shape: shape, kind: "mxfp4", typ: tensor.MXFP4}
	blocks := shape.Last() / 32
	m.fill = func(_ tensor.Type, dst []byte, from, to int) error {
		q, err := s.Source.Data(codes)
		if err != nil {
			return err
		}
		e, err := s.Source.Data(scales)
		if err != nil {
			return err
		}
		for b := from * blocks; b < to*blocks; b++ {
			out, in := dst[(b-from*blocks)*17:][:17], q[16*b:][:16]
			out[0] = e[b]
			halves(out[1:], in)
		}
		return nil
	}
	s.add(name, m, codes, scales)
}

// halves brings codes with 2i and 2i+1 in byte i into the order of GGUF: i and i + n in byte i.
func halves(dst, src []byte) {
	n := len(src)
	at := func(i int) byte { return src[i/2] >> (i % 2 * 4) & 15 }
	for i := range dst[:n] {
		dst[i] = at(i) | at(i+n)<<4
	}
}

// nvfp4 reads codes u8[N, K/2], e4m3 scales weight_scale [N, K/16] and one factor of the whole, by which
// compressed-tensors divides.
func nvfp4(s *Source, stem, codes, global string, divides bool) error {
	_, shape, err := s.need(codes, 2, tensor.U8)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".weight_scale", 2, tensor.F8E4M3)
	if err != nil {
		return err
	}
	_, gs, err := s.need(global, 0, tensor.F32)
	if err != nil {
		return err
	}
	if shape[1]%8 != 0 || ss[0] != shape[0] || ss[1] != shape[1]/8 || gs.Elems() != 1 {
		return fmt.Errorf("codes %v, scales %v and factor %v do not fit nvfp4", shape, ss, gs)
	}
	f, err := s.floatsOf(global)
	if err != nil {
		return err
	}
	if divides {
		f[0] = 1 / f[0]
	}
	if err := finite(f, global); err != nil {
		return err
	}
	cols := 2 * shape[1]
	m := &matrix{shape: tensor.Shape{shape[0], cols}, kind: "nvfp4", typ: tensor.NVFP4}
	beside := cols%64 == 0 && !stacked(stem+".")
	switch {
	case beside:
		s.addFactor(stem+".weight_scale", f)
	case f[0] == 1 || cols%64 == 0:
		m.typ = tensor.F16
	default:
		m.typ = tensor.F32
	}
	m.fill = func(t tensor.Type, dst []byte, from, to int) error {
		q, err := s.Source.Data(codes)
		if err != nil {
			return err
		}
		e, err := s.Source.Data(stem + ".weight_scale")
		if err != nil {
			return err
		}
		vals := make([]float32, cols)
		for r := from; r < to; r++ {
			in, sc := q[r*cols/2:][:cols/2], e[r*ss[1]:][:ss[1]]
			out := dst[(r-from)*t.RowBytes(cols):][:t.RowBytes(cols)]
			if t == tensor.NVFP4 {
				for b := 0; b < cols/64; b++ {
					block := out[36*b:][:36]
					copy(block, sc[4*b:4*b+4])
					for g := range 4 {
						if sc[4*b+g] > 126 {
							return fmt.Errorf("row %d has a scale with a sign or without a value", r)
						}
						halves(block[4+8*g:], in[32*b+8*g:][:8])
					}
				}
				continue
			}
			for k := range vals {
				c := in[k/2] >> (k % 2 * 4) & 15
				vals[k] = e2m1[c] * tensor.F8ToF32(tensor.F8E4M3, sc[k/16]) * f[0]
			}
			if err := quant.Encode(t, out, vals, cols); err != nil {
				return err
			}
		}
		return nil
	}
	s.add(stem+".weight", m, codes, global)
	s.hidden[stem+".weight_scale"] = true
	return nil
}

var e2m1 = [16]float32{0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6}

// fp8 reads X of 8-bit floats with X_scale_inv or X_scale of [⌈N/a⌉, ⌈K/b⌉]: w = code·scale of its block. One factor of
// all, or one a row, is left to what reads the matrix, but for experts'.
func fp8(s *Source, name string, typ tensor.Type) error {
	_, shape, _ := s.Source.Lookup(name)
	scale := ""
	for _, suffix := range []string{"_scale_inv", "_scale"} {
		if s.has(name + suffix) {
			scale = name + suffix
		}
	}
	if scale == "" || len(shape) < 2 {
		return nil
	}
	_, ss, err := s.need(scale, 0, tensor.F16, tensor.BF16, tensor.F32, tensor.U8)
	if err != nil {
		return err
	}
	n := len(shape)
	rows, cols := shape[n-2], shape[n-1]
	var a, b int // of a block
	switch {
	case len(ss) == n && shape[:n-2].Equal(ss[:n-2]) && ss[n-2] > 0 && ss[n-1] > 0:
		a, b = blockOf(rows, ss[n-2]), blockOf(cols, ss[n-1])
	case ss.Elems() == 1 && n == 2:
		a, b = rows, cols
	case len(ss) == 1 && ss[0] == rows && n == 2:
		a, b = 1, cols
	default:
		return fmt.Errorf("scales %v do not fit a matrix of %v", ss, shape)
	}
	if list, ok := s.Meta(s.config() + "weight_block_size"); ok {
		if size, ok := list.([]int64); ok && len(size) == 2 && len(ss) == n && (ss[n-2] > 1 || ss[n-1] > 1) {
			a, b = int(size[0]), int(size[1])
		}
	}
	if a < 1 || b < 1 || len(ss) == n && ((rows+a-1)/a != ss[n-2] || (cols+b-1)/b != ss[n-1]) {
		return fmt.Errorf("scales %v of blocks of [%d, %d] do not fit a matrix of %v", ss, a, b, shape)
	}
	if b >= cols && (a == 1 || a >= rows) && n == 2 && !stacked(name) {
		return nil // one for all, or one a row
	}
	m := &matrix{shape: shape, kind: typ.String() + " with scales of blocks", typ: tensor.F32}
	if typ == tensor.F8E4M3 && (b%32 == 0 || b >= cols) && cols%32 == 0 {
		m.typ = tensor.F8E4M3_B32
	}
	across := (cols + b - 1) / b
	down := (rows + a - 1) / a
	m.fill = func(t tensor.Type, dst []byte, from, to int) error {
		q, err := s.Source.Data(name)
		if err != nil {
			return err
		}
		scales, err := s.floatsOf(scale)
		if err != nil {
			return err
		}
		vals := make([]float32, cols)
		for r := from; r < to; r++ {
			sc := scales[(r/rows*down+r%rows/a)*across:][:across]
			in, out := q[r*cols:][:cols], dst[(r-from)*t.RowBytes(cols):]
			if t == tensor.F8E4M3_B32 {
				for k := 0; k < cols; k += 32 {
					block := out[k/32*36:][:36]
					binary.LittleEndian.PutUint32(block, math.Float32bits(sc[k/b]))
					copy(block[4:], in[k:k+32])
				}
				continue
			}
			for k := range vals {
				vals[k] = tensor.F8ToF32(typ, in[k]) * sc[k/b]
			}
			if err := quant.Encode(t, out, vals, cols); err != nil {
				return err
			}
		}
		return nil
	}
	s.add(name, m, scale)
	return nil
}

// blockOf is the size of the blocks by which n is divided into parts: a power of two where the last is cut.
func blockOf(n, parts int) int {
	if n%parts == 0 {
		return n / parts
	}
	size := 1
	for (n+size-1)/size > parts {
		size *= 2
	}
	return size
}

// bnb4 reads bitsandbytes' four bits: weight u8[N·K/2, 1] with a scale for each blocksize elements of the flat matrix,
// itself in eight bits where nested, and a JSON text with the sizes.
// In one piece: the sizes that are checked first are those that the closures count by.
func bnb4(s *Source, stem string) error {
	name := stem + ".weight"
	var state string
	for _, kind := range []string{"nf4", "fp4"} {
		if n := name + ".quant_state.bitsandbytes__" + kind; s.has(n) {
			state = n
		}
	}
	if state == "" {
		return fmt.Errorf("%s.quant_state.bitsandbytes__nf4 (or __fp4) is missing beside it: the checkpoint is not "+
			"complete", name)
	}
	text, err := s.Source.Data(state)
	if err != nil {
		return err
	}
	var st struct {
		Kind   string  `json:"quant_type"`
		Block  int     `json:"blocksize"`
		Shape  []int   `json:"shape"`
		Nested int     `json:"nested_blocksize"`
		Offset float64 `json:"nested_offset"`
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return fmt.Errorf("%s: %w", state, err)
	}
	_, packed, _ := s.Source.Lookup(name)
	if len(st.Shape) != 2 || st.Block < 2 || st.Block%2 != 0 || st.Shape[0] < 1 || st.Shape[1] < 1 ||
		st.Shape[0] > 1<<31/st.Shape[1]*1024 || (st.Shape[0]*st.Shape[1]+1)/2 != packed.Elems() {
		return fmt.Errorf("%s says shape %v and blocks of %d, and there are %d bytes of codes", state, st.Shape, st.Block,
			packed.Elems())
	}
	rows, cols := st.Shape[0], st.Shape[1]
	_, ms, err := s.need(name+".quant_map", 0, tensor.F32)
	if err != nil || ms.Elems() != 16 {
		return fmt.Errorf("quant_map has %v levels, expected 16 (%v)", ms, err)
	}
	levels, err := s.floatsOf(name + ".quant_map")
	if err != nil {
		return err
	}
	typ, as, err := s.need(name+".absmax", 0, tensor.U8, tensor.F32)
	if err != nil {
		return err
	}
	if blocks := (rows*cols + st.Block - 1) / st.Block; as.Elems() != blocks {
		return fmt.Errorf("absmax has %d scales, expected %d", as.Elems(), blocks)
	}
	m := &matrix{shape: tensor.Shape{rows, cols}, kind: "bitsandbytes " + st.Kind, typ: tensor.F32}
	if [16]float32(levels) == quant.NF4Levels && st.Block%64 == 0 && cols%64 == 0 {
		m.typ = tensor.NF4
	}
	var scales []float32
	m.choose = func() (tensor.Type, error) {
		if typ == tensor.U8 {
			scales, err = s.nested(name, st.Nested, float32(st.Offset))
		} else {
			scales, err = s.floatsOf(name + ".absmax")
		}
		return m.typ, err
	}
	m.fill = func(t tensor.Type, dst []byte, from, to int) error {
		q, err := s.Source.Data(name)
		if err != nil {
			return err
		}
		vals := make([]float32, cols)
		for r := from; r < to; r++ {
			out := dst[(r-from)*t.RowBytes(cols):]
			if t == tensor.NF4 {
				for k := 0; k < cols; k += 64 {
					block, at := out[k/64*36:][:36], r*cols+k
					binary.LittleEndian.PutUint32(block, math.Float32bits(scales[at/st.Block]))
					for j, c := range q[at/2:][:32] { // the first of two is in the high nibble
						block[4+j] = c>>4 | c<<4
					}
				}
				continue
			}
			for k := range vals {
				at := r*cols + k
				vals[k] = levels[q[at/2]>>(4-at%2*4)&15] * scales[at/st.Block]
			}
			if err := quant.Encode(t, out, vals, cols); err != nil {
				return err
			}
		}
		return nil
	}
	parts := []string{state}
	for _, p := range []string{".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"} {
		parts = append(parts, name+p)
	}
	s.add(name, m, parts...)
	return nil
}

// nested reads scales that are themselves quantised.
func (s *Source) nested(name string, block int, offset float32) ([]float32, error) {
	_, ms, err := s.need(name+".nested_quant_map", 0, tensor.F32)
	if err != nil {
		return nil, err
	}
	_, as, err := s.need(name+".nested_absmax", 0, tensor.F32)
	if err != nil {
		return nil, err
	}
	levels, err := s.floatsOf(name + ".nested_quant_map")
	if err != nil {
		return nil, err
	}
	outer, err := s.floatsOf(name + ".nested_absmax")
	if err != nil {
		return nil, err
	}
	codes, err := s.Source.Data(name + ".absmax")
	if err != nil {
		return nil, err
	}
	if ms.Elems() != 256 || block < 1 || (len(codes)+block-1)/block != as.Elems() {
		return nil, fmt.Errorf("%d scales in blocks of %d: %d outer scales and %d levels do not fit", len(codes), block,
			as.Elems(), ms.Elems())
	}
	scales := make([]float32, len(codes))
	for i, c := range codes {
		scales[i] = float32(levels[c]*outer[i/block]) + offset
	}
	return scales, nil
}

// bnb8 reads bitsandbytes' eight bits: weight i8[N, K], of which row n counts in SCB[n]/127.
func bnb8(s *Source, stem string) error {
	name := stem + ".weight"
	_, shape, err := s.need(name, 2, tensor.I8)
	if err != nil {
		return err
	}
	_, ss, err := s.need(stem+".SCB", 0, plainFloats...)
	if err != nil {
		return err
	}
	rows, cols := shape[0], shape[1]
	if ss.Elems() != rows {
		return fmt.Errorf("SCB has %d scales for %d rows", ss.Elems(), rows)
	}
	f, err := s.floatsOf(stem + ".SCB")
	if err != nil {
		return err
	}
	for i := range f {
		f[i] /= 127
	}
	w := &integers{rows: rows, cols: cols, group: cols, scale: func(n, _ int) float32 { return f[n] }}
	if cols%32 == 0 && !stacked(name) {
		s.addFactor(name+"_scale", f)
		w.scale = func(int, int) float32 { return 1 }
	}
	load := func() error {
		b, err := s.Source.Data(name)
		if err != nil {
			return err
		}
		codes := tensor.View[int8](b)
		w.codes = func(from, to int, q []int16) {
			for i, c := range codes[from*cols : to*cols] {
				q[i] = int16(c)
			}
		}
		return nil
	}
	s.addIntegers(stem, "bitsandbytes int8", w, load, 8, name, stem+".SCB", stem+".weight_format")
	return nil
}
