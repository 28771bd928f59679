// Package llama2c reads the .bin files of llama2.c
// (https://github.com/karpathy/llama2.c, export.py) and presents them in
// GGUF's dialect: its llama rotates adjacent pairs as GGUF's does, so rows keep
// their order.
//
// All versions are little-endian and list each tensor for all layers before
// the next; seven int32 give dim, hidden_dim, n_layers, n_heads, n_kv_heads,
// vocab_size, seq_len.
//
//	v0  the seven; f32 tensors. A negative vocab_size says that the output
//	    matrix is a tensor of its own, at the end; before it lie the tables
//	    of the rotation's cosines and sines, which are not weights
//	v1  "24ka" version:u32 the seven, shared_classifier:u8, zeros to 256; f32
//	v2  as v1 with group_size:i32 after shared_classifier; norms in f32, then
//	    every matrix as int8 codes followed by an f32 scale per group
package llama2c

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/mmap"
)

const (
	magic      = 0x616b3432
	headerV0   = 7 * 4
	headerV1   = 256
	maxSize    = 1 << 28 // of any one field: far beyond real models, and products of two stay exact
	maxLayers  = 1 << 16
	ropeBase   = 10000.0
	normEps    = 1e-5 // run.c's rmsnorm
	sharedByte = 36
	groupAt    = 37
)

// config is the header.
type config struct {
	version                                          int
	dim, hidden, layers, heads, kvHeads, vocab, seqs int
	shared                                           bool
	group                                            int
}

func (c config) kvDim() int { return c.dim / c.heads * c.kvHeads }

// entry is a tensor and where it lies; scales is the offset of a quantised
// tensor's scales, 0 for f32.
type entry struct {
	shape       tensor.Shape
	off, scales int
}

// File is an open llama2.c file.
type File struct {
	path   string
	cfg    config
	b      []byte
	m      *mmap.File
	names  []string
	byName map[string]entry
	keys   []string
	meta   map[string]any
}

var _ weights.Source = (*File)(nil)

// Open maps the file at path; its size must be exactly what its header says.
func Open(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("llama2c: %w", err)
	}
	f, err := Parse(path, m.Data)
	if err != nil {
		return nil, errlist.Join(err, m.Close())
	}
	f.m = m
	return f, nil
}

// Parse reads a file from memory; path is for messages. The File keeps b.
func Parse(path string, b []byte) (*File, error) {
	c, err := parseHeader(b)
	if err != nil {
		return nil, fmt.Errorf("llama2c: %s: %w", path, err)
	}
	f := &File{path: path, cfg: c, b: b, byName: map[string]entry{}}
	if err := f.layOut(); err != nil {
		return nil, fmt.Errorf("llama2c: %s: %w", path, err)
	}
	f.describe()
	return f, nil
}

// Plausible says whether a file that starts with head (headerV0 bytes or more)
// and has size bytes may be of llama2.c. Version 0 has no magic: sizes must be
// sound and explain the file's length.
func Plausible(head []byte, size int64) bool {
	if len(head) >= 4 && binary.LittleEndian.Uint32(head) == magic {
		return true
	}
	c, err := parseHeader(head)
	if err != nil {
		return false
	}
	want, err := c.size()
	return err == nil && int64(want) == size
}

func parseHeader(b []byte) (c config, err error) {
	if len(b) < headerV0 {
		return c, fmt.Errorf("%d bytes; expected a header of %d at least", len(b), headerV0)
	}
	i32 := func(at int) int { return int(int32(binary.LittleEndian.Uint32(b[at:]))) }
	at := 0
	if binary.LittleEndian.Uint32(b) == magic {
		if len(b) < headerV1 {
			return c, fmt.Errorf("%d bytes; expected a header of %d", len(b), headerV1)
		}
		at = 8
		if c.version = i32(4); c.version != 1 && c.version != 2 {
			return c, fmt.Errorf("version %d; expected 1 or 2", c.version)
		}
		if b[sharedByte] > 1 {
			return c, fmt.Errorf("shared_classifier is %d; expected 0 or 1", b[sharedByte])
		}
		c.shared = b[sharedByte] == 1
		if c.version == 2 {
			if c.group = i32(groupAt); c.group < 1 || c.group > maxSize {
				return c, fmt.Errorf("group_size is %d; expected 1 or more", c.group)
			}
		}
	}
	for i, p := range []*int{&c.dim, &c.hidden, &c.layers, &c.heads, &c.kvHeads, &c.vocab, &c.seqs} {
		*p = i32(at + 4*i)
	}
	if c.version == 0 {
		c.shared = c.vocab > 0
		if c.vocab < 0 {
			c.vocab = -c.vocab
		}
	}
	return c, c.check()
}

