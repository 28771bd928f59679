// Package record holds what a benchmark leaves behind: a run with its
// environment, and results with all their raw samples. It is the one vocabulary
// of the runners, the store, the comparisons and the pictures.
package record

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Run is one invocation of a command that measures.
type Run struct {
	ID      string    // NewID's: unique, and sorted by time
	Kind    string    // "op", "model", "platform", "exp", "tune"
	Command []string  // as given, without the program's path
	Profile string    // name of the profile, "" without one
	Label   string    // the user's own
	Started time.Time // UTC
	Ended   time.Time // UTC; zero for a run that was killed or is under way
	Status  string    // "complete", "incomplete", "failed"
	Env     Env
}

// Env is where a run took place. What cannot be read is left empty.
type Env struct {
	Host, OS, Arch string
	CPU            string // the processor's own name
	Cores          int    // that this process may use
	Version        string // of greta
	Commit         string // of greta's source; with "+dirty" where it was changed
	Go             string
	Backend        string // "cpu", "vulkan", "hip"
	Device         string // the device's own name
	DeviceID       string // UUID or bus address
	Level          string // instruction set or GPU architecture: "avx512", "gfx942", "sm_90"
	Driver         string // name and version
	Kernels        string // hash of the kernels' sources
	Threads        int
	// Clocks, watts and degrees as read at the start: "sm_mhz", "mem_mhz", "power_w",
	// "temperature_c", "governor". Only what could be read.
	Readings map[string]string
}

// Verdict says what a result is worth.
type Verdict string

// The verdicts. Only an OK result's time means anything.
const (
	OK      Verdict = "ok"
	Failed  Verdict = "failed"  // the check against the reference failed
	Skipped Verdict = "skipped" // the path is not there, or another one ran in its place
	Refused Verdict = "refused" // faster than the device can be: a measuring error
)

// Result is one benchmark at one set of parameters.
type Result struct {
	Bench  string            // "op/linear", "model/pp512", "platform/stream/read"
	Params map[string]string // "m": "1", "type": "q4_0"; with Bench they are what is compared over time
	Config string            // forced variant of the kernel, "" the default
	Kernel string            // code that ran: "linear.f16.avx512"
	Clock  string            // "device" or "host": whose time Samples are
	Cache  string            // "warm", "cold", or "" where it does not apply
	// Samples are seconds for one operation, one for each repetition.
	Samples []float64
	// Host are the same repetitions by the host's clock where Clock is "device";
	// may be empty.
	Host  []float64
	Bytes float64 // moved by one operation, at least: each input once, each output once
	Flops float64 // of one operation
	Roofs Roofs
	Check Check
	// Metrics are figures of the benchmark's own, by name with the unit at its
	// end: "cycles", "tokens_per_s", "fit_a_ns".
	Metrics map[string]float64
	Verdict Verdict
	Reason  string // why it is not OK
}

// Roofs are the rates that the device cannot pass. Zero is unknown.
type Roofs struct {
	ReadGBs, GFlops                 float64 // modelled, from the device's attributes
	MeasuredReadGBs, MeasuredGFlops float64 // measured on this device
}

// Check is the comparison with a reference in the same run, over the whole output.
type Check struct {
	Against       string // "float64", "exact", "" for none
	RelL2, MaxAbs float64
	Limit         float64 // of RelL2
}

// NewID gives a run's identity: its start in UTC and eight random hexadecimal digits.
func NewID(now time.Time) string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102T150405.000Z") + "-" + hex.EncodeToString(b[:])
}

// Name is the benchmark with its parameters in the manner of Go's benchmarks:
// "op/linear/k=4096/m=1/n=4096/type=f16".
func (r *Result) Name() string {
	var b strings.Builder
	b.WriteString(r.Bench)
	for _, k := range slices.Sorted(maps.Keys(r.Params)) {
		fmt.Fprintf(&b, "/%s=%s", k, r.Params[k])
	}
	if r.Cache != "" {
		b.WriteString("/cache=" + r.Cache)
	}
	if r.Config != "" {
		b.WriteString("/config=" + r.Config)
	}
	return b.String()
}

// Intensity is flops per byte, 0 where either is unknown.
func (r *Result) Intensity() float64 {
	if r.Bytes <= 0 {
		return 0
	}
	return r.Flops / r.Bytes
}

// Least is the shortest time, in seconds, that the roofs allow, and which of
// them binds: "memory", "compute", or "" where none is known.
func (x Roofs) Least(bytes, flops float64, measured bool) (seconds float64, binds string) {
	gbs, gf := x.ReadGBs, x.GFlops
	if measured {
		gbs, gf = x.MeasuredReadGBs, x.MeasuredGFlops
	}
	if gbs > 0 && bytes > 0 {
		seconds, binds = bytes/(gbs*1e9), "memory"
	}
	if gf > 0 && flops > 0 && flops/(gf*1e9) > seconds {
		seconds, binds = flops/(gf*1e9), "compute"
	}
	return seconds, binds
}
