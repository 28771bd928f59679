package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/engine/report"
)

// deviceLine is a device of a backend, or why the backend has none.
type deviceLine struct {
	Backend  string `json:"backend"`
	ID       string `json:"id,omitempty"` // as --device takes it
	Name     string `json:"name,omitempty"`
	Kind     string `json:"kind,omitempty"` // discrete, integrated, virtual, software; cpu
	Level    string `json:"level,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Location string `json:"location,omitempty"` // PCI address
	Driver   string `json:"driver,omitempty"`
	API      string `json:"api,omitempty"` // version of Vulkan
	Threads  int    `json:"threads,omitempty"`
	Float    string `json:"float,omitempty"`
	Memory   int    `json:"memory_bytes,omitempty"` // that may still be used
	Default  bool   `json:"default,omitempty"`      // the backend takes it where none is named
	// The roofs: modelled from the device's attributes, and the best that
	// greta bench platform measured on this machine.
	ReadGBs         float64   `json:"read_gb_per_second,omitempty"`
	GFlops          float64   `json:"gflops,omitempty"`
	MeasuredReadGBs float64   `json:"measured_read_gb_per_second,omitempty"`
	MeasuredGFlops  float64   `json:"measured_gflops,omitempty"`
	Subgroup        *subgroup `json:"subgroup,omitempty"`
	Limits          any       `json:"limits,omitempty"`
	Heaps           any       `json:"heaps,omitempty"`
	Unified         bool      `json:"unified,omitempty"` // the host reaches all memory
	Features        []string  `json:"features,omitempty"`
	Matrices        []string  `json:"cooperative_matrices,omitempty"` // MxNxK A·B+C→R
	Error           string    `json:"error,omitempty"`                // why the device, or the backend, cannot be used

	details []string // lines of --verbose
}

// subgroup is how many invocations run together.
type subgroup struct {
	Size int `json:"size"`
	Min  int `json:"min"` // where a kernel may choose
	Max  int `json:"max"`
}

func (a *app) devicesCmd() *cobra.Command {
	var asJSON, verbose bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that can run models",
		Long: `Lists the devices of every backend: what --device takes as its name, memory that
may still be used, the roofs of memory and arithmetic as the device's attributes
model them and, where greta bench platform has run here, as they were measured.

--device takes a number, a part of the name, a UUID or PCI address with or
without hyphens, or a kind: discrete, integrated, virtual, software. The device
marked * is taken where none is named; a software device never is.`,
		Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			lines := append(hostDevices(), gpuDevices()...)
			addMeasured(lines)
			if asJSON {
				return writeJSON(a.out, lines)
			}
			_, err := io.WriteString(a.out, devicesText(lines, verbose))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON, with limits, heaps, features and matrix shapes")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also limits, heaps, features and matrix shapes")
	return c
}

// hostDevices are those of the backends that every build has.
func hostDevices() []deviceLine {
	var lines []deviceLine
	for _, b := range backendTable {
		if b.name != "cpu" && b.name != "ref" {
			continue
		}
		d, err := b.open(deviceFlags{})
		if err != nil {
			lines = append(lines, deviceLine{Backend: b.name, Error: err.Error()})
			continue
		}
		i := d.Info()
		lines = append(lines, deviceLine{Backend: b.name, ID: "0", Name: i.Name, Kind: "cpu", Level: i.Level,
			Driver: i.Driver, Threads: i.Threads,
			Float: i.Float.String(), Memory: i.Memory, Default: true, ReadGBs: i.ReadGBs, GFlops: i.GFlops, Unified: true})
		if err := d.Close(); err != nil {
			lines[len(lines)-1].Error = err.Error()
		}
	}
	return lines
}

// devicesText is a table, then what cannot be used and why, then details.
func devicesText(lines []deviceLine, verbose bool) string {
	t := report.NewTable("<backend", "<device", "<name", "<kind", "<level", "threads", "<float", "memory", "GB/s",
		"GFLOP/s")
	missing, details := "", ""
	roof := func(modelled, measured float64) string {
		switch {
		case measured > 0 && modelled > 0:
			return report.Number(measured) + " of " + report.Number(modelled)
		case measured > 0:
			return report.Number(measured) + " measured"
		case modelled > 0:
			return report.Number(modelled)
		}
		return ""
	}
	for _, l := range lines {
		name := l.Backend
		if l.ID != "" {
			name += " " + l.ID
		}
		if l.Error != "" {
			if l.Name != "" {
				name += ", " + l.Name
			}
			missing += name + ": " + l.Error + "\n"
		}
		if verbose && l.Name != "" {
			details += "\n" + name + ": " + l.Name + "\n  " + strings.Join(l.describe(), "\n  ") + "\n"
		}
		if l.Error != "" {
			continue
		}
		id, threads, memory := l.ID, "", ""
		if l.Default {
			id += " *"
		}
		if l.Threads > 0 {
			threads = strconv.Itoa(l.Threads)
		}
		if l.Memory > 0 {
			memory = report.Bytes(float64(l.Memory))
		}
		t.Row(l.Backend, id, l.Name, l.Kind, l.Level, threads, l.Float, memory, roof(l.ReadGBs, l.MeasuredReadGBs),
			roof(l.GFlops, l.MeasuredGFlops))
	}
	return t.String() + missing + details
}

// describe gives what the table has no room for, a line each.
func (l *deviceLine) describe() []string {
	var out []string
	add := func(name, text string) {
		if text != "" {
			out = append(out, fmt.Sprintf("%-11s %s", name, text))
		}
	}
	add("driver", l.Driver)
	add("API", l.API)
	add("UUID", l.UUID)
	add("location", l.Location)
	if s := l.Subgroup; s != nil {
		text := strconv.Itoa(s.Size)
		if s.Min != s.Max {
			text += fmt.Sprintf(", %d to %d may be asked for", s.Min, s.Max)
		}
		add("subgroup", text)
	}
	out = append(out, l.details...)
	add("features", strings.Join(l.Features, ", "))
	for i, m := range l.Matrices {
		add([]string{"matrices", ""}[min(i, 1)], m)
	}
	if len(out) == 0 {
		out = append(out, "nothing more is known")
	}
	return out
}

// addMeasured adds the best rates that greta bench platform reached with each
// device on this machine, from the store of results, if there is one.
func addMeasured(lines []deviceLine) {
	path, err := store.DefaultPath()
	if err != nil {
		return
	}
	if _, err := os.Stat(path); err != nil {
		return
	}
	db, err := store.OpenExisting(path)
	if err != nil {
		return
	}
	defer db.Close()
	host, _ := os.Hostname()
	entries, err := db.Results(store.Filter{Bench: "platform/*", Host: host, Verdict: record.OK})
	if err != nil {
		return
	}
	addRates(lines, entries)
}

func addRates(lines []deviceLine, entries []store.Entry) {
	for i := range lines {
		l := &lines[i]
		for j := range entries {
			e := &entries[j]
			median := stats.Summarize(e.Samples).Median
			if env := e.Run.Env; median <= 0 || env.Backend != l.Backend || env.Device != l.Name ||
				env.DeviceID != "" && l.Location != "" && env.DeviceID != l.Location {
				continue
			}
			if e.Cache == record.Cold {
				l.MeasuredReadGBs = max(l.MeasuredReadGBs, e.Bytes/median/1e9)
			}
			l.MeasuredGFlops = max(l.MeasuredGFlops, e.Flops/median/1e9)
		}
	}
}

// shareRoofs models the roofs of a Vulkan device, whose driver tells neither clocks nor
// the width of its memory, by those of the same hardware under HIP.
func shareRoofs(lines []deviceLine) {
	for i := range lines {
		for _, twin := range lines {
			if l := &lines[i]; l.Location != "" && l.Location == twin.Location && l.ReadGBs == 0 {
				l.ReadGBs, l.GFlops = twin.ReadGBs, twin.GFlops
			}
		}
	}
}

// roofs are a device's roofs as its driver lets them be modelled, or that of the same hardware
// under HIP; 0 where nobody tells.
func roofs(dev backends.Device) (readGBs, gflops float64) {
	info := dev.Info()
	if at := environ.Location(dev); at != "" && info.ReadGBs == 0 && info.Backend == "vulkan" {
		lines := append([]deviceLine{{Location: at}}, hipDevices()...)
		shareRoofs(lines)
		return lines[0].ReadGBs, lines[0].GFlops
	}
	return info.ReadGBs, info.GFlops
}
