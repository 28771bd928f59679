package cpu

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// weightsOf gives the memory that the program's products read of weights, in
// order, and how many bytes of it each type has. Of a stack of experts it gives as many as
// are chosen for a token.
func weightsOf(p *backends.Program) (parts [][]byte, bytes map[tensor.Type]int, err error) {
	bytes = map[tensor.Type]int{}
	for i := range p.Launches {
		l := &p.Launches[i]
		if !ops.IsProduct(l.Node.Op) {
			continue
		}
		w := &l.In[1]
		if w.Packing != "" {
			used := 1
			if l.Node.Op == ops.LinearID {
				used = min(l.In[2].Shape[1], w.Shape[0])
			}
			for e := range used {
				m, err := panelsOf(w, e)
				if err != nil {
					return nil, nil, err
				}
				parts = append(parts, m.Data)
				bytes[w.Type] += m.ReadBytes()
			}
			continue
		}
		size := w.Type.RowBytes(w.Shape.Elems())
		if l.Node.Op == ops.LinearID {
			size = size / max(1, w.Shape[0]) * l.In[2].Shape[1]
		}
		part, err := hostRange(w.Buffer, w.Offset, size)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, part)
		bytes[w.Type] += size
	}
	return parts, bytes, nil
}

// PackedExcess is by how much what a product reads of packed weights exceeds their size as stored.
func (d *Device) PackedExcess(l *backends.Launch) (float64, error) {
	if !ops.IsProduct(l.Node.Op) || len(l.In) < 2 || l.In[1].Packing == "" {
		return 0, nil
	}
	w := &l.In[1]
	count, rows, cols := matrices(w.Shape)
	used := count
	if l.Node.Op == ops.LinearID {
		used = min(l.In[2].Shape.Elems(), count)
	}
	excess := 0
	for e := range used {
		m, err := panelsOf(w, e)
		if err != nil {
			return 0, err
		}
		excess += m.ReadBytes() - rows*w.Type.RowBytes(cols)
	}
	return float64(excess), nil
}

// operandsOf gives the memory that a program without products reads, in order.
func operandsOf(p *backends.Program) (parts [][]byte, err error) {
	for i := range p.Launches {
		for _, o := range p.Launches[i].In {
			if o.Buffer == nil || !o.Dense() {
				continue
			}
			part, err := hostRange(o.Buffer, o.Offset, o.Type.RowBytes(o.Shape.Elems()))
			if err != nil {
				return nil, err
			}
			if len(part) >= chunkBytes { // less is more call than reading
				parts = append(parts, part)
			}
		}
	}
	return parts, nil
}

// Limits measures a read loop over the weights of the program's products, which
// lie where and as they lie for the products, and the peak of the arithmetic
// that most of them take. Of a program without products it reads the operands.
func (d *Device) Limits(p *backends.Program, budget time.Duration) (backends.Limits, error) {
	parts, bytes, err := weightsOf(p)
	if err != nil {
		return backends.Limits{}, err
	}
	if len(parts) == 0 {
		if parts, err = operandsOf(p); err != nil || len(parts) == 0 {
			return backends.Limits{}, err
		}
		x := backends.Limits{}
		x.ReadGBs, x.BestReadGBs = d.readRate(parts, budget)
		return x, nil
	}
	var most tensor.Type
	x := backends.Limits{}
	for t, n := range bytes {
		x.WeightBytes += float64(n)
		if n > bytes[most] || n == bytes[most] && t < most {
			most = t
		}
	}
	x.ReadGBs, x.BestReadGBs = d.readRate(parts, budget*2/3)
	peak := d.k.PeakOf(most, d.bf16)
	rate, best := d.peakRate(&peak, budget/3)
	x.GFlops, x.BestGFlops = 2*rate/float64(peak.Products), 2*best/float64(peak.Products)
	x.Arithmetic = peak.Name
	return x, nil
}

// reading is a region that reads memory; a chunk is a piece of it.
type reading struct {
	d       *Device
	streams int // see simd.ReadStreams
	pieces  [][]byte
	best    []float64 // GB/s of each worker's fastest piece, a line of cache apart
	sum     atomic.Uint32
}

func (r *reading) Do(worker, chunk int) {
	begin := time.Now()
	if r.d.k.Read(r.pieces[chunk], r.streams) == 1e30 { // the sum is needed, or reading could be left out
		r.sum.Add(1)
	}
	r.best[8*worker] = max(r.best[8*worker], float64(len(r.pieces[chunk]))/max(1, float64(time.Since(begin))))
}

// readRate gives GB/s of the fastest pass over all of the memory, by any of simd.ReadStreams, which
// take turns, and what the workers' fastest pieces would make together, which is no less than they
// can do. A pass is one region of the pool: to divide it would add the end of each part, where
// workers wait for the last one, to what is a roof.
func (d *Device) readRate(parts [][]byte, budget time.Duration) (rate, best float64) {
	r := &reading{d: d, best: make([]float64, 8*d.pool.Size())}
	bytes := 0
	for _, part := range parts {
		r.pieces = slices.AppendSeq(r.pieces, slices.Chunk(part, chunkBytes))
		bytes += len(part)
	}
	for start, turn := time.Now(), 0; turn < len(simd.ReadStreams) || time.Since(start) < budget; turn++ {
		r.streams = simd.ReadStreams[turn%len(simd.ReadStreams)]
		begin := time.Now()
		d.pool.RunAll(r, len(r.pieces))
		rate = max(rate, float64(bytes)/max(1, float64(time.Since(begin))))
	}
	for _, b := range r.best {
		best = max(best, b)
	}
	return rate, best * float64(d.pool.Size())
}

// multiplying is a region of multiply-adds.
type multiplying struct {
	peak *simd.Peak
	p    [][]float32
	done []int     // by each worker, a line of cache apart
	best []float64 // 10⁹ a second of each worker's fastest chunk, a line of cache apart
}

func (m *multiplying) Do(worker, _ int) {
	begin := time.Now()
	n := m.peak.Run(m.p[worker], peakRuns)
	m.done[16*worker] += n
	m.best[8*worker] = max(m.best[8*worker], float64(n)/max(1, float64(time.Since(begin))))
}

// peakRuns is what a chunk of multiplying runs.
const peakRuns = 256

// peakRate gives 10⁹ multiply-adds a second of the fastest region, and what the workers' fastest chunks would make
// together, which is no less than they can do.
func (d *Device) peakRate(peak *simd.Peak, budget time.Duration) (rate, best float64) {
	workers := d.pool.Size()
	m := &multiplying{peak: peak, done: make([]int, 16*workers), best: make([]float64, 8*workers)}
	for range workers {
		p := simd.AlignedFloats(simd.PeakFloats)
		for i := range p {
			p[i] = 1 / float32(1+i%7)
		}
		m.p = append(m.p, p)
	}
	for start := time.Now(); time.Since(start) < budget; {
		clear(m.done)
		from := time.Now()
		d.pool.RunAll(m, 64*workers)
		took := time.Since(from)
		sum := 0
		for _, n := range m.done {
			sum += n
		}
		rate = max(rate, float64(sum)/took.Seconds()/1e9)
	}
	for _, b := range m.best {
		best = max(best, b)
	}
	return rate, best * float64(workers)
}

var _ interface {
	backends.Limiter
	backends.Device
} = (*Device)(nil)

var _ pool.Task = (*reading)(nil)
