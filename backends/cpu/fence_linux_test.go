package cpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// fences maps memory between pages that nobody may touch.
type fences struct {
	dev  backends.Device
	end  bool // operands end at a fence, else they begin behind one
	maps [][]byte
}

func (f *fences) memory(n int) ([]byte, backends.Buffer, error) {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	f.maps = append(f.maps, m)
	b := m[page : page+size]
	if size > 0 {
		if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil, nil, err
		}
	}
	for i := range b {
		b[i] = 0xff // what is no number
	}
	if f.end {
		b = b[size-n:]
	} else {
		b = b[:n:n]
	}
	buffer, err := f.dev.(backends.Mapper).Map(b)
	return b, buffer, err
}

func (f *fences) free() {
	for _, m := range f.maps {
		unix.Munmap(m)
	}
	f.maps = nil
}

// place makes an operand of a value, rows gap elements apart, with no byte behind its last row.
func (f *fences) place(v *graph.Value, gap int, data []byte, pack *backends.Packing) (o backends.Operand, b []byte,
	err error) {
	o = backends.Operand{Type: v.Type, Shape: v.Shape}
	row := v.Type.RowBytes(o.RowElems())
	if pack != nil {
		o.Packing, o.Stride = pack.ID, row
		if b, o.Buffer, err = f.memory(pack.Size(v.Type, v.Shape)); err == nil {
			err = pack.Pack(b, data, v.Type, v.Shape, 0, v.Shape.Rows())
		}
		return o, b, err
	}
	o.Stride = row + v.Type.RowBytes(gap)
	b, o.Buffer, err = f.memory(max(0, (o.Rows()-1)*o.Stride+row))
	for i := 0; err == nil && data != nil && i < o.Rows(); i++ {
		copy(b[i*o.Stride:], data[i*row:(i+1)*row])
	}
	return o, b, err
}

// launch runs a case and gives its results.
func (f *fences) launch(p *optest.Prepared) (results [][]byte, err error) {
	defer f.free()
	k, err := f.dev.Kernel(p.Node)
	if err != nil {
		return nil, err
	}
	l := backends.Launch{Node: p.Node, Kernel: k}
	var state []byte
	for i, in := range p.In {
		var o backends.Operand
		if in.Data != nil {
			var pack *backends.Packing
			if in.Value.Kind == graph.Weight {
				pack = k.Packing(i)
			}
			var b []byte
			if o, b, err = f.place(in.Value, in.Gap, in.Data, pack); err != nil {
				return nil, err
			}
			if i == 0 {
				state = b
			}
		}
		l.In = append(l.In, o)
	}
	for i, v := range p.Node.Out {
		var o backends.Operand
		b := state
		if i == 0 && p.Node.Op.Kind == graph.Update {
			o = l.In[0]
		} else if o, b, err = f.place(v, 0, nil, nil); err != nil {
			return nil, err
		}
		l.Out = append(l.Out, o)
		results = append(results, b)
	}
	s, err := f.dev.Stream()
	if err != nil {
		return nil, err
	}
	err = errors.Join(s.Launch(&l), s.Close())
	for i := range results { // what is mapped goes away
		results[i] = bytes.Clone(results[i])
	}
	return results, err
}

// TestFenced runs the table of operators at every level with each operand and result
// against a page without rights, first before it, then behind it: no operator reads or
// writes a byte too many, whatever lies there otherwise.
func TestFenced(t *testing.T) {
	devices := map[string]backends.Device{}
	for _, level := range []string{"amx", "avx512", "avx2", "i8mm", "dotprod", "neon", "go"} {
		dev, err := cpu.NewLevel(level, 1)
		if err != nil {
			t.Logf("%v", err)
			continue
		}
		defer dev.Close()
		devices[level] = dev
	}
	for i, c := range append(optest.Cases(), fencedAttention()...) {
		if i%7 != 0 && !testfiles.Exhaustive() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			p, err := c.Prepare(tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			want, err := p.Reference()
			if err != nil {
				t.Fatal(err)
			}
			for level, dev := range devices {
				t.Run(level, func(t *testing.T) { fencedCase(t, dev, p, want, max(c.Rel, 1e-2)) })
			}
		})
	}
}

// fencedAttention are caches of odd sizes, read by one token and by many.
func fencedAttention() (all []optest.Case) {
	for _, cache := range []string{"f32", "f16", "bf16"} {
		for _, s := range []int{1, 3, 37} {
			for _, dims := range [][2]int{{16, 17}, {33, 8}, {64, 31}} {
				for _, context := range []int{s, 47, 131} {
					all = append(all, optest.Case{
						Name: fmt.Sprintf("%s, %d tokens, %v, %d positions", cache, s, dims, context),
						Eq:   "y: attention(q, k, v, pos)",
						Args: fmt.Sprintf("q float[%d, 6, %d]; k %s[%d, 2, %d]; v %s[%d, 2, %d]; pos i32[%d] =%d..", s, dims[0], cache,
							context, dims[0], cache, context, dims[1], s, max(0, context-s)),
						Rel: 3e-6,
					})
				}
			}
		}
	}
	return all
}

// fencedCase runs a case on both sides of a fence. Limit is of the relative L2 error: block formats
// round activations.
func fencedCase(t *testing.T, dev backends.Device, p *optest.Prepared, want []tensor.Tensor, limit float64) {
	var first [][]byte
	for _, end := range []bool{true, false} {
		f := &fences{dev: dev, end: end}
		got, err := f.launch(p)
		var lacks *backends.Unsupported
		if errors.As(err, &lacks) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		for i := range got {
			if !bytes.Equal(got[i], first[i]) {
				t.Errorf("result %d behind a fence differs from the one before a fence", i)
			}
		}
	}
	if p.Node.Op.Kind == graph.Update {
		return // in place, with gaps: TestOperators compares those
	}
	for i, w := range want {
		if w.Type == tensor.I32 {
			continue
		}
		got, err := optest.Decode(p.Node.Out[i].Type, p.Node.Out[i].Shape, first[i])
		if err != nil {
			t.Fatal(err)
		}
		var diff, norm float64
		for j, g := range got.F64() {
			if right := w.F64()[j]; math.IsInf(g, 0) && g == right || math.IsNaN(g) && math.IsNaN(right) {
				continue
			}
			d := g - w.F64()[j]
			diff, norm = diff+d*d, norm+w.F64()[j]*w.F64()[j]
		}
		if l2 := math.Sqrt(diff / max(norm, 1e-30)); !(l2 <= limit) {
			t.Errorf("result %d: relative L2 %.3g", i, l2)
		}
	}
}
