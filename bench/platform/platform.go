// Package platform measures what a machine can do at all: launches, copies,
// bandwidth and latency of each level of memory, peaks of arithmetic, the vendor's
// own matrix product. Its figures are the roofs that operators and models are
// held against.
//
// A benchmark is one Go file, with its kernels beside it in kernels/ where it
// runs on a GPU. docs/add-a-benchmark.md walks through one. Every figure is
// checked in the same run, over its whole output, and none is let through that
// passes the device's modelled peak.
package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// Benchmark is one microbenchmark, for the processor, for GPUs, or for both.
type Benchmark struct {
	Name  string
	About string // one line
	// Params are what a profile may set, each a list of sizes, with what it means.
	Params map[string]string
	CPU    func(*CPU) error
	GPU    func(*GPU) error
	// Lacks says why a backend ("cpu", "vulkan", "hip") has no such benchmark.
	Lacks map[string]string
}

var benchmarks []*Benchmark

// define adds a benchmark to the list. Each file calls it once.
func define(b Benchmark) *Benchmark {
	benchmarks = append(benchmarks, &b)
	return &b
}

// List gives the benchmarks by name.
func List() []*Benchmark {
	return slices.SortedFunc(slices.Values(benchmarks), func(a, b *Benchmark) int { return cmp.Compare(a.Name, b.Name) })
}

// Find gives a benchmark; its error lists what there is.
func Find(name string) (*Benchmark, error) {
	var names []string
	for _, b := range List() {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	return nil, fmt.Errorf("no benchmark of the platform is called %q; there are %s", name, strings.Join(names, ", "))
}

// Options say what to measure, how long, and where results go.
type Options struct {
	Device backends.Device // *cpu.Device, *vulkan.Device or *hip.Device
	// Plan are the benchmarks and their parameters; empty: all of them.
	Plan        []profile.Platform
	Repetitions int           // samples of a figure at least; 0: 10
	MinTime     time.Duration // that a figure is sampled for at least; 0: 100 ms
	Emit        func(*record.Result) error
	Progress    func(bench string, done, total int) // may be nil

	together *together // with whom each figure is taken at the same time; nil: alone
}

// Check says what is wrong with a plan: names or parameters that do not exist.
func Check(plan []profile.Platform) error {
	for _, p := range plan {
		b, err := Find(p.Bench)
		if err != nil {
			return err
		}
		for name, list := range p.Params {
			if _, ok := b.Params[name]; !ok {
				return fmt.Errorf("the benchmark %s has no parameter %q; it has %s", b.Name, name,
					strings.Join(slices.Sorted(maps.Keys(b.Params)), ", "))
			}
			values, err := profile.Sizes(string(list))
			if err == nil {
				err = allowed(b.Name+"."+name, name, values)
			}
			if err != nil {
				return fmt.Errorf("the benchmark %s, parameter %s: %w", b.Name, name, err)
			}
		}
	}
	return nil
}

// Parameters that can be zero, and those that are one number.
var (
	mayBeZero = []string{"threads", "steps", "resident", "stride"}
	oneNumber = []string{"step", "rounds", "cache.block", "stream.n", "roofline.n", "l2-stream.threads"}
)

// mostThreads is what the processor's backend takes at most too.
const mostThreads = 1024

// allowed refuses values of a parameter that cannot be measured, or would change
// nothing; full is its name with the benchmark's.
func allowed(full, name string, values []int) error {
	low, high := slices.Min(values), slices.Max(values)
	switch {
	case name == "step" && low <= 100:
		return fmt.Errorf("sizes do not grow by steps of %d %%: more than 100 is expected", low)
	case low == 0 && !slices.Contains(mayBeZero, name):
		return errors.New("it must be above 0")
	case full == "stream.threads" && high > mostThreads:
		return fmt.Errorf("%d threads: at most %d are expected", high, mostThreads)
	case len(values) > 1 && (slices.Contains(oneNumber, name) || slices.Contains(oneNumber, full)):
		return fmt.Errorf("one number is expected, not %d", len(values))
	}
	return nil
}

// Wrong says that results failed their check or passed their peak.
type Wrong struct{ Failed, Refused int }

func (e *Wrong) Error() string {
	return fmt.Sprintf("%d results are wrong and %d are faster than the device can be", e.Failed, e.Refused)
}

// Run measures. Results that failed make its error a *Wrong; what else goes wrong in
// one benchmark does not keep the others from running.
func Run(ctx context.Context, opt Options) error {
	if opt.Repetitions == 0 {
		opt.Repetitions = 10
	}
	if opt.MinTime == 0 {
		opt.MinTime = 100 * time.Millisecond
	}
	if len(opt.Plan) == 0 {
		for _, b := range List() {
			opt.Plan = append(opt.Plan, profile.Platform{Bench: b.Name})
		}
	}
	if err := Check(opt.Plan); err != nil {
		return err
	}
	s := &session{ctx: ctx, opt: opt, backend: opt.Device.Info().Backend}
	t, err := open(s)
	if err != nil {
		return err
	}
	var errs []error
	for i, p := range opt.Plan {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		if opt.Progress != nil {
			opt.Progress(p.Bench, i, len(opt.Plan))
		}
		if err := s.one(t, p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Bench, err))
		}
	}
	if opt.Progress != nil {
		opt.Progress("", len(opt.Plan), len(opt.Plan))
	}
	errs = append(errs, t.close())
	if s.wrong != (Wrong{}) {
		errs = append(errs, &s.wrong)
	}
	return errlist.Join(errs...)
}

