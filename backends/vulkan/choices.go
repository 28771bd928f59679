//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// The table of choices: what runs a node, and why. Whatever else depends on that reads it here: the form in which
// products
// want activations, packing, what is folded, the reasons that people are shown, what the checks of paths try.

// binder turns a launch into dispatches.
type binder func(b *bind) error

// entry is an operator's row.
type entry struct {
	bind    binder
	why     string // a sentence; of products and attention their own tables have it
	typed   int    // the operand whose type is in the kernel's name; -1: none
	wide    []int  // operands that may have any type that decode.glsl knows
	caches  []int  // operands that may be caches in eight bits
	scratch func(d *Device, n *graph.Node) int
}

func (e *entry) decodes(arg int) bool {
	for _, w := range e.wide {
		if w == arg {
			return true
		}
	}
	return false
}

// question is what the choice of a product depends on.
type question struct {
	d     *Device
	on    taken
	w     tensor.Type
	cols  int  // elements of a row
	rows  int  // of x
	lines bool // rows of w can be read 16 bytes at a time
	// grouped: rows are those of experts, together
	grouped bool
}

// productChoice is a shader that multiplies by a matrix.
type productChoice struct {
	name  string // of its modules, before the first "_"
	form  form   // in which it reads activations, empty: f32
	why   string
	takes func(q *question) bool // nil: what the choices before it leave
	bind  func(b *bind, p product, part piece)
	// grouped multiplies pairs of a token and one of its experts, nil: it cannot, and does so where an expert has
	// this many at the mean.
	grouped func(b *bind, p product, part piece, e *backends.Operand)
	each    int
}

// productChoices are those of products; the first that takes one runs it.
var productChoices []productChoice

func init() { // what they bind asks for the choices of launches behind
	productChoices = []productChoice{
		{name: "matrix", form: halves, bind: (*bind).matrix, grouped: (*bind).matrixGroups, each: 4,
			why: "many rows: tiles of w, decoded to f16 in shared memory, by cooperative matrices",
			takes: func(q *question) bool {
				bf16 := q.grouped && q.w == tensor.BF16 && q.rows > matVecRows
				return q.on.matrix && (bf16 || q.d.takesMatrix(q.w, q.rows)) && (q.w.IsBlock() || q.lines)
			}},
		{name: "regdecode", form: halves, bind: (*bind).matrix,
			why:   "many rows, a format that decodes to where matrices take their elements from, past shared memory",
			takes: func(q *question) bool { return q.on.regDecode && q.d.takesRegDecode(q.w, q.cols, q.rows) }},
		{name: "bf16", form: bfloats, bind: (*bind).matrix,
			why: "many rows: tiles of w and of rows rounded to bf16, by cooperative matrices of it",
			takes: func(q *question) bool {
				return q.on.bfloat && !q.grouped && q.d.takesBFloats(q.w, q.rows) && q.lines
			}},
		{name: "matvecq", form: dots, bind: (*bind).matVecDots,
			why:   "few rows in bytes: integer dot products with blocks of w as they are",
			takes: func(q *question) bool { return q.on.int8Dot && takesDots(q.w, q.rows) }},
		{name: "matmul", bind: (*bind).matMul, grouped: (*bind).matMulGroups, each: 8,
			why:   "many rows in f32: tiles of w are decoded once in shared memory",
			takes: func(q *question) bool { return q.rows > matVecRows && q.d.tiled }},
		{name: "matvec", bind: (*bind).matVec,
			why: "few rows, or a device whose shared memory is slow: w is decoded in registers past them"},
	}
}

// Invariant says whether the device was opened so.
func (d *Device) Invariant() bool { return d.opt.Invariant }

// rows is by how many rows kernels are chosen in a step of n.
func (d *Device) rows(n int) int {
	if d.opt.Invariant {
		return backends.InvariantRows
	}
	return n
}

// choose finds the shader of a product of so many rows.
func (q *question) choose() *productChoice {
	for i := range productChoices {
		if c := &productChoices[i]; c.takes == nil || c.takes(q) {
			return c
		}
	}
	return nil // not reached: the last takes all
}

// product is the choice for a weight as it lies and so many rows, as rows gives them.
func (d *Device) product(on taken, w *backends.Operand, rows int) *productChoice {
	cols := w.Shape.Last()
	return (&question{d, on, w.Type, cols, rows, aligned(w, cols, w.Stride) != 0, false}).choose()
}

// formOf is the form in which a linear reads its activations, empty: f32.
func (d *Device) formOf(on taken, w *backends.Operand, rows int) form {
	return d.product(on, w, rows).form
}

