package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/exp"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
)

// expRunFlags are those of exp run.
type expRunFlags struct {
	expFlags
	noiseFlags
	rounds int
}

// sides of an experiment, as its runs are labelled.
const (
	sideBase    = "base"
	sideChanged = "changed"
	sideCheck   = "check"
)

func (a *app) expRunCmd() *cobra.Command {
	var f expRunFlags
	c := &cobra.Command{
		Use:   "run NAME",
		Short: "Check and measure an experiment against its baseline",
		Long: `run first runs the changed side once, whose results are checked as all of
greta bench are: if one is wrong the run ends there, and says so in the ledger. Then the baseline and the
changed side are measured in turns, so that clocks and temperature are the same
for both. The table has every benchmark, judged from the noise between rounds as greta gate --against
does it, and what each leaves to the roofs. All results are in the store, labelled
exp/NAME/RUN/base and exp/NAME/RUN/changed, where RUN is this run's own; the check is
exp/NAME/RUN/check, and no part of any comparison.`,
		Args: exactly(1, "one name"),
		RunE: func(c *cobra.Command, args []string) error { return a.expRun(c.Context(), &f, args[0]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.IntVar(&f.rounds, "rounds", defaultRounds, "rounds in which baseline and change take turns")
	f.noiseFlags.register(s, compare.DefaultAlpha)
	f.expFlags.register(s)
	return c
}

// expRun checks, measures in turns and records one experiment: in one piece, as each part ends it
// where it fails.
func (a *app) expRun(ctx context.Context, f *expRunFlags, name string) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	if f.rounds < 1 {
		return usagef("--rounds %d: it must be positive", f.rounds)
	}
	ledger, path, err := f.paths()
	if err != nil {
		return err
	}
	x, err := exp.Begin(ledger, name)
	if err != nil {
		return usage(err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	base, what, err := a.baseline(ctx, x, self)
	if err != nil {
		return err
	}
	began := time.Now().UTC()
	// Another run of the same experiment may be under way: its samples are not ours.
	label := "exp/" + name + "/" + record.NewID(began) + "/"
	run := func(side, program string, more ...string) error {
		bench := append([]string{"bench"}, x.Bench...)
		if side != sideBase {
			bench = append(bench, x.Change...)
		}
		bench = append(bench, more...)
		bench = append(bench, "--store", path, "--label", label+side)
		fmt.Fprintf(a.err, "greta: %s: greta %s\n", side, strings.Join(bench, " "))
		return runProgram(ctx, program, bench)
	}
	if err := run(sideCheck, self, "--repetitions", "1", "--min-time", "0s"); err != nil {
		var code *exec.ExitError
		if ctx.Err() != nil || !errors.As(err, &code) || code.ExitCode() != exitMismatch {
			return fmt.Errorf("the changed side cannot be measured: %w", err)
		}
		wrong := fmt.Sprintf("wrong results, nothing was timed: %v", err)
		return errlist.Join(&exitError{code: exitMismatch, err: errors.New(wrong)},
			exp.AddRun(ctx, ledger, name, exp.Run{Summary: "wrong results, nothing was timed", Details: err.Error()}))
	}
	for round := range f.rounds {
		order := []func() error{func() error { return run(sideBase, base) }, func() error { return run(sideChanged, self) }}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, step := range order {
			if err := step(); err != nil {
				return err
			}
		}
	}
	s, err := f.existing()
	if err != nil {
		return err
	}
	defer s.Close()
	var sides [2][]store.Entry
	for i, side := range []string{sideBase, sideChanged} {
		entries, err := s.Results(store.Filter{Label: label + side})
		if err != nil {
			return err
		}
		for j := range entries {
			entries[j].Config = "" // the forced variant is what the sides differ in
		}
		sides[i] = entries
	}
	opt.TwoSided = true
	c := compare.Turns(sides[0], sides[1], opt)
	if c.Count(compare.Missing, compare.New) == len(c.Rows) {
		return fmt.Errorf("baseline and change measured nothing in common since %s", began.Format(time.RFC3339))
	}
	r := exp.Run{Correct: c.Count(compare.Lost) == 0, Slower: c.Count(compare.Slower), Summary: expSummary(c, what),
		Details: fmt.Sprintf("%d rounds in turns against %s\n\n", f.rounds, what) + comparisonText(c, sideBase,
			sideChanged) + "\n" + roofText(pooled(sides[1]))}
	if err := exp.AddRun(ctx, ledger, name, r); err != nil {
		return err
	}
	if f.json {
		return writeJSON(a.out, struct {
			Name     string `json:"name"`
			Baseline string `json:"baseline"`
			exp.Run
			*compare.Comparison
		}{name, what, r, c})
	}
	_, err = io.WriteString(a.out, r.Details+"\n"+name+": "+r.Summary+"\n")
	return err
}

// runProgram runs a greta, whose report is kept in the store; what it says on standard error
// is part of the error.
func runProgram(ctx context.Context, program string, args []string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	c.Stderr = &said
	err := c.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}

// pooled joins the samples of a benchmark's rounds. One round that is not OK spoils the others.
func pooled(entries []store.Entry) []store.Entry {
	at := map[string]int{}
	var out []store.Entry
	for _, e := range entries {
		k := e.Name() + " " + e.Clock
		i, known := at[k]
		switch {
		case !known:
			at[k] = len(out)
			e.Samples = slices.Clone(e.Samples)
			out = append(out, e)
		case out[i].Verdict != record.OK:
		case e.Verdict != record.OK:
			out[i] = e
		default:
			out[i].Samples = append(out[i].Samples, e.Samples...)
		}
	}
	return out
}

// expSummary is a comparison in a line.
func expSummary(c *compare.Comparison, what string) string {
	var parts []string
	for _, o := range []compare.Outcome{compare.Faster, compare.Slower, compare.Same, compare.Lost, compare.Gained,
		compare.Few, compare.Noisy, compare.Disturbed} {
		if n := c.Count(o); n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", o, n))
		}
	}
	best, worst := 1.0, 1.0
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Outcome == compare.Faster || r.Outcome == compare.Slower {
			best, worst = min(best, r.Ratio), max(worst, r.Ratio)
		}
	}
	text := strings.Join(parts, ", ")
	if best < 1 {
		text += fmt.Sprintf("; at best %.1f %% less time", 100*(1-best))
	}
	if worst > 1 {
		text += fmt.Sprintf("; at worst %.1f %% more", 100*(worst-1))
	}
	return text + " than " + what
}

// roofText says what the changed side leaves to the roofs.
func roofText(entries []store.Entry) string {
	t := report.NewTable("<changed side", "<kernel", "median", "GB/s", "GFLOP/s", "of modelled roof", "of measured roof",
		"<bound by")
	var results []record.Result
	for i := range entries {
		e := &entries[i].Result
		results = append(results, *e)
		m := stats.Summarize(e.Samples).Median
		if e.Verdict != record.OK || m <= 0 {
			continue
		}
		rate := func(work float64) string {
			if work <= 0 {
				return ""
			}
			return fmt.Sprintf("%.4g", work/m/1e9)
		}
		share := func(measured bool) (string, string) {
			s, binds := format.Share(e, measured)
			if s <= 0 {
				return "unknown", binds
			}
			return fmt.Sprintf("%.1f %%", 100*s), binds
		}
		modelled, binds := share(false)
		measured, byMeasured := share(true)
		if byMeasured != "" {
			binds = byMeasured
		}
		t.Row(e.Name(), e.Kernel, format.Seconds(m), rate(e.Bytes), rate(e.Flops), modelled, measured, binds)
	}
	if note := format.AboveRoof(results); note != "" {
		return t.String() + "\n" + note + "\n"
	}
	return t.String()
}

// baseline finds or builds the program that an experiment is compared with, and says
// what it is.
func (a *app) baseline(ctx context.Context, x *exp.Experiment, self string) (program, what string, err error) {
	commit := environ.Commit()
	switch {
	case x.Baseline == "this":
		if x.Code != "" {
			return "", "", usagef("%s changes the source: its baseline cannot be the changed program", x.Name)
		}
		return self, "this program without the change", nil
	case x.Baseline != "":
		if i, err := os.Stat(x.Baseline); err == nil && i.Mode().IsRegular() {
			return x.Baseline, "the program " + x.Baseline, nil
		}
		return a.build(ctx, x.Baseline)
	case commit != "" && !strings.Contains(commit, "+dirty") && x.Code == "":
		return self, "commit " + shortCommit(commit) + " without the change", nil
	case environ.SourceDir() != "":
		return a.build(ctx, "HEAD")
	}
	return "", "", usage(errNoBaseline)
}

// build makes greta of a commit of the source that this runs in, once: it is kept in
// the user's folder of caches.
func (a *app) build(ctx context.Context, commit string) (program, what string, err error) {
	src := environ.SourceDir()
	if src == "" {
		return "", "", usagef("%s is no file, and as a commit it cannot be built: that is done in a clone of greta's "+
			"source", commit)
	}
	do := func(dir, name string, args ...string) (string, error) {
		c := exec.CommandContext(ctx, name, args...)
		c.Dir = dir
		var out, said bytes.Buffer
		c.Stdout, c.Stderr = &out, &said
		if err := c.Run(); err != nil {
			return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
		}
		return strings.TrimSpace(out.String()), nil
	}
	id, err := do(src, "git", "rev-parse", "--verify", commit+"^{commit}")
	if err != nil {
		return "", "", usage(err)
	}
	what = "commit " + shortCommit(id)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	tags := buildTags()
	program = filepath.Join(cache, "greta", "baselines", "greta-"+id+strings.ReplaceAll("-"+tags, ",", "-"))
	if _, err := os.Stat(program); err == nil {
		return program, what, nil
	}
	fmt.Fprintf(a.err, "greta: building %s as the baseline\n", what)
	dir, err := os.MkdirTemp("", "greta-baseline")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "source")
	if _, err := do(src, "git", "worktree", "add", "--detach", tree, id); err != nil {
		return "", "", err
	}
	// The context may have ended; the tree is to be removed all the same.
	defer exec.Command("git", "-C", src, "worktree", "remove", "--force", tree).Run()
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", "", err
	}
	made := program + fmt.Sprintf(".%d", os.Getpid())
	defer os.Remove(made)
	module, err := do(tree, "go", "list", "-m")
	if err != nil {
		return "", "", err
	}
	stamp := fmt.Sprintf("-X %s/bench/environ.stamp=%s", strings.TrimSpace(module), id)
	if _, err := do(tree, "go", "build", "-tags", tags, "-ldflags", stamp, "-o", made, "./cmd/greta"); err != nil {
		return "", "", err
	}
	return program, what, os.Rename(made, program)
}

// buildTags are those that this program was built with.
func buildTags() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				return s.Value
			}
		}
	}
	return ""
}
