//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"cmp"
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// typeCodes are the numbers that decode.glsl has for types.
var typeCodes = map[tensor.Type]uint32{
	tensor.F32: 1, tensor.F16: 2, tensor.BF16: 3, tensor.F64: 4,
	tensor.F8E4M3: 5, tensor.F8E5M2: 6, tensor.F8E4M3FNUZ: 7, tensor.F8E5M2FNUZ: 8,
	tensor.Q4_0: 10, tensor.Q4_1: 11, tensor.Q5_0: 12, tensor.Q5_1: 13, tensor.Q8_0: 14, tensor.IQ4_NL: 15,
	tensor.MXFP4: 16,
	tensor.Q2_K:  20, tensor.Q3_K: 21, tensor.Q4_K: 22, tensor.Q5_K: 23, tensor.Q6_K: 24, tensor.IQ4_XS: 25,
	tensor.TQ1_0: 26, tensor.TQ2_0: 27,
}

// narrow says whether small operands, such as a norm's weight, and caches may have a type.
func narrow(t tensor.Type) bool { return t == tensor.F32 || t == tensor.F16 || t == tensor.BF16 }

// isCoded says whether a cache of a type is read and written by bytes: those of eight bits.
func isCoded(t tensor.Type) bool { return t == tensor.F8E4M3 || t == tensor.Q8_0 }

// cacheUnit is the bytes in which shaders count a cache's places.
func cacheUnit(t tensor.Type) int {
	if isCoded(t) {
		return 1
	}
	_, size := t.Block()
	return size
}

// bind collects the dispatches of a launch.
type bind struct {
	d      *Device
	l      *backends.Launch
	number int // of the launch in its program
	// program is what the launch is a part of
	program *backends.Program
	kernel  string
	on      taken          // paths that the kernel was chosen with
	copies  *copies        // of activations, from launches before
	folds   *folds         // of the program; nil: none
	variant *matrixVariant // of matrix.comp; nil: the device has only one
	places  *places        // places for results of their own; nil: none
	refused span           // in which kernels report indices out of range
	list    []dispatch
	err     error
}

// call starts a dispatch of a shader.
func (b *bind) call(shader string) *dispatch { return &dispatch{kernel: b.kernel, shader: shader} }

// bytes binds a range of a buffer and gives the bytes from the binding's start
// to the range's: bindings start where the device lets them.
func (b *bind) bytes(x *dispatch, buf backends.Buffer, offset, n int, write bool) uint32 {
	o, err := b.d.own(buf, offset, n)
	if err != nil {
		b.fail(err)
		return 0
	}
	align := uint64(max(b.d.p.limits.MinStorageBufferOffsetAlignment, 16))
	from := uint64(offset) &^ (align - 1)
	to := (uint64(offset+n) + 15) &^ 15
	to = max(to, from+16)
	if to-from > uint64(b.d.p.limits.MaxStorageBufferRange) {
		b.fail(fmt.Errorf("an operand of %d bytes is more than the %d that %s can bind", n,
			b.d.p.limits.MaxStorageBufferRange, b.d.p.Name))
		return 0
	}
	part, start, err := o.whole(from, min(to, o.bytes))
	if err = errlist.Join(err, o.zero()); err != nil {
		b.fail(err)
		return 0
	}
	x.bound = append(x.bound, span{b: part, from: from - start, to: to - start})
	x.used = append(x.used, span{o, uint64(offset), uint64(offset + n), write})
	return uint32(uint64(offset) - from)
}

func (b *bind) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// operand binds an operand and gives its offset in bytes; without a buffer, a
// placeholder.
func (b *bind) operand(x *dispatch, o *backends.Operand, write bool) uint32 {
	if o == nil || o.Buffer == nil {
		return b.none(x)
	}
	return b.bytes(x, o.Buffer, o.Offset, o.Extent(), write)
}

// none binds a placeholder for an operand that is left out.
func (b *bind) none(x *dispatch) uint32 {
	x.bound = append(x.bound, span{b: b.d.empty, to: b.d.empty.bytes})
	return 0
}

