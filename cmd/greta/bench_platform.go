package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/platform"
	"github.com/greta-project/greta/bench/profile"
)

// benchPlatformFlags are those of bench platform.
type benchPlatformFlags struct {
	benchFlags
	modelFlags
	profile string
	devices string
	set     []string
	list    bool
}

func (a *app) benchPlatformCmd() *cobra.Command {
	f := &benchPlatformFlags{}
	c := &cobra.Command{
		Use:   "platform [BENCHMARK...]",
		Short: "Measure what the machine can do: launches, copies, memory, arithmetic",
		Long: `platform measures what a device can do at all. Its results are the measured roofs
that greta bench op holds operators against. Every result is checked over its whole
output in the same run, and none passes that is faster than the device's modelled
peak. Kernels are compiled when they are run (HIP) or come with the program
(Vulkan, CPU). --list prints the benchmarks.

Sizes are set by --set BENCHMARK.PARAMETER=LIST, with lists as in greta bench op.

With --devices the benchmarks run on each device by itself, then on all at the
same time, and peer measures copies between them. There is a run, and a report, for
each device and one for the set of them.`,
		Example: `  greta bench platform --profile smoke
  greta bench platform latency cache --backend hip
  greta bench platform latency --set latency.step=104 --backend hip -r 20
  greta bench platform library --backend hip -o json
  greta bench platform stream peer --backend hip --devices all`,
		RunE: func(c *cobra.Command, args []string) error { return a.benchPlatform(c, f, args) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.BoolVar(&f.list, "list", false, "print the benchmarks and their parameters, and measure nothing")
	s.StringVar(&f.profile, "profile", "", "measure what a profile says: "+strings.Join(profile.Names(),
		", ")+", or a file (default: standard, or the benchmarks that are named)")
	s.StringArrayVar(&f.set, "set", nil, "set a parameter of a benchmark, BENCHMARK.PARAMETER=LIST (may be repeated)")
	s.StringVar(&f.backend, "backend", "cpu", "device: cpu, vulkan, hip")
	s.StringVar(&f.device, "device", "", "which of a backend's devices: a number, a part of the name, or as greta "+
		"devices lists it (default: the best)")
	s.StringVar(&f.devices, "devices", "", "measure several devices, each by itself, all at once, and copies between "+
		"them: all, or numbers with commas between them")
	s.IntVar(&f.threads, "threads", 0, "threads of the cpu backend (default: all cores)")
	f.benchFlags.register(s, 10, 100*time.Millisecond)
	return c
}

func (a *app) benchPlatform(c *cobra.Command, f *benchPlatformFlags, args []string) error {
	if err := f.benchFlags.check(); err != nil {
		return err
	}
	if f.devices != "" && f.device != "" {
		return usagef("--device names one device, --devices several: one of them is expected")
	}
	if f.list {
		if len(args) > 0 {
			return usagef("--list prints all benchmarks: %s does not go with it", strings.Join(args, " "))
		}
		return a.listPlatform(f)
	}
	plan, name, err := f.plan(args, func(flag string) bool { return c.Flags().Changed(flag) })
	if err != nil {
		return usage(err)
	}
	if f.devices != "" {
		return a.benchDevices(c.Context(), f, plan, name)
	}
	dev, err := openBackend(f.backend, f.deviceFlags())
	if err != nil {
		return err
	}
	if f.dryRun {
		listPlan(a.out, plan)
		return dev.Close()
	}
	return a.platformRun(c.Context(), f, name, dev, func(ctx context.Context, opt platform.Options) error {
		opt.Device, opt.Plan = dev, plan
		return platform.Run(ctx, opt)
	})
}

// listPlan prints what would be measured.
func listPlan(w io.Writer, plan []profile.Platform) {
	for _, b := range plan {
		line := b.Bench
		for _, name := range slices.Sorted(maps.Keys(b.Params)) {
			line += fmt.Sprintf(" %s=%s", name, b.Params[name])
		}
		fmt.Fprintln(w, line)
	}
}

// plan says what to measure: the benchmarks of a profile, of which only those
// named, or the named ones as they are by default.
func (f *benchPlatformFlags) plan(args []string, changed func(flag string) bool) ([]profile.Platform, string, error) {
	name := f.profile
	if name == "" && len(args) == 0 {
		name = "standard"
	}
	var plan []profile.Platform
	if name == "" {
		for _, n := range args {
			plan = append(plan, profile.Platform{Bench: n})
		}
	} else {
		p, err := profile.Load(name)
		if err != nil {
			return nil, "", err
		}
		name = p.Name
		if p.Repetitions > 0 && !changed("repetitions") {
			f.repetitions = p.Repetitions
		}
		if p.MinTime > 0 && !changed("min-time") {
			f.minTime = p.MinTime
		}
		for i, b := range p.Platform {
			if err := platform.Check([]profile.Platform{b}); err != nil {
				return nil, "", fmt.Errorf("%s: %w", p.Where("platform", i), err)
			}
			if len(args) == 0 || slices.Contains(args, b.Bench) {
				plan = append(plan, b)
			}
		}
		for _, n := range args {
			if !slices.ContainsFunc(plan, func(b profile.Platform) bool { return b.Bench == n }) {
				if _, err := platform.Find(n); err != nil {
					return nil, "", err
				}
				return nil, "", fmt.Errorf("profile %s does not have the benchmark %s", name, n)
			}
		}
		if len(plan) == 0 {
			return nil, "", fmt.Errorf("profile %s has no benchmarks of the platform", name)
		}
	}
	for _, text := range f.set {
		key, list, ok := strings.Cut(text, "=")
		bench, param, ok2 := strings.Cut(key, ".")
		if !ok || !ok2 {
			return nil, "", fmt.Errorf("--set %s: BENCHMARK.PARAMETER=LIST is expected", text)
		}
		i := slices.IndexFunc(plan, func(b profile.Platform) bool { return b.Bench == bench })
		if i < 0 {
			return nil, "", fmt.Errorf("--set %s: %s is not measured here", text, bench)
		}
		params := map[string]profile.Text{param: profile.Text(list)}
		for k, v := range plan[i].Params {
			if k != param {
				params[k] = v
			}
		}
		plan[i].Params = params
	}
	return plan, name, platform.Check(plan)
}

// listPlatform prints the benchmarks, where they run and what can be set.
func (a *app) listPlatform(f *benchPlatformFlags) error {
	t := &format.Table{Name: "benchmarks", Columns: []format.Column{{Name: "benchmark", Left: true},
		{Name: "what", Left: true}, {Name: "not on", Left: true}, {Name: "parameters", Left: true}}}
	for _, b := range platform.List() {
		var lacks, params []string
		for _, name := range []string{"cpu", "vulkan", "hip"} {
			if b.Lacks[name] != "" {
				lacks = append(lacks, name)
			}
		}
		for p := range b.Params {
			params = append(params, p)
		}
		slices.Sort(params)
		t.Rows = append(t.Rows, []any{b.Name, b.About, strings.Join(lacks, ", "), strings.Join(params, ", ")})
	}
	return (&format.Report{People: []*format.Table{t}, Full: t}).Write(a.out, f.output)
}
