package cpu_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Every variant of a product computes it, the default comes first, and a name
// that is none is refused.
func TestVariants(t *testing.T) {
	for i, typ := range []string{"f32", "f16", "bf16", "q8_0", "q4_K"} {
		for j, rows := range []int{1, 3, 9, 40} {
			if !testfiles.Exhaustive() && (i+j)%2 > 0 {
				continue
			}
			dev, err := cpu.New(2)
			if err != nil {
				t.Fatal(err)
			}
			o := optest.Case{Name: fmt.Sprintf("%s, %d rows", typ, rows), Eq: "y: linear(x, w)",
				Args: fmt.Sprintf("x float[%d, 512]; w %s[331, 512]", rows, typ), Rel: 1e-2, Abs: 1}
			p, err := o.Prepare(tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			all := dev.Variants(p.Node)
			if len(all) < 3 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
				t.Errorf("%s: variants %q", o.Name, all)
			}
			first := ""
			for i, v := range append(all, "") {
				dev.Choose(func(*graph.Node) string { return v })
				k, err := dev.Kernel(p.Node)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case i == 0:
					first = k.Name()
				case v == "" && k.Name() != first, v != "" && k.Name() != first+"/"+v:
					t.Errorf("%s: variant %q is %s, the default %s", o.Name, v, k.Name(), first)
				}
				if err := optest.Check(dev, o); err != nil {
					t.Errorf("%s, %s: %v", o.Name, v, err)
				}
			}
			dev.Choose(func(*graph.Node) string { return "panels=77" })
			if _, err := dev.Kernel(p.Node); err == nil || !strings.Contains(err.Error(), all[0]) {
				t.Errorf("%s: panels=77 gives %v", o.Name, err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
