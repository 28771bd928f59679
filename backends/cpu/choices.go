package cpu

import (
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// The table of choices: what runs a node, and why.

// entry is a row of the device's table of kernels.
type entry struct {
	// check says why a node cannot run; nil: every node whose float operands are f32 can.
	check func(n *graph.Node) error
	bind  binder
	// why says what about a node makes this its kernel; nil: it is the operator's only one.
	why func(d *Device, n *graph.Node) string
	// suffix is what a kernel's name has between operator and level.
	suffix func(n *graph.Node) string
}

// fusions are the fused operators that this device wants, in the order of trial.
var fusions = []string{"rope_push", "linear_residual", "swiglu", "geglu"}

// table is the device's kernels by operator.
var table = map[string]entry{
	"add":             {bind: bindPair, why: byElement},
	"mul":             {bind: bindPair, why: byElement},
	"sub":             {bind: bindPair, why: byElement},
	"div":             {bind: bindPair, why: byElement},
	"min":             {bind: bindPair, why: byElement},
	"max":             {bind: bindPair, why: byElement},
	"greater":         {bind: bindPair, why: byElement},
	"xielu":           {bind: bindFunction, why: byElement},
	"concat":          {bind: bindConcat},
	"slice":           {bind: bindSlice},
	"expand":          {bind: bindExpand},
	"gather":          {bind: bindGatherRow},
	"sum":             {bind: bindReduce, why: byRow},
	"mean":            {bind: bindReduce, why: byRow},
	"largest":         {bind: bindReduce, why: byRow},
	"cumsum":          {bind: bindReduce, why: byRow},
	"sinkhorn":        {bind: bindSinkhorn, why: byRow},
	"shift":           {bind: bindShift},
	"real":            {bind: bindReal},
	"per_head":        {bind: bindPerHead},
	"short_conv":      {bind: bindShortConv, check: checkSlots, why: byToken},
	"scan":            {bind: bindScan, check: checkSlots, why: byToken},
	"ssm":             {bind: bindSSM, check: checkHeads, why: whyChunks},
	"delta":           {bind: bindDelta, check: checkHeads, why: whyChunks},
	"dplr":            {bind: bindDPLR, check: checkHeads, why: byToken},
	"wkv":             {bind: bindWKV, check: checkSlots, why: byToken},
	"scale":           {bind: bindUnary, why: byElement},
	"silu":            {bind: bindUnary, why: byElement},
	"gelu":            {bind: bindUnary, why: byElement},
	"sigmoid":         {bind: bindUnary, why: byElement},
	"softcap":         {bind: bindUnary, why: byElement},
	"swiglu":          {bind: bindGate, why: byElement},
	"geglu":           {bind: bindGate, why: byElement},
	"embed":           {bind: bindEmbed, suffix: typeOf(1), why: because("rows are decoded as they are gathered")},
	"linear":          {bind: bindLinear, suffix: typeOf(1), why: whyProduct},
	"linear_bias":     {bind: bindLinear, suffix: typeOf(1), why: whyProduct},
	"linear_residual": {bind: bindLinear, suffix: typeOf(1), why: whyProduct},
	"linear_id": {bind: bindLinearID, suffix: typeOf(1),
		why: because("each expert's rows are read once, past all activations that chose it")},
	"rmsnorm":     {bind: bindNorm, why: byRow},
	"layernorm":   {bind: bindNorm, why: byRow},
	"add_rmsnorm": {bind: bindAddNorm, why: byRow},
	"rope":        {bind: bindRoPE, why: because("pairs of elements, by a table of angles for each position")},
	"push": {bind: bindPush, check: checkState, suffix: typeOf(0),
		why: because("rows are stored where their positions say")},
	"rope_push": {bind: bindRoPEPush, check: checkState, suffix: typeOf(0),
		why: because("rows are rotated on their way to the cache")},
	"attention": {bind: bindAttention, check: checkCaches, suffix: typeOf(1), why: whyAttention},
	"paged_push": {bind: bindPagedPush, check: checkState, suffix: typeOf(0),
		why: because("rows are stored in the pages that their tables name")},
	"paged_attention": {bind: bindPagedAttention, check: checkCaches, suffix: typeOf(1),
		why: because("rows of many sequences: pages are found by table")},
	"softmax": {bind: bindSoftmax, why: byRow},
	"topk":    {bind: bindTopK, why: byRow},
	"adjust":  {bind: bindAdjust, why: byRow},
	"draw":    {bind: bindDraw, why: byRow},
	"filter":  {bind: bindFilter, why: byRow},
	"logprob": {bind: bindLogprob, why: byRow},
	"mix":     {bind: bindMix, why: byRow},
	"pool":    {bind: bindPool, why: byRow},
	"rows":    {bind: bindRows, why: because("rows are copied")},
	"split":   {bind: bindSplit, why: because("a range of columns is copied")},
	"view":    {bind: bindView, why: because("rows without gaps are copied")},
}

func init() { // functions of single elements need no more than their definition
	for _, name := range ops.Functions() {
		table[name] = entry{bind: bindFunction, why: byElement}
	}
}

// typeOf names kernels after the type of an operand.
func typeOf(arg int) func(*graph.Node) string {
	return func(n *graph.Node) string { return "." + n.In[arg].Type.String() }
}

// reason is why the entry runs a node.
func (e *entry) reason(d *Device, n *graph.Node) string {
	if e.why == nil {
		return "the operator's only kernel"
	}
	return e.why(d, n)
}

// because is a reason that does not depend on the node.
func because(why string) func(*Device, *graph.Node) string {
	return func(*Device, *graph.Node) string { return why }
}

var (
	byElement = because("an element at a time, by vectors")
	byRow     = because("a row at a time, by vectors")
	byToken   = because("token by token, each state in the nearest cache")
)

// whyProduct is why a product's inner loop is the one that bindLinear binds; see there.
func whyProduct(d *Device, n *graph.Node) string {
	w, rows := n.In[1].Type, n.In[0].Shape.Rows()
	packed := d.packing(n) != nil
	switch {
	case d.invariant:
		return "invariant: each row as if it were alone"
	case !packed && rows > matVecRows:
		return "many rows with weights as stored: decoded once into tiles of f32"
	case !packed:
		return "few rows with weights as stored: rows of w are read past them"
	case d.onUnit(rows) && rows > matVecRows:
		return "many rows: panels of w by the matrix unit"
	case simd.RoundsActivations(w):
		return "block formats in panels: activations in eight bits, integer dot products"
	case d.bf16Dots(w) && rows > matVecRows:
		return "many rows of bf16 in panels: dot products of bf16"
	}
	if rows > 1 && rows <= fewRows {
		return "few rows: panels of w are read past four rows of x at a time"
	}
	return "panels of w: each row of x is multiplied by several rows of w at a time"
}

// whyAttention is why attention is that of few tokens or of many.
func whyAttention(d *Device, n *graph.Node) string {
	if n.In[0].Shape[0] < tokenTile || d.invariant {
		return "few tokens: threads divide the positions, one pass over the cache"
	}
	return "many tokens: tiles of queries by tiles of positions"
}
