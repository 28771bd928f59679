//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import "errors"

// bindDraw binds the noise and the mask of choices by chance.
func bindDraw(b *bind) error {
	c := b.call("draw")
	x, rate := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.In[1], false)
	keys, allowed := b.ints(c, &b.l.In[2]), b.ints(c, &b.l.In[3])
	y := b.floats(c, &b.l.Out[0], true)
	quads := (x.cols + 3) / 4
	n := x.n * quads
	c.spec = []uint32{workgroup}
	c.push = []uint32{n, quads, x.cols, uint32(b.l.In[3].Shape.Last()), x.off, x.stride, rate.off, keys, allowed, y.off,
		y.stride}
	b.run(c, groups(int(n), workgroup), 1)
	return nil
}

// bindFilter binds what leaves of each row the tokens that a choice may fall on.
func bindFilter(b *bind) error {
	c := b.call("filter")
	x := b.floats(c, &b.l.In[0], false)
	most, shares := b.ints(c, &b.l.In[1]), b.floats(c, &b.l.In[2], false)
	allowed, y := b.ints(c, &b.l.In[3]), b.floats(c, &b.l.Out[0], true)
	if !b.l.In[2].Dense() {
		return errors.New("shares with gaps")
	}
	limits := &b.d.p.limits
	c.spec = []uint32{min(2*workgroup, limits.MaxComputeWorkGroupInvocations, limits.MaxComputeWorkGroupSize[0])}
	c.push = []uint32{x.n, x.cols, uint32(b.l.In[3].Shape.Last()), x.off, x.stride, most, shares.off, allowed, y.off,
		y.stride}
	b.run(c, groups(int(x.n), 1), 1)
	return nil
}

// bindAdjust binds penalties and biases.
func bindAdjust(b *bind) error {
	c := b.call("adjust")
	x, tokens := b.floats(c, &b.l.In[0], false), b.ints(c, &b.l.In[1])
	by, plus := b.floats(c, &b.l.In[2], false), b.floats(c, &b.l.In[3], false)
	y := b.floats(c, &b.l.Out[0], true)
	if !b.l.In[2].Dense() || !b.l.In[3].Dense() {
		return errors.New("changes with gaps")
	}
	c.spec = []uint32{workgroup}
	c.push = []uint32{x.cols, uint32(b.l.In[1].Shape.Last()), x.off, x.stride, tokens, by.off, plus.off, y.off, y.stride}
	b.run(c, int((x.cols+4*workgroup-1)/(4*workgroup)), int(x.n))
	return nil
}

// bindLogprob binds what a model thinks of tokens.
func bindLogprob(b *bind) error {
	c := b.call("logprob")
	x, tokens := b.floats(c, &b.l.In[0], false), b.ints(c, &b.l.In[1])
	y := b.floats(c, &b.l.Out[0], true)
	c.spec = []uint32{b.d.rowGroup(int(x.cols))}
	c.push = []uint32{x.cols, uint32(b.l.In[1].Shape.Last()), x.off, x.stride, tokens, y.off, y.stride}
	b.run(c, int(x.n), 1)
	return nil
}
