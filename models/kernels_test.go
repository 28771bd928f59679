package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph/custom"
)

const goodKernel = `kernels:
  k:
    op: linear
    source: k$BLOCK.hip
    entry: product
    when: K % 32 == 0 and rows <= 64
    types: {w: [f16, f8_e4m3], x: f32}
    args: [x, w, y, rows, u64(K), f32(K**-0.5), null]
    grid: ["ceil(N/BLOCK)", rows]
    block: [BLOCK, 2]
    shared: 4*BLOCK
    constants: {BLOCK: [64, 128], DEPTH: 4}
    tiles: {w: [16, 32]}
    tolerance: 1e-2
    always: true
`

func parseKernels(t *testing.T, text string) ([]*custom.Kernel, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return LoadKernels(path)
}

func TestKernels(t *testing.T) {
	all, err := parseKernels(t, goodKernel)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	k := all[0]
	if k.Name != "k" || k.Op != "linear" || k.Ending() != ".hip" || k.Entry != "product" || len(k.Args) != 7 ||
		k.Args[1].Operand != "w" || k.Args[3].Kind != custom.I32 || k.Args[4].Kind != custom.U64 ||
		k.Args[6].Kind != custom.Null || len(k.Grid) != 2 || len(k.Block) != 2 || k.Shared == nil ||
		len(k.Variants()) != 2 || k.Tiles["w"] != [2]int{16, 32} || k.Tolerance != 1e-2 || !k.Always ||
		len(k.Types["w"]) != 2 {
		t.Errorf("%+v", k)
	}
}

// Each change of a good description is refused at its place.
func TestKernelErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"op: linear", "op: liner", "unknown operator liner; did you mean linear?"},
		{"op: linear", "op: push", "writes a cache or is a view"},
		{"    op: linear\n", "", "k: op: is missing"},
		{"op: linear", "op: [linear]", "the name of an operator is wanted here, not a list"},
		{"source: k$BLOCK.hip", "source: k.cu", `a file that ends in .hip, .cubin, .hsaco, .comp, .spv is wanted`},
		{"source: k$BLOCK.hip", "source: k.comp", "block: has no place here"},
		{"source: k$BLOCK.hip\n", "source: k.hip\n    nonsense: 1\n", "unknown key nonsense"},
		{"when: K % 32", "when: Q % 32", "unknown name Q; a kernel of linear knows "},
		{"when: K % 32", "when: K %% 32", "k.yaml:6:"},
		{"f8_e4m3", "f7", "unknown type f7"},
		{"types: {w", "types: {z", "linear has no operand z"},
		{"args: [x, w, y,", "args: [x, w,", "no result is among them"},
		{"args: [x, w, y,", "args: [x, w, y, K*x[-1],", "with brackets, braces or commas of its own wants quotes"},
		{"u64(K)", "u128(K)", "u128(…) is no function of numbers"},
		{"u64(K)", "'u64(K, N)'", "u64(expression) is wanted"},
		{"u64(K)", "'x as [K]'", "a number is wanted here, not a tensor"},
		{"grid: [", "grid: [1, 1, ", "one to three sizes are wanted"},
		{"    block: [BLOCK, 2]\n", "", "block: is missing"},
		{"BLOCK: [64, 128]", "K: [64, 128]", "K has a meaning already"},
		{"BLOCK: [64, 128]", "BLOCK: [64, x]", "a whole number below 2^31 is wanted here, not x"},
		{"BLOCK: [64, 128]", "BLOCK: []", "BLOCK: a value is wanted"},
		{"DEPTH: 4", "DEPTH: [" + strings.Repeat("1, ", 3) + "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, " +
			"19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]", "66 combinations are more than the 64"},
		{"[16, 32]", "[16]", "[rows, columns] of a tile"},
		{"tolerance: 1e-2", "tolerance: 2", "a relative error above 0 and at most 0.1"},
		{"always: true", "always: perhaps", "true or false is wanted here"},
		{"kernels:\n", "kernels:\n  9:\n    op: x\n", `"9" cannot be a name`},
		{"kernels:\n", "params:\n  x: 1\nkernels:\n", "unknown key params"},
		{goodKernel, "kernels:\n", "is wanted here, not nothing"},
		{goodKernel, "kernels: {}\n", "kernels: is empty"},
		{goodKernel, "- 1\n", "a mapping with kernels: is wanted"},
		{goodKernel, "", "a mapping with kernels: is wanted"},
	} {
		text := strings.Replace(goodKernel, c.old, c.new, 1)
		if text == goodKernel {
			t.Errorf("%q is not in the description", c.old)
		}
		if _, err := parseKernels(t, text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v; %q is wanted", c.old, c.new, err, c.want)
		}
	}
}

// A model file's kernels are checked with it, those of blocks come along.
func TestKernelsOfModels(t *testing.T) {
	block := "block: b\nin: {x: 'float[S, 8]'}\nbody: {h: silu(x), y: h + x}\nout: y\nkernels:\n  k: {op: silu, " +
		"equation: h, source: k.comp, args: [x, y], grid: rows}\n"
	read := func(string) (string, []byte, error) { return "b.yaml", []byte(block), nil }
	f, err := resolve("b.yaml", []byte(block), read)
	if err != nil || len(f.Kernels()) != 1 || f.Kernels()[0].Equation != "h" {
		t.Fatal(err)
	}
	m, err := resolve("m.yaml", []byte("model: m\nin: {x: 'float[S, 8]'}\nbody: {y: 'repeat(2, b, x)'}\nout: y"), read)
	if err != nil || len(m.Kernels()) != 1 {
		t.Fatal(err)
	}
	if _, err := resolve("b.yaml", []byte(strings.Replace(block, "equation: h", "equation: z", 1)),
		read); err == nil || !strings.Contains(err.Error(), "no equation of this file is called z") {
		t.Error(err)
	}
}

// FuzzKernels reads any text: it may be refused, never panic.
func FuzzKernels(f *testing.F) {
	f.Add(goodKernel)
	f.Add("kernels: {k: {op: add, source: .spv, args: y, grid: [rows]}}")
	f.Add("kernels: {k: {op: rmsnorm, source: a.comp, args: [null, y, 1], grid: null}}")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseKernels(t, text)
		if err != nil {
			_ = err.Error()
			return
		}
		for _, k := range all {
			if len(k.Grid) == 0 || len(k.Args) == 0 || len(k.Variants()) > custom.Most {
				t.Errorf("%+v", k)
			}
		}
	})
}
