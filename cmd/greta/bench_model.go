package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/model"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/platform"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// benchModelFlags are those of bench model.
type benchModelFlags struct {
	benchFlags
	modelFlags
	profile                           string
	prompt, gen, depth                string
	threadList, dtypes, kvList, chunk string
	noWarmUp                          bool
	parallel                          string
	shared, rows                      int
	capture                           string
	captures                          []int // as numbers
	arrivals                          float64
	batches                           []int // parallel, as numbers
}

func (a *app) benchModelCmd() *cobra.Command {
	f := &benchModelFlags{}
	c := &cobra.Command{
		Use:   "model FILE...",
		Short: "Measure prefill and decode of models, as llama-bench does",
		Long: `model measures prefill of a prompt (pp512: 512 tokens) and decode one token at a time
(tg128: 128 tokens), with an empty cache or behind so many tokens (@ d512). A FILE is
what greta run takes; a model file without --weights gets synthetic weights. The
columns are llama-bench's. A second table has medians with their 95 % intervals, the
time from the prompt to the first token and between tokens, and where the time of a
step goes: kernels per block and outside of blocks, their sum against the whole
step, and what is lost between them.

In the same run the first positions are compared with a float64 reference, prefill
with decode at the test's last position, and the logits behind every repetition
must be the same bits. Lists are as for bench op: 128,512 or 128..1024*2.`,
		Example: `  greta bench model models/llama2_7b.yaml --backend hip -p 512 -n 128 -d 0,512,2048
  greta bench model tinyllama.gguf -t 1,2,4 -o json
  greta bench model llama2_block --dtype f16,q4_0 -p 512 -n 0`,
		RunE: func(c *cobra.Command, args []string) error { return a.benchModel(c, f, args) },
	}
	s := c.Flags()
	s.SortFlags = false
	f.from = s
	s.StringVarP(&f.prompt, "prompt", "p", "512", "tokens of prefill, a list; 0: no prefill")
	s.StringVarP(&f.gen, "gen", "n", "128", "tokens of decode, a list; 0: no decode")
	s.StringVarP(&f.depth, "depth", "d", "0", "tokens in the caches before, a list")
	s.StringVar(&f.parallel, "parallel", "",
		"sequences at once, a list, 1,8,32: measures -p and -n of all of them together, as llama-batched-bench does")
	s.IntVar(&f.shared, "shared-prefix", 0, "with --parallel: tokens with which all prompts begin")
	s.IntVar(&f.rows, "rows", 256, "with --parallel: most tokens in one step; no less than twice the sequences")
	s.StringVar(&f.capture, "capture", "", "with --parallel: numbers of rows, 1,4,8 or 1..64*2, whose steps are captured "+
		"before anything is measured")
	s.Float64Var(&f.arrivals, "arrivals", 0, "with --parallel: simulate a load of so many requests a second on average, "+
		"which come at random, and print the times to the first token and between tokens")
	f.registerInvariant(s)
	s.StringVarP(&f.threadList, "threads", "t", "0", "threads of the cpu backend, a list; 0: all cores")
	s.StringVar(&f.dtypes, "dtype", "", "convert weight matrices to these types, f16,q4_0 (default: as stored; "+
		"synthetic: f16); synthetic ones also to mixes, q4_k_m")
	s.StringVar(&f.kvList, "kv", "f16", "types of the caches, a list of "+strings.Join(kvTypes, ", "))
	s.StringVar(&f.chunk, "chunk", strconv.Itoa(engine.DefaultChunk), "most tokens in one step of prefill, a list")
	s.StringVar(&f.profile, "profile", "", "measure what a profile says: "+strings.Join(profile.Names(),
		", ")+", or a file")
	s.StringVar(&f.model, "model", "", "model file, instead of the one that matches the weights")
	s.StringVar(&f.weights, "weights", "", "weights for a model file (default: synthetic)")
	s.StringArrayVar(&f.set, "set", nil, "set a parameter of the model file, NAME=VALUE (may be repeated)")
	s.IntVar(&f.context, "context", 0, "positions that the caches hold (default: 2048, or what is needed)")
	s.Uint64Var(&f.weightSeed, "weight-seed", 0, "seed of synthetic weights and of the input")
	s.StringVar(&f.cache, "cache", "", "folder where packed weights are kept, or off (default: greta/packed in the "+
		"user's folder of caches)")
	s.StringVar(&f.cacheLimit, "cache-limit", "", "most that the folder may hold, such as 20GB")
	s.BoolVar(&f.noFuse, "no-fuse", false, "run the graph as the model file says it, without fused operators")
	s.BoolVar(&f.noWarmUp, "no-warmup", false, "count the first repetition, which captures steps and starts from "+
		"idle clocks")
	s.StringVar(&f.backend, "backend", "cpu", "device: "+strings.Join(backendNames(), ", "))
	s.StringVar(&f.device, "device", "", "which of a backend's devices: a number, a part of the name, or as greta "+
		"devices lists it (default: the best)")
	s.BoolVar(&f.exact, "exact", false, "cpu: keep activations in f32 in all products; otherwise block formats round "+
		"them to 8 bits, and bf16 weights to bf16 in prefill where the processor has dot products of it")
	s.StringVar(&f.fp16, "fp16", "auto", "vulkan, hip: arithmetic in half precision: on, off, or auto, where it passed "+
		"its check and is as good as asked for")
	f.registerFP8(s, fp8Usage)
	s.StringVar(&f.kernels, "kernels", "", "hip: folder of kernels compiled ahead of time by greta kernels build, used "+
		"before anything is compiled")
	f.tunedFlags.register(s)
	f.benchFlags.register(s, 5, 0)
	return c
}

