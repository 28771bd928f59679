package platform

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/bench/record"
)

// CPU is the processor: a crew of threads, each on a core of its own, and the loops
// of the level that the device was opened with.
type CPU struct {
	*session
	*CPUModel
	free      int // bytes of memory, 0 where unknown
	last      int // bytes of the last-level cache
	lastGuess bool
	owned     [][]byte
}

func openCPU(s *session, d *cpu.Device) (target, error) {
	info := d.Info()
	m, err := ModelCPU(info.Level, info.Threads)
	if err != nil {
		return nil, err
	}
	c := &CPU{session: s, CPUModel: m, free: info.Memory}
	if c.last = lastCache(cacheRoot); c.last == 0 {
		c.last, c.lastGuess = 32<<20, true
	}
	return c, nil
}

func (c *CPU) run(b *Benchmark) (bool, error) {
	if b.CPU == nil {
		return false, nil
	}
	defer c.release()
	return true, b.CPU(c)
}

func (c *CPU) close() error { return nil }

func (c *CPU) release() {
	for _, m := range c.owned {
		giveBack(m)
	}
	c.owned = nil
}

// cacheRoot is where Linux describes the caches of the first core.
const cacheRoot = "/sys/devices/system/cpu/cpu0/cache"

// lastCache is the size of the largest cache that holds data, 0 where unknown.
func lastCache(root string) int {
	dirs, _ := filepath.Glob(filepath.Join(root, "index*"))
	most := 0
	for _, d := range dirs {
		kind, err1 := os.ReadFile(filepath.Join(d, "type"))
		size, err2 := os.ReadFile(filepath.Join(d, "size"))
		if err1 != nil || err2 != nil || strings.TrimSpace(string(kind)) == "Instruction" {
			continue
		}
		text := strings.TrimSpace(string(size))
		unit := map[byte]int{'K': 1 << 10, 'M': 1 << 20}[text[max(len(text)-1, 0):][0]]
		n, err := strconv.Atoi(strings.TrimRight(text, "KM"))
		if err == nil {
			most = max(most, n*cmp.Or(unit, 1))
		}
	}
	return most
}

// away is the size in bytes from which on a working set is memory's.
func (c *CPU) away() int { return 4 * c.last }

// memoryLevel says of a working set whether it is memory's. No attribute of a
// processor says what its memory gives, so that roof is unknown.
func (c *CPU) memoryLevel(bytes int) (cache string, r record.Roofs) {
	if !c.lastGuess {
		r.LastCache = float64(c.last)
	}
	if bytes >= c.away() {
		return record.Cold, r
	}
	return record.Warm, r
}

// alloc gives n elements of zeroed memory on a line of the cache, on huge pages
// where there are some.
func alloc[T any](c *CPU, n int) ([]T, error) {
	var zero T
	m, err := takeMemory(n * int(unsafe.Sizeof(zero)))
	if err != nil {
		return nil, err
	}
	c.owned = append(c.owned, m)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m))), n), nil
}

// fill writes value(i, seed), each thread what it will work on.
func fill[T float32 | float64](c *CPU, threads int, x []T, seed uint32) {
	c.crew(threads, func(worker int) {
		from, to := part(len(x), threads, worker)
		for i := from; i < to; i++ {
			x[i] = T(value(uint32(i), seed))
		}
	})
}

// part gives the elements of a worker, in whole multiples of what loops take but at
// the end.
func part(n, threads, worker int) (from, to int) {
	const unit = simd.ProbeElements
	share := ceil(ceil(n, unit), threads) * unit
	return min(worker*share, n), min((worker+1)*share, n)
}

// callElements is what one call of a loop works on: a call cannot be preempted.
const callElements = 32 << 10

// pieces calls f for a worker's elements, piece by piece.
func pieces(n, threads, worker int, f func(from, to int)) {
	from, to := part(n, threads, worker)
	for ; from < to; from += callElements {
		f(from, min(from+callElements, to))
	}
}

// crew runs work on so many threads, each held on a core of its own, and gives the
// seconds from the first one's start to the last one's end. They start together.
func (c *CPU) crew(threads int, work func(worker int)) float64 {
	if threads <= 1 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer pinThread(0)()
		begin := time.Now()
		work(0)
		return time.Since(begin).Seconds()
	}
	var ready atomic.Int32
	var wg sync.WaitGroup
	begin, end := make([]time.Time, threads), make([]time.Time, threads)
	for w := range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer pinThread(w)()
			ready.Add(1)
			for i := 0; ready.Load() < int32(threads); i++ {
				if i > 1000 {
					runtime.Gosched() // more threads than cores
				}
			}
			begin[w] = time.Now()
			work(w)
			end[w] = time.Now()
		})
	}
	wg.Wait()
	first, last := begin[0], end[0]
	for w := range threads {
		if begin[w].Before(first) {
			first = begin[w]
		}
		if end[w].After(last) {
			last = end[w]
		}
	}
	return last.Sub(first).Seconds()
}

// worked prepares work that the whole crew does, n times over.
func (c *CPU) worked(threads int, work func(worker int)) func(n int) (sampler, func() error, error) {
	return func(n int) (sampler, func() error, error) {
		return func() (float64, float64, error) {
			return 0, c.crew(threads, func(w int) {
				for range n {
					work(w)
				}
			}), nil
		}, nil, nil
	}
}

// crews are the numbers of threads to measure with: one, and all.
func (c *CPU) crews() []int {
	list := c.sizes("threads", 1, c.threads)
	var out []int
	for _, n := range list {
		if n == 0 {
			n = c.threads
		}
		if len(out) == 0 || out[len(out)-1] != n {
			out = append(out, n)
		}
	}
	return out
}

// wrongOf counts elements that are not as they should be, on all threads.
func (c *CPU) wrongOf(n int, right func(i int) bool) record.Check {
	var wrong atomic.Int64
	c.crew(c.threads, func(w int) {
		from, to := part(n, c.threads, w)
		for i := from; i < to; i++ {
			if !right(i) {
				wrong.Add(1)
			}
		}
	})
	return exact(int(wrong.Load()), n)
}
