//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"greta/backends"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
)

// tryAhead runs blocks of products as a step has them, again and again with other activations, with stages
// handed over and with barriers, which must give the same bits.
func (d *Device) tryAhead() (err error) {
	const width, inner = 2048, 5632
	blocks, runs := 12, 60
	if d.p.Kind == Software { // takes a minute else
		blocks, runs = 2, 3
	}
	was := d.on
	defer func() { d.on = was }()
	d.on = taken{dots: true}
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
			err = errors.Join(err, b.Free())
		}
	}()
	value := func(name string, t tensor.Type, use backends.Use, shape ...int) (*graph.Value, backends.Operand) {
		v := &graph.Value{Name: name, Kind: graph.Computed, Type: t, Shape: shape}
		if use == backends.Weights {
			v.Kind = graph.Weight
		}
		b, fail := d.Alloc(v.Bytes(), use)
		if fail != nil {
			err = errors.Join(err, fail)
			return v, backends.Operand{}
		}
		all = append(all, b)
		return v, backends.Operand{Buffer: b, Type: t, Shape: v.Shape, Stride: t.RowBytes(v.Shape[1:].Elems())}
	}
	// weights are blocks of Q4_K with small scales.
	weights := func(name string, rows, cols int) (*graph.Value, backends.Operand) {
		v, o := value(name, tensor.Q4_K, backends.Weights, rows, cols)
		data := make([]byte, v.Bytes())
		for i := range data {
			if data[i] = byte(random()); i%144 == 1 || i%144 == 3 {
				data[i] = 0x04 // 2^-14 to 2^-13: of the block's scales, and of its minima
			}
		}
		if err == nil {
			err = stream.Write(o.Buffer, 0, data)
		}
		return v, o
	}
	x, ox := value("x", tensor.F32, backends.Step, 1, width)
	g, og := value("g", tensor.F32, backends.Weights, width)
	wg, owg := weights("gate", inner, width)
	wu, owu := weights("up", inner, width)
	wd, owd := weights("down", width, inner)
	n, on := value("n", tensor.F32, backends.Arena, 1, width)
	a, oa := value("a", tensor.F32, backends.Arena, 1, inner)
	b, ob := value("b", tensor.F32, backends.Arena, 1, inner)
	c, oc := value("c", tensor.F32, backends.Arena, 1, inner)
	y, oy := value("y", tensor.F32, backends.Arena, 1, width)
	z, oz := value("z", tensor.F32, backends.Arena, 1, width)
	last, olast := value("last", tensor.F32, backends.Step, 1, width)
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
	if err := stream.Write(og.Buffer, 0, floats(width, func() float32 { return 1 })); err != nil {
		return err
	}
	p := &backends.Program{Name: "stages"}
	add := func(op *graph.Op, attr any, out *graph.Value, to backends.Operand, in []*graph.Value, from ...backends.Operand) {
		node := &graph.Node{Name: fmt.Sprintf("%s%d", op.Name, len(p.Launches)), Op: op, Attr: attr, In: in, Out: []*graph.Value{out}, Float: tensor.F32}
		k, fail := d.Kernel(node)
		err = errors.Join(err, fail)
		p.Launches = append(p.Launches, backends.Launch{Node: node, Kernel: k, In: from, Out: []backends.Operand{to}})
	}
	v, ov := x, ox
	for i := range blocks {
		add(ops.RMSNorm, &ops.NormAttr{Eps: 1e-5}, n, on, []*graph.Value{v, g}, ov, og)
		add(ops.Linear, nil, a, oa, []*graph.Value{n, wg}, on, owg)
		add(ops.Linear, nil, b, ob, []*graph.Value{n, wu}, on, owu)
		add(ops.SwiGLU, nil, c, oc, []*graph.Value{a, b}, oa, ob)
		to, oto := y, oy
		switch {
		case i == blocks-1:
			to, oto = last, olast
		case i%2 == 1:
			to, oto = z, oz
		}
		add(ops.LinearResidual, nil, to, oto, []*graph.Value{c, wd, v}, oc, owd, ov)
		v, ov = to, oto
	}
	if err != nil {
		return err
	}
	var steps [2]backends.Executable
	for i := range steps {
		d.on.ahead = i == 1
		if steps[i], err = d.Capture(p); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, steps[i].Close()) }()
	}
	if steps[1].(*executable).ended == nil {
		return errors.New("no stage is handed over")
	}
	for range runs {
		if err := stream.Write(ox.Buffer, 0, floats(width, func() float32 { return float32(int32(random())%2048)/1024 - 1 })); err != nil {
			return err
		}
		var got [2][]byte
		for i := range steps {
			if err := errors.Join(steps[1-i].Submit(), steps[1-i].Wait()); err != nil { // the new way first: nothing has left its results
				return err
			}
			got[1-i] = make([]byte, last.Bytes())
			if err := stream.Read(olast.Buffer, 0, got[1-i]); err != nil {
				return err
			}
		}
		if !bytes.Equal(got[0], got[1]) {
			return errors.New("stages that are handed over give other bits than with barriers")
		}
	}
	return nil
}
