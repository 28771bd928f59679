package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/safetensors"
)

//go:embed python/against_torch.py
var againstTorch string

// againstLimit is how long Python may take.
const againstLimit = 30 * time.Minute

// againstTolerance is the relative L2 at which a value differs from transformers': it computes rotations, norms and
// softmax in f32 whatever the weights are.
const againstTolerance = 1e-4

// madeUpTokens is how many tokens are made up where none are given. It is unlike a number of heads.
const madeUpTokens = 11

// torchPoint is a value that both have.
type torchPoint struct {
	Equation string  `json:"equation"` // blk.0.q
	Place    string  `json:"place"`    // file:line:column of it
	Block    int     `json:"block"`    // -1 outside the repeated blocks
	Module   string  `json:"module"`   // of transformers', with what of it: "model.layers.0.self_attn.q_proj, result"
	Layer    bool    `json:"layer"`    // what a layer gives
	RelL2    float64 `json:"relative_l2"`
	MaxAbs   float64 `json:"max_abs"`
}

// torchReport is what a comparison with transformers found.
type torchReport struct {
	Versions  string       `json:"versions"`
	Notes     []string     `json:"notes,omitempty"`
	Tokens    []int32      `json:"tokens"`
	Tolerance float64      `json:"tolerance"`
	Points    []torchPoint `json:"points"`
	First     *torchPoint  `json:"first_different,omitempty"`
	Equations []string     `json:"equations,omitempty"` // behind what agrees, up to the first that differs
	Status    string       `json:"status"`
}

// torchRun is what transformers computed.
type torchRun struct {
	Error    string
	Layers   []string
	Versions string
	Notes    []string
	src      *safetensors.Source
}

func (a *app) checkTorch(ctx context.Context, f *checkFlags, b *bundle) error {
	if b.source == nil || b.source.Dialect() != "hf" {
		return usagef("--against torch: a folder with config.json and safetensors is wanted, which transformers reads too")
	}
	if b.file.IsBlock() {
		return usagef("--against torch: a whole model is wanted, %s is a block", b.file.Path())
	}
	vocab := 1
	if v, ok := b.source.Meta("vocab_size"); ok {
		if n, is := v.(int64); is && n > 0 && n < 1<<31 {
			vocab = int(n)
		}
	}
	tokens := engine.MadeUp(madeUpTokens, vocab, b.opt.Seed)
	if f.tokens != "" {
		var err error
		if tokens, err = parseTokens("--tokens", f.tokens); err != nil {
			return usage(err)
		}
	}
	r := &torchReport{Tokens: tokens, Tolerance: f.tolerance, Status: "OK"}
	if r.Tolerance == 0 {
		r.Tolerance = againstTolerance
	}
	run, err := runTorch(ctx, f.python, b.source.Path(), tokens)
	if err != nil {
		return err
	}
	r.Versions, r.Notes = run.Versions, run.Notes
	if err := r.compare(ctx, b.opt, run); err != nil {
		return err
	}
	if f.json {
		err = writeJSON(a.out, r)
	} else {
		_, err = io.WriteString(a.out, r.text(f.all))
	}
	if err != nil || r.First == nil {
		return err
	}
	return mismatch("%s: equation %s is the first that differs from transformers (%s): relative L2 %.2e, max abs %.2e, "+
		"limit %.0e", r.First.Place, r.First.Equation, r.First.Module, r.First.RelL2, r.First.MaxAbs, r.Tolerance)
}

// runTorch runs the script in a folder of its own and reads its answer and its tensors.
func runTorch(ctx context.Context, python, folder string, tokens []int32) (*torchRun, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, usagef("--against torch: %s is no folder; transformers reads config.json and safetensors from one",
			folder)
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return nil, usagef("--python %s: %v; one with torch and transformers is wanted", python, err)
	}
	dir, err := os.MkdirTemp("", "greta-torch-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out.safetensors")
	ids := make([]string, len(tokens))
	for i, t := range tokens {
		ids[i] = strconv.Itoa(int(t))
	}
	folder, err = filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	answer, err := runPython(ctx, againstLimit, path, againstTorch, folder, out, strings.Join(ids, ","))
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(answer)), "\n")
	run := &torchRun{}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), run); err != nil {
		return nil, fmt.Errorf("%s said what is no answer of the script: %.200q", python, answer)
	}
	if run.Error != "" {
		return nil, usagef("--against torch: %s", run.Error)
	}
	data, err := plainfile.Read(out)
	if err != nil {
		return nil, fmt.Errorf("%s wrote no tensors: %w", python, err)
	}
	run.src, err = safetensors.Parse(out, data)
	return run, err
}

