// Package record holds what a benchmark leaves behind: a run with its
// environment, and results with all their raw samples. It is the one vocabulary
// of the runners, the store, the comparisons and the pictures.
package record

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Run is one invocation of a command that measures.
type Run struct {
	ID      string    `json:"id"`      // NewID's: unique, and sorted by time
	Kind    string    `json:"kind"`    // "op", "model", "platform", "exp", "tune"
	Command []string  `json:"command"` // as given, without the program's path
	Profile string    `json:"profile,omitempty"`
	Label   string    `json:"label,omitempty"` // the user's own
	Started time.Time `json:"started"`         // UTC
	Ended   time.Time `json:"ended,omitzero"`  // UTC; zero for a run that was killed or is under way
	Status  Status    `json:"status"`
	Env     Env       `json:"env"`
}

// Status is how a run ended.
type Status string

// The ways to end.
const (
	Complete   Status = "complete"
	Incomplete Status = "incomplete" // it was killed, or is under way
	Broken     Status = "failed"     // it ended with an error, or a check failed
)

// Env is where a run took place. What cannot be read is left empty.
type Env struct {
	Host     string `json:"host"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	CPU      string `json:"cpu"`     // the processor's own name
	Cores    int    `json:"cores"`   // that this process may use
	Version  string `json:"version"` // of greta
	Commit   string `json:"commit"`  // of greta's source; with "+dirty" where it was changed
	Go       string `json:"go"`
	Backend  string `json:"backend"`             // "cpu", "vulkan", "hip"
	Device   string `json:"device"`              // the device's own name
	DeviceID string `json:"device_id,omitempty"` // UUID or bus address
	Level    string `json:"level,omitempty"`     // instruction set or GPU architecture: "avx512", "gfx942", "sm_90"
	Driver   string `json:"driver,omitempty"`    // name and version
	Kernels  string `json:"kernels,omitempty"`   // hash of the kernels' sources
	Threads  int    `json:"threads"`
	// Readings are clocks, watts and degrees as read at the start: "sm_mhz", "mem_mhz",
	// "power_w", "temperature_c", "governor". Only what could be read.
	Readings map[string]string `json:"readings,omitempty"`
}

// On names for people what was measured on: "NVIDIA H200, hip", "Xeon, cpu avx512, 2 threads"; what is
// unknown is left out. Levels and threads of a processor are different things to compare, as
// different devices are; a GPU's level says no more than its name.
func (e *Env) On() string {
	backend := e.Backend
	threads := e.Threads
	if backend != "cpu" {
		threads = 0 // others call their units so
	}
	if threads > 0 && e.Level != "" {
		backend += " " + e.Level
	}
	parts := slices.DeleteFunc([]string{cmp.Or(e.Device, e.CPU), backend}, func(s string) bool { return s == "" })
	switch {
	case threads == 1:
		parts = append(parts, "1 thread")
	case threads > 1:
		parts = append(parts, fmt.Sprintf("%d threads", threads))
	}
	return strings.Join(parts, ", ")
}

// CheckSide ends the label of an experiment's first run, which looks at results and not at times.
const CheckSide = "/check"

// Checked says that a run was made to check results: its times are of one repetition, and no
// part of anything that is compared.
func (r *Run) Checked() bool {
	return strings.HasPrefix(r.Label, "exp/") && strings.HasSuffix(r.Label, CheckSide)
}

// InSums says which results of one run count where the kernels of a step are added up: of
// what was measured cold and warm the cold result, since a step finds its weights in memory,
// and none with copies from the host.
func InSums(results iter.Seq[*Result]) func(*Result) bool {
	what := func(r *Result) string {
		c := *r
		c.Cache = ""
		return c.Name()
	}
	cold := map[string]bool{}
	for r := range results {
		if r.Cache == Cold && r.Verdict == OK {
			cold[what(r)] = true
		}
	}
	return func(r *Result) bool {
		return !strings.HasSuffix(r.Bench, "/e2e") && (r.Cache != Warm || !cold[what(r)])
	}
}

// InStep is the beginning of the metrics that count how often a step of a model
// launches something: "launches_in_pp512".
const InStep = "launches_in_"

// Verdict says what a result is worth.
type Verdict string

// The verdicts. Only an OK result's time means anything. Package guard sets them.
const (
	OK      Verdict = "ok"
	Failed  Verdict = "failed"  // the check against the reference failed, or there is no usable sample
	Skipped Verdict = "skipped" // the path is not there, or another one ran in its place
	Refused Verdict = "refused" // faster than the device can be: a measuring error
)

// Result is one benchmark at one set of parameters.
type Result struct {
	Bench string `json:"bench"` // "op/linear", "model/pp512", "platform/stream/read"
	// "m": "1", "type": "q4_0"; with Bench they are what is compared over time
	Params map[string]string `json:"params,omitempty"`
	Config string            `json:"config,omitempty"` // forced variant of the kernel, "" the default
	Kernel string            `json:"kernel,omitempty"` // code that ran: "linear.f16.avx512"
	// Backend is the one whose kernel ran, "" that of the run. Another one than the run's
	// is a fallback, and makes the result skipped.
	Backend string `json:"backend,omitempty"`
	Clock   string `json:"clock"` // DeviceClock or HostClock: whose time Samples are
	// Cache is Warm where the operands may lie in a cache, Cold where each
	// repetition finds them in memory, "" where it does not apply.
	Cache string `json:"cache,omitempty"`
	// WorkingSet is what the repetitions go through in all before they come back
	// to the first byte, in bytes, rotated buffers included; 0 where it does not apply.
	WorkingSet float64 `json:"working_set,omitempty"`
	// Samples are seconds for one operation, one for each repetition.
	Samples []float64 `json:"samples"`
	// Host are the same repetitions by the host's clock where Clock is "device";
	// may be empty.
	Host  []float64 `json:"host,omitempty"`
	Bytes float64   `json:"bytes,omitempty"` // moved by one operation, at least: each input once, each output once
	Flops float64   `json:"flops,omitempty"` // of one operation
	Roofs Roofs     `json:"roofs"`
	Check Check     `json:"check"`
	// Metrics are figures of the benchmark's own, by name with the unit at its
	// end: "cycles", "tokens_per_s", "fit_a_ns".
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Verdict Verdict            `json:"verdict"`
	Reason  string             `json:"reason,omitempty"` // why it is not OK
}

// Whose time it is, and whether operands lie in a cache.
const (
	DeviceClock = "device"
	HostClock   = "host"
	Warm        = "warm"
	Cold        = "cold"
)

// Roofs are the rates that the device cannot pass. Zero is unknown. ReadGBs is
// that of the level from which the bytes come: memory, or for a Warm result whose
// working set fits in a cache that cache's, or 0 where nobody knows it.
type Roofs struct {
	ReadGBs         float64 `json:"read_gbs,omitempty"` // modelled, from the device's attributes
	GFlops          float64 `json:"gflops,omitempty"`
	MeasuredReadGBs float64 `json:"measured_read_gbs,omitempty"` // measured on this device
	MeasuredGFlops  float64 `json:"measured_gflops,omitempty"`
	LastCache       float64 `json:"last_cache,omitempty"` // size of the last-level cache, bytes
	// MostGBs is what nothing on the device passes, whatever level the bytes come from: the rate of
	// first-level caches. It bounds where ReadGBs is unknown, and is no roof to be reached.
	MostGBs float64 `json:"most_gbs,omitempty"`
}

// Check is the comparison with a reference in the same run, over the whole output.
type Check struct {
	Against string  // "float64", "exact", "" for none
	RelL2   float64 // ‖out-ref‖/‖ref‖; NaN or infinite where the output is
	MaxAbs  float64
	Limit   float64 // of RelL2
}

// checkJSON is a Check with null for what is no number, which JSON cannot write.
type checkJSON struct {
	Against string   `json:"against"`
	RelL2   *float64 `json:"rel_l2"`
	MaxAbs  *float64 `json:"max_abs"`
	Limit   float64  `json:"limit"`
}

// MarshalJSON writes null for errors that are no finite number.
func (c Check) MarshalJSON() ([]byte, error) {
	finite := func(x float64) *float64 {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	return json.Marshal(checkJSON{c.Against, finite(c.RelL2), finite(c.MaxAbs), c.Limit})
}

// UnmarshalJSON reads what MarshalJSON writes; null becomes NaN.
func (c *Check) UnmarshalJSON(data []byte) error {
	var j checkJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	number := func(x *float64) float64 {
		if x == nil {
			return math.NaN()
		}
		return *x
	}
	*c = Check{j.Against, number(j.RelL2), number(j.MaxAbs), j.Limit}
	return nil
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

// Raise takes measured roofs that are higher than those that are known. What was not measured before stays so.
func (x *Roofs) Raise(readGBs, gflops float64) {
	if x.MeasuredReadGBs > 0 {
		x.MeasuredReadGBs = max(x.MeasuredReadGBs, readGBs)
	}
	if x.MeasuredGFlops > 0 {
		x.MeasuredGFlops = max(x.MeasuredGFlops, gflops)
	}
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
