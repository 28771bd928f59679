package simd

import (
	"encoding/binary"
	"sort"
)

// Compact panels of f16; csrc/cpu/compact_f16.c describes them in C.
const (
	f16Pairs = 128
	f16Ends  = 2 * f16Pairs
	f16Head  = f16Ends + 4*compactSegments
	f16Block = 232 // bytes of 8 columns
	f16Rare  = 0x80
)

// f16Fits wants so many columns that a panel is smaller than a plain one.
func f16Fits(cols int) bool {
	return cols%8 == 0 && cols >= 256 && cols <= compactSegments*compactSegment
}

func f16Size(cols int) int {
	return (f16Head + compactRoom(cols) + cols/8*f16Block + 63) / 64 * 64
}

func f16Place(c, r int) int { return 32*c + 2*r }

// f16Pairs4 numbers four pairs of exponents, of elements of two columns: 16 bits each.
func f16Pairs4(first, second uint64) uint64 {
	const exponents = 0x7c007c007c007c00
	return first&exponents>>5 | second&exponents>>10
}

// f16Codes4 looks up the codes of four pairs.
func f16Codes4(codes *[1024]byte, p uint64) uint64 {
	return uint64(codes[p&1023]) | uint64(codes[p>>16&1023])<<8 | uint64(codes[p>>32&1023])<<16 |
		uint64(codes[p>>48&1023])<<24
}

// f16Table finds the pairs of exponents that are most frequent in a plain panel, besides zeros, and gives
// each pair's code, or f16Rare.
func f16Table(codes *[1024]byte, table, plain []byte) {
	var count [2][1024]uint32
	le := binary.LittleEndian
	for b := plain; len(b) > 0; b = b[256:] {
		first, second := b[:128], b[128:256]
		for i := 0; i < 128; i += 8 {
			p := f16Pairs4(le.Uint64(first[i:]), le.Uint64(second[i:]))
			count[0][p&1023]++
			count[1][p>>16&1023]++
			count[0][p>>32&1023]++
			count[1][p>>48&1023]++
		}
	}
	found, counts := make([]uint16, 0, 1024), make([]uint32, 0, 1024) // besides pair 0
	for i := 1; i < len(codes); i++ {
		codes[i] = f16Rare
		if n := count[0][i] + count[1][i]; n > 0 {
			found, counts = append(found, uint16(i)), append(counts, n)
		}
	}
	least := 1 + sort.Search(len(plain)/4, func(n int) bool { // at least so often, as many as there is room for
		room := f16Pairs - 1
		for _, c := range counts {
			if c > uint32(n) {
				room--
			}
		}
		return room >= 0
	})
	codes[0] = 0
	clear(table[:2*f16Pairs])
	n := 1
	for _, frequent := range []func(c uint32) bool{
		func(c uint32) bool { return c >= uint32(least) },
		func(c uint32) bool { return c == uint32(least-1) },
	} {
		for i, pair := range found {
			if frequent(counts[i]) && n < f16Pairs {
				codes[pair], table[n], table[f16Pairs+n] = byte(n), byte(pair>>5<<2), byte(pair&31<<2)
				n++
			}
		}
	}
}

// packF16Block makes a block of 8 columns of plain ones, and says whether all of its pairs have codes.
func packF16Block(out, in []byte, codes *[1024]byte) bool {
	const each = 0x0101010101010101
	le := binary.LittleEndian
	found := uint64(0)
	for g := range 8 { // of eight pairs: half of a column
		at := (g%2*2+g/4)*32 + g/2%2*16
		a, b := in[at:][:16], in[128+at:][:16]
		code := f16Codes4(codes, f16Pairs4(le.Uint64(a), le.Uint64(b))) | f16Codes4(codes,
			f16Pairs4(le.Uint64(a[8:]), le.Uint64(b[8:])))<<32
		found |= code
		high, high4 := oddBytes(a), oddBytes(b)
		le.PutUint64(out[8*g:], code|high&(0x80*each))
		le.PutUint64(out[64+8*g:], evenBytes(a))
		le.PutUint64(out[128+8*g:], evenBytes(b))
		sign := high4 >> 7 & each
		fields := high4&(3*each) | high&(3*each)<<3 | (sign<<8|sign>>56)<<2
		fields = fields&0x001f001f001f001f | fields&0x1f001f001f001f00>>3
		fields = fields&0x000003ff000003ff | fields&0x03ff000003ff0000>>6
		fields = fields&0xfffff | fields>>32<<20
		to := out[192+5*g:][:5]
		le.PutUint32(to, uint32(fields))
		to[4] = byte(fields >> 32)
	}
	return found&(f16Rare*each) == 0
}

func packF16(dst, plain []byte, cols int) bool {
	var codes [1024]byte
	le := binary.LittleEndian
	clear(dst)
	head, list, w := dst[:f16Head], dst[f16Head:][:compactRoom(cols)], dst[f16Head+compactRoom(cols):]
	f16Table(&codes, head, plain)
	n := 0
	for c := 0; c < cols; c += 8 {
		in, out := plain[32*c:][:256], w[c/8*f16Block:][:f16Block]
		if !packF16Block(out, in, &codes) {
			var rest [256]byte
			for i := range 128 { // element i of the plain block
				v := le.Uint16(in[2*i:])
				p := f16Pairs4(uint64(le.Uint16(in[2*(i&63):])), uint64(le.Uint16(in[2*(i|64):])))
				if codes[p&1023] != f16Rare {
					le.PutUint16(rest[2*i:], v)
					continue
				}
				if v == 0 {
					continue
				}
				if 4*n == len(list) {
					return false
				}
				le.PutUint32(list[4*n:], uint32(v)<<16|uint32((c+i/16)%compactSegment)<<4|uint32(i%16))
				n++
			}
			packF16Block(out, rest[:], &codes)
		}
		if (c+8)%compactSegment == 0 || c+8 == cols {
			for s := c / compactSegment; s < compactSegments; s++ {
				le.PutUint32(head[f16Ends+4*s:], uint32(n))
			}
		}
	}
	return true
}

func (k *Kernels) expandF16(dst, panel []byte, all, c0, cols int) {
	w := panel[f16Head+compactRoom(all)+c0/8*f16Block:][:cols/8*f16Block]
	if k.h != nil {
		k.h.ExpandF16(ptr(panel), ptr(w), ptr(dst), cols/8)
	} else {
		expandF16Go(dst, panel, w)
	}
}

// expandF16Go is px_f16.
func expandF16Go(dst, table, w []byte) {
	for ; len(w) > 0; w, dst = w[f16Block:], dst[256:] {
		for c := range 4 {
			for r := range PanelRows {
				j := r/8*16 + c%2*32 + c/2*8 + r%8
				q := w[192+j/8*5:][:5]
				fields := uint64(binary.LittleEndian.Uint32(q)) | uint64(q[4])<<32
				fields = (fields | fields<<40) >> (j % 8 * 5)
				code := w[j]
				a, b := dst[32*c+2*r:], dst[32*(c+4)+2*r:]
				a[0], a[1] = w[64+j], table[code&127]|code&0x80|byte(fields>>3)&3
				b[0], b[1] = w[128+j], table[f16Pairs+int(code&127)]|byte(fields)&0x83
			}
		}
	}
}
