package main

// A gate that measures anew: two programs by turns.

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/exp"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// turns repeats a run's command by a program before and by this one, and compares them. It says what the program
// before is.
func (a *app) turns(ctx context.Context, s *store.Store, run *record.Run, against string, rounds int,
	opt compare.Options) (*compare.Comparison, string, error) {
	switch {
	case rounds < 3:
		return nil, "", usagef("--rounds %d: three at least are needed to know the noise", rounds)
	case len(run.Command) < 2 || run.Command[0] != "bench":
		return nil, "", usagef("run %s was made by %q: --against repeats a greta bench", run.ID,
			strings.Join(run.Command, " "))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	base, what, err := a.baseline(ctx, &exp.Experiment{Baseline: against}, self)
	if err != nil {
		return nil, "", err
	}
	label := "gate/" + record.NewID(time.Now()) + "/"
	step := func(side, program string) error {
		args := append(slices.Clone(run.Command), "--store", s.Path(), "--label", label+side)
		fmt.Fprintf(a.err, "greta: %s: greta %s\n", side, strings.Join(args, " "))
		return runProgram(ctx, program, args)
	}
	for round := range rounds {
		order := []struct{ side, program string }{{"before", base}, {"now", self}}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, o := range order {
			if err := step(o.side, o.program); err != nil {
				return nil, "", fmt.Errorf("%s: %w", o.side, err)
			}
		}
	}
	var sides [2][]store.Entry
	for i, side := range []string{"before", "now"} {
		if sides[i], err = s.Results(store.Filter{Label: label + side}); err != nil {
			return nil, "", err
		}
	}
	c := compare.Turns(sides[0], sides[1], opt)
	if len(c.Rows) == 0 {
		return nil, "", fmt.Errorf("%s measured nothing", what)
	}
	return c, what, nil
}
