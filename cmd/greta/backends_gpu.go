//go:build !nogpu

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
)

// gpuBackends are left out under the build tag nogpu, which makes a binary
// without dynamic libraries.
func gpuBackends() []backend {
	return []backend{
		{"vulkan", func(f deviceFlags) (backends.Device, error) {
			opt := vulkan.Options{Device: f.device, Validate: f.validate != nil, Message: f.validate, Cache: pipelineFolder(),
				Invariant: f.invariant}
			d, err := vulkan.New(opt)
			if err != nil {
				return nil, err
			}
			return d, nil
		}},
		{"hip", func(f deviceFlags) (backends.Device, error) {
			d, err := hip.New(hip.Options{Device: f.device, Built: f.kernels, Compiler: self("compile"),
				Invariant: f.invariant})
			if err != nil {
				return nil, err
			}
			return d, nil
		}},
	}
}

// pipelineFolder is where Vulkan's compiled pipelines are kept; "" where the
// user has no folder of caches.
func pipelineFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "greta", "vulkan")
}

// internalGPU are the hidden verbs that GPU backends need.
func internalGPU() []*cobra.Command {
	return []*cobra.Command{{Use: "compile", Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			return hip.ServeCompiler(os.Stdin, out)
		}}}
}

// deviceWarnings are what the environment does that a device's results may
// suffer from.
func deviceWarnings(i backends.Info) []string {
	if i.Backend == "hip" && strings.HasPrefix(i.Level, "gfx") {
		return hip.Warnings()
	}
	return nil
}

// gpuCache is the size of a GPU's last-level cache in bytes, 0 where its driver
// does not say.
func gpuCache(dev backends.Device) (float64, error) {
	d, ok := dev.(*hip.Device)
	if !ok || !secondLevelIsLast(d.Info().Level) {
		return 0, nil
	}
	raw, err := d.Raw()
	if err != nil {
		return 0, err
	}
	l, err := raw.Limits()
	return float64(l.L2), errlist.Join(err, raw.Close())
}
