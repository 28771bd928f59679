//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// enough is time to explain a small program with all its beginnings.
const enough = time.Minute

// explained explains a program and checks what must hold for any.
func explained(t *testing.T, x backends.Executable, launches int, budget time.Duration) *backends.Explanation {
	t.Helper()
	out, err := x.(backends.Explainer).Explain(budget)
	if err != nil {
		t.Fatal(err)
	}
	seen, alone, sum := make([]int, launches), time.Duration(0), out.Start+out.End
	dispatches := vulkan.DispatchesOf(x)
	for _, p := range out.Parts {
		for n, l := range p.Launches {
			seen[l]++
			if n > 0 && dispatches[l] > 0 || n > 1 && l < p.Launches[n-1] {
				t.Errorf("part %v: launch %d has %d dispatches", p.Launches, l, dispatches[l])
			}
		}
		if dispatches[p.Launches[0]] == 0 && (len(p.Launches) > 1 || p.Alone != 0 || p.Added != 0) {
			t.Errorf("%+v has no dispatch", p)
		}
		if p.Alone < 0 || !out.Cut && p.Added != 0 {
			t.Errorf("%+v, cut: %v", p, out.Cut)
		}
		alone, sum = alone+p.Alone, sum+p.Added
	}
	for l, n := range seen {
		if n != 1 {
			t.Errorf("launch %d is in %d parts", l, n)
		}
	}
	if out.Whole <= 0 || alone <= 0 {
		t.Errorf("the whole takes %v, its parts alone %v", out.Whole, alone)
	}
	if out.Cut && sum != out.Whole || !out.Cut && sum != 0 {
		t.Errorf("cut %v: start, parts and end take %v, the whole %v", out.Cut, sum, out.Whole)
	}
	if want := budget == enough; out.Cut != want {
		t.Errorf("in %v beginnings were timed: %v", budget, out.Cut)
	}
	return out
}

// TestExplain: an explanation has every launch once, what is folded with what does its work, and times whose sum is the
// whole; and it leaves a program that gives the same bits, with stages that are handed over and
// with barriers, in memory with one side and with two, of one step and of several.
func TestExplain(t *testing.T) {
	whole(t)
	type kind struct{ tokens, steps int }
	for _, c := range []struct {
		ahead, staged, tells bool
		kinds                []kind
	}{
		{false, false, false, []kind{{1, 1}, {5, 1}}}, {false, true, true, []kind{{1, 3}}},
		{true, false, true, []kind{{1, 1}, {1, 3}}}, {true, true, false, []kind{{1, 1}}},
	} {
		for _, dtype := range []tensor.Type{tensor.F16, tensor.Q8_0} {
			t.Run(fmt.Sprintf("%s/ahead %v/staged %v/tells %v", dtype, c.ahead, c.staged, c.tells), func(t *testing.T) {
				dev := open(t, vulkan.Options{FP16: backends.On})
				dev.Stage(c.staged)
				if err := ordered(t, dev, c.ahead); err != nil {
					t.Skip(err)
				}
				if c.tells {
					dev.Tells()
				}
				stream, err := dev.Stream()
				if err != nil {
					t.Fatal(err)
				}
				s := session(t, dev, func(o *engine.Options) {
					o.DType, o.KV = dtype, tensor.F16
					o.Set = map[string]string{"L": "2", "D": "256", "H": "4", "G": "2", "F": "768", "V": "500"}
				})
				if _, err := s.Prefill(context.Background(), prompt(5)); err != nil { // writes what the steps read
					t.Fatal(err)
				}
				if _, err := s.Decode(7); err != nil {
					t.Fatal(err)
				}
				for _, k := range c.kinds {
					st, err := s.Step(k.tokens, 1)
					if err != nil {
						t.Fatal(err)
					}
					p := &backends.Program{Name: "explained", Launches: slices.Repeat(st.Program.Launches, k.steps), Steps: k.steps}
					if k.steps > 1 {
						dev.Apart(1 << 16) // places are filled anew between steps
					}
					x, err := dev.Capture(p)
					if err != nil {
						t.Fatal(err)
					}
					defer x.Close()
					if handed := vulkan.Handed(x) > 0; handed != (c.ahead && k.tokens == 1) {
						t.Errorf("%+v: handed over: %v", k, handed)
					}
					o := &p.Launches[len(p.Launches)-1].Out[0]
					want := bitsOf(t, stream, x, o)
					for _, budget := range []time.Duration{1, enough} {
						begin := time.Now()
						out := explained(t, x, len(p.Launches), budget)
						t.Logf("%+v: %d launches, %d dispatches, %d parts; %v of %v: start %v, end %v, whole %v", k, len(p.Launches),
							vulkan.Dispatches(x), len(out.Parts), time.Since(begin), budget, out.Start, out.End, out.Whole)
						if k.tokens == 1 {
							joined(t, dev, p, out)
						}
						if n, err := vulkan.Left(x); n > 0 || err != nil {
							t.Errorf("%+v, %v: %d words are left in places for results; error %v", k, budget, n, err)
						}
						for range 3 {
							if !bytes.Equal(bitsOf(t, stream, x, o), want) {
								t.Fatalf("%+v, %v: other bits than before", k, budget)
							}
						}
					}
				}
			})
		}
	}
}

