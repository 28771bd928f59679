// Package simd holds the CPU's inner loops: products over weights packed in
// panels (panels.go), matrix times vector over rows as files store them, the
// blocked matrix product, row conversions and small vector kernels. It knows
// nothing of graphs, threads or operators.
//
// The loops are written in C with intrinsics (csrc/cpu), translated to Go
// assembler by tools/c2goasm, and chosen at run time by what the processor
// has. Each level computes the same formulas in f32; only the order of the
// additions differs. The Go level is what other processors and the build tag
// noasm get, and what the tests compare with.
package simd

//go:generate go run github.com/greta-project/greta/tools/c2goasm -root ../../.. -all
//go:generate go test ../../../internal/house -run TestSums -rewrite

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

// Kernels is the set of loops of one level.
type Kernels struct {
	// Name is the level: amx, avx512, avx2, i8mm, dotprod, neon or go.
	Name   string
	k      kernels
	p      *panelKernels
	w      *wideKernels       // nil where p has products of eight rows of activations too
	b      *bf16Kernels       // nil where the processor has no dot products of bf16
	c      *compactKernels    // nil where panels of bf16 stay plain
	h      *compactF16Kernels // nil where those of f16 do
	a      *amxKernels        // nil where it has no matrix unit, or the system does not grant it
	mr, nr int                // the micro-kernel's tile: rows of W, rows of X
	tile   int                // see TileRows
	deep   int                // columns that products in f32 take at once
	far    Far                // see Far
	fars   []Far              // nil: none asks ahead
	pairs  bool               // see PairsRows
}

// Far says how products of one row of activations ask for weights before their turn. It changes
// no result. The numbers are those of csrc/cpu/vec.h.
type Far uint8

const (
	FarOff Far = iota
	// FarPages asks in windows of four pages of memory, the pages side by side, as is the default on
	// Intel's processors and AMD's up to Zen 3: those fetch too little ahead by themselves, and within one page only.
	FarPages
	// FarLines asks for every fourth line, 11 KiB ahead, into the second-level cache, as is the
	// default on Zen 4: it fetches enough, but begins each page late.
	FarLines
	// FarAll asks for every line, 12 KiB ahead, as is the default on AMD's from Zen 5 on: those
	// fetch half of enough where arithmetic lies between loads. AVX-512's kernels have it.
	FarAll
)

func (f Far) String() string { return [...]string{"off", "pages", "lines", "all"}[f] }

// Fars are those that the level has kernels for.
func (k *Kernels) Fars() []Far {
	if k.fars == nil {
		return []Far{FarOff}
	}
	return k.fars
}

// Far says how these kernels ask ahead.
func (k *Kernels) Far() Far { return k.far }

// WithFar gives the same kernels that ask ahead in another way, one of Fars(); others count as FarOff.
func (k *Kernels) WithFar(f Far) *Kernels {
	c := *k
	c.far = f
	return &c
}

// PairsRows says whether products of bytes of several rows of activations are matrix products of
// the processor, two rows by two (I8MM): twice as many in an instruction as dot products make.
func (k *Kernels) PairsRows() bool { return k.pairs }

var goLevel = Kernels{Name: "go", k: goKernels, p: &goPanelKernels, mr: goMR, nr: goNR, tile: 128, deep: blockK}

// Levels lists what this machine can run, best first.
func Levels() []*Kernels {
	var all []*Kernels
	for _, l := range machineLevels() {
		all = append(all, &l)
	}
	return append(all, &goLevel)
}

// Select gives a level by name, or the best one for an empty name. It is an
// error to ask for what the machine lacks.
func Select(name string) (*Kernels, error) {
	var have []string
	for _, k := range Levels() {
		if name == "" || name == k.Name {
			return k, nil
		}
		have = append(have, k.Name)
	}
	return nil, fmt.Errorf("CPU level %q: this machine and build have %s", name, strings.Join(have, ", "))
}

// Default gives the level that the environment variable GRETA_CPU names, or
// the best one where it is unset.
var Default = sync.OnceValues(func() (*Kernels, error) {
	k, err := Select(os.Getenv("GRETA_CPU"))
	if err != nil {
		return nil, fmt.Errorf("GRETA_CPU: %w", err)
	}
	return k, nil
})

// AlignedFloats gives n zeros that start on a cache line.
func AlignedFloats(n int) []float32 {
	b := make([]float32, n+15)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64) / 4
	return b[off : off+n : off+n]
}

// ptr gives the address of a slice's first element.
func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }
