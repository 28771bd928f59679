package hip

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
)

// TestExpertsOutputs: the first products of experts have as many outputs as what follows reads, whether gates and
// operands are matrices of their own, halves of one, or rows of one in turn.
func TestExpertsOutputs(t *testing.T) {
	for _, c := range []struct{ model, op string }{{"mixtral_block", ""}, {"zaya_block", "split"},
		{"relative_block", "slice"}, {"jet_block", ""}} {
		file, err := models.Builtin(c.model)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := openNull("sm_90", 0, func(program) {})
		if err != nil {
			t.Fatal(err)
		}
		dev.openPaths(backends.On)
		found, between := 0, false
		opt := engine.Options{Model: file, Context: 64, Device: capturing{dev, func(p *backends.Program, _ []testkit.Part) {
			x, err := dev.Eager(p)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			for _, b := range slices.Concat(x.(eager).levels...) {
				d := b.parts[0]
				if d.code.name != "first" {
					continue
				}
				found++
				last := &p.Launches[slices.Max(append(b.joined, b.number))]
				for _, i := range b.joined {
					between = between || p.Launches[i].Node.Op.Name == c.op
				}
				places := p.Launches[b.number].In[2].Shape.Elems()
				if n := int(d.args.values[len(d.args.values)-3]); n*places != last.Out[0].Shape.Elems() {
					t.Errorf("%s: %d outputs of each of %d experts for %v", c.model, n, places, last.Out[0].Shape)
				}
			}
		}}}
		opt.SetType("q4_K")
		if err := engine.DryRun(opt, 1); err != nil {
			t.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if found == 0 || c.op != "" && !between {
			t.Errorf("%s: %d launches of experts' first products, %q among them: %v", c.model, found, c.op, between)
		}
	}
}

// TestExperts: a token's experts are two launches where their weights are blocks and activations have eight bits, also
// in a program that runs launch by launch. Elsewhere, and on an invariant device, each launch is what it was.
func TestExperts(t *testing.T) {
	file, err := models.Builtin("mixtral_8x7b")
	if err != nil {
		t.Fatal(err)
	}
	const blocks = 2
	first := []string{"linear_id", "linear_id", "swiglu"}
	second := []string{"linear_id", "mix"}
	for _, c := range []struct {
		arch, weights   string
		int8, invariant bool
		merged          bool
	}{
		{"sm_90", "q4_K", true, false, true}, {"sm_90", "mxfp4", true, false, true}, {"sm_90", "q8_0", true, false, true},
		{"sm_90", "q4_K", false, false, false}, {"sm_90", "q4_K", true, true, false}, {"sm_90", "f16", true, false, false},
		{"sm_90", "q5_0", true, false, false}, {"gfx942", "q4_K", true, false, false},
	} {
		t.Run(fmt.Sprintf("%s/%s/int8=%v/invariant=%v", c.arch, c.weights, c.int8, c.invariant), func(t *testing.T) {
			dev, err := openNull(c.arch, 0, func(program) {})
			if err != nil {
				t.Fatal(err)
			}
			dev.invariant = c.invariant
			dev.openPaths(backends.On)
			if !c.invariant { // which has no such path
				if err := dev.SetPath(pathInt8, c.int8); err != nil {
					t.Fatal(err)
				}
			}
			check := func(p *backends.Program, parts []testkit.Part) {
				t.Helper()
				n := 0
				for _, part := range parts {
					var names []string
					for _, i := range slices.Sorted(slices.Values(part.Launches)) {
						names = append(names, p.Launches[i].Node.Op.Name)
					}
					if strings.HasPrefix(part.Code[0], "experts.hip") {
						if n++; !slices.Equal(names, first) && !slices.Equal(names, second) {
							t.Errorf("a launch of experts.hip does %v", names)
						}
					}
				}
				if want := map[bool]int{true: 2 * blocks}[c.merged]; n != want {
					t.Errorf("%s: %d launches of experts.hip, want %d", p.Name, n, want)
				}
			}
			opt := engine.Options{Model: file, Context: 64, Device: capturing{dev, func(p *backends.Program,
				parts []testkit.Part) {
				check(p, parts)
				x, err := dev.Eager(p)
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				own := x.(eager).parts()
				check(p, own)
				for _, part := range own {
					if len(part.Launches) > 1 && !strings.HasPrefix(part.Code[0], "experts.hip") {
						t.Errorf("%v are one launch of an eager program", part.Launches)
					}
				}
			}}, Set: map[string]string{"L": fmt.Sprint(blocks), "D": "256", "H": "4", "G": "2", "F": "768", "V": "500"}}
			opt.SetType(c.weights)
			if err := engine.DryRun(opt, 1); err != nil {
				t.Fatal(err)
			}
			if err := dev.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
