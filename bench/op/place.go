package op

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// slots is the memory of one operand: as many copies of it as the repetitions
// rotate through.
type slots struct {
	operand backends.Operand // of slot 0
	buffers []backends.Buffer
	count   int
	step    int // bytes from slot to slot in one buffer, where there is only one
}

// at gives the operand of a repetition.
func (s *slots) at(i int) backends.Operand {
	o := s.operand
	if s.count == 0 {
		return o
	}
	i %= s.count
	if len(s.buffers) == 1 {
		o.Offset = i * s.step
	} else {
		o.Buffer = s.buffers[i]
	}
	return o
}

// placed is a case in a device's memory.
type placed struct {
	dev    backends.Device
	stream backends.Stream
	c      *Case
	kernel backends.Kernel
	in     []*slots // nil for an operand that is left out
	out    []*slots
	rest   backends.Operand // scratch
	all    []backends.Buffer
	copies int     // repetitions until the first comes again
	set    float64 // bytes that these go through
}

// bigSlot is the size from which on each copy of an operand is a buffer of its own.
const bigSlot = 16 << 20

// budget is what the copies may take where the device does not say how much it has.
const budget = 4 << 30

// place brings a case to a device, with as many copies of its operands that
// repetitions go through bytes of them. limit bounds the copies.
func (c *Case) place(dev backends.Device, data [][]byte, bytes float64, limit int) (_ *placed, err error) {
	p := &placed{dev: dev, c: c}
	defer func() {
		if err != nil {
			err = errlist.Join(err, p.close())
		}
	}()
	if p.stream, err = dev.Stream(); err != nil {
		return nil, err
	}
	if p.kernel, err = c.kernelOf(dev); err != nil {
		return nil, err
	}
	cost := c.cost()
	each := cost.Read + cost.Write
	if c.Node.Op.Kind == graph.Update {
		each = cost.Read // what is written lies in one place
	}
	each = max(1, each)
	p.copies = max(1, min(limit, int(bytes/each)+1))
	if bytes == 0 {
		p.copies = 1
	}
	room := budget
	if m := dev.Info().Memory; m > 0 {
		room = m / 2
	}
	if total := c.bytes(); !c.indexed() {
		p.copies = max(1, min(p.copies, room/max(1, total)))
	}
	p.set = float64(p.copies) * each
	if err := p.inputs(data, room, int(bytes)); err != nil {
		return nil, err
	}
	for i, v := range c.Node.Out {
		if i == 0 && c.Node.Op.Kind == graph.Update {
			p.out = append(p.out, p.in[0])
			continue
		}
		s, err := p.alloc(v, v.Bytes(), p.copies, true, backends.Arena)
		if err != nil {
			return nil, err
		}
		p.out = append(p.out, s)
	}
	if n := p.kernel.Traits().Scratch; n > 0 {
		b, err := dev.Alloc(n, backends.Arena)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, b)
		p.rest = backends.Operand{Buffer: b, Stride: 1, Shape: tensor.Shape{n}}
	}
	return p, nil
}

