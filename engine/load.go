package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/synthetic"
)

// weightKey names a weight in one layout; two kernels that want the same
// layout share it.
type weightKey struct {
	name    string
	packing string
}

// loaded is a weight in a device's memory.
type loaded struct {
	buffer backends.Buffer
	from   origin
}

// origin says whose pages hold a weight.
type origin uint8

const (
	made      origin = iota // memory of the device's own: converted or made up
	packed                  // the same, in a kernel's layout
	fromFile                // the model file's
	fromCache               // those of the cache of packed weights
)

// load does jobs. What the device can use as the file has it is mapped.
func (e *Engine) load(ctx context.Context, jobs []loadJob) (err error) {
	if len(jobs) == 0 {
		return nil
	}
	start := time.Now()
	defer func() {
		e.times.Loading += time.Since(start)
		e.dense = nil
		if err != nil {
			e.dropEmpty()
		}
	}()
	var total int64
	for _, j := range jobs {
		total += int64(j.value.Bytes())
	}
	var done int64
	count := func(j loadJob) {
		done = min(done+int64(j.value.Bytes()), total) // packed again where keeping failed
		if e.opt.Progress != nil {
			e.tell(func() { e.opt.Progress(done, total) })
		}
	}
	return e.loadJobs(ctx, jobs, count)
}

// aside does what takes long and does not need the device. The turn is given away for that
// time, unless there may be sessions, which would find weights that are not loaded yet.
func (e *Engine) aside(work func() error) error {
	if e.open || e.away {
		return work()
	}
	e.away = true
	e.mutex.Unlock()
	defer func() {
		e.mutex.Lock()
		e.away = false
	}()
	return work()
}

// tell calls the user aside, who may use other engines' sessions.
func (e *Engine) tell(call func()) {
	_ = e.aside(func() error {
		call()
		return nil
	})
}

// promptJobs lists what a step of a prompt's tokens wants beside what the engine's
// table has: kernels of many rows may want a layout of their own. A step that cannot be
// made wants nothing; whoever asks for it is told why.
func (e *Engine) promptJobs() []loadJob {
	n := min(e.opt.Chunk, e.opt.Context)
	if n == 1 {
		return nil
	}
	g, err := e.Graph(n, 1)
	if err != nil {
		return nil
	}
	sel, err := e.selectKernels(g)
	if err != nil {
		return nil
	}
	e.countStep(g, sel)
	return e.jobs(g, sel)
}

// countStep notes what a step takes of the device's memory beside weights and caches.
func (e *Engine) countStep(g *graph.Graph, sel selection) {
	p := planMemory(g, sel, e.dev.Info().Window)
	bytes := int64(p.arena)
	for _, list := range [][]*graph.Value{g.Inputs, g.Outputs} {
		for _, v := range list {
			bytes += int64(v.Bytes())
		}
	}
	e.stepBytes = max(e.stepBytes, bytes)
}

// jobs lists the weights of a graph in the layouts that the selected kernels
// want, each once, and makes room for them in the engine's table.
func (e *Engine) jobs(g *graph.Graph, sel selection) []loadJob {
	var jobs []loadJob
	locs := place(g)
	for i, n := range g.Nodes {
		if sel[i] == nil {
			continue
		}
		for arg, v := range n.In {
			if v == nil {
				continue
			}
			if v = locs[v.ID].root; v.Kind != graph.Weight {
				continue
			}
			var key weightKey
			p := sel[i].Packing(arg)
			key.name = v.Name
			if p != nil {
				key.packing = p.ID
			}
			if e.weights[key] == nil {
				e.weights[key] = &loaded{}
				jobs = append(jobs, loadJob{key, v, p})
			}
		}
	}
	return jobs
}

