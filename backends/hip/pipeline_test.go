package hip

import (
	"slices"
	"testing"
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
