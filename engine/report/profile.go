package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/sorting"
)

// Profile is where the time of a step goes: the parts that run, with what they had to do, and
// what lies before, between and behind them.
type Profile struct {
	Title string
	Lines []ProfileLine
	// Cut says that times of parts are what each adds to the step, as it runs; else they are those of
	// parts that run alone.
	Cut bool
	// Start and End are what a step takes on the device before its first part and behind its last one,
	// Whole all that it takes there (0: the device is the host), and Step what it takes from the host and back.
	Start, End, Whole, Step time.Duration
	// ReadGBs and GFlops are the device's roofs, 0 where unknown.
	ReadGBs, GFlops float64
}

// ProfileLine is a part: a launch, or several that run as one.
type ProfileLine struct {
	Nodes  []*graph.Node // the first one names it
	Kernel string
	Time   time.Duration
	Alone  time.Duration // with nothing else under way
	Cost   graph.Cost    // without what the launches hand on to each other
}

// NewProfile gives the profile of a step of a device's program of which outputs are read: x explains where
// its time goes, step is how long it takes from the host, kv the number of positions in the caches.
func NewProfile(dev backends.Device, p *backends.Program, outputs []*graph.Value, x *backends.Explanation,
	step time.Duration, kv int) (*Profile, error) {
	out := &Profile{Title: fmt.Sprintf("%s, %d positions", p.Name, kv), Cut: x.Cut, Start: x.Start, End: x.End,
		Whole: x.Whole, Step: step}
	for i := range x.Parts {
		part := &x.Parts[i]
		cost, err := partCost(dev, p, part.Launches, outputs, kv)
		if err != nil {
			return nil, err
		}
		line := ProfileLine{Kernel: p.Launches[part.Launches[0]].Kernel.Name(), Time: x.Took(part), Alone: part.Alone,
			Cost: cost}
		for _, i := range part.Launches {
			line.Nodes = append(line.Nodes, p.Launches[i].Node)
		}
		out.Lines = append(out.Lines, line)
	}
	return out, nil
}

// partCost is what launches that run as one have to do. A result that only they read is neither
// written nor read, and what several of a kind read first, as products their activations, is read once.
func partCost(dev backends.Device, p *backends.Program, launches []int, outputs []*graph.Value,
	kv int) (graph.Cost, error) {
	var all graph.Cost
	for _, i := range launches {
		c, err := backends.Cost(dev, &p.Launches[i], kv)
		if err != nil {
			return all, err
		}
		all = all.Plus(c)
	}
	for n, i := range launches {
		l := &p.Launches[i]
		if l.Node.Op.Kind == graph.Update { // some rows of a cache, of which others read all
			continue
		}
		if readAgain(p, launches, n) {
			all.Read = max(all.Read-bytesOf(&l.In[0]), 0)
		}
		for k := range l.Out {
			o := &l.Out[k]
			within, beyond := readers(p, launches, i, o)
			all.Read = max(all.Read-float64(within)*bytesOf(o), 0)
			if within > 0 && !beyond && !slices.Contains(outputs, l.Node.Out[k]) {
				all.Write = max(all.Write-bytesOf(o), 0)
			}
		}
	}
	return all, nil
}

func bytesOf(o *backends.Operand) float64 { return float64(o.Type.RowBytes(o.RowElems()) * o.Rows()) }

// lies says whether one of a list lies where an operand does.
func lies(list []backends.Operand, o *backends.Operand) bool {
	return slices.ContainsFunc(list, func(x backends.Operand) bool { return x.Buffer == o.Buffer && x.Offset == o.Offset })
}

// readAgain says whether the n-th of launches that run as one reads first what one before it of its kind
// reads first, and none of them writes.
func readAgain(p *backends.Program, launches []int, n int) bool {
	l := &p.Launches[launches[n]]
	return slices.ContainsFunc(launches[:n], func(j int) bool {
		o := &p.Launches[j]
		return o.Node.Op == l.Node.Op && len(l.In) > 0 && lies(o.In[:1], &l.In[0])
	}) && !slices.ContainsFunc(launches, func(j int) bool { return lies(p.Launches[j].Out, &l.In[0]) })
}

// readers counts the operands by which launches that run as one read a result of launch i, and says whether others
// read it, until another result lies there.
func readers(p *backends.Program, launches []int, i int, o *backends.Operand) (within int, beyond bool) {
	for j := i + 1; j < len(p.Launches); j++ {
		l := &p.Launches[j]
		for k := range l.In {
			switch {
			case !lies(l.In[k:k+1], o):
			case slices.Contains(launches, j):
				within++
			default:
				beyond = true
			}
		}
		if lies(l.Out, o) {
			break
		}
	}
	return within, beyond
}

// operators names what a part does, in the order of its launches: "rmsnorm + 2 linear + swiglu".
func (l *ProfileLine) operators() string {
	nodes := slices.Clone(l.Nodes)
	sorting.Sort(nodes, func(a, b *graph.Node) int { return a.ID - b.ID })
	var names []string
	for i := 0; i < len(nodes); {
		n := i
		for n < len(nodes) && nodes[n].Op == nodes[i].Op {
			n++
		}
		name := nodes[i].Op.Name
		if n-i > 1 {
			name = fmt.Sprint(n-i, " ", name)
		}
		names, i = append(names, name), n
	}
	return strings.Join(names, " + ")
}

