package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// benchOpFlags are those of bench op.
type benchOpFlags struct {
	benchFlags
	modelFlags
	opModel, profile  string
	sizes             map[string]*string
	types, kvs, at    string
	attrs, with       []string
	prompt, depth     string
	cacheState, force string
	endToEnd          bool
	kernelFile        string // describes kernels of one's own
	own               []*custom.Kernel
}

// maxCases bounds what one command line may ask for.
const maxCases = 10_000

func (a *app) benchOpCmd() *cobra.Command {
	f := &benchOpFlags{sizes: map[string]*string{}}
	c := &cobra.Command{
		Use:   "op [OPERATOR...]",
		Short: "Measure operators, alone or at a model's shapes",
		Long: `op measures operators and fused operators one by one. Each result is compared with
a float64 reference over the whole output, in the same run; a wrong one is not
timed. Sizes are named as in the operator's signature (greta ops), in lower case;
m are the rows before it. A list of sizes is

  1,8,512          these
  4096..16384*2    4096, 8192, 16384
  64..256+64       64, 128, 192, 256

and all combinations are measured. With --model the shapes are those of a model's
steps of prefill and decode, as they are fused for the device, with how often a
step has each.

On a GPU the time of an operation is that of a captured program of many, each
waiting for the one before, divided by their number; the host's time is that of
one alone. On the CPU each is timed by itself. Nothing is allocated, copied or
compiled meanwhile. Cold operands rotate through four times the last-level cache.`,
		Example: `  greta bench op linear --m 1,8,512 --k 4096 --n 4096..16384*2 --dtype f16,q4_0
  greta bench op --model llama2_7b --backend hip
  greta bench op attention --c 512..8192*2 -o benchstat --no-store
  greta bench op --kernel examples/kernels/fp8.yaml --backend hip --m 1,64
  greta bench op --profile standard`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.benchOp(c, f, args)
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.registerSelection(s)
	s.StringVar(&f.cacheState, "cache", "", "state of the caches: cold, warm or both (default: cold; what is too small "+
		"for that, warm)")
	s.BoolVar(&f.endToEnd, "e2e", false, "also with the copies of activations and results between host and device")
	s.StringVar(&f.kernelFile, "kernel", "", "file with kernels of one's own (kernels:): each is checked, then measured "+
		"beside greta's own; without operators: theirs")
	s.StringVar(&f.force, "config", "", "variant of the kernels, of those that the device has")
	f.registerDevice(s)
	f.benchFlags.register(s, 10, 200*time.Millisecond)
	return c
}

// registerSelection adds the flags that say which operators, at which sizes.
func (f *benchOpFlags) registerSelection(s *pflag.FlagSet) {
	s.StringVar(&f.opModel, "model", "", "measure the shapes of this model: a model file, a built-in name, or weights; "+
		"with operators: only theirs")
	s.StringVar(&f.profile, "profile", "", "measure what a profile says: "+strings.Join(profile.Names(),
		", ")+", or a file")
	s.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "type" { // what --dtype was called
			name = "dtype"
		}
		return pflag.NormalizedName(name)
	})
	s.StringVar(&f.types, "dtype", "", "types of weight matrices, f16,q4_0; --type is the same (default: f16; with "+
		"--model as stored)")
	s.StringVar(&f.kvs, "kv", "f16", "types of caches, f16,f32")
	users := sizeUsers()
	for _, name := range slices.Sorted(maps.Keys(users)) {
		f.sizes[name] = s.String(name, "", "sizes of "+someOf(users[name]))
	}
	s.StringVar(&f.at, "at", "", "position of the first token, a list (default: such that the last token fills the cache)")
	s.StringArrayVar(&f.attrs, "attr", nil, "set an attribute, NAME=VALUE (may be repeated)")
	s.StringSliceVar(&f.with, "with", nil, "optional operands that are given, such as b")
	s.StringVar(&f.prompt, "prompt", "512", "with --model: tokens of prefill, a list; 0: none")
	s.StringVar(&f.depth, "depth", "512", "with --model: position of the token that is decoded, a list")
	s.IntVar(&f.context, "context", 0, "with --model: positions that the caches hold (default: 2048, or what is needed)")
	s.StringArrayVar(&f.set, "set", nil, "with --model: set a parameter of the model file, NAME=VALUE (may be repeated)")
	s.BoolVar(&f.noFuse, "no-fuse", false, "with --model: the graph as the file says it, without fused operators")
}

