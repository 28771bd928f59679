package op

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Options say how to measure.
type Options struct {
	Cold, Warm  bool          // states of the caches; both give a result each
	OrWarm      bool          // what is too small to be cold is measured warm, instead of skipped
	Repetitions int           // samples at least
	MinTime     time.Duration // of all samples of a result, at least
	EndToEnd    bool          // one more result: with the copies of activations and results
	Config      string        // variant of the kernels, of those that the device names; "": the default
	Roofs       record.Roofs  // of the device; LastCache 0: AssumedCache
	// Reference is what NewReference gave for the same case, where it is measured more
	// than once; nil: it is computed.
	Reference *Reference
	// Corrupt, if set, is given the results before they are checked. Tests plant
	// mistakes by it.
	Corrupt func(results [][]byte)
}

// AssumedCache is what a device's last-level cache is taken for where its size
// is not known: as large as the largest of a GPU.
const AssumedCache = 256 << 20

// Limits of one result.
const (
	maxSamples  = 2000
	batchTime   = 2 * time.Millisecond // of a sample by a device's clock, so that starting it is lost in it
	gpuLaunches = 2048                 // in one program
	cpuLaunches = 1 << 15
)

// Reference is a case's operands and its results in float64.
type Reference struct {
	data [][]byte
	want []tensor.Tensor
}

// NewReference computes a case's reference once for several measurements.
func NewReference(ctx context.Context, c *Case) (*Reference, error) {
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	want, err := c.reference(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("%s: reference: %w", c.Name(), err)
	}
	return &Reference{data, want}, nil
}

// Measure checks and times a case on a device. Its results have their verdicts: a
// device that lacks the kernel gives a skipped one, a wrong result a failed one. What does
// not fit the memory is a *backends.OutOfMemory.
// The error is of what could not be measured at all; results that were complete
// before it are returned as well.
func Measure(ctx context.Context, dev backends.Device, c *Case, opt Options) ([]record.Result, error) {
	m := &measurement{ctx: ctx, dev: dev, c: c, opt: opt}
	return m.all()
}

// measurement is one case under way.
type measurement struct {
	ctx       context.Context
	dev       backends.Device
	c         *Case
	opt       Options
	kernel    string
	tolerance float64 // the kernel's
	packed    float64 // bytes that are read of packed weights beyond their size as stored
	check     record.Check
	want      []tensor.Tensor
	first     [][]byte // the results that were checked
	data      [][]byte
	results   []record.Result

	referenceTime time.Duration
}

// host says that Submit runs on the calling goroutine, so that each launch can
// be timed by itself.
func (m *measurement) host() bool {
	b := m.dev.Info().Backend
	return b == "cpu" || b == "ref"
}

func (m *measurement) result(cache string) record.Result {
	cost := m.c.cost()
	r := record.Result{
		Bench: "op/" + m.c.Node.Op.Name, Params: m.c.Params, Config: m.opt.Config, Kernel: m.kernel,
		Backend: m.dev.Info().Backend,
		Clock:   record.DeviceClock, Cache: cache, Bytes: cost.Read + m.packed + cost.Write, Flops: cost.Flops,
		Roofs: m.opt.Roofs, Check: m.check, Metrics: map[string]float64{},
	}
	if m.host() {
		r.Clock = record.HostClock
	}
	for step, n := range m.c.Steps {
		r.Metrics[record.InStep+step] = float64(n)
	}
	return r
}

