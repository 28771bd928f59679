package simd

import (
	"encoding/binary"
	"fmt"

	"github.com/greta-project/greta/tensor"
)

// Panels of sixteen rows: the layout in which weights are multiplied fastest.
// A product over a panel reads one forward stream, takes each activation once
// for sixteen rows and needs no horizontal sums. csrc/cpu/panel.h describes
// the same layout in C.
//
// Plain types: column by column, sixteen elements; BF16 in pairs of columns,
// two elements of each row. Block formats: pairs of blocks of 32 columns,
// scales before codes, and before four pairs of a k-quant the units of scales:
//
//	k-quants    f16 d[16]; f16 -m[16] or zeros; of q4_K and q5_K, whose scales have six
//	            bits, three times 64 bytes (putSix)
//	a pair      f16 d[2][16]; affine formats f16 m[2][16]; of other k-quants for each
//	            block the scales[16] of its two halves (q2_K has offsets in the same byte)
//
// In a block, byte 4·row + c of 64-byte vector g is the code of column 4·g + c.
// Codes of fewer than eight bits lie in planes, in this order: bits (1 vector:
// group g in bit g), pairs of bits (2 vectors: group g in vector g & 1, bits
// 2·(g >> 1) and the next), nibbles (4 vectors: group g low, g + 4 high).

// PanelRows is the number of rows in a panel.
const PanelRows = 16

// PanelLayout names the layout of type t and its version, for caches of packed weights.
func PanelLayout(t tensor.Type) string {
	version := 2
	if f := panelFormats[t]; f != nil && f.sixBits() {
		version = 3
	}
	return fmt.Sprintf("panel%d.%d/%s", PanelRows, version, t)
}

// planes says how a format's codes are spread.
type planes uint8

const (
	whole   planes = iota // bytes
	nibbles               // four bits
	fives                 // a plane of bits, nibbles
	sixes                 // planes of pairs, nibbles
	twos                  // planes of pairs
	threes                // a plane of bits, planes of pairs
)

var planeBytes = [...]int{512, 256, 320, 384, 128, 192}

// panelFormat is the layout of a block format.
type panelFormat struct {
	planes planes
	super  bool // k-quants: units of 256 columns
	affine bool // w = a·q + m
	halves bool // a scale for each 16 columns
	offset int  // else w = a·(q - offset)
	levels bool // codes are places in a list of levels
	kernel func(p *panelKernels) panelKernel
}

var panelFormats = [256]*panelFormat{
	tensor.Q8_0:   {planes: whole, kernel: func(p *panelKernels) panelKernel { return p.Q8_0 }},
	tensor.Q4_0:   {planes: nibbles, offset: 8, kernel: func(p *panelKernels) panelKernel { return p.Q4_0 }},
	tensor.Q4_1:   {planes: nibbles, affine: true, kernel: func(p *panelKernels) panelKernel { return p.Q4_1 }},
	tensor.Q5_0:   {planes: fives, offset: 16, kernel: func(p *panelKernels) panelKernel { return p.Q5_0 }},
	tensor.Q5_1:   {planes: fives, affine: true, kernel: func(p *panelKernels) panelKernel { return p.Q5_1 }},
	tensor.IQ4_NL: {planes: nibbles, levels: true, kernel: func(p *panelKernels) panelKernel { return p.IQ4_NL }},
	tensor.Q4_K: {planes: nibbles, super: true, affine: true, kernel: func(p *panelKernels) panelKernel {
		return p.Q4_K
	}},
	tensor.Q5_K: {planes: fives, super: true, affine: true, kernel: func(p *panelKernels) panelKernel { return p.Q5_K }},
	tensor.Q6_K: {planes: sixes, super: true, halves: true, offset: 32, kernel: func(p *panelKernels) panelKernel {
		return p.Q6_K
	}},
	tensor.Q2_K: {planes: twos, super: true, halves: true, affine: true, kernel: func(p *panelKernels) panelKernel {
		return p.Q2_K
	}},
	tensor.Q3_K: {planes: threes, super: true, halves: true, offset: 4, kernel: func(p *panelKernels) panelKernel {
		return p.Q3_K
	}},
}

