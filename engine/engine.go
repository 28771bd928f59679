// Package engine makes a network run: it fuses, selects kernels, plans memory,
// loads weights, captures a step as a program, and replays it per token.
//
// An Engine holds a model's weights on a device. A Session holds the state of
// one sequence; several may live at once. A Step is the captured program for one number of tokens.
package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/quant"
)

// Options say what to run, and where.
type Options struct {
	Model  *models.File
	Source weights.Source // nil: synthetic weights by Seed
	// Adapters are for a Scheduler's requests to name; sessions compute without.
	Adapters []Adapter
	Device   backends.Device
	Context  int                // positions that the caches hold
	Set      map[string]string  // parameters set by the user
	KV       tensor.Type        // of the caches: F16 (default) or F32; F32 means F64 on ref
	DType    tensor.Type        // of weight matrices; Invalid: as stored
	Mix      models.TypeChooser // of synthetic weight matrices, before DType; nil: none
	MixName  string             // what it is called
	Seed     uint64             // of synthetic weights
	Chunk    int                // most tokens in one step of prefill; default 512
	// MultistepTime is how long a program of several steps may take, so that tokens keep coming smoothly, and turns;
	// default 32 ms.
	MultistepTime time.Duration
	NoFuse        bool // run the graph as it is written
	Eager         bool // launch kernels one by one, without capture
	// Progress, if set, is told of loading: bytes done and in all. Where a session loads more
	// weights for a step, no session of the device may be used in it.
	Progress func(done, total int64)
	// Cache says where packed weights are kept on disk; the zero value asks the
	// environment and has defaults.
	Cache packcache.Config
	// Notify, if set, is told in a sentence of what goes less well than it should. It may be called in
	// the device's turn: it must not use sessions of that device.
	Notify func(text string)
	// Precompile has a device that compiles kernels do so while weights are loaded and first steps run, for the first
	// start with a driver or with these kernels. Later ones find what was compiled.
	Precompile bool
	// Custom chooses kernels of the user's own for nodes; nil: there are none.
	Custom CustomChooser

	// TypesOf is the device for whose kernels the types of weights are chosen, so that a reference computes with the
	// same weights; nil: Device.
	TypesOf backends.Device

	like *Engine // whose lowering and types this engine shall follow, node by node: a reference's
}

// SetType makes weight matrices those of a type ("q4_0"), or synthetic ones those of a mix of types, as files of
// that name have them ("q4_k_m", or "mix:q4_0" where a type has the name too). It says whether there is such a name.
func (o *Options) SetType(name string) bool {
	name, file := strings.CutPrefix(strings.ToLower(name), "mix:")
	if t, ok := tensor.ParseType(name); ok && !file && !t.IsInt() && t != tensor.Bool {
		o.DType, o.Mix, o.MixName = t, nil, ""
		return true
	}
	m, err := quant.FindRecipe(name)
	if err != nil {
		return false
	}
	o.Mix = func(size func(string) (int64, bool), has func(string) bool) func(string, tensor.Shape) tensor.Type {
		t := quant.ModelTraits{HasOutput: has("output.weight")}
		t.Read(size)
		return func(name string, shape tensor.Shape) tensor.Type {
			if quant.KeepsType(name, shape) {
				return tensor.Invalid
			}
			return m.Type(name, shape.Last(), t)
		}
	}
	o.DType, o.MixName = tensor.Invalid, m.Name
	if _, single := tensor.ParseType(m.Name); single {
		o.MixName = "mix:" + m.Name
	}
	return true
}

// fill sets the defaults.
func (o *Options) fill() {
	if o.Chunk <= 0 {
		o.Chunk = DefaultChunk
	}
	if o.MultistepTime <= 0 {
		o.MultistepTime = 32 * time.Millisecond
	}
	if o.KV == tensor.Invalid {
		o.KV = tensor.F16
	}
}

// DefaultChunk is the number of tokens that prefill computes at a time.
const DefaultChunk = 512

// maxSteps bounds the captured steps that a session keeps.
const maxSteps = 8

// Engine is a model whose weights are loaded on a device.
type Engine struct {
	ahead    []func() // end what is compiled ahead
	opt      Options
	dev      backends.Device
	mutex    *backends.FairMutex // of the device: held by whoever uses it, or what follows
	weights  map[weightKey]*loaded
	adapters *adapterSet     // nil: there are none
	kept     *packcache.File // holds some of the weights; may be nil
	bytes    int             // of the weights that a decode step reads
	// stepBytes is what the largest step that New knows takes beside weights and caches.
	stepBytes int64
	dense     []byte // for weights that are converted before they are packed, while loading
	times     LoadTimes
	first     *graph.Graph
	wider     map[string]keptWeight // weights of types of their own, by the tensors they are read from; see keep.go
	rows      bool                  // the model says which rows of logits it wants with R
	running   backends.Running      // of the device; to ask for it may ask a driver, which no step does
	queued    bool                  // a step may be submitted behind another one
	chain     bool                  // a program may have several steps
	empty     bool                  // weights have memory but no numbers
	ownKeys   error                 // what a step behind another one is refused with; nil: it is not
	open      bool                  // sessions can be made
	away      bool                  // New has given the turn away
	noted     map[string]bool       // what executables said and Notify was told
}

