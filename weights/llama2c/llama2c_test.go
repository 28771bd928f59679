package llama2c

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/gguf"
)

var le = binary.LittleEndian

// The sizes of the crafted files: grouped heads, an odd vocabulary.
const (
	dim, hidden, layers, heads, kvHeads, vocab, seqs = 8, 12, 2, 4, 2, 5, 3
	group                                            = 4
)

// crafter writes a file and remembers what each tensor must decode to.
type crafter struct {
	b    []byte
	next float32
	want map[string][]float32
}

func (c *crafter) ints(v ...int32) {
	for _, x := range v {
		c.b = le.AppendUint32(c.b, uint32(x))
	}
}

func (c *crafter) floats(name string, n int) {
	for range n {
		c.next += 0.25
		c.b = le.AppendUint32(c.b, math.Float32bits(c.next))
		c.want[name] = append(c.want[name], c.next)
	}
}

func (c *crafter) codes(name string, n int) {
	for i := range n {
		c.b = append(c.b, byte(i*37))
	}
	codes := c.b[len(c.b)-n:]
	for g := range n / group {
		c.next += 0.125
		c.b = le.AppendUint32(c.b, math.Float32bits(c.next))
		for _, q := range codes[g*group : (g+1)*group] {
			c.want[name] = append(c.want[name], float32(int8(q))*c.next)
		}
	}
}

func craft(version int, shared bool) *crafter {
	c := &crafter{want: map[string][]float32{}}
	v := int32(vocab)
	if version == 0 {
		if !shared {
			v = -v
		}
		c.ints(dim, hidden, layers, heads, kvHeads, v, seqs)
	} else {
		c.b = append(c.b, "24ka"...)
		c.ints(int32(version), dim, hidden, layers, heads, kvHeads, v, seqs)
		c.b = append(c.b, map[bool]byte{true: 1}[shared])
		if version == 2 {
			c.ints(group)
		}
		c.b = append(c.b, make([]byte, 256-len(c.b))...)
	}
	each := func(put func(string, int), suffix string, n int) {
		for l := range layers {
			put("blk."+string(rune('0'+l))+"."+suffix+".weight", n)
		}
	}
	kv := dim / heads * kvHeads
	if version == 0 {
		c.floats("token_embd.weight", vocab*dim)
		each(c.floats, "attn_norm", dim)
		each(c.floats, "attn_q", dim*dim)
		each(c.floats, "attn_k", kv*dim)
		each(c.floats, "attn_v", kv*dim)
		each(c.floats, "attn_output", dim*dim)
		each(c.floats, "ffn_norm", dim)
		each(c.floats, "ffn_gate", hidden*dim)
		each(c.floats, "ffn_down", hidden*dim)
		each(c.floats, "ffn_up", hidden*dim)
		c.floats("output_norm.weight", dim)
		c.floats("tables", 2*seqs*dim/heads/2)
		delete(c.want, "tables")
		if !shared {
			c.floats("output.weight", vocab*dim)
		}
		return c
	}
	put := c.floats
	each(put, "attn_norm", dim)
	each(put, "ffn_norm", dim)
	put("output_norm.weight", dim)
	if version == 2 {
		put = c.codes
	}
	put("token_embd.weight", vocab*dim)
	each(put, "attn_q", dim*dim)
	each(put, "attn_k", kv*dim)
	each(put, "attn_v", kv*dim)
	each(put, "attn_output", dim*dim)
	each(put, "ffn_gate", hidden*dim)
	each(put, "ffn_down", hidden*dim)
	each(put, "ffn_up", hidden*dim)
	if !shared {
		put("output.weight", vocab*dim)
	}
	return c
}

