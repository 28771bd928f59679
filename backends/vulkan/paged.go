//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Caches of many sequences: paged_push and paged_attention.

// flatPool sees a pool of pages as one cache of all their rows.
func flatPool(o *backends.Operand) (backends.Operand, error) {
	if !o.Dense() {
		return *o, fmt.Errorf("a pool with gaps between pages")
	}
	f := *o
	f.Shape = append(tensor.Shape{o.Shape[0] * o.Shape[1]}, o.Shape[2:]...)
	f.Stride = f.Type.RowBytes(f.RowElems())
	return f, nil
}

func bindPagedPush(b *bind) error {
	x, slot := &b.l.In[1], &b.l.In[2]
	pool, err := flatPool(&b.l.In[0])
	if err != nil {
		return err
	}
	size := cacheUnit(pool.Type)
	if pool.Offset%size != 0 {
		return fmt.Errorf("offset %d is no multiple of %s's %d bytes", pool.Offset, pool.Type, size)
	}
	c := b.call("paged_push")
	vx := b.floats(c, x, false)
	slotoff := b.ints(c, slot)
	yoff := b.operand(c, &pool, true) / uint32(size)
	b.status(c)
	c.spec = []uint32{64, typeCodes[pool.Type]}
	n := x.RowElems()
	c.push = []uint32{uint32(x.Shape[1]), uint32(x.Shape[2]), vx.off, uint32(x.Stride / 4), slotoff, yoff,
		uint32(pool.Shape[0]), uint32(b.number)}
	b.run(c, groups((n+1)/2, 64), x.Rows())
	return nil
}

func bindPagedAttention(b *bind) error {
	l := b.l
	q, y := &l.In[0], &l.Out[0]
	k, err := flatPool(&l.In[1])
	if err != nil {
		return err
	}
	v, err := flatPool(&l.In[2])
	if err != nil {
		return err
	}
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh, dv := q.Shape[1], q.Shape[2], v.Shape[2]
	more, name := ops.Beyond(l.Node) != "" || isCoded(v.Type), "paged_attention"
	if more && !isCoded(v.Type) { // that of eight bits has all
		name = "paged_attention_more"
	}
	unit, lanes, shader, err := valueUnits(&v, name)
	if err != nil {
		return err
	}
	c := b.call(shader)
	vq := b.floats(c, q, false)
	koff, kstride := b.cacheOperand(c, &k)
	voff, vstride := b.cacheOperand(c, &v)
	posoff, seqoff, tableoff := b.ints(c, &l.In[3]), b.ints(c, &l.In[4]), b.ints(c, &l.In[5])
	vy := b.floats(c, y, true)
	b.status(c)
	c.spec = []uint32{attentionTile, typeCodes[k.Type], typeCodes[v.Type],
		wideKeys(k.Type, dh, koff, kstride),
		uint32(unit), uint32(lanes), uint32(dh), uint32(l.In[1].Shape[1])}
	c.push = []uint32{uint32(heads), uint32(heads / k.Shape[1]), uint32(dh), uint32(dv),
		uint32(l.In[5].Shape[0]), uint32(l.In[5].Shape[1]), uint32(l.In[1].Shape[0]),
		vq.off, vq.stride, koff, kstride, voff, vstride, posoff, seqoff, tableoff, vy.off, vy.stride,
		bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number)}
	if more {
		off, code := b.vector(c, at(l.In, 6))
		c.spec = append(c.spec, code)
		c.push = append(c.push, off, uint32(a.Chunk), bits(a.ALiBi), bits(a.SlopeFactor()))
		b.distances(c)
	}
	b.run(c, heads, q.Shape[0])
	return nil
}
