package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/pool"
)

// pagedAttention is attention for rows of several sequences whose caches lie in pages. Rows that follow each other
// in one sequence are taken in tiles, as a prompt's are (attention_prefill.go); of any other the positions are cut as
// a single token's are (attention_decode.go), by its own position alone, so that its result does not depend on what
// rows are beside it. A worker takes all splits of a row where there are rows enough for all workers, else each split
// is a chunk, and a second region adds them up.
type pagedAttention struct {
	seq, table []int32
	lines      int // of the table
	pages      int // of a line
	page       int // positions of a page
	all        int // pages of the pool
	decode     *decodeAttention
	prefill    *prefillAttention // nil where there are too few rows for a tile

	tiles  []rowTile // of this run
	items  []rowSplit
	rows   []int32 // those without a tile
	groups int     // how many chunks the groups of an item's heads are
	few    bool    // each split is an item
	join   joinRows
	gather [][]byte // per worker: keys and values of a block whose pages lie apart
}

// rowTile is rows [first, last) of one sequence.
type rowTile struct{ first, last int32 }

// rowSplit is a split of row number at of rows; all of them where split is −1.
type rowSplit struct{ at, split int32 }

func bindPagedPush(d *Device, l *backends.Launch) (runner, error) {
	p := &pagedPush{}
	o := flatPool(&l.In[0])
	one := *l
	one.In = append([]backends.Operand{o}, l.In[1:]...)
	r, err := bindPush(d, &one)
	if err == nil {
		p.push = *r.(*push)
	}
	return p, err
}

// flatPool sees a pool of pages as one cache of all their rows.
func flatPool(o *backends.Operand) backends.Operand {
	f := *o
	f.Shape = append([]int{o.Shape[0] * o.Shape[1]}, o.Shape[2:]...)
	if o.Dense() {
		f.Stride = f.Type.RowBytes(f.RowElems())
	}
	return f
}

// pagedPush stores the heads of each row that has a slot.
type pagedPush struct{ push }

func (t *pagedPush) run(p *pool.Pool) error {
	for i, at := range t.pos {
		if at < -1 || int(at) >= t.cache.positions {
			return fmt.Errorf("row %d has slot %d, the pool has %d", i, at, t.cache.positions)
		}
	}
	if len(t.pos) > 0 {
		p.RunSmall(t, len(t.pos))
	}
	return nil
}

func (t *pagedPush) Do(worker, token int) {
	if t.pos[token] >= 0 {
		t.push.Do(worker, token)
	}
}

func bindPagedAttention(d *Device, l *backends.Launch) (runner, error) {
	if !l.In[1].Dense() || !l.In[2].Dense() {
		return nil, fmt.Errorf("pools with gaps between pages")
	}
	k, v := flatPool(&l.In[1]), flatPool(&l.In[2])
	t := &pagedAttention{lines: l.In[5].Shape[0], pages: l.In[5].Shape[1], page: l.In[1].Shape[1], all: l.In[1].Shape[0]}
	a, err := newAttention(d, l, &k, &v, t.pages*t.page)
	if err != nil {
		return nil, err
	}
	a.pages = t
	if t.seq, err = ints(&l.In[4]); err != nil {
		return nil, err
	}
	if t.table, err = ints(&l.In[5]); err != nil {
		return nil, err
	}
	t.decode = newDecodeWork(a, 1)
	t.join.t = t
	workers := d.pool.Size()
	most := min(len(a.pos), 2*workers)
	t.decode.partials = d.shared(most * t.decode.splits * t.decode.partial)
	t.rows, t.items = make([]int32, 0, len(a.pos)), make([]rowSplit, 0, max(len(a.pos), most*t.decode.splits))
	if len(a.pos) < tokenTile || d.invariant {
		return t, nil
	}
	t.prefill = newPrefillAttention(a)
	t.tiles = make([]rowTile, 0, len(a.pos))
	if a.groups > 0 {
		t.gather = make([][]byte, workers)
		for i := range t.gather {
			t.gather[i] = make([]byte, t.prefill.positions*(a.k[0].Type.RowBytes(a.dh)+a.v[0].Type.RowBytes(a.dv)))
		}
	}
	return t, nil
}

