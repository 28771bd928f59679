package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/trial"
	"github.com/greta-project/greta/bench/tune"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

// defaultContext bounds the context when the user names none.
const defaultContext = 2048

// modelFlags say what to run and where: the flags that run, check and dump share.
type modelFlags struct {
	lora                      []string
	model, weights, tokenizer string
	backend, device           string
	threads                   int
	context                   int
	chunk                     int
	dtype, kv                 string
	set                       []string
	weightSeed                uint64
	cache, cacheLimit         string
	noFuse, noCapture         bool
	noCustom, checkKernels    bool
	tunedFlags
	exact         bool
	text          bool // the tokenizer is needed for certain
	invariant     bool
	fp16, kernels string
	fp8           bool
	fp8From       *pflag.FlagSet // where --fp8 is

	from *pflag.FlagSet // where these are
	task string         // of the model that is looked for: models.Embed, models.Score, or logits
}

func (f *modelFlags) register(s *pflag.FlagSet) {
	f.from = s
	s.StringVar(&f.model, "model", "", "model file, instead of the one that matches the weights")
	s.StringVar(&f.weights, "weights", "", "weights for a model file: a GGUF, a Hugging Face folder, a llama2.c file "+
		"(default: synthetic)")
	s.StringVar(&f.backend, "backend", "cpu", "device: "+strings.Join(backendNames(), ", "))
	s.StringVar(&f.device, "device", "", "which of a backend's devices: a number, a part of the name, or as greta "+
		"devices lists it (default: the best)")
	s.IntVar(&f.threads, "threads", 0, "threads of the cpu backend (default: all cores)")
	s.IntVar(&f.context, "context", 0, "positions that the caches hold (default: what the model was trained for, at "+
		"most 2048, but room for prompt and --gen)")
	s.IntVar(&f.chunk, "chunk", engine.DefaultChunk, "most tokens in one step of prefill")
	s.StringVar(&f.dtype, "dtype", "", "convert weight matrices to this type (default: as stored; synthetic: f16); "+
		"synthetic ones also to a mix, such as q4_k_m, or mix:q4_0 as files of q4_0 have it")
	s.StringVar(&f.kv, "kv", "f16", "type of the caches: "+strings.Join(kvTypes, ", "))
	s.StringArrayVar(&f.set, "set", nil, "set a parameter of the model file, NAME=VALUE (may be repeated)")
	s.Uint64Var(&f.weightSeed, "weight-seed", 0, "seed of synthetic weights")
	s.StringVar(&f.cache, "cache", "", "folder where packed weights are kept, or off (default: greta/packed in the "+
		"user's folder of caches)")
	s.StringVar(&f.cacheLimit, "cache-limit", "", "most that the folder may hold, such as 20GB")
	s.BoolVar(&f.exact, "exact", false, "cpu: keep activations in f32 in all products; otherwise block formats round "+
		"them to 8 bits, and bf16 weights to bf16 in prefill where the processor has dot products of it")
	s.StringVar(&f.fp16, "fp16", "auto", "vulkan, hip: arithmetic in half precision: on, off, or auto, where it passed "+
		"its check and is as good as asked for")
	f.registerFP8(s, fp8Usage)
	s.StringVar(&f.kernels, "kernels", "", "hip: folder of kernels compiled ahead of time by greta kernels build, used "+
		"before anything is compiled")
	s.BoolVar(&f.noFuse, "no-fuse", false, "run the graph as the model file says it, without fused operators")
	s.BoolVar(&f.noCustom, "no-custom-kernels", false, "leave out the model file's own kernels (kernels:)")
	s.BoolVar(&f.checkKernels, "check-kernels", false,
		"try the model file's own kernels anew, also where a result is kept")
	s.StringArrayVar(&f.lora, "lora", nil,
		"add an adapter to the weights as they are read: a folder of PEFT's or a GGUF adapter (may be repeated)")
	f.tunedFlags.register(s)
}

const fp8Usage = "hip: round activations to 8 bits too where weights are 8-bit floats and several rows meet them, " +
	"for fp8 matrix instructions: faster, each product off by 2.4 %"

func (f *modelFlags) registerFP8(s *pflag.FlagSet, usage string) {
	s.BoolVar(&f.fp8, "fp8", false, usage)
	f.fp8From = s
}

