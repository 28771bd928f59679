package hip

import (
	"strings"
	"testing"
)

// Matrix cores that take subnormal numbers of f16 for zero do not get weights that
// may be such.
func TestSubnormalWeights(t *testing.T) {
	for _, c := range []struct{ arch, scene, file string }{
		{"gfx90a", "linear/f16/19x", "tile"}, {"gfx90a", "linear/f8e5m2/19x", "tile"},
		{"gfx90a", "linear/f8e5m2fnuz/19x", "tile"},
		{"gfx90a", "linear/bf16/19x", "matrix"}, {"gfx90a", "linear/f8e4m3/19x", "matrix"},
		{"gfx90a", "linear/q4_0/19x", "matrix"},
		{"gfx942", "linear/f16/19x", "matrix"}, {"gfx942", "linear/f8e5m2/19x", "matrix"},
		{"gfx1151", "linear/f16/19x", "matrix"},
	} {
		dev, err := openNull(c.arch, 0, func(program) {})
		if err != nil {
			t.Fatal(err)
		}
		if p := programOf(t, dev, firstCase(t, c.scene, "")); !strings.HasPrefix(p, c.file) {
			t.Errorf("%s on %s goes to %s, %s.hip is wanted", c.scene, c.arch, p, c.file)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}