// attentionChoice is a shader of attention.
type attentionChoice struct {
	name  string
	why   string
	takes func(d *Device, on taken, n *graph.Node, k, v *backends.Operand) bool // nil: what the choices before it leave
	bind  binder
	sinks bool // of all that goes beyond the plain form (ops.Beyond) it has sinks
}

// attentionChoices are those of attention; the first that takes one runs it.
var attentionChoices = []attentionChoice{
	{name: "attention_few", bind: bindFew, sinks: true,
		why:   "few tokens: a workgroup a head and part of the positions, a subgroup eight positions at a time",
		takes: func(d *Device, _ taken, n *graph.Node, k, v *backends.Operand) bool { return d.fewUnits(n, k, v) > 0 }},
	{name: "attention_matrix", bind: (*bind).attentionMatrix, sinks: true,
		why: "many tokens over f16 caches: both products by cooperative matrices, in one pass",
		takes: func(d *Device, on taken, n *graph.Node, k, v *backends.Operand) bool {
			// faster than the next
			return lined(k) && lined(v) && (on.matrix && d.takesMatrixAttention(n) || on.regDecode &&
				d.takesRegDecodeAttention(n))
		}},
	{name: "attention_flash", bind: (*bind).attentionFlash,
		why: "many tokens over f16 caches: matrices of a workgroup with functions of their elements, in one pass",
		takes: func(d *Device, on taken, n *graph.Node, k, v *backends.Operand) bool {
			return lined(k) && lined(v) && on.flash && d.takesFlash(n)
		}},
	{name: "attention", bind: bindPlainAttention,
		why: "any heads and caches; chunks, slopes, both ways and texts side by side, which the others lack: online " +
			"over the positions, in f32"},
}

// lined says whether rows of a cache can be read 16 bytes at a time.
func lined(o *backends.Operand) bool { return o.Offset%16 == 0 && o.Stride%16 == 0 }

func (d *Device) attention(on taken, n *graph.Node, k, v *backends.Operand) *attentionChoice {
	for i := range attentionChoices {
		c := &attentionChoices[i]
		beyond := ops.Beyond(n)
		if c.sinks {
			beyond = ops.BesideSinks(n)
		}
		if c.takes != nil && (beyond != "" || d.opt.Invariant) {
			continue
		}
		if c.takes == nil || c.takes(d, on, n, k, v) {
			return c
		}
	}
	return nil // not reached: the last takes all
}

// why says what runs a node whose operands lie without gaps, and why it does.
func (d *Device) why(n *graph.Node, e *entry, tile *matrixVariant) string {
	switch {
	case n.Op == ops.LinearID:
		w := n.In[1]
		c, grouped := question{d, d.on, w.Type, w.Shape.Last(), n.In[2].Shape.Elems(),
			w.Type.RowBytes(w.Shape.Last())%16 == 0, true}.experts(w.Shape[0])
		if grouped {
			return fmt.Sprintf("%s: %d or more rows an expert, taken together so that its matrix is read once a tile: %s",
				c.name, c.each, c.why)
		}
		return c.name + ": " + c.why
	case isProduct(n):
		w, rows := n.In[1], d.rows(n.In[0].Shape.Rows())
		c := (&question{d, d.on, w.Type, w.Shape.Last(), rows, w.Type.RowBytes(w.Shape.Last())%16 == 0, false}).choose()
		// where both are on its tiles are chosen by their number
		if c.name == "matrix" && tile != nil && tile.name == regDecodeTile {
			c = &productChoices[1]
		}
		if d.opt.Invariant {
			return fmt.Sprintf("%s: invariant: as for %d rows, however many there are: %s", c.name, rows, c.why)
		}
		return c.name + ": " + c.why
	case n.Op == ops.Attention:
		k, v := denseOperand(n.In[1]), denseOperand(n.In[2])
		c := d.attention(d.on, n, &k, &v)
		if d.opt.Invariant {
			return c.name + ": invariant: each row's positions by themselves; " + c.why
		}
		return c.name + ": " + c.why
	}
	return e.why
}

// denseOperand is a value that lies without gaps.
func denseOperand(v *graph.Value) backends.Operand {
	o := backends.Operand{Type: v.Type, Shape: v.Shape}
	o.Stride = v.Type.RowBytes(o.RowElems())
	return o
}

// fusions are the fused operators that this device wants, in the order of trial.
var fusions = []string{"rope_push", "linear_scaled_bias", "linear_scaled", "linear_residual", "linear_bias",
	"add_rmsnorm", "swiglu", "geglu"}

const (
	pairwise = "an element an invocation"
	rowwise  = "a row a workgroup"
)

// kernels is the device's table by operator.
var kernels map[string]entry

