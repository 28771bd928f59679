package hip

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// ropeFile rotates one tensor, ropeFiles several.
var ropeFile = ropeFiles(1)

func ropeFiles(jobs int) program { return newProgram("rope.hip", define("JOBS", jobs)) }

// checkCache says whether the state of a push can be written.
func checkCache(n *graph.Node) error {
	switch t := n.In[0].Type; t {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.Q8_0:
		return nil
	default:
		return fmt.Errorf("a cache of %s; f32, f16, bf16, f8e4m3 and q8_0 can be written", t)
	}
}

func bindRotation(b *binder) { b.rotations([]*backends.Launch{b.l}, []int{b.number}) }

// rotations rotates and stores tensors of the same tokens: rope, rope_push, push.
func (b *binder) rotations(launches []*backends.Launch, numbers []int) {
	own := b.l
	defer func() { b.l = own }()
	var words []uint64
	blocks, tokens, per := 0, 0, 0
	var pos uintptr
	for i, l := range launches {
		b.l = l
		var y uintptr
		ytype, positions, at := 0, 0, 0
		if l.Node.Op == ops.RoPE {
			y = b.out(0)
		} else {
			cache := b.in(0)
			at, y, ytype, positions = 1, b.dense(cache), cacheCode(cache.Type), cache.Shape[0]
		}
		x := b.in(at)
		heads, dh := x.Shape[1], x.Shape[2]
		pos, tokens = b.dense(b.in(at+1)), x.Shape[0]
		var table, factors uintptr
		half, pair, ftype, m := 0, 0, 0, 1.0
		if l.Node.Op != ops.Push {
			table, half, pair, m = b.turns(l.Node, dh)
			factors, ftype = b.plain(b.in(at + 2))
		}
		// Enough blocks for one token too, few for many: angles serve all heads of a block.
		if per == 0 {
			per = min(max(1, tokens*heads/max(3*b.dev.units, 1)), 32)
		}
		two := func(a, b int) uint64 { return uint64(uint32(a)) | uint64(uint32(b))<<32 }
		words = append(words, uint64(y), uint64(b.pointer(x)), uint64(table), uint64(factors),
			two(ytype, positions), two(x.Stride/4, heads), two(dh, half), two(pair, ftype),
			two(int(math.Float32bits(float32(m))), numbers[i]), two(blocks, 0))
		blocks += ceil(heads, per)
	}
	d := b.start(ropeFiles(len(launches)), "rotate", 128, tokens, blocks, 1).ptr(pos).u32(tokens, per)
	d.args.add(words...)
	d.ptr(b.dev.statusAt)
}
