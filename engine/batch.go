package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/schedule"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// batch is the device's side of many sequences: the pools in which their caches lie, and the captured steps that
// work on them, one for each number of rows. It is used by one goroutine, which holds the device's turn.
type batch struct {
	mem     Session // the pools are its states, and the steps its own
	size    poolSize
	width   int     // pages of a line of the table
	table   []int32 // as the device has it, but for
	changed []span  // what the next step writes
	host    []byte  // pages that were moved out
	bytes   int     // of a page in all pools together
	states  []pagedState
	fixed   []pagedState // of one size a sequence: bytes are of a slot
	keep    []byte       // a slot on its way, where the device does not copy

	tokens, pos, slot, seq, last []int32 // of the step that is filled in
	state                        []int32 // slots of recurrences, by row
	adapter, adapterOf           []int32 // of each row, of each run
	logits                       []float32
	whole                        []float32 // all logits of rows that the host chooses for, where it does for some
	picked                       []int32
	logprobs, bestLogprobs       []float32 // of those picked, of the best
	best                         []int32   // the most likely tokens, where those picked are others
	rates                        []float32 // of the rows of logits of a step with draw
	keys, allowed                []int32
	most                         []int32 // filters of these rows
	shares                       []float32
	adjusted                     []int32 // tokens whose logits change, and how
	by, plus                     []float32
	loads                        [][]byte // pages from the disk
	page                         []byte   // a page on its way, where the device does not copy
	submitted                    func()   // called when a step is under way, before it is waited for; may be nil
	fresh                        bool     // the last step was not run before: it was captured, or the device knew it not
	parts                        StepParts
}

// span is a range of the table.
type span struct{ from, to int }

// pagedState is one pool.
type pagedState struct {
	buffer backends.Buffer
	bytes  int // of a page
	at     int // of it in a page on the host
}

// copier is a stream that copies within the device.
type copier interface {
	Copy(dst backends.Buffer, to int, src backends.Buffer, from, bytes int) error
}

// maxBatchSteps bounds the captured steps of batches.
const maxBatchSteps = 32

// buckets are the numbers of rows for which steps are captured. A row that pads a step costs its share of the products,
// so that where capturing is cheap there are more of them.
var (
	buckets = []int{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048,
		4096, 8192}
	fineBuckets = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160,
		192, 224, 256}
	// wantedBuckets are those of rows of logits, where not all rows of a step are wanted.
	wantedBuckets = []int{1, 4, 16, 64, 256}
	// topBuckets are those of most likely tokens with log-probabilities. Where more are asked for the host computes them.
	topBuckets = []int{8, 32}
	// pickBuckets are those of tokens that the device gives to choose among.
	pickBuckets = []int{8, 64, 256}
)

// farBucket is how far buckets behind the last of a list are apart.
const farBucket = 256

// bucket gives the least of a list that holds n, or behind its last a multiple of farBucket.
func bucket(list []int, n int) int {
	for _, b := range list {
		if n <= b {
			return b
		}
	}
	return (n + farBucket - 1) / farBucket * farBucket
}

// upTo are all buckets of steps of so many rows at most.
func upTo(list []int, rows int) (all []int) {
	for n := 0; n < rows; {
		n = bucket(list, n+1)
		all = append(all, n)
	}
	return all
}

// pageBytes is what a page takes of all pools.
func (e *Engine) pageBytes(page int) int {
	sum := 0
	for _, v := range e.first.States {
		if e.isPaged(v) {
			sum += page * rowBytes(v)
		}
	}
	return sum
}

