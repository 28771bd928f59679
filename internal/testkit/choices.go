// Texts of what backends choose, from devices that compile and run nothing.

package testkit

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// Part is what of a captured program runs as one.
type Part struct {
	Launches []int    // their numbers in the program, the first one names it
	Code     []string // functions or shaders that run, in order
}

// NullDevice is a device that compiles and runs nothing. Open calls captured for each program that is captured on it.
type NullDevice struct {
	Name string
	Open func(captured func(*backends.Program, []Part)) (backends.Device, error)
}

// choiceModel is a built-in model in a type, with the tokens of its steps.
type choiceModel struct {
	name  string
	types []tensor.Type
	steps []int
}

// choiceModels are models whose blocks between them have the nodes that kernels are chosen for: gated and plain, with
// experts, biases, norms of heads, windows and capped scores. Llama-2-7B has the types that differ, the others two.
func choiceModels() (all []choiceModel) {
	all = append(all, choiceModel{"llama2_7b", []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3,
		tensor.Q4_0,
		tensor.Q8_0, tensor.Q4_K, tensor.Q6_K}, []int{1, 4, 512}})
	for _, name := range []string{"gemma2_2b", "gpt_neox_20b", "mistral_7b", "mixtral_8x7b", "phi3", "qwen3_8b"} {
		all = append(all, choiceModel{name, []tensor.Type{tensor.F16, tensor.Q4_K}, []int{1, 512}})
	}
	// rows no multiple of 256
	return append(all, choiceModel{"qwen2", []tensor.Type{tensor.F16, tensor.Q8_0}, []int{1, 512}})
}

// Choices holds what devices choose for two blocks of each of these models as texts in dir: a line is what runs as one,
// behind the names of the devices on which it does. rewrite writes the texts anew.
func Choices(t *testing.T, dir string, rewrite bool, devices []NullDevice) {
	t.Helper()
	for _, m := range choiceModels() {
		t.Run(m.name, func(t *testing.T) {
			got := choicesText(t, m, devices)
			path := filepath.Join(dir, m.name+".txt")
			if rewrite {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; see the effect by -rewrite and git diff. %s", path, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, %d are wanted", len(g), len(w))
}

// choiceLine is what runs as one, on some devices.
type choiceLine struct {
	first   int
	text    string
	devices []string
}

func choicesText(t *testing.T, m choiceModel, devices []NullDevice) string {
	t.Helper()
	var out strings.Builder
	for _, typ := range m.types {
		lines := make([][]choiceLine, len(m.steps))
		for _, d := range devices {
			for i, parts := range captures(t, d, m, typ) {
				for _, p := range parts {
					k := slices.IndexFunc(lines[i], func(l choiceLine) bool { return l.first == p.first && l.text == p.text })
					if k < 0 {
						k = len(lines[i])
						lines[i] = append(lines[i], choiceLine{first: p.first, text: p.text})
					}
					lines[i][k].devices = append(lines[i][k].devices, d.Name)
				}
			}
		}
		for i, s := range m.steps {
			fmt.Fprintf(&out, "%s, tokens: %d\n", typ, s)
			slices.SortStableFunc(lines[i], func(a, b choiceLine) int { return cmp.Compare(a.first, b.first) })
			for _, l := range lines[i] {
				names := strings.Join(l.devices, " ")
				if len(l.devices) == len(devices) {
					names = "all"
				}
				fmt.Fprintf(&out, "  %s  [%s]\n", l.text, names)
			}
		}
	}
	return out.String()
}

// captures gives the lines of each step of a model on a device.
func captures(t *testing.T, d NullDevice, m choiceModel, typ tensor.Type) [][]choiceLine {
	t.Helper()
	file, err := models.Builtin(m.name)
	if err != nil {
		t.Fatal(err)
	}
	var steps [][]choiceLine
	for _, s := range m.steps {
		var lines []choiceLine
		took := false
		dev, err := d.Open(func(p *backends.Program, parts []Part) {
			if took || p.Launches[0].Node.Out[0].Shape[0] != s { // the first of so many tokens is the step that gives logits
				return
			}
			took = true
			for _, part := range parts {
				lines = append(lines, choiceLine{first: part.Launches[0], text: partText(p, part)})
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		opt := engine.Options{Model: file, Device: dev, Context: 1024, DType: typ, KV: tensor.F16,
			Set: map[string]string{"L": "2"}}
		if err := engine.DryRun(opt, s); err != nil {
			t.Fatalf("%s: %s of %s, %d tokens: %v", d.Name, m.name, typ, s, err)
		}
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if !took {
			t.Fatalf("%s: nothing was captured of %s", d.Name, m.name)
		}
		steps = append(steps, lines)
	}
	return steps
}

// partText names the nodes, what runs for them, and why.
func partText(p *backends.Program, part Part) string {
	var nodes []string
	for _, i := range part.Launches {
		n := p.Launches[i].Node
		nodes = append(nodes, fmt.Sprintf("%d %s(%s)", i, n.Op.Name, n.Out[0].Name))
	}
	code := strings.Join(part.Code, "; ")
	if code == "" {
		code = "nothing"
	}
	return strings.Join(nodes, " + ") + ": " + code + " (" + p.Launches[part.Launches[0]].Kernel.Why() + ")"
}