// bundle is a model with all that running it needs.
type bundle struct {
	file      *models.File
	source    weights.Source // nil: synthetic weights
	device    backends.Device
	tokenizer *tokenizer.Tokenizer // nil: none was found
	variants  *tune.Chooser        // of kernels; nil: there are none to choose
	opt       engine.Options       // without a context, unless the user gave one
	paths     []health.Decision    // on the device's fast paths
	custom    []*trial.Decision    // on kernels of the user's own
	times     times                // of opening
	// text gives the tokenizer, which is opened once; nil, as its error may be: there is none.
	text func() (*tokenizer.Tokenizer, error)
	fp8  bool // the command line opts into fp8 instructions, so that they must have something to do
}

// close frees the device and unmaps the weights. Engines must be closed before.
func (b *bundle) close() error {
	var errs []error
	if b.device != nil {
		errs = append(errs, b.device.Close())
	}
	if b.source != nil {
		errs = append(errs, b.source.Close())
	}
	return errlist.Join(errs...)
}

// open finds the model file, the weights and the device. The tokenizer is
// another step, as most verbs need none. What is decided of the device's fast
// paths is said on errw.
func (f *modelFlags) open(ctx context.Context, errw io.Writer, arg string) (_ *bundle, err error) {
	b := &bundle{}
	b.text = sync.OnceValues(func() (*tokenizer.Tokenizer, error) { return f.findTokenizer(b.source) })
	defer func() {
		if err != nil {
			err = errlist.Join(usage(err), b.close())
		}
	}()
	if b.opt, err = f.options(); err != nil {
		return nil, err
	}
	for _, name := range []*string{&arg, &f.weights, &f.tokenizer} {
		if *name, err = localModel(ctx, errw, *name); err != nil {
			return nil, err
		}
	}
	b.fp8 = f.fp8 && given(f.fp8From, "fp8")
	if err := f.openBoth(ctx, b, arg); err != nil {
		return nil, err
	}
	if b.source == nil {
		for _, name := range []string{"cache", "cache-limit"} {
			if given(f.from, name) && !b.opt.Cache.Off {
				return nil, fmt.Errorf("--%s: packed weights are kept of files, not synthetic ones", name)
			}
		}
	}
	for _, w := range deviceWarnings(b.device.Info()) {
		fmt.Fprintf(errw, "greta: %s\n", w)
	}
	if b.paths, err = f.settle(ctx, b.device, func(text string) {
		fmt.Fprintf(errw, "greta: %s\n", text)
	}, false); err != nil {
		return nil, err
	}
	b.times.mark("paths")
	if b.variants, err = f.tunedFlags.apply(b.device); err != nil {
		return nil, err
	}
	b.opt.Model, b.opt.Source, b.opt.Device = b.file, b.source, b.device
	if err := b.checkForced(len(f.force) > 0); err != nil {
		return b, err
	}
	err = f.tryCustom(ctx, b, errw)
	b.times.mark("variants")
	return b, err
}

// openBoth opens the device, and beside that, as drivers take long, the model, its weights and the tokenizer. Of two
// errors it gives the device's.
func (f *modelFlags) openBoth(ctx context.Context, b *bundle, arg string) error {
	b.times = startTimes()
	var device backends.Device
	var alone time.Duration
	start := time.Now()
	opened := aside(ctx, func(context.Context) (err error) {
		device, err = openBackend(f.backend, f.deviceFlags())
		alone = time.Since(start)
		return err
	})
	found := f.find(b, arg)
	b.times.mark("model")
	if found == nil && f.text {
		_, _ = b.text() // whoever asks for it is told what is wrong with it
		b.times.mark("tokenizer")
	}
	failed := <-opened
	b.times.mark("waiting for the device")
	b.times.beside("the device", alone)
	if b.device = device; failed != nil {
		return failed
	}
	return found
}

// checkForced refuses forced variants that no kernel of the model has, before its weights are
// loaded. What else is wrong with the model is said when it is.
func (b *bundle) checkForced(some bool) error {
	if !some {
		return nil
	}
	opt := b.opt
	if opt.Context == 0 {
		opt.Context = withinTable(opt, engine.DefaultChunk)
	}
	var nodes []*graph.Node
	for _, tokens := range []int{1, min(opt.Context, engine.DefaultChunk)} {
		shapes, err := engine.Shapes(opt, tokens, 1)
		if err != nil {
			return nil
		}
		for _, s := range shapes {
			nodes = append(nodes, s.Node)
		}
	}
	return b.variants.Refuse(nodes)
}

