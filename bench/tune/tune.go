package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/sorting"
)

// Options say how to tune.
type Options struct {
	Device backends.Device // whose variants are tried; the child opens one of its own
	Child  child.Command   // runs Serve on its standard input and output
	// Limit is how long a variant may take to be compiled, checked and measured once.
	Limit   time.Duration
	Rounds  int // in which the variants take turns
	Samples int // of a variant in a round, at least
	MinTime time.Duration
	Warm    bool // operands may stay in caches; else each repetition finds them in memory
	Roofs   record.Roofs
	Again   bool // also what was tuned before
	// Emit is given every result that was measured, with its variant as Config. It may be nil.
	Emit func(*record.Result)
	// Progress is told what is tried. It may be nil.
	Progress func(text string)
}

// minGain is how much faster than the default a variant must be to be chosen: less
// is not worth a choice that may be chance.
const minGain = 1.02

// certain is the p value below which a variant counts as faster than the default.
const certain = 0.01

// Task is a kernel to be tuned: one bucket of shapes, and a case that stands for it.
type Task struct {
	Key
	Case     *op.Case
	Variants []string // of the device, the default first
}

// Tasks finds what can be tuned in a list of cases: those whose kernel has variants,
// once for each bucket; the largest case stands for its bucket.
func Tasks(dev backends.Device, cases []*op.Case) []Task {
	t, _ := backends.Tuned(dev)
	var tasks []Task
	for _, c := range cases {
		variants := t.Variants(c.Node)
		if len(variants) < 2 {
			continue
		}
		task := Task{KeyOf(dev, c.Node), c, variants}
		i := slices.IndexFunc(tasks, func(x Task) bool { return x.Key == task.Key })
		switch {
		case i < 0:
			tasks = append(tasks, task)
		case elements(c.Node) > elements(tasks[i].Case.Node):
			tasks[i] = task
		}
	}
	return tasks
}

func elements(n *graph.Node) int {
	sum := 0
	for _, v := range n.In {
		if v != nil {
			sum += v.Shape.Elems()
		}
	}
	return sum
}

// Run tunes one task. have is what is known of it, nil if nothing. Variants that
// were tried with the same code are not tried again, but for the best of them and
// the default, against which new ones are measured. changed says whether anything was measured.
func Run(ctx context.Context, t Task, have *Entry, opt Options) (e Entry, changed bool, err error) {
	known := map[string]Trial{}
	if have != nil && !opt.Again {
		for _, tr := range have.Tried {
			if slices.Contains(t.Variants, tr.Variant) && tr.Code == codeOf(opt.Device, t.Case.Node, tr.Variant) {
				known[tr.Variant] = tr
			}
		}
	}
	var try []string
	for _, v := range t.Variants {
		if _, ok := known[v]; !ok {
			try = append(try, v)
		}
	}
	if len(try) == 0 {
		return *have, false, nil
	}
	// What new variants have to beat.
	for _, v := range t.Variants {
		if k, ok := known[v]; ok && k.Rejected == "" && (v == t.Variants[0] || v == have.Best) {
			try = append(try, v)
		}
	}
	sorting.Sort(try, func(a, b string) int { return slices.Index(t.Variants, a) - slices.Index(t.Variants, b) })
	found, err := measure(ctx, t.Case, try, opt)
	if err != nil {
		return e, false, err
	}
	e = Entry{Key: t.Key}
	samples := map[string][]float64{}
	for _, v := range t.Variants {
		r := found[v]
		if r == nil {
			if k, ok := known[v]; ok {
				e.Tried = append(e.Tried, k)
			}
			continue
		}
		tr := Trial{Variant: v, Code: codeOf(opt.Device, t.Case.Node, v)}
		if r.Verdict == record.OK {
			s := stats.Summarize(r.Samples)
			tr.Seconds, tr.N = s.Median, s.N
			samples[v] = r.Samples
		} else {
			tr.Rejected = r.Reason
		}
		e.Tried = append(e.Tried, tr)
		if opt.Emit != nil {
			opt.Emit(r)
		}
	}
	e.Best, e.Gain = choose(t.Variants, samples)
	if e.Best == "" {
		var why []string
		for _, tr := range e.Tried {
			why = append(why, tr.Variant+": "+tr.Rejected)
		}
		return e, true, fmt.Errorf("%s %s: every variant was rejected: %s", t.Op, t.Shape, strings.Join(why, "; "))
	}
	return e, true, nil
}

