package platform

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/tensor"
)

// CPUModel is what a processor can do at most: a clock that is measured, times what a
// core of its kind starts in a clock. Nothing that is right can pass it.
type CPUModel struct {
	kernels *simd.Kernels
	probe   simd.Probe
	threads int
	double  bool    // vectors of 64 bytes take two turns
	hz      float64 // the highest clock seen, no less than nominal
	nominal float64 // what the system says of the clock, Hz; 0: nothing
}

// ModelCPU models the processor with the kernels of a level and a number of threads,
// as backends.Info names them. It measures the clock, for some milliseconds.
func ModelCPU(level string, threads int) (*CPUModel, error) {
	k, err := simd.Select(level)
	if err != nil {
		return nil, err
	}
	// Zen 4 has vectors of 64 bytes on units of 32.
	m := &CPUModel{kernels: k, probe: k.Probe(), threads: threads,
		double: runtime.GOARCH == "amd64" && procValue("cpu family") == "25"}
	if mhz, err := strconv.ParseFloat(procValue("cpu MHz"), 64); err == nil && mhz > 0 && mhz < 1e5 {
		m.nominal = 1e6 * mhz
	}
	m.clock()
	return m, nil
}

// Roofs are the modelled roofs of operators whose weights have these types (none: those of
// f32), in the fastest form that the level's kernels have for any of them. The clock is
// measured anew and the highest counts, since a core's clock rises with work. fastBF16
// says that activations are rounded for dot products of bf16.
func (m *CPUModel) Roofs(fastBF16 bool, weights ...tensor.Type) record.Roofs {
	m.clock()
	peak := m.flops(m.cores(), 4)
	for _, t := range weights {
		peak = max(peak, m.products(t, fastBF16))
	}
	return record.Roofs{GFlops: peak, MostGBs: m.firstLevel(m.cores(), true)}
}

// cores is how many of the threads can run at once.
func (m *CPUModel) cores() int { return max(1, min(m.threads, runtime.NumCPU())) }

// products is the peak of matrix products with weights of a type, GFLOP/s.
func (m *CPUModel) products(t tensor.Type, fastBF16 bool) float64 {
	peak := m.flops(m.cores(), 4)
	switch {
	case simd.RoundsActivations(t):
		peak *= 4 // dot products of bytes
		if m.kernels.PairsRows() {
			peak *= 2
		}
	case t == tensor.BF16 && fastBF16:
		peak *= 2
	}
	if m.kernels.HasUnit() {
		// TDPBF16PS: 16×16 sums of 32 products in 16 clocks (Intel's optimization manual);
		// numbers of more than eight bits take several.
		unit := 2 * 16 * 16 * 32 / 16 * float64(m.cores()) * m.hz / 1e9
		peak = max(peak, unit/float64(m.kernels.PeakOf(t, fastBF16).Products))
	}
	return peak
}

// clock measures the core's clock, in Hz, and keeps the highest seen. Where the machine is shared a
// core may stand still half of the time for some milliseconds: while the clock seems lower than the
// system says it is measured on, a quarter of a second at most, and counts as no lower.
func (m *CPUModel) clock() float64 {
	const rounds = 20000 // of 16 cycles
	best, start := 0.0, time.Now()
	for i := 0; i < 20 || best < m.nominal && time.Since(start) < time.Second/4; i++ {
		begin := time.Now()
		m.probe.Cycles(rounds)
		best = max(best, 16*rounds/time.Since(begin).Seconds())
	}
	m.hz = max(m.hz, best, m.nominal)
	return best
}

// loadBytes is what a core can load in a clock at most, in bytes: two vectors, or on
// processors without vectors here four words, as Zen 5 does. Arm's widest cores load three vectors.
func (m *CPUModel) loadBytes() float64 {
	switch {
	case m.probe.Vector == 64 && !m.double:
		return 128
	case m.probe.Vector >= 32:
		return 64
	case m.probe.Vector == 16:
		return 3 * 16
	}
	return 4 * 8
}

// vectorOps is how many operations on whole vectors a core starts in a clock at most.
func (m *CPUModel) vectorOps() float64 {
	switch {
	case m.probe.Vector == 64 && m.double:
		return 1
	case m.probe.Vector == 16: // four units on the widest cores
		return 4
	case m.probe.Vector == 8: // Go's code, one element at a time
		return 4
	}
	return 2
}

// flops is the modelled peak of so many threads, in GFLOP/s, for multiply-adds on
// elements of a size: by the highest clock that was measured here.
func (m *CPUModel) flops(threads, size int) float64 {
	lanes := max(1, float64(m.probe.Vector)/float64(size))
	if m.probe.Vector == 8 {
		lanes = 1
	}
	return 2 * m.vectorOps() * lanes * float64(threads) * m.hz / 1e9
}

// firstLevel is the modelled rate of first-level caches, GB/s. Nothing is faster: it
// bounds every level. Stores go beside loads.
func (m *CPUModel) firstLevel(threads int, stores bool) float64 {
	n := m.loadBytes()
	if stores {
		n *= 1.5
	}
	return n * float64(threads) * m.hz / 1e9
}

// procValue finds a value in /proc/cpuinfo.
func procValue(key string) string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
