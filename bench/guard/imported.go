package guard

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/bench/record"
)

// Imported judges a result that another machine's file calls OK by more than Finish does: a file can leave out or raise
// what Finish holds a result against. Limits of errors are those that a result of its kind and type can have, modelled
// roofs no higher than any processor or card has them, and where every run of greta knows a roof it must be said.
func Imported(r *record.Result, run *record.Run) {
	if r.Verdict != record.OK {
		return
	}
	refuse := func(format string, args ...any) {
		if r.Verdict == record.OK {
			r.Verdict, r.Reason = record.Refused, fmt.Sprintf(format, args...)
		}
	}
	if most := mostLimit(r); r.Check.Limit > most {
		refuse("a limit of %.2g for the relative L2 error lets wrong results through: results of its kind have %.2g at most",
			r.Check.Limit, most)
	}
	gbs, gflops := ceilings(&run.Env)
	for _, roof := range []struct {
		what, unit string
		says, most float64
	}{
		{"memory", "GB/s", r.Roofs.ReadGBs, gbs}, {"first-level caches", "GB/s", r.Roofs.MostGBs, gbs},
		{"arithmetic", "GFLOP/s", r.Roofs.GFlops, gflops},
	} {
		if !(roof.says >= 0 && roof.says <= roof.most) {
			refuse("a modelled peak of %.3g %s for %s is more than %.3g, which no processor or card of its kind passes",
				roof.says, roof.unit, roof.what, roof.most)
		}
	}
	if family, _, _ := strings.Cut(r.Bench, "/"); family != "op" && family != "model" {
		return
	}
	switch run.Env.Backend {
	case "cpu":
		if r.Bytes > 0 && r.Roofs.ReadGBs == 0 && r.Roofs.MostGBs == 0 {
			refuse("it does not say the modelled peak of memory or of first-level caches, which every run on a processor knows")
		}
		if r.Flops > 0 && r.Roofs.GFlops == 0 {
			refuse("it does not say the modelled peak of arithmetic, which every run on a processor knows")
		}
	case "hip", "vulkan": // whose drivers may tell nothing: then what no card passes
		x := *r
		if x.Roofs.ReadGBs == 0 && x.Roofs.MostGBs == 0 && r.Cache != record.Warm {
			x.Roofs.MostGBs = gbs
		}
		if x.Roofs.GFlops == 0 {
			x.Roofs.GFlops = gflops
		}
		if why := Peak(&x); why != "" {
			refuse("%s", why)
		}
	}
}

// mostLimit is the largest relative L2 error that a result of its kind may have.
func mostLimit(r *record.Result) float64 {
	family, _, _ := strings.Cut(r.Bench, "/")
	eight := r.Params["fp8"] == "on" || strings.HasPrefix(strings.ToLower(r.Params["type"]), "f8") ||
		strings.HasPrefix(strings.ToLower(r.Params["kv"]), "f8")
	switch {
	case r.Check.Against == "the times fitted": // a spread, not an error of numbers
		return 1
	case eight:
		return 0.1
	case family == "model":
		return 0.02
	case family == "op" || family == "platform":
		return 0.01
	}
	return 0.1
}

// ceilings are rates that no device of a kind reaches: of a processor by its cores at 7 GHz, two
// loads and a store of 64 bytes a clock, and the multiply-adds of two vectors or of a matrix unit;
// of a card several times today's.
func ceilings(env *record.Env) (gbs, gflops float64) {
	if env.Backend == "hip" || env.Backend == "vulkan" {
		return 50e3, 5e7
	}
	const clock = 7.0
	perClock := 512.0
	if env.Level == "amx" {
		perClock = 4096
	}
	cores := float64(max(env.Threads, env.Cores, 1))
	return cores * clock * 192, cores * clock * perClock
}
