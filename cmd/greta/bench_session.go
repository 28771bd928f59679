package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/platform"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// benchFlags are the flags that every kind of benchmark has.
type benchFlags struct {
	output, storePath, label string
	json, noStore, progress  bool
	dryRun, strict           bool
	repetitions              int
	minTime                  time.Duration
}

func (f *benchFlags) register(s *pflag.FlagSet, repetitions int, minTime time.Duration) {
	s.IntVarP(&f.repetitions, "repetitions", "r", repetitions, "samples of each benchmark, at least")
	s.DurationVar(&f.minTime, "min-time", minTime, "time that the samples of a benchmark take together, at least")
	s.StringVarP(&f.output, "output", "o", "md", "format: "+strings.Join(format.Names, ", "))
	s.BoolVar(&f.json, "json", false, "the same as -o json")
	s.BoolVar(&f.progress, "progress", false, "say on standard error what is measured, also where that is no terminal")
	s.StringVar(&f.storePath, "store", "", "file of results (default: greta/bench.sqlite in the user's data folder)")
	s.BoolVar(&f.noStore, "no-store", false, "do not keep the results")
	s.BoolVar(&f.dryRun, "dry-run", false, "list what would be measured, and measure nothing")
	s.BoolVar(&f.strict, "strict", false, "fail where other programs, a quota or a binding to some processors disturb "+
		"a result")
	s.StringVar(&f.label, "label", "", "a word of your own, kept with the results")
}

// check refuses what makes no sense.
func (f *benchFlags) check() error {
	switch {
	case f.json && f.output != "md" && f.output != "json":
		return usagef("--json and -o %s contradict each other", f.output)
	case f.repetitions < 1:
		return usagef("-r %d: it must be positive", f.repetitions)
	case f.minTime < 0:
		return usagef("--min-time %v: it must not be negative", f.minTime)
	case f.noStore && (f.storePath != "" || f.label != ""):
		return usagef("--no-store keeps nothing: --store and --label mean nothing with it")
	}
	if f.json {
		f.output = "json"
	}
	return usage(format.Check(f.output))
}

// benchSession is one run of benchmarks: it holds the device's lock, keeps each
// result as soon as it is there, and reports what is known however it ends.
type benchSession struct {
	app   *app
	flags *benchFlags
	run   record.Run
	lock  *guard.Held
	watch *environ.Watch // of what disturbs
	db    *store.Store
	keep  *store.Writer
	// processor models the processor, for the cpu backend; nil: another device.
	processor *platform.CPUModel
	bf16      bool // its products of bf16 round activations to that
	// platform are the results of bench platform that roofs found.
	platform []store.Entry

	mu      sync.Mutex
	results []record.Result
	closed  bool
	trouble error // of keeping
	memory  error // of the first result that was skipped because it does not fit the memory; nil: none was
	left    bool  // the work did not end when it was told to, and still uses the device
}

// newBenchSession opens the store, waits for the device and notes that a run has begun.
func (a *app) newBenchSession(ctx context.Context, f *benchFlags, kind, profile string,
	dev backends.Device) (_ *benchSession, err error) {
	s := &benchSession{app: a, flags: f}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.lock, err = guard.Lock(ctx, environ.LockKey(dev), func(h guard.Holder) {
		fmt.Fprintf(a.err, "greta: %s is measuring on this device; waiting\n", h)
	}); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	s.run = record.Run{ID: record.NewID(now), Kind: kind, Command: a.args, Profile: profile, Label: f.label,
		Started: now, Env: environ.Gather(version(), dev)}
	s.watch = newWatch(dev.Info())
	if f.noStore {
		return s, nil
	}
	path := f.storePath
	if path == "" {
		if path, err = store.DefaultPath(); err != nil {
			return nil, err
		}
	}
	if s.db, err = store.Open(path); err != nil {
		return nil, err
	}
	s.keep, err = s.db.Begin(s.run)
	return s, err
}

func (s *benchSession) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	s.db = nil
	return errlist.Join(append(errs, s.lock.Unlock())...)
}

// add takes results as they come.
func (s *benchSession) add(results ...record.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	disturbed := s.watch.Metrics()
	for i := range results {
		r := &results[i]
		if s.closed {
			return
		}
		if len(disturbed) > 0 {
			if r.Metrics == nil {
				r.Metrics = map[string]float64{}
			}
			maps.Copy(r.Metrics, disturbed)
		}
		if s.keep != nil {
			if err := s.keep.Add(r); err != nil && s.trouble == nil {
				s.trouble = err
			}
		}
		s.results = append(s.results, *r)
	}
}

// say tells what is under way.
func (s *benchSession) say(form string, args ...any) {
	if s.flags.progress || isTerminal(s.app.err) {
		fmt.Fprintf(s.app.err, "greta: "+form+"\n", args...)
	}
}

