//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

const (
	// attentionTile is the number of invocations, and of positions at a time.
	attentionTile = 128
	// attentionGroups is about how many workgroups keep a large device busy.
	attentionGroups = 512
)

// parts is into how many ranges of positions attention is cut: as many as give
// the device enough workgroups, none shorter than a tile of a full cache.
func (d *Device) parts(n *graph.Node) int {
	q, k := n.In[0], n.In[1]
	positions := k.Shape[0]
	if w := graph.Attr[ops.AttentionAttr](n).Window; w > 0 {
		positions = min(positions, w)
	}
	have := d.rows(q.Shape[0]) * q.Shape[1]
	if have == 0 {
		return 1
	}
	return max(1, min((positions+attentionTile-1)/attentionTile, attentionGroups/have))
}

func attentionScratch(d *Device, n *graph.Node) int {
	p := max(d.parts(n), fewParts(n))
	if p == 1 {
		return 0
	}
	q, v := n.In[0], n.In[2]
	return 4 * q.Shape[0] * q.Shape[1] * p * (v.Shape[2] + 2)
}

// fewTokens is up to how many tokens attention_few.comp serves, fewGroups about how
// many workgroups of it keep a large device busy.
const fewTokens, fewGroups = 8, 512

// fewParts is parts for attention_few.comp, whose workgroups take 32 positions at a time at least.
func fewParts(n *graph.Node) int {
	q, positions := n.In[0], n.In[1].Shape[0]
	if w := graph.Attr[ops.AttentionAttr](n).Window; w > 0 {
		positions = min(positions, w)
	}
	have := q.Shape[0] * q.Shape[1]
	if have == 0 || q.Shape[0] > fewTokens {
		return 1
	}
	return max(1, min((positions+31)/32, fewGroups/have, 64))
}

// attentionFlash runs attention_flash.comp.
func (b *bind) attentionFlash() error {
	l, f := b.l, b.d.flash()
	q, k, v, y := &l.In[0], &l.In[1], &l.In[2], &l.Out[0]
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh := q.Shape[1], q.Shape[2]
	c := b.call(fmt.Sprintf("attention_flash_%d_%s", dh, f.suffix))
	if b.d.p.Kind == Software {
		c.subgroup = f.invocations
	}
	vq := b.floats(c, q, false)
	koff, kstride := b.cacheOperand(c, k)
	voff, vstride := b.cacheOperand(c, v)
	posoff := b.ints(c, &l.In[3])
	vy := b.floats(c, y, true)
	b.status(c)
	x := b.formed(c, halves, heads*dh%64 == 0) // no padding behind a row
	c.spec = []uint32{flag(x != nil), flag(!b.unread(x, y))}
	c.push = []uint32{uint32(q.Shape[0]), uint32(heads), uint32(heads / k.Shape[1]), uint32(k.Shape[0]),
		vq.off, vq.stride, koff, kstride, voff, vstride, posoff, vy.off, vy.stride,
		bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number)}
	b.run(c, heads, (q.Shape[0]+f.rows-1)/f.rows)
	return nil
}

// attentionMatrix runs attention_matrix.comp.
func (b *bind) attentionMatrix() error {
	l, core := b.l, b.d.core()
	q, k, v, y := &l.In[0], &l.In[1], &l.In[2], &l.Out[0]
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh := q.Shape[1], q.Shape[2]
	dv, of := v.Shape[2], fmt.Sprint(dh) // of values
	if dv != dh {
		of = fmt.Sprintf("%dx%d", dh, dv)
	}
	c := b.call(fmt.Sprintf("attention_matrix_%s_%d", of, core.size))
	if b.on.regDecode && b.d.takesRegDecodeAttention(l.Node) {
		c.shader = "attention_ordered_" + of
	}
	c.subgroup = core.subgroup
	vq := b.floats(c, q, false)
	koff, kstride := b.cacheOperand(c, k)
	voff, vstride := b.cacheOperand(c, v)
	posoff := b.ints(c, &l.In[3])
	vy := b.floats(c, y, true)
	b.status(c)
	f, number := halves, uint32(0)
	if b.wanted(y, heads*dv) == bfloats {
		f = bfloats
	}
	x := b.formed(c, f, heads*dv%64 == 0) // no padding behind a row
	if x != nil {
		number = f.number()
	}
	sinkoff, sinks := b.vector(c, at(l.In, 4))
	c.spec = []uint32{uint32(8 * core.subgroup), number, flag(!b.unread(x, y)),
		flag(vq.off%4 == 0 && vq.stride%4 == 0), sinks}
	c.push = []uint32{uint32(q.Shape[0]), uint32(heads), uint32(heads / k.Shape[1]), uint32(k.Shape[0]),
		vq.off, vq.stride, koff / 8, kstride / 8, voff / 8, vstride / 8, posoff, vy.off, vy.stride,
		bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number), sinkoff}
	b.run(c, heads, (q.Shape[0]+4*core.size-1)/(4*core.size))
	return nil
}