// newBatch makes pools, for steps of at most so many rows of which so many are wanted.
func (e *Engine) newBatch(size poolSize, hostPages, rows, wanted int) (*batch, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	b := &batch{size: size, width: size.width(e.opt.Context)}
	b.mem = Session{engine: e, states: map[string]backends.Buffer{}, most: maxBatchSteps, pool: &b.size}
	g, err := e.graph(1, 1, &b.size)
	if err != nil {
		return nil, err
	}
	if b.mem.stream, err = e.dev.Stream(); err != nil {
		return nil, err
	}
	for _, v := range g.States {
		buffer, err := e.dev.Alloc(v.Bytes(), backends.States)
		if err != nil {
			return nil, errlist.Join(fmt.Errorf("pool %s: %w", v, err), b.mem.close())
		}
		b.mem.states[v.Name] = buffer
		switch {
		case v.Name == tableState:
		case len(v.Shape) == 4:
			n := v.Bytes() / size.pages
			b.states = append(b.states, pagedState{buffer, n, b.bytes})
			b.bytes += n
		default:
			n := v.Bytes() / size.slots
			b.fixed = append(b.fixed, pagedState{buffer: buffer, bytes: n})
			b.keep = grown(b.keep, max(len(b.keep), n))
		}
	}
	b.table = slices.Repeat([]int32{-1}, size.lines*b.width)
	if err := b.mem.stream.Write(b.mem.states[tableState], 0, tensor.Bytes(b.table)); err != nil {
		return nil, errlist.Join(err, b.mem.close())
	}
	b.host, b.page = make([]byte, hostPages*b.bytes), make([]byte, b.bytes)
	rows = bucket(b.rowBuckets(), rows)
	b.mem.wanted = min(rows, bucket(wantedBuckets, wanted))
	for _, list := range []*[]int32{&b.tokens, &b.pos, &b.slot, &b.seq, &b.last, &b.adapter, &b.state} {
		*list = make([]int32, rows)
	}
	err = b.reserve(rows, wanted)
	if err == nil { // what a device cannot run or bind is found now, not by the first request
		_, err = b.mem.stepOf(b.kind(1, 1, 0), nil)
	}
	if err != nil {
		return nil, errlist.Join(err, b.mem.close())
	}
	return b, nil
}

// reserve makes the arena as large as the largest step wants it, so that none has to be captured anew.
func (b *batch) reserve(rows, wanted int) error {
	e := b.mem.engine
	for _, kind := range e.largest(rows, wanted) {
		g, sel, err := e.lowered(kind, &b.size)
		if err != nil && kind.drawn { // who asks for a step that cannot be made is told why
			continue
		}
		if err != nil {
			return err
		}
		if err := b.mem.growArena(planMemory(g, sel, e.dev.Info().Window).arena); err != nil {
			return err
		}
	}
	return nil
}

// largest are the kinds of a batch's steps that want the largest arena, of so many rows of which so many are wanted at
// most: with logits of one and of all, and where the device draws with logits and what is drawn from of those wanted.
func (e *Engine) largest(rows, wanted int) []stepKind {
	k := stepKind{Tokens: rows, Rows: 1, adapted: e.adapters != nil}
	all := k
	all.Tokens = min(rows, bucket(e.rowBuckets(), wanted))
	all.Rows = all.Tokens
	kinds := []stepKind{k, all}
	if e.picks(Sampling{}) > 0 {
		k.Rows, k.drawn, k.filtered, k.changes = min(rows, bucket(wantedBuckets, wanted)), true, true, changeBuckets[0]
		k.picks = e.mostPicks(pickBuckets[len(pickBuckets)-1])
		k.tops = e.mostPicks(topBuckets[len(topBuckets)-1])
		kinds = append(kinds, k)
	}
	return kinds
}

func (b *batch) rowBuckets() []int { return b.mem.engine.rowBuckets() }

func (e *Engine) rowBuckets() []int {
	if e.queued {
		return buckets
	}
	return fineBuckets
}

// kind is the step for so many rows, of which so many are wanted.
func (b *batch) kind(rows, wanted, picks int) stepKind {
	some := func(n int32) bool { return n > 0 }
	k := stepKind{Tokens: bucket(b.rowBuckets(), rows), picks: picks, adapted: slices.ContainsFunc(b.adapterOf, some)}
	if backends.Invariant(b.mem.engine.dev) { // one graph for rows with adapters and such without
		k.adapted = b.mem.engine.adapters != nil
	}
	k.Rows = k.Tokens
	if wanted < rows {
		k.Rows = min(k.Tokens, bucket(wantedBuckets, max(1, wanted)))
	}
	return k
}