// supervise runs work until its end, or a little longer than until ctx ends, and
// reports what was measured till then.
func (s *benchSession) supervise(ctx context.Context, work func(context.Context) error,
	report func(*record.Run, []record.Result) *format.Report) error {
	done := aside(ctx, work)
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(grace):
			s.left = true
		}
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.run.Ended = time.Now().UTC()
	s.run.Status = record.Complete
	verdict := judge(s.results, s.memory)
	if verdict == nil && s.flags.strict {
		verdict = refuseDisturbed(s.results)
	}
	switch {
	case errors.Is(err, context.Canceled):
		s.run.Status = record.Incomplete
	case err != nil || verdict != nil:
		s.run.Status = record.Broken
	}
	if s.keep != nil {
		if err := s.keep.End(s.run.Status); s.trouble == nil { // what was in the way of a result is in the way of the end
			s.trouble = err
		}
	}
	if len(s.results) > 0 {
		err = errlist.Join(err, report(&s.run, s.results).Write(s.app.out, s.flags.output))
	}
	err = errlist.Join(err, s.trouble, s.release())
	if err == nil {
		err = verdict
	}
	return err
}

// close closes the run's device, unless work that was left behind still uses it:
// then the end of the process does.
func (s *benchSession) close(dev backends.Device) error {
	if s.left {
		return nil
	}
	return dev.Close()
}

// noMemory notes that something did not fit the memory.
func (s *benchSession) noMemory(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory == nil {
		s.memory = err
	}
}

// judge gives the error of a run: a wrong result, a figure that cannot be, or
// nothing that could be measured: memory is the error of what did not fit, nil where everything did.
func judge(results []record.Result, memory error) error {
	count := map[record.Verdict]int{}
	first := map[record.Verdict]*record.Result{}
	for i := range results {
		r := &results[i]
		if count[r.Verdict]++; first[r.Verdict] == nil {
			first[r.Verdict] = r
		}
	}
	if r := first[record.Failed]; r != nil {
		return mismatch("%d of %d results FAILED; the first is %s: %s", count[r.Verdict], len(results), r.Name(), r.Reason)
	}
	if r := first[record.Refused]; r != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("%d of %d results are REFUSED; the first is %s: %s",
			count[r.Verdict], len(results), r.Name(), r.Reason)}
	}
	if r := first[record.Skipped]; r != nil && count[record.OK] == 0 {
		if memory != nil {
			return memory
		}
		return &exitError{code: exitFailed, err: fmt.Errorf("everything was SKIPPED, which is not OK; the first is %s: %s",
			r.Name(), r.Reason)}
	}
	return nil
}

// newWatch watches what disturbs a measurement on a device. Tests, which run beside others, watch nothing.
var newWatch = func(i backends.Info) *environ.Watch {
	return environ.NewWatch(i.Threads, i.Backend == "cpu" || i.Backend == "ref")
}

// refuseDisturbed is what --strict says of results.
func refuseDisturbed(results []record.Result) error {
	n, first := 0, ""
	for i := range results {
		if by := results[i].Disturbed(); by != "" {
			if n++; n == 1 {
				first = results[i].Name() + ": " + by
			}
		}
	}
	if n == 0 {
		return nil
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("--strict: %d of %d results were disturbed; the first is %s", n,
		len(results), first)}
}

// roofs are the device's: modelled by its attributes, and measured by earlier runs
// of greta bench platform on this machine's device.
func (s *benchSession) roofs(dev backends.Device) (record.Roofs, error) {
	info := dev.Info()
	x := record.Roofs{ReadGBs: info.ReadGBs, GFlops: info.GFlops}
	var err error
	if info.Backend == "cpu" {
		if s.processor, err = platform.ModelCPU(info.Level, info.Threads); err != nil {
			return x, err
		}
		x.MostGBs, s.bf16 = s.processor.Roofs(false).MostGBs, op.Rounding(dev).BF16
	}
	if info.Backend == "cpu" || info.Backend == "ref" {
		x.LastCache = lastCache("/sys/devices/system/cpu/cpu0/cache")
	} else if x.LastCache, err = gpuCache(dev); err != nil {
		return x, err
	}
	if s.db == nil {
		return x, nil
	}
	entries, err := s.db.Results(store.Filter{Bench: "platform/*", Host: s.run.Env.Host, Verdict: record.OK})
	if err != nil {
		return x, err
	}
	measuredRoofs(&x, entries, &s.run.Env)
	s.platform = entries
	return x, nil
}

// roofsFor are roofs with the modelled arithmetic of the processor and the measured arithmetic of
// products with weights of a type, where bench platform took that: a product of the vendor's own
// library, or what dot products of the type reach; of no other type's. Block formats are held
// against half precision on GPUs, and against bytes on the processor.
func (s *benchSession) roofsFor(x record.Roofs, dev backends.Info, weights string) record.Roofs {
	if s.processor != nil {
		var types []tensor.Type
		if t, ok := tensor.ParseType(weights); ok {
			types = append(types, t)
		}
		most := s.processor.Roofs(s.bf16, types...)
		x.GFlops, x.MostGBs = most.GFlops, most.MostGBs
	}
	if weights == "" {
		return x
	}
	want := []string{weights}
	if t, ok := tensor.ParseType(weights); ok && t.IsBlock() {
		want = []string{"f16", "i8"}
	}
	best := 0.0
	for i := range s.platform {
		e := &s.platform[i]
		if !sameDevice(&e.Run.Env, &s.run.Env) || !strings.HasPrefix(e.Bench, platform.RoofPrefix) ||
			!slices.Contains(want, e.Params["type"]) {
			continue
		}
		if median := stats.Summarize(e.Samples).Median; median > 0 {
			best = max(best, e.Flops/median/1e9)
		}
	}
	switch {
	case best > 0:
		x.MeasuredGFlops = best
	case s.processor == nil && weights != "f32" && weights != "f64":
		x.MeasuredGFlops = 0 // multiply-adds of f32 are no roof for matrix instructions of less
	}
	return x
}