func (f *panelFormat) blocks() int { // in a unit
	if f.super {
		return 8
	}
	return 2
}

// head is what comes before a unit's pairs.
func (f *panelFormat) head() int {
	switch {
	case f.sixBits():
		return 256
	case f.super:
		return 64
	}
	return 0
}

// sixBits says whether scales and offsets have six bits, those of a unit together.
func (f *panelFormat) sixBits() bool { return f.super && f.affine && !f.halves }

// scales is what comes before a pair's codes.
func (f *panelFormat) scales() int {
	switch {
	case f.sixBits():
		return 0
	case f.affine && !f.super:
		return 128
	}
	return 64
}

func (f *panelFormat) pair() int { return f.scales() + 2*planeBytes[f.planes] }
func (f *panelFormat) unit() int { return f.head() + f.blocks()/2*f.pair() }

// Packable says whether weights of type t can be packed in panels.
func Packable(t tensor.Type) bool { return panelFormats[t] != nil || plainPanel(t) }

// RoundsActivations says whether products with panels of type t take
// activations of eight bits.
func RoundsActivations(t tensor.Type) bool { return panelFormats[t] != nil }

func plainPanel(t tensor.Type) bool {
	return t == tensor.F32 || t == tensor.F16 || t == tensor.BF16
}

// PanelCount gives the number of panels that rows make.
func PanelCount(rows int) int { return (rows + PanelRows - 1) / PanelRows }

// blocksOf gives the number of blocks of 32 columns that records and panels
// of block formats have: an even one.
func blocksOf(cols int) int { return (cols/32 + 1) &^ 1 }

// PanelBytes gives the size of a panel of cols columns.
func PanelBytes(t tensor.Type, cols int) int {
	switch t {
	case tensor.F32:
		return 64 * cols
	case tensor.F16:
		return 32 * cols
	case tensor.BF16:
		return 64 * ((cols + 1) / 2)
	}
	f := panelFormats[t]
	return blocksOf(cols) / f.blocks() * f.unit()
}

// PackPanel packs the rows of src, sixteen at most, dense rows of cols
// columns, into one panel. Rows that are missing become zeros.
func PackPanel(dst, src []byte, t tensor.Type, cols int) error {
	if !Packable(t) {
		return fmt.Errorf("there are no panels of %s", t)
	}
	if err := t.CheckRow(cols); err != nil {
		return err
	}
	row, size := t.RowBytes(cols), PanelBytes(t, cols)
	if row == 0 {
		return nil
	}
	rows := len(src) / row
	if rows > PanelRows || len(src)%row != 0 || len(dst) < size {
		return fmt.Errorf("a panel of %s from %d bytes, rows of %d, into %d bytes: want %d rows at most and %d bytes", t,
			len(src), row, len(dst), PanelRows, size)
	}
	dst = dst[:size]
	f := panelFormats[t]
	if rows < PanelRows || f == nil && cols%2 > 0 || f != nil && cols/32%2 > 0 {
		clear(dst)
	}
	const step = 256 // columns at a time, so that what is written stays in the cache
	for c := 0; c < cols; c += step {
		out := dst[PanelBytes(t, c):]
		for r := range rows {
			in := src[r*row+t.RowBytes(c):][:t.RowBytes(min(step, cols-c))]
			switch {
			case t == tensor.F16:
				packHalves(out, in, r)
			case f == nil:
				packWords(out, in, r)
			case f.super:
				f.packSuper(out, in, t, r)
			default:
				f.packBlocks(out, in, t, r)
			}
		}
	}
	return nil
}

