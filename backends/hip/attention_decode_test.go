package hip_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/ops/optest"
)

// TestAttend compares the attention of one token with float64: heads of all widths that
// clusters take, shared and not, behind few and many positions; and, in a model with heads
// of 128 elements, with its rotations and stores inside.
func TestAttend(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	for _, c := range []struct {
		heads, groups, dh int
		cache             string
		rest              string
	}{
		{8, 8, 128, "f16", ""}, {8, 4, 128, "f16", ", softcap=5"}, {7, 1, 128, "bf16", ", window=100"},
		{4, 2, 256, "f16", ""}, {4, 4, 128, "f32", ", window=7"},
		{3, 1, 64, "f16", ""}, {32, 32, 128, "f16", ""},
	} {
		for _, pos := range []int{0, 1, 8, 63, 64, 127, 128, 519, 1023, 2047, 2600, 4095} {
			a := optest.Case{
				Name: fmt.Sprint(c, pos), Eq: "y: attention(q, k, v, pos" + c.rest + ")",
				Args: fmt.Sprintf("q float[1, %d, %d]; k %s[4096, %d, %d]; v %s[4096, %d, %d]; pos i32[1] =%d", c.heads, c.dh,
					c.cache, c.groups, c.dh, c.cache, c.groups, c.dh, pos),
				Rel: 5e-6, Abs: 5e-5,
			}
			t.Run(a.Name, func(t *testing.T) {
				if err := optest.Check(dev, a); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wide := map[string]string{"L": "2", "D": "512", "H": "4", "G": "4", "F": "768", "V": "500"}
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprint("model/half=", half), func(t *testing.T) { checkModel(t, "llama2_7b", wide, "f16", half) })
	}
}

// TestFlash compares the attention of many tokens over f16 caches with float64: heads of all
// widths that tensor cores take, shared and not, tokens that fill tiles and don't, from the
// beginning and far behind it.
func TestFlash(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	for _, c := range []struct {
		heads, groups, dh, dv int
		rest                  string
	}{
		{4, 4, 128, 128, ""}, {7, 1, 64, 64, ", softcap=5"}, {32, 32, 128, 128, ""}, {6, 2, 128, 64, ", window=100"},
		{2, 1, 64, 128, ", window=64, softcap=3"}, {4, 2, 96, 32, ""}, {2, 2, 32, 128, ", window=7"},
	} {
		for _, at := range [][2]int{{9, 0}, {64, 0}, {65, 3}, {128, 64}, {129, 0}, {300, 0}, {512, 0}, {600, 0}, {200, 700},
			{31, 993}} {
			a := optest.Case{
				Name: fmt.Sprint(c, at), Eq: "y: attention(q, k, v, pos" + c.rest + ")",
				Args: fmt.Sprintf("q float[%d, %d, %d]; k f16[1024, %d, %d]; v f16[1024, %d, %d]; pos i32[%d] =%d..", at[0],
					c.heads, c.dh, c.groups, c.dh, c.groups, c.dv, at[0], at[1]),
				Rel: 5e-6, Abs: 5e-5,
			}
			t.Run(a.Name, func(t *testing.T) {
				if err := optest.Check(dev, a); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
