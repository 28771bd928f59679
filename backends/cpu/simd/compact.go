package simd

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// Compact panels: the weights of plain ones, bit for bit, in fewer bytes. A product of one row of
// activations takes as long as reading its weights, and what a panel's weights have for exponents
// are few: of N(0, σ) all but some in ten thousand have one of fourteen. So an element's high byte, of bf16, or
// the exponents of two elements, of f16, are a place in the panel's own table, and what the table
// lacks is listed as exceptions: zero among the others, and added in f32. An activation that is not
// finite makes NaN of an exception's zero.
//
// A panel with more exceptions than it has room for stays plain, alone. A matrix of n panels is
//
//	modes   a byte for each panel, filled up to 64
//	panels  n places of the size that the type and the columns give
//	rest    n times the columns of a plain panel that its place has no room for
//
// A plain panel lies in its place as far as whole blocks of eight columns go, the others in its
// part of the rest. Nothing else uses the rest: it takes no memory where nobody writes it. So every
// panel has its place before any is packed, and the size of all is about that of plain panels.

// CompactLayout names the layout and its version, as PanelLayout does.
const CompactLayout = "compact16.1"

// The modes of a panel.
const (
	panelCompact = iota
	panelPlain
)

// compactFormat is the compact form of a type's panels.
type compactFormat struct {
	// fits says whether there is one for so many columns.
	fits func(cols int) bool
	// mul is a level's product of one row of activations; nil: it has none.
	mul func(k *Kernels) func(w, x, y unsafe.Pointer, k, shape int)
	// few is its product of few rows.
	few func(k *Kernels) func(w, x, y unsafe.Pointer, k, lds, shape int)
	// size is that of a panel: a multiple of 64, less than PanelBytes.
	size func(cols int) int
	// ends is where it says how many exceptions it has; they follow.
	ends int
	// at is where a plain panel has an element of a column and a row.
	at func(c, r int) int
	// pack makes a compact panel of a plain one, and says whether it has room.
	pack func(dst, plain []byte, cols int) bool
	// expand makes columns c0 … c0+cols-1 of a plain panel of a compact one, exceptions left out; c0 is a multiple of 256.
	expand func(k *Kernels, dst, panel []byte, all, c0, cols int)
}

var compactFormats = [256]*compactFormat{
	tensor.F16: {fits: f16Fits, mul: (*Kernels).compactF16, size: f16Size, ends: f16Ends, at: f16Place, pack: packF16,
		expand: (*Kernels).expandF16,
		few:    func(k *Kernels) func(w, x, y unsafe.Pointer, k, lds, shape int) { return k.h.CompactFewF16 }},
	tensor.BF16: {fits: bf16Fits, mul: (*Kernels).compactBF16, size: bf16Size, ends: compactEnds, at: bf16Place,
		pack: packBF16, expand: (*Kernels).expandBF16,
		few: func(k *Kernels) func(w, x, y unsafe.Pointer, k, lds, shape int) { return k.c.CompactFewBF16 }},
}

// Compacts says whether the level multiplies with compact panels of type t and so many columns.
func (k *Kernels) Compacts(t tensor.Type, cols int) bool {
	f := compactFormats[t]
	return f != nil && f.mul(k) != nil && f.fits(cols)
}

// split is how many columns of a plain panel lie in its place among compact ones.
func (f *compactFormat) split(t tensor.Type, cols int) int {
	return f.size(cols) / PanelBytes(t, 8) * 8
}

// restBytes is the size of the other columns.
func (f *compactFormat) restBytes(t tensor.Type, cols int) int {
	return PanelBytes(t, cols-f.split(t, cols))
}

func modeBytes(panels int) int { return (panels + 63) / 64 * 64 }

// CompactBytes gives the size of a matrix in compact panels.
func CompactBytes(t tensor.Type, rows, cols int) int {
	f := compactFormats[t]
	return modeBytes(PanelCount(rows)) + PanelCount(rows)*(f.size(cols)+f.restBytes(t, cols))
}

