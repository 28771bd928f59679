package main

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/ref"
)

// backend is a way to open a device.
type backend struct {
	name string
	open func(f deviceFlags) (backends.Device, error)
}

// deviceFlags choose a device of a backend.
type deviceFlags struct {
	threads int
	device  string // empty: the best
	exact   bool   // activations stay f32
	// invariant: a row's results do not depend on the rows beside it
	invariant bool
	// validate is told what vulkan's validation layer says; nil: it is not loaded.
	validate func(text string)
	kernels  string // folder of kernels that were compiled ahead of time
}

// backendTable names the backends of this program.
var backendTable = append([]backend{
	{"cpu", func(f deviceFlags) (backends.Device, error) {
		if err := f.none("cpu"); err != nil {
			return nil, err
		}
		var opts []cpu.Option
		if f.exact {
			opts = append(opts, cpu.Exact)
		}
		if f.invariant {
			opts = append(opts, cpu.Invariant)
		}
		d, err := cpu.New(f.threads, opts...)
		if err != nil {
			return nil, err
		}
		return d, nil
	}},
	{"ref", func(f deviceFlags) (backends.Device, error) {
		if err := f.none("ref"); err != nil {
			return nil, err
		}
		return ref.New(), nil
	}},
}, gpuBackends()...)

// none refuses a choice where there is one device.
func (f deviceFlags) none(backend string) error {
	if f.device != "" && f.device != "0" {
		return fmt.Errorf("--device %s: the %s backend has one device, 0", f.device, backend)
	}
	return nil
}

func backendNames() []string {
	var names []string
	for _, b := range backendTable {
		names = append(names, b.name)
	}
	return names
}

func openBackend(name string, f deviceFlags) (backends.Device, error) {
	if f.threads < 0 || f.threads > 1024 {
		return nil, usagef("--threads %d: it must be between 1 and 1024, or 0 for all cores", f.threads)
	}
	for _, b := range backendTable {
		if b.name == name {
			d, err := b.open(f)
			if err != nil {
				return nil, &exitError{code: exitNoDevice, err: err}
			}
			return d, nil
		}
	}
	return nil, &exitError{code: exitNoDevice, err: fmt.Errorf("no backend %q; there are %s", name,
		strings.Join(backendNames(), ", "))}
}
