package cpu_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/synthetic"
)

// randomBlock writes a block of products and other operators of what is there, in any order. Its
// result adds up what nothing else reads, so that other values make room for later ones.
func randomBlock(rng *rand.Rand) string {
	var weights, body strings.Builder
	names, unread := []string{"x"}, map[string]bool{}
	read := func(i int) string {
		delete(unread, names[i])
		return names[i]
	}
	for i := range 6 + rng.IntN(12) {
		pick := func() string { return read(max(rng.IntN(len(names)), rng.IntN(len(names)))) }
		name := fmt.Sprintf("v%d", i)
		switch rng.IntN(9) {
		case 0:
			fmt.Fprintf(&body, "  %s: %s + %s\n", name, pick(), pick())
		case 1:
			fmt.Fprintf(&body, "  %s: sigmoid(%s)\n", name, pick())
		case 2:
			fmt.Fprintf(&body, "  %s: %s + linear(%s, w%d)\n", name, pick(), read(rng.IntN(len(names))), i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D, D], gguf: w%d, hf: w%d}\n", i, i, i)
		case 3:
			fmt.Fprintf(&body, "  %s: rmsnorm(%s, w%d, eps=1e-5)\n", name, pick(), i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D], gguf: w%d, hf: w%d}\n", i, i, i)
		case 4:
			fmt.Fprintf(&body, "  %s: silu(%s) * %s\n", name, pick(), pick())
		default:
			fmt.Fprintf(&body, "  %s: linear(%s, w%d)\n", name, read(rng.IntN(len(names))), i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D, D], gguf: w%d, hf: w%d}\n", i, i, i)
		}
		names, unread[name] = append(names, name), true
	}
	for i := len(names) - 1; i >= 0; i-- {
		if !unread[names[i]] {
			names = slices.Delete(names, i, i+1)
		}
	}
	fmt.Fprintf(&weights, "  w: {shape: [D, D], gguf: w, hf: w}\n")
	fmt.Fprintf(&body, "  y: linear(x, w) + %s\n", strings.Join(names, " + "))
	return fmt.Sprintf("block: random\nin:\n  x: float[S, D]\nparams: {D: %d}\nweights:\n%sbody:\n%sout: y\n",
		32*(1+rng.IntN(6)), weights.String(), body.String())
}

// mixed holds the weights of a block, each of a type of its own.
type mixed struct {
	types  map[string]tensor.Type
	shapes map[string]tensor.Shape
}

// newMixed gives the weights that a random block names types of their own.
func newMixed(rng *rand.Rand, text string, types []tensor.Type) *mixed {
	m := &mixed{map[string]tensor.Type{}, map[string]tensor.Shape{}}
	var d int
	_, after, _ := strings.Cut(text, "{D: ")
	fmt.Sscan(strings.Replace(after, "}", " ", 1), &d)
	for _, w := range regexp.MustCompile(`(w\d*): {shape: \[(D, D|D)\]`).FindAllStringSubmatch(text, -1) {
		if w[2] == "D" {
			m.types[w[1]], m.shapes[w[1]] = tensor.F32, tensor.Shape{d}
		} else {
			m.types[w[1]], m.shapes[w[1]] = types[rng.IntN(len(types))], tensor.Shape{d, d}
		}
	}
	return m
}

func (m *mixed) Path() string                { return "mixed" }
func (m *mixed) Format() string              { return "gguf" }
func (m *mixed) Dialect() string             { return "gguf" }
func (m *mixed) Meta(key string) (any, bool) { return nil, false }
func (m *mixed) Keys() []string              { return nil }
func (m *mixed) Names() []string             { return slices.Sorted(maps.Keys(m.types)) }
func (m *mixed) Close() error                { return nil }
func (m *mixed) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	t, ok := m.types[name]
	return t, m.shapes[name], ok
}
func (m *mixed) Data(name string) ([]byte, error) {
	size, err := m.shapes[name].Bytes(m.types[name])
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	return b, synthetic.Fill(b, m.types[name], m.shapes[name], name, 1)
}

// TestSequence: steps whose mat-vecs are joined, and run in another order, give what launches
// one by one give, bit for bit.
func TestSequence(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	blocks := 40
	if testfiles.Exhaustive() {
		blocks = 150
	}
	devices := make([]*cpu.Device, 4)
	for i := range devices {
		var err error
		if devices[i], err = cpu.New(i + 1); err != nil {
			t.Fatal(err)
		}
		defer devices[i].Close()
	}
	types := []tensor.Type{tensor.Q8_0, tensor.Q4_0, tensor.F16, tensor.BF16, tensor.F32}
	for i := range blocks {
		text := randomBlock(rng)
		path := filepath.Join(t.TempDir(), "random.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		dev, some := devices[rng.IntN(len(devices))], types
		if i%2 == 0 { // one type for all of them
			at := rng.IntN(len(types))
			some = types[at : at+1]
		}
		w := newMixed(rng, text, some)
		replayed, eager := runMixed(t, path, dev, w, false), runMixed(t, path, dev, w, true)
		if !slices.Equal(replayed, eager) {
			t.Fatalf("block %d, %v, %d threads: replay differs from launches one by one\n%s", i, w.types, dev.Info().Threads,
				text)
		}
	}
}

// TestSequenceOfKinds: a mat-vec that rounds its activations does not come before others by joining one that
// does not, between a norm that has rounded its result, and stored nothing else, and what reads that.
func TestSequenceOfKinds(t *testing.T) {
	const text = "block: kinds\nin:\n  x: float[S, D]\nparams: {D: 64}\nweights:\n  w0: {shape: [D], gguf: w0, hf: " +
		"w0}\n  w1: {shape: [D, D], gguf: w1, hf: w1}\n" +
		"  w2: {shape: [D, D], gguf: w2, hf: w2}\n  w3: {shape: [D, D], gguf: w3, hf: w3}\n  w4: {shape: [D, D], gguf: " +
		"w4, hf: w4}\nbody:\n  a: sigmoid(x)\n  n: rmsnorm(x, w0, eps=1e-5)\n" +
		"  p: linear(a, w1)\n  q: linear(n, w2)\n  s: linear(x, w4)\n  r: linear(a, w3)\n  y: p * q * r * s\nout: y\n"
	path := filepath.Join(t.TempDir(), "kinds.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	w := newMixed(rand.New(rand.NewPCG(1, 2)), text, []tensor.Type{tensor.Q8_0})
	for _, plain := range []tensor.Type{tensor.F16, tensor.BF16, tensor.F32} {
		w.types["w1"], w.types["w4"] = plain, plain
		if !slices.Equal(runMixed(t, path, dev, w, false), runMixed(t, path, dev, w, true)) {
			t.Errorf("%s: replay differs from launches one by one", plain)
		}
	}
}

// runMixed gives what two steps of one token and some of several give.
func runMixed(t *testing.T, path string, dev *cpu.Device, w *mixed, eager bool) []float32 {
	t.Helper()
	return cpu.RunBlock(t, path, engine.Options{Device: dev, Source: w, Eager: eager}, 1, 1, 3, 13, 40)
}