// fewUnits is how many groups of four elements of a row an invocation of
// attention_few.comp takes, 0 where that kernel cannot be used.
func (d *Device) fewUnits(n *graph.Node, k, v *backends.Operand) int {
	whole := func(o *backends.Operand) bool {
		_, size := o.Type.Block()
		return o.Shape[2]%4 == 0 && o.Offset%(4*size) == 0 && o.Stride%(4*size) == 0
	}
	if isCoded(k.Type) || isCoded(v.Type) || n.In[0].Shape[0] > fewTokens || !whole(k) || !whole(v) ||
		v.Shape[2] > 4*attentionTile {
		return 0
	}
	lanes := 4 * d.p.MinSubgroup
	for n := 1; n <= 4; n *= 2 {
		if max(k.Shape[2], v.Shape[2]) <= n*lanes {
			return n
		}
	}
	return 0
}

// takesOne says whether attention_one.comp computes an attention of one token together with its rotations and
// stores: 16 bytes of a row are an invocation's part, and a row those of a part of a subgroup.
func (b *bind) takesOne(k, v *backends.Operand) bool {
	whole := func(o *backends.Operand) bool { return o.Offset%16 == 0 && o.Stride%16 == 0 }
	dh := k.Shape[2]
	lanes := dh / 8
	return b.d.p.shuffle && (k.Type == tensor.F16 || k.Type == tensor.BF16) && v.Type == k.Type && v.Shape[2] == dh &&
		whole(k) && whole(v) &&
		dh%32 == 0 && dh <= attentionTile && lanes&(lanes-1) == 0 && b.d.p.MinSubgroup%lanes == 0
}

// oneGroup is the number of invocations of attention_one.comp, oneAlone up to how many blocks of
// positions a head has one workgroup: as long as they take less time than putting parts together.
const oneGroup, oneAlone = 256, 4

// one runs attention_one.comp.
func (b *bind) one(f fresh) error {
	l := b.l
	k, v, y := &l.In[1], &l.In[2], &l.Out[0]
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh, n := l.In[0].Shape[1], k.Shape[2], (fewParts(l.Node)+1)/2 // of twice as many invocations
	c := b.call("attention_one")
	q := b.floats(c, flatRow(&f.q.In[0], &l.In[0]), false)
	koff, kstride := b.cacheOperand(c, k)
	voff, vstride := b.cacheOperand(c, v)
	posoff := b.ints(c, &l.In[3])
	vy := b.floats(c, y, true)
	partoff := uint32(0)
	if b.places != nil && n > 1 { // the parts say themselves when they are there
		b.temporary(c, b.places.take(4*heads*n*(dh+2)), true)
		b.none(c)
	} else {
		var err error
		if partoff, err = b.parted(c, n); err != nil {
			return err
		}
	}
	b.status(c)
	x := b.formed(c, dots, dh%32 == 0)
	c.spec = []uint32{uint32(min(oneGroup, b.d.p.Invocations)), typeCodes[k.Type], uint32(dh), uint32(n), flag(x != nil)}
	c.push = []uint32{uint32(heads), uint32(heads / k.Shape[1]), uint32(k.Shape[0]), q.off, koff / 8, kstride / 8,
		voff / 8, vstride / 8,
		posoff, vy.off, partoff, bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number)}
	b.fresh(c, f)
	b.hand(c, b.places != nil, y, buffersOf(&f.q.In[0], &f.k.In[1], &f.v.In[1]), nil)
	sinkoff, sinks := b.vector(c, at(l.In, 4))
	c.spec = append(c.spec, flag(b.places != nil), oneAlone, sinks)
	c.push = append(c.push, sinkoff, 0)
	b.run(c, heads, n)
	return nil
}

// parted binds the memory of an attention's parts and the counters of those that have ended, where there are
// more than one, and gives its offset in groups of four elements.
func (b *bind) parted(c *dispatch, parts int) (off uint32, err error) {
	if parts == 1 {
		b.none(c)
		b.none(c)
		return 0, nil
	}
	l := b.l
	if l.Scratch.Offset%16 != 0 {
		return 0, fmt.Errorf("scratch at offset %d, which is no multiple of 16 bytes", l.Scratch.Offset)
	}
	off = b.bytes(c, l.Scratch.Buffer, l.Scratch.Offset, attentionScratch(b.d, l.Node), true) / 16
	count, err := b.d.counters(l.In[0].Shape[0] * l.In[0].Shape[1])
	if err != nil {
		return 0, err
	}
	b.temporary(c, count, true)
	return off, nil
}

