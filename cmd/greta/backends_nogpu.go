//go:build nogpu

package main

import (
	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
)

func gpuBackends() []backend { return nil }

func (a *app) gpuCmds() []*cobra.Command { return nil }

func internalGPU() []*cobra.Command { return nil }

func deviceWarnings(backends.Info) []string { return nil }

func gpuCache(backends.Device) (float64, error) { return 0, nil }
