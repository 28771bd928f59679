package hip

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

var (
	_ backends.Located = (*Device)(nil)
	_ backends.Hashed  = (*Device)(nil)
)

// TestCodeHash: products, attention and the rest have code of their own, which
// variants share.
func TestCodeHash(t *testing.T) {
	var d *Device
	seen := map[string]string{}
	for name, n := range map[string]*graph.Node{"all": nil, "linear": {Op: ops.Linear}, "attention": {Op: ops.Attention},
		"rmsnorm": {Op: ops.RMSNorm}} {
		h := d.CodeHash(n, "")
		if len(h) != 32 || h != d.CodeHash(n, "x") {
			t.Errorf("%s: %q and %q", name, h, d.CodeHash(n, "x"))
		}
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	if d.CodeHash(&graph.Node{Op: ops.LinearBias}, "") != d.CodeHash(&graph.Node{Op: ops.Linear}, "") {
		t.Error("products differ")
	}
	if empty := "e3b0c44298fc1c149afbf4c8996fb924"; sourceHash("products") == empty {
		t.Error("nothing was hashed")
	}
}

// TestCodeGroups: the hash of a node is of the files that its kernels are compiled from, and no file is in none.
func TestCodeGroups(t *testing.T) {
	stems := map[string]bool{}
	for _, name := range kernelNames() {
		if stem, ok := strings.CutSuffix(name, ".hip"); ok {
			if stems[stem] = true; codeGroups[stem] == "" {
				t.Errorf("%s is in no group of codeGroups", name)
			}
		}
	}
	for stem := range codeGroups {
		if !stems[stem] {
			t.Errorf("there is no %s.hip", stem)
		}
	}
	seen := map[*graph.Op]bool{}
	for _, arch := range []string{"gfx942", "sm_90"} {
		clear(seen)
		for _, c := range optest.Cases() {
			n, err := c.Bare(tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			if seen[n.Op] {
				continue
			}
			seen[n.Op] = true
			dev, err := openNull(arch, 0, func(p program) {
				file, _, _ := strings.Cut(string(p), ".hip")
				if got := codeGroups[file]; !strings.Contains(got, backends.CodeGroup(n)) {
					t.Errorf("%s: %s.hip is of the group %q, not %q", n.Op.Name, file, got, backends.CodeGroup(n))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			optest.Once(dev, c) //nolint:errcheck // a device that computes nothing is wrong
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
