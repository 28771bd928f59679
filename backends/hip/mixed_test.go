package hip

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
)

// TestMixed: q, k and v are one launch with their norm, whichever of the k-quants their types are; only what rounds x
// alike is joined so.
func TestMixed(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arch  string
		mix   string
		int8  bool
		wants string // the launch of the block with more bits
		kinds int    // of launches of vec.hip with a norm inside
	}{
		// q, k, v of either block; gate and up
		{"sm_90", "q4_k_m", true, "W_TYPE=W_Q4_K ... MATS=3 ... W_TYPE2=W_Q6_K FIRST=2", 3},
		{"sm_90", "q5_k_m", true, "W_TYPE=W_Q5_K ... MATS=3 ... W_TYPE2=W_Q6_K FIRST=2", 3},
		{"sm_90", "q4_k_s", true, "W_TYPE=W_Q4_K ... MATS=3 ... W_TYPE2=W_Q5_K FIRST=2", 2}, // of both blocks
		{"sm_90", "q4_k_m", false, "", 2},
		{"gfx942", "q4_k_m", true, "", 2}, // no rings there
		{"gfx1151", "q4_k_m", true, "", 2},
		{"sm_90", "q3_k_m", true, "", 1}, // gate and up, both of q3_K; v is q5_K
	} {
		var mu sync.Mutex
		programs := map[string]bool{}
		dev, err := openNull(c.arch, 0, func(p program) {
			mu.Lock()
			defer mu.Unlock()
			programs[string(p)] = true
		})
		if err != nil {
			t.Fatal(err)
		}
		dev.openPaths(backends.Auto)
		if err := dev.SetPath(pathInt8, c.int8); err != nil {
			t.Fatal(err)
		}
		opt := engine.Options{Model: file, Device: dev, Context: 64,
			Set: map[string]string{"L": "2", "D": "256", "H": "4", "G": "4", "F": "512", "V": "500"}}
		if !opt.SetType(c.mix) {
			t.Fatalf("no mix %s", c.mix)
		}
		if err := errors.Join(engine.DryRun(opt, 1), dev.Close()); err != nil {
			t.Fatalf("%s: %v", c.mix, err)
		}
		found, norms := false, 0
		for p := range programs {
			if !strings.HasPrefix(p, "vec.hip") {
				continue
			}
			if strings.Contains(p, " NORM=1") && !strings.Contains(p, "MATS=1") {
				norms++
			}
			mixed := strings.Contains(p, "W_TYPE2")
			if mixed && c.wants == "" {
				t.Errorf("%s, %s: joined: %s", c.arch, c.mix, p)
			}
			at, all := 0, true
			for part := range strings.SplitSeq(c.wants, " ... ") {
				i := strings.Index(p[at:], part)
				if all = all && i >= 0; all {
					at += i
				}
			}
			found = found || all && mixed
		}
		if c.wants != "" && !found {
			t.Errorf("%s, %s: no launch %s", c.arch, c.mix, c.wants)
		}
		if norms != c.kinds {
			t.Errorf("%s, %s, int8 %v: %d kinds of products with their norm inside, want %d", c.arch, c.mix, c.int8, norms,
				c.kinds)
		}
	}
}