// New checks the model, selects kernels and loads the weights that they need.
// Nothing is loaded when a check fails.
func New(ctx context.Context, opt Options) (*Engine, error) {
	opt.fill()
	if opt.Context <= 0 {
		return nil, fmt.Errorf("a context of %d positions is not possible", opt.Context)
	}
	adapters, err := newAdapterSet(opt.Adapters, opt.Source)
	if err != nil {
		return nil, err
	}
	if adapters != nil {
		opt.Source = adaptedSource{opt.Source, adapters}
	}
	e := bare(opt)
	e.adapters = adapters
	e.mutex.Lock()
	defer e.mutex.Unlock()
	start := time.Now()
	info := e.dev.Info()
	e.running = info.Running
	e.queued = info.Queued && !opt.Eager
	e.chain = info.Chain > 0 && e.queued
	g, sel, err := e.firstGraph()
	if err != nil {
		return nil, err
	}
	e.first = g
	if err := checkInputs(g, opt.Model.Task() != ""); err != nil {
		return nil, fmt.Errorf("%s: %w", opt.Model.Path(), err)
	}
	e.rows = e.hasRows()
	e.countStep(g, sel)
	jobs := append(e.jobs(g, sel), e.promptJobs()...)
	e.precompile(func(_ context.Context, o Options) error { return DryRun(o, 1, o.Chunk) })
	e.times.Planning = time.Since(start)
	if err := e.load(ctx, jobs); err != nil {
		e.close()
		return nil, err
	}
	for _, n := range g.Nodes {
		e.bytes += weightBytes(n)
	}
	e.ownKeys = e.checkOwnKeys()
	e.open = true
	return e, nil
}

// hasRows says whether a step gives as many rows of its first output as are asked for.
func (e *Engine) hasRows() bool {
	two, err := e.build(1, 2)
	return err == nil && len(two.Outputs) > 0 && two.Outputs[0].Shape.Elems() != e.first.Outputs[0].Shape.Elems()
}

func bare(opt Options) *Engine {
	return &Engine{opt: opt, dev: opt.Device, mutex: opt.Device.Mutex(), weights: map[weightKey]*loaded{},
		noted: map[string]bool{}}
}

// checkInputs refuses inputs that no step fills: they would hold whatever lay
// in memory.
func checkInputs(g *graph.Graph, task bool) error {
	for _, v := range g.Inputs {
		switch {
		case v.Type == tensor.I32 && (v.Name == "tokens" || v.Name == "pos" || v.Name == "last"):
		case v.Type == tensor.I32 && task && slices.Contains(taskInputs, v.Name):
		case v.Type.IsFloat() && (v.Name == "x" || v.Name == "r") && g.Input("tokens") == nil:
		default:
			return fmt.Errorf("nothing fills the input %s: a step has the inputs tokens or x, pos and last", v)
		}
	}
	return nil
}

// checkOwnKeys refuses steps behind the first one where an attention reads the keys of its own step, of which no other
// step knows.
func (e *Engine) checkOwnKeys() error {
	for _, n := range e.first.Nodes {
		own := n.Op == ops.Attention && n.In[1].Root().Kind != graph.State
		if own && !ops.Spans(n) { // a span says of which text of a step a row is
			return fmt.Errorf("%s: the attention %s reads the keys of its own step, not a cache of C rows: all tokens must "+
				"come in one step, none behind it; to go on, push keys and values into states",
				e.opt.Model.Name(), n.Out[0].Name)
		}
	}
	return nil
}

// Device is where the engine runs.
func (e *Engine) Device() backends.Device { return e.dev }

// Options are those that the engine was made with, defaults filled in.
func (e *Engine) Options() Options { return e.opt }

// WeightBytes is what one decode step reads of the weights.
func (e *Engine) WeightBytes() int { return e.bytes }

// CacheBytes is what one decode step reads of the caches where its token sees so many positions.
func (e *Engine) CacheBytes(positions int) float64 {
	sum := 0.0
	for _, n := range e.first.Nodes {
		if n.Op == ops.Attention {
			sum += n.Op.Cost(n, positions).Read - n.Op.Cost(n, 0).Read
		}
	}
	return sum
}

// Decode is the fused graph of a step of one token.
func (e *Engine) Decode() *graph.Graph { return e.first }

// IsBlock says whether the model is a block, with an activation as its input
// instead of tokens.
func (e *Engine) IsBlock() bool { return e.first.Input("tokens") == nil }

