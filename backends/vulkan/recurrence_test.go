//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/ops/optest"
)

// TestHeldStates: rows and columns of heads' states that a subgroup holds in registers, whole and with odd ends, and
// those that it cannot, which stay in memory.
func TestHeldStates(t *testing.T) {
	whole(t)
	dev := open(t, vulkan.Options{})
	most := min(16*dev.LeastSubgroup(), 16*64)
	for _, n := range []int{1, 3, 33, most, most + 9} {
		heads, kernel := func(rows int) string { return fmt.Sprintf("float[%d, 2, %d]", rows, n) }, "main"
		if n > most {
			kernel = "_long"
		}
		steps := func(rows int, pos, slot string) {
			cases := []optest.Case{
				{Name: "ssm/decays", Eq: "n, y: ssm(state, x, dt, a, b, c, pos, slot)",
					Args: fmt.Sprintf("state f32[3, %d] @9,0,4; x float[%d, 2, 3]; dt float[%d, 2]; a f32[2, %d] --1; b %s; c %s",
						2*3*n+1, rows, rows, n, heads(rows), heads(rows))},
				{Name: "delta", Eq: "n, y: delta(state, q, k, v, g, beta, pos, slot)",
					Args: fmt.Sprintf("state f32[3, %d] @9,0,4; q %s; k %s *0.02; v float[%d, 2, 3]; g float[%d, 2, 1] --1; "+
						"beta float[%d, 2]", 2*3*n+1, heads(rows), heads(rows), rows, rows, rows)},
				{Name: "dplr/rank", Eq: "n, y: dplr(state, q, k, v, g, pos, a, b, slot)",
					Args: fmt.Sprintf("state f32[3, %d] @9,0,4; q %s; k %s; v float[%d, 2, 3]; g %s --1; a %s *0.02; b %s *0.02",
						2*3*n+1, heads(rows), heads(rows), rows, heads(rows), heads(rows), heads(rows))},
			}
			for _, c := range cases {
				c.Args += fmt.Sprintf("; pos i32[%d] =%s; slot i32[%d] =%s", rows, pos, rows, slot)
				c.Rel, c.Abs = 1e-5, 1e-3
				if err := optest.Check(dev, c); err != nil {
					t.Errorf("%s, %d elements: %v", c.Name, n, err)
				}
			}
		}
		steps(7, "4,5,6,9,0,1,0", "2,2,2,0,1,1,-1")
		for _, shader := range []string{"ssm", "delta", "dplr"} {
			if !dev.Made(shader + kernel) {
				t.Errorf("%s of %d elements did not run %s%s", shader, n, shader, kernel)
			}
		}
	}
}
