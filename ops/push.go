package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Push stores the step's keys or values in a cache: cache [N, G, Dh], x [S, G,
// Dh], pos i32[S] gives the cache with row pos[s] replaced by x[s]. A position
// outside [0, N) is an error; where two are the same the later row stands.
var Push = &graph.Op{
	Name: "push",
	Doc:  "cache[pos[s]] = x[s]",
	Sig:  graph.MustSig("(cache: C[N, G, Dh], x: T[S, G, Dh], pos: i32[S]) -> (y: C[N, G, Dh])"),
	Kind: graph.Update,
	Check: func(n *graph.Node) error {
		return cacheType("cache", n.In[0])
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		cache, x := out[0].F64(), in[1].F64()
		row := in[1].Shape[1:].Elems()
		for s, p := range in[2].I32() { // all checked first: an error leaves the cache as it was
			if err := inRange("pos", s, p, out[0].Shape[0]); err != nil {
				return err
			}
		}
		for s, p := range in[2].I32() {
			copy(cache[int(p)*row:(int(p)+1)*row], x[s*row:])
		}
		return nil
	},
	Cost: pushCost,
}

// pushCost counts the rows that are written, not the cache that they lie in.
func pushCost(n *graph.Node, _ int) graph.Cost {
	x, pos := n.In[1], n.In[2]
	return graph.Cost{
		Read:  float64(x.Bytes() + pos.Bytes()),
		Write: float64(x.Shape[0]) * rowBytes(n.In[0]),
	}
}