// target is a device as benchmarks see it.
type target interface {
	// run runs the benchmark's function for this kind of device; false: it has none.
	run(b *Benchmark) (bool, error)
	close() error
}

// session is one Run.
type session struct {
	ctx     context.Context
	opt     Options
	backend string
	bench   *Benchmark
	params  map[string][]int
	wrong   Wrong
}

func (s *session) one(t target, p profile.Platform) error {
	b, err := Find(p.Bench)
	if err != nil {
		return err
	}
	s.bench = b
	if s.params, err = sizesOf(p); err != nil {
		return err
	}
	if why := b.Lacks[s.backend]; why != "" {
		return s.skip("", nil, "%s", why)
	}
	ran, err := t.run(b)
	if !ran {
		return s.skip("", nil, "the %s backend has no such benchmark", s.backend)
	}
	var missing *Missing
	if errors.As(err, &missing) {
		return s.skip("", nil, "%s", missing.Reason)
	}
	return err
}

// sizesOf reads a plan's parameters.
func sizesOf(p profile.Platform) (map[string][]int, error) {
	params := map[string][]int{}
	for name, list := range p.Params {
		var err error
		if params[name], err = profile.Sizes(string(list)); err != nil {
			return nil, err
		}
	}
	return params, nil
}

// Missing says that a device lacks what a benchmark needs.
type Missing struct{ Reason string }

func (e *Missing) Error() string { return e.Reason }

// sizes gives a parameter of the benchmark, or what it is by default.
func (s *session) sizes(name string, normal ...int) []int {
	if list, ok := s.params[name]; ok {
		return list
	}
	return normal
}

// size is sizes for a parameter that is one number.
func (s *session) size(name string, normal int) int { return s.sizes(name, normal)[0] }

func (s *session) name(part string) string {
	if part == "" {
		return "platform/" + s.bench.Name
	}
	return "platform/" + s.bench.Name + "/" + part
}

func (s *session) skip(part string, params map[string]string, format string, args ...any) error {
	r := &record.Result{Bench: s.name(part), Params: params, Clock: record.HostClock}
	guard.Skip(r, format, args...)
	return s.emit(r)
}

func (s *session) emit(r *record.Result) error {
	guard.Finish(r)
	switch r.Verdict {
	case record.Failed:
		s.wrong.Failed++
	case record.Refused:
		s.wrong.Refused++
	}
	return s.opt.Emit(r)
}

// sampler runs an operation once and says what it took, in seconds, by the
// device's clock, 0 where there is none, and by the host's.
type sampler func() (device, host float64, err error)

// point is a figure that is to be taken.
type point struct {
	record.Result // Bench is the part behind the benchmark's name
	// prepare makes a sampler of n operations, and what ends it, which may be nil.
	prepare func(n int) (sampler, func() error, error)
	// finish may add metrics, from the samples, when all are taken; nil: nothing.
	finish func(r *record.Result) error
	// check compares the results with what they must be, after that.
	check func() (record.Check, error)
	least float64 // seconds that a sample should last; 0: 1 ms
	most  int     // operations in a sample; 0: no limit
}

