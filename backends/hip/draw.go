package hip

var drawFile = newProgram("draw.hip")

// bindDraw binds the noise and the mask of choices by chance.
func bindDraw(b *binder) {
	x, rate, allowed := b.in(0), b.in(1), b.in(3)
	r := rowsOf(x)
	b.start(drawFile, "draw", 256, r.n, ceil(r.cols, 1024), 1).ptr(b.out(0), b.pointer(x)).rows(r).
		ptr(b.dense(rate), b.dense(b.in(2)), b.dense(allowed)).u32(allowed.Shape.Last())
}

var filterFile = newProgram("filter.hip")

// bindFilter binds what leaves of each row the tokens that a choice may fall on.
func bindFilter(b *binder) {
	x, allowed := b.in(0), b.in(3)
	r := rowsOf(x)
	b.start(filterFile, "filter", 512, r.n, 1, 1).ptr(b.out(0), b.pointer(x)).rows(r).
		ptr(b.dense(b.in(1)), b.dense(b.in(2)), b.dense(allowed)).u32(allowed.Shape.Last())
}

// bindAdjust binds penalties and biases.
func bindAdjust(b *binder) {
	x := b.in(0)
	r := rowsOf(x)
	b.start(drawFile, "adjust", 256, r.n, ceil(r.cols, 1024), 1).ptr(b.out(0), b.pointer(x)).rows(r).
		ptr(b.dense(b.in(1)), b.dense(b.in(2)), b.dense(b.in(3))).u32(b.in(1).Shape.Last())
}

// bindLogprob binds what a model thinks of tokens.
func bindLogprob(b *binder) {
	x, tokens := b.in(0), b.in(1)
	r := rowsOf(x)
	b.start(pickFile, "logprob", 1024, r.n, 1, 1).ptr(b.out(0), b.pointer(x)).rows(r).ptr(b.dense(tokens)).
		u32(tokens.Shape.Last())
}
