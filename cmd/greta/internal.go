package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/health"
	"github.com/greta-project/greta/internal/child"
)

// Hidden verbs: what greta runs in processes of its own, so that a driver or a
// compiler that crashes or hangs takes nothing along.

// self is the command that runs a hidden verb; nil where the program cannot
// say where it lies.
func self(args ...string) child.Command {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	return append(child.Command{exe, "internal"}, args...)
}

func (a *app) internalCmd() *cobra.Command {
	c := &cobra.Command{Use: "internal", Hidden: true, Short: "What greta runs in processes of its own",
		RunE: func(*cobra.Command, []string) error {
			return usagef("greta internal is for greta itself")
		}}
	c.AddCommand(a.internalHealthCmd(), a.internalSmokeCmd(), a.internalDoctorCmd(), a.internalTuneCmd(),
		a.internalKernelCmd())
	c.AddCommand(internalGPU()...)
	return c
}

// internalHealthCmd checks a path of a device: engine/health.Serve.
func (a *app) internalHealthCmd() *cobra.Command {
	var name, device, kernels string
	c := &cobra.Command{Use: "health PATH", Args: exactly(1, "a path"),
		RunE: func(_ *cobra.Command, args []string) error {
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			return health.Serve(out, args[0], func() (backends.Device, error) {
				return openBackend(name, deviceFlags{device: device, kernels: kernels})
			}, noMemory)
		}}
	c.Flags().StringVar(&name, "backend", "", "")
	c.Flags().StringVar(&device, "device", "", "")
	c.Flags().StringVar(&kernels, "kernels", "", "")
	return c
}
