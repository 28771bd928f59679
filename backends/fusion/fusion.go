// Package fusion finds launches of a program that a device can run as one, from who writes what they read and who
// reads what they write. Whether a kernel takes them is for the device to say.
package fusion

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Pair is two products of the same activations whose results go into one function, by their numbers: gate goes through
// silu or gelu, and is multiplied by up.
type Pair struct{ Gate, Up int }

// PairOf finds the products behind which launch i is a SwiGLU or GeGLU. Their matrices have the same type and shape.
func PairOf(launches []backends.Launch, i int) (p Pair, ok bool) {
	f := &launches[i]
	if f.Node.Op != ops.SwiGLU && f.Node.Op != ops.GeGLU {
		return p, false
	}
	p = Pair{backends.LastWriter(launches[:i], &f.In[0]), backends.LastWriter(launches[:i], &f.In[1])}
	if p.Gate < 0 || p.Up < 0 || p.Gate == p.Up {
		return p, false
	}
	g, u := &launches[p.Gate], &launches[p.Up]
	return p, ops.IsProduct(g.Node.Op) && ops.IsProduct(u.Node.Op) &&
		g.Out[0].Same(&f.In[0]) && u.Out[0].Same(&f.In[1]) && g.In[0].Same(&u.In[0]) &&
		g.In[1].Type == u.In[1].Type && g.In[1].Shape.Equal(u.In[1].Shape)
}

// Newest is the launches that make an attention's query and the newest rows of its caches, by their numbers: a RoPE, a
// RoPEPush and a Push.
type Newest struct{ Query, Key, Value int }

// NewestOf finds those of launch i, an attention. They are of the same positions as it, query and keys turn by the
// same angles, and nothing else reads the query.
func NewestOf(launches []backends.Launch, i int) (n Newest, ok bool) {
	a := &launches[i]
	if a.Node.Op != ops.Attention {
		return n, false
	}
	before := func(operand int) int { return backends.LastWriter(launches[:i], &a.In[operand]) }
	n = Newest{before(0), before(1), before(2)}
	if min(n.Query, n.Key, n.Value) < 0 {
		return n, false
	}
	q, k, v, pos := &launches[n.Query], &launches[n.Key], &launches[n.Value], &a.In[3]
	return n, q.Node.Op == ops.RoPE && k.Node.Op == ops.RoPEPush && v.Node.Op == ops.Push &&
		q.Out[0].Same(&a.In[0]) && k.In[0].Same(&a.In[1]) && v.In[0].Same(&a.In[2]) &&
		q.In[1].Same(pos) && k.In[2].Same(pos) && v.In[2].Same(pos) && sameAngles(q, k) &&
		backends.ReadOnlyBy(launches, n.Query, &a.In[0], func(reader, _ int) bool { return reader == i })
}

// sameAngles says whether a RoPE and a RoPEPush of the same positions turn by the same angles.
func sameAngles(q, k *backends.Launch) bool {
	var f, g backends.Operand // the factors of their frequencies
	if len(q.In) > 2 {
		f = q.In[2]
	}
	if len(k.In) > 3 {
		g = k.In[3]
	}
	return *graph.Attr[ops.RoPEAttr](q.Node) == *graph.Attr[ops.RoPEAttr](k.Node) && f.Same(&g)
}
