package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/weights/quant"
)

// kvTypes are those that caches can be of.
var kvTypes = []string{"f16", "bf16", "f32", "f8e4m3", "q8_0"}

// completeValues offers what flags take to a shell that completes, for all commands below c. Others take files.
func completeValues(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		var values func() []string
		switch f.Name {
		case "backend":
			values = backendNames
		case "device":
			if c.Flags().Lookup("backend") == nil { // of stored results
				return
			}
			values = func() []string { return deviceNames(c.Flag("backend").Value.String()) }
		case "dtype":
			values = func() []string { return append(floatTypes(), quant.MixedRecipes()...) }
		case "kv":
			values = func() []string { return kvTypes }
		case "fp16":
			values = func() []string { return []string{"auto", "on", "off"} }
		default:
			return
		}
		lists := strings.Contains(f.Usage, "types")
		// An error says that there is one already, which then stays.
		_ = c.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, typed string) ([]string,
			cobra.ShellCompDirective) {
			before := ""
			if lists {
				before = typed[:strings.LastIndexByte(typed, ',')+1]
			}
			var found []string
			for _, v := range values() {
				if strings.HasPrefix(before+v, typed) {
					found = append(found, before+v)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		})
	})
}

// deviceNames are a backend's devices as --device takes them, with their names.
func deviceNames(backend string) []string {
	var names []string
	for _, d := range append(hostDevices(), gpuDevices()...) {
		if d.Backend == backend && d.ID != "" {
			names = append(names, d.ID+"\t"+d.Name)
		}
	}
	return names
}