func init() { // the binders of the table refer to it through Kernel
	linear := entry{bind: bindLinear, typed: 1, wide: []int{1}}
	kernels = map[string]entry{
		"add":         {bind: bindPair, typed: -1, why: pairwise},
		"mul":         {bind: bindPair, typed: -1, why: pairwise},
		"scale":       {bind: bindElementwise, typed: -1, why: pairwise},
		"silu":        {bind: bindElementwise, typed: -1, why: pairwise},
		"gelu":        {bind: bindElementwise, typed: -1, why: pairwise},
		"sigmoid":     {bind: bindElementwise, typed: -1, why: pairwise},
		"softcap":     {bind: bindElementwise, typed: -1, why: pairwise},
		"swiglu":      {bind: bindElementwise, typed: -1, why: pairwise},
		"geglu":       {bind: bindElementwise, typed: -1, why: pairwise},
		"split":       {bind: bindSplit, typed: -1, why: "a range of columns is copied"},
		"view":        {bind: bindView, typed: -1, why: "rows without gaps are copied"},
		"rmsnorm":     {bind: bindNorm, typed: -1, why: rowwise},
		"layernorm":   {bind: bindNorm, typed: -1, why: rowwise},
		"add_rmsnorm": {bind: bindNorm, typed: -1, why: rowwise},
		"softmax":     {bind: bindSoftmax, typed: -1, why: rowwise},
		"topk": {bind: bindTopK, typed: -1, scratch: pickScratch,
			why: "of few a row a workgroup, of a vocabulary by parts"},
		"adjust": {bind: bindAdjust, typed: -1, why: "four tokens an invocation, then those that are changed"},
		"draw":   {bind: bindDraw, typed: -1, why: "four tokens an invocation, whose numbers come from one counter"},
		"filter": {bind: bindFilter, typed: -1,
			why: "a workgroup a row: masses go into bins, of which one at a time is looked into"},
		"logprob": {bind: bindLogprob, typed: -1,
			why: "a workgroup a row, read twice: its largest, then the sum of exponentials"},
		"mix":   {bind: bindMix, typed: -1, why: pairwise},
		"embed": {bind: bindEmbed, typed: 1, wide: []int{1}, why: "rows are decoded as they are gathered"},
		"pool":  {bind: bindPool, typed: -1, why: "a workgroup sums up 32 columns of a range of rows"},
		"rows":  {bind: bindRows, typed: -1, why: "rows are gathered"},
		"rope":  {bind: bindRoPE, typed: -1, why: "pairs of elements an invocation"},
		"push":  {bind: bindPush, typed: 0, caches: []int{0}, why: "rows are stored where their positions say"},
		"rope_push": {bind: bindRoPEPush, typed: 0, caches: []int{0},
			why: "rows are rotated on their way to the cache"},
		"attention": {bind: bindAttention, typed: 1, caches: []int{1, 2}, scratch: attentionScratch},
		"paged_push": {bind: bindPagedPush, typed: 0, caches: []int{0},
			why: "rows are stored in the pages that their tables name"},
		"paged_attention": {bind: bindPagedAttention, typed: 1, caches: []int{1, 2},
			why: "rows of many sequences: pages are found by table"},
		"concat":             {bind: bindConcat, typed: -1, why: "each part is copied where it belongs"},
		"slice":              {bind: bindSlice, typed: -1, why: "a range is copied"},
		"expand":             {bind: bindExpand, typed: -1, why: "heads are copied"},
		"gather":             {bind: bindSelect, typed: -1, why: pairwise},
		"shift":              {bind: bindIntegers, typed: -1, why: pairwise},
		"real":               {bind: bindIntegers, typed: -1, why: pairwise},
		"per_head":           {bind: bindPerHead, typed: 1, why: "eight invocations sum up an element"},
		"xielu":              {bind: bindXIELU, typed: -1, why: pairwise},
		"linear":             linear,
		"linear_bias":        linear,
		"linear_residual":    linear,
		"linear_scaled":      linear,
		"linear_scaled_bias": linear,
		"linear_id":          {bind: bindLinearID, typed: 1, wide: []int{1}},
	}
	for _, name := range generalFunctions {
		kernels[name] = entry{bind: bindGeneral, typed: -1, why: pairwise}
	}
	for _, name := range []string{"sub", "div", "min", "max", "greater"} {
		kernels[name] = entry{bind: bindPair, typed: -1, why: pairwise}
	}
	const channelwise = "slots are planned, then an invocation keeps a channel's or a part of a head's state"
	for name, bind := range map[string]binder{"scan": bindChannels, "wkv": bindChannels, "ssm": bindSSM,
		"delta": bindDelta, "dplr": bindDPLR} {
		kernels[name] = entry{bind: bind, typed: -1, scratch: slotScratch, why: channelwise}
	}
	kernels["short_conv"] = entry{bind: bindShortConv, typed: -1, scratch: slotScratch,
		why: "slots are planned, then rows side by side, the first ones of a sequence together"}
	for _, name := range rowSums {
		kernels[name] = entry{bind: bindRowSum, typed: -1, why: rowwise}
	}
}