// sum is the total of a group of launches.
type sum struct {
	name        string
	n           int // launches
	time, alone time.Duration
	cost        graph.Cost
}

func (p *Profile) group(key func(*ProfileLine) string) []*sum {
	var list []*sum
	byName := map[string]*sum{}
	for i := range p.Lines {
		l := &p.Lines[i]
		k := key(l)
		s := byName[k]
		if s == nil {
			s = &sum{name: k}
			byName[k] = s
			list = append(list, s)
		}
		s.n += len(l.Nodes)
		s.time += l.Time
		s.alone += l.Alone
		s.cost = s.cost.Plus(l.Cost)
	}
	return list
}

// Text prints the time per kind of part, most first, and per block; the sum is the step.
func (p *Profile) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile of %s: a step takes %.3f ms", p.Title, MS(p.Step))
	if p.Whole > 0 {
		fmt.Fprintf(&b, ", %.3f of it on the device", MS(p.Whole))
	}
	b.WriteByte('\n')
	kinds := p.group(func(l *ProfileLine) string { return l.operators() + "  " + l.Kernel })
	sorting.Sort(kinds, func(a, b *sum) int { return int(b.time - a.time) })
	b.WriteString(p.table("<operators and kernel", kinds))
	blocks := p.group(func(l *ProfileLine) string {
		if l.Nodes[0].Block < 0 {
			return "outside"
		}
		return "block " + strconv.Itoa(l.Nodes[0].Block)
	})
	b.WriteByte('\n')
	b.WriteString(p.table("<block", blocks))
	return b.String()
}

// rest is what a step takes beside its parts.
func (p *Profile) rest(parts time.Duration) []*sum {
	list := []*sum{{name: "start, inputs", time: p.Start}, {name: "results", time: p.End}}
	whole := p.Whole
	if whole == 0 {
		whole = p.Step
	}
	if !p.Cut {
		gaps := &sum{name: "gaps", time: whole - parts}
		if gaps.time < 0 {
			gaps.name = "overlap"
		}
		list = []*sum{gaps}
	}
	if p.Whole > 0 {
		list = append(list, &sum{name: "host", time: p.Step - p.Whole})
	}
	return list
}

func (p *Profile) table(head string, sums []*sum) string {
	t := NewTable(head, "launches", "ms", "share", "alone", "bytes", "GB/s", "flop", "GFLOP/s", "roof")
	share := func(s *sum) string { return fmt.Sprintf("%.1f %%", 100*float64(s.time)/max(float64(p.Step), 1)) }
	row := func(s *sum) {
		bytes := s.cost.Read + s.cost.Write
		gbs, gflops := rate(bytes, s.time), rate(s.cost.Flops, s.time)
		t.Row(s.name, strconv.Itoa(s.n), fmt.Sprintf("%.3f", MS(s.time)), share(s), fmt.Sprintf("%.3f", MS(s.alone)),
			Bytes(bytes), number(gbs), fmt.Sprintf("%.3g", s.cost.Flops), number(gflops), p.roof(gbs, gflops))
	}
	total := &sum{name: "all"}
	for _, s := range sums {
		row(s)
		total.n += s.n
		total.time += s.time
		total.alone += s.alone
		total.cost = total.cost.Plus(s.cost)
	}
	for _, s := range p.rest(total.time) {
		t.Row(s.name, "", fmt.Sprintf("%.3f", MS(s.time)), share(s))
		total.time += s.time
	}
	row(total)
	return t.String()
}

// shortest is the time below which no rate is given: clocks of devices tick more slowly, and nothing is done in it.
const shortest = 500 * time.Nanosecond

// rate is in 10⁹ a second, 0 where there is none.
func rate(work float64, d time.Duration) float64 {
	if d < shortest {
		return 0
	}
	return work / d.Seconds() / 1e9
}

// number prints a rate, "–" where there is none.
func number(rate float64) string {
	if rate == 0 {
		return "–"
	}
	return Number(rate)
}

// roof is the part of the nearer roof that rates reach, memory's or arithmetic's.
func (p *Profile) roof(gbs, gflops float64) string {
	share := 0.0
	if p.ReadGBs > 0 {
		share = gbs / p.ReadGBs
	}
	if p.GFlops > 0 {
		share = max(share, gflops/p.GFlops)
	}
	if share == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// traceEvent is a complete event of Chrome's trace format: times in microseconds.
type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// Trace writes profiles as a Chrome trace, one track a profile, the parts
// in a row as they began, each as long as what it adds.
func Trace(w io.Writer, profiles ...*Profile) error {
	var events []traceEvent
	for tid, p := range profiles {
		events = append(events, traceEvent{Name: "thread_name", Ph: "M", PID: 1, TID: tid + 1,
			Args: map[string]any{"name": p.Title}})
		at := p.Start
		for i := range p.Lines {
			l, took := &p.Lines[i], max(p.Lines[i].Time, 0)
			events = append(events, traceEvent{
				Name: l.Nodes[0].Name, Cat: l.Nodes[0].Op.Name, Ph: "X", PID: 1, TID: tid + 1,
				TS: float64(at) / 1e3, Dur: float64(took) / 1e3,
				Args: map[string]any{"operator": l.operators(), "kernel": l.Kernel, "block": l.Nodes[0].Block,
					"alone_us": float64(l.Alone) / 1e3,
					"flops":    l.Cost.Flops, "bytes": l.Cost.Read + l.Cost.Write, "place": l.Nodes[0].Place},
			})
			at += took
		}
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
