package hip

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// The table of choices: what runs a node, and why. Whatever else depends on that reads it here: packing, what is fused,
// variants for tuning, the reasons that people are shown, what the checks of paths try. What is compiled ahead of time
// is what
// programs ask for that are captured on a null device (aot.go), so that it follows from the table too.

// entry is an operator's row.
type entry struct {
	choices []choice // the first that takes a node runs it
	weight  int      // the operand that may be of any type, -1: none
	plain   []int    // operands that may be any plain float
	check   func(n *graph.Node) error
	scratch func(dev *Device, n *graph.Node) int // of all choices
}

// choice is a kernel that runs some nodes of an operator.
type choice struct {
	name  string                                // of its source, without ".hip"
	why   string                                // a sentence: what about the node makes it the one
	takes func(dev *Device, n *graph.Node) bool // nil: what the choices before it leave
	bind  func(b *binder)
	// variants names its configurations, the default first; nil: there is one.
	variants func(dev *Device, n *graph.Node) []string
	scratch  func(n *graph.Node) int
	// several: one launch takes several matrices, an RMSNorm before them and a function of two of them behind (fusion.go).
	several func(b *binder, products []product, norm *normed, pair pairing)
	mixes   bool // of two types (mixedTypes)
	scales  bool // it takes factors of w's rows
	packsF8 bool // it wants 8-bit floats packed
}

// only makes the row of an operator that has one kernel.
func only(name, why string, bind func(*binder), plain ...int) entry {
	return entry{choices: []choice{{name: name, why: why, bind: bind}}, weight: -1, plain: plain}
}

// products are the kernels of a product with a matrix.
var products = []choice{
	{name: "vec", takes: (*Device).usesVec, bind: one((*binder).vec), several: (*binder).vec, mixes: true, scales: true,
		why: "one row: a wave reads pairs of rows of w, a block stays on its multiprocessor",
		variants: func(dev *Device, n *graph.Node) []string {
			return names(dev.vecShapes(n.In[1].Type, n.In[1].Shape[1]))
		}},
	{name: "f8", takes: (*Device).usesF8, bind: one((*binder).f8), several: (*binder).f8, scales: true, packsF8: true,
		why: "rows and 8-bit floats: bytes of w are decoded in registers on their way to the matrix cores",
		variants: func(dev *Device, n *graph.Node) []string {
			return names(dev.f8ShapesFor(n.In[1].Type, n.In[0].Shape.Rows(), n.In[1].Shape[0], n.In[1].Shape[1]))
		}},
	{name: "gemm", takes: (*Device).usesHalves, bind: one((*binder).gemm), several: (*binder).gemm,
		why: "rows in half precision: x is rounded once, tiles are multiplied by asynchronous matrix instructions",
		variants: func(dev *Device, n *graph.Node) []string {
			return names(dev.gemmShapesFor(n.In[1].Type, n.In[0].Shape.Rows(), n.In[1].Shape[:1], n.In[1].Shape[1], false))
		}},
	{name: "matvec", takes: fewRows, bind: func(b *binder) { p := b.product(); b.matvec(p, p.columns) },
		why: "few rows: w is streamed once past all of them"},
	{name: "matrix", takes: (*Device).usesMatrixCores, bind: func(b *binder) { b.matrix(b.product()) },
		scratch: matrixScratch,
		why:     "many rows on matrix cores: x in parts of 16 bits, as exact as f32"},
	{name: "tilecopy", takes: (*Device).usesCopies, bind: func(b *binder) { b.tile(b.product()) },
		why:      "many rows of f32, which no parts of 16 bits hold: tiles by asynchronous copies",
		variants: func(*Device, *graph.Node) []string { return names(copyShapes) }},
	{name: "tile", bind: func(b *binder) { b.tile(b.product()) },
		why: "many rows without matrix cores for the type: tiles of f32 in shared memory"},
}

// one binds a product alone by what takes several.
func one(several func(*binder, []product, *normed, pairing)) func(*binder) {
	return func(b *binder) { several(b, []product{b.product()}, nil, pairing{}) }
}

