// Texts of what backends choose, from devices that compile and run nothing.

package testkit

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
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
	for _, name := range []string{"gemma2_2b", "gpt_neox_20b", "mixtral_8x7b", "phi3", "qwen3_8b"} {
		all = append(all, choiceModel{name, []tensor.Type{tensor.F16, tensor.Q4_K}, []int{1, 512}})
	}
	// rows no multiple of 256
	return append(all, choiceModel{"qwen2", []tensor.Type{tensor.F16, tensor.Q8_0}, []int{1, 512}})
}

// Choices holds what devices choose for two blocks of each of these models as texts in dir: a line is what runs as one,
// behind the names of the devices on which it does. others.txt has the other built-in files.
// rewrite writes the texts anew.
func Choices(t *testing.T, dir string, rewrite bool, devices []NullDevice) {
	t.Helper()
	for _, m := range choiceModels() {
		compareChoices(t, filepath.Join(dir, m.name+".txt"), rewrite, func(t *testing.T) string {
			return choicesText(t, m, devices)
		})
	}
	compareChoices(t, filepath.Join(dir, "others.txt"), rewrite, func(t *testing.T) string {
		return othersText(t, devices)
	})
}

func compareChoices(t *testing.T, path string, rewrite bool, text func(*testing.T) string) {
	t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
		got := text(t)
		if rewrite {
			dir := filepath.Dir(path)
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

// othersText holds what devices choose for the other built-in files, at the sizes that they have
// without weights: a token with weights of q4_K, and 512 with weights of f16. A line is what runs
// as one for operands of certain types and shapes, once for all files; behind it are the devices,
// and the files in which it is met. A file that has no sizes of its own is listed with what it
// lacks.
func othersText(t *testing.T, devices []NullDevice) string {
	t.Helper()
	type line struct{ devices, files []string }
	lines := map[string]*line{}
	var lacking []string
	add := func(list []string, s string) []string {
		if slices.Contains(list, s) {
			return list
		}
		return append(list, s)
	}
	for _, name := range models.Names() {
		if slices.ContainsFunc(choiceModels(), func(m choiceModel) bool { return m.name == name }) {
			continue
		}
		for _, d := range devices {
			lacks := ""
			for _, m := range []choiceModel{{name, []tensor.Type{tensor.Q4_K, tensor.Q8_0, tensor.F16}, []int{1}},
				{name, []tensor.Type{tensor.F16}, []int{512}}} {
				var steps [][]choiceLine
				var err error
				for _, typ := range m.types { // the first that its matrices can have
					if steps, err = captures(d, m, typ, shapesText); err == nil {
						break
					}
				}
				if err != nil {
					lacks, _, _ = strings.Cut(err.Error(), "\n")
					break
				}
				for _, c := range steps[0] {
					if lines[c.text] == nil {
						lines[c.text] = &line{}
					}
					lines[c.text].devices = add(lines[c.text].devices, d.Name)
					lines[c.text].files = add(lines[c.text].files, name)
				}
			}
			if lacks != "" {
				lacking = append(lacking, fmt.Sprintf("%s: nothing: %s", name, lacks))
				break
			}
		}
	}
	var out strings.Builder
	for _, text := range slices.Sorted(maps.Keys(lines)) {
		l := lines[text]
		on := strings.Join(l.devices, " ")
		if len(l.devices) == len(devices) {
			on = "all"
		}
		if len(l.files) > 2 {
			l.files = []string{l.files[0], fmt.Sprintf("%d more", len(l.files)-1)}
		}
		fmt.Fprintf(&out, "%s  [%s] %s\n", text, on, strings.Join(l.files, ", "))
	}
	fmt.Fprintln(&out, strings.Join(lacking, "\n"))
	return out.String()
}

// shapesText names the operators with their operands, what runs for them, and why.
func shapesText(p *backends.Program, part Part) string {
	var nodes []string
	for _, i := range part.Launches {
		n := p.Launches[i].Node
		var in []string
		for _, v := range n.In {
			if v == nil {
				in = append(in, "-")
				continue
			}
			in = append(in, strings.ReplaceAll(fmt.Sprintf("%s%v", v.Type, v.Shape), ", ", ","))
		}
		nodes = append(nodes, fmt.Sprintf("%s(%s)", n.Op.Name, strings.Join(in, " ")))
	}
	code := strings.Join(part.Code, "; ")
	if code == "" {
		code = "nothing"
	}
	return strings.Join(nodes, " + ") + ": " + code + " (" + p.Launches[part.Launches[0]].Kernel.Traits().Why + ")"
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
			steps, err := captures(d, m, typ, partText)
			if err != nil {
				t.Fatalf("%s: %v", d.Name, err)
			}
			for i, parts := range steps {
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
func captures(d NullDevice, m choiceModel, typ tensor.Type, text func(*backends.Program, Part) string) ([][]choiceLine,
	error) {
	file, err := models.Builtin(m.name)
	if err != nil {
		return nil, err
	}
	steps := make([][]choiceLine, len(m.steps))
	dev, err := d.Open(func(p *backends.Program, parts []Part) {
		at := slices.Index(m.steps, p.Launches[0].Node.Out[0].Shape[0])
		if at < 0 || steps[at] != nil { // the first of so many tokens is the step that gives logits
			return
		}
		for _, part := range parts {
			steps[at] = append(steps[at], choiceLine{first: part.Launches[0], text: text(p, part)})
		}
	})
	if err != nil {
		return nil, err
	}
	opt := engine.Options{Model: file, Device: dev, Context: 1024, DType: typ, KV: tensor.F16}
	if !file.IsBlock() { // two of its layers
		opt.Set = map[string]string{"L": "2"}
	}
	if err := errlist.Join(engine.DryRun(opt, m.steps...), dev.Close()); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", m.name, typ, err)
	}
	for i, s := range m.steps {
		if steps[i] == nil {
			return nil, fmt.Errorf("%s of %s, %d tokens: nothing was captured", m.name, typ, s)
		}
	}
	return steps, nil
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
	return strings.Join(nodes, " + ") + ": " + code + " (" + p.Launches[part.Launches[0]].Kernel.Traits().Why + ")"
}

// SameChoices demands of devices on which a row's results do not depend on the rows beside it that the same code, in
// the same variant, runs each node of a model whatever the number of a step's rows. Parts of Code must name the
// variant.
func SameChoices(t *testing.T, devices []NullDevice) {
	t.Helper()
	for _, m := range choiceModels() {
		if !slices.Contains([]string{"llama2_7b", "gpt_neox_20b", "mixtral_8x7b"}, m.name) {
			continue
		}
		m.steps = []int{2, 1, 9, 65, 512}
		for _, typ := range m.types {
			for _, d := range devices {
				t.Run(fmt.Sprint(m.name, "/", typ, "/", d.Name), func(t *testing.T) {
					steps, err := captures(d, m, typ, rowlessText)
					if err != nil {
						t.Fatal(err)
					}
					texts := make([][]string, len(steps))
					for i, lines := range steps {
						for _, l := range lines {
							if l.text != "" {
								texts[i] = append(texts[i], l.text)
							}
						}
						slices.Sort(texts[i])
						texts[i] = slices.Compact(texts[i])
						if !slices.Equal(texts[i], texts[0]) {
							t.Errorf("%d rows and %d: %s", m.steps[i], m.steps[0],
								firstDifference(strings.Join(texts[i], "\n"), strings.Join(texts[0], "\n")))
						}
					}
				})
			}
		}
	}
}

// rowlessText names operators with their inputs and weights, what runs for them, and why; nothing of a selection of
// rows, which steps have of whose rows not all are wanted.
func rowlessText(p *backends.Program, part Part) string {
	var nodes []string
	for _, i := range part.Launches {
		n := p.Launches[i].Node
		if n.Op.Name == "rows" {
			return ""
		}
		var weights []string
		for _, v := range n.In {
			if v != nil && v.Def == nil {
				weights = append(weights, v.Root().Name)
			}
		}
		nodes = append(nodes, fmt.Sprintf("%s(%s)", n.Op.Name, strings.Join(weights, " ")))
	}
	return fmt.Sprintf("%s: %s (%s)", strings.Join(nodes, " + "), strings.Join(part.Code, "; "),
		p.Launches[part.Launches[0]].Kernel.Traits().Why)
}
