package op

import (
	"bytes"
	"testing"

	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestDataIsRandom: no operand is constant. Zeros take less power and so higher
// clocks, ones as a norm's weights hide a forgotten product, and position zero
// hides a wrong rotation.
func TestDataIsRandom(t *testing.T) {
	for _, o := range ops.All() {
		c, err := New(o, request(o))
		if err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		data, err := c.data()
		if err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		for i, v := range c.Node.In {
			if v == nil || v.Shape.Elems() < 8 {
				continue
			}
			if v.Type == tensor.I32 {
				if o.Sig.In[i].Name == "pos" && c.First > 0 && bytes.Equal(data[i][:4], make([]byte, 4)) {
					t.Errorf("%s: the first position is 0, %d is expected", o.Name, c.First)
				}
				continue
			}
			x, err := optest.Decode(v.Type, v.Shape, data[i])
			if err != nil {
				t.Fatal(err)
			}
			distinct := map[float64]bool{}
			for _, f := range x.F64() {
				distinct[f] = true
			}
			if len(distinct) < min(8, v.Shape.Elems()/2) {
				t.Errorf("%s: operand %s has %d different values among %d", o.Name, o.Sig.In[i].Name, len(distinct),
					v.Shape.Elems())
			}
		}
	}
}
