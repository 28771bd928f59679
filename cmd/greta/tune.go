package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/platform"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/bench/tune"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/child"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// tuneFlags are those of tune.
type tuneFlags struct {
	benchOpFlags
	store         storeFlag
	file          string
	limit         time.Duration
	rounds        int
	samples       int
	pause         time.Duration // of a variant's samples in a round
	again, dryRun bool
	warm, asJSON  bool
}

func (a *app) tuneCmd() *cobra.Command {
	f := &tuneFlags{benchOpFlags: benchOpFlags{sizes: map[string]*string{}}}
	c := &cobra.Command{
		Use:   "tune [OPERATOR...]",
		Short: "Find the fastest variants of a device's kernels",
		Long: `tune tries the variants of kernels at a model's shapes, or at those that are named
as for greta bench op, and writes the fastest of each to a file that greta run
uses. Each variant is checked against the float64 reference before it is timed. They take
turns in a child process: one that crashes, hangs or is wrong is rejected, and the
rest goes on.

What was tuned is kept by operator, shape (sizes rounded up to powers of two),
types, device, driver, threads and the kernels' code. What is there already is not
tried again; a new variant is tried against the best and the default alone.`,
		Example: `  greta tune --model llama2_7b --backend hip
  greta tune linear --m 1,8 --k 4096 --n 4096,11008 --dtype q4_0
  greta tune --model llama2_7b --dry-run`,
		RunE: func(c *cobra.Command, args []string) error { return a.tune(c, f, args) },
	}
	s := c.Flags()
	s.SortFlags = false
	f.registerSelection(s)
	f.registerDevice(s)
	s.StringVar(&f.file, "tuned", "", "file to write (default: greta/tuned.yaml in the user's configuration folder)")
	s.DurationVar(&f.limit, "limit", time.Minute, "time that a variant may take to be compiled, checked and measured "+
		"once; then it is rejected")
	s.IntVar(&f.rounds, "rounds", 3, "rounds in which the variants take turns")
	s.IntVar(&f.samples, "samples", 10, "samples of a variant in a round, at least")
	s.DurationVar(&f.pause, "min-time", 50*time.Millisecond, "time that the samples of a variant in a round take "+
		"together, at least")
	s.BoolVar(&f.warm, "warm", false, "leave operands in the caches; else each repetition finds them in memory, as "+
		"weights are found")
	s.BoolVar(&f.again, "again", false, "try what was tuned before once more")
	s.BoolVar(&f.dryRun, "dry-run", false, "list the kernels with their variants, and measure nothing")
	f.store.register(s)
	s.BoolVar(&f.noStore, "no-store", false, "do not keep the results")
	s.StringVar(&f.label, "label", "", "a word of your own, kept with the results")
	s.BoolVar(&f.asJSON, "json", false, "write JSON")
	return c
}

// tuneLine is what tune says of one kernel.
type tuneLine struct {
	tune.Entry
	Tuned bool   `json:"tuned"` // now; else before, or with --dry-run not at all
	Error string `json:"error,omitempty"`
}

func (a *app) tune(c *cobra.Command, f *tuneFlags, args []string) (err error) {
	switch {
	case f.limit <= 0:
		return usagef("--limit %v: it must be positive", f.limit)
	case f.rounds < 1 || f.samples < 1:
		return usagef("--rounds %d --samples %d: both must be positive", f.rounds, f.samples)
	case f.pause < 0:
		return usagef("--min-time %v: it must not be negative", f.pause)
	case strings.EqualFold(f.file, "off"):
		return usagef("--tuned %s: greta tune writes a file; off is for greta run, which then uses none", f.file)
	case f.noStore && (f.store.path != "" || f.label != ""):
		return usagef("--no-store keeps nothing: --store and --label mean nothing with it")
	}
	sel, _, err := f.selections(c, args)
	if err != nil {
		return usage(err)
	}
	if f.file == "" {
		if f.file, err = tune.Path(); err != nil {
			return err
		}
	}
	have, err := tune.Load(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usage(err)
	}
	ctx := c.Context()
	dev, err := f.openDevice(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, dev.Close()) }()
	var cases []*op.Case
	for i := range sel {
		more, err := f.cases(ctx, dev, &sel[i])
		if err != nil {
			return usage(err)
		}
		cases = append(cases, more...)
	}
	var nodes []*graph.Node
	for _, c := range cases {
		nodes = append(nodes, c.Node)
	}
	if err := f.checkOptIn(dev, nodes); err != nil {
		return err
	}
	tasks := tune.Tasks(dev, cases)
	if len(tasks) == 0 {
		fmt.Fprintf(a.err, "greta: none of these %d kernels has variants on the %s backend: there is nothing to tune\n",
			len(cases), dev.Info().Backend)
		if f.asJSON {
			return writeJSON(a.out, []tuneLine{})
		}
		return nil
	}
	var lines []tuneLine
	if f.dryRun {
		for _, t := range tasks {
			l := tuneLine{Entry: tune.Entry{Key: t.Key}}
			if e := have.Find(t.Key); e != nil {
				l.Best, l.Gain = e.Best, e.Gain
			}
			for _, v := range t.Variants {
				l.Tried = append(l.Tried, tune.Trial{Variant: v})
			}
			lines = append(lines, l)
		}
	} else if lines, err = a.tuneAll(ctx, f, dev, tasks, have); err != nil && len(lines) == 0 {
		return err
	}
	if f.asJSON {
		return errlist.Join(err, writeJSON(a.out, lines))
	}
	_, e := io.WriteString(a.out, tuneText(lines, f.dryRun))
	if !f.dryRun && e == nil {
		_, e = fmt.Fprintf(a.out, "\n%s\n", f.file)
	}
	return errlist.Join(err, e)
}

