package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// Exit codes of a performance gate that does not open, and of one that cannot tell and was to fail then.
const (
	exitGate  = 5
	exitNoisy = 7
)

// defaultRounds is how often two programs take turns: enough to know the noise, and to find 10 % where it is 3 %.
const defaultRounds = 8

// gateCmd is the command with its flags and its help, in one piece.
func (a *app) gateCmd() *cobra.Command {
	var f struct {
		storeFlag
		noiseFlags
		bench, host string
		noisy       string
		against     string
		rounds      int
		json        bool
	}
	c := &cobra.Command{
		Use:   "gate [RUN]",
		Short: "Fail where a run is slower than the best code that was measured",
		Long: `gate holds a run, the last one if none is named, against all other runs on the same
device, level, driver and number of threads. Runs of one code (kernels and commit) are
a group; for each benchmark the code with the best typical run is the one to match.
The exit code is 5 where a result is slower than that by more than the noise between
runs explains, or is no longer OK.

Three runs of a code or more say what the noise is. Where a slowdown of 10 % would be
missed more than 1 of 10 times the result is noisy: --noisy warn lets it pass and says so,
--noisy fail ends with exit code 7. With fewer runs noise of 8 % is assumed: half as long
again or more is slower, the rest is noisy.

--against takes a greta, or a commit to build one of, and measures anew: the command of
the run is repeated by it and by this greta in turns (--rounds of each), so that both
have the same machine. From six rounds on the two runs of a round are held against each
other, so that what disturbs both does not count.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one run at most; see %s --help", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.noisy != "warn" && f.noisy != "fail" {
				return usagef("--noisy %s: warn or fail is expected", f.noisy)
			}
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
			if f.against != "" {
				c, what, err := a.turns(cmd.Context(), s, run, f.against, f.rounds, opt)
				if err != nil {
					return err
				}
				if f.json {
					err = writeJSON(a.out, c)
				} else {
					_, err = io.WriteString(a.out, "this greta against "+what+", in turns\n\n"+comparisonText(c, "before", "now"))
				}
				if err != nil {
					return err
				}
				return a.opens(c, f.noisy == "fail")
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
				_, err = io.WriteString(a.out, fmt.Sprintf("run %s against the best code of the same device, driver and shape\n\n",
					run.ID)+comparisonText(c, "best", "run"))
			}
			if err != nil {
				return err
			}
			return a.opens(c, f.noisy == "fail")
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.bench, "bench", "", "benchmarks that match; * stands for anything")
	s.StringVar(&f.host, "host", "", "results of this host only")
	f.noiseFlags.register(s, compare.DefaultAlpha)
	s.StringVar(&f.noisy, "noisy", "warn", "what to do where noise would hide a slowdown of 10 %: warn, or fail with "+
		"exit code 7")
	s.StringVar(&f.against, "against", "", "a greta, or a commit to build: repeat the run's command by it and by this "+
		"greta, in turns")
	s.IntVar(&f.rounds, "rounds", defaultRounds, "of --against: runs of each, 3 at least")
	f.storeFlag.register(s)
	s.BoolVar(&f.json, "json", false, "write JSON")
	return c
}

// opens says whether a gate opens: as an error where it does not, as warnings where it opens unasked.
func (a *app) opens(c *compare.Comparison, fail bool) error {
	if n := c.Count(compare.Slower, compare.Lost); n > 0 {
		why := fmt.Sprintf("%d of %d results are slower than the best code, or no longer OK; the first is %s",
			n, len(c.Rows), c.Rows[0].Name)
		return &exitError{code: exitGate, err: errors.New(why)}
	}
	if n := c.Count(compare.Noisy); n > 0 {
		why := fmt.Sprintf("%d of %d results cannot be told from noise; the first is %s", n, len(c.Rows), c.Rows[0].Name)
		if few := fewRuns(c); few > 0 {
			why += fmt.Sprintf("; %d have less than 3 runs of one code before them, which are needed to know the noise", few)
		}
		if fail {
			return &exitError{code: exitNoisy, err: errors.New(why)}
		}
		fmt.Fprintf(a.err, "greta: warning: %s; they passed unjudged\n", why)
	}
	if n := c.Count(compare.Few); n > 0 {
		fmt.Fprintf(a.err, "greta: %d of %d results have too few samples to show a difference: they passed unjudged; "+
			"measure with more (-r)\n", n, len(c.Rows))
	}
	if n := c.Count(compare.New); n == len(c.Rows) {
		fmt.Fprintf(a.err, "greta: nothing was compared: no other run measured these benchmarks on this device and driver\n")
	}
	return nil
}

// fewRuns counts results of which nothing can be told as the noise between runs is not known.
func fewRuns(c *compare.Comparison) int {
	n := 0
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Outcome == compare.Noisy && r.Runs.Assumed {
			n++
		}
	}
	return n
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
		return nil, usagef("%d runs begin with %s: the first is %s, the last %s", len(runs), prefix, runs[0].ID,
			runs[len(runs)-1].ID)
	case prefix != "" && len(runs) == 0:
		return nil, usagef("no run begins with %s; see greta history", prefix)
	case n >= len(runs):
		return nil, usagef("there are %d runs in %s", len(runs), s.Path())
	}
	return &runs[len(runs)-1-n], nil
}