// inputs places and writes the operands. Warm ones are there once, but
// activations twice: a device may keep what it made of the last one.
func (p *placed) inputs(data [][]byte, room, set int) error {
	c := p.c
	rng := rand.New(rand.NewPCG(uint64(len(c.Name())), 2))
	for i, v := range c.Node.In {
		if v == nil {
			p.in = append(p.in, nil)
			continue
		}
		bytes, use := data[i], backends.Arena
		switch v.Kind {
		case graph.Weight:
			use = backends.Weights
		case graph.State:
			use = backends.States
		}
		pack := p.kernel.Packing(i)
		if pack != nil && v.Kind == graph.Weight {
			packed := make([]byte, pack.Size(v.Type, v.Shape))
			if err := packAll(pack, packed, bytes, v); err != nil {
				return err
			}
			bytes = packed
		} else {
			pack = nil
			bytes = spread(bytes, v, c.Strides[i])
		}
		n := p.copies
		if v.Kind == graph.Input {
			n = max(2, n)
		}
		if c.indexed() && v.Type != tensor.I32 {
			// What is read in part only, as a table of rows is, need not be there so
			// often: each repetition reads other rows of it.
			n = min(n, max(2, set/max(1, len(bytes))+1))
		}
		n = max(1, min(n, room/max(1, len(bytes))))
		if i == 0 && c.Node.Op.Kind == graph.Update {
			n = 1 // every repetition writes it, so that they run one after another
		}
		s, err := p.alloc(v, len(bytes), n, false, use)
		if err != nil {
			return err
		}
		s.operand.Stride = v.Type.RowBytes(s.operand.RowElems())
		if c.Strides[i] != 0 && pack == nil {
			s.operand.Stride = c.Strides[i]
		}
		if pack != nil {
			s.operand.Packing = pack.ID
		}
		p.in = append(p.in, s)
		for k := range s.count {
			if k > 0 && v.Type == tensor.I32 {
				bytes = c.again(i, data[i], rng)
			}
			o := s.at(k)
			if err := p.stream.Write(o.Buffer, o.Offset, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func packAll(k *backends.Packing, dst, src []byte, v *graph.Value) error {
	rows, step := v.Shape.Rows(), max(1, k.Unit)
	for from := 0; from < rows; from += 64 * step {
		if err := k.Pack(dst, src, v.Type, v.Shape, from, min(rows, from+64*step)); err != nil {
			return err
		}
	}
	return nil
}

// spread puts rows as far apart as a stride says, with random-looking bytes of
// the row itself between them.
func spread(dense []byte, v *graph.Value, stride int) []byte {
	if stride == 0 || len(v.Shape) == 0 || v.Shape[0] < 2 {
		return dense
	}
	row := len(dense) / v.Shape[0]
	if row == 0 || stride <= row {
		return dense
	}
	all := make([]byte, (v.Shape[0]-1)*stride+row)
	for r := range v.Shape[0] {
		for at := r * stride; at < min(len(all), (r+1)*stride); at += row {
			copy(all[at:min(len(all), (r+1)*stride)], dense[r*row:(r+1)*row])
		}
	}
	return all
}

// alloc makes the copies of an operand. Results of neighbouring repetitions
// overlap by one unit of alignment: a device may run launches that do not touch
// each other at the same time, and one operation's time is wanted.
func (p *placed) alloc(v *graph.Value, bytes, n int, overlap bool, use backends.Use) (*slots, error) {
	align := max(64, p.dev.Info().Align)
	size := (max(1, bytes) + align - 1) / align * align
	s := &slots{count: n, step: size, operand: backends.Operand{Type: v.Type, Shape: v.Shape}}
	s.operand.Stride = v.Type.RowBytes(s.operand.RowElems())
	if overlap {
		s.step = size - align
	}
	count, each := 1, s.step*(n-1)+size
	if size >= bigSlot && !overlap {
		count, each = n, size
	}
	for range count {
		b, err := p.dev.Alloc(each, use)
		if err != nil {
			return nil, fmt.Errorf("%s: operand %s, %d copies: %w", p.c.Name(), v, n, err)
		}
		p.all = append(p.all, b)
		s.buffers = append(s.buffers, b)
	}
	s.operand.Buffer = s.buffers[0]
	return s, nil
}

// launch is repetition i.
func (p *placed) launch(i int) backends.Launch {
	l := backends.Launch{Node: p.c.launched(p.kernel), Kernel: p.kernel, Scratch: p.rest}
	for _, s := range p.in {
		if s == nil {
			l.In = append(l.In, backends.Operand{})
		} else {
			l.In = append(l.In, s.at(i))
		}
	}
	for _, s := range p.out {
		l.Out = append(l.Out, s.at(i))
	}
	return l
}

// program has n launches, of which the last is repetition 0.
func (p *placed) program(n int) *backends.Program {
	prog := &backends.Program{Name: p.c.Node.Op.Name}
	for i := n - 1; i >= 0; i-- {
		prog.Launches = append(prog.Launches, p.launch(i))
	}
	return prog
}

// poison fills the results of repetition 0 with what is no number.
func (p *placed) poison() error {
	if p.c.Node.Op.Kind == graph.Update {
		return nil
	}
	for i, s := range p.out {
		bytes := make([]byte, p.c.Node.Out[i].Bytes())
		for k := range bytes {
			bytes[k] = 0xff
		}
		o := s.at(0)
		if err := p.stream.Write(o.Buffer, o.Offset, bytes); err != nil {
			return err
		}
	}
	return nil
}

// results reads the results of repetition 0.
func (p *placed) results() ([][]byte, error) {
	var all [][]byte
	for i, s := range p.out {
		bytes := make([]byte, p.c.Node.Out[i].Bytes())
		o := s.at(0)
		if err := p.stream.Read(o.Buffer, o.Offset, bytes); err != nil {
			return nil, err
		}
		all = append(all, bytes)
	}
	return all, nil
}

func (p *placed) close() error {
	var errs []error
	if p.stream != nil {
		errs = append(errs, p.stream.Close())
	}
	for _, b := range p.all {
		errs = append(errs, b.Free())
	}
	p.stream, p.all = nil, nil
	return errlist.Join(errs...)
}

// bytes is the size of all operands and results that are there several times.
func (c *Case) bytes() int {
	total := 0
	for i, v := range append(slices.Clone(c.Node.In), c.Node.Out...) {
		if c.Node.Op.Kind == graph.Update && (i == 0 || i >= len(c.Node.In)) {
			continue // a state is there once
		}
		total += v.Bytes()
	}
	return total
}

// least bounds from below, in bytes, what measuring takes on a device whose memory
// is the host's: operands as they were made and as the device has them, results and
// their float64 reference.
func (c *Case) least() float64 {
	total := 0.0
	for _, v := range c.Node.In {
		if v != nil {
			total += 2 * float64(v.Bytes())
		}
	}
	for _, v := range c.Node.Out {
		total += float64(v.Bytes()) + 8*float64(v.Shape.Elems())
	}
	return total
}

// indexed says whether integers choose which part of an operand is read.
func (c *Case) indexed() bool {
	return slices.ContainsFunc(c.Node.In, func(v *graph.Value) bool {
		return v != nil && v.Type == tensor.I32 && v.Name != "pos"
	})
}

// cost is what one execution does at least.
func (c *Case) cost() graph.Cost {
	if c.Node.Op.Cost == nil || c.Node.Op.Kind == graph.View { // a view that is launched is a copy
		var cost graph.Cost
		for _, v := range c.Node.In {
			cost.Read += float64(v.Bytes())
		}
		for _, v := range c.Node.Out {
			cost.Write += float64(v.Bytes())
		}
		return cost
	}
	cost := c.Node.Op.Cost(c.Node, c.kv())
	if c.Node.Op == ops.Attention {
		// Token s sees First + s + 1 positions: arithmetic is done for the mean.
		cost.Flops = c.Node.Op.Cost(c.Node, c.First+(c.tokens()+1)/2).Flops
	}
	return cost
}