func (e *Engine) loadJobs(ctx context.Context, jobs []loadJob, count func(loadJob)) error {
	cache, kept, err := e.keeps(jobs)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		if err := e.fits(nil); err != nil {
			return err
		}
		if err := e.loadKept(ctx, cache, kept, count); err != nil {
			return err
		}
	}
	if err := e.fits(jobs); err != nil {
		return err
	}
	l := &loading{e: e, drop: packcache.NewDropper()}
	defer l.close()
	for i, j := range jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.weights[j.key].buffer != nil {
			continue
		}
		l.jobs = jobs[i:]
		w, err := l.one(ctx)
		if err != nil {
			return err
		}
		e.weights[j.key] = w
		count(j)
	}
	return nil
}

// runtimeBytes is about what a process takes beside weights, caches and activations: programs, tokenizers, garbage.
const runtimeBytes = 24 << 20

// free is what the device's memory has left, and what bounds it; 0 where unknown.
func (e *Engine) free() (int64, string) {
	if h := e.host(); h != nil {
		if n, by := h.FreeMemory(); n >= 0 {
			return max(n, 1), by
		}
	}
	return int64(e.dev.Info().Memory), ""
}

// host is the device where its memory is the host's, else nil.
func (e *Engine) host() backends.HostMemory {
	h, _ := e.dev.(backends.HostMemory)
	return h
}

// fits compares what the caches, the activations and the weights that are still to be loaded
// take with the device's memory. Mapped pages can be dropped and do not count.
func (e *Engine) fits(jobs []loadJob) error {
	have, by := e.free()
	if have <= 0 || e.empty { // a rehearsal's device need not have the memory
		return nil
	}
	var weights, caches, beside, dense int64
	for _, v := range e.first.States {
		caches += int64(v.Bytes())
	}
	mapped := e.opt.Source != nil && e.mapper() != nil
	for _, j := range jobs {
		converted := j.value.Load == nil || j.value.Load.Type != j.value.Type || e.opt.Source == nil
		switch {
		case e.weights[j.key].buffer != nil:
		case j.packing != nil:
			weights += int64(j.packing.Size(j.value.Type, j.value.Shape))
			if converted {
				dense = max(dense, int64(j.value.Bytes()))
			}
		case !mapped || converted:
			weights += int64(j.value.Bytes())
		}
	}
	step := e.stepBytes
	if e.host() != nil {
		step = max(step, dense) // converted while loading
		beside = runtimeBytes
		if w, ok := e.dev.(backends.Worker); ok {
			beside += w.Working(e.first.Nodes)
		}
	}
	if need := weights + caches + step + beside; need > have {
		gb := func(n int64) float64 { return float64(n) / 1e9 }
		what := fmt.Sprintf("weights (%.2f GB), caches (%.2f GB) and steps (%.2f GB)", gb(weights), gb(caches),
			gb(step+beside))
		return &OutOfMemory{Need: need, Have: have, What: what, By: by}
	}
	return nil
}

// dropEmpty forgets the weights that a failed load has not reached.
func (e *Engine) dropEmpty() {
	for k, l := range e.weights {
		if l.buffer == nil {
			delete(e.weights, k)
		}
	}
}

// OutOfMemory says that something does not fit a device.
type OutOfMemory = backends.OutOfMemory

// mapper is the device where it can use memory of the host as it is, else nil.
func (e *Engine) mapper() backends.Mapper {
	m, _ := e.dev.(backends.Mapper)
	return m
}

// loading is a load under way.
type loading struct {
	e     *Engine
	jobs  []loadJob // from the one that is loaded now on
	ahead *maker    // from the first weight on that goes to memory that the host does not reach; else nil
	drop  *packcache.Dropper
}

// close ends what is made ahead. Nothing reads sources or uses memory for weights then.
func (l *loading) close() {
	if l.ahead != nil {
		l.e.times.Making += l.ahead.close()
	}
}