// formed binds the form that an attention's result is also written in where it fits, nil: in none.
func (b *bind) formed(c *dispatch, f form, fits bool) *converted {
	var x *converted
	if fits {
		x = b.written(f, &b.l.Out[0], b.l.In[0].Shape[1]*b.l.In[2].Shape[2], nil)
	}
	if x != nil {
		b.temporary(c, x.data, true)
		b.temporary(c, x.scales, true)
	} else {
		b.none(c)
		b.none(c)
	}
	return x
}

// few runs attention_few.comp.
func (b *bind) few(units int) error {
	l := b.l
	q, k, v, y := &l.In[0], &l.In[1], &l.In[2], &l.Out[0]
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh, dv, n := q.Shape[1], q.Shape[2], v.Shape[2], fewParts(l.Node)
	var new fresh
	isFresh := false
	if b.folds != nil {
		new, isFresh = b.folds.fresh[b.number]
	}
	if isFresh && b.takesOne(k, v) {
		return b.one(new)
	}
	shader := "attention_few"
	if isFresh {
		shader, q = "attention_fresh", flatRow(&new.q.In[0], q)
	}
	c := b.call(fmt.Sprintf("%s_%d", shader, units))
	vq := b.floats(c, q, false)
	koff, kstride := b.cacheOperand(c, k)
	voff, vstride := b.cacheOperand(c, v)
	posoff := b.ints(c, &l.In[3])
	vy := b.floats(c, y, true)
	partoff, err := b.parted(c, n)
	if err != nil {
		return err
	}
	b.status(c)
	x, pitch := b.formed(c, dots, dv%32 == 0), uint32(0)
	if x != nil {
		pitch = x.pitch
	}
	c.spec = []uint32{attentionTile, typeCodes[k.Type], typeCodes[v.Type], uint32(n), flag(x != nil), uint32(dh)}
	c.push = []uint32{uint32(heads), uint32(heads / k.Shape[1]), uint32(dh), uint32(dv), uint32(k.Shape[0]),
		vq.off, vq.stride, koff / 4, kstride / 4, voff / 4, vstride / 4, posoff, vy.off, vy.stride, partoff,
		bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number), pitch, 0}
	sinkAt := len(c.push) - 1
	if isFresh {
		b.fresh(c, new)
	} else {
		c.spec = append(c.spec, 0)
	}
	sinkoff, sinks := b.vector(c, at(l.In, 4))
	c.spec, c.push[sinkAt] = append(c.spec, sinks), sinkoff
	b.run3(c, heads, q.Shape[0], n)
	return nil
}

// flatRow is x, one row, in the shape of another operand.
func flatRow(x, like *backends.Operand) *backends.Operand {
	o := *x
	o.Shape, o.Stride = like.Shape, like.Type.RowBytes(like.RowElems())
	return &o
}

// fresh gives a dispatch of attention what its folded launches read and write.
func (b *bind) fresh(c *dispatch, f fresh) {
	k, v := &b.l.In[1], &b.l.In[2]
	xk, xv := b.floats(c, flatRow(&f.k.In[1], &backends.Operand{Type: tensor.F32,
		Shape: tensor.Shape{1, k.Shape[1], k.Shape[2]}}), false),
		b.floats(c, flatRow(&f.v.In[1], &backends.Operand{Type: tensor.F32, Shape: tensor.Shape{1, v.Shape[1], v.Shape[2]}}),
			false)
	b.bytes(c, f.table, 0, f.table.size, false)
	b.operand(c, k, true)
	b.operand(c, v, true)
	c.spec = append(c.spec, flag(graph.Attr[ops.RoPEAttr](f.q.Node).Layout == "pair"))
	c.push = append(c.push, xk.off, xv.off, uint32(f.pairs), bits(f.scale))
}

// cacheOperand binds a cache and gives offset and stride in elements.
func (b *bind) cacheOperand(c *dispatch, o *backends.Operand) (off, stride uint32) {
	size := cacheUnit(o.Type)
	if !narrow(o.Type) && !isCoded(o.Type) || o.Offset%size != 0 || o.Stride%size != 0 {
		b.fail(fmt.Errorf("a cache of f32, f16 or bf16 is wanted, not %s at offset %d with stride %d", o.Type, o.Offset,
			o.Stride))
		return 0, 0
	}
	return b.operand(c, o, false) / uint32(size), uint32(o.Stride / size)
}

// wideKeys says whether a shader can read a cache's keys 16 bytes at a time.
func wideKeys(t tensor.Type, dh int, off, stride uint32) uint32 {
	wide := 16 / cacheUnit(t)
	return flag(!isCoded(t) && dh%wide == 0 && int(off)%wide == 0 && int(stride)%wide == 0)
}

