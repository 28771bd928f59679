package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// contrary are flags that contradict each other: where the command line gives one,
// a variable or the configuration file does not set the other.
var contrary = [][2]string{{"no-store", "store"}, {"no-store", "label"}}

// applySettings gives every flag that the command line leaves out the value of
// its GRETA_* variable, or that of the configuration file.
func applySettings(c *cobra.Command) error {
	config, path, err := readConfig(c.Root())
	if err != nil {
		return err
	}
	var first error
	given := map[string]bool{}
	c.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	outdone := func(name string) bool {
		return slices.ContainsFunc(contrary, func(p [2]string) bool { return p[0] == name && given[p[1]] || p[1] == name && given[p[0]] })
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || outdone(f.Name) || first != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		variable := "GRETA_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := os.Getenv(variable); v != "" {
			if err := c.Flags().Set(f.Name, v); err != nil {
				first = fmt.Errorf("variable %s=%q: %w", variable, v, err)
			}
		} else if v, ok := config[f.Name]; ok {
			if err := c.Flags().Set(f.Name, v); err != nil {
				first = fmt.Errorf("%s: %s: %w", path, f.Name, err)
			}
		}
	})
	return first
}

// readConfig reads greta/config.yaml in the user's configuration folder: a
// mapping of flag names to values. A name that no verb knows is an error.
func readConfig(root *cobra.Command) (map[string]string, string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, "", nil // no home, no file
	}
	path := filepath.Join(dir, "greta", "config.yaml")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, nil
	} else if err != nil {
		return nil, path, err
	}
	var config map[string]string
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, path, fmt.Errorf("%s: %w", path, err)
	}
	for name := range config {
		if !knowsFlag(root, name) {
			return nil, path, fmt.Errorf("%s: %s is no flag of any command", path, name)
		}
	}
	return config, path, nil
}

// knowsFlag says whether a command or one below it has a flag.
func knowsFlag(c *cobra.Command, name string) bool {
	return c.Flags().Lookup(name) != nil || slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return knowsFlag(sub, name) })
}
