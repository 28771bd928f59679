package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/store"
)

func (a *app) compareCmd() *cobra.Command {
	var f struct {
		storeFlag
		noiseFlags
		bench string
		json  bool
	}
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two runs, devices, commits or labels",
		Long: `compare holds what was measured in B against what was measured in A, benchmark
by benchmark. A and B are runs (an identity or its beginning, last, last~1),
commits, labels or devices; run:, commit:, label: and device: say which is meant.
Of several runs of one benchmark those of the last one's code count.

The test is that of greta gate, in both directions: the medians of runs are compared,
with the noise between runs of the same code. Three runs of a code or more say what
that is; with fewer noise of 8 % is assumed, and hardly anything can be told. What is
not slower or faster is noisy, "cannot tell", where a slowdown of 10 % would be missed more
than 1 of 10 times, and else the same. Runs that something disturbed (other programs, a quota,
a binding) are compared with such as were disturbed alike.`,
		Example: `  greta compare last~1 last
  greta compare label:before label:now
  greta compare commit:4f2a91c commit:9d01b7e --bench "op/*"
  greta compare device:H200 device:MI300X`,
		Args: exactly(2, "two selections"),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			opt, err := f.options()
			if err != nil {
				return err
			}
			s, err := f.existing()
			if err != nil {
				return err
			}
			defer s.Close()
			var sides [2][]store.Entry
			var senses [2]string
			for i, arg := range args {
				if sides[i], senses[i], err = selectRuns(s, arg, store.Filter{Bench: f.bench}); err != nil {
					return err
				}
			}
			for i, entries := range sides {
				if len(entries) == 0 && f.bench != "" {
					return usagef("%s (%s) has no benchmark that matches --bench %s", []string{"A", "B"}[i], senses[i], f.bench)
				}
			}
			c := compare.Compare(sides[0], sides[1], opt)
			if len(c.Rows) == 0 {
				return usagef("A (%s) and B (%s) have no device in common", senses[0], senses[1])
			}
			if f.json {
				return writeJSON(a.out, struct {
					A string `json:"a"`
					B string `json:"b"`
					*compare.Comparison
				}{senses[0], senses[1], c})
			}
			_, err = io.WriteString(a.out, fmt.Sprintf("A  %s\nB  %s\n\n", senses[0], senses[1])+comparisonText(c, "A", "B"))
			return err
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.bench, "bench", "", "benchmarks that match; * stands for anything")
	f.noiseFlags.register(s, compare.DefaultAlpha)
	f.storeFlag.register(s)
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}