// sizeUsers names the operators that have each size.
func sizeUsers() map[string][]string {
	users := map[string][]string{}
	for _, o := range ops.All() {
		for _, d := range op.Dims(o) {
			users[d] = append(users[d], o.Name)
		}
	}
	return users
}

// sizeNames are the sizes of all operators.
func sizeNames() []string { return slices.Sorted(maps.Keys(sizeUsers())) }

// someOf lists operators, not more than a line holds.
func someOf(users []string) string {
	if len(users) > 4 {
		users = append(users[:3:3], fmt.Sprintf("%d more", len(users)-3))
	}
	return strings.Join(users, ", ")
}

// opSelection is what a command line, or an entry of a profile, asks for.
type opSelection struct {
	ops, with       []string
	model           string
	sizes, attrs    map[string]string
	types, kvs, at  string
	prompt, depth   string
	set             []string
	context         int
	cache           string
	stored, byModel bool // types as stored; sizes are the model's
	// where names a value of the profile that this is of, by its keys; nil: it is of flags.
	where func(keys ...string) string
}

// value names where a value comes from: its flag, or its place in the profile.
func (s *opSelection) value(flag string, keys ...string) string {
	if s.where == nil {
		return "--" + flag
	}
	return s.where(keys...)
}

// opJob is a case with the state of the caches in which it is wanted.
type opJob struct {
	*op.Case
	cold, warm, orWarm bool
}

func (a *app) benchOp(c *cobra.Command, f *benchOpFlags, args []string) error {
	if err := f.benchFlags.check(); err != nil {
		return err
	}
	args, err := f.loadKernels(c.Flags(), args)
	if err != nil {
		return usage(err)
	}
	list, name, err := f.selections(c, args)
	if err != nil {
		return usage(err)
	}
	ctx := c.Context()
	dev, err := f.openDevice(ctx, a)
	if err != nil {
		return err
	}
	s, err := a.benchOpOn(ctx, f, dev, list, name)
	if s == nil {
		return errlist.Join(err, dev.Close())
	}
	return errlist.Join(err, s.close(dev))
}