func (l *loading) one(ctx context.Context) (*loaded, error) {
	e, j := l.e, &l.jobs[0]
	v := j.value
	as := l.e.hasStored(j)
	var stored []byte
	if as {
		var err error
		if stored, err = e.asStored(v); err != nil {
			return nil, err
		}
		if mapper := e.mapper(); mapper != nil && !e.empty && aligned(stored, v.Type) {
			b, err := mapper.Map(stored)
			return &loaded{b, fromFile}, err
		}
	}
	start := time.Now()
	buf, err := e.dev.Alloc(j.size(), backends.Weights)
	e.times.Allocating += time.Since(start)
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", v.Name, err)
	}
	from := made
	if j.packing != nil {
		from = packed
	}
	switch {
	case e.empty:
		return &loaded{buf, made}, nil
	case as:
		err = l.write(buf, v, stored)
		l.drop.Drop(stored)
	default:
		err = l.fill(ctx, buf)
	}
	if err != nil {
		return nil, errlist.Join(err, buf.Free())
	}
	return &loaded{buf, from}, nil
}

// hostBytes is a buffer whose memory the host can write, unless Bytes gives nil.
type hostBytes interface{ Bytes() []byte }

// fill makes a weight and brings it to a buffer.
func (l *loading) fill(ctx context.Context, buf backends.Buffer) error {
	e, j := l.e, &l.jobs[0]
	if host, ok := buf.(hostBytes); ok && l.ahead == nil {
		if bytes := host.Bytes(); bytes != nil {
			start := time.Now()
			var stored []byte
			err := e.aside(func() (err error) {
				stored, err = e.makeOne(ctx, bytes, j)
				return err
			})
			e.times.Making += time.Since(start)
			l.made(j, stored)
			return err
		}
	}
	if l.ahead == nil {
		l.ahead = e.makeAhead(ctx, l.jobs)
	}
	start := time.Now()
	var p product
	_ = e.aside(func() error {
		p = <-l.ahead.ready
		return nil
	})
	e.times.Waiting += time.Since(start)
	if p.err != nil {
		return p.err
	}
	err := l.write(buf, j.value, p.bytes)
	l.ahead.used(p)
	l.made(j, p.stored)
	return err
}

// made gives back the pages of the file that a weight was made of; stored are they where that is known.
func (l *loading) made(j *loadJob, stored []byte) {
	start := time.Now()
	if stored != nil {
		l.drop.Drop(stored)
	} else {
		l.e.dropSource(l.drop, j.value)
	}
	l.e.times.Dropping += time.Since(start)
}

func (l *loading) write(buf backends.Buffer, v *graph.Value, bytes []byte) error {
	start := time.Now()
	s, err := l.e.dev.Stream()
	if err == nil {
		err = errlist.Join(s.Write(buf, 0, bytes), s.Close())
	}
	l.e.times.Copying += time.Since(start)
	if err != nil {
		return fmt.Errorf("weight %s: %w", v.Name, err)
	}
	return nil
}

// hasStored says whether the device wants a weight's bytes as the file has them.
func (e *Engine) hasStored(j *loadJob) bool { return j.packing == nil && !e.converts(j.value) }

// size is what the weight takes on the device, bytes.
func (j *loadJob) size() int {
	if j.packing != nil {
		return j.packing.Size(j.value.Type, j.value.Shape)
	}
	return j.value.Bytes()
}

// makeOne packs or converts a weight to zeroed bytes of its size. It gives the bytes of the file
// where they were packed as they are.
func (e *Engine) makeOne(ctx context.Context, dst []byte, j *loadJob) (stored []byte, err error) {
	if j.packing == nil {
		err = e.produce(ctx, dst, j.value)
	} else {
		if stored, err = e.asStored(j.value); err != nil {
			return nil, err
		}
		err = e.pack(ctx, dst, j.value, stored, j.packing)
	}
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", j.value.Name, err)
	}
	return stored, nil
}