func (m *measurement) all() ([]record.Result, error) {
	if m.opt.Config != "" {
		t, ok := backends.Tuned(m.dev)
		if !ok {
			return nil, fmt.Errorf("the %s backend's kernels have one configuration each: there is no %q", m.dev.Info().Backend,
				m.opt.Config)
		}
		if all := t.Variants(m.c.Node); !slices.Contains(all, m.opt.Config) {
			r := m.result("")
			guard.Skip(&r, "the kernel has no variant %q; it has %s", m.opt.Config, or(strings.Join(all, ", "), "only one"))
			return append(m.results, r), nil
		}
		t.Choose(func(*graph.Node) string { return m.opt.Config })
		defer t.Choose(func(*graph.Node) string { return "" })
	}
	k, err := m.c.kernelOf(m.dev)
	var lacks *backends.Unsupported
	if errors.As(err, &lacks) {
		r := m.result("")
		guard.Skip(&r, "%v", err)
		return append(m.results, r), nil
	}
	if err != nil {
		return nil, err
	}
	m.kernel, m.tolerance = k.Name(), k.Traits().Tolerance
	if have := m.dev.Info().Memory; m.host() && have > 0 && m.c.least() > float64(have) {
		return nil, &backends.OutOfMemory{Need: int64(min(m.c.least(), 1<<62)), Have: int64(have),
			What: "operands, results and their reference", Try: "smaller sizes"}
	}
	ref := m.opt.Reference
	if ref == nil {
		if ref, err = NewReference(m.ctx, m.c); err != nil {
			return nil, err
		}
	}
	m.data, m.want = ref.data, ref.want
	for _, cache := range []string{record.Cold, record.Warm} {
		if cache == record.Cold && !m.opt.Cold || cache == record.Warm && !m.opt.Warm {
			continue
		}
		if err := m.one(cache); err != nil {
			return m.results, fmt.Errorf("%s: %w", m.c.Name(), err)
		}
	}
	return m.results, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// one measures a state of the caches.
func (m *measurement) one(cache string) (err error) {
	llc := cmp.Or(m.opt.Roofs.LastCache, AssumedCache)
	set, limit := 0.0, gpuLaunches
	if m.host() {
		limit = cpuLaunches
	}
	if cache == record.Cold {
		set = guard.FarFromCache * llc
	}
	p, err := m.c.place(m.dev, m.data, set, limit)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, p.close()) }()
	if err := m.verify(p); err != nil {
		return err
	}
	l := p.launch(0)
	if m.packed, err = backends.PackedExcess(m.dev, &l); err != nil {
		return err
	}
	r := m.result(cache)
	r.WorkingSet = p.set
	r.Metrics["copies"] = float64(p.copies)
	r.Metrics["reference_s"] = m.referenceTime.Seconds()
	switch {
	case r.Check.RelL2 > r.Check.Limit || math.IsNaN(r.Check.RelL2):
		guard.Finish(&r) // fails it: what is wrong is not timed
		m.results = append(m.results, r)
		return nil
	case cache == record.Cold && p.set < guard.FarFromCache*llc && m.opt.OrWarm:
		if m.opt.Warm {
			return nil // follows anyway
		}
		if err := p.close(); err != nil {
			return err
		}
		return m.one(record.Warm)
	case cache == record.Cold && p.set < guard.FarFromCache*llc:
		guard.Skip(&r, "cold needs a working set of %.0f MB, four times the last-level cache; %d copies of this have %.1f MB",
			4*llc/1e6, p.copies, p.set/1e6)
		m.results = append(m.results, r)
		return nil
	}
	cached := cache == record.Warm && p.set < llc
	if cached { // a cache's rate is nobody's roof here
		r.Roofs.ReadGBs, r.Roofs.MeasuredReadGBs = 0, 0
	}
	held, err := m.limits(p, &r, cached)
	if err != nil {
		return err
	}
	if m.host() {
		err = m.timeHost(p, &r)
	} else {
		err = m.timeDevice(p, &r)
	}
	if err == nil {
		err = m.unchanged(p, &r)
	}
	if err == nil {
		err = held()
	}
	if err != nil {
		return err
	}
	guard.Finish(&r)
	m.results = append(m.results, r)
	if m.opt.EndToEnd {
		return m.endToEnd(p, cache)
	}
	return nil
}

// verify launches repetition 0 once and compares all of its results.
func (m *measurement) verify(p *placed) error {
	if err := p.poison(); err != nil {
		return err
	}
	l := p.launch(0)
	if err := p.stream.Launch(&l); err != nil {
		return err
	}
	got, err := p.results()
	if err != nil {
		return err
	}
	if m.opt.Corrupt != nil {
		m.opt.Corrupt(got)
	}
	m.first = got
	m.check = record.Check{Against: "float64", Limit: Limit(m.dev.Info().Float, m.tolerance, m.c.Node)}
	for i, v := range m.c.Node.Out {
		t, err := optest.Decode(v.Type, v.Shape, got[i])
		if err != nil {
			return err
		}
		l2, worst := difference(t, m.want[i])
		m.check.RelL2, m.check.MaxAbs = larger(m.check.RelL2, l2), larger(m.check.MaxAbs, worst)
	}
	return nil
}

// larger is the larger of two errors, of which no number is the largest.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}

// difference is the relative L2 error over a whole result and the largest
// absolute one; integers are right or wrong.
func difference(got, want tensor.Tensor) (relL2, maxAbs float64) {
	if want.Type == tensor.I32 {
		g := got.I32()
		for i, w := range want.I32() {
			if d := math.Abs(float64(g[i]) - float64(w)); d > 0 {
				relL2, maxAbs = 1, max(maxAbs, d)
			}
		}
		return relL2, maxAbs
	}
	var diff, norm float64
	g := got.F64()
	for i, w := range want.F64() {
		if math.IsInf(w, 0) && g[i] == w { // such as what a filter leaves out
			continue
		}
		d := g[i] - w
		diff += d * d
		norm += w * w
		maxAbs = larger(maxAbs, math.Abs(d))
	}
	if diff == 0 {
		return 0, maxAbs
	}
	return math.Sqrt(diff / norm), maxAbs
}

