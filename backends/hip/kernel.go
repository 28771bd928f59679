package hip

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/tensor"
)

// kernel is the choice for a node.
type kernel struct {
	dev     *Device
	name    string
	choice  *choice
	packing *backends.Packing
	arg     int // of packing
	scratch int
	rel     float64
	variant string        // that was asked for, "" for the default
	why     string        // it is chosen, where more than its choice says so
	own     *customKernel // that a user wrote; nil: it is this package's
}

func (k *kernel) Name() string { return k.name }

func (k *kernel) Traits() backends.Traits {
	return backends.Traits{Scratch: k.scratch, Tolerance: k.rel, Why: cmp.Or(k.why, k.choice.why)}
}

// Instance is what a user's kernel was made of, nil for others.
func (k *kernel) Instance() *custom.Instance {
	if k.own == nil {
		return nil
	}
	return k.own.Of
}

func (k *kernel) Packing(arg int) *backends.Packing {
	if k.own != nil {
		return k.own.Packing(arg)
	}
	if k.packing == nil || arg != k.arg {
		return nil
	}
	return k.packing
}

// Kernel chooses the kernel of a node.
func (dev *Device) Kernel(n *graph.Node) (backends.Kernel, error) {
	e, ok := table[n.Op.Name]
	if !ok {
		return nil, backends.Unsupportedf("hip", n, "it is not in the table of kernels")
	}
	c := dev.choice(n)
	if c == nil {
		return nil, backends.Unsupportedf("hip", n,
			"factors of rows are for products of one row here, and for those of more in half precision with packed weights "+
				"of 8-bit floats")
	}
	rounding := dev.Rounding()
	k := &kernel{dev: dev, choice: c, name: n.Op.Name, rel: rounding.Tolerance(n), why: dev.why(n, c)}
	if err := k.operands(n, &e); err != nil {
		return nil, err
	}
	if e.check != nil {
		if err := e.check(n); err != nil {
			return nil, backends.Unsupportedf("hip", n, "%v", err)
		}
	}
	switch {
	case e.scratch != nil:
		k.scratch = e.scratch(dev, n)
	case c.scratch != nil:
		k.scratch = c.scratch(n)
	}
	var err error
	if k.variant, err = dev.variant(n); err != nil {
		return nil, err
	}
	k.name += "." + dev.info.Level
	return k, nil
}

// operands says why a node's operands and results cannot be what they are, and how its weight is packed.
func (k *kernel) operands(n *graph.Node, e *entry) error {
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if v.Shape.Elems() > math.MaxInt32 && i != e.weight && len(v.Shape) < 4 { // pools are counted in 64 bits
			return backends.Unsupportedf("hip", n, "operand %d is %s: kernels count to 2^31", i, v)
		}
		switch {
		case i == e.weight:
			if _, ok := weightNames[v.Type]; !ok {
				return backends.Unsupportedf("hip", n, "weights of %s", v)
			}
			if v.Type.IsBlock() {
				if v.Kind != graph.Weight {
					return backends.Unsupportedf("hip", n, "%s is a part of another tensor: blocks are packed whole", v)
				}
				k.packing, k.arg = packings[v.Type], i
			} else if k.choice.packsF8 {
				k.packing, k.arg = f8Packing, i
			}
			k.name += "." + v.Type.String()
		case v.Type == tensor.F32 || v.Type == tensor.I32:
		case i == 0 && v.Type == tensor.F16 && k.choice.packsF8:
		case slices.Contains(e.plain, i) && plainTypes[v.Type] != 0:
		case v.Type == tensor.Q8_0 && v.Kind != graph.Weight && slices.Contains(e.plain, i) && e.check != nil: // a cache
		default:
			return backends.Unsupportedf("hip", n, "operand %d is %s: activations are f32 here", i, v)
		}
	}
	for _, v := range n.Out {
		if n.Op.Kind != graph.Update && v.Type != tensor.F32 && v.Type != tensor.I32 && !k.choice.packsF8 {
			return backends.Unsupportedf("hip", n, "%s: results are f32 here", v)
		}
	}
	return nil
}

// plainTypes numbers, from one, the types that load_float reads.
var plainTypes = map[tensor.Type]uint64{
	tensor.F32: 1, tensor.F16: 2, tensor.BF16: 3, tensor.F8E4M3: 4, tensor.F8E5M2: 5, tensor.F8E4M3FNUZ: 6,
	tensor.F8E5M2FNUZ: 7,
}

// binder collects the dispatches of a launch. The first error stays.
type binder struct {
	dev    *Device
	l      *backends.Launch
	number int
	parts  []*dispatch
	common []span // memory of the device that the launch writes beside its operands
	works  bool   // the device's workspace is used
	waits  bool   // what kernels read before they wait for the launch before is computed in the step
	err    error
}

