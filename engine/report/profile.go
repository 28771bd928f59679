package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"greta/backends"
	"greta/graph"
)

// Profile is the time of each launch of a step, with what it had to do.
type Profile struct {
	Title string
	Lines []ProfileLine
	Total time.Duration // sum of the launches
}

// ProfileLine is one launch.
type ProfileLine struct {
	Node   *graph.Node
	Kernel string
	Time   time.Duration // median of the runs
	Cost   graph.Cost
}

// NewProfile joins a program with runs of it: for each run the time of each
// launch. kv is the number of positions in the caches.
func NewProfile(p *backends.Program, runs [][]time.Duration, kv int) (*Profile, error) {
	out := &Profile{Title: fmt.Sprintf("%s, %d positions, median of %d", p.Name, kv, len(runs))}
	for i := range p.Launches {
		l := &p.Launches[i]
		samples := make([]time.Duration, 0, len(runs))
		for _, r := range runs {
			if len(r) != len(p.Launches) {
				return nil, fmt.Errorf("%d times were measured for the %d launches of %s", len(r), len(p.Launches), p.Name)
			}
			samples = append(samples, r[i])
		}
		slices.Sort(samples)
		line := ProfileLine{Node: l.Node, Kernel: l.Kernel.Name(), Time: samples[len(samples)/2]}
		if l.Node.Op.Cost != nil {
			line.Cost = l.Node.Op.Cost(l.Node, kv)
		}
		out.Lines = append(out.Lines, line)
		out.Total += line.Time
	}
	return out, nil
}

// sum is the total of a group of launches.
type sum struct {
	name string
	n    int
	time time.Duration
	cost graph.Cost
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
		s.n++
		s.time += l.Time
		s.cost = s.cost.Plus(l.Cost)
	}
	return list
}

// Text prints the time per operator, most first, and per block.
func (p *Profile) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile of %s: %.3f ms\n", p.Title, MS(p.Total))
	ops := p.group(func(l *ProfileLine) string { return l.Node.Op.Name + " " + l.Kernel })
	slices.SortStableFunc(ops, func(a, b *sum) int { return int(b.time - a.time) })
	b.WriteString(p.table("<operator and kernel", ops))
	blocks := p.group(func(l *ProfileLine) string {
		if l.Node.Block < 0 {
			return "outside"
		}
		return "block " + strconv.Itoa(l.Node.Block)
	})
	b.WriteByte('\n')
	b.WriteString(p.table("<block", blocks))
	return b.String()
}

func (p *Profile) table(head string, sums []*sum) string {
	t := NewTable(head, "launches", "ms", "share", "bytes", "GB/s", "flop", "GFLOP/s")
	row := func(s *sum) {
		bytes := s.cost.Read + s.cost.Write
		seconds := max(s.time.Seconds(), 1e-12)
		t.Row(s.name, strconv.Itoa(s.n), fmt.Sprintf("%.3f", MS(s.time)),
			fmt.Sprintf("%.1f %%", 100*float64(s.time)/max(float64(p.Total), 1)),
			Bytes(bytes), Number(bytes/seconds/1e9), fmt.Sprintf("%.3g", s.cost.Flops), Number(s.cost.Flops/seconds/1e9))
	}
	total := &sum{name: "all"}
	for _, s := range sums {
		row(s)
		total.n += s.n
		total.time += s.time
		total.cost = total.cost.Plus(s.cost)
	}
	row(total)
	return t.String()
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

// Trace writes profiles as a Chrome trace, one track a profile, the launches
// in a row as they ran.
func Trace(w io.Writer, profiles ...*Profile) error {
	var events []traceEvent
	for tid, p := range profiles {
		events = append(events, traceEvent{Name: "thread_name", Ph: "M", PID: 1, TID: tid + 1, Args: map[string]any{"name": p.Title}})
		var at time.Duration
		for i := range p.Lines {
			l := &p.Lines[i]
			events = append(events, traceEvent{
				Name: l.Node.Name, Cat: l.Node.Op.Name, Ph: "X", PID: 1, TID: tid + 1,
				TS: float64(at) / 1e3, Dur: float64(l.Time) / 1e3,
				Args: map[string]any{"operator": l.Node.Op.Name, "kernel": l.Kernel, "block": l.Node.Block,
					"flops": l.Cost.Flops, "bytes": l.Cost.Read + l.Cost.Write, "place": l.Node.Place},
			})
			at += l.Time
		}
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
