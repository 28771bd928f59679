package guard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// ReadLoop is the metric that says how fast a loop was that only reads a result's memory, in GB/s:
// what Reading held the result against.
const ReadLoop = "read_loop_gbs"

// clockSkew is by how much another machine's clock may be ahead.
const clockSkew = 24 * time.Hour

// lastingSlack is by how much a clock that is set while a run is measured may make it look shorter.
const lastingSlack = time.Minute

// Dates refuses a run that began in the future, or ended before it began: it would be the newest of all for good.
func Dates(run *record.Run, now time.Time) error {
	switch {
	case run.Started.After(now.Add(clockSkew)):
		return fmt.Errorf("it began at %s, and it is %s here: is a clock wrong?", run.Started.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	case run.Ended.After(now.Add(clockSkew)):
		return fmt.Errorf("it ended at %s, and it is %s here: is a clock wrong?", run.Ended.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	case !run.Ended.IsZero() && run.Ended.Before(run.Started.Add(-time.Second)):
		return fmt.Errorf("it ended at %s, before it began at %s", run.Ended.UTC().Format(time.RFC3339),
			run.Started.UTC().Format(time.RFC3339))
	}
	return nil
}

// Imported judges a result that another machine's file calls OK by more than Finish does: a file can leave out or raise
// what Finish holds a result against. Limits of errors are those that a result of its kind and type can have; roofs and
// rates no higher than the device has them that the run names, or where it is no known one, the best of its kind; and
// where every run of greta knows a roof it must be said.
func Imported(r *record.Result, run *record.Run) {
	if r.Verdict != record.OK {
		return
	}
	for _, rule := range []func(*record.Result, *record.Run) string{numbers, checked, counted, lasting, possible, told} {
		if why := rule(r, run); why != "" {
			r.Verdict, r.Reason = record.Refused, why
			return
		}
	}
}

func quote(s string) string { return strconv.Quote(s) }

// numbers: nothing that is counted or measured is negative or without bound.
func numbers(r *record.Result, _ *record.Run) string {
	x := &r.Roofs
	for _, v := range []struct {
		what string
		v    float64
	}{
		{"the bytes of an operation", r.Bytes}, {"the flops of an operation", r.Flops}, {"the working set", r.WorkingSet},
		{"the modelled peak of memory", x.ReadGBs}, {"the modelled peak of arithmetic", x.GFlops},
		{"the measured roof of memory", x.MeasuredReadGBs}, {"the measured roof of arithmetic", x.MeasuredGFlops},
		{"the size of the last cache", x.LastCache}, {"the modelled peak of first-level caches", x.MostGBs},
		{"the error's limit", r.Check.Limit}, {"the relative L2 error", r.Check.RelL2}, {"the largest error", r.Check.MaxAbs},
	} {
		if !(v.v >= 0) || math.IsInf(v.v, 0) {
			return fmt.Sprintf("%s is %v", v.what, v.v)
		}
	}
	for i, s := range r.Host {
		if !(s > 0) || math.IsInf(s, 0) {
			return fmt.Sprintf("sample %d of %d by the host's clock is %v s", i+1, len(r.Host), s)
		}
	}
	return ""
}

// checked: the check was against what greta compares with, and its limit is one that greta sets.
func checked(r *record.Result, _ *record.Run) string {
	switch r.Check.Against {
	case "float64", "exact", "the times fitted":
	default:
		return fmt.Sprintf("it was compared with %q, which is no reference of greta's", r.Check.Against)
	}
	if most := mostLimit(r); r.Check.Limit > most {
		return fmt.Sprintf("a limit of %.2g for the relative L2 error lets wrong results through: results of its kind have "+
			"%.2g at most", r.Check.Limit, most)
	}
	return ""
}

// mostLimit is the largest relative L2 error that a result of its kind may have.
func mostLimit(r *record.Result) float64 {
	switch family := family(r); {
	case r.Check.Against == "the times fitted" && strings.HasSuffix(r.Bench, "/fit"): // a spread, no error of numbers
		return 1
	case r.Check.Against == "exact" || r.Check.Against == "the times fitted":
		return 0
	case eight(r):
		return 0.1
	case family == "model":
		return 0.02
	case family == "op" || family == "platform":
		return 0.01
	}
	return 0.1
}

func family(r *record.Result) string {
	name, _, _ := strings.Cut(r.Bench, "/")
	return name
}

// eight says whether weights, caches or arithmetic are in eight bits.
func eight(r *record.Result) bool {
	is := func(t string) bool {
		t = strings.ToLower(t)
		return strings.Contains(t, "f8") || strings.Contains(t, "fp8") || t == "i8"
	}
	return r.Params["fp8"] == "on" || is(r.Params["type"]) || is(r.Params["kv"])
}

// counted: operators and models say what they move, products what they multiply, and have the samples asked for.
func counted(r *record.Result, run *record.Run) string {
	f := family(r)
	if f != "op" && f != "model" {
		return ""
	}
	if r.Bytes == 0 {
		return "it does not say how many bytes it moves, which every operator and model does"
	}
	size := func(name string) float64 {
		n, err := strconv.ParseFloat(r.Params[name], 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	if f == "op" && strings.HasPrefix(r.Bench, "op/linear") && !strings.HasPrefix(r.Bench, "op/linear_id") {
		// Two operations for each weight and row; what a fused operator does beside that are a few for each result.
		m, n, k := size("m"), size("n"), size("k")
		if least := 2 * m * n * k; r.Flops < least || least > 0 && r.Flops > least+16*m*n {
			return fmt.Sprintf("a product of %g×%g×%g takes %.6g operations, it counts %.6g", m, n, k, least, r.Flops)
		}
	}
	if want := asked(run.Command); want > len(r.Samples) && f == "op" {
		return fmt.Sprintf("it has %d samples and was to have %d at least", len(r.Samples), want)
	}
	return ""
}

// lasting: what was timed took place within the run. Samples of an operator follow each other; sequences of a model
// may have run side by side, so of those each is held against the run.
func lasting(r *record.Result, run *record.Run) string {
	if run.Ended.IsZero() {
		return ""
	}
	ran := run.Ended.Sub(run.Started).Seconds()
	most := ran + lastingSlack.Seconds()
	sum := 0.0
	for _, s := range r.Samples {
		if sum += s; s > most {
			return fmt.Sprintf("a sample of %.4g s, and the run took %.4g s", s, ran)
		}
	}
	if family(r) == "op" && sum > most {
		return fmt.Sprintf("samples of %.4g s together, and the run took %.4g s", sum, ran)
	}
	return ""
}

// asked is how many repetitions a command names, 0 where it names none.
func asked(command []string) (n int) {
	for i, a := range command {
		name, value, has := strings.Cut(a, "=")
		if name != "-r" && name != "--repetitions" {
			continue
		}
		if !has && i+1 < len(command) {
			value = command[i+1]
		}
		n, _ = strconv.Atoi(value)
	}
	return n
}

// possible: its roofs and its rates are such as the device can have.
func possible(r *record.Result, run *record.Run) string {
	m, wrong := deviceOf(&run.Env, r)
	if wrong != "" {
		return wrong
	}
	near, arithmetic := m.first, m.matrix // where its bytes come from at best, and what does its operations
	f := family(r)
	if r.Cache == record.Cold || strings.Contains(r.Bench, "memcpy") || strings.Contains(r.Bench, "peer") {
		near = m.memory
	} else if (f == "op" || f == "model") && m.second > 0 {
		near = m.second // what one launch leaves in first-level caches the next does not find
	}
	level := max(m.memory, near)
	if m.last > 0 && r.WorkingSet >= FarFromCache*m.last {
		// Whatever it is called: three quarters at least come from memory.
		near = min(near, m.memory*FarFromCache/(FarFromCache-1))
	}
	if plainOnly(r) {
		arithmetic = m.plain
	} else if eight(r) {
		arithmetic *= 2
	}
	roofs := []struct {
		what, unit string
		says, most float64
	}{
		{"modelled peak of memory", "GB/s", r.Roofs.ReadGBs, level},
		{"modelled peak of first-level caches", "GB/s", r.Roofs.MostGBs, m.first},
		{"modelled peak of arithmetic", "GFLOP/s", r.Roofs.GFlops, max(arithmetic, m.matrix)},
		{"measured roof of memory", "GB/s", r.Roofs.MeasuredReadGBs, level},
		{"measured roof of arithmetic", "GFLOP/s", r.Roofs.MeasuredGFlops, 2 * m.matrix},
	}
	if r.Cache == record.Cold {
		roofs[0].most, roofs[3].most = m.memory, m.memory
	}
	for _, x := range roofs {
		if x.says > x.most {
			return fmt.Sprintf("a %s of %.4g %s is more than %.4g, which no %s passes", x.what, x.says, x.unit, x.most, m.who)
		}
	}
	median := stats.Summarize(r.Samples).Median
	if !(median > 0) {
		return ""
	}
	far := 0.0 // what did not fit the last cache comes from memory
	if m.last > 0 {
		far = max(0, r.Bytes-m.last)
	}
	if strings.HasPrefix(r.Bench, "platform/") { // whose benchmarks go through small memory many times
		far = 0
	}
	for _, x := range []struct {
		unit       string
		work, most float64
	}{{"GB/s", r.Bytes, near}, {"GB/s from memory", far, m.memory}, {"GFLOP/s", r.Flops, arithmetic}} {
		if rate := x.work / median / 1e9; rate > x.most {
			return fmt.Sprintf("%.4g %s are more than %.4g, which no %s passes: a measuring error, or not of this device", rate,
				x.unit, x.most, m.who)
		}
	}
	return ""
}

// plainOnly says that nothing of a result is done by units of matrices: its weights are in f32, or it has none.
func plainOnly(r *record.Result) bool {
	switch name := strings.TrimPrefix(r.Bench, "op/"); {
	case name == r.Bench:
		return false
	case strings.HasPrefix(name, "linear"):
		return r.Params["type"] == "f32" || r.Params["type"] == "f64"
	default:
		switch name {
		case "add", "mul", "silu", "gelu", "sigmoid", "swiglu", "geglu", "rmsnorm", "add_rmsnorm", "layernorm", "rope",
			"rope_push", "push", "embed", "rows", "softmax", "softcap", "scale":
			return true
		}
	}
	return false
}

// deviceOf gives what the device of a run can have at most, or says why there is no such device.
func deviceOf(env *record.Env, r *record.Result) (m most, wrong string) {
	switch env.Backend {
	case "hip", "vulkan":
		name := strings.ToLower(env.Device)
		if env.Backend == "hip" || env.Level != "software" && !strings.Contains(name, "llvmpipe") &&
			!strings.Contains(name, "swiftshader") {
			return cardOf(env.Backend, env.Device, env.Level)
		}
	case "cpu", "ref":
	default:
		return m, fmt.Sprintf("its backend is %q; there are cpu, ref, vulkan and hip", env.Backend)
	}
	return processorOf(env, r)
}

// Of processors: the highest clocks that are sold, GHz, and bytes that a core can have under way from memory, GB/s.
const (
	mostClock    = 6.3
	mostArmClock = 5.0
	mostCores    = 4096
	mostMemory   = 7500 // of a machine: EPYC 9V64H with memory on the package has 6,900
)

// processorOf gives what a processor can have by its cores and its instructions.
func processorOf(env *record.Env, r *record.Result) (m most, wrong string) {
	n := env.Cores
	if n <= 0 {
		n = max(1, env.Threads)
	}
	if n > mostCores {
		return m, fmt.Sprintf("its machine has %d cores; %d are more than any has", n, mostCores)
	}
	arch, load, vector, unit := env.Arch, 128.0, 64.0, 0.0
	level := env.Level
	if env.Backend != "cpu" {
		level = ""
	}
	switch level {
	case "":
		unit = 1024
	case "avx512":
	case "amx":
		unit = 1024
	case "avx2":
		load, vector = 64, 32
	case "neon", "dotprod", "i8mm":
		load, vector = 48, 32
	case "go", "none":
		load, vector = 32, 8
	default:
		return m, fmt.Sprintf("its level is %q, which no processor has that is known here", env.Level)
	}
	if arm := level == "neon" || level == "dotprod" || level == "i8mm"; arm && arch == "amd64" ||
		arch == "arm64" && !arm && level != "go" && level != "none" && level != "" {
		return m, fmt.Sprintf("its level is %q, and its processor is of %s", env.Level, arch)
	}
	clock, each, cpu := mostClock, 150.0, strings.ToLower(env.CPU+" "+env.Device)
	switch {
	case strings.Contains(cpu, "intel"):
		each = 60
	case strings.Contains(cpu, "amd"):
		each = 100
	}
	if arch == "arm64" {
		clock = mostArmClock
	}
	hz := clock * float64(n)
	// Two vectors of multiply-adds in f32; four times as many products of bytes, of two rows at once where a level can.
	plain := 2 * 2 * vector / 4 * hz
	wide := 8 * plain
	if f := r.Params["type"]; family(r) == "op" && (f == "f16" || f == "bf16") {
		wide = 2 * plain
	}
	who := "processor of its kind with " + strconv.Itoa(n) + " cores"
	return most{who: who, memory: min(mostMemory, each*float64(n)), first: 1.5 * load * hz, plain: max(plain, unit*hz/3),
		matrix: max(wide, unit*hz)}, ""
}

// told: where every run of greta knows what a result is held against, its file says it.
func told(r *record.Result, run *record.Run) string {
	f := family(r)
	if run.Env.Backend != "cpu" || f != "op" && f != "model" {
		return ""
	}
	x := &r.Roofs
	switch {
	case x.ReadGBs == 0 && x.MostGBs == 0:
		return "it does not say the modelled peak of memory or of first-level caches, which every run on a processor knows"
	case r.Flops > 0 && x.GFlops == 0:
		return "it does not say the modelled peak of arithmetic, which every run on a processor knows"
	}
	if x.ReadGBs > 0 {
		return ""
	}
	rate := r.Bytes / stats.Summarize(r.Samples).Median / 1e9
	switch loop, ok := r.Metrics[ReadLoop]; {
	case ok && rate > ReadGate*loop:
		return fmt.Sprintf("%.4g GB/s from memory is %.1f times what a loop that only reads the same bytes reached, %.4g "+
			"GB/s; %g times is the limit", rate, rate/loop, loop, ReadGate)
	case ok || r.Cache != record.Cold:
	case x.MeasuredReadGBs == 0 && strings.HasPrefix(r.Bench, "op/linear"):
		return "it does not say how fast its weights can be read, which every product on a processor does"
	case x.MeasuredReadGBs > 0 && r.Disturbed() == "" && rate > 2*x.MeasuredReadGBs:
		return fmt.Sprintf("%.4g GB/s from memory is %.1f times the measured roof, %.4g GB/s", rate, rate/x.MeasuredReadGBs,
			x.MeasuredReadGBs)
	}
	return ""
}
