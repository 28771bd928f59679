package cpu_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/ops/optest"
)

// TestExperts adds to the table of operators what this device divides: many
// tokens, experts that many, few and none of them chose, one row for all of a
// token's experts or one each.
func TestExperts(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, typ := range []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q6_K"} {
		for _, c := range []struct{ tokens, users, experts, inputs int }{
			{40, 2, 3, 1}, {40, 2, 3, 2}, {9, 2, 8, 1}, {700, 1, 2, 1}, {61, 3, 5, 3},
		} {
			o := optest.Case{
				Name: fmt.Sprintf("%s, %+v", typ, c),
				Eq:   "y: linear_id(x, w, e, b)",
				Args: fmt.Sprintf("x float[%d, %d, 256]; w %s[%d, 83, 256]; e i32[%d, %d] <%d; b float[%d, 83]",
					c.tokens, c.inputs, typ, c.experts, c.tokens, c.users, c.experts, c.experts),
				Rel: 3e-6, Abs: 1e-4,
			}
			if err := optest.Check(dev, o); err != nil {
				t.Errorf("%s: %v", o.Name, err)
			}
		}
	}
}
