package bridge

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/tensor"
)

// gpu is the processor in the part of a GPU: what another process has allocated on it is opened by a number.
type gpu struct {
	*cpu.Device
	mu     sync.Mutex
	memory map[uint64]backends.Buffer
	open   int
	// imports counts what was opened by a descriptor.
	imports int
}

func (g *gpu) SharedKind() string { return "cuda" }
func (g *gpu) Location() string   { return "0000:01:00.0" }
func (g *gpu) Settle() error      { return nil }

// opened is a buffer of the other process's: closing it frees nothing.
type opened struct {
	backends.Buffer
	g *gpu
}

func (o opened) Free() error {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	o.g.open--
	return nil
}

func (g *gpu) OpenShared(handle []byte, bytes int) (backends.Buffer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.memory[binary.LittleEndian.Uint64(handle)]
	if b == nil || bytes > b.Size() {
		return nil, errors.New("no such memory")
	}
	g.open++
	return opened{b, g}, nil
}

// readFile reads an open file's first bytes.
var readFile = func(descriptor int, data []byte) error { return errors.ErrUnsupported }

// ImportShared opens the memory whose number a file has in it.
func (g *gpu) ImportShared(descriptor, bytes int) (backends.Buffer, error) {
	number := make([]byte, 8)
	if err := readFile(descriptor, number); err != nil {
		return nil, err
	}
	g.imports++
	return g.OpenShared(number, bytes)
}

func (g *gpu) Move(dst backends.Buffer, dstOffset int, src backends.Buffer, srcOffset, n int) error {
	s, err := g.Stream()
	if err != nil {
		return err
	}
	data := make([]byte, n)
	plain := func(b backends.Buffer) backends.Buffer {
		if o, ok := b.(opened); ok {
			return o.Buffer
		}
		return b
	}
	return errors.Join(s.Read(plain(src), srcOffset, data), s.Write(plain(dst), dstOffset, data), s.Close())
}

// put allocates memory as the other process would, and gives its handle.
func (g *gpu) put(t *testing.T, data []float32) *backends.Shared {
	t.Helper()
	b, err := g.Alloc(4*len(data), backends.Arena)
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Stream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(b, 0, tensor.Bytes(data)); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := uint64(len(g.memory) + 1)
	g.memory[n] = b
	return &backends.Shared{Kind: "cuda", Location: "0000:01:00.0", Handle: binary.LittleEndian.AppendUint64(nil, n),
		Bytes: 4 * len(data)}
}

func (g *gpu) get(t *testing.T, m *backends.Shared) []float32 {
	t.Helper()
	s, err := g.Stream()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, m.Bytes)
	if err := s.Read(g.memory[binary.LittleEndian.Uint64(m.Handle)], 0, data); err != nil {
		t.Fatal(err)
	}
	return tensor.View[float32](data)
}