// experts are those of products with each token's own matrices.
var experts = []choice{
	{name: "matrix", takes: (*Device).usesGroups, bind: bindGroups, scratch: groupScratch,
		why: "many rows an expert: in the order of experts tiles of rows read a matrix once, on matrix cores"},
	{name: "experts", takes: (*Device).usesExperts, bind: bindExperts,
		why: "one token, weights in blocks: rows of its experts meet x in eight bits, a wave a row"},
	{name: "matvec", bind: bindLinearID, why: "each token's row has its own matrices: they are streamed past it"},
}

// attentions are the kernels of attention.
var attentions = []choice{
	{name: "attention_decode", bind: bindAttention, takes: func(dev *Device,
		n *graph.Node) bool {
		return dev.attendBlock(n) > 0
	},
		why: "one token: the blocks of a cluster divide the positions and merge in shared memory"},
	{name: "flash", bind: bindAttention, takes: (*Device).usesFlash,
		why: "many tokens over f16 caches: queries and weights in two parts on matrix cores, in one pass"},
	{name: "attention_split", bind: bindAttention, takes: (*Device).usesSplit,
		why: "one token behind many positions, caches of f16 or bf16: those of all heads are divided evenly, by matrix " +
			"instructions"},
	{name: "attention", bind: bindAttention,
		why: "any heads and caches; sinks, chunks, slopes, both ways and texts side by side, which the others lack: online " +
			"over the positions, divided into parts where blocks are few"},
}

// fusions are the fused operators that this device wants, in the order of trial.
var fusions = []string{"rope_push", "linear_scaled_residual", "linear_scaled_bias", "linear_scaled", "linear_residual",
	"add_rmsnorm", "swiglu", "geglu"}

const (
	pairwise = "an element a thread"
	rowwise  = "a row a block"
)

// table is the device's kernels by operator.
var table = map[string]entry{
	"add":     only("point", pairwise, bindAddMul, 0, 1),
	"mul":     only("point", pairwise, bindAddMul, 0, 1),
	"scale":   only("point", pairwise, bindPoint),
	"silu":    only("point", pairwise, bindPoint),
	"gelu":    only("point", pairwise, bindPoint),
	"sigmoid": only("point", pairwise, bindPoint),
	"softcap": only("point", pairwise, bindPoint),
	"swiglu":  only("point", pairwise, bindPair),
	"geglu":   only("point", pairwise, bindPair),
	"embed": {choices: []choice{{name: "embed", why: "a token's row a block", bind: bindEmbed}},
		weight: 1},
	"linear":                 {choices: products, weight: 1, plain: []int{2}},
	"linear_bias":            {choices: products, weight: 1, plain: []int{2}},
	"linear_residual":        {choices: products, weight: 1, plain: []int{3}},
	"linear_scaled":          {choices: products, weight: 1},
	"linear_scaled_bias":     {choices: products, weight: 1, plain: []int{3}},
	"linear_scaled_residual": {choices: products, weight: 1},
	"linear_id":              {choices: experts, weight: 1, plain: []int{3}},
	"rmsnorm":                only("norm", rowwise, bindNorm, 1),
	"layernorm":              only("norm", rowwise, bindNorm, 1, 2),
	"add_rmsnorm":            only("norm", rowwise, bindNorm, 2),
	"softmax":                only("moe", rowwise, bindSoftmax),
	"rope":                   only("rope", "pairs of elements a thread", bindRotation, 2),
	"push": checked(only("rope", "rows are stored where their positions say", bindRotation, 0),
		checkCache),
	"rope_push": checked(only("rope", "rows are rotated on their way to the cache", bindRotation, 0, 3),
		checkCache),
	"attention": {choices: attentions, weight: -1, plain: []int{1, 2, 4, 6, 7, 8},
		check: checkAttention, scratch: attentionScratch},
	"paged_push": checked(only("paged", "rows are stored in the pages that their tables name", bindPagedPush,
		0), checkCache),
	"paged_attention": {choices: []choice{{name: "attention_split", bind: bindPagedAttention, takes: (*Device).usesSplit,
		why: "rows of many sequences, pages of f16 or bf16: the positions of all are divided evenly, by matrix instructions"},
		{name: "paged", bind: bindPagedAttention,
			why: "rows of many sequences: a block a head and sequence, pages by table"}}, weight: -1,
		plain: []int{1, 2, 6, 7, 8, 9}, check: checkPaged, scratch: pagedScratch},
	"topk":    checked(only("moe", "the largest of a row by a block", bindTopK), checkGroups),
	"adjust":  only("draw", "four tokens a thread, then those that are changed", bindAdjust),
	"draw":    only("draw", "four tokens a thread, whose numbers come from one counter", bindDraw),
	"filter":  only("filter", "a block a row: masses go into bins, of which one at a time is looked into", bindFilter),
	"logprob": only("pick", "a block a row, read twice: its largest, then the sum of exponentials", bindLogprob),
	"mix":     only("moe", pairwise, bindMix),
	"rows":    only("moe", "a row a block", bindRows),
	"pool":    only("moe", "a block sums up 32 columns of a range of rows", bindPool),
	"split":   only("moe", "a range of columns is copied", bindSplit),
	"view":    only("moe", "rows without gaps are copied", bindView),
}

