package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// Random blocks against what gguf, the Python package, decodes them to: the same bits. See
// tools/gen_block_fixture.py.
func TestBlocksAgainstGGUF(t *testing.T) {
	b, err := os.ReadFile("testdata/blocks.bin")
	if err != nil {
		t.Fatal(err)
	}
	le, types := binary.LittleEndian, 0
	for ; len(b) > 0; types++ {
		name := string(bytes.TrimRight(b[:8], "\x00"))
		n, size, elems := int(le.Uint32(b[8:])), int(le.Uint32(b[12:])), int(le.Uint32(b[16:]))
		b = b[20:]
		blocks, want := b[:n*size], b[n*size:n*size+4*n*elems]
		b = b[n*size+4*n*elems:]
		typ, ok := tensor.ParseType(name)
		if e, s := typ.Block(); !ok || e != elems || s != size {
			t.Errorf("%s: blocks of %d in %d bytes, expected %d in %d", name, e, s, elems, size)
			continue
		}
		got := make([]float32, n*elems)
		if err := Decode(typ, got, blocks); err != nil {
			t.Fatal(name, err)
		}
		for i, v := range got {
			if w := math.Float32frombits(le.Uint32(want[4*i:])); v != w {
				t.Errorf("%s: element %d is %g, expected %g", name, i, v, w)
				break
			}
		}
	}
	if types != 9 {
		t.Errorf("%d types, expected 9", types)
	}
}

// Lattices and nvfp4 are read only, and a request to write them says so.
func TestReadOnlyFormats(t *testing.T) {
	n := 0
	for _, typ := range tensor.Types() {
		if !Supported(typ) || Encodable(typ) {
			continue
		}
		n++
		if err := Encode(typ, make([]byte, 1024), make([]float32, 256), 256); err == nil {
			t.Errorf("%s is written", typ)
		}
	}
	if n != 8 {
		t.Errorf("%d formats are only read, expected 8", n)
	}
}