// converts says whether a weight has other bytes than one tensor of the file.
func (e *Engine) converts(v *graph.Value) bool {
	l := v.Load
	return e.opt.Source == nil || len(l.Numbers) > 0 || len(l.Tensors) != 1 || l.Add != 0 || l.Transpose || l.Spread ||
		l.Type != v.Type
}

// asStored gives the bytes of a weight that needs no conversion, or nil.
func (e *Engine) asStored(v *graph.Value) ([]byte, error) {
	if e.converts(v) {
		return nil, nil
	}
	l := v.Load
	data, err := e.opt.Source.Data(l.Tensors[0])
	if err == nil && len(data) != v.Bytes() {
		err = fmt.Errorf("%s: tensor %s has %d bytes, %s wants %d", e.opt.Source.Path(), l.Tensors[0], len(data), v,
			v.Bytes())
	}
	return data, err
}

// aligned says whether bytes can be read as elements where they lie. Block
// formats are read by bytes.
func aligned(b []byte, t tensor.Type) bool {
	elems, size := t.Block()
	if elems > 1 || len(b) == 0 {
		return true
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(size) == 0
}

// pack writes a weight's packed form to zeroed bytes of the packing's size.
func (e *Engine) pack(ctx context.Context, dst []byte, v *graph.Value, dense []byte, p *backends.Packing) error {
	if dense == nil {
		if n := v.Bytes(); cap(e.dense) < n {
			e.dense = tensor.New(tensor.U8, n).Data
		}
		dense = e.dense[:v.Bytes()]
		if err := e.produce(ctx, dense, v); err != nil {
			return err
		}
	}
	rows := v.Shape.Rows()
	unit := max(p.Unit, 1)
	return parallel(ctx, (rows+unit-1)/unit, func(from, to int) error {
		return p.Pack(dst, dense, v.Type, v.Shape, from*unit, min(to*unit, rows))
	})
}

// produce makes the dense bytes of a weight: synthetic, or read and converted.
func (e *Engine) produce(ctx context.Context, dst []byte, v *graph.Value) error {
	l := v.Load
	if len(l.Numbers) > 0 {
		row := make([]float32, len(l.Numbers))
		for i, x := range l.Numbers {
			row[i] = float32(x)
		}
		return quant.Encode(v.Type, dst, row, len(row))
	}
	if e.opt.Source == nil {
		return synthetic.FillKind(dst, v.Type, v.Shape, v.Name, e.opt.Seed, syntheticKind(v))
	}
	part := len(dst) / len(l.Tensors)
	for i, name := range l.Tensors {
		data, err := e.opt.Source.Data(name)
		if err != nil {
			return err
		}
		shape := v.Shape
		if len(l.Tensors) > 1 {
			shape = shape[1:]
		}
		if l.Spread {
			data = bytes.Repeat(data, shape.Elems())
		}
		if err := convert(ctx, dst[i*part:(i+1)*part], v.Type, data, l, shape); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", e.opt.Source.Path(), name, err)
		}
	}
	return nil
}

// syntheticKind says how a made-up weight's values are spread.
func syntheticKind(v *graph.Value) synthetic.Kind {
	switch {
	case len(v.Shape) > 1:
		return synthetic.Matrix
	case v.Load != nil && v.Load.Norm:
		return synthetic.Norm
	}
	return synthetic.Bias
}