func checked(e entry, check func(*graph.Node) error) entry {
	e.check = check
	return e
}

// Invariant says whether the device was opened so.
func (dev *Device) Invariant() bool { return dev.invariant }

// rows is by how many rows the kernel of a product of n is chosen.
func (dev *Device) rows(n int) int {
	if dev.invariant {
		return backends.InvariantRows
	}
	return n
}

// like is the product that a product's kernel and its variant are chosen for; other nodes as they are.
func (dev *Device) like(n *graph.Node) *graph.Node {
	if dev.invariant && takesLinear(n) {
		return backends.WithRows(n, backends.InvariantRows)
	}
	return n
}

// choice finds the row that runs a node, nil where none takes it.
func (dev *Device) choice(n *graph.Node) *choice {
	n = dev.like(n)
	e := table[n.Op.Name]
	for i := range e.choices {
		c := &e.choices[i]
		if (!scaled(n) || c.scales) && (c.takes == nil || c.takes(dev, n)) {
			return c
		}
	}
	return nil
}

// why is why a choice runs a node.
func (dev *Device) why(n *graph.Node, c *choice) string {
	switch {
	case dev.invariant && takesLinear(n):
		return fmt.Sprintf("invariant: as for %d rows, however many there are: %s", backends.InvariantRows, c.why)
	case dev.invariant && (n.Op == ops.Attention || n.Op == ops.PagedAttention):
		return "invariant: the positions of a row are divided by their own number alone; " + c.why
	}
	return c.why
}

// Variants names the configurations of a product's kernel.
func (dev *Device) Variants(n *graph.Node) []string {
	if c := dev.choice(n); c != nil && c.variants != nil {
		return c.variants(dev, dev.like(n))
	}
	return nil
}

// fewRows says whether w is streamed past all rows of x.
func fewRows(_ *Device, n *graph.Node) bool { return n.In[0].Shape.Rows() <= matvecColumns }

// matvecColumns is up to how many rows of x weights are streamed past: beyond,
// tiles reuse them better.
const matvecColumns = 8

// streamedRows is that where tiles in half precision are the other way: f8.hip's are faster from 2 rows on, those of
// f16, bf16, q4_0 and q4_K from 5, for which as much is computed as for 8 (lab/gpu.md, "Few rows").
func streamedRows(t tensor.Type) int {
	switch {
	case isF8(t):
		return 1
	case t == tensor.F16 || t == tensor.BF16 || t == tensor.Q4_0 || t == tensor.Q4_K:
		return 4
	}
	return matvecColumns
}

// scaled says whether a product has factors of its weight's rows.
func scaled(n *graph.Node) bool {
	return n.Op == ops.LinearScaled || n.Op == ops.LinearScaledBias || n.Op == ops.LinearScaledResidual
}

func takesLinear(n *graph.Node) bool { return ops.IsProduct(n.Op) && n.Op != ops.LinearID }

// takesHalves says whether the path of half precision computes a node.
func takesHalves(n *graph.Node) bool {
	return takesLinear(n) && n.In[0].Shape.Rows() > streamedRows(n.In[1].Type) && n.In[1].Type != tensor.F32
}

// takesMatrix says whether the matrix path computes a node.
func takesMatrix(n *graph.Node) bool {
	return takesLinear(n) && n.In[0].Shape.Rows() > matvecColumns && n.In[1].Type != tensor.F32
}

