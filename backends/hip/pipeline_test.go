package hip

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// TestTensorMapContext: the driver makes a tensor map only on a thread whose
// context is the device's, and goroutines move between threads.
func TestTensorMapContext(t *testing.T) {
	f := newFake(nvidia)
	dev, err := openDevice(&driver{f}, Found{Arch: "sm_90", Name: "fake"}, Options{Cache: &Cache{}})
	if err != nil {
		t.Fatal(err)
	}
	b := &binder{dev: dev}
	if words := b.tensorMap(halfMatrix{at: 0x1000, row: 128, n: 64, k: 100}, 64); b.err != nil || len(words) != 16 {
		t.Fatalf("%d words, %v", len(words), b.err)
	}
	i := slices.IndexFunc(f.calls, func(c fakeCall) bool { return c.f == fnTensorMap })
	if i < 1 || f.calls[i-1].f != fnSetDevice {
		t.Errorf("call %d makes the map, without the device's context set before it", i)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// TestRowFactor: a factor is a power of two whose inverse brings the largest
// element of a row to [2^13, 2^14), where that is a normal number.
func TestRowFactor(t *testing.T) {
	for _, top := range []float32{1, 1.5, 3e-5, 65504 * 8, 0.999} {
		by := f32(rowFactor(top))
		if v := top / by; v < 1<<13 || v >= 1<<14 {
			t.Errorf("%g is divided by %g to %g", top, by, v)
		}
	}
	if by := f32(rowFactor(0)); !(by > 0 && 1/by < 3e38) {
		t.Errorf("a row of zeros has the factor %g", by)
	}
}

// TestPairs: products take clusters of two blocks where the driver says how many run at once and
// that is enough for no more rounds than single blocks take, and single blocks where it does not
// say, for whatever reason.
func TestPairs(t *testing.T) {
	const noJIT, noJITCompiler, invalid = 223, 221, 1
	for name, c := range map[string]struct {
		refuses           fn
		code, pairs, want int
	}{
		"unknown": {pairs: 0, want: 1}, "66": {pairs: 66, want: 2}, "60": {pairs: 60, want: 1}, // there are 64 of 128 columns
		"not compiled": {fnModuleLoad, noJIT, 66, 1}, "no compiler": {fnModuleLoad, noJITCompiler, 66, 1},
		"not found": {fnModuleFunction, invalid, 66, 1}, "not set": {fnSetFunction, invalid, 66, 1},
		"refused": {fnClusters, invalid, 66, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(nvidia)
			f.answers, f.pairs = map[fn]uintptr{c.refuses: uintptr(c.code)}, c.pairs
			dev, err := openDevice(&driver{f}, Found{Arch: "sm_90", Name: "fake"}, Options{Cache: &Cache{}})
			if err != nil {
				t.Fatal(err)
			}
			dev.units = 132
			if n := slices.IndexFunc(f.calls, func(c fakeCall) bool { return c.f == fnModuleLoad }); n >= 0 {
				t.Errorf("call %d compiles a kernel before a product is asked for", n)
			}
			for _, typ := range []tensor.Type{tensor.F16, tensor.Q4_K} {
				all := dev.gemmShapesFor(typ, 512, []int{4096}, 4096, false)
				if all[0].cluster != c.want || all[0].columns != 128 {
					t.Errorf("%v: %v is chosen of %v", typ, all[0], all)
				}
				if offered := slices.ContainsFunc(all, func(s gemmShape) bool {
					return s.cluster == 2
				}); offered != (dev.clusters[0] > 0) {
					t.Errorf("%v: %v are offered with %d clusters", typ, all, dev.clusters[0])
				}
			}
			if n := len(f.live["module"]); n != 0 {
				t.Errorf("%d modules are left", n)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNarrowTiles: a product of few rows has tiles for as many multiprocessors as it can, one of many rows those whose
// rows of w serve most of x.
func TestNarrowTiles(t *testing.T) {
	dev, err := openDevice(&driver{newFake(nvidia)}, Found{Arch: "sm_90", Name: "fake"}, Options{Cache: &Cache{}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dev.units = 132
	for _, c := range []struct {
		rows, columns int
		n             []int
		paired        bool
	}{
		{8, 32, []int{4096}, false}, {64, 32, []int{4096}, false}, {128, 32, []int{4096}, false},
		{16, 64, []int{4096, 1024, 1024}, false}, {16, 192, []int{12288, 12288}, true}, {129, 128, []int{4096}, false},
	} {
		if got := dev.gemmShapesFor(tensor.BF16, c.rows, c.n, 4096, c.paired)[0]; got.columns != c.columns {
			t.Errorf("%d rows by %v: %v, tiles of %d columns are wanted", c.rows, c.n, got, c.columns)
		}
	}
}

// TestParts: blocks of a cluster divide k where tiles are few, k is long and the driver says that such clusters fit.
func TestParts(t *testing.T) {
	for _, c := range []struct{ pairs, rows, n, k, want int }{
		{64, 128, 4096, 12288, 4}, {64, 256, 4096, 12288, 2}, {64, 512, 256, 4096, 4}, // 32 tiles of 128 columns, 64, 8
		{64, 512, 4096, 12288, 0}, {64, 128, 24576, 4096, 0}, // 128, 192
		{64, 128, 4096, 448, 0}, // seven steps
		{0, 128, 4096, 12288, 0},
	} {
		f := newFake(nvidia)
		f.pairs = c.pairs
		dev, err := openDevice(&driver{f}, Found{Arch: "sm_90", Name: "fake"}, Options{Cache: &Cache{}})
		if err != nil {
			t.Fatal(err)
		}
		dev.units = 132
		if got := dev.gemmShapesFor(tensor.BF16, c.rows, []int{c.n}, c.k, false)[0]; got.parts != c.want {
			t.Errorf("%d rows by %d×%d with %d clusters: %v", c.rows, c.n, c.k, c.pairs, got)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWholeTiles: where tiles of rows are taken to be whole, no cluster has one with no rows at all.
func TestWholeTiles(t *testing.T) {
	for rows, want := range map[int]bool{128: true, 130: false, 256: true, 384: true, 1024: true, 1152: false,
		1280: true} {
		if got := pipelineShapes[0].whole(rows); got != want {
			t.Errorf("%d rows: %v", rows, got)
		}
	}
}
