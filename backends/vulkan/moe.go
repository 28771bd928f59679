//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Softmax, the choice of experts, and the mixture of what they gave.

func bindSoftmax(b *bind) error {
	c := b.call("softmax")
	x, y := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.Out[0], true)
	c.spec = []uint32{b.d.rowGroup(int(x.cols))}
	c.push = []uint32{x.n, x.cols, x.inner, x.off, x.stride, y.off, y.stride}
	b.run(c, min(int(x.n), 32768), 1)
	return nil
}

func bindTopK(b *bind) error {
	if picked(b.l.Node) {
		return bindPick(b)
	}
	a := graph.Attr[ops.TopKAttr](b.l.Node)
	c := b.call("topk")
	x, p := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.Out[0], true)
	e := b.l.Out[1]
	eoff := b.operand(c, &e, true) / 4
	estride := uint32(e.Stride / 4)
	if len(e.Shape) == 1 {
		estride = 0
	}
	mode := map[string]uint32{"none": 0, "before": 1, "after": 2}[a.Softmax]
	c.spec = []uint32{b.d.rowGroup(int(x.cols)), mode}
	if a.Groups > 1 {
		if a.Groups > workgroup {
			return fmt.Errorf("a choice in %d groups; %d at most are possible", a.Groups, workgroup)
		}
		c.spec = []uint32{max(c.spec[0], workgroup), mode, uint32(a.Groups), uint32(a.Keep), flag(a.By == "top2")}
	}
	c.push = []uint32{x.n, x.cols, x.inner, uint32(a.K), x.off, x.stride, p.off, p.stride, eoff, estride}
	b.run(c, min(int(x.n), 32768), 1)
	return nil
}

func bindMix(b *bind) error {
	c := b.call("mix")
	x, p, y := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.In[1], false), b.floats(c, &b.l.Out[0], true)
	n := y.n * y.cols
	c.spec = []uint32{workgroup}
	c.push = []uint32{n, y.cols, p.cols, x.off, x.stride, p.off, p.stride, y.off, y.stride}
	b.run(c, groups(int(n), workgroup), 1)
	return nil
}