// convert changes the type of a tensor of the given shape (that of the
// result), transposes it and adds to it, as l says.
func convert(ctx context.Context, dst []byte, to tensor.Type, src []byte, l *graph.Load, shape tensor.Shape) error {
	n := shape.Elems()
	want, err := shape.Bytes(l.Type)
	if n := len(shape); l.Transpose && n >= 2 {
		stored := append(tensor.Shape(nil), shape...)
		stored[n-2], stored[n-1] = shape[n-1], shape[n-2]
		want, err = stored.Bytes(l.Type)
	}
	if err != nil {
		return err
	}
	if len(src) != want {
		return fmt.Errorf("has %d bytes, %s%v takes %d", len(src), l.Type, shape, want)
	}
	if l.Type == to && l.Add == 0 && !l.Transpose {
		copy(dst, src)
		return nil
	}
	row := shape.Last()
	if l.Transpose {
		return convertTransposed(dst, to, src, l, shape)
	}
	return parallel(ctx, n/row, func(from, toRow int) error {
		buf := make([]float32, row)
		for r := from; r < toRow; r++ {
			if err := decode(l.Type, buf, src[r*l.Type.RowBytes(row):(r+1)*l.Type.RowBytes(row)]); err != nil {
				return err
			}
			for i := range buf {
				buf[i] = float32(float64(buf[i]) + l.Add)
			}
			if err := quant.Encode(to, dst[r*to.RowBytes(row):(r+1)*to.RowBytes(row)], buf, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// decode is quant.Decode, and takes integers that a float32 is exactly.
func decode(t tensor.Type, dst []float32, src []byte) error {
	if !t.IsInt() {
		return quant.Decode(t, dst, src)
	}
	size := len(src) / max(len(dst), 1)
	for i := range dst {
		x := int64(int32(binary.LittleEndian.Uint32(src[i*size:])))
		if size == 8 {
			x = int64(binary.LittleEndian.Uint64(src[i*size:]))
		}
		if dst[i] = float32(x); int64(dst[i]) != x {
			return fmt.Errorf("element %d is %d; whole numbers up to 2^24 are exact as f32", i, x)
		}
	}
	return nil
}

func convertTransposed(dst []byte, to tensor.Type, src []byte, l *graph.Load, shape tensor.Shape) error {
	if len(shape) > 2 { // a stack of matrices
		in, out := len(src)/shape[0], len(dst)/shape[0]
		for i := range shape[0] {
			if err := convertTransposed(dst[i*out:(i+1)*out], to, src[i*in:(i+1)*in], l, shape[1:]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(shape) != 2 {
		return fmt.Errorf("only matrices can be transposed, not %v", shape)
	}
	n, k := shape[0], shape[1]
	all := make([]float32, n*k)
	if err := decode(l.Type, all, src); err != nil {
		return err
	}
	row := make([]float32, k)
	for r := range n {
		for i := range row {
			row[i] = float32(float64(all[i*n+r]) + l.Add)
		}
		if err := quant.Encode(to, dst[r*to.RowBytes(k):(r+1)*to.RowBytes(k)], row, k); err != nil {
			return err
		}
	}
	return nil
}

// parallel runs f over ranges of [0, n) on all cores until one fails or the
// context ends.
func parallel(ctx context.Context, n int, f func(from, to int) error) error {
	chunk := max(1, n/(8*runtime.GOMAXPROCS(0)))
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for w := range errs {
		wg.Go(func() {
			mapped.Watch()
			defer mapped.Recover()
			for ctx.Err() == nil {
				from := int(next.Add(int64(chunk))) - chunk
				if from >= n {
					return
				}
				if errs[w] = f(from, min(from+chunk, n)); errs[w] != nil {
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// LoadText says how the weights are held, for --verbose.
func (e *Engine) LoadText() string {
	var bytes [4]int
	e.mutex.Lock()
	for _, l := range e.weights {
		if l.buffer != nil { // being loaded aside
			bytes[l.from] += l.buffer.Size()
		}
	}
	e.mutex.Unlock()
	var parts []string
	for _, o := range []struct {
		from origin
		text string
	}{
		{fromFile, "mapped from the file"}, {fromCache, "packed, mapped from the cache"},
		{packed, "packed in memory"}, {made, "converted or made"},
	} {
		if n := bytes[o.from]; n > 0 {
			parts = append(parts, fmt.Sprintf("%.1f MB %s", float64(n)/1e6, o.text))
		}
	}
	return strings.Join(parts, ", ")
}