// CompactPanels sees the bytes of a matrix as compact panels.
func CompactPanels(t tensor.Type, rows, cols int, data []byte) (*Panels, error) {
	f, n := compactFormats[t], PanelCount(rows)
	if f == nil || rows < 0 || !f.fits(cols) || len(data) < CompactBytes(t, rows, cols) {
		return nil, fmt.Errorf("compact panels of %s, %d by %d, in %d bytes", t, rows, cols, len(data))
	}
	at, size := modeBytes(n), f.size(cols)
	return &Panels{Type: t, Rows: rows, Cols: cols, modes: data[:n:n], Data: data[at : at+n*size : at+n*size],
		rest: data[at+n*size : CompactBytes(t, rows, cols)]}, nil
}

// PackCompact packs the rows of src, as PackPanel takes them, into panel p of m. scratch has PanelBytes.
func (m *Panels) PackCompact(p int, src, scratch []byte) error {
	if err := PackPanel(scratch, src, m.Type, m.Cols); err != nil {
		return err
	}
	slot, size := m.panel(p), PanelBytes(m.Type, m.Cols)
	m.modes[p] = panelCompact
	if !compactFormats[m.Type].pack(slot, scratch[:size], m.Cols) {
		m.modes[p] = panelPlain
		n := PanelBytes(m.Type, m.split())
		clear(slot[copy(slot, scratch[:n]):])
		copy(m.over(p), scratch[n:size])
	}
	return nil
}

// Compact says whether the panels have modes, each its own.
func (m *Panels) Compact() bool { return m.modes != nil }

// mixed says whether some of compact panels are plain.
func (m *Panels) mixed() bool {
	return slices.ContainsFunc(m.modes, func(mode byte) bool { return mode != panelCompact })
}

// compactAt says whether panel p is compact.
func (m *Panels) compactAt(p int) bool { return m.Compact() && m.modes[p] == panelCompact }

// PanelSize is how far a panel is from the next.
func (m *Panels) PanelSize() int {
	if m.Compact() {
		return compactFormats[m.Type].size(m.Cols)
	}
	return PanelBytes(m.Type, m.Cols)
}

func (m *Panels) panel(p int) []byte { return m.Data[p*m.PanelSize():][:m.PanelSize()] }

// over is what panel p has in the rest.
func (m *Panels) over(p int) []byte {
	n := compactFormats[m.Type].restBytes(m.Type, m.Cols)
	return m.rest[p*n : (p+1)*n]
}

// split is how many columns of a plain panel lie in its place.
func (m *Panels) split() int { return compactFormats[m.Type].split(m.Type, m.Cols) }

// Part gives panels p0 … p1-1.
func (m *Panels) Part(p0, p1 int) Panels {
	size := m.PanelSize()
	c := Panels{Type: m.Type, Rows: min(p1*PanelRows, m.Rows) - p0*PanelRows, Cols: m.Cols,
		Data: m.Data[p0*size : p1*size]}
	if m.Compact() {
		n := compactFormats[m.Type].restBytes(m.Type, m.Cols)
		c.modes, c.rest = m.modes[p0:p1:p1], m.rest[p0*n:p1*n]
	}
	return c
}

// ReadBytes is what a product of one row of activations reads of the panels, their exceptions left out.
func (m *Panels) ReadBytes() int {
	if !m.Compact() {
		return len(m.Data)
	}
	n, f := 0, compactFormats[m.Type]
	for _, mode := range m.modes {
		if mode == panelPlain {
			n += PanelBytes(m.Type, m.Cols)
		} else {
			n += f.size(m.Cols) - compactRoom(m.Cols)
		}
	}
	return n
}

// putExceptions puts those of columns c0 … c0+cols-1 of a compact panel where a plain one has them. A damaged
// panel has no more than it has room for.
func (f *compactFormat) putExceptions(dst, panel []byte, all, c0, cols int) {
	le, most, ends := binary.LittleEndian, uint32(compactRoom(all)/4), panel[f.ends:]
	n := uint32(0)
	for s := range compactSegments {
		for end := min(le.Uint32(ends[4*s:]), most); n < end; n++ {
			e := le.Uint32(ends[4*(compactSegments+n):])
			if c := s*compactSegment + int(e>>4%compactSegment) - c0; c >= 0 && c < cols {
				le.PutUint16(dst[f.at(c, int(e&15)):], uint16(e>>16))
			}
		}
	}
}

