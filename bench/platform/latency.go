package platform

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// latency: what a load costs that waits for the one before it, over sizes from the
// first-level cache to memory. A random cycle through all lines of the buffer, so
// that neither the order nor a short loop can be guessed.
var _ = define(Benchmark{
	Name:  "latency",
	About: "a pointer chase along one random cycle, one node a cache line, from the first level to four times the last",
	Params: map[string]string{"bytes": "size of the buffer", "step": "growth of the sizes in percent: 104 is 4 % more " +
		"each time"},
	GPU: latencyGPU,
	CPU: latencyCPU,
})

// gpuLine is the distance of nodes on GPUs, bytes.
const gpuLine = 128

func latencyGPU(g *GPU) error {
	most := min(g.away(), g.limits.mostBuffer, g.limits.free/2)
	for _, bytes := range g.sizes("bytes", steps(16<<10, most, g.size("step", 130), gpuLine)...) {
		if err := chaseGPU(g, bytes); err != nil {
			return err
		}
		if err := g.release(); err != nil {
			return err
		}
	}
	return nil
}

// cycle gives a random single cycle through n nodes: the order of visits.
func cycle(n int) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	rand.New(rand.NewPCG(uint64(n), 1)).Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// chaseGPU measures the latency of loads over a ring of bytes: in one piece, buffers, kernel,
// samples and check.
func chaseGPU(g *GPU, bytes int) error {
	nodes := bytes / gpuLine
	buf, err := g.alloc(nodes * gpuLine)
	if err != nil {
		return err
	}
	at, err := g.alloc(16)
	if err != nil {
		return err
	}
	order, data := cycle(nodes), make([]byte, nodes*gpuLine)
	// name is what a node holds for the next: an address, or an index in words where
	// kernels have none.
	name := func(node uint32) uint64 {
		if buf.Address() == 0 {
			return uint64(node) * (gpuLine / 4)
		}
		return buf.Address() + uint64(node)*gpuLine
	}
	for i, node := range order {
		binary.LittleEndian.PutUint64(data[int(node)*gpuLine:], name(order[(i+1)%nodes]))
	}
	if err := buf.Write(0, data); err != nil {
		return err
	}
	if err := at.Write(0, binary.LittleEndian.AppendUint64(nil, name(order[0]))); err != nil {
		return err
	}
	// Sets that may fit in a first level are gone through before the clock starts:
	// that level is empty when a kernel begins.
	warm, steps := 0, 16<<10
	if bytes <= 1<<20 {
		warm, steps = (nodes+31)&^31, 64<<10
	}
	args := []any{at, uint32(warm), uint32(steps)}
	if buf.Address() == 0 {
		args = append([]any{buf}, args...)
	}
	l, err := g.dev.bind(code{"latency", "chase", 32, nil}, 1, 0, args...)
	if err != nil {
		return err
	}
	if warm == 0 { // the whole cycle once, so that what stays in a cache is there
		for done := 0; done < nodes; done += steps {
			if err := g.once(code{"latency", "chase", 32, nil}, 1, args...); err != nil {
				return err
			}
		}
	}
	launches := 0
	if warm == 0 {
		launches = ceil(nodes, steps)
	}
	var cycles []float64
	run, err := g.sampler(inStream, 1, l)
	if err != nil {
		return err
	}
	p := point{most: 1, prepare: func(int) (sampler, func() error, error) {
		cycles = nil
		return func() (float64, float64, error) {
			launches++
			d, h, err := run()
			if err != nil {
				return 0, 0, err
			}
			w, err := readWords(at, 2)
			cycles = append(cycles, float64(w[1])/float64(steps))
			return d / float64(warm+steps), h / float64(warm+steps), err
		}, nil, nil
	}}
	p.Params = map[string]string{"bytes": itoa(nodes * gpuLine)}
	p.WorkingSet = float64(nodes * gpuLine)
	p.Roofs.LastCache = float64(g.limits.lastCache())
	p.check = func() (record.Check, error) {
		w, err := readWords(at, 1)
		if err != nil {
			return record.Check{}, err
		}
		want := order[launches*(warm+steps)%nodes]
		if w[0] != name(want) {
			return exact(1, 1), nil
		}
		return exact(0, 1), nil
	}
	p.finish = func(r *record.Result) error {
		if g.MHz == 0 {
			return nil
		}
		n := len(r.Samples)
		r.Metrics = map[string]float64{"cycles": median(cycles[len(cycles)-n:])}
		for q, name := range map[float64]string{0.05: "cycles_p5", 0.95: "cycles_p95"} {
			if v, err := stats.Percentile(cycles[len(cycles)-n:], q); err == nil {
				r.Metrics[name] = v
			}
		}
		return nil
	}
	if _, err := g.measure(p); err != nil {
		return fmt.Errorf("%d bytes: %w", bytes, err)
	}
	return nil
}