// check refuses rows and pages that are not there, before anything is read.
func (t *pagedAttention) check() error {
	a := &t.decode.attention
	for i, pos := range a.pos {
		line := t.seq[i]
		if line == -1 {
			continue
		}
		if line < 0 || int(line) >= t.lines {
			return fmt.Errorf("row %d is of sequence %d, the table has %d", i, line, t.lines)
		}
		if pos < 0 || int(pos) >= a.capacity {
			return fmt.Errorf("row %d is at position %d, a sequence has %d", i, pos, a.capacity)
		}
		if i > 0 && t.seq[i-1] == line && a.pos[i-1] == pos-1 && int(pos)%t.page != 0 && a.attr.Window == 0 {
			continue // sees the pages that the row before does
		}
		from, end := a.sees(i)
		for p := from / t.page; p*t.page < end; p++ {
			if page := t.table[int(line)*t.pages+p]; page < 0 || int(page) >= t.all {
				return fmt.Errorf("row %d sees page %d of sequence %d, which is %d of %d", i, p, line, page, t.all)
			}
		}
	}
	return nil
}

func (t *pagedAttention) run(p *pool.Pool) error {
	if err := t.check(); err != nil {
		return err
	}
	if t.decode.heads == 0 {
		return nil
	}
	t.divide(p.Size())
	if n := len(t.tiles)*t.decode.groups + len(t.items)*t.groups; n > 0 {
		p.Run(t, n)
	}
	if t.few && len(t.rows) > 0 {
		p.Run(&t.join, len(t.rows)*t.decode.groups)
	}
	return nil
}

// divide makes the tiles and the items of a run.
func (t *pagedAttention) divide(workers int) {
	a := &t.decode.attention
	t.tiles, t.items, t.rows = t.tiles[:0], t.items[:0], t.rows[:0]
	tiled := 0
	for i := 0; i < len(a.pos); {
		line, n := t.seq[i], 1
		for i+n < len(a.pos) && t.seq[i+n] == line && a.pos[i+n] == a.pos[i]+int32(n) {
			n++
		}
		switch {
		case line < 0:
			for j := i; j < i+n; j++ {
				clear(a.y.span(j*a.heads, a.heads))
			}
		case n >= tokenTile && t.prefill != nil:
			t.tiles = append(t.tiles, rowTile{int32(i), int32(i + n)})
			tiled += n
		default:
			for j := i; j < i+n; j++ {
				t.rows = append(t.rows, int32(j))
			}
		}
		i += n
	}
	t.cutTiles(tiled, workers)
	t.few = len(t.rows) < 2*workers
	for i, row := range t.rows {
		if !t.few {
			t.items = append(t.items, rowSplit{int32(i), -1})
			continue
		}
		n, _ := t.splitsOf(int(row))
		for s := range n {
			t.items = append(t.items, rowSplit{int32(i), int32(s)})
		}
	}
	t.groups = 1
	if len(t.items)+len(t.tiles)*a.groups < 4*workers && !a.d.invariant {
		t.groups = a.groups
	}
}

// cutTiles cuts runs of rows into tiles, such that all workers have several.
func (t *pagedAttention) cutTiles(rows, workers int) {
	if len(t.tiles) == 0 {
		return
	}
	f := t.prefill
	size := min(max(1, tileQueries/max(1, f.share)), f.tokens)
	for rows/size*f.groups < 4*workers && size*f.share > tileSide && size > 1 {
		size /= 2
	}
	for i, runs := 0, len(t.tiles); i < runs; i++ {
		r := t.tiles[i]
		for r.last-r.first > int32(size) {
			t.tiles = append(t.tiles, rowTile{r.last - int32(size), r.last})
			r.last -= int32(size)
		}
		t.tiles[i] = r
	}
}

// splitsOf gives the splits of a row, and how many positions one has.
func (t *pagedAttention) splitsOf(row int) (n, split int) {
	from, end := t.decode.sees(row)
	n = (end - from + t.decode.most - 1) / t.decode.most
	split = min(t.decode.most, ((end-from+n-1)/n+7)&^7)
	return (end - from + split - 1) / split, split
}

