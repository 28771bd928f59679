package main

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/tune"
	"github.com/greta-project/greta/engine/report"
)

// tunedFlags say which variants of kernels are used.
type tunedFlags struct {
	tuned string
	force []string
}

func (f *tunedFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.tuned, "tuned", "", "what greta tune found: a file, or off (default: greta/tuned.yaml in the user's "+
		"configuration folder)")
	s.StringArrayVar(&f.force, "config", nil, "force a variant of an operator's kernels, OPERATOR=VARIANT (may be "+
		"repeated); greta tune lists them")
}

// apply makes a device use what was tuned, and what is forced.
func (f *tunedFlags) apply(dev backends.Device) (*tune.Chooser, error) {
	var file *tune.File
	if !strings.EqualFold(f.tuned, "off") {
		path := f.tuned
		if path == "" {
			var err error
			if path, err = tune.Path(); err != nil {
				path = "" // no home, no file
			}
		}
		if path != "" {
			var err error
			if file, err = tune.Load(path); err != nil && (f.tuned != "" || !errors.Is(err, fs.ErrNotExist)) {
				return nil, usage(err)
			}
		}
	}
	c, err := tune.Apply(dev, file, f.force)
	return c, usage(err)
}

// noteVariants reports which variants other than the defaults were used.
func (r *runner) noteVariants() {
	tuned, forced := r.bundle.variants.Choices()
	var list []report.Variant
	for _, op := range slices.Sorted(maps.Keys(forced)) {
		list = append(list, report.Variant{Op: op, Variant: forced[op], Source: "forced"})
	}
	for _, key := range slices.Sorted(maps.Keys(tuned)) {
		op, shape, _ := strings.Cut(key, " ")
		list = append(list, report.Variant{Op: op, Shape: shape, Variant: tuned[key], Source: "tuned"})
	}
	r.update(func() { r.report.Variants = list })
}
