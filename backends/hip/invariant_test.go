package hip

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// openInvariant gives a null device that is invariant, with the paths that runs take or with exact ones alone.
func openInvariant(arch string, exact bool) (*Device, error) {
	dev, err := openNull(arch, 0, func(program) {})
	if err != nil {
		return nil, err
	}
	dev.invariant = true
	for _, p := range dev.Paths() {
		if err := dev.SetPath(p.Name, p.Auto && !(exact && p.Half)); err != nil {
			return nil, err
		}
	}
	return dev, nil
}

// TestSameChoices: on an invariant device the same program, in the same variant, runs a node in steps of all numbers of
// rows. Launches are not joined, as what is joined with what follows the program; it changes no bit (TestModels).
func TestSameChoices(t *testing.T) {
	var devices []testkit.NullDevice
	for _, arch := range []string{"gfx942", "gfx1030", "sm_90"} {
		for _, exact := range []bool{false, true} {
			if exact && !hasHalves(arch) { // nothing else
				continue
			}
			name := arch
			if exact {
				name += " exact"
			}
			devices = append(devices, testkit.NullDevice{Name: name, Open: func(captured func(*backends.Program,
				[]testkit.Part)) (backends.Device, error) {
				dev, err := openInvariant(arch, exact)
				if err != nil {
					return nil, err
				}
				dev.Alone()
				return capturing{dev, captured}, nil
			}})
		}
	}
	testkit.SameChoices(t, devices)
}

// TestSameParts: an invariant device cuts the positions of a row of paged attention by the row's own length alone, with
// the same heads in a block however many rows there are.
func TestSameParts(t *testing.T) {
	dev, err := openInvariant("sm_90", false)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	value := func(typ tensor.Type, shape ...int) *graph.Value {
		return &graph.Value{Type: typ, Shape: shape, Kind: graph.State}
	}
	for _, c := range []struct {
		heads, groups, width, parts, block int
	}{{32, 8, 4, 1, 4}, {32, 8, 32, 4, 4}, {32, 32, 1000, 16, 1}, {24, 8, 1000, 16, 4}} {
		for _, rows := range []int{1, 2, 8, 64, 500} {
			pool := value(tensor.F16, 2000, 32, c.groups, 128)
			n := &graph.Node{Op: ops.PagedAttention, Attr: &ops.AttentionAttr{}, In: []*graph.Value{
				value(tensor.F32, rows, c.heads, 128), pool, pool, value(tensor.I32, rows), value(tensor.I32, rows),
				value(tensor.I32, rows, c.width)}}
			s := dev.pagedShape(n)
			if s.parts != c.parts || s.block != c.block || s.least != invariantPart {
				t.Errorf("%+v, %d rows: %+v", c, rows, s)
			}
			if k := dev.choice(n); k.name != "paged" {
				t.Errorf("%+v, %d rows: %s", c, rows, k.name)
			}
		}
	}
}

// TestSameVariant: what was tuned for products of one number of rows serves all of them on an invariant device.
func TestSameVariant(t *testing.T) {
	dev, err := openInvariant("sm_90", false)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var asked []int
	dev.Choose(func(n *graph.Node) string {
		asked = append(asked, n.In[0].Shape.Rows())
		return dev.Variants(n)[1]
	})
	variants := map[string]bool{}
	for _, rows := range []int{1, 7, 64, 3000} {
		w := &graph.Value{Type: tensor.F16, Shape: tensor.Shape{4096, 4096}, Kind: graph.Weight}
		n := &graph.Node{Op: ops.Linear, In: []*graph.Value{{Type: tensor.F32, Shape: tensor.Shape{rows, 4096}}, w}}
		v, err := dev.variant(n)
		if err != nil {
			t.Fatal(err)
		}
		variants[v] = true
		if n.In[0].Shape[0] != rows {
			t.Errorf("a node of %d rows has now %d", rows, n.In[0].Shape[0])
		}
	}
	if len(variants) != 1 || !slices.Equal(slices.Compact(asked), []int{backends.InvariantRows}) {
		t.Errorf("variants %v, asked for %v rows", variants, asked)
	}
}
