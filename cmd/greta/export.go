package main

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
)

func (a *app) exportCmd() *cobra.Command {
	var f filterFlags
	var g mergeFlags
	var out string
	c := &cobra.Command{
		Use:   "export csv|json|sql|gguf [WEIGHTS]",
		Short: "Write results, or weights with adapters, as a file for other programs",
		Long: `export writes the results that match, with all their samples: as CSV, a line a
result; as JSON, which greta import reads; as SQL, which makes the same store in
SQLite.

export gguf WEIGHTS --lora ADAPTER --out FILE merges adapters into weights and writes a
GGUF file, the changed tensors in the type that they have, or in that of --type.`,
		Example: `  greta export json --since 1d --out rented.json
  greta export csv --bench "platform/*"
  greta export gguf FOLDER --lora adapter/ --type q8_0 --out merged.gguf`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "gguf" {
				return g.check(c, args, out)
			}
			if len(g.lora) > 0 || g.typ != "" || g.model != "" {
				return usagef("--lora, --type and --model are for export gguf")
			}
			if len(args) != 1 || args[0] != "csv" && args[0] != "json" && args[0] != "sql" {
				return usagef("%s takes one format: csv, json or sql, or gguf and weights", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "gguf" {
				return a.exportGGUF(c.Context(), &g, args[1], out)
			}
			filter, err := f.filter()
			if err != nil {
				return err
			}
			s, err := f.existing()
			if err != nil {
				return err
			}
			defer s.Close()
			write := func(w io.Writer) error {
				switch args[0] {
				case "sql":
					return s.Dump(w, filter)
				case "json":
					b, err := s.Bundles(filter)
					if err != nil {
						return err
					}
					return store.WriteExchange(w, b)
				}
				entries, err := s.Results(filter)
				if err != nil {
					return err
				}
				return writeCSV(w, entries)
			}
			if out == "" || out == "-" {
				return write(a.out)
			}
			return writeNew(out, write)
		},
	}
	s := c.Flags()
	s.SortFlags = false
	f.register(s)
	s.StringArrayVar(&g.lora, "lora", nil, "gguf: an adapter to merge, a folder of PEFT's or a GGUF adapter (may be "+
		"repeated)")
	s.StringVar(&g.typ, "type", "", "gguf: type of the matrices (default: as they are)")
	s.StringVar(&g.model, "model", "", "gguf: model file of a folder's family; the new file keeps the folder's names")
	s.StringVar(&out, "out", "", "file to write (default: standard output)")
	return c
}

// writeCSV writes a line for each result; samples are seconds divided by spaces.
func writeCSV(w io.Writer, entries []store.Entry) error {
	c := csv.NewWriter(w)
	c.Write([]string{"run", "started", "status", "kind", "label", "host", "backend", "device", "level", "driver", "commit",
		"name", "bench", "config", "kernel", "clock", "cache",
		"n", "median_s", "lo_s", "hi_s", "bytes", "flops", "gb_per_s", "gflop_per_s", "roof_gb_per_s", "roof_gflop_per_s",
		"against", "rel_l2", "max_abs", "limit", "verdict", "reason", "samples_s", "host_samples_s"})
	num := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	list := func(xs []float64) string {
		var parts []string
		for _, x := range xs {
			parts = append(parts, num(x))
		}
		return strings.Join(parts, " ")
	}
	for i := range entries {
		e := &entries[i]
		env, t := &e.Run.Env, stats.Summarize(e.Samples)
		rate := func(work float64) string {
			if t.Median <= 0 {
				return ""
			}
			return num(work / t.Median / 1e9)
		}
		c.Write([]string{e.Run.ID, e.Run.Started.Format(time.RFC3339Nano), string(e.Run.Status), e.Run.Kind, e.Run.Label,
			env.Host, env.Backend, env.Device, env.Level, env.Driver, env.Commit,
			e.Name(), e.Bench, e.Config, e.Kernel, e.Clock, e.Cache,
			strconv.Itoa(t.N), num(t.Median), num(t.Lo), num(t.Hi), num(e.Bytes), num(e.Flops), rate(e.Bytes), rate(e.Flops),
			num(e.Roofs.ReadGBs), num(e.Roofs.GFlops),
			e.Check.Against, num(e.Check.RelL2), num(e.Check.MaxAbs), num(e.Check.Limit), string(e.Verdict), e.Reason,
			list(e.Samples), list(e.Host)})
	}
	c.Flush()
	return c.Error()
}