// modelJob is one model with lists of tests.
type modelJob struct {
	arg                                    string
	prompts, gens, depths, threads, chunks []int
	dtypes, kvs                            []string
	set                                    []string
	where                                  func(keys ...string) string // in a profile; nil: flags say it
}

// value names where a value comes from: its flag, or its place in the profile.
func (j *modelJob) value(name string) string {
	if j.where == nil {
		return "--" + name
	}
	return j.where(name)
}

func (a *app) benchModel(c *cobra.Command, f *benchModelFlags, args []string) error {
	if err := f.benchFlags.check(); err != nil {
		return err
	}
	if err := f.checkParallel(c); err != nil {
		return usage(err)
	}
	jobs, name, err := f.jobs(c, args)
	if err != nil {
		return usage(err)
	}
	for _, j := range jobs { // a slip of the pen is found before anything is measured
		for _, d := range j.dtypes {
			for _, kv := range j.kvs {
				m := f.one(&j, d, kv, j.threads[0], j.chunks[0])
				b := &bundle{}
				if b.opt, err = m.options(); err == nil {
					err = m.find(b, j.arg)
				}
				if err = errlist.Join(err, b.close()); err != nil {
					if j.where != nil {
						err = fmt.Errorf("%s: %w", j.where(), err)
					}
					return usage(err)
				}
			}
		}
	}
	first := f.modelFlags
	first.threads = jobs[0].threads[0]
	dev, err := openBackend(first.backend, first.deviceFlags())
	if err != nil {
		return err
	}
	if f.dryRun {
		return errlist.Join(listTests(a.out, jobs), dev.Close())
	}
	why := software(dev.Info(), f.device)
	s, err := a.newBenchSession(c.Context(), &f.benchFlags, "model", name, dev)
	report := format.Models
	switch {
	case f.arrivals > 0:
		report = format.Loads
	case len(f.batches) > 0:
		report = format.Batches
	}
	if err == nil {
		var roofs record.Roofs
		roofs, err = s.roofs(dev)
		if err = errlist.Join(err, dev.Close()); err != nil {
			return errlist.Join(err, s.release())
		}
		return s.supervise(c.Context(), func(ctx context.Context) error {
			for _, j := range jobs {
				if err := f.measure(ctx, s, &j, roofs, why); err != nil {
					return err
				}
			}
			return nil
		}, report)
	}
	return errlist.Join(err, dev.Close())
}