// tuneAll tunes kernels one after another, and writes each down as soon as it is known.
func (a *app) tuneAll(ctx context.Context, f *tuneFlags, dev backends.Device, tasks []tune.Task,
	have *tune.File) (lines []tuneLine, err error) {
	held, err := guard.Lock(ctx, environ.LockKey(dev), func(h guard.Holder) {
		fmt.Fprintf(a.err, "greta: %s is measuring on this device; waiting\n", h)
	})
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	opt := tune.Options{Device: dev, Child: f.tuneChild(), Limit: f.limit, Rounds: f.rounds, Samples: f.samples,
		MinTime: f.pause, Warm: f.warm, Again: f.again,
		Roofs: record.Roofs{ReadGBs: dev.Info().ReadGBs, GFlops: dev.Info().GFlops}}
	if i := dev.Info(); i.Backend == "cpu" {
		processor, err := platform.ModelCPU(i.Level, i.Threads)
		if err != nil {
			return nil, err
		}
		opt.Roofs = processor.Roofs(true, tensor.Q8_0, tensor.BF16) // of the fastest arithmetic that any weights have
		opt.Roofs.LastCache = lastCache("/sys/devices/system/cpu/cpu0/cache")
	}
	status := record.Complete
	var trouble error
	if !f.noStore {
		s, err := f.store.open()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		var w *store.Writer
		now := time.Now().UTC()
		if w, err = s.Begin(record.Run{ID: record.NewID(now), Kind: "tune", Command: a.args, Label: f.label,
			Started: now, Env: environ.Gather(version(), dev)}); err != nil {
			return nil, err
		}
		defer func() { err = errlist.Join(err, w.End(status)) }()
		opt.Emit = func(r *record.Result) {
			if e := w.Add(r); e != nil && trouble == nil {
				trouble = e
			}
		}
	}
	for i, t := range tasks {
		if isTerminal(a.err) {
			opt.Progress = func(text string) { fmt.Fprintf(a.err, "greta: %d of %d: %s\n", i+1, len(tasks), text) }
		}
		e, changed, err := tune.Run(ctx, t, have.Find(t.Key), opt)
		l := tuneLine{Entry: e, Tuned: changed}
		l.Key = t.Key
		if ctx.Err() != nil {
			status = record.Incomplete
			return lines, ctx.Err()
		}
		if err != nil {
			l.Error, status = err.Error(), record.Broken
		} else if changed {
			if err := tune.Update(ctx, f.file, func(file *tune.File) { file.Put(e) }); err != nil {
				return lines, err
			}
		}
		lines = append(lines, l)
	}
	if trouble != nil {
		return lines, trouble
	}
	failed := 0
	for _, l := range lines {
		if l.Error != "" {
			failed++
		}
	}
	if failed > 0 {
		return lines, fmt.Errorf("%d of %d kernels could not be tuned", failed, len(lines))
	}
	return lines, nil
}

// tuneChild is the command whose process tries variants.
func (f *tuneFlags) tuneChild() child.Command {
	c := self("tune", "--backend", f.backend, "--threads", strconv.Itoa(f.threads), "--fp16", f.fp16, "--device", f.device,
		"--kernels", f.kernels)
	if f.exact {
		c = append(c, "--exact")
	}
	if f.fp8 {
		c = append(c, "--fp8")
	}
	return c
}

// internalTuneCmd tries variants: tune.Serve.
func (a *app) internalTuneCmd() *cobra.Command {
	var f modelFlags
	c := &cobra.Command{Use: "tune", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := child.Stdout()
			if err != nil {
				return err
			}
			return tune.Serve(c.Context(), a.in, out, func() (backends.Device, error) { return f.openDevice(c.Context(), a) })
		}}
	f.registerDevice(c.Flags())
	return c
}

// tuneText prints a block for each kernel, a line a variant.
func tuneText(lines []tuneLine, dryRun bool) string {
	text := ""
	for i, l := range lines {
		if i > 0 {
			text += "\n"
		}
		text += fmt.Sprintf("%s %s", l.Op, l.Shape)
		if !dryRun && !l.Tuned {
			text += " (tuned before)"
		}
		text += "\n"
		if l.Error != "" {
			text += "  FAILED: " + l.Error + "\n"
			continue
		}
		t := report.NewTable("<  variant", "median", "n", "against default", "<")
		base := 0.0
		for k, tr := range l.Tried {
			if k == 0 {
				base = tr.Seconds
			}
			median, n, against, mark := "", "", "", ""
			if tr.Seconds > 0 {
				median, n = format.Seconds(tr.Seconds), strconv.Itoa(tr.N)
				if base > 0 {
					against = fmt.Sprintf("%.2f times as fast", base/tr.Seconds)
				}
			}
			switch {
			case tr.Rejected != "":
				mark = "REJECTED: " + tr.Rejected
			case tr.Variant == l.Best:
				mark = "best"
			case k == 0 && dryRun:
				mark = "default"
			}
			t.Row("  "+tr.Variant, median, n, against, mark)
		}
		text += t.String()
	}
	return text
}
