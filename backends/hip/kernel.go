package hip

import (
	"fmt"
	"math"
	"slices"

	"greta/backends"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
)

// entry is a row of the device's table of kernels.
type entry struct {
	// check says why a node cannot run, beside what all entries ask for.
	check func(n *graph.Node) error
	bind  func(b *binder)
	// weight is the operand that may have any type of weight, which names the
	// kernel; -1: none.
	weight int
	// plain are operands that may be any plain float beside f32.
	plain []int
	// scratch is the memory that a launch needs, bytes; nil: none.
	scratch func(dev *Device, n *graph.Node) int
}

// fusions are the fused operators that this device wants, in the order of trial.
var fusions = []string{"rope_push", "linear_scaled_residual", "linear_scaled_bias", "linear_scaled", "linear_residual", "add_rmsnorm", "swiglu", "geglu"}

// table is the device's kernels by operator.
var table = map[string]entry{
	"add":                    {bind: bindPair, weight: -1, plain: []int{1}},
	"mul":                    {bind: bindPair, weight: -1, plain: []int{1}},
	"scale":                  {bind: bindPoint, weight: -1},
	"silu":                   {bind: bindPoint, weight: -1},
	"gelu":                   {bind: bindPoint, weight: -1},
	"sigmoid":                {bind: bindPoint, weight: -1},
	"softcap":                {bind: bindPoint, weight: -1},
	"swiglu":                 {bind: bindPair, weight: -1},
	"geglu":                  {bind: bindPair, weight: -1},
	"embed":                  {bind: bindEmbed, weight: 1},
	"linear":                 {bind: bindLinear, weight: 1, plain: []int{2}, scratch: linearScratch},
	"linear_bias":            {bind: bindLinear, weight: 1, plain: []int{2}, scratch: linearScratch},
	"linear_residual":        {bind: bindLinear, weight: 1, plain: []int{3}, scratch: linearScratch},
	"linear_scaled":          {bind: bindLinear, weight: 1},
	"linear_scaled_bias":     {bind: bindLinear, weight: 1, plain: []int{3}},
	"linear_scaled_residual": {bind: bindLinear, weight: 1},
	"linear_id":              {bind: bindLinearID, weight: 1, plain: []int{3}},
	"rmsnorm":                {bind: bindNorm, weight: -1, plain: []int{1}},
	"layernorm":              {bind: bindNorm, weight: -1, plain: []int{1, 2}},
	"add_rmsnorm":            {bind: bindNorm, weight: -1, plain: []int{2}},
	"softmax":                {bind: bindSoftmax, weight: -1},
	"rope":                   {bind: bindRotation, weight: -1, plain: []int{2}},
	"push":                   {bind: bindRotation, weight: -1, plain: []int{0}, check: checkCache},
	"rope_push":              {bind: bindRotation, weight: -1, plain: []int{0, 3}, check: checkCache},
	"attention":              {bind: bindAttention, weight: -1, plain: []int{1, 2}, check: checkAttention, scratch: attentionScratch},
	"paged_push":             {bind: bindPagedPush, weight: -1, plain: []int{0}, check: checkCache},
	"paged_attention":        {bind: bindPagedAttention, weight: -1, plain: []int{1, 2}, check: checkPaged, scratch: pagedScratch},
	"topk":                   {bind: bindTopK, weight: -1},
	"mix":                    {bind: bindMix, weight: -1},
	"rows":                   {bind: bindRows, weight: -1},
	"split":                  {bind: bindSplit, weight: -1},
	"view":                   {bind: bindView, weight: -1},
}

// kernel is the choice for a node.
type kernel struct {
	dev     *Device
	name    string
	entry   entry
	packing *backends.Packing
	arg     int // of packing
	scratch int
	variant string // that was chosen, "" for the default
}

func (k *kernel) Name() string { return k.name }
func (k *kernel) Scratch() int { return k.scratch }

func (k *kernel) Packing(arg int) *backends.Packing {
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
	k := &kernel{dev: dev, entry: e, name: n.Op.Name}
	var err error
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if v.Shape.Elems() > math.MaxInt32 && i != e.weight && len(v.Shape) < 4 { // pools are counted in 64 bits
			return nil, backends.Unsupportedf("hip", n, "operand %d is %s: kernels count to 2^31", i, v)
		}
		switch {
		case i == e.weight:
			if _, ok := weightNames[v.Type]; !ok {
				return nil, backends.Unsupportedf("hip", n, "weights of %s", v)
			}
			if v.Type.IsBlock() {
				if v.Kind != graph.Weight {
					return nil, backends.Unsupportedf("hip", n, "%s is a part of another tensor: blocks are packed whole", v)
				}
				k.packing, k.arg = packings[v.Type], i
			} else if dev.usesF8(n) {
				k.packing, k.arg = f8Packing, i
			}
			k.name += "." + v.Type.String()
		case v.Type == tensor.F32 || v.Type == tensor.I32:
		case i == 0 && v.Type == tensor.F16 && dev.usesF8(n):
		case slices.Contains(e.plain, i) && plainTypes[v.Type] != 0:
		default:
			return nil, backends.Unsupportedf("hip", n, "operand %d is %s: activations are f32 here", i, v)
		}
	}
	for _, v := range n.Out {
		if n.Op.Kind != graph.Update && v.Type != tensor.F32 && v.Type != tensor.I32 && !dev.usesF8(n) {
			return nil, backends.Unsupportedf("hip", n, "%s: results are f32 here", v)
		}
	}
	if why := ops.Beyond(n); why != "" {
		return nil, backends.Unsupportedf("hip", n, "%s: no kernel of this backend does that", why)
	}
	if scaled(n) && !dev.usesF8(n) && !dev.usesVec(n) {
		return nil, backends.Unsupportedf("hip", n, "factors of rows are for products of one row here, and for those of more in half precision with packed weights of 8-bit floats")
	}
	if e.check != nil {
		if err := e.check(n); err != nil {
			return nil, backends.Unsupportedf("hip", n, "%v", err)
		}
	}
	if e.scratch != nil {
		k.scratch = e.scratch(dev, n)
	}
	if k.variant, err = dev.variant(n); err != nil {
		return nil, err
	}
	k.name += "." + dev.info.Level
	return k, nil
}

// plainTypes numbers, from one, the types that load_float reads.
var plainTypes = map[tensor.Type]uint64{
	tensor.F32: 1, tensor.F16: 2, tensor.BF16: 3, tensor.F8E4M3: 4, tensor.F8E5M2: 5, tensor.F8E4M3FNUZ: 6, tensor.F8E5M2FNUZ: 7,
}

// binder collects the dispatches of a launch. The first error stays.
type binder struct {
	dev    *Device
	l      *backends.Launch
	number int
	parts  []*dispatch
	common []span // memory of the device that the launch writes beside its operands
	works  bool   // the device's workspace is used
	err    error
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
	at, err := b.dev.where(s.Buffer, s.Offset, b.l.Kernel.Scratch())
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