// Limit is the relative L2 error that is let through: of arithmetic in f32 with
// sums of some thousands; wider where results are stored in 16 bits, or where a
// kernel says that it rounds activations (backends.Traits.Tolerance).
func Limit(float tensor.Type, tolerance float64, n *graph.Node) float64 {
	limit := 1e-5
	for _, t := range []tensor.Type{n.Out[0].Type, float} {
		switch t {
		case tensor.F16:
			limit = max(limit, 1e-3)
		case tensor.BF16:
			limit = max(limit, 8e-3)
		}
	}
	return max(limit, tolerance)
}

// Rounding is how a device rounds activations, nothing where it does not say.
func Rounding(dev backends.Device) ops.Rounding {
	if r, ok := dev.(interface{ Rounding() ops.Rounding }); ok {
		return r.Rounding()
	}
	return ops.Rounding{}
}

// unchanged compares the results behind the last timed repetition with those that
// were checked: a replay that computes something else has measured something else.
func (m *measurement) unchanged(p *placed, r *record.Result) error {
	got, err := p.results()
	if err != nil {
		return err
	}
	for i := range got {
		if m.opt.Corrupt == nil && !bytes.Equal(got[i], m.first[i]) {
			r.Verdict, r.Reason = record.Failed, fmt.Sprintf("result %d behind the timed repetitions differs from the one "+
				"that was checked", i)
		}
	}
	return nil
}

// limitsBudget is the time in which a device measures its own limits, beside the
// times that are compared with them.
const limitsBudget = 60 * time.Millisecond

// limits asks a device that can measure its roofs for those of this program: the rate at which it reads these weights,
// or what else it reads, and arithmetic of their type. It is asked before the samples, and by held, behind them: what
// is faster than reading alone is refused. Of operands in a cache only arithmetic is a roof.
func (m *measurement) limits(p *placed, r *record.Result, cached bool) (held func() error, err error) {
	limits := backends.LimitsOf(m.dev)
	if limits == nil {
		return func() error { return nil }, nil
	}
	program := p.program(p.copies)
	var best float64
	measure := func() (guard.Limits, error) {
		l, err := limits(program, limitsBudget)
		best = max(best, l.BestReadGBs)
		return guard.Limits{ReadGBs: l.ReadGBs, BestReadGBs: l.BestReadGBs, GFlops: l.GFlops,
			BestGFlops: l.BestGFlops}, err
	}
	l, err := measure()
	if err != nil {
		return nil, err
	}
	if l.ReadGBs > 0 && !cached {
		r.Roofs.MeasuredReadGBs = l.ReadGBs
	}
	if l.GFlops > 0 {
		r.Roofs.MeasuredGFlops = l.GFlops
	}
	return func() error {
		again := func() (float64, error) {
			l, err := measure()
			r.Roofs.Raise(l.ReadGBs, l.GFlops)
			return best, err
		}
		if _, err := again(); err != nil {
			return err
		}
		if err := guard.Reading(r, best, again); err != nil {
			return err
		}
		return guard.Raise(r, m.c.cost().Write, measure)
	}, nil
}

// enough says whether so many samples since then are enough.
func (m *measurement) enough(n int, since time.Time) bool {
	return n >= max(1, m.opt.Repetitions) && time.Since(since) >= m.opt.MinTime
}

// sampling keeps samples of all the time that a result is measured for, at most maxSamples: when there are more, every
// second one is dropped, and of later ones only as many are kept.
type sampling struct {
	r      *record.Result
	taken  int // of all
	stride int // one of so many is kept
}

// add takes a sample; host is the host's time beside it, NaN where there is none.
func (s *sampling) add(sample, host float64) {
	s.stride = max(s.stride, 1)
	keep := s.taken%s.stride == 0
	if s.taken++; !keep {
		return
	}
	s.r.Samples = append(s.r.Samples, sample)
	if host == host {
		s.r.Host = append(s.r.Host, host)
	}
	if len(s.r.Samples) >= maxSamples {
		s.r.Samples, s.r.Host, s.stride = everySecond(s.r.Samples), everySecond(s.r.Host), 2*s.stride
	}
}

// finish notes how many samples those that are kept stand for, where it is more.
func (s *sampling) finish() {
	if s.stride > 1 {
		s.r.Metrics["samples_taken"] = float64(s.taken)
	}
}

func everySecond(x []float64) []float64 {
	for i := range (len(x) + 1) / 2 {
		x[i] = x[2*i]
	}
	return x[:(len(x)+1)/2]
}

