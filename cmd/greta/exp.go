package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greta-project/greta/bench/environ"
	"github.com/greta-project/greta/bench/exp"
	"github.com/greta-project/greta/engine/report"
)

// expFlags are those of all verbs of exp.
type expFlags struct {
	storeFlag
	ledger string
	json   bool
}

func (f *expFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.ledger, "ledger", "", "file of experiments (default: experiments.md beside the store of results)")
	f.storeFlag.register(s)
	s.BoolVar(&f.json, "json", false, "write JSON")
}

// paths gives the ledger's and the store's files.
func (f *expFlags) paths() (ledger, store string, err error) {
	if store, err = f.file(); err != nil {
		return "", "", err
	}
	if ledger = f.ledger; ledger == "" {
		ledger = exp.DefaultPath(store)
	}
	return ledger, store, nil
}

func (a *app) expCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "exp",
		Short: "Experiments: hypothesis, change, result, kept or rejected",
		Long: `exp keeps experiments on record, in a text file that only grows. An experiment
begins with a hypothesis and a change: a forced configuration, or changed source.
A run checks the changed side first, then measures it against the clean baseline in turns,
and says what the roofs leave. In the end it is kept or rejected, with a reason;
what was rejected is refused when somebody tries it again, unless they say what
has changed since.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usagef("unknown command %q; see %s --help", args[0], c.CommandPath())
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.expNewCmd(), a.expRunCmd(), a.expDecideCmd("keep", exp.Kept), a.expDecideCmd("reject", exp.Rejected),
		a.expListCmd(), a.expShowCmd())
	return c
}

func (a *app) expNewCmd() *cobra.Command {
	var f expFlags
	var x exp.Experiment
	var config, change []string
	c := &cobra.Command{
		Use:   "new NAME --hypothesis TEXT --config VARIANT -- BENCHMARK...",
		Short: "Begin an experiment",
		Long: `new notes a hypothesis, what is changed, and the benchmark that shall tell: what
follows -- are the arguments of greta bench. The change is a forced variant
(--config), other arguments that only the changed side gets (--change), or, without either,
the source's changes against its last commit.`,
		Example: `  greta exp new unroll8 --hypothesis "eight units of a row under way hide the loads' latency" \
      --config unroll=8,blocks=1 -- op linear --m 1 --k 4096 --n 4096 --dtype q4_0 --backend hip
  greta exp new fp16 --hypothesis "halves are enough" --change --fp16=on -- op attention --backend vulkan`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%s takes a name and, behind --, the arguments of greta bench; see %s --help", c.CommandPath(),
					c.CommandPath())
			}
			x.Name, x.Bench = args[0], args[1:]
			for _, arg := range x.Bench {
				if name, _, _ := strings.Cut(arg, "="); name == "--store" || name == "--label" || name == "--no-store" ||
					name == "--output" || strings.HasPrefix(name, "-o") {
					return usagef("%s does not go with an experiment's benchmark: exp sets it", arg)
				}
			}
			for _, v := range config {
				x.Change = append(x.Change, "--config="+v)
			}
			x.Change = append(x.Change, change...)
			if len(x.Change) == 0 {
				var err error
				if x.Code, err = sourceChanges(); err != nil {
					return usage(err)
				}
			}
			if err := x.Check(); err != nil {
				return usage(err)
			}
			if err := a.tryBench(c.Context(), &x); err != nil {
				return err
			}
			ledger, _, err := f.paths()
			if err != nil {
				return err
			}
			if err := exp.New(c.Context(), ledger, x); err != nil {
				return usage(err)
			}
			if f.json {
				return writeJSON(a.out, x)
			}
			_, err = fmt.Fprintf(a.out, "%s is in %s; next: greta exp run %s\n", x.Name, ledger, x.Name)
			return err
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&x.Hypothesis, "hypothesis", "", "what should get faster, and why")
	s.StringArrayVar(&config, "config", nil, "variant of the kernels that is forced, as greta bench --config takes it "+
		"(may be repeated)")
	s.StringArrayVar(&change, "change", nil, "argument that the changed side alone gets (may be repeated)")
	s.StringVar(&x.Baseline, "baseline", "", "what it is compared with: a commit of greta's source, a greta program, "+
		"or this (default: the clean commit of this program)")
	s.StringVar(&x.Precondition, "precondition", "", "what has changed since the same was rejected")
	f.register(s)
	return c
}

// tryBench lets greta bench read the arguments of both sides, so that a slip of the pen does not
// show only when the experiment is run. The ledger may be written on a machine without the device.
func (a *app) tryBench(ctx context.Context, x *exp.Experiment) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, side := range [][]string{nil, x.Change} {
		err := runProgram(ctx, self, slices.Concat([]string{"bench"}, x.Bench, side, []string{"--dry-run"}))
		var code *exec.ExitError
		switch {
		case err == nil:
		case !errors.As(err, &code):
			return err
		case code.ExitCode() == exitNoDevice:
			fmt.Fprintf(a.err, "greta: the benchmark is not tried here: %v\n", err)
			return nil
		default:
			return usagef("the benchmark cannot be run: greta bench %s: %v", strings.Join(slices.Concat(x.Bench, side), " "),
				err)
		}
	}
	return nil
}