func (c config) check() error {
	for _, f := range []struct {
		name   string
		v, max int
	}{{"dim", c.dim, maxSize}, {"hidden_dim", c.hidden, maxSize}, {"n_layers", c.layers, maxLayers},
		{"n_heads", c.heads, maxSize},
		{"n_kv_heads", c.kvHeads, maxSize}, {"vocab_size", c.vocab, maxSize}, {"seq_len", c.seqs, maxSize}} {
		if f.v < 1 || f.v > f.max {
			return fmt.Errorf("%s is %d; expected 1 to %d: this is not a llama2.c file, or it is damaged", f.name, f.v, f.max)
		}
	}
	switch {
	case c.dim%c.heads != 0:
		return fmt.Errorf("dim %d is not a multiple of n_heads %d", c.dim, c.heads)
	case c.dim/c.heads%2 != 0:
		return fmt.Errorf("heads of %d elements; rotation needs an even number", c.dim/c.heads)
	case c.heads%c.kvHeads != 0:
		return fmt.Errorf("n_heads %d is not a multiple of n_kv_heads %d", c.heads, c.kvHeads)
	}
	return nil
}

// piece is one tensor of the file's list, present once a layer where its name
// has a verb. An empty name is skipped over.
type piece struct {
	name  string
	shape tensor.Shape
}

func (p piece) perLayer() bool { return strings.Contains(p.name, "%d") }

// pieces lists a version's tensors in the file's order, norms apart where the
// version quantises the rest.
func (c config) pieces() (norms, matrices []piece) {
	d, kv, h := c.dim, c.kvDim(), c.hidden
	embd := piece{"token_embd.weight", tensor.Shape{c.vocab, d}}
	attnNorm := piece{"blk.%d.attn_norm.weight", tensor.Shape{d}}
	ffnNorm := piece{"blk.%d.ffn_norm.weight", tensor.Shape{d}}
	outNorm := piece{"output_norm.weight", tensor.Shape{d}}
	attn := []piece{
		{"blk.%d.attn_q.weight", tensor.Shape{d, d}}, {"blk.%d.attn_k.weight", tensor.Shape{kv, d}},
		{"blk.%d.attn_v.weight", tensor.Shape{kv, d}}, {"blk.%d.attn_output.weight", tensor.Shape{d, d}},
	}
	ffn := []piece{
		{"blk.%d.ffn_gate.weight", tensor.Shape{h, d}}, {"blk.%d.ffn_down.weight", tensor.Shape{d, h}},
		{"blk.%d.ffn_up.weight", tensor.Shape{h, d}},
	}
	if c.version == 0 {
		matrices = append(append([]piece{embd, attnNorm}, attn...), ffnNorm)
		matrices = append(append(matrices, ffn...), outNorm)
		matrices = append(matrices, piece{"", tensor.Shape{2, c.seqs, d / c.heads / 2}}) // cosines, sines
	} else {
		norms = []piece{attnNorm, ffnNorm, outNorm}
		matrices = append(append([]piece{embd}, attn...), ffn...)
	}
	if !c.shared {
		matrices = append(matrices, piece{"output.weight", tensor.Shape{c.vocab, d}})
	}
	return norms, matrices
}

// walk calls visit for each tensor with its place, and gives the file's size.
func (c config) walk(visit func(name string, e entry)) (int, error) {
	at := headerV0
	if c.version > 0 {
		at = headerV1
	}
	norms, matrices := c.pieces()
	for i, p := range append(norms, matrices...) {
		times := 1
		if p.perLayer() {
			times = c.layers
		}
		elems, err := p.shape.Bytes(tensor.I8)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", p.name, err)
		}
		size, scales := 4*elems, 0 // Bytes leaves room for 8 bytes an element
		if c.version == 2 && i >= len(norms) {
			if elems%c.group != 0 {
				return 0, fmt.Errorf("%s has %d elements, which are not whole groups of %d", p.name, elems, c.group)
			}
			size, scales = elems+elems/c.group*4, elems
		}
		if size > (math.MaxInt-at)/times {
			return 0, fmt.Errorf("the sizes of %s overflow", p.name)
		}
		if visit == nil || p.name == "" {
			at += times * size
			continue
		}
		for l := range times {
			name := p.name
			if p.perLayer() {
				name = fmt.Sprintf(p.name, l)
			}
			e := entry{shape: p.shape, off: at}
			if scales > 0 {
				e.scales = at + scales
			}
			visit(name, e)
			at += size
		}
	}
	return at, nil
}