// registerInvariant adds the flag of verbs that run several sequences in a step.
func (f *modelFlags) registerInvariant(s *pflag.FlagSet) {
	s.BoolVar(&f.invariant, "invariant", false, "results of a sequence are the same, bit for bit, whatever runs "+
		"beside it; on a processor steps of several rows take longer, on a GPU those of few")
}

func (f *modelFlags) deviceFlags() deviceFlags {
	return deviceFlags{threads: f.threads, device: f.device, exact: f.exact, kernels: f.kernels,
		invariant: f.invariant}
}

// settle turns the device's fast paths on or off, by --fp16 and by what their
// checks say; again repeats checks that were made before.
func (f *modelFlags) settle(ctx context.Context, dev backends.Device, notify func(string),
	again bool) ([]health.Decision, error) {
	choice, err := backends.ParseChoice(f.fp16)
	if err != nil {
		return nil, usagef("--fp16 %v", err)
	}
	warnVersions(dev.Info(), toldVersions(), notify)
	s := health.Settings{FP16: choice, FP8: f.fp8 && (given(f.fp8From, "fp8") || optsIn(dev)), Notify: notify,
		Again: again, Passing: noMemory}
	if self() != nil {
		s.Child = func(path string) child.Command {
			return self("health", "--backend", f.backend, "--device", f.device, "--kernels", f.kernels, path)
		}
	}
	paths, err := health.Apply(ctx, dev, s)
	for _, d := range paths {
		if err != nil && d.Health == health.Failed {
			return paths, &exitError{code: exitFailed, err: err}
		}
	}
	return paths, usage(err)
}

// checkOptIn refuses --fp8 of the command line where it does nothing for some nodes.
func (f *modelFlags) checkOptIn(dev backends.Device, nodes []*graph.Node) error {
	if err := engine.CheckOptIn(dev, nodes); err != nil && given(f.fp8From, "fp8") {
		return usagef("--fp8: %v", err)
	}
	return nil
}