// Expand writes columns c0 … c0+cols-1 of panel p as a plain panel has them; c0 is a multiple of 256.
func (k *Kernels) Expand(dst []byte, m *Panels, p, c0, cols int) {
	if !m.Compact() || p < 0 || p >= len(m.modes) || c0 < 0 || c0%256 != 0 || cols < 0 || c0+cols > m.Cols ||
		len(dst) < PanelBytes(m.Type, cols) {
		panic(fmt.Sprintf("simd: Expand of columns %d to %d of panel %d of %d by %d %s into %d bytes", c0, c0+cols, p, m.Rows,
			m.Cols, m.Type, len(dst)))
	}
	slot := m.panel(p)
	if m.modes[p] == panelCompact {
		f := compactFormats[m.Type]
		f.expand(k, dst, slot, m.Cols, c0, cols)
		f.putExceptions(dst, slot, m.Cols, c0, cols)
		return
	}
	from, to, split := PanelBytes(m.Type, c0), PanelBytes(m.Type, c0+cols), PanelBytes(m.Type, m.split())
	n := 0
	if from < split {
		n = copy(dst, slot[from:min(to, split)])
	}
	if to > split {
		copy(dst[n:], m.over(p)[max(0, from-split):to-split])
	}
}

// ExpandPanels makes to, which has room for them, panels p0 … p1-1 as plain ones.
func (k *Kernels) ExpandPanels(to, m *Panels, p0, p1 int) {
	to.Type, to.Rows, to.Cols = m.Type, min(p1*PanelRows, m.Rows)-p0*PanelRows, m.Cols
	for p := p0; p < p1; p++ {
		k.Expand(to.Data[(p-p0)*PanelBytes(m.Type, m.Cols):], m, p, 0, m.Cols)
	}
}

// plainColumns gives columns c0 … c0+cols-1 of panel p as panels that are not compact have them: where
// they lie, or in scratch; c0 is a multiple of 256.
func (k *Kernels) plainColumns(m *Panels, p, c0, cols int, scratch []float32) []byte {
	if !m.Compact() {
		return m.panel(p)[PanelBytes(m.Type, c0):]
	}
	b := tensor.Bytes(scratch)[:PanelBytes(m.Type, cols)]
	k.Expand(b, m, p, c0, cols)
	return b
}

const (
	compactSegment  = 4096 // columns, whose exceptions have places of 16 bits
	compactSegments = 8
)

// compactRoom gives the bytes for exceptions.
func compactRoom(cols int) int { return (cols/8 + 63) / 64 * 64 }

// Compact panels of bf16; csrc/cpu/compact.c describes them in C.
const (
	compactHead  = 64
	compactEnds  = 32  // in the head: u32 for each segment
	compactBlock = 192 // bytes of 8 columns
)

func bf16Fits(cols int) bool {
	return cols%8 == 0 && cols >= 64 && cols <= compactSegments*compactSegment
}

func bf16Size(cols int) int { return compactHead + compactRoom(cols) + cols/8*compactBlock }

func bf16Place(c, r int) int { return c/2*64 + r*4 + c%2*2 }

// bf16Table finds the high bytes that are most frequent in a plain panel, after 0, in a part of it
// that is large enough.
func bf16Table(table *[16]byte, plain []byte) {
	const block, most = 256, 128
	var count [2][256]uint32
	step := (len(plain)/block + most - 1) / most * block
	for at := 0; at < len(plain); at += step {
		for b := plain[at : at+block]; len(b) > 0; b = b[4:] {
			count[0][b[1]]++
			count[1][b[3]]++
		}
	}
	for i := 1; i < len(table); i++ {
		best := 1
		for h := 1; h < 256; h++ {
			if count[0][h]+count[1][h] > count[0][best]+count[1][best] {
				best = h
			}
		}
		table[i] = byte(best)
		count[0][best], count[1][best] = 0, 0
	}
}