// A block computes rows that lie on the device where they lie, as it computes those of the host, in every number of
// them and behind those before; nothing stays open.
func TestDeviceMemory(t *testing.T) {
	for _, path := range []string{"gpu:mlp_block", "gpu:llama2_block"} {
		c := start(t, Options{})
		m := c.model(path)
		g := lastGPU
		var far, near struct{ Session uint64 }
		c.must("open-session", map[string]any{"model": m}, &far)
		c.must("open-session", map[string]any{"model": m}, &near)
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range []int{1, 5, 1, 17, 5} {
			x := make([]float32, 3+n*64)
			for i := range x {
				x[i] = r.Float32() - 0.5
			}
			in, out := g.put(t, x), g.put(t, make([]float32, n*64+2))
			c.must("run-session", map[string]any{"session": far.Session,
				"x":   Tensor{Type: "f32", Shape: []int{n, 64}, Offset: 12, Device: in},
				"out": Tensor{Type: "f32", Shape: []int{n, 64}, Offset: 4, Device: out}}, nil)
			reply := c.must("run-session", map[string]any{"session": near.Session,
				"x": Tensor{Type: "f32", Shape: []int{n, 64}}}, nil, tensor.Bytes(x[3:])...)
			got := g.get(t, out)
			if !slices.Equal(got[1:1+n*64], tensor.View[float32](reply.payload)) || got[0] != 0 || got[n*64+1] != 0 {
				t.Errorf("%s, %d rows: other values than those of the host's memory, or beside out", path, n)
			}
			if g.open != 0 {
				t.Errorf("%d buffers are still open", g.open)
			}
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What does not lie on the model's card, or is no such tensor, is refused with words, and the session goes on.
func TestDeviceRefusals(t *testing.T) {
	c := start(t, Options{})
	m := c.model("gpu:mlp_block")
	g := lastGPU
	var s struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": m}, &s)
	memory := g.put(t, make([]float32, 4*64))
	on := func(change func(*Tensor, *backends.Shared)) *Tensor {
		shared := *memory
		x := &Tensor{Type: "f32", Shape: []int{4, 64}, Device: &shared}
		if change != nil {
			change(x, &shared)
		}
		return x
	}
	good := on(nil)
	refuse := func(code, words string, x, out any) {
		t.Helper()
		args := map[string]any{"session": s.Session, "x": x, "out": out}
		maps.DeleteFunc(args, func(_ string, v any) bool { return v == nil })
		c.refused(code, words, "run-session", args)
	}
	refuse(codeUsage, "out says where", good, nil)
	refuse(codeUsage, "out lies in the host's memory", good, Tensor{Type: "f32", Shape: []int{4, 64}})
	refuse(codeUsage, "this one lies in the host's", Tensor{Type: "f32", Shape: []int{4, 64}}, good)
	refuse(codeUsage, `x is a tensor of type "f16"`, on(func(x *Tensor, _ *backends.Shared) { x.Type = "f16" }), good)
	refuse(codeUsage, `out is a tensor of type "bf16"`, good, on(func(x *Tensor, _ *backends.Shared) { x.Type = "bf16" }))
	refuse(codeUsage, "a multiple of 4", on(func(x *Tensor, _ *backends.Shared) { x.Offset = 2 }), good)
	refuse(codeUsage, "from byte 4 on, its memory has 1024", on(func(x *Tensor, _ *backends.Shared) {
		x.Offset = 4
	}), good)
	refuse(codeUsage, "no such size", on(func(x *Tensor, _ *backends.Shared) { x.Shape = []int{-1, 64} }), good)
	refuse(codeUsage, "out has the shape [2 64]", good, on(func(x *Tensor, _ *backends.Shared) { x.Shape[0] = 2 }))
	refuse(codeUsage, "x has the shape [2 32]", on(func(x *Tensor, _ *backends.Shared) { x.Shape = []int{2, 32} }), good)
	refuse(codeUsage, "beside that of a GPU", on(func(x *Tensor, _ *backends.Shared) { x.Path = "/proc/1/fd/1" }), good)
	refuse(codeUnsupported, `of the kind "hip", the model's device has cuda`,
		on(func(_ *Tensor, m *backends.Shared) { m.Kind = "hip" }), good)
	refuse(codeUnsupported, "on the card at 0000:02:00.0, the model on that at 0000:01:00.0",
		on(func(_ *Tensor, m *backends.Shared) { m.Location = "0000:02:00.0" }), good)
	refuse(codeUnsupported, "no such memory", good,
		on(func(_ *Tensor, m *backends.Shared) { m.Handle = make([]byte, 8) }))
	if g.open != 0 {
		t.Errorf("%d buffers are still open", g.open)
	}
	c.must("run-session", map[string]any{"session": s.Session, "x": good, "out": good}, nil) // in place

	// On the processor itself, and with what is no block.
	plain := c.model("block")
	var p struct{ Session uint64 }
	c.must("open-session", map[string]any{"model": plain}, &p)
	c.refused(codeUnsupported, "opens no memory of a GPU: load it with backend hip", "run-session",
		map[string]any{"session": p.Session, "x": good, "out": good})
	var raw map[string]json.RawMessage
	c.must("run-session", map[string]any{"session": p.Session, "x": Tensor{Type: "f32", Shape: []int{1, 64}}}, &raw,
		make([]byte, 256)...)
	if fmt.Sprint(raw["pos"]) == "" {
		t.Error("no position")
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}
