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

	"github.com/greta-project/greta/internal/plainfile"
)

// contrary are flags that contradict each other: where the command line gives one,
// a variable or the configuration file does not set the other.
var contrary = [][2]string{{"no-store", "store"}, {"no-store", "label"}, {"json", "output"}}

// namesakes are flags of commands that are called like flags of other commands, mostly greta run's, and
// mean something else. Variables and the configuration file set them with the command's name before theirs.
var namesakes = map[string][]string{
	"run":            {"json"}, // a file; elsewhere json says that JSON is wanted
	"bench op":       {"cache", "config", "model", "profile", "prompt"},
	"bench model":    {"profile", "prompt"},
	"bench platform": {"profile", "set"},
	"bench serve":    {"api-key", "output", "served-model-name", "timeout"},
	"dump":           {"format"},
	"exp new":        {"config"},
	"export":         {"device", "label"}, // of these, those of results that are looked for
	"gap":            {"device", "label"},
	"history":        {"device", "label"},
	"kernels build":  {"model", "out", "with"},
	"plot":           {"device", "label", "output"},
	"pull":           {"parallel"}, // parts of a file
	"report":         {"device", "label", "output"},
	"smoke":          {"profile", "repeat"},
	"tune":           {"model", "profile", "prompt"},
}

// settingName is what the configuration file calls a flag of a command.
func settingName(c *cobra.Command, flag string) string {
	_, command, _ := strings.Cut(c.CommandPath(), " ") // without greta
	if slices.Contains(namesakes[command], flag) {
		return strings.ReplaceAll(command, " ", "-") + "-" + flag
	}
	return flag
}

// applySettings gives every flag that the command line leaves out the value of
// its GRETA_* variable, or that of the configuration file.
func applySettings(c *cobra.Command) error {
	config, path, err := readConfig(c.Root())
	if err != nil {
		return err
	}
	var first error
	outdone := func(name string) bool {
		return slices.ContainsFunc(contrary, func(p [2]string) bool {
			return p[0] == name && given(c.Flags(), p[1]) || p[1] == name && given(c.Flags(), p[0])
		})
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || outdone(f.Name) || first != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		name := settingName(c, f.Name)
		variable := "GRETA_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		set := func(v, where string) {
			if err := c.Flags().Set(f.Name, v); err != nil {
				first = fmt.Errorf("%s: %w", where, flagError(err))
				return
			}
			first = c.Flags().SetAnnotation(f.Name, setting, []string{name})
		}
		if v := os.Getenv(variable); v != "" {
			set(v, fmt.Sprintf("variable %s=%q", variable, v))
		} else if v, ok := config[name]; ok {
			set(v, path+": "+name)
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
	data, err := plainfile.Read(path)
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

// knowsFlag says whether a command or one below it has a flag of this name in the file.
func knowsFlag(c *cobra.Command, name string) bool {
	known := false
	c.Flags().VisitAll(func(f *pflag.Flag) { known = known || settingName(c, f.Name) == name })
	return known || slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return knowsFlag(sub, name) })
}
