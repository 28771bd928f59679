package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"greta/engine/report"
)

// deviceLine is a backend's device, or why there is none.
type deviceLine struct {
	Backend string  `json:"backend"`
	Name    string  `json:"name,omitempty"`
	Level   string  `json:"level,omitempty"`
	Threads int     `json:"threads,omitempty"`
	Float   string  `json:"float,omitempty"`
	Memory  int     `json:"memory_bytes,omitempty"`
	ReadGBs float64 `json:"read_gb_per_second,omitempty"`
	GFlops  float64 `json:"gflops,omitempty"`
	Error   string  `json:"error,omitempty"`
}

func (a *app) devicesCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that can run models",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			var lines []deviceLine
			for _, b := range backendTable {
				d, err := b.open(deviceFlags{})
				if err != nil {
					lines = append(lines, deviceLine{Backend: b.name, Error: err.Error()})
					continue
				}
				i := d.Info()
				lines = append(lines, deviceLine{b.name, i.Name, i.Level, i.Threads, i.Float.String(), i.Memory, i.ReadGBs, i.GFlops, ""})
				if err := d.Close(); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(a.out, lines)
			}
			t := report.NewTable("<backend", "<device", "<level", "threads", "<float", "memory")
			missing := ""
			for _, l := range lines {
				if l.Error != "" {
					missing += l.Backend + ": " + l.Error + "\n"
					continue
				}
				memory := ""
				if l.Memory > 0 {
					memory = report.Bytes(float64(l.Memory))
				}
				t.Row(l.Backend, l.Name, l.Level, strconv.Itoa(l.Threads), l.Float, memory)
			}
			_, err := io.WriteString(a.out, t.String()+missing)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
