package backends_test

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

type buffer struct{ backends.Buffer }

// TestNamed: the parts of a product are found by their names, which are the same in all of them.
func TestNamed(t *testing.T) {
	parts := []string{"x", "w", "s", "r", "b", "e"}
	products := 0
	for _, op := range ops.All() {
		if !ops.IsProduct(op) {
			continue
		}
		products++
		l := &backends.Launch{Node: &graph.Node{Op: op}, In: make([]backends.Operand, len(op.Sig.In))}
		for i := range l.In {
			l.In[i].Buffer = buffer{}
		}
		for _, name := range parts {
			want := slices.IndexFunc(op.Sig.In, func(o graph.Operand) bool { return o.Name == name })
			switch got := l.Named(name); {
			case want < 0 && got != nil:
				t.Errorf("%s has an operand %s", op.Name, name)
			case want >= 0 && got != &l.In[want]:
				t.Errorf("%s: operand %s is not number %d", op.Name, name, want)
			}
		}
		for _, in := range op.Sig.In {
			if !slices.Contains(parts, in.Name) {
				t.Errorf("%s: operand %s is no part of a product that kernels ask for: %q", op.Name, in.Name, parts)
			}
		}
		last := len(l.In) - 1
		name := op.Sig.In[last].Name
		l.In[last].Buffer = nil
		if l.Named(name) != nil {
			t.Errorf("%s: operand %s is left out, and found", op.Name, name)
		}
		if l.In = l.In[:last]; l.Named(name) != nil {
			t.Errorf("%s: operand %s is not there, and found", op.Name, name)
		}
	}
	if products < 7 {
		t.Errorf("only %d products were seen", products)
	}
}
