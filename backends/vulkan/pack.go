//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// Block formats whose blocks are no multiple of 16 bytes lie on the device with
// each row as planes: the i-th part of every block of the row together, so that
// codes are read 16 bytes at a time. decode.glsl reads them. Rows stay rows, so that
// a weight can still be run in pieces.

// packedID names the layout and its version.
const packedID = "vulkan-rows1"

// plane is a range of a block's bytes.
type plane struct{ at, size int }

var planes = map[tensor.Type][]plane{
	tensor.Q4_0:   {{2, 16}, {0, 2}},
	tensor.Q4_1:   {{4, 16}, {0, 4}},
	tensor.Q5_0:   {{6, 16}, {2, 4}, {0, 2}},
	tensor.Q5_1:   {{8, 16}, {4, 4}, {0, 4}},
	tensor.Q8_0:   {{2, 32}, {0, 2}},
	tensor.IQ4_NL: {{2, 16}, {0, 2}},
	tensor.MXFP4:  {{1, 16}, {0, 1}},
	tensor.Q6_K:   {{0, 128}, {128, 64}, {192, 16}, {208, 2}},
}

var packing = &backends.Packing{ID: packedID, Unit: 1, Pack: packRows,
	Size: func(t tensor.Type, shape tensor.Shape) int { return shape.Rows() * packedRow(t, shape.Last()) }}

// packingOf is the layout of a weight of a type, nil: as stored.
func packingOf(t tensor.Type) *backends.Packing {
	if planes[t] == nil {
		return nil
	}
	return packing
}

// packedRow is the size in bytes of a row of cols elements. Every plane starts at a multiple of 16.
func packedRow(t tensor.Type, cols int) (size int) {
	elems, _ := t.Block()
	for _, p := range planes[t] {
		size += (cols/elems*p.size + 15) &^ 15
	}
	return size
}

// packRows moves the blocks of rows [from, to) to their planes.
func packRows(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	elems, bytes := t.Block()
	blocks, row := shape.Last()/elems, packedRow(t, shape.Last())
	if len(dst) < shape.Rows()*row || len(src) < shape.Rows()*blocks*bytes || from < 0 || to > shape.Rows() {
		return fmt.Errorf("vulkan: packing rows %d to %d of %s%v from %d to %d bytes", from, to, t, shape, len(src), len(dst))
	}
	for r := from; r < to; r++ {
		in, out := src[r*blocks*bytes:], dst[r*row:(r+1)*row]
		clear(out)
		for _, p := range planes[t] {
			for b := range blocks {
				copy(out[b*p.size:][:p.size], in[b*bytes+p.at:])
			}
			out = out[(blocks*p.size+15)&^15:]
		}
	}
	return nil
}

// rowBytes is the size of a row of an operand's last dimension.
func rowBytes(o *backends.Operand) int {
	if o.Packing != "" {
		return packedRow(o.Type, o.Shape.Last())
	}
	return o.Type.RowBytes(o.Shape.Last())
}

// placed is a weight with the stride that it has on the device.
func (b *bind) placed(o *backends.Operand) *backends.Operand {
	if planes[o.Type] == nil {
		if o.Packing != "" {
			b.fail(fmt.Errorf("a weight of %s%v in the layout %q", o.Type, o.Shape, o.Packing))
		}
		return o
	}
	if o.Packing != packedID {
		b.fail(fmt.Errorf("a weight of %s%v in the layout %q, not %q", o.Type, o.Shape, o.Packing, packedID))
	}
	p := *o
	p.Stride = rowBytes(o)
	if len(o.Shape) == 3 {
		p.Stride *= o.Shape[1]
	}
	return &p
}
