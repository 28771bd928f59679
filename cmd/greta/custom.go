package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/trial"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/models"
)

// Kernels of the user's own: kernels: of model files. docs/custom-kernels.md describes them.

// tryCustom tries the kernels that a model file describes, and gives the engine those that are used.
func (f *modelFlags) tryCustom(ctx context.Context, b *bundle, errw io.Writer) error {
	kernels := b.file.Kernels()
	switch {
	case f.checkKernels && (len(kernels) == 0 || f.noCustom):
		return usagef("--check-kernels: there are no kernels to check: the model file %s", or(map[bool]string{
			true: "runs without its own (--no-custom-kernels)"}[f.noCustom], "has no kernels:"))
	case len(kernels) == 0 || f.noCustom:
		return nil
	case f.invariant && len(backends.CustomKernelsOf(b.device).CustomEndings()) > 0:
		return usagef("--invariant: the model file has kernels of its own, whose results may depend on the rows of a step; " +
			"--no-custom-kernels runs without them")
	}
	opt := b.opt
	if opt.Context == 0 {
		opt.Context = withinTable(opt, engine.DefaultChunk)
	}
	tokens := slices.Compact([]int{1, min(opt.Context, opt.Chunk)})
	st := f.trialSettings(b.device, kernels, errw)
	st.Keep, st.Anew = trial.DefaultFile(), f.checkKernels
	set, err := trial.Prepare(ctx, opt, tokens, st)
	if err != nil {
		return customError(fmt.Errorf("%w; --no-custom-kernels runs without it", err))
	}
	if set != nil {
		b.opt.Custom, b.custom = set, set.Decisions
	}
	return nil
}

// trialSettings are those of trials on a device that the flags opened.
func (f *modelFlags) trialSettings(dev backends.Device, kernels []*custom.Kernel, errw io.Writer) trial.Settings {
	return trial.Settings{Device: dev, Kernels: kernels, Child: customChild(f.backend, f.device, f.kernels),
		Notify: func(text string) { fmt.Fprintf(errw, "greta: %s\n", text) }}
}

// customChild is the command that tries a kernel; a test sets another.
var customChild = func(backend, device, kernels string) child.Command {
	return self("kernel", "--backend", backend, "--device", device, "--kernels", kernels)
}

// customError gives a kernel that is refused the exit code of a mismatch.
func customError(err error) error {
	var wrong *trial.Refused
	if errors.As(err, &wrong) {
		return &exitError{code: exitMismatch, err: err}
	}
	return &exitError{code: exitFailed, err: err}
}

// internalKernelCmd tries a kernel of the user's own: bench/trial.Serve.
func (a *app) internalKernelCmd() *cobra.Command {
	var name, device, kernels string
	c := &cobra.Command{Use: "kernel", Args: exactly(0, "nothing"),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			return trial.Serve(c.Context(), os.Stdin, out, func() (backends.Device, error) {
				return openBackend(name, deviceFlags{device: device, kernels: kernels})
			})
		}}
	c.Flags().StringVar(&name, "backend", "", "")
	c.Flags().StringVar(&device, "device", "", "")
	c.Flags().StringVar(&kernels, "kernels", "", "")
	return c
}

// loadKernels reads --kernel, and gives the operators that are measured: those of the kernels where none is named.
func (f *benchOpFlags) loadKernels(flags *pflag.FlagSet, args []string) ([]string, error) {
	if f.kernelFile == "" {
		return args, nil
	}
	for _, name := range []string{"profile", "config"} {
		if given(flags, name) {
			return nil, fmt.Errorf("--kernel says what to measure: --%s does not go with it", name)
		}
	}
	var err error
	if f.own, err = models.LoadKernels(f.kernelFile); err != nil {
		return nil, err
	}
	var types []string
	for _, k := range f.own {
		if len(args) > 0 && !slices.Contains(args, k.Op) {
			continue
		}
		for _, t := range k.Types["w"] {
			if !slices.Contains(types, t.String()) {
				types = append(types, t.String())
			}
		}
	}
	if f.types == "" && f.opModel == "" {
		f.types = strings.Join(types, ",")
	}
	if len(args) == 0 && f.opModel == "" {
		for _, k := range f.own {
			if !slices.Contains(args, k.Op) {
				args = append(args, k.Op)
			}
		}
	}
	return args, nil
}

// besideOwn tries the kernels of --kernel on the cases that they take, and adds a case for each behind greta's own.
func (f *benchOpFlags) besideOwn(ctx context.Context, a *app, dev backends.Device, jobs []opJob) ([]opJob, error) {
	if f.kernelFile == "" {
		return jobs, nil
	}
	maker := backends.CustomKernelsOf(dev)
	if len(maker.CustomEndings()) == 0 {
		return nil, usagef("--kernel %s: the %s backend takes no kernels of one's own; vulkan and hip do", f.kernelFile,
			dev.Info().Backend)
	}
	own := slices.DeleteFunc(slices.Clone(f.own), func(k *custom.Kernel) bool {
		return !slices.Contains(maker.CustomEndings(), k.Ending()) || k.Arch != "" && k.Arch != dev.Info().Level
	})
	if len(own) == 0 {
		return nil, usagef("--kernel %s: it has no kernel for %s that ends in %s, as the %s backend takes them", f.kernelFile,
			dev.Info().Level, strings.Join(maker.CustomEndings(), " or "), dev.Info().Backend)
	}
	var all []opJob
	why := ""
	for _, j := range jobs {
		all = append(all, j)
		for _, k := range own {
			if k.Op != j.Node.Op.Name {
				continue
			}
			if not := k.Takes(j.Node); not != "" {
				why = fmt.Sprintf("%v: %s", k, not)
				continue
			}
			with, err := f.ownCase(ctx, a, dev, maker, k, j)
			if err != nil {
				return nil, err
			}
			all = append(all, with)
			break
		}
	}
	if len(all) == len(jobs) {
		return nil, usagef("--kernel %s: no kernel is for what is measured: %s", f.kernelFile,
			or(why, "no operator is one of its own"))
	}
	return all, nil
}

// ownCase tries a kernel on a case and gives the case with it, of the constants that were fastest.
func (f *benchOpFlags) ownCase(ctx context.Context, a *app, dev backends.Device, maker backends.CustomKernels,
	k *custom.Kernel, j opJob) (opJob, error) {
	st := f.trialSettings(dev, f.own, a.err)
	results, err := trial.Try(ctx, st, k, []*op.Case{j.Case})
	if err != nil {
		return j, customError(err)
	}
	i, err := k.Instance(results[0].Constants)
	if err != nil {
		return j, customError(err)
	}
	with := *j.Case
	if with.Kernel, err = maker.CustomKernel(j.Node, i, false); err != nil {
		return j, customError(err)
	}
	with.Params = maps.Clone(j.Params)
	with.Params["kernel"] = strings.TrimSpace(k.Name + " " + i.ConstantsText())
	word := "faster than"
	if results[0].OwnUS > 0 && results[0].TimeUS > results[0].OwnUS {
		word = "slower than"
	}
	st.Notify(fmt.Sprintf("kernel %s: right at %d shapes; at %s %.4g µs, %s greta's own with %.4g µs",
		with.Params["kernel"],
		results[0].Shapes, j.Name(), results[0].TimeUS, word, results[0].OwnUS))
	j.Case = &with
	return j, nil
}
