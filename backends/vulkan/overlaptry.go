//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// tryOverlap runs blocks as a step has them, with weights of either kind, again and again with other activations, with
// stages handed over and with barriers, which must give the same bits.
func (d *Device) tryOverlap() error {
	for _, t := range []tensor.Type{tensor.Q4_K, tensor.Q8_0, tensor.F16} {
		if err := d.tryStages(t); err != nil {
			return fmt.Errorf("weights of %s: %w", t, err)
		}
	}
	return nil
}

// held is a tensor of what is tried.
type held struct {
	v *graph.Value
	o backends.Operand
}

// as is the same tensor in another shape.
func (h held) as(shape ...int) held {
	v := *h.v
	v.Shape = shape
	h.o.Shape, h.o.Stride = shape, h.o.Type.RowBytes(v.Shape[1:].Elems())
	return held{&v, h.o}
}

// tryStages tries weights of one type.
// It is in one piece: a graph is built, run both ways, and its results are compared.
func (d *Device) tryStages(weight tensor.Type) (err error) {
	const width, inner, head, groups, positions = 2048, 5632, 64, 8, 300 // head: elements; groups: heads of keys
	blocks, runs := 12, 30
	if d.p.Kind == Software { // takes a minute else
		blocks, runs = 2, 2
	}
	was := d.on
	defer func() { d.on = was }()
	d.on = taken{int8Dot: d.has.dots}
	stream, err := d.Stream()
	if err != nil {
		return err
	}
	rng := uint64(1)
	random := func() uint64 {
		rng = rng*6364136223846793005 + 1442695040888963407
		return rng >> 33
	}
	var all []backends.Buffer
	defer func() {
		for _, b := range all {
			err = errlist.Join(err, b.Free())
		}
	}()
	alloc := func(name string, t tensor.Type, use backends.Use, shape ...int) held {
		v := &graph.Value{Name: name, Kind: graph.Computed, Type: t, Shape: shape}
		switch use {
		case backends.Weights:
			v.Kind = graph.Weight
		case backends.States:
			v.Kind = graph.State
		}
		b, fail := d.Alloc(v.Bytes(), use)
		if fail != nil {
			err = errlist.Join(err, fail)
			return held{v: v}
		}
		all = append(all, b)
		return held{v, backends.Operand{Buffer: b, Type: t, Shape: v.Shape, Stride: t.RowBytes(v.Shape[1:].Elems())}}
	}
	// filled has small numbers: bytes of f16 between 2^-6 and 2^-5, or blocks with scales and minima of 2^-14 to 2^-13.
	filled := func(name string, t tensor.Type, use backends.Use, shape ...int) held {
		h := alloc(name, t, use, shape...)
		data := make([]byte, h.v.Bytes())
		row := len(data) / h.v.Shape.Rows()
		for i := range data {
			data[i] = byte(random())
			switch {
			case t == tensor.F16 && i%2 == 1:
				data[i] = data[i]&0x83 | 0x24
			case t == tensor.Q4_K && (i%144 == 1 || i%144 == 3), t == tensor.Q8_0 && i%row >= h.v.Shape.Last() && i%2 == 1:
				data[i] = 0x04
			}
		}
		if err == nil {
			err = stream.Write(h.o.Buffer, 0, data)
		}
		return h
	}
	weights := func(name string, rows, cols int) held {
		h := filled(name, weight, backends.Weights, rows, cols)
		if packingOf(weight) != nil { // of whole planes of 16 bytes
			h.o.Packing = packedID
		}
		return h
	}
	result := func(name string, n int) held { return alloc(name, tensor.F32, backends.Arena, 1, n) }
	x, last := alloc("x", tensor.F32, backends.Step, 1, width), alloc("last", tensor.F32, backends.Step, 1, width)
	pos := alloc("pos", tensor.I32, backends.Step, 1)
	g := alloc("g", tensor.F32, backends.Weights, width)
	wq, wk, wv, wo := weights("wq", width, width), weights("wk", groups*head, width), weights("wv", groups*head, width),
		weights("wo", width, width)
	wg, wu, wd := weights("gate", inner, width), weights("up", inner, width), weights("down", width, inner)
	keys := filled("keys", tensor.F16, backends.States, positions, groups, head)
	values := filled("values", tensor.F16, backends.States, positions, groups, head)
	n, q, k, v, turned, seen := result("n", width), result("q", width), result("k", groups*head), result("v", groups*head),
		result("turned", width), result("seen", width)
	y, a, b, c, z, w := result("y", width), result("a", inner), result("b", inner), result("c", inner), result("z", width),
		result("w", width)
	if err != nil {
		return err
	}
	floats := func(n int, of func() float32) []byte {
		data := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(of()))
		}
		return data
	}
	if err := errlist.Join(stream.Write(g.o.Buffer, 0, floats(width, func() float32 { return 1 })),
		stream.Write(pos.o.Buffer, 0, binary.LittleEndian.AppendUint32(nil, positions-20))); err != nil {
		return err
	}
	p := &backends.Program{Name: "stages"}
	add := func(op *graph.Op, attr any, out held, in ...held) {
		node := &graph.Node{Name: fmt.Sprintf("%s%d", op.Name, len(p.Launches)), Op: op, Attr: attr,
			Out: []*graph.Value{out.v}, Float: tensor.F32}
		l := backends.Launch{Node: node, Out: []backends.Operand{out.o}}
		for _, h := range in {
			node.In, l.In = append(node.In, h.v), append(l.In, h.o)
		}
		kernel, fail := d.Kernel(node)
		if err = errlist.Join(err, fail); err != nil {
			return
		}
		if l.Kernel = kernel; kernel.Traits().Scratch > 0 {
			l.Scratch = alloc("scratch", tensor.U8, backends.Arena, kernel.Traits().Scratch).o
		}
		p.Launches = append(p.Launches, l)
	}
	norm, rope := &ops.NormAttr{Eps: 1e-5}, &ops.RoPEAttr{Base: 10000, Layout: "half", Scaling: "none"}
	heads := func(h held) held { return h.as(1, h.v.Shape[1]/head, head) }
	from := x
	for i := range blocks {
		add(ops.RMSNorm, norm, n, from, g)
		add(ops.Linear, nil, q, n, wq)
		add(ops.Linear, nil, k, n, wk)
		add(ops.Linear, nil, v, n, wv)
		add(ops.RoPE, rope, heads(turned), heads(q), pos)
		add(ops.RoPEPush, rope, keys, keys, heads(k), pos)
		add(ops.Push, nil, values, values, heads(v), pos)
		add(ops.Attention, &ops.AttentionAttr{}, heads(seen), heads(turned), keys, values, pos)
		add(ops.LinearResidual, nil, y, seen, wo, from)
		add(ops.RMSNorm, norm, n, y, g)
		add(ops.Linear, nil, a, n, wg)
		add(ops.Linear, nil, b, n, wu)
		add(ops.SwiGLU, nil, c, a, b)
		to := z
		switch {
		case i == blocks-1:
			to = last
		case i%2 == 1:
			to = w
		}
		add(ops.LinearResidual, nil, to, c, wd, y)
		from = to
	}
	if err != nil {
		return err
	}
	var steps [2]backends.Executable
	for i := range steps {
		d.on.overlap = i == 1
		if steps[i], err = d.Capture(p); err != nil {
			return err
		}
		defer func() { err = errlist.Join(err, steps[i].Close()) }()
	}
	if e := steps[1].(*executable); e.full != nil {
		return e.full
	} else if !e.handed {
		return errors.New("no stage is handed over")
	}
	for range runs {
		if err := stream.Write(x.o.Buffer, 0, floats(width, func() float32 {
			return float32(int32(random())%2048)/1024 - 1
		})); err != nil {
			return err
		}
		var got [2][]byte
		for i := range steps {
			if err := errlist.Join(steps[1-i].Submit(), steps[1-i].Wait()); err != nil {
				// the new way first: nothing has left its results
				return err
			}
			got[1-i] = make([]byte, last.v.Bytes())
			if err := stream.Read(last.o.Buffer, 0, got[1-i]); err != nil {
				return err
			}
		}
		if !bytes.Equal(got[0], got[1]) {
			return errors.New("stages that are handed over give other bits than with barriers")
		}
	}
	return nil
}
