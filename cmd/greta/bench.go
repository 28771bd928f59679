package main

import (
	"github.com/spf13/cobra"
)

// benchCmd is the verb under which everything that measures lies. Each kind of
// benchmark is a subcommand in a file of its own.
func (a *app) benchCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure operators, models and the platform, checked in the same run",
		Long: `bench measures. Nothing is timed whose result was not checked in the same run;
a figure above the device's modelled peak is refused as a measuring error; a path
that fell back to another device says SKIPPED; one benchmark runs at a time.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usagef("unknown benchmark %q; see %s --help", args[0], c.CommandPath())
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.benchOpCmd(), a.benchModelCmd(), a.benchPlatformCmd(), a.benchServeCmd())
	return c
}