func (c config) size() (int, error) { return c.walk(nil) }

// layOut fills the list of tensors once the file's size is known to fit.
func (f *File) layOut() error {
	want, err := f.cfg.size()
	if err != nil {
		return err
	}
	if want != len(f.b) {
		return fmt.Errorf("%d bytes, but a header of version %d with dim %d, hidden_dim %d, n_layers %d, vocab_size %d "+
			"needs %d; the file is truncated or damaged",
			len(f.b), f.cfg.version, f.cfg.dim, f.cfg.hidden, f.cfg.layers, f.cfg.vocab, want)
	}
	_, err = f.cfg.walk(func(name string, e entry) {
		f.names = append(f.names, name)
		f.byName[name] = e
	})
	return err
}

func (f *File) describe() {
	f.meta = map[string]any{}
	add := func(key string, v any) {
		f.keys = append(f.keys, key)
		f.meta[key] = v
	}
	c := f.cfg
	base := filepath.Base(f.path)
	add("general.architecture", "llama")
	add("general.name", strings.TrimSuffix(base, filepath.Ext(base)))
	add("llama.vocab_size", int64(c.vocab))
	add("llama.context_length", int64(c.seqs))
	add("llama.embedding_length", int64(c.dim))
	add("llama.block_count", int64(c.layers))
	add("llama.feed_forward_length", int64(c.hidden))
	add("llama.attention.head_count", int64(c.heads))
	add("llama.attention.head_count_kv", int64(c.kvHeads))
	add("llama.attention.layer_norm_rms_epsilon", normEps)
	add("llama.rope.dimension_count", int64(c.dim/c.heads))
	add("llama.rope.freq_base", ropeBase)
}

// Path is the path given to Open.
func (f *File) Path() string { return f.path }

// Format is "llama2c".
func (f *File) Format() string { return "llama2c" }

// Dialect is "gguf".
func (f *File) Dialect() string { return "gguf" }

// Version is the file format's version: 0, 1 or 2.
func (f *File) Version() int { return f.cfg.version }

// Meta gives what the header says under GGUF's keys.
func (f *File) Meta(key string) (any, bool) { v, ok := f.meta[key]; return v, ok }

// Keys lists the metadata keys.
func (f *File) Keys() []string { return append([]string(nil), f.keys...) }

// Names lists the tensors in the file's order.
func (f *File) Names() []string { return append([]string(nil), f.names...) }

// Lookup gives a tensor's shape; every type is f32, that of decoded codes too.
func (f *File) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	e, ok := f.byName[name]
	if !ok {
		return tensor.Invalid, nil, false
	}
	return tensor.F32, append(tensor.Shape(nil), e.shape...), true
}

// Data gives a tensor as f32: mapped in versions 0 and 1, decoded anew at each
// call in version 2.
func (f *File) Data(name string) ([]byte, error) {
	e, ok := f.byName[name]
	if !ok {
		return nil, fmt.Errorf("llama2c: %s: no tensor %q among %d", f.path, name, len(f.names))
	}
	if f.b == nil {
		return nil, fmt.Errorf("llama2c: %s: read of %q after Close", f.path, name)
	}
	n := e.shape.Elems()
	if e.scales == 0 {
		return f.b[e.off : e.off+4*n : e.off+4*n], nil
	}
	out := tensor.New(tensor.F32, n)
	dst, codes := out.F32(), f.b[e.off:e.off+n]
	for g := 0; g < n; g += f.cfg.group {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(f.b[e.scales+g/f.cfg.group*4:]))
		for i, c := range codes[g : g+f.cfg.group] {
			dst[g+i] = float32(int8(c)) * scale
		}
	}
	return out.Data, nil
}

// Close unmaps the file.
func (f *File) Close() error {
	f.b = nil
	if f.m == nil {
		return nil
	}
	return f.m.Close()
}