// capture captures the steps of so many rows, ahead of their first use.
func (b *batch) capture(list []int, sequences, rows int) error {
	e := b.mem.engine
	greedy := e.picks(Sampling{})
	kinds := map[stepKind]bool{}
	for _, n := range list {
		if n < 1 || n > rows {
			return fmt.Errorf("a step of %d rows is to be captured: one has 1 to %d", n, rows)
		}
		if n <= sequences {
			kinds[b.kind(n, n, greedy)] = true
		}
		if n > 1 {
			kinds[b.kind(n, 1, greedy)] = true
		}
	}
	if len(kinds) > maxBatchSteps {
		return fmt.Errorf("%d steps are to be captured, %d are kept at most: name fewer numbers of rows", len(kinds),
			maxBatchSteps)
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for k := range kinds {
		if _, err := b.mem.stepOf(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// move carries out one order of a plan.
func (b *batch) move(m schedule.Move) error {
	stream := b.mem.stream
	switch m.Kind {
	case schedule.PageLoad:
		return b.writePage(m.To, b.loads[m.From])
	case schedule.PageOut:
		return b.each(m.From, func(s *pagedState, at int) error {
			return stream.Read(s.buffer, at, b.host[int(m.To)*b.bytes+s.at:][:s.bytes])
		})
	case schedule.PageIn:
		return b.each(m.To, func(s *pagedState, at int) error {
			return stream.Write(s.buffer, at, b.host[int(m.From)*b.bytes+s.at:][:s.bytes])
		})
	case schedule.CopyPage:
		return b.each(m.To, func(s *pagedState, at int) error {
			return b.copy(s, int(m.From), at, b.page)
		})
	case schedule.CopyState:
		if m.From < 0 { // what begins at position 0 does not see what the slot holds
			return nil
		}
		return b.copyState(int(m.From), int(m.To))
	}
	return fmt.Errorf("a %v of %d to %d was ordered, which no model here has", m.Kind, m.From, m.To)
}

// copy copies page or slot from of a pool to the place at, over the host where the device cannot.
func (b *batch) copy(s *pagedState, from, at int, host []byte) error {
	from *= s.bytes
	if device, ok := b.mem.stream.(copier); ok {
		return device.Copy(s.buffer, at, s.buffer, from, s.bytes)
	}
	if err := b.mem.stream.Read(s.buffer, from, host[:s.bytes]); err != nil {
		return err
	}
	return b.mem.stream.Write(s.buffer, at, host[:s.bytes])
}

// copyState copies the recurrences' states of a slot.
func (b *batch) copyState(from, to int) error {
	for i := range b.fixed {
		s := &b.fixed[i]
		if err := b.copy(s, from, to*s.bytes, b.keep); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for every pool with the place of a page in it.
func (b *batch) each(page int32, do func(s *pagedState, at int) error) error {
	for i := range b.states {
		s := &b.states[i]
		if err := do(s, int(page)*s.bytes); err != nil {
			return err
		}
	}
	return nil
}

// line notes which pages a sequence has; the next step writes what has changed.
func (b *batch) line(line int, pages []int32) error {
	if len(pages) > b.width {
		return fmt.Errorf("a sequence of %d pages, a line of the table has %d", len(pages), b.width)
	}
	have := b.table[line*b.width:][:len(pages)]
	from, to := 0, len(pages)
	for from < to && have[from] == pages[from] {
		from++
	}
	for to > from && have[to-1] == pages[to-1] {
		to--
	}
	if from < to {
		copy(have[from:to], pages[from:to])
		b.changed = append(b.changed, span{line*b.width + from, line*b.width + to})
	}
	return nil
}

// orders moves pages as a plan says, and brings the table to the device.
func (b *batch) orders(p *schedule.Batch) error {
	for _, m := range p.Moves {
		if err := b.move(m); err != nil {
			return err
		}
	}
	b.changed = joined(b.changed)
	for _, c := range b.changed {
		if err := b.mem.stream.Write(b.mem.states[tableState], 4*c.from, tensor.Bytes(b.table[c.from:c.to])); err != nil {
			return err
		}
	}
	b.changed = b.changed[:0]
	return nil
}

// nearTable is how far apart changes of the table may lie, in numbers, that one write brings. Where the table lies in a
// device's own memory a write is a submission, which takes longer than 32 KB do.
const nearTable = 8192

// joined sorts spans and makes one of those that lie near each other. It changes the list.
func joined(list []span) []span {
	slices.SortStableFunc(list, func(a, b span) int { return a.from - b.from })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && s.from <= out[n-1].to+nearTable {
			out[n-1].to = max(out[n-1].to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// fill writes the inputs of a step from the rows of a plan; lineOf gives the line of each run.
func (b *batch) fill(p *schedule.Batch, kind stepKind, lineOf []int32) {
	wanted := 0
	for i := range p.Rows {
		r := &p.Rows[i]
		b.tokens[i], b.pos[i], b.seq[i] = r.Token, r.Pos, lineOf[r.Run]
		b.adapter[i] = b.adapterOf[r.Run]
		b.state[i] = int32(p.Runs[r.Run].Slot)
		b.slot[i] = r.Page*int32(b.size.page) + r.Pos%int32(b.size.page)
		if r.Want && kind.Rows < kind.Tokens {
			b.last[wanted] = int32(i)
			wanted++
		}
	}
	for i := len(p.Rows); i < kind.Tokens; i++ {
		b.tokens[i], b.pos[i], b.slot[i], b.seq[i], b.adapter[i], b.state[i] = 0, 0, -1, -1, 0, -1
	}
	for i := range b.last[:kind.Rows] {
		if kind.Rows == kind.Tokens {
			b.last[i] = int32(i)
		} else if i >= wanted {
			b.last[i] = 0
		}
	}
}

// step computes the rows of a plan. Behind it, row i of the results is that of the plan's i-th wanted row: logits, or
// with picks the most likely tokens, chosen as list says where they are drawn; or as later does, which is called while
// the device computes the logits.
func (b *batch) step(p *schedule.Batch, h how, list []drawing, later func() []drawing, lineOf []int32) error {
	from := time.Now()
	lap := func(part *time.Duration) {
		now := time.Now()
		*part += now.Sub(from)
		from = now
	}
	if err := b.orders(p); err != nil {
		return err
	}
	if len(p.Rows) == 0 {
		return nil
	}
	kind := b.kind(len(p.Rows), p.Wanted, h.picks)
	kind = h.kind(kind)
	st, last, err := b.programs(kind, later != nil)
	if err != nil {
		return err
	}
	b.fresh = !st.ran || !last.ran
	st.ran, last.ran = true, true
	if err := b.writeRows(st, p, lineOf); err != nil {
		return err
	}
	if kind.drawn && last == st {
		if err := b.writeDraws(st, p, list); err != nil {
			return err
		}
	}
	lap(&b.parts.Write)
	if err := st.submit(); err != nil {
		return err
	}
	lap(&b.parts.Submit)
	if last != st {
		list = later()
		err := b.writeDraws(last, p, list)
		lap(&b.parts.Write)
		if err == nil {
			err = last.submit()
		}
		if err != nil {
			return errlist.Join(err, b.mem.wait(st))
		}
		lap(&b.parts.Submit)
	}
	if b.submitted != nil {
		b.submitted()
	}
	err = b.mem.wait(st)
	if last != st {
		if failed := b.mem.wait(last); err == nil {
			err = failed
		}
	}
	if err != nil {
		return err
	}
	lap(&b.parts.Wait)
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Keep >= 0 {
			if err := b.copyState(r.Slot, r.Keep); err != nil {
				return err
			}
		}
	}
	err = b.read(last, p, kind, list)
	lap(&b.parts.Read)
	return err
}

// programs gives the program of a step, or the one up to the logits and the one that chooses from them.
func (b *batch) programs(kind stepKind, apart bool) (st, last *Step, err error) {
	if !apart {
		st, err = b.mem.stepOf(kind, nil)
		return st, st, err
	}
	first := stepKind{Tokens: kind.Tokens, Rows: kind.Rows, adapted: kind.adapted, part: forward}
	kind.adapted, kind.part = false, choosing
	// To capture one may want more memory, which the other would have to be captured anew on: so the first is asked for
	// again.
	if _, err = b.mem.stepOf(first, nil); err == nil {
		last, err = b.mem.stepOf(kind, nil)
	}
	if err == nil {
		st, err = b.mem.stepOf(first, nil)
	}
	return st, last, err
}

// writeRows writes the inputs of a step's rows.
func (b *batch) writeRows(st *Step, p *schedule.Batch, lineOf []int32) error {
	kind := st.stepKind
	b.fill(p, kind, lineOf)
	for _, in := range []struct {
		name string
		rows []int32
	}{
		{"tokens", b.tokens[:kind.Tokens]}, {"pos", b.pos[:kind.Tokens]}, {slotInput, b.slot[:kind.Tokens]},
		{seqInput, b.seq[:kind.Tokens]}, {"last", b.last[:kind.Rows]}, {stateInput, b.state[:kind.Tokens]},
	} {
		if err := st.writeInts(b.mem.stream, in.name, 0, in.rows, 0, 0); err != nil {
			return err
		}
	}
	if !kind.adapted {
		return nil
	}
	return st.writeInts(b.mem.stream, adapterInput, 0, b.adapter[:kind.Tokens], 0, 0)
}

// read brings the results of the wanted rows to the host.
func (b *batch) read(st *Step, p *schedule.Batch, kind stepKind, list []drawing) error {
	out := st.Graph.Outputs
	if kind.logits {
		if err := b.readWhole(st, p, list); err != nil {
			return err
		}
	}
	b.logits = grown(b.logits, p.Wanted*out[0].Shape.Last())
	if kind.picks > 0 {
		b.picked = grown(b.picked, p.Wanted*kind.picks)
	}
	if kind.tops > 0 {
		b.logprobs = grown(b.logprobs, p.Wanted*kind.picks)
		b.best, b.bestLogprobs = grown(b.best, p.Wanted*kind.tops), grown(b.bestLogprobs, p.Wanted*kind.tops)
	}
	rows := func(at, row, n int) error {
		err := b.readFloats(st, out[0], b.logits, at, row, n)
		if kind.picks > 0 && err == nil {
			err = b.readInts(st, out[1], b.picked, at, row, n)
		}
		if kind.tops > 0 && err == nil {
			err = b.readFloats(st, out[2], b.logprobs, at, row, n)
		}
		if kind.tops > 0 && kind.drawn && err == nil {
			if err = b.readInts(st, out[3], b.best, at, row, n); err == nil {
				err = b.readFloats(st, out[4], b.bestLogprobs, at, row, n)
			}
		}
		return err
	}
	if kind.Rows < kind.Tokens || p.Wanted == len(p.Rows) {
		return rows(0, 0, p.Wanted)
	}
	at := 0
	for i := range p.Rows {
		if p.Rows[i].Want {
			if err := rows(at, i, 1); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// readFloats brings n rows of an output from one on to those of a list from at on.
func (b *batch) readFloats(st *Step, v *graph.Value, list []float32, at, row, n int) error {
	off, stride, err := st.output(v)
	if err != nil {
		return err
	}
	width := v.Shape.Last()
	return b.mem.readFrom(st, v, list[at*width:(at+n)*width], off+row*stride, stride)
}

// readInts is readFloats of integers.
func (b *batch) readInts(st *Step, v *graph.Value, list []int32, at, row, n int) error {
	off, stride, err := st.output(v)
	if err != nil {
		return err
	}
	width := v.Shape.Last()
	return b.mem.readRows(st, tensor.Bytes(list[at*width:(at+n)*width]), off+row*stride, stride, rowBytes(v))
}

// readWhole brings all logits of those wanted rows to the host that it chooses for: of rows in a row at once.
func (b *batch) readWhole(st *Step, p *schedule.Batch, list []drawing) error {
	out := st.Graph.Outputs
	logits := out[len(out)-1]
	width := logits.Shape.Last()
	off, stride, err := st.output(logits)
	if err != nil {
		return err
	}
	whole := 0
	for i := range list {
		whole = max(whole, list[i].whole)
	}
	b.whole = grown(b.whole, whole*width)
	at, first, n, done := 0, 0, 0, 0 // rows from first on, which are n, are to be read
	read := func() error {
		to := b.whole[done*width : (done+n)*width]
		done += n
		return b.mem.readFrom(st, logits, to, off+first*stride, stride)
	}
	for i := range p.Rows {
		if !p.Rows[i].Want {
			continue
		}
		row, host := at, list[at].whole > 0
		if at++; st.Rows == st.Tokens {
			row = i
		}
		switch {
		case !host:
		case n > 0 && row == first+n:
			n++
		default:
			err = errlist.Join(err, read())
			first, n = row, 1
		}
	}
	return errlist.Join(err, read())
}

// grown gives a slice of n elements, the old one where it is long enough.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

func (b *batch) close() error {
	b.mem.enter()
	defer b.mem.leave()
	return b.mem.close()
}
