package cpu

import (
	"bytes"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// TestRoundingIsShared checks when products share rounded activations: as long
// as nothing has written what was rounded.
func TestRoundingIsShared(t *testing.T) {
	d, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	buf, err := d.Alloc(4096, backends.Arena)
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Alloc(4096, backends.Arena)
	if err != nil {
		t.Fatal(err)
	}
	at := func(b backends.Buffer, offset, rows int) backends.Operand {
		return backends.Operand{Buffer: b, Offset: offset, Stride: 256, Type: tensor.F32, Shape: tensor.Shape{rows, 64}}
	}
	x := at(buf, 512, 2)
	shares := func(o backends.Operand, group int) bool {
		t.Helper()
		r, err := floats(&o)
		if err != nil {
			t.Fatal(err)
		}
		return d.bindRounding(&o, r, form{group: group}).of != nil
	}
	for _, c := range []struct {
		what    string
		between []backends.Operand
		next    backends.Operand
		group   int
		want    bool
	}{
		{"the same", nil, x, 8, true},
		{"other rows", nil, at(buf, 768, 2), 8, false},
		{"fewer rows", nil, at(buf, 512, 1), 8, false},
		{"other groups", nil, x, 1, false},
		{"the same of another buffer", nil, at(other, 512, 2), 8, false},
		{"written in front", []backends.Operand{at(buf, 0, 2)}, x, 8, true},
		{"written behind", []backends.Operand{at(buf, 1024, 2)}, x, 8, true},
		{"written in another buffer", []backends.Operand{at(other, 512, 2)}, x, 8, true},
		{"overwritten", []backends.Operand{at(other, 0, 2), x}, x, 8, false},
		{"last row overwritten", []backends.Operand{at(buf, 767, 1)}, x, 8, false},
		{"first row overwritten", []backends.Operand{at(buf, 257, 1)}, x, 8, false},
	} {
		d.rounded.forget()
		if shares(x, 8) {
			t.Fatal("nothing was rounded yet")
		}
		d.rounded.written(c.between)
		if got := shares(c.next, c.group); got != c.want {
			t.Errorf("%s: shared is %v", c.what, got)
		}
	}
}

// TestPackInPieces checks that ranges of rows, as loaders make them, give the
// same panels as the whole tensor, stacked matrices included.
func TestPackInPieces(t *testing.T) {
	for _, shape := range []tensor.Shape{{37, 64}, {16, 32}, {3, 19, 32}, {5, 1, 64}, {2, 32, 96}, {4, 0, 32}} {
		for _, typ := range []tensor.Type{tensor.Q4_0, tensor.Q5_1, tensor.F16} {
			testPieces(t, typ, shape, packedSize, pack)
		}
	}
	for _, shape := range []tensor.Shape{{37, 64}, {3, 19, 256}, {2, 33, 4160}, {4, 0, 64}} {
		testPieces(t, tensor.BF16, shape, compactSize, packCompact)
	}
	for _, shape := range []tensor.Shape{{37, 256}, {3, 19, 264}, {2, 33, 4160}, {4, 0, 256}} {
		testPieces(t, tensor.F16, shape, compactSize, packCompact)
	}
}

func testPieces(t *testing.T, typ tensor.Type, shape tensor.Shape, size func(tensor.Type, tensor.Shape) int,
	pack func(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error) {
	t.Helper()
	src := make([]byte, shape.Elems()/shape.Last()*typ.RowBytes(shape.Last()))
	for i := range src {
		src[i] = byte(i*7 + i>>8)
		if i > len(src)/3 && i%2 > 0 { // few exponents where elements have two bytes
			src[i] = 0x3c | src[i]&0x83
		}
	}
	whole := bytes.Repeat([]byte{0xee}, size(typ, shape))
	pieces := bytes.Clone(whole)
	if err := pack(whole, src, typ, shape, 0, shape.Rows()); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < shape.Rows(); from += simd.PanelRows {
		if err := pack(pieces, src, typ, shape, from, min(from+simd.PanelRows, shape.Rows())); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(whole, pieces) {
		t.Errorf("%s%v: pieces differ from the whole", typ, shape)
	}
	if len(src) > 0 && (pack(whole, src[1:], typ, shape, 0, 1) == nil || pack(whole[1:], src, typ, shape, 0, 1) == nil) {
		t.Errorf("%s%v: no error for short memory", typ, shape)
	}
}

// TestCompactWhere: weights of BF16 are packed compactly wherever a level can, of F16 where every line is asked for,
// but not those of experts.
func TestCompactWhere(t *testing.T) {
	one, experts := tensor.Shape{32, 512}, tensor.Shape{4, 32, 512}
	for _, level := range simd.Levels() {
		for _, far := range level.Fars() {
			d, err := open(level.WithFar(far), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				op      *graph.Op
				typ     tensor.Type
				shape   tensor.Shape
				compact bool
			}{
				{ops.Linear, tensor.BF16, one, level.Compacts(tensor.BF16, 512)},
				{ops.LinearID, tensor.BF16, experts, level.Compacts(tensor.BF16, 512)},
				{ops.Linear, tensor.F16, one, level.Compacts(tensor.F16, 512) && far == simd.FarAll},
				{ops.LinearID, tensor.F16, experts, false},
				{ops.Linear, tensor.F32, one, false},
				{ops.Linear, tensor.Q8_0, one, false},
			} {
				w := &graph.Value{Kind: graph.Weight, Type: c.typ, Shape: c.shape}
				got, want := d.packing(&graph.Node{Op: c.op, In: []*graph.Value{nil, w}}).ID, simd.PanelLayout(c.typ)
				if c.compact {
					want = compactID(c.typ)
				}
				if got != want {
					t.Errorf("%s, far=%s, %s of %s: %s, not %s", level.Name, far, c.op.Name, c.typ, got, want)
				}
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
