package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"greta/bench/compare"
	"greta/bench/record"
	"greta/bench/store"
)

// exitGate is the exit code of a performance gate that does not open.
const exitGate = 5

func (a *app) gateCmd() *cobra.Command {
	var f struct {
		storeFlag
		noiseFlags
		bench, host string
		json        bool
	}
	c := &cobra.Command{
		Use:   "gate [RUN]",
		Short: "Fail where a run is slower than the best ever",
		Long: `gate holds a run, the last one if none is named, against the best that was ever
measured: for each benchmark the least median among all other runs on the same
device, level, driver and number of threads. The exit code is 5 where a result
is slower than that by more than noise, or is no longer OK.

The noise band is --band, or twice as far as the parts of a run drift, or, where
three or more runs of the same code are in the store, twice their spread, whichever
is the widest.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one run at most; see %s --help", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := f.options()
			if err != nil {
				return err
			}
			s, err := f.existing()
			if err != nil {
				return err
			}
			defer s.Close()
			run, err := oneRun(s, args)
			if err != nil {
				return err
			}
			all, err := s.Results(store.Filter{Bench: f.bench, Host: f.host})
			if err != nil {
				return err
			}
			c := compare.Gate(run.ID, all, opt)
			if len(c.Rows) == 0 {
				return usagef("run %s (%s) has no results that could be compared", run.ID, run.Status)
			}
			if f.json {
				err = writeJSON(a.out, struct {
					Run string `json:"run"`
					*compare.Comparison
				}{run.ID, c})
			} else {
				_, err = io.WriteString(a.out, fmt.Sprintf("run %s against the best ever of the same device, driver and shape\n\n", run.ID)+comparisonText(c, "best", "run"))
			}
			if err != nil {
				return err
			}
			if n := c.Count(compare.Slower, compare.Lost); n > 0 {
				return &exitError{code: exitGate, err: fmt.Errorf("%d of %d results are slower than the best ever, or no longer OK; the first is %s", n, len(c.Rows), c.Rows[0].Name)}
			}
			if n := c.Count(compare.Few); n > 0 {
				fmt.Fprintf(a.err, "greta: %d of %d results have too few samples to show a difference: they passed unjudged; measure with more (-r)\n", n, len(c.Rows))
			}
			if n := c.Count(compare.New); n == len(c.Rows) {
				fmt.Fprintf(a.err, "greta: nothing was compared: no other run measured these benchmarks on this device and driver\n")
			}
			return nil
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.bench, "bench", "", "benchmarks that match; * stands for anything")
	s.StringVar(&f.host, "host", "", "results of this host only")
	f.noiseFlags.register(s)
	f.storeFlag.register(s)
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// oneRun finds the run that an argument names, the last one without.
func oneRun(s *store.Store, args []string) (*record.Run, error) {
	n, prefix := 0, ""
	if len(args) > 0 {
		var last bool
		if n, last = lastRun(args[0]); !last {
			prefix = args[0]
		}
	}
	runs, err := s.Runs(store.Filter{Run: prefix})
	switch {
	case err != nil:
		return nil, err
	case prefix != "" && len(runs) > 1:
		return nil, usagef("%d runs begin with %s: the first is %s, the last %s", len(runs), prefix, runs[0].ID, runs[len(runs)-1].ID)
	case prefix != "" && len(runs) == 0:
		return nil, usagef("no run begins with %s; see greta history", prefix)
	case n >= len(runs):
		return nil, usagef("there are %d runs in %s", len(runs), s.Path())
	}
	return &runs[len(runs)-1-n], nil
}