func packBF16(dst, plain []byte, cols int) bool {
	const rare = 0x8000
	var table [16]byte
	bf16Table(&table, plain)
	var low, high [256]uint16 // codes as the first four columns have them, and as the others
	for i := range low {
		low[i], high[i] = rare, rare
	}
	for i, h := range table {
		low[h], high[h] = uint16(i), uint16(i)<<4
	}
	le := binary.LittleEndian
	head, list, w := dst[:compactHead], dst[compactHead:][:compactRoom(cols)], dst[compactHead+compactRoom(cols):]
	clear(head)
	clear(list)
	copy(head, table[:])
	n := 0
	for c := 0; c < cols; c += 8 {
		in, out := plain[32*c:][:256], w[c/8*compactBlock:][:compactBlock]
		found := uint16(0)
		for g := range 8 { // of four pairs of columns, a quarter of two pairs: columns 0 to 3
			at := g/4*64 + g%4*16 // pair g / 4 of the first two, rows from 4·(g % 4)
			to := g%4*16 + g/4*8
			first, second := in[at:][:16], in[128+at:][:16]
			le.PutUint64(out[64+to:], evenBytes(first))
			le.PutUint64(out[128+to:], evenBytes(second))
			codes := out[to:][:8]
			for i := range codes {
				v := low[first[2*i+1]] | high[second[2*i+1]]
				found |= v
				codes[i] = byte(v)
			}
		}
		if found&rare != 0 {
			for i := range 128 { // element i of the plain block
				v := le.Uint16(in[2*i:])
				if low[v>>8] != rare {
					continue
				}
				if 4*n == len(list) {
					return false
				}
				column, row := c+i/32*2+i%2, i%32/2
				le.PutUint32(list[4*n:], uint32(v)<<16|uint32(column%compactSegment)<<4|uint32(row))
				n++
				out[64+lowAt(column%8, row)] = 0
			}
		}
		if (c+8)%compactSegment == 0 || c+8 == cols {
			for s := c / compactSegment; s < compactSegments; s++ {
				le.PutUint32(head[compactEnds+4*s:], uint32(n))
			}
		}
	}
	return true
}

// evenBytes gathers the eight bytes of even places.
func evenBytes(b []byte) uint64 {
	return gatherEven(binary.LittleEndian.Uint64(b)) | gatherEven(binary.LittleEndian.Uint64(b[8:]))<<32
}

// oddBytes gathers the eight bytes of odd places.
func oddBytes(b []byte) uint64 {
	return gatherEven(binary.LittleEndian.Uint64(b)>>8) | gatherEven(binary.LittleEndian.Uint64(b[8:])>>8)<<32
}

func gatherEven(v uint64) uint64 {
	v &= 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return (v | v>>16) & 0xffffffff
}

// lowAt says where a block's low bytes have that of column c and row r; columns from 4 on follow
// the codes of the others.
func lowAt(c, r int) int { return c/4*64 + r/4*16 + c%4/2*8 + r%4*2 + c%2 }

func (k *Kernels) expandBF16(dst, panel []byte, all, c0, cols int) {
	w := panel[compactHead+compactRoom(all)+c0/8*compactBlock:][:cols/8*compactBlock]
	if k.c != nil {
		k.c.ExpandBF16(ptr(panel), ptr(w), ptr(dst), cols/8)
	} else {
		expandBF16Go(dst, panel, w)
	}
}

// expandBF16Go is px_bf16.
func expandBF16Go(dst, table, w []byte) {
	for at := 0; at < len(w); at += compactBlock {
		for c := range 8 {
			for r := range PanelRows {
				i := lowAt(c, r)
				b := dst[at/compactBlock*256+c/2*64+r*4+c%2*2:]
				b[0], b[1] = w[at+64+i], table[w[at+i%64]>>(c/4*4)&15]
			}
		}
	}
}

// compactBF16 gives the kernel of compact panels of bf16; nil: there is none.
func (k *Kernels) compactBF16() func(w, x, y unsafe.Pointer, k, shape int) {
	if k.c == nil {
		return nil
	}
	return k.c.CompactBF16
}

// compactF16 is compactBF16 for f16.
func (k *Kernels) compactF16() func(w, x, y unsafe.Pointer, k, shape int) {
	if k.h == nil {
		return nil
	}
	return k.h.CompactF16
}

// plainPanel gives the kernel of a plain type.
func (k *Kernels) plainPanel(t tensor.Type) func(w, x, y unsafe.Pointer, k, shape int) {
	switch t {
	case tensor.F32:
		return k.k.PanelF32
	case tensor.F16:
		return k.k.PanelF16
	case tensor.BF16:
		return k.k.PanelBF16
	}
	panic("simd: no plain panels of " + t.String())
}