// sameDevice says whether two runs were on one device, through whatever backend.
func sameDevice(a, b *record.Env) bool {
	return a.Backend == b.Backend && a.Device == b.Device && a.DeviceID == b.DeviceID && a.Threads == b.Threads &&
		a.Level == b.Level ||
		b.DeviceID != "" && a.DeviceID == b.DeviceID
}

// measuredRoofs takes the highest rates of memory and arithmetic that platform
// benchmarks of the same device reached, through whatever backend; and the size of
// its last-level cache, where that is what the driver calls the second level.
func measuredRoofs(x *record.Roofs, entries []store.Entry, env *record.Env) {
	for i := range entries {
		e := &entries[i]
		if !sameDevice(&e.Run.Env, env) {
			continue
		}
		if x.LastCache == 0 && secondLevelIsLast(e.Run.Env.Level) {
			x.LastCache = e.Roofs.LastCache
		}
		median := stats.Summarize(e.Samples).Median
		if median <= 0 {
			continue
		}
		if e.Cache == record.Cold {
			x.MeasuredReadGBs = max(x.MeasuredReadGBs, e.Bytes/median/1e9)
		}
		if t := e.Params["type"]; t == "i8" || t == "f8e4m3" {
			continue // products of bytes are a roof only for what is made of bytes
		}
		x.MeasuredGFlops = max(x.MeasuredGFlops, e.Flops/median/1e9)
	}
}

// secondLevelIsLast says whether an architecture has no cache behind its second
// level: NVIDIA's have none, AMD's of the last years do.
func secondLevelIsLast(level string) bool { return strings.HasPrefix(level, "sm_") }

// lastCache is the size of the largest cache that a processor has, in bytes, as
// Linux lists it; 0 where that is not known.
func lastCache(dir string) float64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	largest := 0.0
	for _, e := range entries {
		text, err := os.ReadFile(dir + "/" + e.Name() + "/size")
		if err != nil {
			continue
		}
		var n float64
		var unit string
		if _, err := fmt.Sscanf(strings.TrimSpace(string(text)), "%f%s", &n, &unit); err != nil && n == 0 {
			continue
		}
		n *= map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
		largest = max(largest, n)
	}
	return largest
}

// software says why a device is no GPU though its backend is one for GPUs: a
// driver that computes on the processor. One that was asked for by name is meant.
func software(info backends.Info, asked string) string {
	name := strings.ToLower(info.Name)
	if asked != "" || !slices.ContainsFunc([]string{"llvmpipe", "lavapipe", "swiftshader"}, func(s string) bool {
		return strings.Contains(name, s)
	}) {
		return ""
	}
	return fmt.Sprintf("the %s backend found only %s, which computes on the processor: that is no figure of a GPU; "+
		"--device names it where it is meant", info.Backend, info.Name)
}

// registerDevice registers the flags that choose a device and its paths.
func (f *modelFlags) registerDevice(s *pflag.FlagSet) {
	s.StringVar(&f.backend, "backend", "cpu", "device: "+strings.Join(backendNames(), ", "))
	s.StringVar(&f.device, "device", "", "which of a backend's devices: a number, a part of the name, or as greta "+
		"devices lists it (default: the best)")
	s.IntVar(&f.threads, "threads", 0, "threads of the cpu backend (default: all cores)")
	s.BoolVar(&f.exact, "exact", false, "cpu: keep activations in f32 in all products; otherwise block formats round "+
		"them to 8 bits, and bf16 weights to bf16 in prefill where the processor has dot products of it")
	s.StringVar(&f.fp16, "fp16", "auto", "vulkan, hip: arithmetic in half precision: on, off, or auto, where it passed "+
		"its check and is as good as asked for")
	f.registerFP8(s, fp8Usage)
	s.StringVar(&f.kernels, "kernels", "", "hip: folder of kernels compiled ahead of time by greta kernels build, used "+
		"before anything is compiled")
}

// openDevice opens the device and settles its fast paths.
func (f *modelFlags) openDevice(ctx context.Context, a *app) (backends.Device, error) {
	dev, err := openBackend(f.backend, f.deviceFlags())
	if err != nil {
		return nil, err
	}
	if _, err := f.settle(ctx, dev, func(text string) { fmt.Fprintf(a.err, "greta: %s\n", text) }, false); err != nil {
		return nil, errlist.Join(err, dev.Close())
	}
	return dev, nil
}
