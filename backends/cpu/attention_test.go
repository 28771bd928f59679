package cpu_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestAttentionShapes adds to the table of operators what this device divides:
// caches of several splits and blocks, tiles with a rest, groups of every size.
func TestAttentionShapes(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, cache := range []string{"f32", "f16", "bf16"} {
		for _, share := range []int{1, 2, 3, 8} {
			for _, dims := range [][2]int{{64, 64}, {40, 17}, {130, 258}} {
				for i, c := range []struct{ s, context, first int }{
					{1, 33, 32}, {1, 700, 699}, {1, 1300, 1000}, {3, 400, 390}, {4, 9, 0}, {37, 300, 0}, {150, 300, 140},
				} {
					for _, attrs := range []string{"", ", window=50", ", window=140, softcap=20"} {
						if cache != "f16" && share%2 > 0 || attrs != "" && (cache != "f16" || dims[0] != 64) {
							continue
						}
						if !testfiles.Exhaustive() && (i+share+dims[0])%7 != 0 {
							continue
						}
						o := optest.Case{
							Name: fmt.Sprintf("%s, %d heads a group, %v, %v%s", cache, share, dims, c, attrs),
							Eq:   "y: attention(q, k, v, pos" + attrs + ")",
							Args: fmt.Sprintf("q float[%d, %d, %d] +3; k %s[%d, 2, %d]; v %s[%d, 2, %d]; pos i32[%d] =%d..",
								c.s, 2*share, dims[0], cache, c.context, dims[0], cache, c.context, dims[1], c.s, c.first),
							Rel: 3e-6, Abs: 1e-5,
						}
						if err := optest.Check(dev, o); err != nil {
							t.Errorf("%s: %v", o.Name, err)
						}
					}
				}
			}
		}
	}
}

// Results do not depend on who computed what, and a step allocates nothing.
func TestAttentionRepeats(t *testing.T) {
	for _, c := range []struct {
		s, heads, groups, dh, context int
		attrs                         string
	}{
		{1, 8, 2, 64, 3000, ""}, {1, 4, 4, 128, 900, ""}, {3, 6, 2, 32, 700, ", softcap=30"},
		{90, 8, 2, 64, 400, ", window=100"},
	} {
		var want []byte
		for _, threads := range []int{1, 2, 4} {
			e, y, _, _ := attentionProgram(t, threads, c.s, c.heads, c.groups, c.dh, c.context, c.attrs)
			for i := range 20 {
				for j := range y {
					y[j] = 0xff
				}
				step(t, e)
				if want == nil {
					want = bytes.Clone(y)
				}
				if !bytes.Equal(y, want) {
					t.Fatalf("%+v: run %d on %d threads differs from the first on one", c, i, threads)
				}
			}
			if n := testing.AllocsPerRun(20, func() { step(t, e) }); n != 0 {
				t.Errorf("%+v: %v allocations a step", c, n)
			}
		}
	}
}

// What is no number at a position spoils the tokens that see it, and no others.
func TestAttentionNumbers(t *testing.T) {
	const s, heads, groups, dh, context, window = 70, 6, 2, 40, 300, 150
	for _, attrs := range []string{"", ", window=150"} {
		e, y, keys, values := attentionProgram(t, 2, s, heads, groups, dh, context, attrs)
		step(t, e)
		want := bytes.Clone(y)
		for _, c := range []struct {
			what  string
			cache []byte
			bits  uint16
		}{{"a NaN among the values", values, 0x7e00}, {"an infinity among the values", values, 0xfc00},
			{"a NaN among the keys", keys, 0x7e00}} {
			for _, p := range []int{100, 231, 255, 256, 299} { // of head 1
				at := 2 * ((p*groups+1)*dh + 7)
				old := binary.LittleEndian.Uint16(c.cache[at:])
				binary.LittleEndian.PutUint16(c.cache[at:], c.bits)
				step(t, e)
				binary.LittleEndian.PutUint16(c.cache[at:], old)
				got, ref := tensor.View[float32](y), tensor.View[float32](want)
				for token := range s {
					pos := context - s + token
					sees := p <= pos && (attrs == "" || p > pos-window)
					for h := range heads {
						for i := range dh {
							at := (token*heads+h)*dh + i
							spoilt := got[at]-got[at] != 0
							hit := sees && h >= heads/groups && (i == 7 || &c.cache[0] == &keys[0])
							if spoilt != hit || !spoilt && !near(got[at], ref[at]) {
								t.Fatalf("%s at position %d%s: token at %d, head %d, element %d is %v, without it %v", c.what, p, attrs, pos, h,
									i, got[at], ref[at])
							}
						}
					}
				}
			}
		}
	}
}

func near(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-5 }