// tensor gives a tensor of the run's with the tokens as its first dimension; nil where there is none of the kind.
func (t *torchRun) tensor(name string, tokens int) []float64 {
	typ, shape, ok := t.src.Lookup(name)
	if !ok || typ != tensor.F64 {
		return nil
	}
	raw, err := t.src.Data(name)
	if err != nil {
		return nil
	}
	x := make([]float64, shape.Elems())
	if quant.DecodeF64(typ, x, raw) != nil {
		return nil
	}
	for len(shape) > 1 && shape[0] == 1 && tokens > 1 {
		shape = shape[1:]
	}
	switch {
	case len(shape) > 0 && shape[0] == tokens:
		return x
	case len(shape) < 2 || shape[1] != tokens:
		return nil
	}
	// Heads, or a convolution's channels, stand before the tokens.
	rest := len(x) / (shape[0] * tokens)
	out := make([]float64, 0, len(x))
	for s := range tokens {
		for h := range shape[0] {
			at := (h*tokens + s) * rest
			out = append(out, x[at:at+rest]...)
		}
	}
	return out
}

// torchTrace compares while the model runs.
type torchTrace struct {
	*torchReport
	run    *torchRun
	read   map[string]bool         // tensors that the graph reads
	looked map[string]bool         // of them, those that tokens are looked up in: a head that shares one is another module
	ends   map[*graph.Value]string // what a layer of transformers' gives, or takes
	agreed map[*graph.Value]bool
	differ *graph.Value // the first value that does
}

// compare runs the model on the reference and compares each value that transformers has too.
func (r *torchReport) compare(ctx context.Context, opt engine.Options, run *torchRun) error {
	dev, err := openBackend("ref", deviceFlags{})
	if err != nil {
		return err
	}
	defer dev.Close()
	opt.Device, opt.KV, opt.Custom, opt.DType = dev, tensor.F32, nil, tensor.Invalid
	if opt.Context == 0 {
		opt.Context = withinTable(opt, max(64, len(r.Tokens)))
	}
	t := &torchTrace{torchReport: r, run: run, agreed: map[*graph.Value]bool{}}
	if err := engine.Trace(ctx, opt, r.Tokens, t.visit); err != nil {
		return loadError(err)
	}
	if len(r.Points) == 0 {
		return errors.New("no value could be compared: transformers has no module under a name of the tensors that are read")
	}
	if r.First != nil {
		r.Status, r.Equations = "FAILED", t.between()
	}
	return nil
}

// survey finds what a graph reads and where its blocks end.
func (t *torchTrace) survey(g *graph.Graph) {
	t.read, t.looked, t.ends = map[string]bool{}, map[string]bool{}, map[*graph.Value]string{}
	for _, n := range g.Nodes {
		if n.Op == ops.Embed && n.In[1].Kind == graph.Weight {
			for _, name := range n.In[1].Load.Tensors {
				t.looked[name] = true
			}
		}
	}
	for _, v := range g.Weights {
		for _, name := range v.Load.Tensors {
			t.read[name] = true
		}
	}
	wide := 0 // elements of the stream
	if len(t.run.Layers) > 0 {
		wide = len(t.run.tensor("out:"+t.run.Layers[0], len(t.Tokens)))
	}
	last := map[int]*graph.Value{}
	for _, n := range g.Nodes {
		if n.Out[0].Shape.Elems() == wide && n.Op.Kind == graph.Compute && (n.Block >= 0 || len(last) == 0 ||
			len(last) == 1 && last[-1] != nil) {
			last[n.Block] = n.Out[0]
		}
	}
	if g.Blocks != len(t.run.Layers) {
		t.Notes = append(t.Notes, fmt.Sprintf("the model file repeats %d blocks, transformers has %d layers: they are not "+
			"compared as such", g.Blocks, len(t.run.Layers)))
		return
	}
	for block, v := range last {
		if block < 0 && len(t.run.Layers) > 0 {
			t.ends[v] = "in:" + t.run.Layers[0]
		} else if block >= 0 {
			t.ends[v] = "out:" + t.run.Layers[block]
		}
	}
}