// takesCores says whether the exact path of matrix cores computes a node.
func (dev *Device) takesCores(n *graph.Node) bool {
	return takesMatrix(n) || takesGroups(n) || dev.d.vendor() == nvidia && (takesFlash(n) || dev.takesSplit(n))
}

// hasHalves says whether an architecture has the instructions of gemm.hip.
func hasHalves(arch string) bool { return arch == "sm_90" }

// hasMatrixCores says whether kernels for an architecture find instructions
// behind mma.h.
func hasMatrixCores(arch string) bool {
	if sm, ok := strings.CutPrefix(arch, "sm_"); ok {
		n, err := strconv.Atoi(sm)
		return err == nil && n >= 80
	}
	return arch == "gfx90a" || arch == "gfx942" || strings.HasPrefix(arch, "gfx11") || strings.HasPrefix(arch, "gfx12")
}

// subnormalHalves says whether numbers of a type may be subnormal ones of f16.
// gfx90a's matrix cores take these for zero ("MI200 MFMA behavior specifics" in
// AMD's documentation of MIOpen), which is an error of 2e-5; later ones do not.
// Activations are scaled, so that it does not matter for them.
func subnormalHalves(t tensor.Type) bool {
	return t == tensor.F16 || t == tensor.F8E5M2 || t == tensor.F8E5M2FNUZ
}

// int8Types are the block formats whose products with activations of eight bits
// int8.h has.
var int8Types = map[tensor.Type]bool{
	tensor.Q4_0: true, tensor.Q4_1: true, tensor.Q8_0: true, tensor.Q4_K: true, tensor.Q5_K: true, tensor.Q6_K: true,
	tensor.MXFP4: true,
}

// usesInt8 says whether products of one row with weights of a type round their
// activations to eight bits.
func (dev *Device) usesInt8(t tensor.Type) bool { return int8Types[t] && dev.on(pathInt8) }

// usesVec says whether a product of one row goes to vec.hip: x must fit shared memory.
func (dev *Device) usesVec(n *graph.Node) bool {
	w := n.In[1]
	most := vecShared
	if dev.d.vendor() == amd {
		most = 64 << 10
	}
	return n.In[0].Shape.Rows() == 1 && len(w.Shape) == 2 && vecBytes(w.Type, w.Shape[1], false) <= most
}

// fp8Types are the types that an architecture's fp8 matrix instructions take, nil where it has none.
func fp8Types(arch string) []tensor.Type {
	sm := 0
	fmt.Sscanf(arch, "sm_%d", &sm)
	switch {
	case sm >= 89, strings.HasPrefix(arch, "gfx12"):
		return []tensor.Type{tensor.F8E4M3, tensor.F8E5M2}
	case arch == "gfx942":
		return []tensor.Type{tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ}
	}
	return nil
}

// usesFP8 says whether fp8 instructions multiply the rows of x by weights of a type.
func (dev *Device) usesFP8(t tensor.Type) bool {
	return slices.Contains(fp8Types(dev.info.Level), t) && dev.on(pathFP8)
}

// takesFP8 says whether the path of fp8 instructions computes a node: outside f8.hip with weights whose rows are
// loaded 16 bytes at a time.
func (dev *Device) takesFP8(n *graph.Node) bool {
	if !takesLinear(n) || !packsF8(n.In[1]) || !slices.Contains(fp8Types(dev.info.Level), n.In[1].Type) {
		return false
	}
	return hasHalves(dev.info.Level) && takesHalves(n) || takesMatrix(n) && n.In[1].Shape.Last()%16 == 0
}

// usesF8 says whether a product goes to f8.hip.
func (dev *Device) usesF8(n *graph.Node) bool {
	return hasHalves(dev.info.Level) && (dev.on(pathHalf) || dev.usesFP8(n.In[1].Type)) && takesHalves(n) &&
		packsF8(n.In[1])
}

// usesHalves says whether a product goes to gemm.hip.
func (dev *Device) usesHalves(n *graph.Node) bool {
	return hasHalves(dev.info.Level) && dev.on(pathHalf) && takesHalves(n) && !dev.fewTiles(n)
}