// listTests prints what jobs would measure, a test a line.
func listTests(w io.Writer, list []modelJob) error {
	var b strings.Builder
	for _, j := range list {
		for _, d := range j.dtypes {
			for _, kv := range j.kvs {
				for _, depth := range j.depths {
					line := func(kind string, n int) {
						if n > 0 {
							fmt.Fprintln(&b, strings.Join(slices.DeleteFunc([]string{modelName(j.arg), d, "kv " + kv,
								fmt.Sprintf("%s%d @ d%d", kind, n, depth)}, func(s string) bool {
								return s == ""
							}), ", "))
						}
					}
					for _, n := range j.prompts {
						line("pp", n)
					}
					for _, n := range j.gens {
						line("tg", n)
					}
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// jobs reads the flags, or the profile, that say what to measure.
func (f *benchModelFlags) jobs(c *cobra.Command, args []string) ([]modelJob, string, error) {
	changed := c.Flags().Changed
	base := modelJob{set: f.set, dtypes: strings.Split(f.dtypes, ","), kvs: strings.Split(f.kvList, ",")}
	var err error
	if base.threads, err = profile.Sizes(f.threadList); err != nil {
		return nil, "", fmt.Errorf("--threads: %w", err)
	}
	if base.chunks, err = profile.Sizes(f.chunk); err != nil {
		return nil, "", fmt.Errorf("--chunk: %w", err)
	}
	if f.profile == "" {
		if len(args) == 0 {
			return nil, "", fmt.Errorf("name a model or a --profile; greta bench model --help says more")
		}
		if err := base.lists(f.prompt, f.gen, f.depth); err != nil {
			return nil, "", err
		}
		var jobs []modelJob
		for _, arg := range args {
			j := base
			j.arg = arg
			jobs = append(jobs, j)
		}
		return jobs, "", nil
	}
	for _, name := range []string{"prompt", "gen", "depth", "dtype", "set", "model", "weights"} {
		if given(c.Flags(), name) {
			return nil, "", fmt.Errorf("--profile says what to measure: --%s does not go with it", name)
		}
	}
	if len(args) > 0 {
		return nil, "", fmt.Errorf("--profile says what to measure: no model goes with it")
	}
	p, err := profile.Load(f.profile)
	if err != nil {
		return nil, "", err
	}
	if len(p.Model) == 0 {
		return nil, "", fmt.Errorf("profile %s has no models", p.Name)
	}
	if p.Repetitions > 0 && !changed("repetitions") {
		f.repetitions = p.Repetitions
	}
	if p.MinTime > 0 && !changed("min-time") {
		f.minTime = p.MinTime
	}
	var jobs []modelJob
	for i, m := range p.Model {
		j := base
		j.where = func(keys ...string) string { return p.Where("model", i, keys...) }
		j.arg, j.dtypes = m.Model, strings.Split(m.DType, ",")
		for _, k := range slices.Sorted(maps.Keys(m.Set)) {
			j.set = append(j.set, k+"="+m.Set[k])
		}
		if err := j.lists(or(string(m.Prompt), "512"), or(string(m.Gen), "128"), or(string(m.Depth), "0")); err != nil {
			return nil, "", err
		}
		jobs = append(jobs, j)
	}
	return jobs, p.Name, nil
}

// lists reads the sizes of the tests.
func (j *modelJob) lists(prompt, gen, depth string) error {
	for _, l := range []struct {
		flag, text string
		to         *[]int
	}{{"prompt", prompt, &j.prompts}, {"gen", gen, &j.gens}, {"depth", depth, &j.depths}} {
		list, err := profile.Sizes(l.text)
		if err != nil {
			return fmt.Errorf("%s: %w", j.value(l.flag), err)
		}
		if l.flag != "depth" {
			list = slices.DeleteFunc(list, func(n int) bool { return n == 0 })
		}
		*l.to = list
	}
	if len(j.prompts)+len(j.gens) == 0 {
		if j.where != nil {
			return fmt.Errorf("%s: prompt 0 and gen 0 leave nothing to measure", j.where())
		}
		return fmt.Errorf("-p 0 -n 0 leaves nothing to measure")
	}
	return nil
}

// checkParallel reads --parallel, and refuses what goes with it alone.
func (f *benchModelFlags) checkParallel(c *cobra.Command) (err error) {
	if f.parallel == "" {
		for _, name := range []string{"shared-prefix", "rows", "capture", "arrivals", "invariant"} {
			if given(c.Flags(), name) {
				return fmt.Errorf("--%s is for many sequences at once: give --parallel", name)
			}
		}
		return nil
	}
	if f.batches, err = profile.Sizes(f.parallel); err != nil {
		return fmt.Errorf("--parallel: %w", err)
	}
	if slices.Min(f.batches) < 1 || f.shared < 0 || f.rows < 1 {
		return fmt.Errorf("--parallel %s, --shared-prefix %d, --rows %d: sequences and rows must be positive, a prefix 0 "+
			"or more",
			f.parallel, f.shared, f.rows)
	}
	if f.arrivals < 0 || math.IsInf(f.arrivals, 0) || math.IsNaN(f.arrivals) {
		return fmt.Errorf("--arrivals %g: requests a second, a positive number", f.arrivals)
	}
	if f.capture != "" {
		if f.captures, err = profile.Sizes(f.capture); err != nil {
			return fmt.Errorf("--capture: %w", err)
		}
	}
	if f.profile != "" {
		return fmt.Errorf("--parallel does not go with --profile")
	}
	p, err := profile.Sizes(f.prompt)
	n, err2 := profile.Sizes(f.gen)
	if err = errlist.Join(err, err2); err == nil && (slices.Contains(p, 0) || slices.Contains(n, 0)) {
		err = fmt.Errorf("--parallel measures -p and -n together: neither may be 0")
	}
	return err
}

// one gives the flags of one combination.
func (f *benchModelFlags) one(j *modelJob, dtype, kv string, threads, chunk int) *modelFlags {
	m := f.modelFlags
	m.dtype, m.kv, m.threads, m.chunk, m.set = strings.TrimSpace(dtype), strings.TrimSpace(kv), threads, chunk, j.set
	return &m
}

// measure runs the tests of a job in every combination of types, threads and chunks.
func (f *benchModelFlags) measure(ctx context.Context, s *benchSession, j *modelJob, roofs record.Roofs,
	why string) error {
	for _, d := range j.dtypes {
		for _, kv := range j.kvs {
			for _, threads := range j.threads {
				for _, chunk := range j.chunks {
					if why != "" {
						r := record.Result{Bench: "model", Params: map[string]string{"model": modelName(j.arg)}, Clock: record.HostClock}
						guard.Skip(&r, "%s", why)
						s.add(r)
						continue
					}
					if err := f.measureBoth(ctx, s, j, f.one(j, d, kv, threads, chunk), roofs); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// measureBoth measures a combination; with --invariant first without it, and says what it costs.
func (f *benchModelFlags) measureBoth(ctx context.Context, s *benchSession, j *modelJob, m *modelFlags,
	roofs record.Roofs) error {
	if !m.invariant {
		return f.measureOne(ctx, s, j, m, roofs, func(r record.Result) { s.add(r) })
	}
	key := func(r *record.Result) string {
		return fmt.Sprint(r.Bench, r.Params["b"], r.Params["depth"])
	}
	plain, without := *m, map[string]record.Result{}
	plain.invariant = false
	err := f.measureOne(ctx, s, j, &plain, roofs, func(r record.Result) {
		without[key(&r)] = r
		s.add(r)
	})
	if err != nil {
		return err
	}
	return f.measureOne(ctx, s, j, m, roofs, func(r record.Result) {
		old, both := without[key(&r)], []string{}
		for _, part := range []struct{ name, metric string }{
			{"prompts", format.PromptTime}, {"decode", format.GenTime}, {"the load", format.LoadTime},
		} {
			if a, b := old.Metrics[part.metric], r.Metrics[part.metric]; a > 0 && b > 0 {
				r.Metrics["invariant_cost_"+part.metric] = b / a
				both = append(both, fmt.Sprintf("%s %.2f", part.name, b/a))
			}
		}
		fmt.Fprintf(s.app.err, "greta: --invariant, %s sequences at depth %s: times what it takes without: %s\n",
			r.Params["b"],
			r.Params["depth"], strings.Join(both, ", "))
		s.add(r)
	})
}

func (f *benchModelFlags) measureOne(ctx context.Context, s *benchSession, j *modelJob, m *modelFlags,
	roofs record.Roofs, add func(record.Result)) (err error) {
	b, err := m.open(ctx, s.app.err, j.arg)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, b.close()) }()
	o := model.Options{
		Name: modelName(j.arg), Prompts: j.prompts, Gens: j.gens, Depths: j.depths, Repetitions: f.repetitions,
		MinTime: f.minTime, NoWarmUp: f.noWarmUp, Roofs: roofs,
		Reference: func() (backends.Device, error) { return openBackend("ref", deviceFlags{}) },
		Say:       s.say, Emit: func(r record.Result) {
			tuned, _ := b.variants.Choices()
			if r.Config = strings.Join(m.force, " "); len(tuned) > 0 {
				r.Metrics = maps.Clone(r.Metrics)
				if r.Metrics == nil {
					r.Metrics = map[string]float64{}
				}
				r.Metrics["tuned_kernels"] = float64(len(tuned))
			}
			add(r)
		},
	}
	if info := b.device.Info(); info.Backend == "cpu" {
		processor, err := platform.ModelCPU(info.Level, info.Threads)
		if err != nil {
			return err
		}
		bf16 := op.Rounding(b.device).BF16
		o.Peaks = func(weights ...tensor.Type) record.Roofs { return processor.Roofs(bf16, weights...) }
	}
	o.Parallel, o.Shared, o.Rows, o.Capture, o.Arrivals = f.batches, f.shared, f.rows, f.captures, f.arrivals
	if len(j.set) > 0 {
		o.Name += " " + strings.Join(j.set, " ")
	}
	b.fitContext(o.Need())
	if need := o.Need(); need > b.opt.Context {
		return usagef("--context %d does not hold the %d positions that the tests need", b.opt.Context, need)
	}
	bar := newBar(s.app.err, "loading")
	if bar != nil {
		b.opt.Progress = bar.set
	}
	b.opt.Notify = func(text string) {
		bar.clear()
		fmt.Fprintf(s.app.err, "greta: %s\n", text)
	}
	o.Engine = b.opt
	if len(f.batches) > 0 {
		err = model.RunBatches(ctx, o)
	} else {
		err = model.Run(ctx, o)
	}
	bar.clear()
	if err == nil {
		err = usage(b.variants.Check())
	}
	return loadError(err)
}

// modelName is what results call a model: the file's name, without what says
// that it is one.
func modelName(arg string) string {
	name := filepath.Base(filepath.Clean(arg))
	for _, suffix := range []string{".yaml", ".yml", ".gguf", ".bin"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