// status binds the buffer in which kernels report indices out of range.
func (b *bind) status(x *dispatch) {
	x.bound = append(x.bound, b.refused)
}

// rows is an f32 operand as rows of its last dimension, in elements. A tensor's
// dimension 0 may be strided; inside one index of it rows follow each other.
type rows struct{ off, n, cols, inner, stride uint32 }

// floats binds an f32 operand.
func (b *bind) floats(x *dispatch, o *backends.Operand, write bool) rows {
	if o.Type != tensor.F32 {
		b.fail(fmt.Errorf("an operand of f32 is wanted, not %s", o.Type))
		return rows{}
	}
	if o.Offset%4 != 0 || o.Stride%4 != 0 {
		b.fail(fmt.Errorf("offset %d and stride %d are not multiples of 4 bytes", o.Offset, o.Stride))
	}
	if len(o.Shape) == 1 && !o.Dense() {
		b.fail(fmt.Errorf("a vector with gaps"))
	}
	r := rows{off: b.operand(x, o, write) / 4, n: uint32(o.Shape.Rows()), cols: uint32(o.Shape.Last()), inner: 1,
		stride: uint32(o.Stride / 4)}
	if len(o.Shape) > 1 {
		r.inner = uint32(max(1, tensor.Shape(o.Shape[1:len(o.Shape)-1]).Elems()))
	} else {
		r.stride = r.cols
	}
	return r
}

// ints binds a dense i32 operand and gives its offset in elements.
func (b *bind) ints(x *dispatch, o *backends.Operand) uint32 {
	if o.Type != tensor.I32 || !o.Dense() {
		b.fail(fmt.Errorf("a dense operand of i32 is wanted, not %s with stride %d", o.Type, o.Stride))
		return 0
	}
	return b.operand(x, o, false) / 4
}

// vector binds a small weight and gives its offset in elements of its type, and
// the type's code, 0 where it is left out.
func (b *bind) vector(x *dispatch, o *backends.Operand) (off, code uint32) {
	if o == nil || o.Buffer == nil {
		return b.none(x), 0
	}
	if !narrow(o.Type) || !o.Dense() {
		b.fail(fmt.Errorf("a dense operand of f32, f16 or bf16 is wanted, not %s with stride %d", o.Type, o.Stride))
	}
	_, size := o.Type.Block()
	return b.operand(x, o, false) / uint32(size), typeCodes[o.Type]
}

// at gives an operand, nil where the launch has fewer.
func at(list []backends.Operand, i int) *backends.Operand {
	if i >= len(list) {
		return nil
	}
	return &list[i]
}

func bits(f float64) uint32 { return math.Float32bits(float32(f)) }

// run finishes a dispatch: constants, groups along x and y.
func (b *bind) run(x *dispatch, gx, gy int) {
	b.run3(x, gx, gy, 1)
}

func (b *bind) run3(x *dispatch, gx, gy, gz int) {
	if b.err != nil || gx == 0 || gy == 0 || gz == 0 {
		return
	}
	if 4*len(x.push) > pushBytes {
		b.fail(fmt.Errorf("%s has %d constants, there is room for %d", x.shader, len(x.push), pushBytes/4))
		return
	}
	limit := b.d.p.limits.MaxComputeWorkGroupCount
	if uint32(gx) > limit[0] || uint32(gy) > limit[1] || uint32(gz) > limit[2] {
		b.fail(fmt.Errorf("%s wants %d×%d×%d workgroups, %s runs %v", x.shader, gx, gy, gz, b.d.p.Name, limit))
		return
	}
	x.groups = [3]uint32{uint32(gx), uint32(gy), uint32(gz)}
	var err error
	if x.pipe, err = b.d.pipeline(x.shader, cmp.Or(x.entry, "main"), len(x.bound), x.spec, x.subgroup); err != nil {
		b.fail(err)
		return
	}
	b.list = append(b.list, *x)
}

// groups is the number of workgroups for n invocations, for kernels that loop
// over what is left.
func groups(n, size int) int { return min((n+size-1)/size, 32768) }