// sourceChanges is a hash of what differs in greta's source from its last commit.
func sourceChanges() (string, error) {
	dir := environ.SourceDir()
	if dir == "" {
		return "", fmt.Errorf("nothing is changed: force a variant by --config, or run this in greta's changed source")
	}
	diff, err := exec.Command("git", "-C", dir, "diff", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git diff in %s: %w", dir, err)
	}
	if len(diff) == 0 {
		return "", fmt.Errorf("nothing is changed: the source in %s is as committed, and no variant is forced", dir)
	}
	sum := sha256.Sum256(diff)
	return hex.EncodeToString(sum[:8]), nil
}

func (a *app) expDecideCmd(verb string, status exp.Status) *cobra.Command {
	var f expFlags
	var because string
	var despite bool
	c := &cobra.Command{
		Use:   verb + " NAME --because TEXT",
		Short: strings.ToUpper(verb[:1]) + verb[1:] + " what an experiment changed",
		Args:  exactly(1, "one name"),
		RunE: func(c *cobra.Command, args []string) error {
			ledger, _, err := f.paths()
			if err != nil {
				return err
			}
			if err := exp.Decide(c.Context(), ledger, args[0], status, because, despite); err != nil {
				return usage(err)
			}
			l, err := exp.Read(ledger)
			if err != nil {
				return err
			}
			if f.json {
				return writeJSON(a.out, l.Find(args[0]))
			}
			_, err = fmt.Fprintf(a.out, "%s is %s: %s\n", args[0], status, l.Find(args[0]).Why)
			return err
		},
	}
	c.Flags().StringVar(&because, "because", "", "why")
	if status == exp.Kept {
		c.Flags().BoolVar(&despite, "despite-slower", false, "keep what was found slower, for what --because says")
	}
	f.register(c.Flags())
	return c
}

func (a *app) expListCmd() *cobra.Command {
	var f expFlags
	var status string
	c := &cobra.Command{
		Use:   "list",
		Short: "List experiments",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			switch exp.Status(status) {
			case "", exp.Open, exp.Kept, exp.Rejected:
			default:
				return usagef("--status %s: open, kept or rejected", status)
			}
			ledger, _, err := f.paths()
			if err != nil {
				return err
			}
			l, err := exp.Read(ledger)
			if err != nil {
				return usage(err)
			}
			list := []*exp.Experiment{}
			for _, x := range l.List() {
				if status == "" || x.Status == exp.Status(status) {
					list = append(list, x)
				}
			}
			if f.json {
				return writeJSON(a.out, list)
			}
			if len(list) == 0 {
				fmt.Fprintf(a.err, "greta: no experiments in %s\n", ledger)
				return nil
			}
			t := report.NewTable("<since", "<name", "<status", "runs", "<last run", "<why")
			for _, x := range list {
				last := ""
				if n := len(x.Runs); n > 0 {
					last = x.Runs[n-1].Summary
				}
				t.Row(x.Created.Local().Format(time.DateOnly), x.Name, string(x.Status), fmt.Sprint(len(x.Runs)), last, x.Why)
			}
			_, err = io.WriteString(a.out, t.String())
			return err
		},
	}
	c.Flags().StringVar(&status, "status", "", "only those that are open, kept or rejected")
	f.register(c.Flags())
	return c
}

func (a *app) expShowCmd() *cobra.Command {
	var f expFlags
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all that is known of an experiment",
		Args:  exactly(1, "one name"),
		RunE: func(_ *cobra.Command, args []string) error {
			ledger, _, err := f.paths()
			if err != nil {
				return err
			}
			l, err := exp.Read(ledger)
			if err != nil {
				return usage(err)
			}
			x := l.Find(args[0])
			if x == nil {
				return usagef("no experiment is called %s; greta exp list lists them", args[0])
			}
			if f.json {
				return writeJSON(a.out, x)
			}
			_, err = io.WriteString(a.out, expText(x))
			return err
		},
	}
	f.register(c.Flags())
	return c
}

func expText(x *exp.Experiment) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-13s %s\n", name, text)
		}
	}
	line("name", x.Name)
	line("since", x.Created.Local().Format(time.DateTime))
	line("hypothesis", x.Hypothesis)
	line("benchmark", "greta bench "+strings.Join(x.Bench, " "))
	line("change", strings.Join(x.Change, " "))
	line("code", x.Code)
	line("baseline", x.Baseline)
	line("precondition", x.Precondition)
	status := string(x.Status)
	if x.Why != "" {
		status += ": " + x.Why
	}
	line("status", status)
	for _, r := range x.Runs {
		correct := "correct"
		if !r.Correct {
			correct = "WRONG"
		}
		fmt.Fprintf(&b, "\nrun of %s: %s; %s\n", r.Time.Local().Format(time.DateTime), correct, r.Summary)
		if r.Details != "" {
			b.WriteString(r.Details + "\n")
		}
	}
	return b.String()
}

// errNoBaseline is what to do where no clean program is at hand.
var errNoBaseline = errors.New("this program was built from changed source, and the source is not here: name a " +
	"clean one by --baseline FILE, or take this one by --baseline this")
