package models

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Kernels of one's own: kernels: of a file. What they say is read here, docs/custom-kernels.md explains it.

var kernelKeys = []string{"op", "equation", "source", "entry", "arch", "when", "types", "args", "grid", "block",
	"shared", "constants", "tiles", "tolerance", "always"}

// maxKernels bounds how many a file may describe.
const maxKernels = 64

// Kernels are those that the file and the blocks that it repeats describe, the file's own first.
func (f *File) Kernels() []*custom.Kernel {
	all := slices.Clone(f.kernels)
	for _, b := range f.blocks() {
		if b != nil {
			all = append(all, b.kernels...)
		}
	}
	return all
}

// LoadKernels reads the kernels: of a file, which may be a model file or have nothing else. The error is Errors where
// the text is at fault, or there are none.
func LoadKernels(path string) ([]*custom.Kernel, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	return parseKernelsFile(path, data, func() (*File, error) { return Load(path) })
}

// useKernels adds those of another file.
func (r *reader) useKernels(v *yaml.Node, stem string) {
	if strings.ContainsAny(stem, `/\`) {
		r.failNode(v, "%q: a file's name without folder and ending is wanted", stem)
		return
	}
	path, data, err := r.read(stem)
	if err != nil {
		r.failNode(v, "%s: %v", stem, err)
		return
	}
	all, err := parseKernelsFile(path, data, func() (*File, error) {
		return nil, Errors{r.at(v.Line, v.Column, "%s is a model file: one with kernels: alone is wanted", path)}
	})
	if es, ok := err.(Errors); ok {
		for _, e := range es {
			r.add(e)
		}
	}
	r.f.kernels = append(r.f.kernels, all...)
}

// parseKernelsFile reads a file with kernels: alone; whole reads a model file.
func parseKernelsFile(path string, data []byte, whole func() (*File, error)) ([]*custom.Kernel, error) {
	src := &source{path: path, lines: strings.Split(string(data), "\n")}
	docs, err := parseYAML(data)
	if err != nil {
		return nil, Errors{src.yamlError(err)}
	}
	doc := docs[0]
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, Errors{src.at(1, 1, "a mapping with kernels: is wanted here")}
	}
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if k := top.Content[i].Value; k == "block" || k == "model" {
			f, err := whole()
			if err == nil && len(f.kernels) == 0 {
				err = Errors{src.at(1, 1, "there is no kernels: in this file")}
			}
			if err != nil {
				return nil, err
			}
			return f.kernels, nil
		}
	}
	if len(docs) > 1 {
		return nil, Errors{src.at(docs[1].Line, 1, "a second document begins; kernels: stand in one")}
	}
	r := &reader{source: src, f: &File{source: src}, names: map[string]text{}}
	found := false
	r.pairs(top, "a mapping", func(key text, v *yaml.Node) {
		if key.string != "kernels" {
			r.add(r.fail(key, 0, "unknown key %s: a file that is no model has kernels: alone", key.string))
			return
		}
		found = true
		r.kernels(v)
	})
	if !found && r.err() == nil {
		r.failNode(top, "kernels: is missing")
	}
	return r.f.kernels, r.err()
}

// kernels reads the mapping of names to descriptions.
func (r *reader) kernels(v *yaml.Node) {
	before := len(r.list)
	r.pairs(v, "a mapping of names to kernels", func(name text, v *yaml.Node) {
		if name.string == "use" && r.read != nil {
			for _, stem := range r.strings(v, "the name of a file with kernels: beside this one") {
				r.useKernels(v, stem)
			}
			return
		}
		if !lang.IsName(name.string) {
			r.add(r.fail(name, 0, "%q cannot be a name: letters, digits and _ only", name.string))
			return
		}
		r.kernel(name, v)
	})
	if len(r.f.kernels) == 0 && len(r.list) == before {
		r.failNode(v, "kernels: is empty")
	}
	if len(r.f.kernels) > maxKernels {
		r.failNode(v, "%d kernels; a file has at most %d", len(r.f.kernels), maxKernels)
	}
}

// kernelReader reads one description.
type kernelReader struct {
	*reader
	k     *custom.Kernel
	op    *graph.Op
	names []string // that expressions may use
}

func (r *reader) kernel(name text, v *yaml.Node) {
	parts := map[string]*yaml.Node{}
	before := len(r.list)
	r.pairs(v, "a mapping with op:, source:, args: and grid:", func(key text, v *yaml.Node) {
		if !slices.Contains(kernelKeys, key.string) {
			r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string, kernelKeys)))
			return
		}
		parts[key.string] = v
	})
	if v.Kind != yaml.MappingNode {
		return
	}
	for _, key := range []string{"op", "source", "args", "grid"} {
		if parts[key] == nil {
			r.failNode(v, "%s: %s: is missing", name.string, key)
		}
	}
	if len(r.list) > before {
		return
	}
	k := &kernelReader{reader: r, k: &custom.Kernel{Name: name.string, File: r.path, Entry: name.string}}
	if k.operator(parts["op"]) && k.rest(parts) && len(r.list) == before {
		r.f.kernels = append(r.f.kernels, k.k)
	}
}

func (k *kernelReader) operator(v *yaml.Node) bool {
	t, ok := k.scalar(v, "the name of an operator")
	if !ok {
		return false
	}
	if k.op = ops.Table.Lookup(t.string); k.op == nil {
		k.add(k.fail(t, 0, "unknown operator %s%s (greta ops lists them)", t.string, didYouMean(t.string,
			ops.Table.Names())))
		return false
	}
	if k.op.Kind != graph.Compute {
		k.add(k.fail(t, 0, "%s writes a cache or is a view: a kernel of one's own computes new tensors", t.string))
		return false
	}
	k.k.Op, k.names = t.string, custom.Names(k.op)
	return true
}

// rest reads all but op:. The constants come first, as expressions use them.
func (k *kernelReader) rest(parts map[string]*yaml.Node) bool {
	if v := parts["constants"]; v != nil {
		k.constants(v)
	}
	word := func(key, what string, to *string) {
		if v := parts[key]; v != nil {
			if t, ok := k.scalar(v, what); ok {
				*to = t.string
			}
		}
	}
	word("equation", "the name of a result, as greta dump --stage plan prints it", &k.k.Equation)
	word("entry", "the name of a function", &k.k.Entry)
	word("source", "the name of a file", &k.k.Source)
	word("arch", "an architecture, sm_90 or gfx942", &k.k.Arch)
	if !slices.Contains(custom.Endings, k.k.Ending()) {
		k.failNode(parts["source"], "source: a file that ends in %s is wanted, not %q", strings.Join(custom.Endings, ", "),
			k.k.Source)
	}
	if base, _, _ := strings.Cut(k.k.Equation, "."); base != "" && len(k.f.body) > 0 && !k.hasEquation(base) {
		k.failNode(parts["equation"], "no equation of this file is called %s", base)
	}
	if v := parts["when"]; v != nil {
		k.k.When = k.expression(v, "a condition")
	}
	if v := parts["types"]; v != nil {
		k.types(v)
	}
	k.args(parts["args"])
	k.k.Grid = k.sizes(parts["grid"], "grid")
	shader := k.k.Ending() == ".comp" || k.k.Ending() == ".spv"
	for _, key := range []string{"block", "shared"} {
		switch v := parts[key]; {
		case v != nil && shader:
			k.failNode(v, "%s: has no place here: a shader says it itself (local_size_x, shared)", key)
		case v == nil && key == "block" && !shader:
			k.failNode(parts["source"], "block: is missing: the threads of a block")
		case v != nil && key == "block":
			k.k.Block = k.sizes(v, "block")
		case v != nil:
			k.k.Shared = k.expression(v, "a number of bytes")
		}
	}
	if v := parts["tiles"]; v != nil {
		k.tiles(v)
	}
	if v := parts["tolerance"]; v != nil {
		k.tolerance(v)
	}
	if v := parts["always"]; v != nil {
		var b bool
		if v.Decode(&b) != nil {
			k.failNode(v, "true or false is wanted here, not %s", describe(v))
		}
		k.k.Always = b
	}
	return true
}

func (k *kernelReader) hasEquation(name string) bool {
	return slices.ContainsFunc(k.f.body, func(eq equation) bool {
		return slices.ContainsFunc(eq.names, func(t text) bool { return t.string == name })
	})
}

// expression reads an expression of the operator's sizes.
func (k *kernelReader) expression(v *yaml.Node, what string) lang.Expr {
	t, ok := k.scalar(v, what)
	if !ok {
		return nil
	}
	e, ok := k.expr(t)
	if !ok {
		return nil
	}
	return k.known(t, e.tree)
}

// known refuses names that the operator does not have, and what is no number.
func (k *kernelReader) known(t text, tree lang.Expr) lang.Expr {
	ok := true
	visit(tree, func(e lang.Expr) {
		switch e := e.(type) {
		case lang.Name:
			if !slices.Contains(k.names, e.Name) && e.Name != "true" && e.Name != "false" {
				k.add(k.fail(t, e.Pos(), "unknown name %s; a kernel of %s knows %s", e.Name, k.op.Name,
					strings.Join(k.names, ", ")))
				ok = false
			}
		case lang.Call:
			if !lang.IsFunction(e.Func) || e.Func == "has" || e.Rest != nil || len(e.Named) > 0 {
				k.add(k.fail(t, e.Pos(), "%s(…) is no function of numbers", e.Func))
				ok = false
			}
		case lang.As:
			k.add(k.fail(t, e.Pos(), "a number is wanted here, not a tensor"))
			ok = false
		}
	})
	if !ok {
		return nil
	}
	return tree
}

// list gives the scalars of a list, or one.
func (k *kernelReader) elements(v *yaml.Node) []*yaml.Node {
	if v.Kind == yaml.SequenceNode {
		return v.Content
	}
	return []*yaml.Node{v}
}

func (k *kernelReader) sizes(v *yaml.Node, key string) (all []lang.Expr) {
	nodes := k.elements(v)
	if len(nodes) == 0 || len(nodes) > 3 {
		k.failNode(v, "%s: one to three sizes are wanted, x first, not %d", key, len(nodes))
		return nil
	}
	for _, n := range nodes {
		if e := k.expression(n, "a size"); e != nil {
			all = append(all, e)
		}
	}
	return all
}

// maxArgs bounds a kernel's arguments.
const maxArgs = 64

// args reads the arguments: operands by name, numbers as type(expression); a number without a type is i32.
func (k *kernelReader) args(v *yaml.Node) {
	nodes := k.elements(v)
	if len(nodes) > maxArgs {
		k.failNode(v, "args: %d are given, at most %d can be", len(nodes), maxArgs)
		return
	}
	bytes, written := 0, 0
	for _, n := range nodes {
		if n.Kind == yaml.ScalarNode && n.Value == "null" {
			k.k.Args = append(k.k.Args, custom.Arg{Kind: custom.Null, Text: "null"})
			continue
		}
		t, ok := k.scalar(n, "an operand or a number")
		if !ok {
			continue
		}
		e, ok := k.expr(t)
		if !ok {
			continue
		}
		a := custom.Arg{Kind: custom.I32, Text: t.string, Value: e.tree}
		if name, is := e.tree.(lang.Name); is && k.isOperand(name.Name) {
			a.Operand, a.Value = name.Name, nil
			if slices.ContainsFunc(k.op.Sig.Out, func(o graph.Operand) bool { return o.Name == name.Name }) {
				written++
			}
		} else {
			if c, is := e.tree.(lang.Call); is && slices.Contains(custom.Kinds, c.Func) {
				if len(c.Args) != 1 || len(c.Named) > 0 || c.Rest != nil {
					k.add(k.fail(t, c.Pos(), "%s(expression) is wanted", c.Func))
					continue
				}
				a.Kind, a.Value = custom.Kind(c.Func), c.Args[0]
			}
			if k.known(t, a.Value) == nil {
				continue
			}
			bytes += 4
		}
		if shader := k.k.Ending() == ".comp" || k.k.Ending() == ".spv"; shader && a.Operand == "" &&
			!slices.Contains([]custom.Kind{custom.I32, custom.U32, custom.F32}, a.Kind) {
			k.add(k.fail(t, 0, "a shader's numbers are i32, u32 or f32, not %s", a.Kind))
		}
		k.k.Args = append(k.k.Args, a)
	}
	if bytes > 128 && (k.k.Ending() == ".comp" || k.k.Ending() == ".spv") {
		k.failNode(v, "args: the numbers of a shader have %d bytes; 128 are there on every device", bytes)
	}
	if written == 0 {
		k.failNode(v, "args: no result is among them; %s", k.op.Sig)
	}
}

func (k *kernelReader) isOperand(name string) bool {
	return slices.ContainsFunc(slices.Concat(k.op.Sig.In, k.op.Sig.Out), func(o graph.Operand) bool {
		return o.Name == name
	})
}

// operand checks a key that must be an operand's name.
func (k *kernelReader) operand(key text) bool {
	if !k.isOperand(key.string) {
		k.add(k.fail(key, 0, "%s has no operand %s: %s", k.op.Name, key.string, k.op.Sig))
		return false
	}
	return true
}

func (k *kernelReader) types(v *yaml.Node) {
	k.k.Types = map[string][]tensor.Type{}
	k.pairs(v, "a mapping of operands to types", func(key text, v *yaml.Node) {
		if !k.operand(key) {
			return
		}
		for _, n := range k.elements(v) {
			t, ok := k.scalar(n, "a type")
			if !ok {
				continue
			}
			typ, ok := tensor.ParseType(t.string)
			if !ok {
				k.add(k.fail(t, 0, "unknown type %s", t.string))
				continue
			}
			k.k.Types[key.string] = append(k.k.Types[key.string], typ)
		}
	})
}

func (k *kernelReader) constants(v *yaml.Node) {
	all := 1
	k.pairs(v, "a mapping of names to whole numbers", func(key text, v *yaml.Node) {
		switch {
		case !lang.IsName(key.string):
			k.add(k.fail(key, 0, "%q cannot be a name", key.string))
			return
		case slices.Contains(k.names, key.string):
			k.add(k.fail(key, 0, "%s has a meaning already: %s", key.string, k.op.Sig))
			return
		}
		c := custom.Constant{Name: key.string}
		for _, n := range k.elements(v) {
			t, ok := k.scalar(n, "a whole number")
			if !ok {
				continue
			}
			x, err := strconv.Atoi(t.string)
			if err != nil || x < -1<<31 || x >= 1<<31 {
				k.add(k.fail(t, 0, "a whole number below 2^31 is wanted here, not %s", t.string))
				continue
			}
			if !slices.Contains(c.Values, x) {
				c.Values = append(c.Values, x)
			}
		}
		if len(c.Values) == 0 {
			k.failNode(v, "%s: a value is wanted, or a list of those to try", key.string)
			return
		}
		all = min(all*len(c.Values), 1<<30)
		k.k.Constants = append(k.k.Constants, c)
	})
	for _, c := range k.k.Constants {
		k.names = append(k.names, c.Name)
	}
	if all > custom.Most {
		k.failNode(v, "constants: %d combinations are more than the %d that are tried", all, custom.Most)
	}
}

// tiles reads operand: [rows, columns].
func (k *kernelReader) tiles(v *yaml.Node) {
	k.k.Tiles = map[string][2]int{}
	k.pairs(v, "a mapping of operands to [rows, columns]", func(key text, v *yaml.Node) {
		if !k.operand(key) {
			return
		}
		var sizes []int
		if v.Decode(&sizes) != nil || len(sizes) != 2 || sizes[0] < 1 || sizes[1] < 1 || sizes[0]*sizes[1] > 1<<20 {
			k.failNode(v, "[rows, columns] of a tile is wanted here, two whole numbers")
			return
		}
		k.k.Tiles[key.string] = [2]int{sizes[0], sizes[1]}
	})
}

// maxTolerance is the relative error that a kernel may ask for.
const maxTolerance = 0.1

func (k *kernelReader) tolerance(v *yaml.Node) {
	if v.Decode(&k.k.Tolerance) != nil || !(k.k.Tolerance > 0 && k.k.Tolerance <= maxTolerance) {
		k.failNode(v, "a relative error above 0 and at most %g is wanted here, not %s", maxTolerance, describe(v))
	}
}