func bindAttention(b *bind) error {
	return b.d.attention(b.on, b.l.Node, &b.l.In[1], &b.l.In[2]).bind(b)
}

// bindFew runs attention_few.comp, or what of it suits.
func bindFew(b *bind) error { return b.few(b.d.fewUnits(b.l.Node, &b.l.In[1], &b.l.In[2])) }

// valueUnits says how many values of a head an invocation takes at once, how many invocations share
// a head, and which of a shader's two modules runs: the wide one where an invocation has several
// such units.
func valueUnits(v *backends.Operand, shader string) (unit, lanes int, module string, err error) {
	dv := v.Shape[2]
	unit = 1
	if isCoded(v.Type) {
		shader += "_coded"
	} else if _, size := v.Type.Block(); dv%2 == 0 && v.Stride/size%2 == 0 && v.Offset/size%2 == 0 {
		unit = 2
	}
	lanes = min(dv/unit, attentionTile)
	switch each := (dv/unit + lanes - 1) / lanes; {
	case each > 4:
		return 0, 0, "", fmt.Errorf("heads of %d values; at most %d are possible", dv, 4*unit*attentionTile)
	case each > 1:
		return unit, lanes, shader + "_wide", nil
	}
	return unit, lanes, shader, nil
}

// bindPlainAttention runs attention.comp.
// distances binds an attention's tables of distances.
func (b *bind) distances(c *dispatch) {
	a := graph.Attr[ops.AttentionAttr](b.l.Node)
	count, heads := ops.Distances(b.l.Node)
	c.spec = append(c.spec, uint32(count), uint32(a.ApartCode()), bits(a.Reach))
	first := ops.Place(b.l.Node, "bias")
	for i := range 3 {
		off, code := b.vector(c, at(b.l.In, first+i))
		c.spec, c.push = append(c.spec, code), append(c.push, off)
	}
	c.spec = append(c.spec, uint32(heads))
}

func bindPlainAttention(b *bind) error {
	l := b.l
	q, k, v, y := &l.In[0], &l.In[1], &l.In[2], &l.Out[0]
	a := graph.Attr[ops.AttentionAttr](l.Node)
	heads, dh, dv := q.Shape[1], q.Shape[2], v.Shape[2]
	n := b.d.parts(l.Node)
	more, name := ops.Beyond(l.Node) != "", "attention"
	if more {
		name = "attention_more"
	}
	unit, lanes, shader, err := valueUnits(&l.In[2], name)
	if err != nil {
		return err
	}
	c := b.call(shader)
	vq := b.floats(c, q, false)
	koff, kstride := b.cacheOperand(c, k)
	voff, vstride := b.cacheOperand(c, v)
	posoff := b.ints(c, &l.In[3])
	var vy rows
	partoff := uint32(0)
	if n == 1 {
		vy = b.floats(c, y, true)
		b.none(c)
	} else {
		b.none(c)
		partoff = b.bytes(c, l.Scratch.Buffer, l.Scratch.Offset, attentionScratch(b.d, l.Node), true) / 4
	}
	b.status(c)
	c.spec = []uint32{attentionTile, typeCodes[k.Type], typeCodes[v.Type],
		wideKeys(k.Type, dh, koff, kstride),
		uint32(unit), uint32(lanes), uint32(n), uint32(dh)}
	c.push = []uint32{uint32(heads), uint32(heads / k.Shape[1]), uint32(dh), uint32(dv), uint32(k.Shape[0]),
		vq.off, vq.stride, koff, kstride, voff, vstride, posoff, vy.off, vy.stride, partoff,
		bits(a.ScaleOf(dh)), bits(a.Softcap), uint32(a.Window), uint32(b.number)}
	if more {
		off, code := b.vector(c, at(l.In, 4))
		spanoff, spans := uint32(0), ops.Spans(l.Node)
		if spans {
			spanoff = b.ints(c, &l.In[5])
		} else {
			b.none(c)
		}
		c.spec = append(c.spec, code, flag(spans))
		c.push = append(c.push, off, uint32(a.Chunk), flag(a.Both), bits(a.ALiBi), bits(a.SlopeFactor()), spanoff)
		b.distances(c)
	}
	b.run3(c, heads, q.Shape[0], n)
	if n == 1 {
		return nil
	}
	j := b.call("attention_join")
	partoff = b.bytes(j, l.Scratch.Buffer, l.Scratch.Offset, attentionScratch(b.d, l.Node), false) / 4
	vy = b.floats(j, y, true)
	j.spec = []uint32{64}
	j.push = []uint32{uint32(heads), uint32(dv), uint32(n), partoff, vy.off, vy.stride}
	b.run(j, heads, q.Shape[0])
	return nil
}