// piece gives the row of the pool where position p of a sequence lies, and how many positions from there to end lie
// behind it.
func (t *pagedAttention) piece(line, p, end int) (row, n int) {
	pages := t.table[line*t.pages : (line+1)*t.pages]
	at, in := p/t.page, p%t.page
	row, n = int(pages[at])*t.page+in, t.page-in
	for ; p+n < end && !t.decode.d.invariant && pages[at+1] == pages[at]+1; at++ {
		n += t.page
	}
	return row, min(n, end-p)
}

// block finds the keys and values of group g at positions [begin, to), gathered where their pages lie apart.
func (t *pagedAttention) block(w *prefillWork, g, line, begin, to int) {
	a := &t.prefill.attention
	row, n := t.piece(line, begin, to)
	if n == to-begin {
		w.shift = row - begin
		return
	}
	kb, vb := a.k[0].Type.RowBytes(a.dh), a.v[0].Type.RowBytes(a.dv)
	keys := w.gathered[:(to-begin)*kb]
	values := w.gathered[t.prefill.positions*kb:][:(to-begin)*vb]
	for p := begin; p < to; p += n {
		row, n = t.piece(line, p, to)
		for i := range n {
			at := p - begin + i
			copy(keys[at*kb:(at+1)*kb], a.k[g].Data[(row+i)*a.k[g].Stride:])
			copy(values[at*vb:(at+1)*vb], a.v[g].Data[(row+i)*a.v[g].Stride:])
		}
	}
	w.k.Data, w.k.Stride, w.k.Rows = keys, kb, to-begin
	w.v.Data, w.v.Stride, w.v.Rows = values, vb, to-begin
	w.shift = -begin
}

func (t *pagedAttention) Do(worker, chunk int) {
	d := t.decode
	if tiled := len(t.tiles) * d.groups; chunk < tiled {
		tile := t.tiles[len(t.tiles)-1-chunk/d.groups]
		w := &t.prefill.work[worker]
		w.gathered = t.gather[worker]
		t.prefill.tile(w, chunk%d.groups, int(tile.first), int(tile.last))
		return
	} else {
		chunk -= tiled
	}
	item, part := t.items[chunk/t.groups], chunk%t.groups
	first, behind := part*d.groups/t.groups, (part+1)*d.groups/t.groups
	row, w := int(t.rows[item.at]), &d.work[worker]
	d.query(w, row, first, behind)
	if t.few {
		t.split(w, t.part(int(item.at), int(item.split)), row, int(item.split), first, behind)
		return
	}
	n, _ := t.splitsOf(row)
	for s := range n {
		t.split(w, w.partials[s*d.partial:][:d.partial], row, s, first, behind)
	}
	for g := first; g < behind; g++ {
		d.add(w.partials, n, row, g)
	}
}

// part is where a split of row number at leaves its results, where each is an item.
func (t *pagedAttention) part(at, split int) []float32 {
	d := t.decode
	return d.partials[(at*d.splits+split)*d.partial:][:d.partial]
}

// split computes one split of a row for the heads of groups first … behind-1.
func (t *pagedAttention) split(w *decodeWork, results []float32, row, split, first, behind int) {
	d := t.decode
	line := int(t.seq[row])
	from, last := d.sees(row)
	_, size := t.splitsOf(row)
	from += split * size
	end := min(last, from+size)
	groups := 1 // that are taken together
	if d.byRows {
		groups = behind - first
	}
	for p := from; p < end; {
		at, n := t.piece(line, p, end)
		for g := first; g < behind; g += groups {
			d.scores(w, g, g+groups, p-from, at, at+n)
		}
		p += n
	}
	d.powers(w, results, row, from, end, first, behind)
	for p := from; p < end; {
		at, n := t.piece(line, p, end)
		for g := first; g < behind; g += groups {
			d.weigh(w, results, g, g+groups, p-from, at, at+n)
		}
		p += n
	}
}

// joinRows adds up the splits of rows. A chunk is one row and one group's heads.
type joinRows struct{ t *pagedAttention }

func (j *joinRows) Do(_, chunk int) {
	t := j.t
	at, g := chunk/t.decode.groups, chunk%t.decode.groups
	row := int(t.rows[at])
	n, _ := t.splitsOf(row)
	t.decode.add(t.decode.partials[at*t.decode.splits*t.decode.partial:], n, row, g)
}
