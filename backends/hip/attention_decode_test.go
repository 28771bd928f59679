package hip_test

import (
	"fmt"
	"strings"
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

// TestSplit compares attention whose positions are divided evenly among blocks with float64: one token behind long
// contexts, and rows of sequences of unequal lengths in pages, with heads that share keys and do not.
func TestSplit(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	check := func(name, eq, args string) {
		t.Run(name, func(t *testing.T) {
			if err := optest.Check(dev, optest.Case{Name: name, Eq: eq, Args: args, Rel: 5e-6, Abs: 5e-5}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range []struct {
		heads, groups, dh int
		cache, rest       string
	}{
		{8, 2, 128, "f16", ""}, {4, 4, 128, "f16", ", softcap=5"}, {7, 1, 64, "f16", ", window=1000"},
		{24, 2, 64, "bf16", ""}, {40, 8, 128, "f16", ", window=77"}, {8, 2, 128, "bf16", ""},
		{9, 3, 128, "bf16", ", softcap=5"}, {4, 2, 80, "f16", ""}, {4, 1, 80, "bf16", ", window=1000"},
		{6, 2, 96, "f16", ", window=77"}, {3, 3, 96, "bf16", ""}, {8, 1, 256, "f16", ", softcap=30"},
		{8, 4, 256, "bf16", ""}, {5, 1, 192, "bf16", ", window=100"}, {4, 2, 160, "f16", ""}, {2, 1, 112, "f16", ""},
	} {
		for _, pos := range []int{0, 1, 15, 63, 64, 1000, 4999} {
			check(fmt.Sprint(c, pos), "y: attention(q, k, v, pos"+c.rest+")",
				fmt.Sprintf("q float[1, %d, %d]; k %s[5000, %d, %d]; v %[3]s[5000, %[4]d, %[5]d]; pos i32[1] =%[6]d",
					c.heads, c.dh, c.cache, c.groups, c.dh, pos))
		}
		for _, rows := range [][2]string{
			{"5,2990,0,63,64,1500", "3,0,1,-1,2,4"}, {"10,11,12,13,14,900,901,2000", "0,0,0,0,0,1,1,4"}, {"7,7", "-1,-1"},
		} {
			n := strings.Count(rows[0], ",") + 1
			check(fmt.Sprint(c, rows), "y: paged_attention(q, k, v, pos, seq, table"+c.rest+")",
				fmt.Sprintf("q float[%[1]d, %[2]d, %[3]d]; k %[4]s[300, 32, %[5]d, %[3]d]; v %[4]s[300, 32, %[5]d, %[3]d]; "+
					"pos i32[%[1]d] =%[6]s; seq i32[%[1]d] =%[7]s; table i32[5, 100] <300", n, c.heads, c.dh, c.cache, c.groups,
					rows[0], rows[1]))
		}
	}
	pos, seq := make([]string, 64), make([]string, 64)
	for i := range pos {
		pos[i], seq[i] = fmt.Sprint((i*i*37+5)%2300), fmt.Sprint(i)
	}
	check("64 sequences", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[64, 8, 128]; k f16[500, 32, 2, 128]; v f16[500, 32, 2, 128]; pos i32[64] ="+strings.Join(pos, ",")+
			"; seq i32[64] ="+strings.Join(seq, ",")+"; table i32[64, 72] <500")
}