// visit compares a node's first operand before it is run, its results after.
func (t *torchTrace) visit(n engine.Traced) error {
	if t.read == nil {
		t.survey(n.Graph)
	}
	module := ""
	for _, v := range n.Node.In {
		if v != nil && v.Kind == graph.Weight && len(v.Load.Tensors) == 1 && module == "" &&
			(n.Node.Op == ops.Embed || !t.looked[v.Load.Tensors[0]]) {
			module, _ = strings.CutSuffix(v.Load.Tensors[0], ".weight")
		}
	}
	if !n.Done {
		if x := n.Node.In[0]; module != "" && x != nil && x.Kind == graph.Computed {
			return t.point(x, "in:"+module, func() ([]float64, error) { return n.In(0) })
		}
		return nil
	}
	out := func() ([]float64, error) { return n.Out(0) }
	bias := module + ".bias"
	takes := slices.ContainsFunc(n.Node.In, func(v *graph.Value) bool {
		return v != nil && v.Kind == graph.Weight && slices.Contains(v.Load.Tensors, bias)
	})
	if module != "" && (takes || !t.read[bias]) { // otherwise it is added by an equation of its own
		if err := t.point(n.Node.Out[0], "out:"+module, out); err != nil {
			return err
		}
	}
	if name := t.ends[n.Node.Out[0]]; name != "" {
		return t.point(n.Node.Out[0], name, out)
	}
	if slices.Contains(n.Graph.Outputs, n.Node.Out[0]) {
		return t.point(n.Node.Out[0], "logits", out)
	}
	return nil
}

// point compares a value, where transformers has it and of the same size. Where only the last token's row is computed,
// it is compared with that.
func (t *torchTrace) point(v *graph.Value, name string, read func() ([]float64, error)) error {
	want := t.run.tensor(name, len(t.Tokens))
	n := v.Shape.Elems()
	if want == nil || len(want) != n && len(want) != n*len(t.Tokens) {
		return nil
	}
	x, err := read()
	if err != nil || x == nil {
		return err
	}
	p := torchPoint{Equation: v.Def.Name, Place: v.Def.Place, Block: v.Def.Block, Layer: t.ends[v] == name}
	for prefix, says := range map[string]string{"in:": ", operand", "out:": ", result", "logits": ""} {
		if stem, ok := strings.CutPrefix(name, prefix); ok {
			p.Module = stem + says
		}
	}
	if name == "logits" {
		p.Module, p.Layer = name, true
	}
	p.RelL2, p.MaxAbs = engine.Errors(x, want[len(want)-n:])
	for _, e := range []*float64{&p.RelL2, &p.MaxAbs} {
		if math.IsNaN(*e) || math.IsInf(*e, 0) { // JSON has no word for them
			*e = math.MaxFloat64
		}
	}
	t.Points = append(t.Points, p)
	if p.RelL2 <= t.Tolerance {
		t.agreed[v] = true
	} else if t.First == nil {
		t.First, t.differ = &p, v
	}
	return nil
}

// between lists the equations from what agrees to the first value that differs, which is their last.
func (t *torchTrace) between() []string {
	var all []string
	seen := map[*graph.Value]bool{}
	var walk func(v *graph.Value)
	walk = func(v *graph.Value) {
		if v == nil || v.Def == nil || seen[v] || t.agreed[v] {
			return
		}
		seen[v] = true
		for _, in := range v.Def.In {
			walk(in)
		}
		if !slices.Contains(all, v.Def.Name) {
			all = append(all, v.Def.Name)
		}
	}
	walk(t.differ)
	return all
}

// text prints the layers and what differs, or all that was compared.
func (r *torchReport) text(all bool) string {
	t := report.NewTable("<equation", "<in transformers", "relative L2", "max abs", "<")
	shown := 0
	for i := range r.Points {
		p := &r.Points[i]
		first := r.First != nil && *p == *r.First
		if !all && !p.Layer && !first {
			continue
		}
		verdict := "ok"
		if !(p.RelL2 <= r.Tolerance) {
			verdict = "DIFFERS"
		}
		if first {
			verdict = "DIFFERS first"
		}
		shown++
		t.Row(p.Equation, p.Module, fmt.Sprintf("%.2e", p.RelL2), fmt.Sprintf("%.2e", p.MaxAbs), verdict)
	}
	s := t.String()
	s += fmt.Sprintf("\ncompared with             %s, float64, %d tokens\n", r.Versions, len(r.Tokens))
	s += fmt.Sprintf("values compared           %d, of which %d are shown\n", len(r.Points), shown)
	s += fmt.Sprintf("limit of relative L2      %.0e\n", r.Tolerance)
	for _, n := range r.Notes {
		s += fmt.Sprintf("note                      %s\n", n)
	}
	if r.First != nil {
		s += fmt.Sprintf("first that differs        %s, at %s\n", r.First.Equation, r.First.Place)
		s += fmt.Sprintf("equations to look at      %s: what they read agrees\n", strings.Join(r.Equations, ", "))
	}
	return s + fmt.Sprintf("STATUS=%s\n", r.Status)
}
