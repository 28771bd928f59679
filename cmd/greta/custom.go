package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/trial"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/child"
)

// Kernels of the user's own: kernels: of model files. docs/custom-kernels.md describes them.

// tryCustom tries the kernels that a model file describes, and gives the engine those that are used.
func (f *modelFlags) tryCustom(ctx context.Context, b *bundle, errw io.Writer) error {
	kernels := b.file.Kernels()
	if len(kernels) == 0 || f.noCustom {
		return nil
	}
	opt := b.opt
	if opt.Context == 0 {
		opt.Context = engine.DefaultChunk
	}
	tokens := slices.Compact([]int{1, min(opt.Context, opt.Chunk)})
	set, err := trial.Prepare(ctx, opt, tokens, f.trialSettings(b.device, kernels, errw))
	if err != nil {
		return customError(err)
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
