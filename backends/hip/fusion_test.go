package hip

import (
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops/optest"
)

// onHopper is a device without a card that claims to be of Hopper's architecture.
func onHopper(t *testing.T) *Device {
	t.Helper()
	dev, err := openFake(newFake(nvidia), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dev.info.Level = "sm_90"
	dev.openPaths(backends.Auto)
	return dev
}

// TestComputedWeights: a matrix that the step computes is not read before the launch that computes it has ended.
func TestComputedWeights(t *testing.T) {
	for _, name := range []string{"linear/f32/1x37x19", "linear/f16/1x37x19", "linear/f16/67x37x19"} {
		for _, use := range []backends.Use{backends.Weights, backends.Arena} {
			dev := onHopper(t)
			l, free, err := scene(dev, name)
			if err != nil {
				t.Fatal(err)
			}
			w := &l.In[1]
			if w.Buffer, err = dev.Alloc(w.Type.RowBytes(w.Shape.Elems())+512, use); err != nil {
				t.Fatal(err)
			}
			w.Offset = 0
			b, err := dev.bind(l, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range b.parts {
				if d.waits != (use == backends.Arena) {
					t.Errorf("%s, w in %v: %s waits: %v", name, use, d.code.program, d.waits)
				}
			}
			b.free()
			free()
			dev.Close()
		}
	}
}

// programOf is what a case is multiplied by.
func programOf(t *testing.T, dev *Device, name string) string {
	t.Helper()
	l, free, err := scene(dev, name)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	if p := l.Kernel.Packing(1); p != nil {
		w := &l.In[1]
		packed, err := dev.Alloc(p.Size(w.Type, w.Shape), backends.Weights)
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Free()
		w.Buffer, w.Offset, w.Packing = packed, 0, p.ID
	}
	b, err := dev.bind(l, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	return string(b.parts[len(b.parts)-1].code.program)
}

// firstCase names a case of the table whose name begins and ends so.
func firstCase(t *testing.T, begin, end string) string {
	t.Helper()
	for _, c := range optest.Cases() {
		if strings.HasPrefix(c.Name, begin) && strings.HasSuffix(c.Name, end) {
			return c.Name
		}
	}
	t.Fatalf("no case %s…%s", begin, end)
	return ""
}

// Paths of half precision are off as a device opens, decide on the kernels, and
// say so.
func TestHalfPaths(t *testing.T) {
	dev := onHopper(t)
	defer dev.Close()
	many := "linear/f16/19x37x19"
	if p := programOf(t, dev, many); !strings.HasPrefix(p, "matrix.hip") || dev.Rounding().F16 || dev.Rounding().Quant {
		t.Errorf("as the device opens: %s, %+v", p, dev.Info())
	}
	for _, path := range []string{pathHalf, pathInt8} {
		if err := dev.SetPath(path, true); err != nil {
			t.Fatal(err)
		}
	}
	if p := programOf(t, dev, many); !strings.HasPrefix(p, "gemm.hip") || !dev.Rounding().F16 || !dev.Rounding().Quant {
		t.Errorf("with the paths on: %s, %+v", p, dev.Info())
	}
	one := firstCase(t, "linear/q4_0/1x", "")
	if p := programOf(t, dev, one); !strings.Contains(p, "vec.hip") || !strings.Contains(p, "INT8=1") {
		t.Errorf("one row: %s", p)
	}
	if err := dev.SetPath(pathInt8, false); err != nil {
		t.Fatal(err)
	}
	if p := programOf(t, dev, one); !strings.Contains(p, "INT8=0") || dev.Rounding().Quant {
		t.Errorf("one row, path off: %s", p)
	}
}

// A variant that is chosen is used; one that does not exist is an error.
func TestVariants(t *testing.T) {
	dev := onHopper(t)
	defer dev.Close()
	if err := dev.SetPath(pathHalf, true); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range gemmShapes {
		dev.Choose(func(n *graph.Node) string {
			if !slices.Contains(dev.Variants(n), s.String()) {
				t.Errorf("%v is no variant of %v", s, n)
			}
			return s.String()
		})
		seen[programOf(t, dev, "linear/f16/19x37x19")] = true
	}
	if len(seen) != len(gemmShapes) {
		t.Errorf("%d variants give %d programs", len(gemmShapes), len(seen))
	}
	dev.Choose(func(*graph.Node) string { return "tile=7x7" })
	if _, _, err := scene(dev, "linear/f16/19x37x19"); err == nil || !strings.Contains(err.Error(), "tile=7x7") {
		t.Errorf("a variant that does not exist: %v", err)
	}
}