// measure takes a figure: warm-ups, then samples until there are enough of them
// and the time is over. The result's check comes after, in the same run.
func (s *session) measure(p point) (*record.Result, error) {
	r := &p.Result
	r.Bench = s.name(r.Bench)
	n, run, end, err := s.warm(&p)
	if err != nil {
		return r, err
	}
	finish := func() {}
	if t := s.opt.together; t != nil {
		if err := t.meet(s.ctx); err != nil {
			return r, errlist.Join(err, closed(end))
		}
		finish = sync.OnceFunc(t.finish)
		defer finish()
	}
	begin, limit := time.Now(), max(patience, 10*s.opt.MinTime)
	for len(r.Samples) < s.opt.Repetitions && (len(r.Samples) < fewest || time.Since(begin) < limit) ||
		len(r.Samples) < mostSamples && time.Since(begin) < s.opt.MinTime {
		if err := s.ctx.Err(); err != nil {
			return r, errlist.Join(err, closed(end))
		}
		device, host, err := run()
		if err != nil {
			return r, errlist.Join(err, closed(end))
		}
		r.Clock = record.HostClock
		if device > 0 {
			r.Clock = record.DeviceClock
			r.Host = append(r.Host, host/float64(n))
			host = device
		}
		r.Samples = append(r.Samples, host/float64(n))
	}
	finish()
	for s.opt.together != nil && s.opt.together.busy() && s.ctx.Err() == nil { // the others are not to have it easier
		if _, _, err := run(); err != nil {
			return r, errlist.Join(err, closed(end))
		}
	}
	if err := closed(end); err != nil {
		return r, err
	}
	if p.finish != nil {
		if err := p.finish(r); err != nil {
			return r, err
		}
	}
	if len(r.Samples) < s.opt.Repetitions {
		r.Short(s.opt.Repetitions, limit)
	}
	if r.Check, err = p.check(); err != nil {
		return r, err
	}
	return r, s.emit(r)
}

func closed(end func() error) error {
	if end == nil {
		return nil
	}
	return end()
}

const (
	// Where a sample takes long, these are enough when so much time has gone.
	fewest   = 3
	patience = 500 * time.Millisecond

	mostSamples = 100 // that MinTime asks for: more say nothing more
	warmTime    = 30 * time.Millisecond
	warmRuns    = 3
)

// warm finds how many operations a sample needs, and runs until clocks and
// caches are what they will be.
func (s *session) warm(p *point) (n int, run sampler, end func() error, err error) {
	least, most := cmp.Or(p.least, 1e-3), cmp.Or(p.most, 1<<20)
	n = 1
	for {
		if run, end, err = p.prepare(n); err != nil {
			return 0, nil, nil, err
		}
		took := 0.0
		begin := time.Now()
		for i := 0; i < warmRuns && (i == 0 || time.Since(begin) < 10*warmTime) || time.Since(begin) < warmTime; i++ {
			device, host, err := run()
			if err != nil {
				return 0, nil, nil, errlist.Join(err, closed(end))
			}
			if device > 0 {
				host = device
			}
			took = host
			if took < least/2 && i >= warmRuns-1 && n < most {
				break // more operations are needed: no use in warming longer
			}
		}
		if took >= least/2 || n >= most {
			return n, run, end, nil
		}
		if err := closed(end); err != nil {
			return 0, nil, nil, err
		}
		n = min(most, max(2*n, int(float64(n)*least/max(took, least/1e4))))
	}
}

// exact is a check by comparing bits: wrong of total elements differ.
func exact(wrong, total int) record.Check {
	c := record.Check{Against: "exact", MaxAbs: float64(wrong)}
	if wrong > 0 {
		c.RelL2 = float64(wrong) / float64(max(total, 1))
	}
	return c
}

// steps gives the sizes from low to high, each percent of the one before, in
// multiples of unit: 104 are steps of 4 %.
func steps(low, high, percent, unit int) []int {
	var list []int
	for x := float64(low); x < float64(high)*1.0001; x *= float64(max(percent, 101)) / 100 {
		if n := max(int(x)/unit, 1) * unit; len(list) == 0 || n != list[len(list)-1] {
			list = append(list, n)
		}
	}
	return list
}