// leaveOptIn turns paths off that a setting opted into.
func leaveOptIn(dev backends.Device) error {
	p := backends.PathsOf(dev)
	for _, path := range p.Paths() {
		if path.OptIn {
			if err := p.SetPath(path.Name, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// optsIn says whether a device has paths that users opt into.
func optsIn(dev backends.Device) bool {
	return slices.ContainsFunc(backends.PathsOf(dev).Paths(), func(p backends.Path) bool { return p.OptIn })
}

// refuseSeed refuses a seed of weights that are not made of it.
func (f *modelFlags) refuseSeed(b *bundle) error {
	if b.source == nil || !given(f.from, "weight-seed") {
		return nil
	}
	return usagef("--weight-seed %d: the weights of %s are real ones", f.weightSeed, b.source.Path())
}

// options are those of the engine that flags give directly.
func (f *modelFlags) options() (engine.Options, error) {
	opt := engine.Options{Context: f.context, Chunk: f.chunk, Seed: f.weightSeed, NoFuse: f.noFuse, Eager: f.noCapture}
	switch {
	case f.context < 0:
		return opt, fmt.Errorf("--context %d: it must be positive", f.context)
	case f.chunk <= 0:
		return opt, fmt.Errorf("--chunk %d: it must be positive", f.chunk)
	}
	if f.dtype != "" {
		if !opt.SetType(f.dtype) {
			return opt, noSuchType("--dtype", f.dtype)
		}
	}
	switch t, _ := tensor.ParseType(f.kv); t {
	case tensor.F16, tensor.F32, tensor.BF16, tensor.F8E4M3, tensor.Q8_0:
		opt.KV = t
	default:
		return opt, fmt.Errorf("--kv %s: caches can be f16, bf16, f32, f8e4m3 or q8_0", f.kv)
	}
	if _, err := backends.ParseChoice(f.fp16); err != nil {
		return opt, fmt.Errorf("--fp16 %w", err)
	}
	if opt.Cache.Off = strings.EqualFold(f.cache, "off"); !opt.Cache.Off {
		opt.Cache.Dir = f.cache
	}
	if f.cacheLimit != "" {
		var err error
		if opt.Cache.Limit, err = packcache.ParseBytes(f.cacheLimit); err != nil {
			return opt, fmt.Errorf("--cache-limit: %w", err)
		}
	}
	opt.Set = map[string]string{}
	for _, s := range f.set {
		name, value, ok := strings.Cut(s, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return opt, fmt.Errorf("--set %s: NAME=VALUE is expected", s)
		}
		opt.Set[name] = strings.TrimSpace(value)
	}
	return opt, nil
}

func floatTypes() []string {
	var names []string
	for _, t := range tensor.Types() {
		if t.IsFloat() || t.IsBlock() {
			names = append(names, t.String())
		}
	}
	return names
}

// noSuchType says what engine.Options.SetType would have taken.
func noSuchType(flag, name string) error {
	return fmt.Errorf("%s %s: no such type; there are %s; for synthetic weights also the mixes %s, and mix:q4_0 and "+
		"the like, what a file of one type has",
		flag, name, strings.Join(floatTypes(), ", "), strings.Join(quant.MixedRecipes(), ", "))
}

// find resolves the argument: a model file, its built-in name, or weights.
func (f *modelFlags) find(b *bundle, arg string) error {
	err := f.resolve(b, arg)
	if err == nil && len(f.lora) > 0 {
		b.source, err = withAdapters(b.source, f.lora)
	}
	if err == nil && b.source != nil && b.opt.Mix != nil {
		return fmt.Errorf("--dtype %s: a mix of types is for synthetic weights; greta quantize %s OUT.gguf --type %s "+
			"writes a file of it", f.dtype, b.source.Path(), strings.TrimPrefix(b.opt.MixName, "mix:"))
	}
	return err
}

// withAdapters merges adapters into weights. It gives the weights beside an error too, as they are to be closed.
func withAdapters(src weights.Source, paths []string) (weights.Source, error) {
	if src == nil {
		return nil, fmt.Errorf("--lora %s: synthetic weights are no base of an adapter", paths[0])
	}
	var all []*lora.Adapter
	for _, path := range paths {
		a, err := openAdapter(path, src)
		if err != nil {
			return src, fmt.Errorf("--lora: %w", err)
		}
		all = append(all, a)
	}
	merged, err := lora.Merge(src, all...)
	if err != nil {
		return src, fmt.Errorf("--lora: %w", err)
	}
	return merged, nil
}

// openAdapter reads an adapter and gives it the names of a base.
func openAdapter(path string, base weights.Source) (*lora.Adapter, error) {
	a, err := lora.Open(path)
	if err != nil || base == nil {
		return a, err
	}
	return convert.Adapter(a, base)
}

func (f *modelFlags) resolve(b *bundle, arg string) error {
	_, err := os.Stat(arg)
	isFile := strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
	switch {
	case errors.Is(err, fs.ErrNotExist) && (isFile || !strings.ContainsAny(arg, `/\`)):
		// models/llama2_block.yaml is part of the program, wherever it is run.
		if b.file, err = models.Builtin(arg); err != nil {
			return noSuchModel(arg)
		}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file or folder", arg)
	case err != nil:
		return err
	case isFile:
		if b.file, err = models.Load(arg); err != nil {
			return err
		}
	}
	if b.file != nil {
		if given(f.from, "model") {
			return fmt.Errorf("%s is a model file already; --model names one for weights", arg)
		}
		if f.weights != "" {
			if b.source, err = open.Open(f.weights); err == nil {
				err = b.file.Fits(b.source)
			}
		}
		return err
	}
	if given(f.from, "weights") {
		return fmt.Errorf("%s are weights already; --weights goes with a model file", arg)
	}
	if b.source, err = open.Open(arg); err != nil {
		return err
	}
	if f.model == "" {
		dir := arg
		if info, err := os.Stat(arg); err == nil && !info.IsDir() {
			dir = filepath.Dir(arg)
		}
		if own := filepath.Join(dir, "greta.yaml"); exists(own) { // a model file that came with the weights
			b.file, err = models.Load(own)
			return err
		}
		b.file, err = models.MatchTask(b.source, f.task)
		return err
	}
	if _, err := os.Stat(f.model); errors.Is(err, fs.ErrNotExist) {
		if b.file, err = models.Builtin(f.model); err != nil {
			return fmt.Errorf("--model %w", noSuchModel(f.model))
		}
	} else if b.file, err = models.Load(f.model); err != nil {
		return err
	}
	if err := b.file.Fits(b.source); err != nil {
		return fmt.Errorf("--model %w", err)
	}
	return nil
}

// noSuchModel says that neither a file nor a built-in model file has a name.
func noSuchModel(arg string) error {
	hint := ""
	stem := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(arg), ".yaml"), ".yml")
	if near := lang.Nearest(stem, models.Names()); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("%s: no such file or folder, and no built-in model file of this name%s (there are %s)", arg, hint,
		strings.Join(models.Names(), ", "))
}

// trained is the context that the weights were trained for, 0 where unknown.
func (b *bundle) trained() int {
	if b.source == nil {
		return 0
	}
	keys := []string{"max_position_embeddings", "n_positions"}
	if arch, ok := b.source.Meta("general.architecture"); ok {
		keys = append(keys, fmt.Sprint(arch)+".context_length")
	}
	for _, k := range keys {
		if v, ok := hfclass.Own(b.source.Meta, k); ok {
			if n, ok := v.(int64); ok && n > 0 && n < 1<<31 {
				return int(n)
			}
		}
	}
	return 0
}

// fitContext sets the context: what the user asked for, else what the model
// was trained for up to a bound, but room for what is needed, where no table of positions says how many there are.
func (b *bundle) fitContext(need int) {
	if b.opt.Context > 0 {
		return
	}
	n := defaultContext
	if t := b.trained(); t > 0 {
		n = min(n, t)
	}
	opt := b.opt
	opt.Model, opt.Source = b.file, b.source
	b.opt.Context = withinTable(opt, max(n, need))
}

// withinTable cuts a context that nobody asked for to the rows of the table in which a model looks positions up; one
// that is asked for is refused where it is longer, as the file is built.
func withinTable(o engine.Options, context int) int {
	if o.Model == nil {
		return context
	}
	m := models.Options{Set: o.Set}
	if o.Source != nil {
		m.Weights = o.Source
	}
	if rows := o.Model.Positions(m); rows > 0 {
		return min(context, rows)
	}
	return context
}

// mostText is the longest text that standard input may be: an input without an end is refused before memory is full.
const mostText = 256 << 20

// readPrompt gives the text of --prompt; - is standard input, but for a newline
// at its end, which echo and editors put there.
func (a *app) readPrompt(prompt string) (string, error) {
	text, err := a.rawText(prompt)
	if err == nil && prompt == "-" {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	return text, err
}

// rawText is readPrompt that keeps a newline at the end.
func (a *app) rawText(prompt string) (string, error) {
	if prompt != "-" {
		return prompt, nil
	}
	text, err := readAll(a.in, mostText)
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	return text, nil
}

// readText reads a text of at most so many bytes, without the newline at its end.
func readText(from io.Reader, most int) (string, error) {
	text, err := readAll(from, most)
	return strings.TrimSuffix(text, "\n"), err
}

func readAll(from io.Reader, most int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(most)+1))
	if err == nil && len(data) > most {
		err = usagef("the text is longer than %d bytes", most)
	}
	return string(data), err
}

// load makes the engine, with a progress bar on a terminal.
func (a *app) load(ctx context.Context, b *bundle) (*engine.Engine, error) {
	if mapped.Handler != nil { // a program of its own, not a test
		mapped.Abrupt()
	}
	opt := b.opt
	bar := newBar(a.err, "loading")
	if bar != nil {
		opt.Progress = bar.set
	}
	opt.Notify = func(text string) {
		bar.clear()
		fmt.Fprintf(a.err, "greta: %s\n", text)
	}
	opt.Precompile = slices.ContainsFunc(b.paths, func(d health.Decision) bool { return d.Fresh })
	e, err := engine.New(ctx, opt)
	settleHeap()
	bar.clear()
	if err == nil {
		switch err := e.CheckOptIn(); {
		case err != nil && b.fp8:
			return nil, errlist.Join(usagef("--fp8: %v", err), e.Close())
		case err != nil: // a setting's: no kernel is another without it
			if err := leaveOptIn(b.device); err != nil {
				return nil, errlist.Join(err, e.Close())
			}
		}
	}
	return e, loadError(err)
}

// sourceName is what reports call the weights.
func (b *bundle) sourceName() (path, format string) {
	if b.source == nil {
		return "synthetic", "synthetic"
	}
	return filepath.Clean(b.source.Path()), b.source.Format()
}