func (a *app) benchOpOn(ctx context.Context, f *benchOpFlags, dev backends.Device, list []opSelection,
	profileName string) (*benchSession, error) {
	if _, ok := backends.Tuned(dev); f.force != "" && !ok {
		return nil, usagef("--config %s: the kernels of the %s backend have one configuration each", f.force,
			dev.Info().Backend)
	}
	var jobs []opJob
	for i := range list {
		cases, err := f.cases(ctx, dev, &list[i])
		if err != nil {
			if w := list[i].where; w != nil && !strings.HasPrefix(err.Error(), "profile ") {
				err = fmt.Errorf("%s: %w", w(), err)
			}
			return nil, usage(err)
		}
		for _, c := range cases {
			cache := list[i].cache
			jobs = append(jobs, opJob{c, cache != record.Warm, cache == record.Warm || cache == "both", cache == ""})
		}
		if len(jobs) > maxCases {
			return nil, usagef("more than %d benchmarks are asked for", maxCases)
		}
	}
	jobs, err := f.besideOwn(ctx, a, dev, jobs)
	if err != nil {
		return nil, err
	}
	if err := f.optIn(dev, jobs); err != nil {
		return nil, err
	}
	if f.dryRun {
		return nil, a.listJobs(f, dev, jobs)
	}
	s, err := a.newBenchSession(ctx, &f.benchFlags, "op", profileName, dev)
	if err != nil {
		return nil, err
	}
	return s, s.supervise(ctx, func(ctx context.Context) error {
		roofs, err := s.roofs(dev)
		if err != nil {
			return err
		}
		why := software(dev.Info(), f.device)
		for i, j := range jobs {
			if why != "" {
				r := record.Result{Bench: "op/" + j.Node.Op.Name, Params: j.Params, Clock: record.DeviceClock}
				guard.Skip(&r, "%s", why)
				s.add(r)
				continue
			}
			s.say("%d of %d: %s", i+1, len(jobs), j.Name())
			results, err := op.Measure(ctx, dev, j.Case, op.Options{Cold: j.cold, Warm: j.warm, OrWarm: j.orWarm,
				Repetitions: f.repetitions, MinTime: f.minTime, EndToEnd: f.endToEnd, Config: f.force,
				Roofs: s.roofsFor(roofs, dev.Info(), j.Params["type"])})
			s.add(results...)
			for i := range results { // what has no weights is held against the rate at which others were read
				if m := results[i].Roofs.MeasuredReadGBs; dev.Info().Backend == "cpu" && m > 0 {
					roofs.MeasuredReadGBs = max(roofs.MeasuredReadGBs, m)
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // the others can still be measured
				r := record.Result{Bench: "op/" + j.Node.Op.Name, Params: j.Params, Config: f.force, Clock: record.DeviceClock,
					Verdict: record.Failed, Reason: err.Error()}
				if exitCode(err) == exitMemory {
					guard.Skip(&r, "%v", err)
					s.noMemory(fmt.Errorf("%s: %w", j.Name(), err))
				}
				s.add(r)
			}
		}
		return nil
	}, format.Results)
}

// optIn marks the cases that --fp8 changes: theirs is another accuracy, not to be compared with results without.
func (f *benchOpFlags) optIn(dev backends.Device, jobs []opJob) error {
	var nodes []*graph.Node
	for _, j := range jobs {
		nodes = append(nodes, j.Node)
		if backends.TakesOptedIn(dev, j.Node) {
			j.Params["fp8"] = "on"
		}
	}
	return f.checkOptIn(dev, nodes)
}

// listJobs prints the cases, and refuses a variant that none of their kernels has.
func (a *app) listJobs(f *benchOpFlags, dev backends.Device, jobs []opJob) error {
	var have []string
	tuned, _ := backends.Tuned(dev)
	for _, j := range jobs {
		have = append(have, tuned.Variants(j.Node)...)
	}
	if f.force != "" && !slices.Contains(have, f.force) {
		slices.Sort(have)
		return usagef("--config %s: no kernel of these has such a variant; they have %s", f.force,
			or(strings.Join(slices.Compact(have), ", "), "only one each"))
	}
	for _, j := range jobs {
		if _, err := fmt.Fprintln(a.out, j.Name()); err != nil {
			return err
		}
	}
	return nil
}

// selections reads the flags, or the profile, that say what to measure.
func (f *benchOpFlags) selections(c *cobra.Command, args []string) ([]opSelection, string, error) {
	changed := c.Flags().Changed
	if err := profile.CheckCache(f.cacheState); err != nil {
		return nil, "", fmt.Errorf("--%w", err)
	}
	if f.profile == "" {
		sel, err := f.fromFlags(c, args)
		return []opSelection{sel}, "", err
	}
	for _, name := range append([]string{"model", "dtype", "kv", "at", "attr", "with", "prompt", "depth", "context",
		"set"}, sizeNames()...) {
		if given(c.Flags(), name) {
			return nil, "", fmt.Errorf("--profile says what to measure: --%s does not go with it", name)
		}
	}
	if len(args) > 0 {
		return nil, "", fmt.Errorf("--profile says what to measure: no operator goes with it")
	}
	p, err := profile.Load(f.profile)
	if err != nil {
		return nil, "", err
	}
	if len(p.Op) == 0 {
		return nil, "", fmt.Errorf("profile %s has no operators", p.Name)
	}
	if p.Repetitions > 0 && !changed("repetitions") {
		f.repetitions = p.Repetitions
	}
	if p.MinTime > 0 && !changed("min-time") {
		f.minTime = p.MinTime
	}
	var list []opSelection
	for i, o := range p.Op {
		where := func(keys ...string) string { return p.Where("op", i, keys...) }
		s := opSelection{where: where, ops: o.Op, model: o.Model, byModel: o.Model != "", sizes: map[string]string{},
			attrs: map[string]string{}, at: string(o.At),
			types: string(o.Types), kvs: or(string(o.KV), "f16"), prompt: or(string(o.Prompt), "512"), depth: "512",
			context: o.Context, stored: o.Types == "",
			cache: or(o.Cache, p.Cache)}
		if o.With != "" {
			s.with = strings.Split(string(o.With), ",")
		}
		for k, v := range o.Sizes {
			s.sizes[k] = string(v)
		}
		for k, v := range o.Attrs {
			s.attrs[k] = string(v)
		}
		for _, k := range slices.Sorted(maps.Keys(o.Set)) {
			s.set = append(s.set, k+"="+o.Set[k])
		}
		if changed("cache") {
			s.cache = f.cacheState
		}
		list = append(list, s)
	}
	return list, p.Name, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (f *benchOpFlags) fromFlags(c *cobra.Command, args []string) (opSelection, error) {
	changed := c.Flags().Changed
	s := opSelection{ops: args, with: f.with, model: f.opModel, byModel: f.opModel != "", sizes: map[string]string{},
		attrs: map[string]string{}, types: f.types, kvs: f.kvs,
		at: f.at, prompt: f.prompt, depth: f.depth, set: f.set, context: f.context, cache: f.cacheState,
		stored: f.types == ""}
	if len(args) == 0 && f.opModel == "" {
		return s, fmt.Errorf("name operators, a --model or a --profile; greta ops lists the operators")
	}
	for name, list := range f.sizes {
		if changed(name) {
			s.sizes[name] = *list
		}
	}
	for _, attr := range f.attrs {
		name, value, ok := strings.Cut(attr, "=")
		if !ok || name == "" || value == "" {
			return s, fmt.Errorf("--attr %s: NAME=VALUE is expected", attr)
		}
		s.attrs[name] = value
	}
	if !s.byModel {
		for _, name := range []string{"prompt", "depth", "context", "set", "no-fuse"} {
			if given(c.Flags(), name) {
				return s, fmt.Errorf("--%s goes with --model", name)
			}
		}
		any := func(has func(*graph.Op) bool) bool {
			return slices.ContainsFunc(args, func(name string) bool {
				o := ops.Table.Lookup(name)
				return o == nil || has(o) // an unknown one is reported later
			})
		}
		if given(c.Flags(), "kv") && !any(op.HasKV) {
			return s, fmt.Errorf("--kv %s: none of %s has a cache", f.kvs, strings.Join(args, ", "))
		}
		if given(c.Flags(), "at") && !any(op.HasPositions) {
			return s, fmt.Errorf("--at %s: none of %s has positions", f.at, strings.Join(args, ", "))
		}
		if !given(c.Flags(), "dtype") && !any(op.HasType) {
			s.types = "" // a setting for others
		}
		return s, nil
	}
	for _, name := range append([]string{"at", "attr", "with"}, sizeNames()...) {
		if given(c.Flags(), name) {
			return s, fmt.Errorf("--model has sizes of its own: --%s does not go with it", name)
		}
	}
	return s, nil
}

// cases makes the cases of a selection.
// It is in one piece: each flag that makes cases multiplies those so far.
func (f *benchOpFlags) cases(ctx context.Context, dev backends.Device, s *opSelection) ([]*op.Case, error) {
	var list []*graph.Op
	for _, name := range s.ops {
		o := ops.Table.Lookup(name)
		if o == nil {
			hint := ""
			if near := lang.Nearest(name, ops.Table.Names()); near != "" {
				hint = "; did you mean " + near + "?"
			}
			err := fmt.Errorf("no operator %s%s; greta ops lists them", name, hint)
			if s.where != nil {
				err = fmt.Errorf("%s: %w", s.where("op"), err)
			}
			return nil, err
		}
		list = append(list, o)
	}
	types, err := typeList(s.value("dtype", "types"), s.types)
	if err != nil {
		return nil, err
	}
	kvs, err := typeList(s.value("kv", "kv"), s.kvs)
	if err != nil {
		return nil, err
	}
	if s.byModel {
		return f.modelCases(dev, s, list, types, kvs)
	}
	for name := range s.sizes {
		if !slices.ContainsFunc(list, func(o *graph.Op) bool { return slices.Contains(op.Dims(o), name) }) {
			return nil, fmt.Errorf("%s: none of %s has a size of this name; %s has %s", s.value(name, "sizes", name),
				strings.Join(s.ops, ", "), list[0].Name, strings.Join(op.Dims(list[0]), ", "))
		}
	}
	if s.types != "" && !slices.ContainsFunc(list, op.HasType) {
		return nil, fmt.Errorf("%s %s: none of %s has weights of a type to choose", s.value("dtype", "types"), s.types,
			strings.Join(s.ops, ", "))
	}
	at := []int{-1}
	if s.at != "" {
		if at, err = profile.Sizes(s.at); err != nil {
			return nil, fmt.Errorf("%s: %w", s.value("at", "at"), err)
		}
	}
	var cases []*op.Case
	for _, o := range list {
		all := []op.Request{{Sizes: map[string]int{}, Attrs: s.attrs, With: s.with, Float: dev.Info().Float}}
		for _, name := range op.Dims(o) {
			text, ok := s.sizes[name]
			if !ok {
				continue
			}
			values, err := profile.Sizes(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.value(name, "sizes", name), err)
			}
			all = product(all, values, func(r *op.Request, v int) {
				r.Sizes = maps.Clone(r.Sizes)
				r.Sizes[name] = v
			})
			if len(all) > maxCases {
				return nil, fmt.Errorf("%s: more than %d combinations of sizes", o.Name, maxCases)
			}
		}
		if op.HasType(o) && len(types) > 0 {
			all = product(all, types, func(r *op.Request, t tensor.Type) { r.Type = t })
		}
		if op.HasKV(o) && len(kvs) > 0 {
			all = product(all, kvs, func(r *op.Request, t tensor.Type) { r.KV = t })
		}
		all = product(all, at, func(r *op.Request, n int) { r.At = n })
		for _, r := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c, err := op.New(o, r)
			if err != nil {
				return nil, err
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// product gives each request with each value.
func product[T any](all []op.Request, values []T, set func(*op.Request, T)) []op.Request {
	var out []op.Request
	for _, r := range all {
		for _, v := range values {
			next := r
			set(&next, v)
			out = append(out, next)
		}
	}
	return out
}

func typeList(flag, text string) ([]tensor.Type, error) {
	var list []tensor.Type
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" && text == "" {
			break
		}
		t, ok := tensor.ParseType(name)
		if !ok || t.IsInt() || t == tensor.Bool {
			return nil, fmt.Errorf("%s %s: no such type; there are %s", flag, name, strings.Join(floatTypes(), ", "))
		}
		list = append(list, t)
	}
	return list, nil
}

// modelCases are the shapes of a model's steps, of the operators in only where
// that is not empty, in each type of weights.
// It is in one piece: shapes are gathered from the steps, then made into cases in their order.
func (f *benchOpFlags) modelCases(dev backends.Device, s *opSelection, only []*graph.Op, types,
	kvs []tensor.Type) ([]*op.Case, error) {
	prompts, err := profile.Sizes(s.prompt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.value("prompt", "prompt"), err)
	}
	depths, err := profile.Sizes(s.depth)
	if err != nil {
		return nil, fmt.Errorf("--depth: %w", err)
	}
	var steps []op.Step
	need := 1
	for _, p := range prompts {
		if p > 0 {
			steps = append(steps, op.Step{Name: "pp" + strconv.Itoa(p), Tokens: p})
		}
		need = max(need, p)
	}
	for _, d := range depths {
		steps = append(steps, op.Step{Name: "tg_d" + strconv.Itoa(d), Tokens: 1, First: d})
		need = max(need, d+1)
	}
	if s.stored {
		types = []tensor.Type{tensor.Invalid}
	}
	var all []*op.Case
	seen := map[string]*op.Case{}
	for _, t := range types {
		for _, kv := range kvs {
			m := f.modelFlags
			m.model, m.set, m.context, m.kv, m.chunk = "", s.set, s.context, kv.String(), engine.DefaultChunk
			opt, err := m.options()
			if err != nil {
				return nil, err
			}
			b := &bundle{opt: opt}
			if err := m.find(b, s.model); err != nil {
				return nil, err
			}
			b.opt.Model, b.opt.Source, b.opt.Device, b.opt.DType = b.file, b.source, dev, t
			b.fitContext(need)
			if b.opt.Context < need {
				err = fmt.Errorf("a context of %d does not hold the %d positions that are asked for", b.opt.Context, need)
			}
			var cases []*op.Case
			if err == nil {
				named := slices.Clone(steps)
				for i := range named { // each type is a step of its own, though norms are in all
					if len(types) > 1 {
						named[i].Name += "_" + t.String()
					}
					if len(kvs) > 1 {
						named[i].Name += "_kv_" + kv.String()
					}
				}
				cases, err = op.FromModel(b.opt, named)
			}
			if b.source != nil {
				err = errlist.Join(err, b.source.Close())
			}
			if err != nil {
				return nil, err
			}
			for _, c := range cases {
				if len(only) > 0 && !slices.Contains(only, c.Node.Op) {
					continue
				}
				if before := seen[c.Name()]; before != nil {
					maps.Copy(before.Steps, c.Steps)
					continue
				}
				seen[c.Name()] = c
				all = append(all, c)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has none of the operators %s", s.model, strings.Join(s.ops, ", "))
	}
	return all, nil
}
