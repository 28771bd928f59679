package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/environ"
)

// release is the version of the sources.
const release = "0.1.0"

// version is the release, with the commit that it was built from where that is known.
func version() string {
	commit, changed := strings.CutSuffix(environ.Commit(), "+dirty")
	if commit == "" {
		return release
	}
	text := release + "+" + commit[:min(len(commit), 12)]
	if changed {
		text += ".changed"
	}
	return text
}

func (a *app) versionCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(a.out, map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS,
					"arch": runtime.GOARCH})
			}
			_, err := fmt.Fprintf(a.out, "greta %s, %s, %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// writeJSON writes a value, indented.
func writeJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