// build makes the graph of a step as the model file says it: s tokens, r rows of logits.
func (e *Engine) build(s, r int) (*graph.Graph, error) {
	return e.opt.Model.Build(e.modelOptions(s, r))
}

// modelOptions are what the model's reader needs to know for a step.
func (e *Engine) modelOptions(s, r int) models.Options {
	float, kv := e.dev.Info().Float, e.opt.KV
	if kv == tensor.F32 && float == tensor.F64 {
		kv = tensor.F64
	}
	var w models.Weights
	if e.opt.Source != nil {
		w = e.opt.Source
	}
	return models.Options{Weights: w, Set: e.opt.Set, S: s, C: e.opt.Context, R: r, Float: float, KV: kv,
		DType: e.opt.DType, Narrow: quant.Narrow, Mix: e.opt.Mix, Keep: e.keepsType}
}

// Graph makes the graph of a step and lowers it for the device: rows that are
// not wanted are dropped early, fused operators replace what the device has them for.
// Who shares the device holds its turn.
func (e *Engine) Graph(s, r int) (*graph.Graph, error) { return e.graph(s, r, nil) }

// graph is Graph; with a pool, of a batch of rows of several sequences.
func (e *Engine) graph(s, r int, in *poolSize) (*graph.Graph, error) {
	g, err := e.build(s, r)
	if err != nil {
		return nil, err
	}
	if in != nil {
		if err := e.page(g, r, in); err != nil {
			return nil, err
		}
		if in.adapted {
			if err := e.adapt(g); err != nil {
				return nil, err
			}
		}
	}
	if e.opt.like == nil {
		return g, e.lower(g, e.opt.Device.Info().Fusions, e.has)
	}
	like, err := e.opt.like.graph(s, r, in)
	if err != nil {
		return nil, err
	}
	ops := map[string]string{}
	var fused []string
	for _, n := range like.Nodes {
		ops[n.Name] = n.Op.Name
	}
	if !e.opt.NoFuse {
		fused = e.opt.like.dev.Info().Fusions
	}
	return g, e.lower(g, fused, func(n *graph.Node) bool { return ops[n.Name] == n.Op.Name })
}

func (e *Engine) has(n *graph.Node) bool {
	if e.opt.Custom != nil && e.opt.Custom.Custom(n) != nil {
		return true
	}
	_, err := e.dev.Kernel(n)
	return err == nil
}

// Close frees the weights. Sessions must be closed before.
func (e *Engine) Close() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.close()
}

func (e *Engine) close() error {
	e.open = false
	for _, stop := range e.ahead {
		stop()
	}
	e.ahead = nil
	var first error
	for _, w := range e.weights {
		if err := w.buffer.Free(); err != nil && first == nil {
			first = err
		}
	}
	e.weights = map[weightKey]*loaded{}
	if err := e.kept.Close(); err != nil && first == nil {
		first = err
	}
	e.kept = nil
	return first
}

// weightBytes is what a node reads of its weights in one step of one token:
// a table only its rows, stacked experts only the chosen ones.
func weightBytes(n *graph.Node) int {
	total := 0
	for i, v := range n.In {
		if v == nil || v.Kind != graph.Weight {
			continue
		}
		bytes := v.Bytes()
		switch {
		case n.Op.Name == "embed":
			bytes = v.Type.RowBytes(v.Shape.Last()) * n.Out[0].Shape.Rows()
		case n.Op.Name == "linear_id" && i == 1:
			bytes = bytes / v.Shape[0] * min(v.Shape[0], n.In[2].Shape.Elems())
		}
		total += bytes
	}
	return total
}

// selection is the kernel of each node, nil for views that need none.
type selection []backends.Kernel

// selectKernels asks the device for every node's kernel and lists all that it lacks.
func (e *Engine) selectKernels(g *graph.Graph) (selection, error) {
	sel := make(selection, len(g.Nodes))
	places := place(g)
	var missing []error
	for i, n := range g.Nodes {
		if n.Op.Kind == graph.View && places.aliased(n) {
			continue
		}
		if k := e.custom(n, places); k != nil {
			sel[i] = k
			continue
		}
		k, err := e.dev.Kernel(n)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		sel[i] = k
	}
	if len(missing) > 0 {
		return nil, joinFirst(missing, 5)
	}
	return sel, nil
}

// joinFirst makes one error of the first few distinct ones.
func joinFirst(errs []error, n int) error {
	var lines []string
	for _, err := range errs {
		if !slices.Contains(lines, err.Error()) {
			lines = append(lines, err.Error())
		}
	}
	if len(lines) == 1 {
		return errs[0]
	}
	text := ""
	for i, l := range lines[:min(n, len(lines))] {
		if i > 0 {
			text += "\n"
		}
		text += l
	}
	if more := len(lines) - n; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return fmt.Errorf("%s", text)
}
