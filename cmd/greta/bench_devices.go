package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/platform"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
)

// members lists a backend's devices as --devices names them. Tests put others in their place.
var members = func(backend string) ([]string, error) {
	if backend == "hip" || backend == "vulkan" {
		return gpuMembers(backend)
	}
	return []string{"0"}, nil
}

// openMember opens one of them.
var openMember = openBackend

// wanted gives the devices that --devices names, of those that there are.
func (f *benchPlatformFlags) wanted() ([]string, error) {
	all, err := members(f.backend)
	if err != nil {
		return nil, err
	}
	if f.devices == "all" {
		return all, nil
	}
	var out []string
	for _, id := range strings.Split(f.devices, ",") {
		i := slices.IndexFunc(all, func(a string) bool { return id != "" && (a == id || strings.HasSuffix(a, ":"+id)) })
		switch {
		case i < 0:
			return nil, usagef("--devices %s: %q is no device of %s; all is expected, or some of %q with commas between them",
				f.devices, id, f.backend, all)
		case slices.Contains(out, all[i]):
			return nil, usagef("--devices %s: %s is named twice", f.devices, id)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// benchDevices measures the plan on each device by itself, on all at once, and copies between them: a run a device, and
// one of the set.
func (a *app) benchDevices(ctx context.Context, f *benchPlatformFlags, plan []profile.Platform, name string) error {
	ids, err := f.wanted()
	if err != nil {
		return err
	}
	between := name != "" || slices.ContainsFunc(plan, func(p profile.Platform) bool { return p.Bench == "peer" })
	alone := slices.DeleteFunc(slices.Clone(plan), func(p profile.Platform) bool { return p.Bench == "peer" })
	if f.dryRun {
		if len(alone) > 0 {
			fmt.Fprintf(a.out, "on each of %s, then on all at once:\n", strings.Join(ids, ", "))
			listPlan(a.out, alone)
		}
		if between && len(ids) > 1 {
			fmt.Fprintln(a.out, "between them: peer")
		}
		return nil
	}
	var errs []error
	if len(alone) > 0 {
		for _, id := range ids {
			dev, err := f.openAs(id)
			if err != nil {
				return errlist.Join(append(errs, err)...)
			}
			if errs = append(errs, a.platformRun(ctx, f, name, dev, func(ctx context.Context, opt platform.Options) error {
				opt.Device, opt.Plan = dev, alone
				return platform.Run(ctx, opt)
			})); ctx.Err() != nil {
				return errlist.Join(errs...)
			}
		}
	}
	if len(ids) < 2 {
		fmt.Fprintln(a.err, "greta: one device: nothing between devices to measure")
		return errlist.Join(errs...)
	}
	return errlist.Join(append(errs, a.benchSet(ctx, f, name, ids, alone, plan, between))...)
}

// openAs opens the device that the list calls id.
func (f *benchPlatformFlags) openAs(id string) (backends.Device, error) {
	flags := f.deviceFlags()
	flags.device = id
	return openMember(f.backend, flags)
}

// benchSet measures what belongs to the set: the benchmarks of alone on all at once and, with between, copies between
// them by the parameters of plan.
func (a *app) benchSet(ctx context.Context, f *benchPlatformFlags, name string, ids []string,
	alone, plan []profile.Platform, between bool) error {
	set := &deviceSet{}
	var all []platform.Member
	for _, id := range ids {
		dev, err := f.openAs(id)
		if err != nil {
			return errlist.Join(err, set.Close())
		}
		set.devices = append(set.devices, dev)
		all = append(all, platform.Member{ID: id, Device: dev})
	}
	set.Device = set.devices[0]
	// The set's own lock is that of its session; others who measure hold those of single devices.
	var locks []*guard.Held
	defer func() {
		for _, l := range locks {
			l.Unlock()
		}
	}()
	keys := map[string]bool{}
	for _, dev := range set.devices {
		keys[environ.LockKey(dev)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) { // in one order, so that two sets cannot wait for each other
		l, err := guard.Lock(ctx, key, func(h guard.Holder) {
			fmt.Fprintf(a.err, "greta: %s is measuring on one of these devices; waiting\n", h)
		})
		if err != nil {
			return errlist.Join(err, set.Close())
		}
		locks = append(locks, l)
	}
	return a.platformRun(ctx, f, name, set,
		func(ctx context.Context, opt platform.Options) error {
			var errs []error
			opt.Plan = alone
			if len(alone) > 0 {
				errs = append(errs, platform.RunTogether(ctx, opt, all))
			}
			if between && ctx.Err() == nil {
				opt.Plan = plan
				errs = append(errs, platform.RunPeers(ctx, opt, all))
			}
			return errlist.Join(errs...)
		})
}

// platformRun is one run of the store: work measures, and the results are kept and shown.
func (a *app) platformRun(ctx context.Context, f *benchPlatformFlags, name string, dev backends.Device,
	work func(context.Context, platform.Options) error) error {
	s, err := a.newBenchSession(ctx, &f.benchFlags, "platform", name, dev)
	if err != nil {
		return errlist.Join(err, dev.Close())
	}
	err = s.supervise(ctx, func(ctx context.Context) error {
		err := work(ctx, platform.Options{Repetitions: f.repetitions, MinTime: f.minTime,
			Emit: func(r *record.Result) error { s.add(*r); return nil },
			Progress: func(bench string, done, total int) {
				if done < total {
					s.say("%s (%d of %d)", bench, done+1, total)
				}
			}})
		var wrong *platform.Wrong
		if errors.As(err, &wrong) {
			return nil // the session judges the results itself
		}
		return err
	}, format.Results)
	return errlist.Join(err, s.close(dev))
}

// deviceSet is several devices as one for the store: its name and its place are those of all.
type deviceSet struct {
	backends.Device // the first
	devices         []backends.Device
}

// Info names all devices: "2 × NVIDIA H100", or each where they differ.
func (d *deviceSet) Info() backends.Info {
	info := d.Device.Info()
	var names []string
	for _, dev := range d.devices {
		names = append(names, dev.Info().Name)
	}
	if len(slices.Compact(slices.Clone(names))) == 1 {
		info.Name = fmt.Sprintf("%d × %s", len(names), names[0])
	} else {
		info.Name = strings.Join(names, " + ")
	}
	return info
}

// Location joins those of all.
func (d *deviceSet) Location() string {
	var all []string
	for _, dev := range d.devices {
		all = append(all, environ.Location(dev))
	}
	return strings.Join(all, "+")
}

// CodeHash is that of the first: the backend is one.
func (d *deviceSet) CodeHash(n *graph.Node, variant string) string {
	if h := backends.CodeHash(d.Device, n, variant); h != "" {
		return h
	}
	return environ.ProgramHash()
}

// Close closes all.
func (d *deviceSet) Close() error {
	var errs []error
	for _, dev := range d.devices {
		errs = append(errs, dev.Close())
	}
	return errlist.Join(errs...)
}