// fewTiles says whether a product of few rows has so few tiles that most of the card would stand still while each is
// decoded: w is streamed past the rows sooner then. Products with a residual alone, as others have neighbours in a
// model whose tiles share the launch (lab/gpu.md, "Few rows").
func (dev *Device) fewTiles(n *graph.Node) bool {
	w := n.In[1]
	return n.Op == ops.LinearResidual && n.In[0].Shape.Rows() <= matvecColumns && (w.Type == tensor.Q4_0 ||
		w.Type == tensor.Q4_K) && 3*ceil(w.Shape[0], 128) <= dev.units
}

// usesMatrixCores says whether a product's tiles go there: half precision
// cannot hold f32 weights in a few parts.
func (dev *Device) usesMatrixCores(n *graph.Node) bool {
	t := n.In[1].Type
	if !hasMatrixCores(dev.info.Level) {
		return false
	}
	return dev.on(pathMatrix) && t != tensor.F32 && !(dev.info.Level == "gfx90a" && subnormalHalves(t)) || dev.matrixFP8(n)
}

// matrixFP8 says whether matrix.hip multiplies by fp8 instructions.
func (dev *Device) matrixFP8(n *graph.Node) bool {
	return !hasHalves(dev.info.Level) && dev.usesFP8(n.In[1].Type) && dev.takesFP8(n)
}

// usesCopies says whether a product goes to tilecopy.hip, where its operands can
// be read 16 bytes at a time.
func (dev *Device) usesCopies(n *graph.Node) bool {
	return takesLinear(n) && strings.HasPrefix(dev.info.Level, "sm_") && hasMatrixCores(dev.info.Level) &&
		n.In[1].Type == tensor.F32 &&
		n.In[0].Shape.Rows() > matvecColumns && dev.largeTile(n.In[0].Shape.Rows(), n.In[1].Shape[0])
}

// takesFlash says whether flash.hip computes a node, where there are its instructions.
func takesFlash(n *graph.Node) bool {
	if n.Op != ops.Attention || ops.BesideSinks(n) != "" {
		return false
	}
	q, k, v := n.In[0], n.In[1], n.In[2]
	whole := func(d int) bool { return d == 32 || d == 64 || d == 96 || d == 128 }
	return q.Shape[0] > matvecColumns && k.Type == tensor.F16 && v.Type == tensor.F16 && whole(v.Shape[2]) &&
		(whole(q.Shape[2]) || flashWide(n))
}

// flashWide says whether keys have more elements than flash.hip has registers for, but for Hopper's instructions, which
// read one part of the queries from shared memory.
func flashWide(n *graph.Node) bool { return n.In[0].Shape[2] == 192 && n.In[2].Shape[2]%64 == 0 }

func (dev *Device) usesFlash(n *graph.Node) bool {
	return !dev.invariant && dev.d.vendor() == nvidia && hasMatrixCores(dev.info.Level) && dev.on(pathMatrix) &&
		takesFlash(n) && (hasHalves(dev.info.Level) || !flashWide(n))
}

// takesAttend says whether attention_decode.hip computes a node, but for how its operands lie.
func takesAttend(n *graph.Node) bool {
	if n.Op != ops.Attention || n.In[0].Shape[0] != 1 || ops.BesideSinks(n) != "" {
		return false
	}
	k, v := n.In[1], n.In[2]
	if k.Type != v.Type || k.Shape[2] != v.Shape[2] || k.Type == tensor.F8E4M3 || k.Type == tensor.Q8_0 {
		return false
	}
	switch _, size := k.Type.Block(); k.Shape[2] * size {
	case 8 * attendLine, 16 * attendLine, 32 * attendLine:
		return true
	}
	return false
}

// attendBlock is how many queries of a key/value head a block of attention_decode.hip has, 0
// where the node goes to attention.hip: where there is no such path, or caches are long.
func (dev *Device) attendBlock(n *graph.Node) int {
	if dev.invariant || !hasHalves(dev.info.Level) || !dev.d.has(fnLaunchConfig) || !dev.on(pathAttend) ||
		!takesAttend(n) {
		return 0
	}
	k := n.In[1].Shape
	if k[0] > attendCaches {
		return 0
	}
	share := n.In[0].Shape[1] / k[1]
	for block := 4; block >= 1; block /= 2 {
		if block/2 >= share || block*(k[2]+2) > attendMost {
			continue
		}
		if blocks := attendCluster * k[1] * ceil(share, block); blocks >= dev.units-dev.units%attendCluster || block == 1 {
			return block
		}
	}
	return 0
}