// packHalves packs row r of a panel of two-byte elements.
func packHalves(dst, src []byte, r int) {
	le := binary.LittleEndian
	for dst = dst[2*r:]; len(src) >= 8; src = src[8:] {
		w, d := le.Uint64(src), dst[:98]
		le.PutUint16(d, uint16(w))
		le.PutUint16(d[32:], uint16(w>>16))
		le.PutUint16(d[64:], uint16(w>>32))
		le.PutUint16(d[96:], uint16(w>>48))
		dst = dst[min(128, len(dst)):]
	}
	for i := 0; i < len(src); i += 2 {
		copy(dst[16*i:][:2], src[i:])
	}
}

// packWords packs row r of a panel of four bytes: an element, or a pair of
// elements, the last of which may be missing.
func packWords(dst, src []byte, r int) {
	le := binary.LittleEndian
	for dst = dst[4*r:]; len(src) >= 8; src = src[8:] {
		w, d := le.Uint64(src), dst[:68]
		le.PutUint32(d, uint32(w))
		le.PutUint32(d[64:], uint32(w>>32))
		dst = dst[min(128, len(dst)):]
	}
	for i := 0; i < len(src); i += 4 {
		copy(dst[16*i:][:min(4, len(src)-i)], src[i:])
	}
}

// packBlocks packs row r of a format with blocks of 32.
func (f *panelFormat) packBlocks(dst, src []byte, t tensor.Type, r int) {
	_, size := t.Block()
	var c [8]uint32
	for b := 0; len(src) >= size; b++ {
		u := dst[b/2*f.unit():]
		copy(u[32*(b&1)+2*r:][:2], src)
		q := src[2:size]
		if f.affine {
			copy(u[64+32*(b&1)+2*r:][:2], q)
			q = q[2:]
		}
		fifth := uint32(0)
		if f.planes == fives {
			fifth = binary.LittleEndian.Uint32(q)
			q = q[4:]
		}
		codes := u[f.scales()+b&1*planeBytes[f.planes]:]
		if f.planes == fives {
			for i := range c {
				c[i] = binary.LittleEndian.Uint32(q[4*(i&3):])>>(i&4)&0x0f0f0f0f | spread(fifth>>(4*i))<<4
			}
			f.putCodes(codes, r, &c)
		} else { // bytes, and nibbles in the same order
			for i := 0; i < len(q); i += 4 {
				binary.LittleEndian.PutUint32(codes[16*i+4*r:], binary.LittleEndian.Uint32(q[i:]))
			}
		}
		src = src[size:]
	}
}

// spread puts bit i of the low four into bit 0 of byte i.
func spread(b uint32) uint32 { return b & 15 * 0x00204081 & 0x01010101 }

// putCodes stores a row's codes of one block, four to a word, in planes.
func (f *panelFormat) putCodes(q []byte, r int, c *[8]uint32) {
	put := func(vector int, w uint32) { binary.LittleEndian.PutUint32(q[64*vector+4*r:], w) }
	bits := func(vector, bit int) {
		w := uint32(0)
		for g, v := range c {
			w |= v >> bit & 0x01010101 << g
		}
		put(vector, w)
	}
	pairs := func(vector, bit int) {
		for i := range 2 {
			w := uint32(0)
			for p := range 4 {
				w |= c[2*p+i] >> bit & 0x03030303 << (2 * p)
			}
			put(vector+i, w)
		}
	}
	switch f.planes {
	case twos:
		pairs(0, 0)
		return
	case threes:
		bits(0, 2)
		pairs(1, 0)
		return
	case fives:
		bits(0, 4)
	case sixes:
		pairs(0, 4)
	}
	low := planeBytes[f.planes]/64 - 4
	for g := range 4 {
		put(low+g, c[g]&0x0f0f0f0f|c[g+4]&0x0f0f0f0f<<4)
	}
}

// superLayout says where a k-quant's block has its parts; see weights/quant.
type superLayout struct{ d, m, scales, low, high int }