func TestVersions(t *testing.T) {
	for version := range 3 {
		for _, shared := range []bool{true, false} {
			c := craft(version, shared)
			path := filepath.Join(t.TempDir(), "tiny.bin")
			if err := os.WriteFile(path, c.b, 0o600); err != nil {
				t.Fatal(err)
			}
			if !Plausible(c.b[:min(256, len(c.b))], int64(len(c.b))) {
				t.Errorf("v%d: not plausible", version)
			}
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if f.Version() != version || len(f.Names()) != len(c.want) {
				t.Errorf("v%d: version %d with %d tensors, expected %d", version, f.Version(), len(f.Names()), len(c.want))
			}
			for _, name := range f.Names() {
				typ, shape, _ := f.Lookup(name)
				data, err := f.Data(name)
				if err != nil || typ != tensor.F32 || shape.Elems() != len(c.want[name]) ||
					!bytes.Equal(data, tensor.Bytes(c.want[name])) {
					t.Errorf("v%d %s %v: data differ (%v)", version, name, shape, err)
				}
			}
			if v, _ := f.Meta("llama.attention.head_count_kv"); v != int64(kvHeads) {
				t.Errorf("v%d: head_count_kv %v", version, v)
			}
			if _, shape, _ := f.Lookup("blk.1.ffn_down.weight"); !shape.Equal(tensor.Shape{dim, hidden}) {
				t.Errorf("v%d: ffn_down is %v", version, shape)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if _, err := f.Data("token_embd.weight"); err == nil {
				t.Error("Data after Close gives bytes")
			}
		}
	}
}

func TestStories(t *testing.T) {
	dir := testfiles.Shared(t, "data", "stories260K")
	bin, err := Open(filepath.Join(dir, "stories260K.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	ref, err := gguf.Open(filepath.Join(dir, "stories260K.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	for _, name := range bin.Names() {
		_, shape, _ := bin.Lookup(name)
		typ, want, ok := ref.Lookup(name)
		if !ok || typ != tensor.F32 || !shape.Equal(want) {
			t.Errorf("%s: %v, the GGUF has %s %v", name, shape, typ, want)
			continue
		}
		a, errA := bin.Data(name)
		b, errB := ref.Data(name)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: data differ (%v, %v)", name, errA, errB)
		}
	}
	if n := len(bin.Names()); n != len(ref.Names())-1 { // the GGUF stores the tied output again
		t.Errorf("%d tensors, the GGUF has %d", n, len(ref.Names()))
	}
	for _, key := range []string{"llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
		"llama.attention.head_count",
		"llama.attention.head_count_kv", "llama.rope.dimension_count", "general.architecture"} {
		a, _ := bin.Meta(key)
		if b, _ := ref.Meta(key); a != b {
			t.Errorf("%s is %v, the GGUF says %v", key, a, b)
		}
	}
}

// spoiled are files that must be refused, by what their error says.
func spoiled() map[string][]byte {
	put := func(version, at int, v int32) []byte {
		b := craft(version, true).b
		le.PutUint32(b[at:], uint32(v))
		return b
	}
	v0, v2 := craft(0, true).b, craft(2, false).b
	byteAt := craft(1, true).b
	byteAt[36] = 7
	return map[string][]byte{
		"expected a header of 28":      v0[:27],
		"expected a header of 256":     v2[:255],
		"needs 4212":                   v0[:len(v0)-1],
		"truncated or damaged":         append(v2, 0),
		"dim is 0":                     put(0, 0, 0),
		"n_layers is -1":               put(0, 8, -1),
		"not a multiple of n_heads":    put(0, 12, 3),
		"even number":                  put(0, 12, 8),
		"not a multiple of n_kv_heads": put(0, 16, 3),
		"vocab_size is 2147483647":     put(0, 20, math.MaxInt32),
		"version 3":                    put(1, 4, 3),
		"shared_classifier is 7":       byteAt,
		"group_size is -4":             put(2, 37, -4),
		"whole groups of 3":            put(2, 37, 3),
		"header of version 0 with":     put(0, 0, 1<<27),
	}
}

func TestSpoiled(t *testing.T) {
	for want, b := range spoiled() {
		if _, err := Parse("x.bin", b); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "x.bin") {
			t.Errorf("error %v, expected one with %q", err, want)
		}
	}
}

func FuzzLlama2c(f *testing.F) {
	for version := range 3 {
		f.Add(craft(version, version == 1).b)
	}
	for _, b := range spoiled() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("fuzz", b)
		Plausible(b, int64(len(b)))
		if err != nil {
			return
		}
		for _, name := range file.Names() {
			_, shape, _ := file.Lookup(name)
			if data, err := file.Data(name); err != nil || len(data) != 4*shape.Elems() {
				t.Fatalf("%s: %d bytes for %v (%v)", name, len(data), shape, err)
			}
		}
	})
}