// timeHost times each launch by itself: the device's own profile, which on a
// processor is the host's clock around each of them.
func (m *measurement) timeHost(p *placed, r *record.Result) (err error) {
	e, err := m.dev.Capture(p.program(p.copies))
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	if err := errlist.Join(e.Submit(), e.Wait()); err != nil {
		return err
	}
	runtime.GC()
	r.Samples = make([]float64, 0, maxSamples)
	s := sampling{r: r}
	defer s.finish()
	for start := time.Now(); !m.enough(s.taken, start); {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		times, err := e.Profile()
		if err != nil {
			return err
		}
		for _, t := range times {
			s.add(t.Seconds(), math.NaN())
		}
	}
	return nil
}

// timeDevice times captured programs of many launches, each of which waits for the
// one before it: by the host's clock around the program, divided by the launches.
// Beside each it times a program of one launch, which is what the host sees.
func (m *measurement) timeDevice(p *placed, r *record.Result) (err error) {
	single, err := m.dev.Capture(p.program(1))
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, single.Close()) }()
	rough, err := fastest(single)
	if err != nil {
		return err
	}
	n := p.copies
	if whole := int(batchTime/max(rough, time.Nanosecond)) + 1; whole > n {
		n = (whole + n - 1) / n * n
	}
	var e backends.Executable
	for warm := false; ; warm = true { // the estimate holds a start and an end; a batch says more
		n = max(p.copies, min(n, gpuLaunches/p.copies*p.copies))
		if e, err = m.dev.Capture(p.program(n)); err != nil {
			return err
		}
		var t time.Duration
		if warm {
			t, err = fastest(e)
		} else {
			t, err = guard.WarmUp(m.ctx, func() (time.Duration, error) { return run(e) })
		}
		if err != nil {
			return errlist.Join(err, e.Close())
		}
		if t >= batchTime/2 || 2*n > gpuLaunches {
			break
		}
		if err := e.Close(); err != nil {
			return err
		}
		n *= max(2, int(batchTime/max(t, time.Microsecond)))
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	r.Metrics["launches_a_sample"] = float64(n)
	runtime.GC()
	s := sampling{r: r}
	defer s.finish()
	for start := time.Now(); !m.enough(s.taken, start); {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		host, err := run(single)
		if err != nil {
			return err
		}
		batch, err := run(e)
		if err != nil {
			return err
		}
		s.add(batch.Seconds()/float64(n), host.Seconds())
	}
	return nil
}

// run replays a program and gives the host's time of it.
func run(e backends.Executable) (time.Duration, error) {
	start := time.Now()
	err := e.Submit()
	if err == nil {
		err = e.Wait()
	}
	return time.Since(start), err
}

// fastest gives the shortest time of four runs.
func fastest(e backends.Executable) (time.Duration, error) {
	best, err := run(e)
	for range 3 {
		if err != nil {
			return 0, err
		}
		var t time.Duration
		t, err = run(e)
		best = min(best, t)
	}
	return best, err
}

// endToEnd times an operation with the copies that a caller from the host pays:
// activations to the device, results back. Weights and caches stay there.
func (m *measurement) endToEnd(p *placed, cache string) (err error) {
	r := m.result(cache)
	r.Bench += "/e2e"
	r.Clock, r.WorkingSet = record.HostClock, p.set
	r.Roofs.ReadGBs, r.Roofs.MeasuredReadGBs = 0, 0 // copies cross the bus, whose rate these are not
	e, err := m.dev.Capture(p.program(1))
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	results, err := p.results() // memory for them
	if err != nil {
		return err
	}
	given := make([][]byte, len(p.in))
	for i, v := range m.c.Node.In {
		if v != nil && v.Kind == graph.Input {
			given[i] = spread(m.data[i], v, m.c.Strides[i])
		}
	}
	kept := sampling{r: &r}
	for warm, start := 2, time.Now(); warm > 0 || !m.enough(kept.taken, start); {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		begin := time.Now()
		for i, s := range p.in {
			if given[i] == nil {
				continue
			}
			o := s.at(0)
			if err := p.stream.Write(o.Buffer, o.Offset, given[i]); err != nil {
				return err
			}
		}
		if _, err := run(e); err != nil {
			return err
		}
		for i, s := range p.out {
			if i == 0 && m.c.Node.Op.Kind == graph.Update {
				continue
			}
			o := s.at(0)
			if err := p.stream.Read(o.Buffer, o.Offset, results[i]); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		if warm > 0 {
			warm, start = warm-1, time.Now()
			continue
		}
		kept.add(took.Seconds(), math.NaN())
	}
	kept.finish()
	guard.Finish(&r)
	m.results = append(m.results, r)
	return nil
}