var superLayouts = map[tensor.Type]superLayout{
	tensor.Q4_K: {0, 2, 4, 16, 0},
	tensor.Q5_K: {0, 2, 4, 48, 16},
	tensor.Q6_K: {208, -1, 192, 0, 128},
	tensor.Q2_K: {80, 82, 0, 16, 0},
	tensor.Q3_K: {108, -1, 96, 32, 0},
}

// packSuper packs row r of a k-quant.
func (f *panelFormat) packSuper(dst, src []byte, t tensor.Type, r int) {
	_, size := t.Block()
	at, unit := superLayouts[t], f.unit()
	le := binary.LittleEndian
	var c [8]uint32
	for ; len(src) >= size; src, dst = src[size:], dst[unit:] {
		copy(dst[2*r:][:2], src[at.d:])
		le.PutUint16(dst[32+2*r:], 0)
		if at.m >= 0 {
			le.PutUint16(dst[32+2*r:], le.Uint16(src[at.m:])^0x8000)
		}
		low, high, s := src[at.low:], src[at.high:], src[at.scales:]
		for b := range 8 {
			pair := dst[f.head()+b/2*f.pair():]
			scale := pair[32*(b&1)+r:]
			switch t {
			case tensor.Q4_K, tensor.Q5_K:
				sc, m := scaleMinK4(s[:12], b)
				putSix(dst[64:], b/2, 32*(b&1)+r, byte(sc))
				putSix(dst[64:], b/2, 32*(b&1)+16+r, byte(m))
			case tensor.Q3_K:
				for h := range 2 {
					j := 2*b + h
					scale[16*h] = s[j&7]>>(j>>3<<2)&15 | s[8+j&3]>>(j>>2<<1)&3<<4 - 32
				}
			default:
				scale[0], scale[16] = s[2*b], s[2*b+1]
			}
			for i := range c {
				half, k := b>>2, b&3 // of q6_K, q2_K and q3_K
				switch t {
				case tensor.Q4_K:
					c[i] = le.Uint32(low[32*(b>>1)+4*i:]) >> (b & 1 * 4) & 0x0f0f0f0f
				case tensor.Q5_K:
					c[i] = le.Uint32(low[32*(b>>1)+4*i:])>>(b&1*4)&0x0f0f0f0f | le.Uint32(high[4*i:])>>b&0x01010101<<4
				case tensor.Q6_K:
					c[i] = le.Uint32(low[64*half+32*(k&1)+4*i:])>>(k>>1*4)&0x0f0f0f0f |
						le.Uint32(high[32*half+4*i:])>>(2*k)&0x03030303<<4
				case tensor.Q2_K:
					c[i] = le.Uint32(low[32*half+4*i:]) >> (2 * k) & 0x03030303
				case tensor.Q3_K:
					c[i] = le.Uint32(low[32*half+4*i:])>>(2*k)&0x03030303 | le.Uint32(high[4*i:])>>b&0x01010101<<2
				}
			}
			f.putCodes(pair[f.scales()+b&1*planeBytes[f.planes]:], r, &c)
		}
	}
}

// putSix puts the i-th of a pair's 64 numbers of six bits among those of a unit: scales of sixteen
// rows, then offsets, of either block. Of pairs 0 to 2 they are the low bits of 64 bytes each; of
// pair 3, which comes last, each of these has two bits on top, lowest first.
func putSix(dst []byte, pair, i int, v byte) {
	if pair < 3 {
		dst[64*pair+i] = v
		return
	}
	for k := range 3 {
		dst[64*k+i] |= v >> (2 * k) << 6
	}
}

// sixAt gives what putSix has put.
func sixAt(src []byte, pair, i int) byte {
	if pair < 3 {
		return src[64*pair+i] & 63
	}
	return src[i]>>6 | src[64+i]>>6<<2 | src[128+i]>>6<<4
}