// joined checks in what parts the launches are that steps of one token fold, of a Llama without biases.
func joined(t *testing.T, dev *vulkan.Device, p *backends.Program, out *backends.Explanation) {
	t.Helper()
	bytes := slices.ContainsFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "int8dot" })
	per := len(p.Launches) / max(p.Steps, 1)
	folded := map[*graph.Op]int{}
	for _, part := range out.Parts {
		into := p.Launches[part.Launches[0]].Node.Op
		for _, l := range part.Launches[1:] {
			op := p.Launches[l].Node.Op
			folded[op]++
			ok := false
			switch op {
			case ops.RoPE, ops.RoPEPush, ops.Push:
				ok = into == ops.Attention
			case ops.Linear:
				ok = into == ops.SwiGLU
			case ops.RMSNorm:
				ok = into == ops.Embed || into == ops.SwiGLU || strings.HasPrefix(into.Name, "linear")
			}
			if !ok || l/per != part.Launches[0]/per {
				t.Errorf("launch %d, %s, is in the part of launch %d, %s", l, op.Name, part.Launches[0], into.Name)
			}
		}
	}
	blocks := 2 * max(p.Steps, 1)
	want := map[*graph.Op]int{ops.RoPE: blocks, ops.RoPEPush: blocks, ops.Push: blocks}
	switch quantized := slices.ContainsFunc(p.Launches, func(l backends.Launch) bool {
		return len(l.In) > 1 && l.In[1].Type.IsBlock()
	}); {
	case !quantized || bytes:
		want[ops.Linear], want[ops.RMSNorm] = 2*blocks, 2*blocks+max(p.Steps, 1)
	}
	for _, op := range []*graph.Op{ops.RoPE, ops.RoPEPush, ops.Push, ops.Linear, ops.RMSNorm} {
		if folded[op] != want[op] {
			t.Errorf("%d launches of %s are folded, not %d", folded[op], op.Name, want[op])
		}
	}
}

// captured is a small step of one token whose inputs are there.
func captured(t *testing.T, dev *vulkan.Device) (backends.Executable, *backends.Program) {
	t.Helper()
	s := session(t, dev, func(o *engine.Options) {
		o.DType, o.KV = tensor.F16, tensor.F16
		o.Set = map[string]string{"L": "1", "D": "256", "H": "4", "F": "256", "V": "300"}
	})
	if _, err := s.Decode(7); err != nil {
		t.Fatal(err)
	}
	st, err := s.Step(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	x, err := dev.Capture(st.Program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x, st.Program
}

// TestExplainLost: a wait that was in vain ends an explanation with an error, and the next one has none.
func TestExplainLost(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if err := ordered(t, dev, true); err != nil {
		t.Skip(err)
	}
	stream, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	x, p := captured(t, dev)
	o := &p.Launches[len(p.Launches)-1].Out[0]
	want := bitsOf(t, stream, x, o)
	dev.Lose(true)
	if out, err := x.(backends.Explainer).Explain(1); err == nil || out != nil ||
		!strings.Contains(err.Error(), "waited in vain") {
		t.Errorf("a wait for what nobody writes: %v", err)
	}
	dev.Lose(false)
	explained(t, x, len(p.Launches), enough)
	if !bytes.Equal(bitsOf(t, stream, x, o), want) {
		t.Error("other bits than before")
	}
}

// TestExplainRefused: what cannot be explained says why: a step without a recording, or of a device
// without timestamps, as a profile does.
func TestExplainRefused(t *testing.T) {
	dev := open(t, vulkan.Options{})
	x, p := captured(t, dev)
	e, err := dev.Eager(p)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.(backends.Explainer).Explain(1); err == nil || !strings.Contains(err.Error(), "runs eagerly") {
		t.Errorf("a step that runs eagerly: %v", err)
	}
	dev.Timeless()
	_, profile := x.Profile()
	_, explain := x.(backends.Explainer).Explain(1)
	if profile == nil || explain == nil || !strings.Contains(profile.Error(), "has no timestamps") ||
		profile.Error() != explain.Error() {
		t.Errorf("without timestamps: %v; %v", profile, explain)
	}
}

// TestExplainFaults: wherever an explanation fails, it says so and gives back what it made.
func TestExplainFaults(t *testing.T) {
	left, pools, most := balance{}, 0, 1<<30
	dev, err := broken(t, func(c *vk.Commands) {
		left.watch(c)
		tap(&c.CreateQueryPoolAddr, func(int) vk.Result {
			if pools++; pools > most {
				return vk.VK_ERROR_OUT_OF_HOST_MEMORY
			}
			return vk.VK_SUCCESS
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("explain", func(t *testing.T) {
		x, p := captured(t, dev)
		explained(t, x, len(p.Launches), enough)
		for _, most = range []int{0, 1, 2, 3, 5, pools - 1} {
			pools = 0
			out, err := x.(backends.Explainer).Explain(enough)
			if out != nil || !errors.Is(err, vk.VK_ERROR_OUT_OF_HOST_MEMORY) ||
				!strings.Contains(err.Error(), "vkCreateQueryPool") {
				t.Errorf("with %d recordings: %v", most, err)
			}
		}
	})
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	left.check(t)
}

// TestExplainValidation: the layer, with synchronization checks, has nothing to say of explanations.
func TestExplainValidation(t *testing.T) {
	dev, said := validated(t, false)
	dev.Stage(true)
	for _, p := range dev.Paths() {
		if err := dev.SetPath(p.Name, true); err != nil {
			t.Fatal(err)
		}
	}
	x, p := captured(t, dev)
	explained(t, x, len(p.Launches), enough)
	for _, m := range said() {
		t.Error(m)
	}
}