// matVecRows is the number of activation rows up to which weights are decoded
// for each group of rows anew; beyond it they are decoded into shared tiles.
const matVecRows = 8

func isLinear(n *graph.Node) bool {
	switch n.Op {
	case ops.Linear, ops.LinearBias, ops.LinearResidual:
		return true
	}
	return false
}

// isProduct says whether a node is a product with a matrix, with factors of its rows or without.
func isProduct(n *graph.Node) bool {
	return isLinear(n) || n.Op == ops.LinearScaled || n.Op == ops.LinearScaledBias
}

// takesMatrix says whether matrix.comp multiplies so many rows by weights of a type.
func (d *Device) takesMatrix(t tensor.Type, rows int) bool {
	return rows > matVecRows && (t == tensor.F16 || t.IsBlock())
}

// regDecodeTypes are the formats of regdecode.comp; rows of w have whole steps of so many columns.
var regDecodeTypes = map[tensor.Type]int{tensor.Q4_0: 128, tensor.Q8_0: 128, tensor.Q4_K: 256}

// takesRegDecode says whether regdecode.comp multiplies so many rows by weights of a type, whose rows have so many
// columns.
func (d *Device) takesRegDecode(t tensor.Type, cols, rows int) bool {
	step := regDecodeTypes[t]
	return step > 0 && cols%step == 0 && rows > matVecRows
}

// dotTypes are the formats that matvecq.comp reads.
var dotTypes = map[tensor.Type]bool{tensor.Q4_0: true, tensor.Q4_1: true, tensor.Q5_0: true, tensor.Q5_1: true,
	tensor.Q8_0: true, tensor.MXFP4: true,
	tensor.Q4_K: true, tensor.Q5_K: true, tensor.Q6_K: true}

// takesDots says whether matvecq.comp multiplies so many rows by weights of a type.
func takesDots(t tensor.Type, rows int) bool { return rows <= matVecRows && dotTypes[t] }

// takesMatrixAttention says whether attention_matrix.comp computes a node.
func (d *Device) takesMatrixAttention(n *graph.Node) bool {
	if n.Op != ops.Attention {
		return false
	}
	q, k, v := n.In[0], n.In[1], n.In[2]
	return q.Shape[0] > fewTokens && k.Type == tensor.F16 && v.Type == tensor.F16 &&
		d.matrixHeads(k.Shape[2], v.Shape[2])
}

// matrixHeads says whether attention_matrix.comp has heads of so many elements, and values of so many.
func (d *Device) matrixHeads(dk, dv int) bool {
	if d.core().size == 16 {
		return dk == dv && (dk == 64 || dk == 96 || dk == 128)
	}
	return dk == 64 && dv == 64 || dk == 96 && dv == 64
}

// wideHeadShared is the bytes of shared memory of its workgroups where heads have 192 elements and values 128.
const wideHeadShared = 64*(25+17)*16 + 2*64*2*4 + 64*4

// takesRegDecodeAttention says whether attention_matrix.comp computes a node with scores that stay where they are
// multiplied (ORDERED). It has wider heads.
func (d *Device) takesRegDecodeAttention(n *graph.Node) bool {
	if n.Op != ops.Attention || d.core().size != 16 || graph.Attr[ops.AttentionAttr](n).Softcap != 0 {
		return false
	}
	q, k, v := n.In[0], n.In[1], n.In[2]
	wide := q.Shape[0] > fewTokens && k.Type == tensor.F16 && v.Type == tensor.F16 && k.Shape[2] == 192 &&
		v.Shape[2] == 128 && d.p.Shared >= wideHeadShared
	return wide || d.takesMatrixAttention(n)
}

// takesFlash says whether attention_flash.comp computes a node.
func (d *Device) takesFlash(n *graph.Node) bool {
	if n.Op != ops.Attention {
		return false
	}
	q, k, v, f := n.In[0], n.In[1], n.In[2], d.flash()
	dh := k.Shape[2]
	return f != (flash{}) && q.Shape[0] > fewTokens && k.Shape[0] >= f.positions && k.Type == tensor.F16 &&
		v.Type == tensor.F16 &&
		v.Shape[2] == dh && (dh == 64 || d.p.Kind != Software && (dh == 96 || dh == 128))
}
