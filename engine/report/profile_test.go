package report

import (
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

type memory struct{ backends.Buffer }

type kernel struct {
	backends.Kernel
	name string
}

func (k kernel) Name() string { return k.name }

// packs is a device that reads 300 bytes less of a product's weights than they have as stored.
type packs struct{ backends.Device }

func (packs) PackedExcess(l *backends.Launch) (float64, error) {
	if l.Node.Op.Name == "linear" {
		return -300, nil
	}
	return 0, nil
}

// norm → two products → gate, of which all but the norm's x and the gate's result are handed on; the
// second product's result is read once more, behind the part.
func fused() (p *backends.Program, outputs []*graph.Value) {
	m := &memory{}
	at := func(offset, n int) backends.Operand {
		return backends.Operand{Buffer: m, Offset: offset, Stride: 4 * n, Type: tensor.F32, Shape: tensor.Shape{1, n}}
	}
	p = &backends.Program{Name: "tiny S=1"}
	add := func(name string, block int, read, write float64, out backends.Operand, in ...backends.Operand) {
		op := &graph.Op{Name: name, Cost: func(*graph.Node, int) graph.Cost {
			return graph.Cost{Flops: 1e6, Read: read, Write: write}
		}}
		for _, l := range p.Launches {
			if l.Node.Op.Name == name {
				op = l.Node.Op
			}
		}
		n := &graph.Node{ID: len(p.Launches), Op: op, Block: block, Out: []*graph.Value{{}}}
		p.Launches = append(p.Launches, backends.Launch{Node: n, Kernel: kernel{name: name + ".k"}, In: in,
			Out: []backends.Operand{out}})
	}
	x, h, a, b, y, z := at(0, 10), at(100, 10), at(200, 20), at(300, 20), at(400, 20), at(500, 20)
	add("norm", 0, 40, 40, h, x)
	add("linear", 0, 840, 80, a, h)
	add("linear", 0, 840, 80, b, h)
	add("gate", 0, 160, 80, y, a, b)
	add("add", -1, 160, 80, z, y, b)
	return p, []*graph.Value{p.Launches[4].Node.Out[0]}
}

func TestPartCost(t *testing.T) {
	p, outputs := fused()
	partCost := func(p *backends.Program, launches []int, outputs []*graph.Value, kv int) graph.Cost {
		c, err := partCost(nil, p, launches, outputs, kv)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	all := partCost(p, []int{1, 0, 2, 3}, outputs, 1)
	// x 40 and weights 800 each are read; b 80 and y 80 are written.
	if want := (graph.Cost{Flops: 4e6, Read: 40 + 1600, Write: 160}); all != want {
		t.Errorf("%+v, want %+v", all, want)
	}
	if pair := partCost(p, []int{1, 2}, outputs, 1); pair.Read != 40+1600 || pair.Write != 160 {
		t.Errorf("what two read is read once: %+v", pair)
	}
	if one := partCost(p, []int{1}, outputs, 1); one != (graph.Cost{Flops: 1e6, Read: 840, Write: 80}) {
		t.Errorf("a launch alone: %+v", one)
	}
	first := p.Launches[1].Node.Op
	update := *first
	update.Kind, p.Launches[1].Node.Op = graph.Update, &update
	if cache := partCost(p, []int{1, 0, 2, 3}, outputs, 1); cache.Read != all.Read+80 || cache.Write != all.Write+80 {
		t.Errorf("a cache is not read: %+v", cache)
	}
	p.Launches[1].Node.Op = first
	if kept := partCost(p, []int{0, 1, 2, 3}, []*graph.Value{p.Launches[0].Node.Out[0]}, 1); kept.Write != all.Write+40 {
		t.Errorf("a result of the step is not written: %+v", kept)
	}
}

// The rows of a profile sum to the step, whether parts were timed in it or alone.
func TestProfileSums(t *testing.T) {
	p, outputs := fused()
	x := &backends.Explanation{Whole: 100 * time.Microsecond, Cut: true, Start: 5 * time.Microsecond,
		End: 4 * time.Microsecond,
		Parts: []backends.Part{{Launches: []int{1, 0, 2, 3}, Alone: 100 * time.Microsecond, Added: 90 * time.Microsecond},
			{Launches: []int{4}, Alone: 20 * time.Microsecond, Added: time.Microsecond}}}
	profile := func(dev backends.Device, step time.Duration) *Profile {
		out, err := NewProfile(dev, p, outputs, x, step, 1)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := profile(packs{}, time.Millisecond).Lines[0].Cost.Read; got != 40+1600-2*300 {
		t.Errorf("of packed weights %v bytes are read", got)
	}
	out := profile(nil, 110*time.Microsecond)
	out.ReadGBs, out.GFlops = 1, 100
	text := out.Text()
	for _, want := range []string{
		"profile of tiny S=1, 1 positions: a step takes 0.110 ms, 0.100 of it on the device",
		"norm + 2 linear + gate  linear.k", "start, inputs", "results", "host", "block 0", "outside", "44 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	sum := func(p *Profile) time.Duration {
		var all time.Duration
		for _, l := range p.Lines {
			all += l.Time
		}
		for _, s := range p.rest(all) {
			all += s.time
		}
		return all
	}
	if got := sum(out); got != out.Step {
		t.Errorf("the rows sum to %v, the step takes %v", got, out.Step)
	}
	for whole, row := range map[time.Duration]string{0: "gaps", 100: "overlap", 130: "gaps"} {
		x.Cut, x.Whole = false, whole*time.Microsecond
		out = profile(nil, 140*time.Microsecond)
		if got := sum(out); got != out.Step || !strings.Contains(out.Text(), row) ||
			strings.Contains(out.Text(), "host") != (whole > 0) {
			t.Errorf("alone: the rows sum to %v, the step takes %v\n%s", got, out.Step, out.Text())
		}
	}
}