// dispatches are the launch's, which start when those before have ended where operands ask for that.
func (b *binder) dispatches() []*dispatch {
	for _, d := range b.parts {
		d.waits = d.waits || b.waits
	}
	return b.parts
}

func (b *binder) failf(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// start adds a dispatch of a function.
func (b *binder) start(p program, name string, block int, gx, gy, gz int) *dispatch {
	d := &dispatch{code: code{p, name}, grid: [3]int{gx, gy, gz}, block: block}
	if gy > 65535 || gz > 65535 || gx > math.MaxInt32 {
		b.failf("a grid of %d by %d by %d blocks is more than devices have", gx, gy, gz)
	}
	b.parts = append(b.parts, d)
	return d
}

func (d *dispatch) u32(vs ...int) *dispatch {
	for _, v := range vs {
		d.args.add(uint64(uint32(v)))
	}
	return d
}

func (d *dispatch) f32(v float64) *dispatch {
	d.args.add(uint64(math.Float32bits(float32(v))))
	return d
}

func (d *dispatch) ptr(at ...uintptr) *dispatch {
	for _, p := range at {
		d.args.add(uint64(p))
	}
	return d
}

// rows passes a struct Rows.
func (d *dispatch) rows(r rows) *dispatch {
	d.args.add(uint64(uint32(r.cols))|uint64(uint32(r.inner))<<32, uint64(uint32(r.stride)))
	return d
}

// status passes what a kernel needs to report bad data.
func (b *binder) status(d *dispatch) { d.ptr(b.dev.statusAt).u32(b.number) }

// pointer gives an operand's address, all of its range checked; 0 where it is left out.
func (b *binder) pointer(o *backends.Operand) uintptr {
	if o == nil || o.Buffer == nil {
		return 0
	}
	n := o.Type.RowBytes(o.RowElems())
	if o.Rows() > 0 {
		n += (o.Rows() - 1) * o.Stride
	}
	if _, size := o.Type.Block(); !o.Type.IsBlock() && (o.Offset%size != 0 || o.Stride%size != 0) {
		b.failf("offset %d and stride %d are not multiples of %s's %d bytes", o.Offset, o.Stride, o.Type, size)
	}
	at, err := b.dev.where(o.Buffer, o.Offset, n)
	if err != nil {
		b.failf("%w", err)
	}
	return at
}

// dense is pointer for operands that must have no gaps.
func (b *binder) dense(o *backends.Operand) uintptr {
	if o != nil && o.Buffer != nil && !o.Dense() {
		b.failf("an operand %s%v with gaps between its rows, where none can be", o.Type, o.Shape)
	}
	return b.pointer(o)
}

// scratch gives the launch's own memory.
func (b *binder) scratch() uintptr {
	s := &b.l.Scratch
	at, err := b.dev.where(s.Buffer, s.Offset, b.l.Kernel.Traits().Scratch)
	if err != nil {
		b.failf("scratch: %w", err)
	}
	return at
}

// in gives operand i, one without a buffer where it is left out.
func (b *binder) in(i int) *backends.Operand {
	if i >= len(b.l.In) {
		return &backends.Operand{}
	}
	return &b.l.In[i]
}

// named gives an operand by its name in the signature, one without a buffer where it is left out.
func (b *binder) named(name string) *backends.Operand {
	if o := b.l.Named(name); o != nil {
		return o
	}
	return &backends.Operand{}
}

func (b *binder) out(i int) uintptr { return b.dense(&b.l.Out[i]) }

// plain gives a small operand of any plain float and its type's number.
func (b *binder) plain(o *backends.Operand) (uintptr, int) {
	if o.Buffer == nil {
		return 0, 0
	}
	return b.dense(o), int(plainTypes[o.Type]) - 1
}

// rows is a tensor as rows of its last dimension; see struct Rows in prelude.h.
type rows struct{ n, cols, inner, stride int }

func rowsOf(o *backends.Operand) rows {
	r := rows{n: o.Shape.Rows(), cols: o.Shape.Last(), inner: 1}
	_, size := o.Type.Block()
	r.stride = o.Stride / size
	if len(o.Shape) > 1 {
		r.inner = tensor.Shape(o.Shape[1 : len(o.Shape)-1]).Elems()
	} else {
		r.stride = r.cols
	}
	if o.Dense() {
		r.inner, r.stride = 1, r.cols
	}
	return r
}

// spread gives the elements of an index of dimension 0 and their distance, equal
// where the tensor is dense.
func spread(o *backends.Operand) (row, stride int) {
	if o.Dense() {
		n := max(o.Shape.Elems(), 1)
		return n, n
	}
	_, size := o.Type.Block()
	return o.RowElems(), o.Stride / size
}

func f32(bits uint32) float32 { return math.Float32frombits(bits) }

func ceil(a, b int) int { return (a + b - 1) / b }