// choose gives the fastest variant, and how many times as fast it is as the
// default: only one that is surely and noticeably faster displaces the default.
func choose(variants []string, samples map[string][]float64) (best string, gain float64) {
	median := func(v string) float64 { return stats.Summarize(samples[v]).Median }
	for _, v := range variants {
		if len(samples[v]) > 0 && (best == "" || median(v) < median(best)) {
			best = v
		}
	}
	base := variants[0]
	if best == "" || best == base || len(samples[base]) == 0 {
		return best, 1
	}
	gain = median(base) / median(best)
	th := &benchmath.DefaultThresholds
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(samples[base]), th),
		benchmath.NewSample(slices.Clone(samples[best]), th))
	if gain < minGain || c.P > certain {
		return base, 1
	}
	return best, gain
}

// measure tries variants of a case in children, one after another until all have
// been tried or rejected, and gives a result for each.
func measure(ctx context.Context, c *op.Case, variants []string, opt Options) (map[string]*record.Result, error) {
	w, err := toWire(c)
	if err != nil {
		return nil, err
	}
	found := map[string]*record.Result{}
	reject := func(v, why string) {
		found[v] = &record.Result{Bench: "op/" + c.Node.Op.Name, Params: c.Params, Config: v, Verdict: record.Failed,
			Reason: why}
	}
	left := slices.Clone(variants)
	for len(left) > 0 {
		j := job{w, left, opt.Rounds, opt.Samples, opt.MinTime, opt.Warm, opt.Roofs}
		// What a child that died had measured of others is dropped: a child measures
		// all that it compares in one go.
		for _, v := range left {
			delete(found, v)
		}
		at, err := oneChild(ctx, j, found, reject, opt)
		if err == nil {
			return found, nil
		}
		var death *child.Death
		if ctx.Err() != nil || at == "" || !errors.As(err, &death) {
			return nil, err
		}
		reject(at, death.Error())
		left = slices.DeleteFunc(left, func(v string) bool {
			return v == at || found[v] != nil && found[v].Verdict != record.OK
		})
	}
	return found, nil
}

// oneChild runs a job in a child. at is the variant that was under way when it ended with an error.
func oneChild(ctx context.Context, j job, found map[string]*record.Result, reject func(v, why string),
	opt Options) (at string, err error) {
	p, err := child.Start(opt.Child, opt.Limit)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	go func() {
		json.NewEncoder(p.In).Encode(j) // an error shows as the child's
		p.In.Close()
	}()
	d, done := json.NewDecoder(p.Out), false
	var said error
	for {
		var m message
		if err := d.Decode(&m); err != nil {
			break
		}
		p.Alive()
		switch {
		case m.Begin != "":
			if at = m.Begin; opt.Progress != nil {
				opt.Progress(fmt.Sprintf("%s %s", j.Case.Op, at))
			}
		case m.Done:
			done = true
		case m.Variant == "":
			said = errors.New(m.Error)
		case m.Result == nil:
			reject(m.Variant, m.Error)
			at = ""
		default:
			at = ""
			add(found, m.Variant, m.Result)
		}
	}
	err = p.Wait()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case said != nil:
		return "", said
	case err == nil && !done:
		err = errors.New("the child process ended before its work was done")
	}
	return at, err
}

// add joins the samples of a variant's rounds. One round that failed rejects it.
func add(found map[string]*record.Result, v string, r *record.Result) {
	have := found[v]
	if have == nil || r.Verdict != record.OK {
		found[v] = r
		return
	}
	have.Samples = append(have.Samples, r.Samples...)
	have.Host = append(have.Host, r.Host...)
}
