package hip

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
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
	for _, name := range otherFiles {
		if _, err := kernelFiles.ReadFile("kernels/" + name); err != nil {
			t.Error(err)
		}
	}
}
